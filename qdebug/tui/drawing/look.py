"""How things look, and lines of styled pieces as Textual paints them. No text passes a markup parser on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.segment import Segment
from textual.strip import Strip

from qdebug.tui.drawing.draw import Piece
from qdebug.tui.drawing.glyphs import GlyphSet
from qdebug.tui.drawing.palette import PALETTES, Palette

__all__ = ["Look"]


@dataclass(slots=True)
class Look:
    """The glyphs and the colours in force; one object that all widgets share.

    Args:
        glyphs: Characters to draw with.
        palette: Colours.
    """

    glyphs: GlyphSet
    palette: Palette = PALETTES[0]

    def strip(self, pieces: Sequence[Piece], width: int, *, selected: bool = False) -> Strip:
        """Make one line of the screen.

        Args:
            pieces: Texts, safe already, with the names of their styles.
            width: Cells; the line is cut or filled.
            selected: Whether it is the selected row.
        """
        style = self.palette.style
        line = Strip([Segment(text, style(name, selected=selected)) for text, name in pieces if text])
        return line.adjust_cell_length(width, style("plain", selected=selected))

    def blank(self, width: int) -> Strip:
        """Make an empty line."""
        return Strip.blank(width, self.palette.style("plain"))
