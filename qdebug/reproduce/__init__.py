"""Cut one node out of a recorded run, as a reproducer for a bug report."""
