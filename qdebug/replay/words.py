"""How a word that a variant does not have is refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from qdebug.errors import UsageError

__all__ = ["refuse", "refuse_unless"]


def refuse(what: str, value: str, allowed: Iterable[str]) -> NoReturn:
    """Say that a variant has no such word.

    Raises:
        UsageError: Always.
    """
    raise UsageError(
        f"The arithmetic has no {what} {value!r}; known are {', '.join(allowed)}.",
        hint="Correct it, or write a file that fits with qdebug explain --write-arithmetic FILE.",
    )


def refuse_unless(what: str, value: str, allowed: Iterable[str]) -> None:
    """Refuse a word that is not among those of its kind.

    Raises:
        UsageError: It is not.
    """
    if value not in allowed:
        refuse(what, value, allowed)
