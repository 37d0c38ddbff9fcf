"""Widgets that paint lines, independent of recordings, and the prompt that asks for text."""
