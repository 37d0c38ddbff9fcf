"""The fewest changes that bring a backend's outputs back, proved by replay."""
