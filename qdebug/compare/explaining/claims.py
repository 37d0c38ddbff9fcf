"""Wording for how exactly a cause reproduces a wrong result."""

__all__ = ["EVERY", "KNOWN", "LIKELY", "MAX_REPORTED_MISTAKES", "ONE_OFF"]

LIKELY = "likely: "
EVERY, ONE_OFF = "reproduces every element", "reproduces every code to within one"
"""How many elements a cause reproduces. `ONE_OFF` is for codes whose rounding is not known exactly."""
KNOWN = f"{EVERY} that does not depend on unknown memory"
"""How many elements a cause reproduces that reads beyond the end of an operand."""
MAX_REPORTED_MISTAKES = 2
"""Maximum number of mistakes reported together if the recorded values cannot distinguish them. With more, none is."""
