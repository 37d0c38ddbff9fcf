"""One node of a recorded run as a reproducer for a bug report."""
