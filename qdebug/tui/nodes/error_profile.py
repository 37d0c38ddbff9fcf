"""The error profile: one metric in topological order on a logarithmic axis, as lines of styled characters.

An SQNR is drawn as usual, with more dB higher up. Other metrics are drawn with larger errors higher up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qdebug.present.rows import metric_title
from qdebug.tui.drawing.draw import Piece, area, merge_pieces, pool
from qdebug.tui.drawing.glyphs import GlyphSet
from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.nodes.rows import State, severity

__all__ = ["LABEL", "Axis", "ErrorProfile", "choose_axis", "column_to_row"]

LABEL = 10
"""Cells to the left of the plot."""

_TITLES = {"sqnr_db": "SQNR", "cosine": "1-cos"}
_STEPS = {True: (1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0), False: (0.25, 0.5, 1.0, 2.0, 3.0, 4.0)}
_MAX_SPAN = {True: 120.0, False: 9.0}
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
    finite_values = values[np.isfinite(values)]
    extremes = [float(finite_values.min()), float(finite_values.max())] if len(finite_values) else []
    if limit is not None:
        extremes.append(limit)
    if not extremes:
        return Axis(0.0, 20.0, decibels) if decibels else Axis(-float(rows), 1.0, decibels)
    high, low = max(extremes), min(extremes)
    if decibels:
        high = min(high, low + _MAX_SPAN[decibels])
        step = next(
            (step for step in _STEPS[decibels] if _floor(low, step) + rows * step >= high), _STEPS[decibels][-1]
        )
        return Axis(_floor(low, step), step, decibels)
    low = max(low, high - _MAX_SPAN[decibels])
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
    acknowledged: np.ndarray
    pending: np.ndarray


_NONE = np.zeros(0, dtype=bool)


class ErrorProfile:
    """Draws the profile. Moving the cursor redraws only the marks."""

    def __init__(self) -> None:
        self._plot_key: tuple[object, ...] = ()
        self._plot = _Plot(lines=(), failing=_NONE, acknowledged=_NONE, pending=_NONE)

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
        if key != self._plot_key:
            self._plot, self._plot_key = _draw_plot(navigator, width - LABEL - 1, height - 1, glyphs, limit), key
        return [*map(list, self._plot.lines), _draw_marks(navigator, self._plot, glyphs)]


def _draw_plot(navigator: Navigator, cells: int, rows: int, glyphs: GlyphSet, limit: float | None) -> _Plot:
    table = navigator.table
    decibels = navigator.metric == "sqnr_db"
    size = table.ordered
    states = table.states(navigator.sample)[:size]
    values = severity(navigator.metric, table.values(navigator.metric, navigator.sample))[:size]
    drawn_limit = limit if decibels and limit is not None and math.isfinite(limit) else None
    axis = choose_axis(-values if decibels else values, rows, decibels=decibels, limit=drawn_limit)
    severities = np.where(np.isnan(values), -np.inf, values)
    severities[states == State.NONFINITE] = np.inf
    column_severities = pool(severities, 2 * cells)  # pooled first: a large net has far more rows than columns
    heights = axis.dots(-column_severities if decibels else column_severities, rows)
    heights[~pool(~np.isnan(values) | np.isposinf(severities), 2 * cells)] = (
        0  # left blank: the error is unknown, not zero
    )
    is_beyond = (states == State.DIVERGED) | (states == State.NONFINITE)
    is_acknowledged = table.acknowledged[:size]
    failing_cells = _cells_with_any(is_beyond & ~is_acknowledged, cells)
    limit_row = None if drawn_limit is None else max(rows - 1 - int((drawn_limit - axis.bottom) / axis.step + 1e-9), 0)
    lines = []
    texts = area(heights, rows, glyphs)
    for row, text in enumerate(_outline(texts) if decibels else texts):
        pieces: list[Piece] = [(axis.label(rows - 1 - row).rjust(LABEL) + glyphs.bar, "muted")]
        if row == limit_row:
            text = _limit_line(text, glyphs)  # noqa: PLW2901  fills the empty part of the line
        pieces.extend(_styled_pieces(text, failing_cells, glyphs))
        lines.append(pieces)
    return _Plot(
        lines,
        failing_cells,
        _cells_with_any(is_beyond & is_acknowledged, cells),
        _cells_with_any(states == State.PENDING, cells),
    )


def _cells_with_any(is_row_marked: np.ndarray, cells: int) -> np.ndarray:
    """Return which cells contain any of the rows. Two columns of dots share a cell."""
    cell_flags: np.ndarray = pool(pool(is_row_marked, 2 * cells), cells)
    return cell_flags


def _outline(texts: Sequence[str]) -> list[str]:
    """Keep only the topmost character of each column of an area, which leaves room for the limit below the outline."""
    is_covered = [False] * len(texts[0])
    lines = []
    for text in texts:
        lines.append("".join(" " if above else sign for sign, above in zip(text, is_covered, strict=True)))
        is_covered = [above or sign != " " for sign, above in zip(text, is_covered, strict=True)]
    return lines


def _limit_line(text: str, glyphs: GlyphSet) -> str:
    """Fill the empty part of a line with the limit, labelled once if there is room."""
    line = text.replace(" ", glyphs.limit)
    word = glyphs.limit * 2 + "limit" + glyphs.limit
    return line.replace(glyphs.limit * len(word), word, 1)


def _styled_pieces(text: str, failing_cells: np.ndarray, glyphs: GlyphSet) -> Sequence[Piece]:
    """Split a line of the plot where its style changes."""
    muted_signs = f" {glyphs.limit}limt"
    return merge_pieces(
        [
            (sign, "muted" if sign in muted_signs else "fail" if failing else "fine")
            for sign, failing in zip(text, failing_cells, strict=True)
        ]
    )


def _draw_marks(navigator: Navigator, plot: _Plot, glyphs: GlyphSet) -> list[Piece]:
    """Draw the line below the plot: failures, acknowledged rows, the first divergence and the cursor."""
    table, cells = navigator.table, len(plot.failing)
    failing, acknowledged, pending = plot.failing, plot.acknowledged, plot.pending
    if table.ordered * 2 <= cells:  # each node covers several cells: mark the middle one only
        is_middle = np.zeros(cells, dtype=bool)
        is_middle[[_cell(row, cells, table.ordered) for row in range(table.ordered)]] = True
        failing, acknowledged, pending = failing & is_middle, acknowledged & is_middle, pending & is_middle
    marks = [("*", "fail") if is_failing else (glyphs.rule, "muted") for is_failing in failing]
    for acknowledged_cell in np.flatnonzero(acknowledged & ~failing):
        marks[acknowledged_cell] = ("~", "unknown")
    for pending_cell in np.flatnonzero(pending & ~failing):
        marks[pending_cell] = (".", "muted")
    first = table.first_divergence(navigator.sample)
    if first is not None:
        left, middle = (_cell(first, cells, table.ordered, left=side) for side in (True, False))
        is_cursor_on_first = navigator.cursor == first and table.ordered * 2 <= cells
        is_crowded = table.ordered * 2 > cells  # too many nodes for a mark of their own
        cell = left if is_crowded else middle if not is_cursor_on_first else middle - 1 if middle > left else middle + 1
        marks[cell] = ("!", "first")
    if navigator.cursor < table.ordered and (first != navigator.cursor or table.ordered * 2 <= cells):
        marks[_cell(navigator.cursor, cells, table.ordered)] = (glyphs.position_mark, "cursor")
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
