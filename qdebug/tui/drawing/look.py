"""Styles of the interface, and lines of styled pieces for Textual. Text is never parsed as markup."""

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
    """The active glyphs and colours, in one object that all widgets share.

    Args:
        glyphs: Characters for drawing.
        palette: Colours.
    """

    glyphs: GlyphSet
    palette: Palette = PALETTES[0]

    def strip(self, pieces: Sequence[Piece], width: int, *, selected: bool = False) -> Strip:
        """Return one line of the screen.

        Args:
            pieces: Texts that are already safe, with the names of their styles.
            width: Cells; the line is cut or padded.
            selected: Whether it is the selected row.
        """
        style = self.palette.style
        line = Strip([Segment(text, style(name, selected=selected)) for text, name in pieces if text])
        return line.adjust_cell_length(width, style("plain", selected=selected))

    def blank(self, width: int) -> Strip:
        """Return an empty line."""
        return Strip.blank(width, self.palette.style("plain"))
