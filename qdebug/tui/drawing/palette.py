"""Colours: blue and orange on dark or light, never red versus green. Every state also has a glyph and a word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from rich.style import Style
from textual.theme import Theme

__all__ = ["CONTRAST", "DARK", "HEAT_STEPS", "LIGHT", "PALETTES", "Palette", "named_palette"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Palette:
    """One set of colours.

    Args:
        name: Textual's name of the theme.
        title: Its name in a sentence.
        dark: Whether the background is dark.
        background: Background colour.
        foreground: Colour of plain text.
        colours: (colour, attributes) of each style: fine, fail, first, unknown, match, muted, accent, title, cursor.
        selected: Background of the selected row.
        heat: Colour of the strongest step of a heat map; the ramp goes there from the background, in a single hue.
    """

    name: str
    title: str
    dark: bool
    background: str
    foreground: str
    colours: Mapping[str, str]
    selected: str
    heat: str

    def style(self, name: str, *, selected: bool = False) -> Style:
        """Return a style by name, optionally on the background of the selected row.

        Args:
            name: A key of `colours`, or "heat:HIGH:LOW" for the two halves of a cell of a heat map.
            selected: Whether it is on the selected row.
        """
        return _style(self, name, selected)

    def theme(self) -> Theme:
        """Return the colours as a Textual theme, for Textual's own widgets."""
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


@lru_cache(maxsize=2048)
def _style(palette: Palette, name: str, selected: bool) -> Style:  # noqa: FBT001  lru_cache takes positional keys
    if name.startswith("heat:"):
        _, high, low = name.split(":")
        return Style(color=_ramp_colour(palette, int(high)), bgcolor=_ramp_colour(palette, int(low)))
    base_style = Style(color=palette.foreground, bgcolor=palette.selected if selected else palette.background)
    return base_style + Style.parse(palette.colours.get(name, ""))


def _ramp_colour(palette: Palette, level: int) -> str:
    """Return the colour of a step of the ramp, mixed from the background and the strongest colour.

    Step 0 is the background, and step 1 is clearly different from it.
    """
    fraction = 0.0 if level == 0 else 0.18 + 0.82 * (level - 1) / (HEAT_STEPS - 2)
    end_colours = [[int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in (palette.background, palette.heat)]
    return "#" + "".join(f"{round(a + (b - a) * fraction):02x}" for a, b in zip(*end_colours, strict=True))


HEAT_STEPS = 8
"""Steps of the ramp of a heat map."""

DARK = Palette(
    name="qdebug-dark",
    title="dark",
    heat="#ffd27a",
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
"""Light on dark, the default theme."""

LIGHT = Palette(
    name="qdebug-light",
    title="light",
    heat="#5c2a00",
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

CONTRAST = Palette(
    name="qdebug-contrast",
    title="high contrast",
    heat="#ffffff",
    dark=True,
    background="#000000",
    foreground="#ffffff",
    selected="#003a70",
    colours=MappingProxyType(
        {
            "plain": "#ffffff",
            "fine": "#8fd0ff",
            "fail": "bold #ffd000",
            "first": "bold #000000 on #ffd000",
            "unknown": "italic #e6d8ff",
            "match": "bold underline #ffffff",
            "muted": "#d0d0d0",
            "accent": "bold #ffffff",
            "title": "bold #b8e2ff",
            "cursor": "bold #ffffff",
        }
    ),
)
"""Light on black, with maximum contrast."""

PALETTES = (DARK, LIGHT, CONTRAST)
"""Palettes in the order in which the theme key cycles through them."""


def named_palette(title: str) -> Palette:
    """Return the palette for a title from the command line: dark, light, contrast."""
    return next(palette for palette in PALETTES if palette.name == f"qdebug-{title}")
