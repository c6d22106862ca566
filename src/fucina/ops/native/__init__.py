"""The verbs on the compiled kernels: check, bind handles, run whole tapes in one call."""

from fucina.ops.native.backend import NativeOps

__all__ = ["NativeOps"]
