"""Characters, colours and layout of lines on the screen. Knows nothing of recordings."""
