"""The terminal interface: verdict, error profile, node list and node detail of two recordings."""
