"""One compared tensor in full detail, for a terminal, for Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from qdebug.numerics.profile import TensorProfile
from qdebug.present import numbers
from qdebug.present.error_bars import (
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

__all__ = ["profile_blocks"]

_BAR_WIDTH = 20
"""Length of the longest bar, in characters."""


def profile_blocks(profile: TensorProfile) -> list[Block]:
    """Return the parts of a profile, except the worst elements.

    Args:
        profile: The profile to show.
    """
    values = [
        (
            backend_bar.label,
            numbers.grouped(backend_bar.count),
            bar(backend_bar.length, _BAR_WIDTH),
            numbers.grouped(reference_bar.count),
            reference_bar_text,
        )
        for backend_bar, reference_bar in value_bars(profile)
        for reference_bar_text in (bar(reference_bar.length, _BAR_WIDTH),)
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
    histograms = [
        ("abs(difference)", error_bars(profile)),
        ("abs(difference)/abs(reference)", relative_bars(profile)),
        ("ULP apart", ulp_bars(profile)),
    ]
    return [(title, bars) for title, bars in histograms if bars]


def _bar_rows(bars: Sequence[Bar]) -> list[tuple[str, str, str]]:
    return [(entry.label, numbers.grouped(entry.count), bar(entry.length, _BAR_WIDTH)) for entry in bars]


def _channel_title(profile: TensorProfile) -> str:
    channels = profile.channels
    if channels is None:
        return ""
    return f"worst of {numbers.grouped(channels.max_abs.size)} channels along axis {channels.axis}"
