"""Finds which known arithmetic reproduces a node bit for bit, and describes the nodes that none reproduces."""
