"""Grammars that an answer must follow, and the tokens they leave no choice about."""
