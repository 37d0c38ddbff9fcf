"""Plots made of characters: filled areas in braille dots, bars in eighth blocks. Arrays in, lines of text out."""

from __future__ import annotations

import numpy as np

from qdebug.tui.drawing.glyphs import GlyphSet

__all__ = ["Piece", "area", "bars", "pool", "pool_plane", "resample"]

Piece = tuple[str, str]
"""A stretch of text and the name of its style in the palette."""

_LEFT = (0x00, 0x40, 0x44, 0x46, 0x47)
_RIGHT = (0x00, 0x80, 0xA0, 0xB0, 0xB8)
"""Unicode braille: the dots of the left and right column of a cell, filled from below (0 to 4 dots)."""


def pool(values: np.ndarray, columns: int) -> np.ndarray:
    """Give the largest value of each of `columns` stretches; stretch a short array instead.

    Args:
        values: One dimension, at least one element; no NaN.
        columns: At least 1.

    Returns:
        Array of `columns` elements.
    """
    size = len(values)
    starts = np.arange(columns) * size // columns
    if size < columns:
        return values[starts]
    pooled: np.ndarray = np.maximum.reduceat(values, starts)
    return pooled


def pool_plane(values: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Give the largest value of each tile, so that a plane fits into rows and columns; NaN wins.

    Args:
        values: Two dimensions; smaller ones stay as they are.
        rows: At most so many, at least 1.
        columns: At most so many, at least 1.
    """
    pooled = values
    for axis, most in ((0, rows), (1, columns)):
        size = pooled.shape[axis]
        if size > most:
            pooled = np.maximum.reduceat(pooled, np.arange(most) * size // most, axis=axis)
    return pooled


def area(heights: np.ndarray, rows: int, glyphs: GlyphSet) -> list[str]:
    """Draw a filled area, two columns of dots a cell.

    Args:
        heights: Height of each column in dots, 0 to 4 * `rows`; an even number of columns.
        rows: Lines of text.
        glyphs: Characters to draw with.

    Returns:
        `rows` lines of len(heights) / 2 characters, the top line first.
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
    """Draw one line of bars; whatever is above 0 shows at least the lowest bar.

    Args:
        values: Not negative; NaN draws nothing.
        glyphs: Characters to draw with.
        top: Value of a full bar; the largest value if left out.
    """
    known = np.nan_to_num(np.asarray(values, dtype=np.float64), nan=0.0)
    full = float(known.max(initial=0.0)) if top is None else top
    if not full > 0:
        return glyphs.eighths[0] * len(known)
    steps = len(glyphs.eighths) - 1
    level = np.clip(np.rint(known / full * steps), 0, steps).astype(int)
    level[(known > 0) & (level == 0)] = 1
    return "".join(glyphs.eighths[step] for step in level)


def resample(counts: np.ndarray, columns: int) -> np.ndarray:
    """Sum neighbouring bins so that a histogram has at most `columns` of them.

    Args:
        counts: Counts of bins of equal width.
        columns: At least 1.

    Returns:
        Counts of at most `columns` bins; all counts are kept.
    """
    size = len(counts)
    if size <= columns:
        return counts
    summed: np.ndarray = np.add.reduceat(counts, np.arange(columns) * size // columns)
    return summed
