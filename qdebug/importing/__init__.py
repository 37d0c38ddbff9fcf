"""Create recordings from dumps of other tools."""
