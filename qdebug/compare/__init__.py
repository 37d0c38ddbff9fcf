"""Alignment, comparison and verdict over two recordings; depends on the `Recording` protocol, never on files.

`examine` collects all findings about one tensor and shows how the packages work together.
"""
