"""Words that agree with a count: nouns and verbs in the singular or plural."""

from __future__ import annotations

__all__ = ["agreeing", "plural"]

_MANY = {"is": "are", "was": "were", "does": "do", "match": "match", "differ": "differ"}
_ONE = {"match": "matches", "differ": "differs"}


def plural(count: int, noun: str, *, number: str | None = None) -> str:
    """Return a count and its noun.

    Args:
        count: The count.
        noun: A regular noun, in the singular.
        number: The count as text; None for its digits.

    Examples:
        >>> plural(1, "node"), plural(3, "node")
        ('1 node', '3 nodes')
    """
    return f"{count if number is None else number} {noun}{'' if count == 1 else 's'}"


def agreeing(count: int, verb: str) -> str:
    """Return a verb in the form that agrees with a count.

    Args:
        count: The count.
        verb: "is", "was", "does", "match" or "differ".
    """
    return _ONE.get(verb, verb) if count == 1 else _MANY[verb]
