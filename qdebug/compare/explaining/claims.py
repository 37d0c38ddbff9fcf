"""How exactly a cause reproduces a wrong result, in words."""

__all__ = ["EVERY", "LIKELY", "MOST_SAID", "ONE_OFF"]

LIKELY = "likely: "
EVERY, ONE_OFF = "reproduces every element", "reproduces every code to within one"
"""Wording for a cause. The second is for codes whose rounding is not known well enough to reproduce all of them."""
MOST_SAID = 2
"""Number of mistakes reported together if the recorded values cannot distinguish them."""
