"""Who owns which bytes. No arithmetic here."""
