"""The values of two runs, pair by pair: the whole of them, what was kept of them, one sample, one pair in detail."""
