"""Keys and values: blocks of 64 positions, a pool of them, and sequences over the pool."""
