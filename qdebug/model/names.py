"""Names as people type them: part of a name, or a pattern, and names that are near one that does not exist."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase

__all__ = ["fitting_names", "listed_names", "near_names"]

_WILD = frozenset("*?")
_LISTED = 8


def fitting_names(text: str, known: Iterable[str]) -> list[str]:
    """Return the names that a text stands for: those that fit it as a pattern, or that it is a part of.

    Args:
        text: A pattern with `*` or `?`, which is held against whole names; else a part of a name, in either case.
            Brackets stand for themselves: names have them.
        known: All names.
    """
    names = dict.fromkeys(known)
    if _WILD.intersection(text):
        pattern = text.replace("[", "[[]")
        return [name for name in names if fnmatchcase(name, pattern)]
    return [name for name in names if text.casefold() in name.casefold()] if text else []


def listed_names(names: Iterable[str]) -> str:
    """List names, at most so many, and say how many more there are."""
    quoted = [repr(name) for name in names]
    more = len(quoted) - _LISTED
    return ", ".join(quoted[:_LISTED]) + (f" and {more} more" if more > 0 else "")


def near_names(text: str, known: Iterable[str]) -> str:
    """Return a sentence with the names that are near a text, after a blank; "" if none is."""
    near = get_close_matches(text, dict.fromkeys(known), n=3)
    return f" Near names: {listed_names(near)}." if near else ""
