"""Whether a NaN or an infinity of one run changes anything that is made of it: a mask of infinities does not."""

from __future__ import annotations

import math

import numpy as np

from qdebug.compare.attribute.backend_replay import real_values
from qdebug.compare.attribute.band import minus, norm
from qdebug.compare.attribute.birth_search import one_sided
from qdebug.compare.attribute.graph_walk import between
from qdebug.compare.attribute.input_errors import partner_values, replayed_with
from qdebug.compare.attribute.reference_replay import ReferenceReplay
from qdebug.errors import KernelError, NotRecordedError, UsageError
from qdebug.model.thresholds.verdict import EQUAL_INPUTS_MIN_SQNR

__all__ = ["NonfiniteEffect"]


class NonfiniteEffect:
    """Follows what is not finite in one run alone to the first finite tensors that are made of it.

    Each of those is replayed twice: with the backend's values, and with the reference's where one side is not finite.

    Args:
        replays: Both runs and their pairs.
    """

    def __init__(self, replays: ReferenceReplay) -> None:
        self._replays = replays
        self._readers: dict[str, list[str]] | None = None

    def is_none(self, tensor: str, place: tuple[int, int]) -> bool:
        """Tell whether what is not finite in a compared tensor changes nothing that is made of it.

        Not of an output of the network, nor where a reader was not recorded or cannot be replayed.

        Args:
            tensor: The backend tensor.
            place: Sample and step.
        """
        graph = self._replays.be.recording.graph
        waiting, seen = [tensor], {tensor}
        try:
            while waiting:
                name = waiting.pop()
                readers = self._read_by(name)
                if name in graph.outputs or (not readers and graph.consumers(name)):
                    return False
                spoilt = {each for each in readers if self._odd(each, place).any()}
                if any(self._changes(name, each, place) for each in readers if each not in spoilt):
                    return False
                waiting += spoilt - seen
                seen |= spoilt
        except (KernelError, NotRecordedError, UsageError):
            return False
        return True

    def _read_by(self, tensor: str) -> list[str]:
        """Return the compared tensors that are made of a compared tensor, by way of none that is."""
        if self._readers is None:
            self._readers = {}
            for name in self._replays.pairs:
                for entry in between(self._replays.be.recording.graph, name, self._replays.pairs)[1]:
                    self._readers.setdefault(entry, []).append(name)
        return self._readers.get(tensor, [])

    def _odd(self, tensor: str, place: tuple[int, int]) -> np.ndarray:
        """Tell which elements are not finite on one side, and not the same on the other."""
        ours = real_values(self._replays.be.recording, tensor, place)
        theirs = partner_values(self._replays, tensor, place)
        if ours.shape != theirs.shape:
            raise KernelError(f"{tensor!r} has another shape in the reference.")
        if ours.dtype.kind != "f" or theirs.dtype.kind != "f":
            return np.zeros(ours.shape, bool)
        return np.asarray(one_sided(ours, theirs) | one_sided(theirs, ours))

    def _changes(self, tensor: str, reader: str, place: tuple[int, int]) -> bool:
        """Tell whether the elements of a tensor that are odd change what a compared reader of it gives."""
        recording = self._replays.be.recording
        nodes, _ = between(recording.graph, reader, self._replays.pairs)
        ours, theirs = real_values(recording, tensor, place), partner_values(self._replays, tensor, place)
        finite = np.where(self._odd(tensor, place), theirs, ours)
        made, other = (
            replayed_with(self._replays, nodes, reader, instead, place) for instead in ({}, {tensor: finite})
        )
        off = minus(made, other)[~((made == other) | (np.isnan(made) & np.isnan(other)))]
        if not off.size:
            return False
        signal, error = norm(other), norm(off)
        level = 20 * math.log10(signal / error) if signal and error else -math.inf
        return level < EQUAL_INPUTS_MIN_SQNR
