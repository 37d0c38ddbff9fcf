"""Finds the fewest changes that restore a backend's outputs, and proves them by replay."""
