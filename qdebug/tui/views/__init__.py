"""The views, one widget a module with its keys, and their base classes."""
