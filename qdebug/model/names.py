"""Match names that users type: parts of names, patterns, and suggestions for unknown names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase

from qdebug.errors import UsageError

__all__ = ["format_names", "matching_names", "near_names", "resolve_name"]

_WILD = frozenset("*?")
_MAX_LISTED = 8
_SEPARATORS = re.compile(r"[/._:-]")
_PART_CUTOFF = 0.75
"""Minimum similarity of a mistyped text and a part of a name."""


def matching_names(text: str, known_names: Iterable[str]) -> list[str]:
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


def format_names(names: Iterable[str]) -> str:
    """Return a text with the first names and the number of further ones."""
    quoted_names = [repr(name) for name in names]
    omitted_count = len(quoted_names) - _MAX_LISTED
    return ", ".join(quoted_names[:_MAX_LISTED]) + (f" and {omitted_count} more" if omitted_count > 0 else "")


def near_names(text: str, known_names: Iterable[str]) -> str:
    """Return a sentence with the names that are similar to a text, after a space; "" if there are none."""
    names = list(dict.fromkeys(known_names))
    close_matches = get_close_matches(text, names, n=3)
    if not close_matches:  # the user may have mistyped a part of a long name
        names_of: dict[str, list[str]] = {}
        for name in names:
            for part in filter(None, _SEPARATORS.split(name)):
                names_of.setdefault(part, []).append(name)
        close_parts = get_close_matches(text, names_of, n=3, cutoff=_PART_CUTOFF)
        close_matches = list(dict.fromkeys(name for part in close_parts for name in names_of[part]))[:3]
    return f" Near names: {format_names(close_matches)}." if close_matches else ""


def resolve_name(text: str, owners: Mapping[str, str], *, what: str, hint: str) -> str:
    """Return the name that a text refers to: the name itself, or a match that identifies a single node.

    The match is unique if all matches belong to the same node, or if only one of them is the name of a node.

    Args:
        text: A whole name, or a part or pattern as in `matching_names`.
        owners: All names of nodes and tensors, with the node that each belongs to.
        what: The kind of name, such as "node or tensor", for the message.
        hint: How to list the names, for the message.

    Raises:
        UsageError: No name matches, or names of several nodes match.
    """
    if text in owners:
        return text
    matches = matching_names(text, owners)
    # Names of nodes take precedence over names of tensors.
    own_names = [name for name in matches if owners[name] == name]
    nodes = dict.fromkeys(owners[name] for name in matches)
    if len(nodes) == 1 or len(own_names) == 1:
        return (own_names or matches)[0]
    if nodes:
        raise UsageError(
            f"{text!r} matches {len(nodes)} nodes: {format_names(nodes)}.",
            hint="Give one of these names, or a longer part of the name.",
        )
    raise UsageError(f"No {what} is called {text!r}.{near_names(text, owners)}", hint=hint)
