"""The one sink for text that comes from a recording: nothing in a name may steer a terminal or a markup parser."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["ELLIPSIS", "QUOTED", "safe_text", "shorten", "styled"]

ELLIPSIS = "…"
"""Stands where a text was shortened."""

QUOTED = re.compile(r"(?<!\w)'([^']*)'(?!\w)")
"""A quoted name in a sentence; the apostrophe of "the model's" begins none."""

_LIMIT = 1000
"""Characters that no name and no message needs more of."""

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""Unicode categories that move the cursor, reorder or hide text, or have no agreed look."""

_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t", "\x1b": r"\x1b"}


def _visible(character: str) -> str:
    if unicodedata.category(character) not in _HIDDEN:
        return character
    if character in _SHORT:
        return _SHORT[character]
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def safe_text(value: object, *, limit: int = _LIMIT) -> str:
    r"""Return text that a terminal or a file shows as it is: one line, no control, format or private-use characters.

    Such characters become visible escapes (`\x1b`, `\u202e`). Backslashes are kept, so the
    result is for reading and not for decoding.

    Args:
        value: Anything; `str` of it is shown.
        limit: Most characters in the result; longer text loses its middle.

    Raises:
        ValueError: The limit is below 1.
    """
    if limit < 1:
        raise ValueError(f"a text of at most {limit} characters cannot be shown")
    text = str(value)
    if len(text) > 2 * limit + 2:  # never escape what is not shown
        text = text[: limit + 1] + text[-limit - 1 :]
    if not text.isascii() or not text.isprintable():
        text = "".join(map(_visible, text))
    return shorten(text, limit)


def shorten(text: str, limit: int) -> str:
    """Take the middle out of a text that is longer than a limit.

    What tells long names apart is mostly their end ("model/layer4/block2/conv1"), then their
    beginning, so two thirds of what is kept is the end.

    Args:
        text: What to shorten.
        limit: Most characters in the result, at least 1.

    Raises:
        ValueError: The limit is below 1.
    """
    if limit < 1:
        raise ValueError(f"a text cannot be shortened to {limit} characters")
    if len(text) <= limit:
        return text
    kept = limit - len(ELLIPSIS)
    head = kept // 3
    return text[:head] + ELLIPSIS + text[len(text) - (kept - head) :]


def styled(value: object, style: str = "", *, limit: int = _LIMIT) -> Text:
    """Make a rich text of something from a recording; it is never read as markup.

    Args:
        value: Anything; shown through `safe_text`.
        style: A rich style of ours, such as "bold red".
        limit: Most characters shown.

    Raises:
        ValueError: The limit is below 1.
    """
    from rich.text import Text

    return Text(safe_text(value, limit=limit), style=style, no_wrap=True, overflow="ellipsis", end="")
