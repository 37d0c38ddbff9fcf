"""The error checks, in order. They apply to a whole tensor, to one of its samples, and to any replay of its node."""

from __future__ import annotations

from collections.abc import Callable

from qdebug.compare.checks import arithmetic, codes, error
from qdebug.compare.checks.measured import Measured
from qdebug.compare.result.finding import Finding

__all__ = ["ERROR_CHECKS"]

ERROR_CHECKS: tuple[Callable[[Measured], Finding | None], ...] = (
    error.nonfinite,
    arithmetic.integers,
    arithmetic.steps,
    arithmetic.sums,
    arithmetic.elements,
    codes.range_fits,
    codes.scale_fits,
    error.sqnr,
    error.largest_step,
    error.tolerance,
    codes.saturation,
)
"""Each check finds an error beyond one kind of limit."""
