"""One compared tensor in full detail, for a terminal, for Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.text import Text

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
from qdebug.present.reports.markdown import markdown_table, markdown_text
from qdebug.present.reports.table import fact_table, plain_grid

__all__ = ["profile_dict", "profile_markdown", "profile_parts"]

_BAR = 20
"""Characters of the longest bar."""


def profile_parts(profile: TensorProfile) -> list[RenderableType]:
    """Make the tables of a profile, each after an empty line; the worst elements are not among them.

    Args:
        profile: What to show.
    """
    parts: list[RenderableType] = []
    facts = profile_facts(profile)
    if facts:
        parts += [Text(""), fact_table([(label, Text(text)) for label, text in facts])]
    for title, bars in _histograms(profile):
        parts += [Text(""), plain_grid((title, "elements", ""), _bar_rows(bars), right={1})]
    values = value_bars(profile)
    if values:
        rows = [
            (ours.label, numbers.grouped(ours.count), bar(ours.length, _BAR), numbers.grouped(theirs.count), drawn)
            for ours, theirs in values
            for drawn in (bar(theirs.length, _BAR),)
        ]
        parts += [Text(""), plain_grid(("values", "reference", "", "backend", ""), rows, right={1, 3})]
    channels = channel_rows(profile.channels)
    if channels:
        parts += [Text(""), Text(_channel_title(profile), style="bold")]
        parts.append(plain_grid(CHANNEL_TITLES, channels, right=set(range(len(CHANNEL_TITLES)))))
    return parts


def profile_markdown(profile: TensorProfile) -> list[str]:
    """Return the lines of a profile as Markdown, without the worst elements.

    Args:
        profile: What to show.
    """
    lines = [""] + [f"- **{label}**: {markdown_text(text)}" for label, text in profile_facts(profile)]
    for title, bars in _histograms(profile):
        rows = [(markdown_text(label), count, drawn) for label, count, drawn in _bar_rows(bars)]
        lines += ["", *markdown_table((markdown_text(title), "elements", ""), rows)]
    values = [
        (markdown_text(ours.label), numbers.grouped(ours.count), numbers.grouped(theirs.count))
        for ours, theirs in value_bars(profile)
    ]
    if values:
        lines += ["", *markdown_table(("values", "reference", "backend"), values)]
    channels = channel_rows(profile.channels)
    if channels:
        lines += ["", f"### {_channel_title(profile).capitalize()}", ""]
        lines += markdown_table(CHANNEL_TITLES, [tuple(map(markdown_text, row)) for row in channels])
    return lines


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
