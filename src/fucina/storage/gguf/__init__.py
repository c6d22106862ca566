"""GGUF files: a mapped, bounds-checked reader for one file or several parts."""
