"""Definitions of operators as lines of code, and mistakes as edits of the lines. Begin at `edits`."""
