"""Logits to tokens. Knows no requests."""
