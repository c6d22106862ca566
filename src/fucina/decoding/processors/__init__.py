"""What changes logits before a token is chosen."""
