"""One compared tensor in full detail, for a terminal, for Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from qdebug.numerics.histogram import ExponentHistogram, ValueHistogram
from qdebug.numerics.profile import TensorProfile
from qdebug.present import numbers
from qdebug.present.profile import (
    CHANNEL_TITLES,
    Bar,
    bar,
    channel_rows,
    error_bars,
    profile_facts,
    relative_bars,
    ulp_bars,
    value_bars,
)
from qdebug.present.reports.document import Block, FactList, Grid, Section

__all__ = ["profile_blocks", "profile_dict"]

_BAR = 20
"""Characters of the longest bar."""


def profile_blocks(profile: TensorProfile) -> list[Block]:
    """Return the parts of a profile; the worst elements are not among them.

    Args:
        profile: What to show.
    """
    values = [
        (ours.label, numbers.grouped(ours.count), bar(ours.length, _BAR), numbers.grouped(theirs.count), drawn)
        for ours, theirs in value_bars(profile)
        for drawn in (bar(theirs.length, _BAR),)
    ]
    channels = channel_rows(profile.channels)
    heading: list[Block] = [Section(_channel_title(profile))] if channels else []
    return [
        FactList.of(profile_facts(profile)),
        *(
            Grid(titles=(title, "elements", ""), rows=_bar_rows(bars), right=frozenset({1}))
            for title, bars in _histograms(profile)
        ),
        Grid(titles=("values", "reference", "", "backend", ""), rows=values, right=frozenset({1, 3})),
        *heading,
        Grid(titles=CHANNEL_TITLES, rows=channels, right=frozenset(range(len(CHANNEL_TITLES)))),
    ]


def _histograms(profile: TensorProfile) -> list[tuple[str, Sequence[Bar]]]:
    every = [
        ("abs(difference)", error_bars(profile)),
        ("abs(difference)/abs(reference)", relative_bars(profile)),
        ("ULP apart", ulp_bars(profile)),
    ]
    return [(title, bars) for title, bars in every if bars]


def _bar_rows(bars: Sequence[Bar]) -> list[tuple[str, str, str]]:
    return [(entry.label, numbers.grouped(entry.count), bar(entry.length, _BAR)) for entry in bars]


def _channel_title(profile: TensorProfile) -> str:
    channels = profile.channels
    if channels is None:
        return ""
    return f"worst of {numbers.grouped(channels.max_abs.size)} channels along axis {channels.axis}"


def profile_dict(profile: TensorProfile) -> dict[str, Any]:
    """Return a profile as plain values with the keys of the diff JSON; NaN and infinity stay as they are.

    Args:
        profile: What to give.
    """
    ulp, channels = profile.ulp, profile.channels
    return {
        "tensors": profile.tensors,
        "shape": list(profile.shape),
        "errors_by_exponent": _exponents(profile.errors),
        "relative_by_exponent": _exponents(profile.relative.quotients),
        "zero_refs_hit": profile.relative.zero_refs_hit,
        "max_ulp": None if ulp is None else ulp.max_ulp,
        "ulp_type": None if ulp is None else ulp.dtype,
        "ulp_counts": None if ulp is None else ulp.counts.tolist(),
        "reference_values": _values(profile.reference),
        "backend_values": _values(profile.backend),
        "channel_axis": None if channels is None else channels.axis,
        "channel_max_abs": None if channels is None else _listed(channels.max_abs),
        "channel_rmse": None if channels is None else _listed(channels.rmse),
        "channel_sqnr_db": None if channels is None else _listed(channels.sqnr_db),
        "channel_nonfinite": None if channels is None else channels.nonfinite.tolist(),
    }


def _exponents(histogram: ExponentHistogram) -> dict[str, Any]:
    return {
        "lowest": histogram.lowest,
        "counts": histogram.counts.tolist(),
        "zeros": histogram.zeros,
        "nonfinite": histogram.nonfinite,
    }


def _values(histogram: ValueHistogram | None) -> dict[str, Any] | None:
    if histogram is None:
        return None
    return {
        "low": histogram.low,
        "high": histogram.high,
        "counts": histogram.counts.tolist(),
        "below": histogram.below,
        "above": histogram.above,
        "nan": histogram.nan,
    }


def _listed(values: np.ndarray) -> list[float]:
    return [float(value) for value in values]
