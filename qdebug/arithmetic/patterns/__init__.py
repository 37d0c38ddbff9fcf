"""Patterns of wrong elements that no arithmetic reproduces: their places and their values."""
