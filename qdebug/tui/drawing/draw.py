"""Text plots: filled areas in braille dots, bars in eighth blocks. Arrays go in, lines of text come out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qdebug.tui.drawing.glyphs import GlyphSet
from qdebug.tui.drawing.palette import HEAT_STEPS

__all__ = [
    "LEVELS",
    "NOT_FINITE",
    "NOT_READ",
    "Piece",
    "area",
    "bars",
    "heat_levels",
    "heat_lines",
    "legend",
    "merge_pieces",
    "pool",
    "pool_plane",
    "resample",
    "rows_in_lines",
]

Piece = tuple[str, str]
"""A piece of text and the name of its style in the palette."""

_LEFT = (0x00, 0x40, 0x44, 0x46, 0x47)
_RIGHT = (0x00, 0x80, 0xA0, 0xB0, 0xB8)
"""Unicode braille: the dots of a cell's left and right column, filled from below (0 to 4 dots)."""


def pool(values: np.ndarray, columns: int) -> np.ndarray:
    """Return the largest value of each of `columns` parts. A short array is stretched instead.

    Args:
        values: One dimension, at least one element, without NaN.
        columns: At least 1.

    Returns:
        Array of `columns` elements.
    """
    size = len(values)
    starts = np.arange(columns) * size // columns
    if size < columns:
        return values[starts]
    maxima: np.ndarray = np.maximum.reduceat(values, starts)
    return maxima


