"""Characters for drawing, and text measured in terminal cells: a Chinese character takes two."""

from __future__ import annotations

import locale
import os
import re
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os.path import commonprefix
from types import MappingProxyType

from rich.cells import cell_len, chop_cells, set_cell_size

from qdebug.present.text import ELLIPSIS, safe_text

__all__ = [
    "ASCII",
    "UNICODE",
    "GlyphSet",
    "cut_distinct",
    "cut_end",
    "cut_middle",
    "cut_start",
    "locale_glyphs",
    "pad",
    "wrap",
]


def pad(text: str, width: int) -> str:
    """Pad text with spaces to a width. Wider text is returned unchanged."""
    return text + " " * (width - cell_len(text))


def cut_end(text: str, width: int, dots: str = ELLIPSIS) -> str:
    """Cut the end of text so that it fits in `width` cells.

    Args:
        text: Safe to show.
        width: Cells.
        dots: Replace the part that is cut.
    """
    if cell_len(text) <= width:
        return text
    return _head(text, max(width - cell_len(dots), 0)).rstrip() + dots


def cut_start(text: str, width: int, dots: str = ELLIPSIS) -> str:
    """Cut the beginning of text so that it fits in `width` cells, for names whose end matters most.

    Args:
        text: Safe to show.
        width: Cells, at least 1.
        dots: Replace the part that is cut.
    """
    if cell_len(text) <= width:
        return text
    return dots[: max(width - 1, 0)] + _tail(text, max(width - cell_len(dots), 1))


def cut_distinct(names: Sequence[str], width: int, dots: str = ELLIPSIS) -> list[str]:
    """Cut the beginning of names so that each fits in `width` cells and they stay distinct.

    Args:
        names: Safe to show.
        width: Cells, at least 1.
        dots: Replace the part that is cut.
    """
    cut_starts = {name: cut_start(name, width, dots) for name in names}
    groups: dict[str, list[str]] = {}
    for name, text in cut_starts.items():
        groups.setdefault(text, []).append(name)
    shared_ends: dict[str, int] = {}  # for names that are cut to the same text: the length of their common suffix
    for conflicting_names in groups.values():
        if len(conflicting_names) > 1:
            end = len(commonprefix([name[::-1] for name in conflicting_names]))  # noqa: RUF071  of characters, not of path components
            shared_ends |= dict.fromkeys(conflicting_names, end)
    available_width = max(width - cell_len(dots), 1)
    results = cut_starts
    for extra in range(width if shared_ends else 0):  # keep this much of the common suffix, until all are distinct
        heads = {name: name[: max(len(name) - end + extra, available_width)] for name, end in shared_ends.items()}
        results = cut_starts | {
            name: cut_start(text, available_width, dots) + dots for name, text in heads.items() if text != name
        }
        if len(set(results.values())) == len(results):
            break
    counts = Counter(results.values())
    return [cut_middle(name, width, dots) if counts[results[name]] > 1 else results[name] for name in names]


