"""The pairs found so far, while two graphs are walked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.pairs import Match, Pair, Transform

__all__ = ["PairMap", "add_partner"]


class PairMap(Mapping[str, Pair]):
    """Pairs by backend tensor, whether the two were recorded or not.

    Args:
        ref: The reference run.
        be: The backend run.

    Attributes:
        partners: Roots of the reference's classes that a class of the backend's answers to, by its root.
        taken: The first backend tensor that answers to a reference tensor.
    """

    def __init__(self, ref: IndexedRecording, be: IndexedRecording) -> None:
        self._ref, self._be = ref, be
        self._pairs: dict[str, Pair] = {}
        self.partners: dict[str, tuple[str, ...]] = {}
        self.taken: dict[str, str] = {}

    def __getitem__(self, tensor: str) -> Pair:
        return self._pairs[tensor]

    def __contains__(self, tensor: object) -> bool:
        return tensor in self._pairs

    def get(self, tensor: str, default: Any = None) -> Any:
        """Give the pair of a backend tensor; the default if it has none."""
        return self._pairs.get(tensor, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)

    def add(self, backend: str, reference: str, match: Match, reason: str, view: Transform | None = None) -> None:
        """Pair two tensors.

        Args:
            backend: The backend's; it has no pair yet, or gets another one.
            reference: The reference's.
            match: The ground.
            reason: One clause a person can check.
            view: What is done to the backend's values first.
        """
        self._pairs[backend] = Pair(backend=backend, reference=reference, match=match, reason=reason, backend_view=view)
        add_partner(self.partners, self._be.root(backend), self._ref.root(reference))
        self.taken.setdefault(reference, backend)

    def drop(self, backend: str) -> None:
        """Undo a pair."""
        pair = self._pairs.pop(backend)
        if self.taken.get(pair.reference) == backend:
            del self.taken[pair.reference]
        root = self._be.root(backend)
        self.partners.pop(root, None)
        for member in self._be.members(root):
            if member in self._pairs:
                add_partner(self.partners, root, self._ref.root(self._pairs[member].reference))


def add_partner(partners: dict[str, tuple[str, ...]], backend: str, reference: str) -> None:
    """Note that a class of the backend's answers to one of the reference's; nearly always to no other."""
    known = partners.get(backend, ())
    if reference not in known:
        partners[backend] = (*known, reference)
