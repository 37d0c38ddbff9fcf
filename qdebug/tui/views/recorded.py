"""The recorded statistics of a tensor that was not recorded in full, and its counts by powers of 2."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from qdebug.model.kept import LOWEST_EXPONENT, Statistics
from qdebug.present import numbers
from qdebug.tui.reading.facts import Recorded, RecordedSide
from qdebug.tui.views.histograms import Bins

__all__ = ["recorded_bins", "recorded_rows"]


def recorded_rows(sides: Recorded) -> list[tuple[str, str, str]]:
    """Return the label, the reference's value and the backend's value for each fact.

    Args:
        sides: Recorded statistics of both sides.
    """

    def both(label: str, show: Callable[[RecordedSide, Statistics], str]) -> tuple[str, str, str]:
        left, right = ("nothing kept" if side.statistics is None else show(side, side.statistics) for side in sides)
        return label, left, right

    statistics = [side.statistics for side in sides if side.statistics is not None]
    rows = [
        both("values kept", lambda side, statistics: f"{_count(side.elements)} of {_count(statistics.count)}"),
        both("min .. max", _extremes),
        both("mean, std", lambda _, statistics: f"{_real(statistics.mean)}, {_real(statistics.std)}"),
    ]
    if any(side.nan or side.inf for side in statistics):
        rows.append(both("NaN, inf", lambda _, statistics: f"{_count(statistics.nan)}, {_count(statistics.inf)}"))
    if any(side.quant is not None for side in sides):
        rows.append(both("at qmin, qmax", _rails))
    return rows


def recorded_bins(sides: Recorded | None) -> Bins | None:
    """Return the recorded histograms by powers of 2; None if there are none, or if they contain only 0.

    Args:
        sides: Recorded statistics of both sides.
    """
    statistics = [] if sides is None else [side.statistics for side in sides if side.statistics is not None]
    first, last = _exponents(statistics)
    if last < first or sides is None:
        return None
    signed = any(side.negative.any() for side in statistics)
    high = f"2^{last + 1 + LOWEST_EXPONENT}"
    none = np.zeros(1)
    return Bins(
        sides=tuple(
            none if side.statistics is None else _counts(side.statistics, (first, last), signed=signed)
            for side in sides
        ),
        low=f"-{high}" if signed else f"0, 2^{first + LOWEST_EXPONENT}",
        high=high,
        zero=0.5 if signed else None,
    )


def _count(many: int) -> str:
    return numbers.grouped(many)


def _real(value: float) -> str:
    return numbers.MISSING if np.isnan(value) else numbers.number(value, digits=4)


def _extremes(side: RecordedSide, statistics: Statistics) -> str:
    """Return the real extremes, or the extremes of the codes if there is one scale per channel."""
    quant, ends = side.quant, (statistics.low, statistics.high)
    if quant is None and side.whole and not any(map(np.isnan, ends)):
        return f"{numbers.whole(ends[0])} .. {numbers.whole(ends[1])}"
    if quant is None:
        return f"{_real(ends[0])} .. {_real(ends[1])}"
    if quant.scale.size != 1:
        return f"codes {ends[0]:.0f} .. {ends[1]:.0f}"
    scale, zero = float(quant.scale.ravel()[0]), float(quant.zero_point.ravel()[0])
    low, high = (scale * (end - zero) for end in ends)
    return f"{_real(low)} .. {_real(high)}"


def _rails(side: RecordedSide, statistics: Statistics) -> str:
    return numbers.MISSING if side.quant is None else f"{_count(statistics.at_qmin)}, {_count(statistics.at_qmax)}"


def _exponents(sides: list[Statistics]) -> tuple[int, int]:
    """Return the first and last bin that is not empty on any side. If all are empty, the last is below the first."""
    used = [np.flatnonzero(side.negative + side.positive) for side in sides]
    some = np.concatenate(used) if used else np.zeros(0, dtype=np.int64)
    return (int(some.min()), int(some.max())) if len(some) else (0, -1)


def _counts(statistics: Statistics, bins: tuple[int, int], *, signed: bool) -> np.ndarray:
    """Return the counts by powers of 2, with zero in the middle, or on the left if no value is negative."""
    chosen = slice(bins[0], bins[1] + 1)
    negative, positive = (side[chosen].astype(np.float64) for side in (statistics.negative, statistics.positive))
    zeros = (
        statistics.count
        - statistics.nan
        - statistics.inf
        - float(statistics.negative.sum())
        - float(statistics.positive.sum())
    )
    parts = [np.array([max(zeros, 0.0)]), positive]
    counts: np.ndarray = np.concatenate([negative[::-1], *parts] if signed else parts)
    return counts
