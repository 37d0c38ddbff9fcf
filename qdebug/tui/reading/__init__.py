"""What the reader threads do: open, compare, answer; and what they and the screen tell each other."""
