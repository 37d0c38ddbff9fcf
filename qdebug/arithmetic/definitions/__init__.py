"""Definitions of operators as lines of code. Begin at `catalogue`."""
