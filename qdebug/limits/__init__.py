"""Limits, notes and maps of pairs in TOML files."""
