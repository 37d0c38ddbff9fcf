"""A grid of cells for drawing boxes, text, and lines that join where they meet."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from itertools import pairwise

from rich.cells import cell_len

from qdebug.tui.drawing.draw import Piece, merge_pieces
from qdebug.tui.drawing.glyphs import GlyphSet

__all__ = ["Canvas", "Weight"]

_UP, _RIGHT, _DOWN, _LEFT = 1, 2, 4, 8
_SHAPES = (3, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15)
"""Combinations of joined sides of a cell, in the order of each weight's characters."""


class Weight(IntEnum):
    """Thickness of a line. Where lines meet, the thickest is drawn."""

    NONE = 0
    LIGHT = 1
    HEAVY = 2
    DOUBLE = 3


_UNICODE = {
    Weight.NONE: "└┆┌├┘┄┴┐┤┬┼",
    Weight.LIGHT: "└│┌├┘─┴┐┤┬┼",
    Weight.HEAVY: "┗┃┏┣┛━┻┓┫┳╋",
    Weight.DOUBLE: "╚║╔╠╝═╩╗╣╦╬",
}
_ASCII = {
    Weight.NONE: "+:+++.+++++",
    Weight.LIGHT: "+|+++-+++++",
    Weight.HEAVY: "#" * 5 + "=" + "#" * 5,
    Weight.DOUBLE: "+|+++=+++++",
}


class Canvas:
    """A grid of cells for drawing. Drawing is clipped at its edges.

    Args:
        width: Columns.
        height: Lines.
        glyphs: Characters for drawing.
    """

    def __init__(self, width: int, height: int, glyphs: GlyphSet) -> None:
        self._shapes = _UNICODE if glyphs.braille else _ASCII
        self._cells: list[list[Piece]] = [[(" ", "plain")] * width for _ in range(height)]
        self._joined: dict[tuple[int, int], tuple[int, Weight, str]] = {}
        self._width, self._height = width, height

    def text(self, x: int, y: int, text: str, style: str) -> None:
        """Write display-safe text, starting at a cell."""
        for character in text:
            size = cell_len(character)
            if 0 <= y < self._height and 0 <= x <= self._width - size:
                if size:
                    self._cells[y][x] = (character, style)
                    for offset in range(1, size):
                        self._cells[y][x + offset] = ("", style)
                elif x:
                    previous_cell = self._cells[y][x - 1]
                    self._cells[y][x - 1] = (previous_cell[0] + character, previous_cell[1])
            x += size

    def line(self, points: Sequence[tuple[int, int]], weight: Weight, style: str) -> None:
        """Draw a line through points, each adjacent to the previous one or straight above, below or beside it."""
        for begin, end in pairwise(points):
            (x, y), (to_x, to_y) = begin, end
            step = (to_x > x) - (to_x < x), (to_y > y) - (to_y < y)
            ahead, behind = (_RIGHT, _LEFT) if step[0] else (_DOWN, _UP)
            if sum(step) < 0:
                ahead, behind = behind, ahead
            while (x, y) != end:
                self._join(x, y, ahead, weight, style)
                x, y = x + step[0], y + step[1]
                self._join(x, y, behind, weight, style)

    def _join(self, x: int, y: int, sides: int, weight: Weight, style: str) -> None:
        existing = self._joined.get((x, y))
        if existing is not None:
            sides |= existing[0]
            weight, style = max((weight, style), existing[1:], key=lambda drawn: drawn[0])
        self._joined[x, y] = sides, weight, style
        if sides in _SHAPES:
            self.text(x, y, self._shapes[weight][_SHAPES.index(sides)], style)
        elif sides:  # the end of a line
            straight = _LEFT | _RIGHT if sides & (_LEFT | _RIGHT) else _UP | _DOWN
            self.text(x, y, self._shapes[weight][_SHAPES.index(straight)], style)

    def box(self, corner: tuple[int, int], size: tuple[int, int], weight: Weight, style: str) -> None:
        """Draw the border of a box, and clear its interior.

        Args:
            corner: Column and line of its upper left corner.
            size: Its width and height including the border; at least 2 each.
            weight: Thickness of the border.
            style: Style of the border.
        """
        (x, y), (width, height) = corner, size
        for line in range(y, y + height):
            self.text(x, line, " " * width, "plain")
            for column in range(x, x + width):
                self._joined.pop((column, line), None)
        right, bottom = x + width - 1, y + height - 1
        self.line([(x, y), (right, y), (right, bottom), (x, bottom), (x, y)], weight, style)

    def lines(self) -> list[list[Piece]]:
        """Return the drawing, line by line."""
        return [merge_pieces(line) for line in self._cells]
