"""Messages that no longer hold once more is known, so that the status line takes them back by itself."""

from __future__ import annotations

from enum import Flag, auto
from typing import Self

__all__ = ["Provisional", "Until"]


class Until(Flag):
    """Events that end a message; flags."""

    OPENED = auto()
    """Both recordings are open."""
    RESULTS = auto()
    """All is compared."""
    ELEMENTS = auto()
    """What was asked of the tensor that is shown has come, or a part of it."""


class Provisional(str):
    """A message that holds until something more is known.

    Joined with another text it is a plain string, which stays until the next message.

    Args:
        text: The message.
        until: The news that ends it.
    """

    __slots__ = ("until",)

    until: Until

    def __new__(cls, text: str, until: Until) -> Self:
        """Make a message out of its text."""
        message = super().__new__(cls, text)
        message.until = until
        return message
