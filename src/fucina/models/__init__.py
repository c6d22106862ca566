"""Which weights, in which order: a model is a tape of bound ops."""
