"""Reads recordings: finished ones, those being written, and those that need checks first."""
