"""Guessing tokens ahead. A guess can change the speed of decoding and nothing else."""
