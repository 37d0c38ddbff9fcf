"""Match typed names: parts of names, patterns, and suggestions for unknown names."""

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
        text: A pattern with `*` or `?` for whole names; else a part of a name, in either case. Brackets are literal:
            names contain them.
        known: All names.
    """
    names = dict.fromkeys(known)
    if _WILD.intersection(text):
        pattern = text.replace("[", "[[]")
        return [name for name in names if fnmatchcase(name, pattern)]
    return [name for name in names if text.casefold() in name.casefold()] if text else []


def listed_names(names: Iterable[str]) -> str:
    """List the first names, and the number of further ones."""
    quoted = [repr(name) for name in names]
    more = len(quoted) - _LISTED
    return ", ".join(quoted[:_LISTED]) + (f" and {more} more" if more > 0 else "")


def near_names(text: str, known: Iterable[str]) -> str:
    """Return a sentence with the names similar to a text, after a blank; "" if there are none."""
    near = get_close_matches(text, dict.fromkeys(known), n=3)
    return f" Near names: {listed_names(near)}." if near else ""
