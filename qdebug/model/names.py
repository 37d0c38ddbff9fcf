"""Match names that users type: parts of names, patterns, and suggestions for unknown names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase

__all__ = ["fitting_names", "listed_names", "near_names"]

_WILD = frozenset("*?")
_LISTED = 8


def fitting_names(text: str, known: Iterable[str]) -> list[str]:
    """Return the names that match a pattern, or that contain a text.

    Args:
        text: A pattern with `*` or `?` for whole names; otherwise a part of a name, case-insensitive. Brackets are
            literal, since names contain them.
        known: All names.
    """
    names = dict.fromkeys(known)
    if _WILD.intersection(text):
        pattern = text.replace("[", "[[]")
        return [name for name in names if fnmatchcase(name, pattern)]
    return [name for name in names if text.casefold() in name.casefold()] if text else []


def listed_names(names: Iterable[str]) -> str:
    """Return the first names as text, and how many more there are."""
    quoted = [repr(name) for name in names]
    more = len(quoted) - _LISTED
    return ", ".join(quoted[:_LISTED]) + (f" and {more} more" if more > 0 else "")


def near_names(text: str, known: Iterable[str]) -> str:
    """Return a blank and a sentence with the names similar to a text; "" if there are none."""
    near = get_close_matches(text, dict.fromkeys(known), n=3)
    return f" Near names: {listed_names(near)}." if near else ""
