"""Rewrites of a network that change its numbers."""
