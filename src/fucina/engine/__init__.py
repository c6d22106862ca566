"""Many sequences, one thread of arithmetic: plan, forward, commit."""
