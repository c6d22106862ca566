"""Tools: what a client offers, how a model is told of them, and how its calls are forced and read."""
