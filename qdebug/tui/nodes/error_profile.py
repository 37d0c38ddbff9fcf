"""The error profile: one metric in topological order on a logarithmic axis, as lines of styled characters.

An SQNR is drawn as usual, with more dB higher up. Other metrics are drawn with larger errors higher up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qdebug.present.rows import metric_title
from qdebug.tui.drawing.draw import Piece, area, merged, pool
from qdebug.tui.drawing.glyphs import GlyphSet
from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.nodes.rows import State, severity

__all__ = ["LABEL", "Axis", "ErrorProfile", "choose_axis", "column_to_row"]

LABEL = 10
"""Cells to the left of the plot."""

_TITLES = {"sqnr_db": "SQNR", "cosine": "1-cos"}
_STEPS = {True: (1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0), False: (0.25, 0.5, 1.0, 2.0, 3.0, 4.0)}
_MOST_ROWS_SPAN = {True: 120.0, False: 9.0}
"""Span of the axis, starting at the largest error. Smaller errors are drawn at its far end."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A vertical axis.

    Args:
        bottom: Value at the bottom of the lowest line.
        step: Difference from one line of text to the next.
        decibels: Whether values are an SQNR in dB; otherwise they are decimal logarithms of an error.
    """

    bottom: float
    step: float
    decibels: bool

    def label(self, line: int) -> str:
        """Return the value at the bottom of a line, counted from the lowest line."""
        level = self.bottom + line * self.step
        if self.decibels:
            return f"{level + 0.0:.0f} dB"
        exponent = math.floor(level + 1e-9)
        digit = 10 ** (level - exponent)
        return f"{digit:.0f}e{exponent}"

    def dots(self, values: np.ndarray, rows: int) -> np.ndarray:
        """Return heights in dots of a quarter line: at least 1 for finite values, 0 for minus infinity and NaN."""
        with np.errstate(invalid="ignore"):
            heights = np.ceil((values - self.bottom) / self.step * 4)
        heights = np.clip(np.nan_to_num(heights, nan=0.0, posinf=4.0 * rows, neginf=0.0), 0, 4 * rows)
        heights[np.isfinite(values) & (heights < 1)] = 1
        dots: np.ndarray = heights.astype(int)
        return dots


def choose_axis(values: np.ndarray, rows: int, *, decibels: bool, limit: float | None = None) -> Axis:
    """Choose an axis with round labels that includes the worst values and the limit.

    Args:
        values: SQNR in dB, or decimal logarithms of an error.
        rows: Lines of text, at least 1.
        decibels: Whether the values are an SQNR.
        limit: A limit to keep visible.
    """
    finite = values[np.isfinite(values)]
    ends = [float(finite.min()), float(finite.max())] if len(finite) else []
    if limit is not None:
        ends.append(limit)
    if not ends:
        return Axis(0.0, 20.0, decibels) if decibels else Axis(-float(rows), 1.0, decibels)
    high, low = max(ends), min(ends)
    if decibels:
        high = min(high, low + _MOST_ROWS_SPAN[decibels])
        step = next(
            (step for step in _STEPS[decibels] if _floor(low, step) + rows * step >= high), _STEPS[decibels][-1]
        )
        return Axis(_floor(low, step), step, decibels)
    low = max(low, high - _MOST_ROWS_SPAN[decibels])
    for step in _STEPS[decibels]:
        bottom = math.ceil(high / step - 1e-9) * step - rows * step
        if bottom <= low:
            return Axis(bottom, step, decibels)
    step = _STEPS[decibels][-1]
    return Axis(math.ceil(high / step) * step - rows * step, step, decibels)


def _floor(value: float, step: float) -> float:
    """Return the largest multiple of a step below a value, so that the value itself has a visible height."""
    return (math.ceil(value / step - 1e-9) - 1) * step


def column_to_row(column: int, width: int, size: int) -> int | None:
    """Return the first table row drawn at a column of the profile; None on the axis or outside the plot."""
    cells = width - LABEL - 1
    cell = column - LABEL - 1
    if not 0 <= cell < cells or not size:
        return None
    return min(2 * cell * size // (2 * cells), size - 1)


@dataclass(frozen=True, slots=True, eq=False)
class _Plot:
    """The cached part of the profile: the lines above the marks, and the row states in each cell."""

    lines: Sequence[Sequence[Piece]]
    failing: np.ndarray
    excused: np.ndarray
    pending: np.ndarray


_NONE = np.zeros(0, dtype=bool)


class ErrorProfile:
    """Draws the profile. Moving the cursor redraws only the marks."""

    def __init__(self) -> None:
        self._drawn: tuple[object, ...] = ()
        self._plot = _Plot(lines=(), failing=_NONE, excused=_NONE, pending=_NONE)

    def lines(
        self, navigator: Navigator, width: int, height: int, glyphs: GlyphSet, *, limit: float | None = None
    ) -> list[list[Piece]]:
        """Draw the profile.

        Args:
            navigator: The navigator, with its table, metric, sample and cursor.
            width: Cells per line, at least 20.
            height: Lines, at least 3; the last one holds the marks.
            glyphs: Characters for drawing.
            limit: The minimum allowed SQNR in dB, if there is a limit.

        Returns:
            `height` lines of pieces, each at most `width` cells wide.
        """
        table = navigator.table
        if not table.ordered:
            return [[(" " * LABEL + glyphs.bar, "muted")] for _ in range(height)]
        key = (table, table.version, navigator.metric, navigator.sample, width, height, glyphs, limit)
        if key != self._drawn:
            self._plot, self._drawn = _plot(navigator, width - LABEL - 1, height - 1, glyphs, limit), key
        return [*map(list, self._plot.lines), _marks(navigator, self._plot, glyphs)]


def _plot(navigator: Navigator, cells: int, rows: int, glyphs: GlyphSet, limit: float | None) -> _Plot:
    table = navigator.table
    decibels = navigator.metric == "sqnr_db"
    size = table.ordered
    states = table.states(navigator.sample)[:size]
    values = severity(navigator.metric, table.values(navigator.metric, navigator.sample))[:size]
    line = limit if decibels and limit is not None and math.isfinite(limit) else None
    axis = choose_axis(-values if decibels else values, rows, decibels=decibels, limit=line)
    worst = np.where(np.isnan(values), -np.inf, values)
    worst[states == State.NONFINITE] = np.inf
    drawn = pool(worst, 2 * cells)  # of what is drawn alone: a large net has many more rows
    heights = axis.dots(-drawn if decibels else drawn, rows)
    beyond = (states == State.DIVERGED) | (states == State.NONFINITE)
    excused = table.acknowledged[:size]
    failing = _pooled(beyond & ~excused, cells)
    limit_row = None if line is None else max(rows - 1 - int((line - axis.bottom) / axis.step + 1e-9), 0)
    lines = []
    texts = area(heights, rows, glyphs)
    for row, text in enumerate(_outline(texts) if decibels else texts):
        pieces: list[Piece] = [(axis.label(rows - 1 - row).rjust(LABEL) + glyphs.bar, "muted")]
        if row == limit_row:
            text = _limit_line(text, glyphs)  # noqa: PLW2901  the empty part of the line is the limit
        pieces.extend(_stretches(text, failing, glyphs))
        lines.append(pieces)
    return _Plot(lines, failing, _pooled(beyond & excused, cells), _pooled(states == State.PENDING, cells))


def _pooled(there: np.ndarray, cells: int) -> np.ndarray:
    """Return which cells contain any of the rows. Two columns of dots share a cell."""
    pooled: np.ndarray = pool(pool(there, 2 * cells), cells)
    return pooled


def _outline(texts: Sequence[str]) -> list[str]:
    """Keep only the topmost character of each column of an area, which leaves room for the limit below the outline."""
    covered = [False] * len(texts[0])
    lines = []
    for text in texts:
        lines.append("".join(" " if above else sign for sign, above in zip(text, covered, strict=True)))
        covered = [above or sign != " " for sign, above in zip(text, covered, strict=True)]
    return lines


def _limit_line(text: str, glyphs: GlyphSet) -> str:
    """Fill the empty part of a line with the limit, labelled once if there is room."""
    line = text.replace(" ", glyphs.limit)
    word = glyphs.limit * 2 + "limit" + glyphs.limit
    return line.replace(glyphs.limit * len(word), word, 1)


def _stretches(text: str, bad: np.ndarray, glyphs: GlyphSet) -> Sequence[Piece]:
    """Split a line of the plot where its style changes."""
    quiet = f" {glyphs.limit}limt"
    return merged(
        [
            (sign, "muted" if sign in quiet else "fail" if failing else "fine")
            for sign, failing in zip(text, bad, strict=True)
        ]
    )


def _marks(navigator: Navigator, plot: _Plot, glyphs: GlyphSet) -> list[Piece]:
    """Draw the line below the plot: failures, acknowledged rows, the first divergence and the cursor."""
    table, cells = navigator.table, len(plot.failing)
    failing, excused, pending = plot.failing, plot.excused, plot.pending
    if table.ordered * 2 <= cells:  # a node has several cells, and one mark
        middles = np.zeros(cells, dtype=bool)
        middles[[_cell(row, cells, table.ordered) for row in range(table.ordered)]] = True
        failing, excused, pending = failing & middles, excused & middles, pending & middles
    marks = [("*", "fail") if bad else (glyphs.rule, "muted") for bad in failing]
    for cell in np.flatnonzero(excused & ~failing):
        marks[cell] = ("~", "unknown")
    for cell in np.flatnonzero(pending & ~failing):
        marks[cell] = (".", "muted")
    first = table.first_divergence(navigator.sample)
    if first is not None:
        left, middle = (_cell(first, cells, table.ordered, left=side) for side in (True, False))
        beside = navigator.cursor == first and table.ordered * 2 <= cells
        crowded = table.ordered * 2 > cells  # a node has no mark of its own, and several cells may fail
        at = left if crowded else middle if not beside else middle - 1 if middle > left else middle + 1
        marks[at] = ("!", "first")
    if navigator.cursor < table.ordered and (first != navigator.cursor or table.ordered * 2 <= cells):
        marks[_cell(navigator.cursor, cells, table.ordered)] = (glyphs.here, "cursor")
    title = _TITLES.get(navigator.metric, metric_title(navigator.metric))
    return [(title[:LABEL].rjust(LABEL) + " ", "muted"), *marks]


def _cell(row: int, cells: int, size: int, *, left: bool = False) -> int:
    """Return the cell in which a row is drawn: the middle or the left end of the cells that it covers."""
    columns = 2 * cells
    if size >= columns:
        starts = np.arange(columns) * size // columns
        return int(np.searchsorted(starts, row, side="right") - 1) // 2
    first, last = -(-row * columns // size), -(-(row + 1) * columns // size) - 1  # columns of dots it covers
    return (first if left else (first + last) // 2) // 2
