"""Find rewrites of a network that change its numbers."""
