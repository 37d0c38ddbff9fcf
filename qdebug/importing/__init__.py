"""Recordings made of what other tools dumped."""
