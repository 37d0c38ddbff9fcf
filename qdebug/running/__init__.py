"""Runs models: makes their inputs, records them, and measures whether recording changed the outputs. Also workers."""
