"""Heat maps of characters: two cells of the map in one half block, or one shade a cell without colours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qdebug.tui.drawing.draw import Piece
from qdebug.tui.drawing.glyphs import GlyphSet
from qdebug.tui.drawing.palette import HEAT_STEPS

__all__ = ["LEVELS", "NOT_FINITE", "NOT_READ", "heat_levels", "heat_lines", "height_of", "legend"]

LEVELS = HEAT_STEPS
"""Steps of the ramp; 0 is no error at all."""

NOT_FINITE = 99
"""The level of what is NaN or infinite: it has a sign of its own and no place in the ramp."""

NOT_READ = -1
"""The level of what is not known yet; it is left blank."""


def heat_levels(values: np.ndarray, top: float) -> np.ndarray:
    """Give the step of the ramp for each value: 0 for none, else by its square root, as small errors matter.

    Args:
        values: Not negative, but where nothing is known.
        top: Value of the highest step.
    """
    finite = np.isfinite(values)
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.sqrt(np.where(finite & (values >= 0), values, 0.0) / top) if top > 0 else np.zeros(values.shape)
    levels = np.clip(np.ceil(part * (LEVELS - 1)), 0, LEVELS - 1).astype(np.int64)
    levels[~finite] = NOT_FINITE
    levels[values < 0] = NOT_READ
    return levels


def heat_lines(
    levels: np.ndarray, glyphs: GlyphSet, *, colours: bool, cursor: tuple[int, int] | None = None
) -> list[list[Piece]]:
    """Draw a map.

    Args:
        levels: Two dimensions, of `heat_levels`.
        glyphs: Characters to draw with.
        colours: Whether there are colours; without, and in ASCII, a cell is a line high.
        cursor: The (row, column) of the map to mark.
    """
    if not colours or not glyphs.braille:
        return [
            _shades(line, glyphs, cursor[1] if cursor and cursor[0] == at else None) for at, line in enumerate(levels)
        ]
    lines = []
    for top in range(0, len(levels), 2):
        low = levels[top + 1] if top + 1 < len(levels) else None
        line: list[Piece] = []
        for column, level in enumerate(levels[top]):
            here = cursor is not None and cursor[0] // 2 == top // 2 and cursor[1] == column
            line.append(_half_block(int(level), None if low is None else int(low[column]), cursor, here=here))
        lines.append(_merged(line))
    return lines


def height_of(lines: int, glyphs: GlyphSet, *, colours: bool) -> int:
    """Give how many rows of a map fit into lines of text."""
    return lines * (2 if colours and glyphs.braille else 1)


def legend(glyphs: GlyphSet, *, colours: bool) -> list[Piece]:
    """Show the ramp from none to most."""
    if colours and glyphs.braille:
        return [("▀", f"heat:{level}:{level}") for level in range(LEVELS)]
    return [("".join(_shade(level, glyphs) for level in range(LEVELS)), "plain")]


def _half_block(high: int, low: int | None, cursor: tuple[int, int] | None, *, here: bool) -> Piece:
    if here and cursor is not None:
        return ("▀" if cursor[0] % 2 == 0 else "▄", "first")
    if NOT_FINITE in (high, low):
        return ("!", "fail")
    if NOT_READ in (high, low):
        return (" ", "muted")
    return ("▀", f"heat:{high}:{0 if low is None else low}")


def _shades(levels: np.ndarray, glyphs: GlyphSet, cursor: int | None) -> list[Piece]:
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


def _merged(line: Sequence[Piece]) -> list[Piece]:
    """Join neighbours of one style."""
    joined: list[Piece] = []
    for text, style in line:
        if joined and joined[-1][1] == style:
            joined[-1] = (joined[-1][0] + text, style)
        else:
            joined.append((text, style))
    return joined
