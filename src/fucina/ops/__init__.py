"""Arithmetic on bytes, behind one seam (seam.py). No I/O here."""
