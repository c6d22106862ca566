"""Language models on ordinary CPUs: GGUF in, text out, the same bits on every schedule."""

__version__ = "0.1.0"
