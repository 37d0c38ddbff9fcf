"""Elements of one tensor, or of a window of a huge tensor, and statistics over all elements."""
