"""The views, one widget per module with its keys, and their base classes."""
