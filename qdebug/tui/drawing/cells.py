"""Text measured in cells of the terminal: a Chinese character takes two, a combining accent none."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from rich.cells import cell_len

from qdebug.present.text import ELLIPSIS

__all__ = ["cut_end", "cut_middle", "pad", "wrap"]


def pad(text: str, width: int) -> str:
    """Fill text with spaces up to a width; what is wider stays as it is."""
    return text + " " * (width - cell_len(text))


def cut_end(text: str, width: int, dots: str = ELLIPSIS) -> str:
    """Return text in at most `width` cells: it loses its end.

    Args:
        text: Safe to show.
        width: Cells.
        dots: Stand for what was lost.
    """
    if cell_len(text) <= width:
        return text
    return _head(text, max(width - cell_len(dots), 0)).rstrip() + dots


def cut_middle(text: str, width: int) -> str:
    """Return text in at most `width` cells: its middle is cut, twice as much of the end stays as of the beginning.

    Args:
        text: Safe to show.
        width: Cells, at least 1.
    """
    if cell_len(text) <= width:
        return text
    kept = width - cell_len(ELLIPSIS)
    head = _head(text, kept // 3)
    return head + ELLIPSIS + _tail(text, kept - cell_len(head))


def wrap(text: str, width: int, *, most: int | None = None) -> list[str]:
    """Break text into lines at spaces, and inside of words that are wider than a line.

    Args:
        text: Safe to show.
        width: Cells of a line; at least 2 are needed for characters that take two, and any number is taken.
        most: Most lines, at least 1; the last one then ends with two dots if there is room for them. None for as many
            as it takes.

    Returns:
        The lines; at least one.
    """
    width = max(width, 1)  # a terminal on its way to another size may have none
    if cell_len(text) == len(text):
        return textwrap.wrap(text, width, max_lines=most, placeholder=" .." if width > 3 else "") or [""]
    lines = [""]
    for word in text.split():
        for part in _parts(word, width, cell_len(lines[-1])):
            if not lines[-1]:
                lines[-1] = part
            elif cell_len(lines[-1]) + 1 + cell_len(part) <= width:
                lines[-1] += f" {part}"
            else:
                lines.append(part)
    if most is not None and len(lines) > most:
        lines = [*lines[: most - 1], _head(lines[most - 1], max(width - len(" .."), 0)).rstrip() + " .."]
    return lines


def _parts(word: str, width: int, used: int) -> list[str]:
    """Break a word that is wider than a line; its first part goes into what is left of the line before."""
    if cell_len(word) <= width:
        return [word]
    left = width - used - 1 if used else width
    first = _head(word, left if left > 1 else width) or word
    parts, rest = [first], word[len(first) :]
    while rest:
        parts.append(_head(rest, width) or rest)  # a character that is wider than a line stays whole
        rest = rest[len(parts[-1]) :]
    return parts


def _clusters(text: str) -> Iterator[str]:
    """Yield each character with those that are drawn over it."""
    begun = 0
    for at in range(1, len(text)):
        if cell_len(text[at]):
            yield text[begun:at]
            begun = at
    if text:
        yield text[begun:]


def _head(text: str, width: int) -> str:
    """Return as much of the beginning as fits into some cells."""
    used, size = 0, 0
    for cluster in _clusters(text):
        used += cell_len(cluster)
        if used > width:
            break
        size += len(cluster)
    return text[:size]


def _tail(text: str, width: int) -> str:
    """Return as much of the end as fits into some cells."""
    used, size = 0, 0
    for cluster in reversed(list(_clusters(text))):
        used += cell_len(cluster)
        if used > width:
            break
        size += len(cluster)
    return text[len(text) - size :]
