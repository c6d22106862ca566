"""The verbs on the compiled kernels: check, bind handles, run whole tapes in one call."""
