"""How far a row of the node list is, and how it came out."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

from qdebug.compare.result.status import Status

__all__ = ["STATE_OF", "State"]


class State(IntEnum):
    """How far one row is; the numbers are stored in the state column."""

    PENDING = 0
    IDENTICAL = 1
    WITHIN = 2
    DIVERGED = 3
    NONFINITE = 4
    INCOMPARABLE = 5

    @property
    def word(self) -> str:
        """The state in a word."""
        return _WORDS[self]

    @property
    def failing(self) -> bool:
        """Whether the row is beyond its limit."""
        return self in {State.DIVERGED, State.NONFINITE}


_WORDS = {
    State.PENDING: "pending",
    State.IDENTICAL: "identical",
    State.WITHIN: "within",
    State.DIVERGED: "diverged",
    State.NONFINITE: "nonfinite",
    State.INCOMPARABLE: "not compared",
}

STATE_OF: Mapping[Status, State] = MappingProxyType(
    {
        Status.IDENTICAL: State.IDENTICAL,
        Status.WITHIN: State.WITHIN,
        Status.DIVERGED: State.DIVERGED,
        Status.NONFINITE: State.NONFINITE,
        Status.INCOMPARABLE: State.INCOMPARABLE,
        Status.INCOMPLETE: State.INCOMPARABLE,
    }
)
"""The state of a row whose comparison came out so."""
