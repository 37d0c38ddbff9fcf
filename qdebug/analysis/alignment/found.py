"""The pairs found so far, while two graphs are walked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from qdebug.analysis.alignment.pairs import Match, Pair, View
from qdebug.analysis.alignment.value_classes import Run

__all__ = ["Found"]


class Found(Mapping[str, Pair]):
    """Pairs by backend tensor, whether the two were recorded or not.

    Args:
        ref: The reference run.
        be: The backend run.
    """

    def __init__(self, ref: Run, be: Run) -> None:
        self._ref, self._be = ref.classes, be.classes
        self._pairs: dict[str, Pair] = {}
        self.partners: dict[str, set[str]] = {}
        self.taken: dict[str, str] = {}

    def __getitem__(self, tensor: str) -> Pair:
        return self._pairs[tensor]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)

    def add(self, backend: str, reference: str, match: Match, reason: str, view: View | None = None) -> None:
        """Pair two tensors.

        Args:
            backend: The backend's; it has no pair yet, or gets another one.
            reference: The reference's.
            match: The ground.
            reason: One clause a person can check.
            view: What is done to the backend's values first.
        """
        self._pairs[backend] = Pair(backend=backend, reference=reference, match=match, reason=reason, backend_view=view)
        self.partners.setdefault(self._be.root(backend), set()).add(self._ref.root(reference))
        self.taken.setdefault(reference, backend)

    def drop(self, backend: str) -> None:
        """Undo a pair."""
        pair = self._pairs.pop(backend)
        if self.taken.get(pair.reference) == backend:
            del self.taken[pair.reference]
        root = self._be.root(backend)
        left = {self._ref.root(p.reference) for t, p in self._pairs.items() if self._be.root(t) == root}
        if left:
            self.partners[root] = left
        else:
            self.partners.pop(root, None)
