"""Histograms of both sides next to each other, with shared axes for values and counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from rich.cells import cell_len

from qdebug.present import numbers
from qdebug.tui.drawing.draw import resample
from qdebug.tui.drawing.glyphs import GlyphSet
from qdebug.tui.elements.values import ValueFacts
from qdebug.tui.views.view import Line

__all__ = ["Bins", "bins_of", "histogram_lines"]

_COUNT_WIDTH = 5
"""Cells for a count on the axis."""
_MIN_BINS = 4
_UNITS = ("", "k", "M", "G", "T", "P")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bins:
    """Bins of a histogram, ready to draw.

    Args:
        sides: Counts of the reference and the backend, or of the only known side, in bins of equal width.
        low, high: Labels at both ends of the axis of values.
        zero: Position of 0 on that axis, from 0 to 1; None if it is outside or at an end.
    """

    sides: tuple[np.ndarray, ...]
    low: str
    high: str
    zero: float | None = None


def bins_of(values: ValueFacts) -> Bins:
    """Return the histograms of both sides of a tensor."""
    low, high = values.low, values.high
    return Bins(
        sides=(values.reference.counts, values.backend.counts),
        low=numbers.number(low, digits=3),
        high=numbers.number(high, digits=3),
        zero=-low / (high - low) if low < 0 < high else None,
    )


def histogram_lines(bins: Bins, label_width: int, column_width: int, glyphs: GlyphSet, *, rows: int) -> list[Line]:
    """Draw the histograms. Both sides share the axis of values and the logarithmic axis of counts.

    Args:
        bins: The counts.
        label_width: Cells before the first histogram.
        column_width: Cells per histogram; one more cell separates them.
        glyphs: Characters for drawing.
        rows: Lines for the bars; one more line shows the values.
    """
    max_bins = max(column_width - _COUNT_WIDTH - 1, _MIN_BINS)
    sides = [np.repeat(counts, max(max_bins // max(len(counts), 1), 1)) for counts in bins.sides]
    sides = [resample(counts, max_bins) for counts in sides]
    # The highest bar that is drawn, not the highest of the finer bins.
    top = max((float(counts.max(initial=0)) for counts in sides), default=0.0)
    bar_lines = [_bars(counts, top, rows, glyphs) for counts in sides]
    titles = {0: "histogram", 1: "log counts"}
    lines: list[Line] = []
    for row in range(rows):
        count = _short_count(top) if not row else "1" if row == rows - 1 else ""
        line: Line = [(titles.get(row, "").ljust(label_width)[:label_width], "muted")]
        for number, bars in enumerate(bar_lines):
            gap = " " * (column_width + 1 - _COUNT_WIDTH - 1 - len(bars[row])) if number + 1 < len(bar_lines) else ""
            line += [(f"{count:>{_COUNT_WIDTH}}{glyphs.bar}", "muted"), (bars[row] + gap, "fine")]
        lines.append(line)
    axes = [f"{' ' * (_COUNT_WIDTH + 1)}{_axis(bins, len(counts))}" for counts in sides]
    return [*lines, [(" " * label_width + " ".join(axis.ljust(column_width) for axis in axes).rstrip(), "muted")]]


def _bars(counts: np.ndarray, top: float, rows: int, glyphs: GlyphSet) -> list[str]:
    """Return lines of bars, top line first. A single element shows at least the lowest bar."""
    full = len(glyphs.eighths) - 1
    heights = np.log1p(counts) / np.log1p(top) if top > 0 else np.zeros(len(counts))
    levels = np.rint(heights * rows * full).astype(int)
    levels[(counts > 0) & (levels == 0)] = 1
    lines = []
    for row in range(rows):
        part = np.clip(levels - full * (rows - 1 - row), 0, full)
        lines.append("".join(glyphs.eighths[level] for level in part))
    return lines


def _axis(bins: Bins, size: int) -> str:
    """Return the axis below the bars, with both ends of the values, and 0 if it is inside."""
    text = (bins.low.ljust(size - cell_len(bins.high)) + bins.high)[:size]
    zero_position = None if bins.zero is None else min(int(bins.zero * size), size - 1)
    if zero_position is not None and text[max(zero_position - 1, 0) : zero_position + 2].strip() == "":
        text = f"{text[:zero_position]}0{text[zero_position + 1 :]}"
    return text


def _short_count(count: float) -> str:
    """Format a count in at most four characters, such as 12k."""
    unit = 0
    while count >= 1000 and unit < len(_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    text = f"{count:.1f}" if unit and count < 10 else f"{count:.0f}"
    return f"{text.removesuffix('.0')}{_UNITS[unit]}"
