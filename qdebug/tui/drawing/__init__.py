"""Characters, colours and layout of lines on the screen, independent of recordings."""
