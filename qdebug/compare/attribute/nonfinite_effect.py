"""Decides whether a NaN or an infinity in one run has any effect. An infinity in a mask has none."""

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
    """Follows non-finite values of one run to the first finite tensors that depend on them.

    Each such tensor is replayed twice: with the backend's values, and with the reference's values wherever one side is
    not finite.

    Args:
        replays: Both runs and their pairs.
    """

    def __init__(self, replays: ReferenceReplay) -> None:
        self._replays = replays
        self._readers: dict[str, list[str]] | None = None

    def is_none(self, tensor: str, place: tuple[int, int]) -> bool:
        """Return whether the non-finite values of a compared tensor change no other tensor.

        Return False for a network output, and if a reader was not recorded or cannot be replayed.

        Args:
            tensor: The backend tensor.
            place: Sample and step.
        """
        graph = self._replays.be.recording.graph
        waiting, visited = [tensor], {tensor}
        try:
            while waiting:
                name = waiting.pop()
                readers = self._read_by(name)
                if name in graph.outputs or (not readers and graph.consumers(name)):
                    return False
                spoilt = {reader for reader in readers if self._odd(reader, place).any()}
                if any(self._changes(name, reader, place) for reader in readers if reader not in spoilt):
                    return False
                waiting += spoilt - visited
                visited |= spoilt
        except (KernelError, NotRecordedError, UsageError):
            return False
        return True

    def _read_by(self, tensor: str) -> list[str]:
        """Return the compared tensors that directly depend on a compared tensor."""
        if self._readers is None:
            self._readers = {}
            for name in self._replays.pairs:
                for entry in between(self._replays.be.recording.graph, name, self._replays.pairs)[1]:
                    self._readers.setdefault(entry, []).append(name)
        return self._readers.get(tensor, [])

    def _odd(self, tensor: str, place: tuple[int, int]) -> np.ndarray:
        """Return which elements are not finite on one side and differ between the sides."""
        backend = real_values(self._replays.be.recording, tensor, place)
        reference = partner_values(self._replays, tensor, place)
        if backend.shape != reference.shape:
            raise KernelError(f"{tensor!r} has another shape in the reference.")
        if backend.dtype.kind != "f" or reference.dtype.kind != "f":
            return np.zeros(backend.shape, bool)
        return np.asarray(one_sided(backend, reference) | one_sided(reference, backend))

    def _changes(self, tensor: str, reader: str, place: tuple[int, int]) -> bool:
        """Return whether those elements of a tensor change the result of a compared reader."""
        recording = self._replays.be.recording
        nodes, _ = between(recording.graph, reader, self._replays.pairs)
        backend, reference = real_values(recording, tensor, place), partner_values(self._replays, tensor, place)
        finite = np.where(self._odd(tensor, place), reference, backend)
        with_backend, with_reference = (
            replayed_with(self._replays, nodes, reader, instead, place) for instead in ({}, {tensor: finite})
        )
        off = minus(with_backend, with_reference)[
            ~((with_backend == with_reference) | (np.isnan(with_backend) & np.isnan(with_reference)))
        ]
        if not off.size:
            return False
        signal, error = norm(with_reference), norm(off)
        level = 20 * math.log10(signal / error) if signal and error else -math.inf
        return not level >= EQUAL_INPUTS_MIN_SQNR  # level is NaN if the reader passes the non-finite value on
