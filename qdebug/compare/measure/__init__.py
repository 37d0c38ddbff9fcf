"""The values of two runs, pair by pair: in full, as far as kept, for one sample, or one pair in detail."""
