"""Sweeps of many cases of one kind: some run in the gate, the others are marked slow."""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest
from hypothesis import settings


def sweep(cases: Iterable[object], gate: int) -> list[object]:
    """Mark all cases but some, evenly spread over the sweep, as slow.

    Args:
        cases: The cases, those of one family beside each other; a tuple is the values of several parameters.
        gate: How many the gate runs, the first and the last among them.
    """
    listed = [case if isinstance(case, tuple) else (case,) for case in cases]
    kept = {round(at * (len(listed) - 1) / max(gate - 1, 1)) for at in range(gate)}
    return [pytest.param(*case, marks=() if at in kept else pytest.mark.slow) for at, case in enumerate(listed)]


def drawn(examples: int) -> settings:
    """Draw so many examples for a test of Hypothesis; a third of them in the gate, which draws the same each time."""
    return settings(max_examples=max(examples // 3, 8) if "CI" in os.environ else examples, deadline=None)
