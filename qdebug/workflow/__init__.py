"""Workflows that need adapters and comparisons together: record a run, the demo."""
