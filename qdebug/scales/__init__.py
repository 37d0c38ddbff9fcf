"""Scales: profiles of values, choices of calibrators, and the effect of a different scale on the outputs."""
