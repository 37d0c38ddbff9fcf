"""Colours: blue and orange on dark or light, never red against green. Every state has a glyph and a word as well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from rich.style import Style
from textual.theme import Theme

__all__ = ["DARK", "LIGHT", "PALETTES", "Palette"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Palette:
    """One set of colours.

    Args:
        name: Name of the theme, as Textual knows it.
        dark: Whether the background is dark.
        background: Colour behind everything.
        foreground: Colour of plain text.
        colours: (colour, attributes) of each style: fine, fail, first, unknown, match, muted, accent, title, cursor.
        selected: Background of the selected row.
    """

    name: str
    dark: bool
    background: str
    foreground: str
    colours: Mapping[str, str]
    selected: str

    def style(self, name: str, *, selected: bool = False) -> Style:
        """Give a style by name, on the background of the selected row if asked."""
        behind = Style(color=self.foreground, bgcolor=self.selected if selected else self.background)
        return behind + Style.parse(self.colours.get(name, ""))

    def theme(self) -> Theme:
        """Give the colours as a Textual theme, for the widgets that are not ours."""
        fail, fine = self.style("fail").color, self.style("fine").color
        return Theme(
            name=self.name,
            primary=self.foreground if fine is None else fine.name,
            accent=self.foreground if fail is None else fail.name,
            foreground=self.foreground,
            background=self.background,
            surface=self.background,
            panel=self.selected,
            dark=self.dark,
        )


DARK = Palette(
    name="qdebug-dark",
    dark=True,
    background="#12161c",
    foreground="#d6dbe2",
    selected="#1e3550",
    colours=MappingProxyType(
        {
            "plain": "#d6dbe2",
            "fine": "#6cb2f0",
            "fail": "bold #ffab4a",
            "first": "bold #12161c on #ffab4a",
            "unknown": "italic #c3b8e6",
            "match": "bold underline #d6dbe2",
            "muted": "#97a1ae",
            "accent": "bold #d6dbe2",
            "title": "bold #9ccdf7",
            "cursor": "bold #ffffff",
        }
    ),
)
"""Light on dark, the theme to begin with."""

LIGHT = Palette(
    name="qdebug-light",
    dark=False,
    background="#fbfbf9",
    foreground="#22272e",
    selected="#cfe2f7",
    colours=MappingProxyType(
        {
            "plain": "#22272e",
            "fine": "#0a57a8",
            "fail": "bold #8f4700",
            "first": "bold #fbfbf9 on #8f4700",
            "unknown": "italic #574792",
            "match": "bold underline #22272e",
            "muted": "#555d68",
            "accent": "bold #22272e",
            "title": "bold #0a4a8f",
            "cursor": "bold #000000",
        }
    ),
)
"""Dark on light."""

PALETTES = (DARK, LIGHT)
"""In the order the theme key walks them."""
