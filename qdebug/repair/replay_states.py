"""States of earlier replays, from which a replay with the same changes up to that node can continue.

A search tries many sets of edits in sequence, most of which differ in few nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Generic, Protocol, Self, TypeVar

__all__ = ["STATES_BYTES", "ReplayStates"]

STATES_BYTES = 256 << 20
"""Maximum memory for all states, in bytes."""
_MIN_BYTES = 4 << 10
"""Estimated memory of a state without its arrays, in bytes."""


class _Values(Protocol):
    """The values of a replay that differ from the recording."""

    @property
    def nbytes(self) -> int:
        """Size of all arrays in bytes."""
        ...

    def copy(self) -> Self:
        """Return a copy that shares the arrays."""
        ...


V = TypeVar("V", bound=_Values)
Runs = tuple[tuple[tuple[int, int], ...], bool]
"""Places that are replayed together, and whether all nodes are replayed, not only those that a change reaches."""
Changes = Mapping[int, bytes]
"""A digest of the change of each changed node, by the node's position."""


class ReplayStates(Generic[V]):
    """Intermediate values of replays, saved ahead of some nodes. The least recently used are dropped first."""

    def __init__(self) -> None:
        self._states: dict[tuple[Runs, int, frozenset[tuple[int, bytes]]], V] = {}
        self.nbytes = 0

    def keep(self, runs: Runs, changes: Changes, position: int, values: V) -> None:
        """Store the values of a replay before the node at a position, unless already stored or too large."""
        key = runs, position, _changes_before(changes, position)
        if key in self._states or (size := _size(values)) > STATES_BYTES:
            return
        self._states[key] = values.copy()
        self.nbytes += size
        while self.nbytes > STATES_BYTES:
            self.nbytes -= _size(self._states.pop(next(iter(self._states))))

    def latest(self, runs: Runs, changes: Changes, positions: Collection[int]) -> tuple[int, V] | None:
        """Return the last of the given positions with a stored state for the same changes, and its values."""
        for position in sorted(positions, reverse=True):
            key = runs, position, _changes_before(changes, position)
            if key in self._states:
                values = self._states[key] = self._states.pop(key)
                return position, values
        return None


def _changes_before(changes: Changes, position: int) -> frozenset[tuple[int, bytes]]:
    return frozenset(item for item in changes.items() if item[0] < position)


def _size(values: _Values) -> int:
    return _MIN_BYTES + values.nbytes
