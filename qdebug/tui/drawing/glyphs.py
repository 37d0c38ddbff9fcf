"""Characters to draw with: a full set for UTF-8 terminals and one of plain ASCII for all others."""

from __future__ import annotations

import locale
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from rich.cells import set_cell_size

from qdebug.present.text import ELLIPSIS, safe_text, shorten
from qdebug.tui.drawing.cells import cut_end, cut_middle

__all__ = ["ASCII", "UNICODE", "GlyphSet", "locale_glyphs"]

_SCIENTIFIC = re.compile(r"(-?\d(?:\.\d+)?e-?\d+)( .*)?")
"""A number with a power of ten, and its unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GlyphSet:
    """One way to draw.

    Args:
        name: "unicode" or "ascii".
        eighths: Bars of one cell, from empty to full.
        braille: Whether areas are drawn with braille dots; else with `levels`.
        levels: Fill of one cell from empty to full, for areas without braille.
        rule: Horizontal line.
        bar: Vertical line of an axis.
        limit: Line at a limit.
        cursor: Marks the selected row.
        here: Marks the selected position under a profile.
        replacements: Characters of our own texts that this set must not use.
    """

    name: str
    eighths: str
    braille: bool
    levels: str
    rule: str
    bar: str
    limit: str
    cursor: str
    here: str
    replacements: Mapping[int, str]

    def fit(self, value: object, width: int) -> str:
        """Return text from anywhere as exactly `width` cells: safe, its middle taken out if long, padded.

        Args:
            value: Shown through `safe_text`.
            width: Cells, at least 1.
        """
        text = self.plain(safe_text(value, limit=max(width, 200)))
        if text.isascii():
            return shorten_ascii(text, width) if not self.braille else shorten(text, width).ljust(width)
        return set_cell_size(cut_middle(text, width), width)

    def fit_end(self, text: str, width: int) -> str:
        """Return safe text in at most `width` cells: a sentence loses its end, not its middle."""
        return cut_end(text, width, self.plain(ELLIPSIS))

    def right(self, text: str, width: int) -> str:
        """Return a safe number as exactly `width` cells, to the right; less exact for room, else marked as cut.

        A power of ten that lost its last digit would be another number.

        Args:
            text: The number, perhaps with its unit.
            width: Cells, at least 1.
        """
        text = self.plain(text)
        if len(text) > width and (parts := _SCIENTIFIC.fullmatch(text)) is not None:
            for places in (1, 0):
                mantissa, exponent = f"{float(parts[1]):.{places}e}".split("e")
                text = f"{mantissa}e{int(exponent)}{parts[2] or ''}"
                if len(text) <= width:
                    break
        return self.fit_end(text, width).rjust(width)

    def plain(self, text: str) -> str:
        """Return safe text in the characters of this set."""
        if not self.replacements or text.isascii():
            return text
        return text.translate(dict(self.replacements)).encode("ascii", "backslashreplace").decode("ascii")


def shorten_ascii(text: str, width: int) -> str:
    """Take the middle out of a text with two dots instead of an ellipsis, and pad it."""
    if len(text) <= width:
        return text.ljust(width)
    if width < 4:
        return text[:width]
    return shorten(text, width - 1).replace(ELLIPSIS, "..")


UNICODE = GlyphSet(
    name="unicode",
    eighths=" ▁▂▃▄▅▆▇█",
    braille=True,
    levels=" ░▒▓█",
    rule="─",
    bar="│",
    limit="╌",
    cursor="▸",
    here="▴",
    replacements=MappingProxyType({}),
)
"""For terminals that show UTF-8."""

ASCII = GlyphSet(
    name="ascii",
    eighths=" ..::++##",
    braille=False,
    levels=" .:+#",
    rule="-",
    bar="|",
    limit="-",
    cursor=">",
    here="^",
    replacements=MappingProxyType({ord(ELLIPSIS): "..", 0x202F: ",", 0x2265: ">=", 0x2264: "<="}),
)
"""For all other terminals."""


_NO_BRAILLE = ("linux", "vt", "ansi", "cons25", "sun", "wsvt25")
"""How the names of terminals begin whose fonts have a few hundred characters: consoles, and what they emulate."""


def locale_glyphs() -> GlyphSet:
    """Choose the set that the locale's character encoding can carry, and the terminal's font."""
    bare = os.environ.get("TERM", "").startswith(_NO_BRAILLE)
    return UNICODE if locale.getencoding().replace("-", "").lower() == "utf8" and not bare else ASCII
