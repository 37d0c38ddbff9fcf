"""The only outlet for text from a recording: no name may control a terminal or a markup parser."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["ELLIPSIS", "QUOTED", "safe_text", "shorten", "styled"]

ELLIPSIS = "…"
"""Marks where a text was shortened."""

QUOTED = re.compile(r"(?<!\w)'([^']*)'(?!\w)")
"""A quoted name in a sentence. The apostrophe of "the model's" does not start one."""

_LIMIT = 1000
"""Maximum number of characters that any name or message needs."""

_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""Unicode categories that move the cursor, reorder or hide text, or have no standard appearance."""

_SHORT_ESCAPES = {"\n": r"\n", "\r": r"\r", "\t": r"\t", "\x1b": r"\x1b"}


def _escape_if_hidden(character: str) -> str:
    if unicodedata.category(character) not in _HIDDEN_CATEGORIES:
        return character
    if character in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[character]
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def safe_text(value: object, *, limit: int = _LIMIT) -> str:
    r"""Return text that a terminal or a file shows literally: one line, no control, format or private-use characters.

    Such characters become visible escapes (`\x1b`, `\u202e`). Backslashes are kept, so the result is meant for reading
    rather than decoding.

    Args:
        value: Anything. Its `str` is shown.
        limit: Maximum number of characters in the result. The middle of a longer text is left out.

    Raises:
        ValueError: The limit is below 1.
    """
    if limit < 1:
        raise ValueError(f"text cannot be shortened to {limit} characters")
    text = str(value)
    if len(text) > 2 * limit + 2:  # do not escape characters that will be cut
        text = text[: limit + 1] + text[-limit - 1 :]
    if not text.isascii() or not text.isprintable():
        text = "".join(map(_escape_if_hidden, text))
    return shorten(text, limit)


def shorten(text: str, limit: int) -> str:
    """Remove the middle of a text that is longer than a limit.

    Long names differ mostly in their end ("model/layer4/block2/conv1"), then in their beginning, so two thirds of the
    text that is kept is the end.

    Args:
        text: The text to shorten.
        limit: Maximum number of characters in the result, at least 1.

    Raises:
        ValueError: The limit is below 1.
    """
    if limit < 1:
        raise ValueError(f"text cannot be shortened to {limit} characters")
    if len(text) <= limit:
        return text
    remaining = limit - len(ELLIPSIS)
    head = remaining // 3
    return text[:head] + ELLIPSIS + text[len(text) - (remaining - head) :]


def styled(value: object, style: str = "", *, limit: int = _LIMIT) -> Text:
    """Make a rich text from recorded text, which is never interpreted as markup.

    Args:
        value: Anything, shown through `safe_text`.
        style: A trusted rich style, such as "bold red".
        limit: Maximum number of characters shown.

    Raises:
        ValueError: The limit is below 1.
    """
    from rich.text import Text

    return Text(safe_text(value, limit=limit), style=style, no_wrap=True, overflow="ellipsis", end="")
