"""States of earlier replays, from which a replay with the same changes so far goes on.

A search tries sets of edits one after the other, most of which differ in few nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Generic, Protocol, Self, TypeVar

__all__ = ["STATES_BYTES", "ReplayStates"]

STATES_BYTES = 256 << 20
"""Memory that states may take."""
_LEAST_BYTES = 4 << 10
"""Memory that a state takes beside its arrays, at least."""


class _Values(Protocol):
    """Values that are not as recorded."""

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        ...

    def copy(self) -> Self:
        """Return a copy that shares the arrays."""
        ...


V = TypeVar("V", bound=_Values)
Runs = tuple[tuple[tuple[int, int], ...], bool]
"""Places that are replayed together, and whether all nodes are."""
Changes = Mapping[int, bytes]
"""A digest of the change of each changed node, by the node's position."""


class ReplayStates(Generic[V]):
    """Values of replays before some of their nodes; those that were used longest ago go first."""

    def __init__(self) -> None:
        self._states: dict[tuple[Runs, int, frozenset[tuple[int, bytes]]], V] = {}
        self.nbytes = 0

    def keep(self, runs: Runs, changes: Changes, position: int, values: V) -> None:
        """Keep the values of a replay before the node at a position, unless they are kept or take too much memory."""
        key = runs, position, _before(changes, position)
        if key in self._states or (size := _size(values)) > STATES_BYTES:
            return
        self._states[key] = values.copy()
        self.nbytes += size
        while self.nbytes > STATES_BYTES:
            self.nbytes -= _size(self._states.pop(next(iter(self._states))))

    def latest(self, runs: Runs, changes: Changes, positions: Collection[int]) -> tuple[int, V] | None:
        """Return the last of some positions at which a state with the same changes is kept, and its values."""
        for position in sorted(positions, reverse=True):
            key = runs, position, _before(changes, position)
            if key in self._states:
                values = self._states[key] = self._states.pop(key)
                return position, values
        return None


def _before(changes: Changes, position: int) -> frozenset[tuple[int, bytes]]:
    return frozenset(item for item in changes.items() if item[0] < position)


def _size(values: _Values) -> int:
    return _LEAST_BYTES + values.nbytes
