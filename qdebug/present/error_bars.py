"""The error of one tensor in full detail, as bars, facts and rows for reports and the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qdebug.numerics.channels import ChannelErrors
from qdebug.numerics.histogram import ExponentHistogram
from qdebug.numerics.lsb import UlpErrors
from qdebug.numerics.profile import TensorProfile
from qdebug.present import numbers

__all__ = [
    "CHANNEL_TITLES",
    "Bar",
    "bar",
    "channel_rows",
    "error_bars",
    "profile_facts",
    "relative_bars",
    "ulp_bars",
    "value_bars",
]

CHANNEL_TITLES = ("channel", "SQNR dB", "RMSE", "max abs", "NaN or inf")
"""Titles of `channel_rows`."""

_EIGHTHS = " \u258f\u258e\u258d\u258c\u258b\u258a\u2589"
_MAX_BARS = 16
"""Maximum number of bars of a histogram. If there are more bins, neighbouring bins share a bar."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a histogram: its label, its count, and its length from 0 to 1."""

    label: str
    count: int
    length: float


def bar(length: float, width: int) -> str:
    """Draw a bar in eighths of a character. A positive length draws at least one eighth.

    Args:
        length: From 0 to 1.
        width: Width of a bar of length 1, in characters.
    """
    eighths = max(round(length * width * 8), int(length > 0))
    return "\u2588" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def profile_facts(profile: TensorProfile) -> list[tuple[str, str]]:
    """Return the facts of a profile, as (label, text)."""
    facts = []
    if profile.tensors > 1:
        facts.append(("arrays", f"{numbers.grouped(profile.tensors)}, taken together"))
    if profile.ulp is not None and profile.ulp.max_ulp is not None:
        facts.append(("ULP", _ulp_text(profile.ulp)))
    relative = profile.relative
    if relative.zero_refs:
        text = f"{numbers.grouped(relative.zero_refs)} elements without relative error"
        facts.append(("zero refs", f"{text}; the backend is 0 in {numbers.grouped(relative.zero_refs_hit)} of them"))
    return facts


def _ulp_text(ulp: UlpErrors) -> str:
    cumulative_counts = [int(ulp.counts[: power + 1].sum()) for power in range(ulp.counts.size)]
    total = cumulative_counts[-1]
    shares = [("equal", cumulative_counts[0])]
    shares += [
        (f"up to {2**power - 1}", cumulative_counts[power]) for power in (1, 3, 7) if power < len(cumulative_counts) - 1
    ]
    text = ", ".join(f"{numbers.percent(count, total)} {label}" for label, count in shares)
    return f"at most {numbers.grouped(ulp.max_ulp)} {ulp.dtype} apart; {text}"


def error_bars(profile: TensorProfile) -> list[Bar]:
    """Return the histogram of abs(difference) by power of two, smallest first."""
    return _exponent_bars(profile.errors, "equal")


def relative_bars(profile: TensorProfile) -> list[Bar]:
    """Return the histogram of abs(difference)/abs(reference) by power of two, for nonzero reference values."""
    return _exponent_bars(profile.relative.quotients, "equal")


def ulp_bars(profile: TensorProfile) -> list[Bar]:
    """Return the histogram of errors in units in the last place; empty if they are not defined for the tensor."""
    if profile.ulp is None:
        return []
    frequencies = profile.ulp.counts.tolist()
    labels = ["equal" if k == 0 else "1" if k == 1 else f"{2 ** (k - 1)}..{2**k - 1}" for k in range(len(frequencies))]
    return _bars(list(zip(labels, frequencies, strict=True)))


def _exponent_bars(histogram: ExponentHistogram, zero_label: str) -> list[Bar]:
    frequencies = histogram.counts
    bins_per_bar = -(-frequencies.size // _MAX_BARS) if frequencies.size else 1
    rows = [(zero_label, histogram.zeros)] if histogram.zeros else []
    for first in range(0, frequencies.size, bins_per_bar):
        last = min(first + bins_per_bar, frequencies.size)
        low, high = histogram.lowest + first, histogram.lowest + last
        rows.append((f"{_power_text(low)}..{_power_text(high)}", int(frequencies[first:last].sum())))
    if histogram.nonfinite:
        rows.append(("non-finite", histogram.nonfinite))
    return _bars(rows)


def _power_text(exponent: int) -> str:
    return numbers.number(2.0**exponent, digits=2) if exponent < 1024 else "beyond"


def _bars(rows: Sequence[tuple[str, int]]) -> list[Bar]:
    highest_count = max((count for _, count in rows), default=0) or 1
    return [Bar(label, count, count / highest_count) for label, count in rows]


def value_bars(profile: TensorProfile, *, bars: int = _MAX_BARS) -> list[tuple[Bar, Bar]]:
    """Return the histograms of the values of both sides over the same bins, lowest first; empty if there are none.

    Args:
        profile: The profile.
        bars: Maximum number of bars.

    Returns:
        The reference's bar and the backend's, with a common label and scale.
    """
    reference, backend = profile.reference, profile.backend
    if reference is None or backend is None:
        return []
    bins_per_bar = -(-reference.counts.size // bars)
    starts = list(range(0, reference.counts.size, bins_per_bar))
    rows = [("below", reference.below, backend.below)] if reference.below or backend.below else []
    edges = reference.edges
    for start in starts:
        last = min(start + bins_per_bar, reference.counts.size)
        label = f"{numbers.number(edges[start], digits=4)}..{numbers.number(edges[last], digits=4)}"
        rows.append((label, int(reference.counts[start:last].sum()), int(backend.counts[start:last].sum())))
    rows += [("above", reference.above, backend.above)] if reference.above or backend.above else []
    rows += [("NaN", reference.nan, backend.nan)] if reference.nan or backend.nan else []
    highest_count = max(max(first, second) for _, first, second in rows) or 1
    return [
        (Bar(label, first, first / highest_count), Bar(label, second, second / highest_count))
        for label, first, second in rows
    ]


def channel_rows(channels: ChannelErrors | None, *, max_channels: int = 8) -> list[tuple[str, ...]]:
    """Return rows for the worst channels, worst first, with the cells of `CHANNEL_TITLES`.

    Channels with a NaN or infinity on one side come first, then those with the lowest SQNR.

    Args:
        channels: The error of each channel, or None.
        max_channels: Maximum number of channels.
    """
    if channels is None:
        return []
    sqnr = np.nan_to_num(channels.sqnr_db, nan=-np.inf, posinf=np.inf, neginf=-np.inf)
    order = np.lexsort((np.arange(sqnr.size), -channels.max_abs, sqnr, -channels.nonfinite))
    return [
        (
            str(channel),
            numbers.number(float(channels.sqnr_db[channel])),
            numbers.number(float(channels.rmse[channel])),
            numbers.number(float(channels.max_abs[channel])),
            numbers.grouped(int(channels.nonfinite[channel])),
        )
        for channel in order[:max_channels].tolist()
    ]
