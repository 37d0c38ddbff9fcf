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

    def both_sides(label: str, show: Callable[[RecordedSide, Statistics], str]) -> tuple[str, str, str]:
        left, right = ("nothing kept" if side.statistics is None else show(side, side.statistics) for side in sides)
        return label, left, right

    statistics = [side.statistics for side in sides if side.statistics is not None]
    rows = [
        both_sides(
            "values kept", lambda side, statistics: f"{_count_text(side.elements)} of {_count_text(statistics.count)}"
        ),
        both_sides("min .. max", _extremes_text),
        both_sides("mean, std", lambda _, statistics: f"{_real_text(statistics.mean)}, {_real_text(statistics.std)}"),
    ]
    if any(side.nan or side.inf for side in statistics):
        rows.append(
            both_sides(
                "NaN, inf", lambda _, statistics: f"{_count_text(statistics.nan)}, {_count_text(statistics.inf)}"
            )
        )
    if any(side.quant is not None for side in sides):
        rows.append(both_sides("at qmin, qmax", _rails_text))
    return rows


def recorded_bins(sides: Recorded | None) -> Bins | None:
    """Return the recorded histograms by powers of 2; None if there are none, or if they contain only 0.

    Args:
        sides: Recorded statistics of both sides.
    """
    statistics = [] if sides is None else [side.statistics for side in sides if side.statistics is not None]
    first, last = _exponent_range(statistics)
    if last < first or sides is None:
        return None
    has_negative = any(side.negative.any() for side in statistics)
    high = f"2^{last + 1 + LOWEST_EXPONENT}"
    no_counts = np.zeros(1)
    return Bins(
        sides=tuple(
            no_counts if side.statistics is None else _counts(side.statistics, (first, last), has_negative=has_negative)
            for side in sides
        ),
        low=f"-{high}" if has_negative else f"0, 2^{first + LOWEST_EXPONENT}",
        high=high,
        zero=0.5 if has_negative else None,
    )


def _count_text(count: int) -> str:
    return numbers.grouped(count)


def _real_text(value: float) -> str:
    return numbers.MISSING if np.isnan(value) else numbers.number(value, digits=4)


def _extremes_text(side: RecordedSide, statistics: Statistics) -> str:
    """Return the real extremes, or the extremes of the codes if there is one scale per channel."""
    quant, extremes = side.quant, (statistics.low, statistics.high)
    if quant is None and side.is_integer and not any(map(np.isnan, extremes)):
        return f"{numbers.whole(extremes[0])} .. {numbers.whole(extremes[1])}"
    if quant is None:
        return f"{_real_text(extremes[0])} .. {_real_text(extremes[1])}"
    if quant.scale.size != 1:
        return f"codes {extremes[0]:.0f} .. {extremes[1]:.0f}"
    scale, zero = float(quant.scale.ravel()[0]), float(quant.zero_point.ravel()[0])
    low, high = (scale * (end - zero) for end in extremes)
    return f"{_real_text(low)} .. {_real_text(high)}"


def _rails_text(side: RecordedSide, statistics: Statistics) -> str:
    return (
        numbers.MISSING
        if side.quant is None
        else f"{_count_text(statistics.at_qmin)}, {_count_text(statistics.at_qmax)}"
    )


def _exponent_range(sides: list[Statistics]) -> tuple[int, int]:
    """Return the first and last bin that is not empty on any side. If all are empty, the last is below the first."""
    used_bins = [np.flatnonzero(side.negative + side.positive) for side in sides]
    all_bins = np.concatenate(used_bins) if used_bins else np.zeros(0, dtype=np.int64)
    return (int(all_bins.min()), int(all_bins.max())) if len(all_bins) else (0, -1)


def _counts(statistics: Statistics, bins: tuple[int, int], *, has_negative: bool) -> np.ndarray:
    """Return the counts by powers of 2, with zero in the middle, or on the left if no value is negative."""
    bin_slice = slice(bins[0], bins[1] + 1)
    negative, positive = (side[bin_slice].astype(np.float64) for side in (statistics.negative, statistics.positive))
    zeros = (
        statistics.count
        - statistics.nan
        - statistics.inf
        - float(statistics.negative.sum())
        - float(statistics.positive.sum())
    )
    parts = [np.array([max(zeros, 0.0)]), positive]
    counts: np.ndarray = np.concatenate([negative[::-1], *parts] if has_negative else parts)
    return counts
