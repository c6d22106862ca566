"""Routed experts that stay on disk: where they lie, how many are held in memory, which, and how that is learned."""
