"""Nets that distinguish arithmetics, and the identification of a backend's arithmetic by running them."""
