"""Alignment, comparison and verdict over two recordings; knows the `Recording` protocol and no file."""
