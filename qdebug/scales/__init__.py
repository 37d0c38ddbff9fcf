"""Scales: profiles of values, what calibrators choose from them, and what another scale makes of the outputs."""