def cut_middle(text: str, width: int, dots: str = ELLIPSIS) -> str:
    """Cut the middle of text so that it fits in `width` cells. Twice as much of the end is kept as of the beginning.

    Args:
        text: Safe to show.
        width: Cells, at least 1.
        dots: Replace the part that is cut.
    """
    if cell_len(text) <= width:
        return text
    available_width = width - cell_len(dots)
    head = _head(text, available_width // 3)
    return head + dots + _tail(text, available_width - cell_len(head))


def wrap(text: str, width: int, *, max_lines: int | None = None) -> list[str]:
    """Break text into lines at spaces, and inside words that are wider than a line.

    Args:
        text: Safe to show.
        width: Cells per line; characters that take two cells need at least 2, but any number is accepted.
        max_lines: Maximum number of lines, at least 1; a cut last line ends with dots if they fit. None for no maximum.

    Returns:
        The lines, at least one.
    """
    width = max(width, 1)  # it may be 0 while the terminal is resized
    if cell_len(text) == len(text):
        return textwrap.wrap(text, width, max_lines=max_lines, placeholder=" .." if width > 3 else "") or [""]
    lines = [""]
    for word in text.split():
        for part in _split_word(word, width, cell_len(lines[-1])):
            if not lines[-1]:
                lines[-1] = part
            elif cell_len(lines[-1]) + 1 + cell_len(part) <= width:
                lines[-1] += f" {part}"
            else:
                lines.append(part)
    if max_lines is not None and len(lines) > max_lines:
        lines = [*lines[: max_lines - 1], _head(lines[max_lines - 1], max(width - len(" .."), 0)).rstrip() + " .."]
    return lines


def _split_word(word: str, width: int, used_width: int) -> list[str]:
    """Split a word that is wider than a line. The first part fills the rest of the previous line."""
    if cell_len(word) <= width:
        return [word]
    free_width = width - used_width - 1 if used_width else width
    first_part = _head(word, free_width if free_width > 1 else width) or word
    parts, remainder = [first_part], word[len(first_part) :]
    while remainder:
        parts.append(_head(remainder, width) or remainder)  # a character that is wider than a line stays whole
        remainder = remainder[len(parts[-1]) :]
    return parts


def _head(text: str, width: int) -> str:
    """Return as much of the beginning as fits in the given number of cells."""
    return next(iter(chop_cells(text, width)), text) if width > 0 else ""


def _tail(text: str, width: int) -> str:
    """Return as much of the end as fits in the given number of cells."""
    start = next((start for start in range(len(text)) if cell_len(text[start:]) <= width), len(text))
    while start < len(text) and not cell_len(text[start]):  # a combining character belongs to the one before it
        start += 1
    return text[start:]


_NUMBER = re.compile(r"#\d+ ")
_MIN_NUMBERED_WIDTH = 10
"""Minimum width in cells at which the number before a name is kept whole."""
_MAX_UNCUT_OPERATOR = 6
"""Maximum length of an operator that is never cut from the end of a name."""
_SCIENTIFIC = re.compile(r"(-?\d(?:\.\d+)?e-?\d+)( .*)?")
"""A number with an exponent, and its unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GlyphSet:
    """A set of characters for drawing.

    Args:
        name: "unicode" or "ascii".
        eighths: Bars of one cell, from empty to full.
        braille: Whether areas are drawn with braille dots; else with `levels`.
        levels: Fill of one cell from empty to full, for areas without braille.
        rule: Horizontal line.
        bar: Vertical line of an axis.
        limit: Line that marks a limit.
        cursor: Marks the selected row.
        position_mark: Marks the selected position under a profile.
        replacements: Replacements for characters in qdebug's own texts that this set does not have.
    """

    name: str
    eighths: str
    braille: bool
    levels: str
    rule: str
    bar: str
    limit: str
    cursor: str
    position_mark: str
    replacements: Mapping[int, str]

    def fit(self, value: object, width: int) -> str:
        """Return any text in exactly `width` cells: made safe, cut in the middle if too long, padded if too short.

        Args:
            value: The text; passed through `safe_text`.
            width: Cells, at least 1.
        """
        text = self.transliterate(safe_text(value, limit=max(width, 200)))
        return set_cell_size(cut_middle(text, width, self.transliterate(ELLIPSIS)), width)

    def fit_name(self, name: str, op: str, width: int) -> str:
        """Fit a node's name like `fit`. If it is too long, the operator at its end is first shortened to one letter.

        Args:
            name: As recorded, optionally preceded by the node's number.
            op: The node's operator, which is shown next to the name or matters less than the rest of it.
            width: Cells, at least 1.
        """
        text = self.transliterate(safe_text(self.shorten_operator(name, op, width), limit=max(width, 200)))
        number_match = _NUMBER.match(text)
        if number_match is None or cell_len(text) <= width or width < _MIN_NUMBERED_WIDTH:
            return self.fit(text, width)
        remainder = cut_middle(text[number_match.end() :], width - number_match.end(), self.transliterate(ELLIPSIS))
        return set_cell_size(number_match[0] + remainder, width)  # a cut number would name another node

    def shorten_operator(self, name: str, op: str, width: int) -> str:
        """Return a name, with the operator at its end shortened to one letter if the whole name does not fit."""
        text = self.transliterate(safe_text(name, limit=max(width, 200)))
        is_suffix = len(op) > _MAX_UNCUT_OPERATOR and name.endswith(op) and name != op
        return f"{name[: -len(op) + 1]}{self.transliterate(ELLIPSIS)}" if is_suffix and cell_len(text) > width else name

    def fit_end(self, text: str, width: int) -> str:
        """Fit safe text in at most `width` cells by cutting its end, as suits a sentence."""
        return cut_end(text, width, self.transliterate(ELLIPSIS))

    def fit_distinct(self, names: Sequence[str], width: int) -> list[str]:
        """Fit names in at most `width` cells each, cutting their beginnings so that they stay distinct."""
        cut_names = cut_distinct(
            [self.transliterate(safe_text(name)) for name in names], width, self.transliterate(ELLIPSIS)
        )
        return [cut_end(self.transliterate(text), width, "") for text in cut_names]

    def align_right(self, text: str, width: int) -> str:
        """Right-align a safe number in exactly `width` cells, with fewer digits if needed, or marked as cut.

        An exponent is never cut, since it would become a different number.

        Args:
            text: The number, optionally with its unit.
            width: Cells, at least 1.
        """
        text = self.transliterate(text)
        if len(text) > width and (parts := _SCIENTIFIC.fullmatch(text)) is not None:
            for digits in (1, 0):
                mantissa, exponent = f"{float(parts[1]):.{digits}e}".split("e")
                text = f"{mantissa}e{int(exponent)}{parts[2] or ''}"
                if len(text) <= width:
                    break
        return self.fit_end(text, width).rjust(width)

    def transliterate(self, text: str) -> str:
        """Return safe text using only characters of this set."""
        if not self.replacements or text.isascii():
            return text
        return text.translate(dict(self.replacements)).encode("ascii", "backslashreplace").decode("ascii")


UNICODE = GlyphSet(
    name="unicode",
    eighths=" ▁▂▃▄▅▆▇█",
    braille=True,
    levels=" ░▒▓█",
    rule="─",
    bar="│",
    limit="╌",
    cursor="▸",
    position_mark="▴",
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
    position_mark="^",
    replacements=MappingProxyType({ord(ELLIPSIS): "..", 0x202F: ",", 0x2265: ">=", 0x2264: "<="}),
)
"""For all other terminals."""


_NO_BRAILLE = ("linux", "vt", "ansi", "cons25", "sun", "wsvt25")
"""Prefixes of terminal names with fonts of only a few hundred characters: consoles and their emulations."""


def locale_glyphs() -> GlyphSet:
    """Return the glyphs that the locale's encoding and the terminal's font support."""
    is_limited_terminal = os.environ.get("TERM", "").startswith(_NO_BRAILLE)  # noqa: TID251  a fact about the terminal
    return UNICODE if locale.getencoding().replace("-", "").lower() == "utf8" and not is_limited_terminal else ASCII
