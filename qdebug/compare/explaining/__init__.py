"""Which known arithmetic reproduces a node, bit for bit, and what is said of those that none does."""
