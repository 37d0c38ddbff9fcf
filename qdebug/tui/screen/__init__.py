"""The one screen: its panels, and the controllers that answer the keys."""
