"""The HTTP server: OpenAI's, Anthropic's and Ollama's dialects over one engine."""
