"""The verbs in NumPy: short, obvious, slow; the independent oracle and the fallback without a compiler."""
