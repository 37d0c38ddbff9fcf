"""Read recordings, whether finished, unfinished or untrusted."""