def pool_plane(values: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Return the largest value of each tile, so that a plane fits in the given rows and columns. NaN propagates.

    Args:
        values: Two dimensions; a dimension that fits is not pooled.
        rows: Maximum number of rows, at least 1.
        columns: Maximum number of columns, at least 1.
    """
    plane = values
    for axis, limit in ((0, rows), (1, columns)):
        size = plane.shape[axis]
        if size > limit:
            plane = np.maximum.reduceat(plane, np.arange(limit) * size // limit, axis=axis)
    return plane


def area(heights: np.ndarray, rows: int, glyphs: GlyphSet) -> list[str]:
    """Draw a filled area with two columns of dots per cell.

    Args:
        heights: Height of each column in dots, 0 to 4 * `rows`; an even number of columns.
        rows: Lines of text.
        glyphs: Characters for drawing.

    Returns:
        `rows` lines of len(heights) / 2 characters, top line first.
    """
    lines = []
    for row in range(rows):
        level = np.clip(heights - 4 * (rows - 1 - row), 0, 4).astype(int)
        left, right = level[0::2], level[1::2]
        if glyphs.braille:
            cells = [chr(0x2800 + _LEFT[a] + _RIGHT[b]) if a or b else " " for a, b in zip(left, right, strict=True)]
        else:
            cells = [glyphs.levels[max(a, b)] for a, b in zip(left, right, strict=True)]
        lines.append("".join(cells))
    return lines


def bars(values: np.ndarray, glyphs: GlyphSet, *, top: float | None = None) -> str:
    """Draw one line of bars. Any value above 0 shows at least the lowest bar.

    Args:
        values: Values, not negative; NaN is left blank.
        glyphs: Characters for drawing.
        top: Value of a full bar; the largest value by default.
    """
    finite_values = np.nan_to_num(np.asarray(values, dtype=np.float64), nan=0.0)
    full_value = float(finite_values.max(initial=0.0)) if top is None else top
    if not full_value > 0:
        return glyphs.eighths[0] * len(finite_values)
    steps = len(glyphs.eighths) - 1
    level = np.clip(np.rint(finite_values / full_value * steps), 0, steps).astype(int)
    level[(finite_values > 0) & (level == 0)] = 1
    return "".join(glyphs.eighths[step] for step in level)


def resample(counts: np.ndarray, columns: int) -> np.ndarray:
    """Sum neighbouring bins, so that a histogram has at most `columns` bins.

    Args:
        counts: Counts of bins of equal width.
        columns: At least 1.

    Returns:
        Counts of at most `columns` bins, with the same total.
    """
    size = len(counts)
    if size <= columns:
        return counts
    sums: np.ndarray = np.add.reduceat(counts, np.arange(columns) * size // columns)
    return sums


LEVELS = HEAT_STEPS
"""Number of steps of the ramp; step 0 means no error."""

NOT_FINITE = 99
"""The level of NaN and infinite values, which have their own symbol outside the ramp."""

NOT_READ = -1
"""The level of values that are not known yet, which are left blank."""


def heat_levels(values: np.ndarray, top: float) -> np.ndarray:
    """Return the ramp step of each value: 0 for no error, else by the square root, since small errors matter too.

    Args:
        values: Values, not negative except where unknown.
        top: Value of the highest step.
    """
    is_finite = np.isfinite(values)
    with np.errstate(invalid="ignore", divide="ignore"):
        fraction = (
            np.sqrt(np.where(is_finite & (values >= 0), values, 0.0) / top) if top > 0 else np.zeros(values.shape)
        )
    levels = np.clip(np.ceil(fraction * (LEVELS - 1)), 0, LEVELS - 1).astype(np.int64)
    levels[~is_finite] = NOT_FINITE
    levels[values < 0] = NOT_READ
    return levels


def heat_lines(
    levels: np.ndarray, glyphs: GlyphSet, *, colours: bool, cursor: tuple[int, int] | None = None
) -> list[list[Piece]]:
    """Draw a heat map.

    Args:
        levels: Two-dimensional levels from `heat_levels`.
        glyphs: Characters for drawing.
        colours: Whether colours are available. Without colours, and in ASCII, a cell is one line high.
        cursor: The (row, column) of the map to mark.
    """
    if not colours or not glyphs.braille:
        return [
            _shade_line(line, glyphs, cursor[1] if cursor and cursor[0] == at else None)
            for at, line in enumerate(levels)
        ]
    lines = []
    for top in range(0, len(levels), 2):
        low = levels[top + 1] if top + 1 < len(levels) else None
        line: list[Piece] = []
        for column, level in enumerate(levels[top]):
            is_cursor = cursor is not None and cursor[0] // 2 == top // 2 and cursor[1] == column
            line.append(_half_block(int(level), None if low is None else int(low[column]), cursor, is_cursor=is_cursor))
        lines.append(merge_pieces(line))
    return lines


def rows_in_lines(lines: int, glyphs: GlyphSet, *, colours: bool) -> int:
    """Return how many rows of a map fit in the given number of lines."""
    return lines * (2 if colours and glyphs.braille else 1)


def legend(glyphs: GlyphSet, *, colours: bool) -> list[Piece]:
    """Draw the ramp from no error to the largest one."""
    if colours and glyphs.braille:
        return [("▀", f"heat:{level}:{level}") for level in range(LEVELS)]
    return [("".join(_shade(level, glyphs) for level in range(LEVELS)), "plain")]


def _half_block(high: int, low: int | None, cursor: tuple[int, int] | None, *, is_cursor: bool) -> Piece:
    if is_cursor and cursor is not None:
        return ("▀" if cursor[0] % 2 == 0 else "▄", "first")
    if NOT_FINITE in (high, low):
        return ("!", "fail")
    if NOT_READ in (high, low):
        return (" ", "muted")
    return ("▀", f"heat:{high}:{0 if low is None else low}")


def _shade_line(levels: np.ndarray, glyphs: GlyphSet, cursor: int | None) -> list[Piece]:
    text = "".join(_shade(int(level), glyphs) for level in levels)
    if cursor is None:
        return [(text, "fine")]
    return [(text[:cursor], "fine"), ("X" if text[cursor] != "!" else "!", "first"), (text[cursor + 1 :], "fine")]


def _shade(level: int, glyphs: GlyphSet) -> str:
    if level == NOT_FINITE:
        return "!"
    if level == NOT_READ:
        return " "
    if level == 0:
        return "." if not glyphs.braille else "·"
    return glyphs.levels[1:][min((level - 1) * (len(glyphs.levels) - 1) // (LEVELS - 1), len(glyphs.levels) - 2)]


def merge_pieces(line: Sequence[Piece]) -> list[Piece]:
    """Join neighbouring pieces that can share a style, since Textual processes each piece of each line at each key.

    They have the same style, or one of them is blank and neither style shows on a space.
    """
    pieces: list[Piece] = []
    for text, style in line:
        last_text, last_style = pieces[-1] if pieces else ("", "")
        is_blank_invisible = _is_invisible_on_space(style) and _is_invisible_on_space(last_style)
        if pieces and (style == last_style or (is_blank_invisible and not text.strip(" "))):
            pieces[-1] = (last_text + text, last_style)
        elif pieces and is_blank_invisible and not last_text.strip(" "):
            pieces[-1] = (last_text + text, style)
        else:
            pieces.append((text, style))
    return pieces


def _is_invisible_on_space(style: str) -> bool:
    """Return whether a space looks the same as a plain one: the style has no background and does not underline."""
    return style not in {"first", "match"} and not style.startswith("heat:")
