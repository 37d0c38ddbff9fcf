"""Nets that tell arithmetics apart, and the name of the arithmetic of a backend that ran them."""
