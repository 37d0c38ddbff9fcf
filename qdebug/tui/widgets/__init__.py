"""Widgets that paint lines and know nothing of recordings, and the line that asks for text."""
