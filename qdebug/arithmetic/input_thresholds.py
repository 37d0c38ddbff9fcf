"""Finds results that are right on one side of an input, and follow a simpler rule beyond it. See `results_by_input`."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from qdebug.model.thresholds.explanation import CAUSE_MIN_DISTINCT_VALUES

__all__ = ["results_by_input"]


def results_by_input(data: np.ndarray, right: np.ndarray, wrong: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield results in which inputs beyond a threshold follow a simpler rule, each after a clause on it.

    Kernels pass large inputs of a Softplus or Mish on, return 0 for small ones, or return the exponential.

    Args:
        data: The inputs of all samples, flat.
        right: The right results.
        wrong: Mask of the wrong results.
    """
    with np.errstate(all="ignore"):
        rules = {"passed on unchanged": data, "become 0": np.zeros_like(data), "become exp of themselves": np.exp(data)}
    for side, word in ((1.0, "above"), (-1.0, "below")):
        inputs = side * data
        if np.unique(inputs[wrong]).size < CAUSE_MIN_DISTINCT_VALUES:
            continue
        first = float(inputs[wrong].min())
        is_beyond = inputs >= first
        last_right = float(inputs[~is_beyond].max(initial=-np.inf))
        if not math.isfinite(last_right):
            continue  # no input is right, so there is no threshold
        threshold = side * _round_number_between(last_right, first)
        for rule, becomes in rules.items():
            if np.isfinite(becomes[is_beyond]).all():
                yield (
                    f"inputs {word} {threshold:g} are {rule}".replace("are become", "become"),
                    np.where(is_beyond, becomes, right),
                )


def _round_number_between(low: float, high: float) -> float:
    """Return the number of fewest digits in a range, including its ends."""
    for digits in range(1, 9):
        for number in (float(f"{high:.{digits}g}"), float(f"{low:.{digits}g}")):
            if low <= number <= high:
                return number
    return high
