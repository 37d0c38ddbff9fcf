"""Elements of one tensor, or a window of a huge one, and statistics of all of them."""
