"""What rounding a node's own constants to their formats makes of its result, seen by moving them at random.

For products a bound can be computed in one replay. Of a normalization, a recurrent cell or an activation with constants
of its own none is known; a few replays with every constant moved within a few times what rounding moves it show how far
the result wanders (Parker, "Monte Carlo Arithmetic: exploiting randomness in floating-point arithmetic", UCLA
CSD-970002, 1997).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from qdebug.model.thresholds.attribution import (
    DISTURBANCE_HALF_STEPS,
    DISTURBED_REPLAYS,
    DISTURBED_REPLAYS_OF_SMALL,
    DISTURBED_SMALL_MAX_ELEMENTS,
)

__all__ = ["constant_spread"]

_SEED = 20250415


def constant_spread(
    replayed: Callable[[Mapping[str, np.ndarray]], np.ndarray],
    values: Mapping[str, np.ndarray],
    half_steps: Mapping[str, np.ndarray],
) -> np.ndarray:
    """Give the root mean square of what each element of a result is off when constants are moved at random.

    Args:
        replayed: Computes the result of inputs by name.
        values: The inputs.
        half_steps: Half a step of each element, by name of a float constant among the inputs.

    Returns:
        float64 of the result's shape.
    """
    plain = replayed(values)
    runs = DISTURBED_REPLAYS if plain.size > DISTURBED_SMALL_MAX_ELEMENTS else DISTURBED_REPLAYS_OF_SMALL
    rng = np.random.default_rng(_SEED)
    squares = np.zeros(plain.shape, np.float64)
    for _ in range(runs):
        moved = dict(values)
        for name, half in half_steps.items():
            disturbance = rng.uniform(-DISTURBANCE_HALF_STEPS, DISTURBANCE_HALF_STEPS, values[name].shape) * half
            moved[name] = values[name] + disturbance.astype(values[name].dtype)
        with np.errstate(invalid="ignore", over="ignore"):
            difference = np.subtract(replayed(moved), plain, dtype=np.float64)
        squares += np.nan_to_num(difference, nan=0, posinf=0, neginf=0) ** 2 / runs
    return np.sqrt(squares)
