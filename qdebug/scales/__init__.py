"""Scales: profiles of values, choices of calibrators, and the effect of another scale on the outputs."""
