"""Conversations in files: messages, tokens, and the keys and values computed for them."""
