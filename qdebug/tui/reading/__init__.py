"""Worker threads that open, compare and answer, and the messages between them and the screen."""
