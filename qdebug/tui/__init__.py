"""The terminal interface for two recordings: verdict, error profile, node list and node details."""
