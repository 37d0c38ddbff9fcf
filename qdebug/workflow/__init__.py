"""Workflows that need adapters and analysis together: record a run, the demo."""
