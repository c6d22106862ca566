"""Fakes that ship: a scripted model, a byte tokenizer, a writer of tiny GGUF models."""
