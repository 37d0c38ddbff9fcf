"""What a node introduces and what reaches it: replays on its inputs, and what rounding alone leaves."""
