"""The widgets, and how they are laid out."""
