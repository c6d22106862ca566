"""Pieces that families share."""
