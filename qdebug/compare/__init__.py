"""Alignment, comparison and verdict over two recordings; knows the `Recording` protocol and no file.

`examine` finds out everything about one tensor and shows how the packages go together.
"""
