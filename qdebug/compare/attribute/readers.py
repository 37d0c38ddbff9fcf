"""The compared tensors that directly depend on a compared tensor."""

from __future__ import annotations

from collections.abc import Sequence

from qdebug.compare.attribute.graph_walk import between
from qdebug.compare.attribute.reference_replay import ReferenceReplay

__all__ = ["ComparedReaders"]


class ComparedReaders:
    """Looks up readers of compared tensors.

    Args:
        replays: Both runs and their pairs.
    """

    def __init__(self, replays: ReferenceReplay) -> None:
        self._replays = replays
        self._readers: dict[str, list[str]] | None = None

    def of(self, tensor: str) -> Sequence[str]:
        """Return the compared tensors that depend on a tensor directly or through tensors without a partner."""
        if self._readers is None:
            self._readers = {}
            for name in self._replays.pairs:
                for entry in between(self._replays.be.recording.graph, name, self._replays.pairs)[1]:
                    self._readers.setdefault(entry, []).append(name)
        return self._readers.get(tensor, [])
