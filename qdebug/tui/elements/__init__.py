"""Elements of one tensor, or a window of a huge one, and what all of them come to."""
