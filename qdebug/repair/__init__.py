"""Find the fewest changes that restore a backend's outputs, and prove them by replay."""
