"""Patterns of wrong elements that no arithmetic reproduces: their positions and their values."""
