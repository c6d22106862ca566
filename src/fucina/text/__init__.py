"""Bytes to tokens and back, and chat messages to prompts. Knows no tensors."""
