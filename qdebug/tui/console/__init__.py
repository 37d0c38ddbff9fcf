"""The terminal itself: its size, what it sends, and how it is left behind."""
