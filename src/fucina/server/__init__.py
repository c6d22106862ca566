"""The server: HTTP in several dialects in front of one model."""
