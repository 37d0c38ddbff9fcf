"""Create recordings from what other tools dumped."""
