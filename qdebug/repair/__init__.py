"""Find the fewest changes that restore a backend's outputs, proved by replay."""
