"""Facts everybody shares: formats, the legend of dimensions, units, randomness, CPUs, settings."""
