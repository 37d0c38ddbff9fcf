"""Read recordings: finished ones, unfinished ones, and untrusted ones."""
