"""The reader threads, which open, compare and answer, and their messages to and from the screen."""
