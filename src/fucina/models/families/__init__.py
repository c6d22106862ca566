"""One file a family: hyperparameters, tensor names, wiring."""
