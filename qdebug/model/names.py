"""Match names that users type: parts of names, patterns, and suggestions for unknown names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase

__all__ = ["fitting_names", "listed_names", "near_names"]

_WILD = frozenset("*?")
_MAX_LISTED = 8


def fitting_names(text: str, known_names: Iterable[str]) -> list[str]:
    """Return the names that match a pattern, or that contain a text.

    Args:
        text: A pattern with `*` or `?` for whole names; otherwise a part of a name, case-insensitive. Brackets are
            literal, since names contain them.
        known_names: All names.
    """
    names = dict.fromkeys(known_names)
    if _WILD.intersection(text):
        pattern = text.replace("[", "[[]")
        return [name for name in names if fnmatchcase(name, pattern)]
    return [name for name in names if text.casefold() in name.casefold()] if text else []


def listed_names(names: Iterable[str]) -> str:
    """Return the first names as text, and how many more there are."""
    quoted_names = [repr(name) for name in names]
    omitted_count = len(quoted_names) - _MAX_LISTED
    return ", ".join(quoted_names[:_MAX_LISTED]) + (f" and {omitted_count} more" if omitted_count > 0 else "")


def near_names(text: str, known_names: Iterable[str]) -> str:
    """Return a blank and a sentence with the names similar to a text; "" if there are none."""
    close_matches = get_close_matches(text, dict.fromkeys(known_names), n=3)
    return f" Near names: {listed_names(close_matches)}." if close_matches else ""
