"""Identify the arithmetic of a backend by running small networks that distinguish arithmetics."""
