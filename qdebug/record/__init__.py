"""Recorders: what a harness or an adapter puts tensors into."""
