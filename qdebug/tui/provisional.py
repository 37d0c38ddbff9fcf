"""Messages that expire once more is known, so that the status line removes them by itself."""

from __future__ import annotations

from enum import Flag, auto
from typing import Self

__all__ = ["Provisional", "Until"]


class Until(Flag):
    """Events that make a message expire."""

    OPENED = auto()
    """Both recordings are open."""
    RESULTS = auto()
    """All pairs are compared."""
    ELEMENTS = auto()
    """The requested facts of the shown tensor have arrived, at least in part."""


class Provisional(str):
    """A message that is valid until something more is known.

    Concatenating it with another text gives a plain string, which stays until the next message.

    Args:
        text: The message.
        until: The events that make it expire.
    """

    __slots__ = ("until",)

    until: Until

    def __new__(cls, text: str, until: Until) -> Self:
        """Create a message from its text."""
        message = super().__new__(cls, text)
        message.until = until
        return message
