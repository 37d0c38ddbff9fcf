"""What worker threads do: open, compare and answer; and their messages to and from the screen."""
