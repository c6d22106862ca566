"""Blocks of keys and values on disk: found again after a restart, checked before they are used."""
