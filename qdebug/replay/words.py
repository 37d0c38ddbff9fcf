"""Refuse unknown words of a variant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from qdebug.errors import UsageError

__all__ = ["refuse", "refuse_unless"]


def refuse(title: str, value: str, allowed: Iterable[str]) -> NoReturn:
    """Refuse an unknown word of a variant.

    Raises:
        UsageError: Always.
    """
    raise UsageError(
        f"The arithmetic has an unknown {title} {value!r}; known values are {', '.join(allowed)}.",
        hint="Correct it, or write a file that fits with qdebug explain --write-arithmetic FILE.",
    )


def refuse_unless(title: str, value: str, allowed: Iterable[str]) -> None:
    """Refuse a word that is not allowed.

    Raises:
        UsageError: It is not allowed.
    """
    if value not in allowed:
        refuse(title, value, allowed)
