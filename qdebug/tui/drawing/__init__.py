"""Characters, colours and room: what lines on the screen are made of. Knows nothing of recordings."""
