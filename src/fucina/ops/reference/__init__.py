"""The verbs in NumPy: short, obvious, slow. The specification, and the fallback without the extension."""

from __future__ import annotations

from fucina.ops.reference.backend import ReferenceOps

__all__ = ["ReferenceOps"]
