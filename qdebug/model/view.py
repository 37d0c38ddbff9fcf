"""A recording with changes applied on top."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from qdebug.model.graph import Graph
from qdebug.model.kept import Kept
from qdebug.model.quant import QuantParams
from qdebug.model.recording import ChangedRow, Recording, RunInfo

__all__ = ["View"]


class View(Recording):
    """A recording with a replaced graph, additional constants, or converted values.

    Args:
        recording: The underlying recording.
        graph: The graph that replaces the recording's graph; None to keep that.
        constants: Values of additional constants, by name.
        changes: Functions that convert the values of tensors, by name.
    """

    def __init__(
        self,
        recording: Recording,
        *,
        graph: Graph | None = None,
        constants: Mapping[str, np.ndarray] = MappingProxyType({}),
        changes: Mapping[str, Callable[[np.ndarray], np.ndarray]] = MappingProxyType({}),
    ) -> None:
        self._recording, self._graph, self._constants, self._changes = recording, graph, constants, changes

    @property
    def info(self) -> RunInfo:
        """Facts of the run."""
        return self._recording.info

    @property
    def graph(self) -> Graph:
        """The replaced graph, or the recording's graph."""
        return self._recording.graph if self._graph is None else self._graph

    @property
    def samples(self) -> int:
        """Number of samples."""
        return self._recording.samples

    @property
    def steps(self) -> int:
        """Number of steps of a stateful network."""
        return self._recording.steps

    @property
    def names(self) -> Sequence[str]:
        """Names of the tensors with any record, without the added constants."""
        return self._recording.names

    @property
    def event_quants(self) -> Mapping[tuple[str, int, int], QuantParams]:
        """Quantization of values that differs from their tensor's, by tensor, sample and step."""
        return self._recording.event_quants

    def places(self, tensor: str | None = None) -> Sequence[tuple[int, int]]:
        """Return the samples and steps with a record of the tensor (by default of any tensor), in order."""
        return ((0, 0),) if tensor in self._constants else self._recording.places(tensor)

    def has(self, tensor: str, sample: int = 0, step: int = 0) -> bool:
        """Return whether a tensor has values for a sample and step."""
        return tensor in self._constants or self._recording.has(tensor, sample, step)

    def load(self, tensor: str, sample: int = 0, step: int = 0) -> np.ndarray:
        """Return the elements, read-only.

        Raises:
            RecordingError: No values are recorded under this name, sample and step.
        """
        if tensor in self._constants:
            return self._constants[tensor]
        array = self._recording.load(tensor, sample, step)
        return self._changes[tensor](array) if tensor in self._changes else array

    def kept(self, tensor: str, sample: int = 0, step: int = 0) -> Kept | None:
        """Return the partial record of values; None if they were recorded in full, or not at all."""
        return None if tensor in self._constants else self._recording.kept(tensor, sample, step)

    def changed_rows(self, tensor: str) -> Sequence[ChangedRow]:
        """Return the rows of a cache that differ from the step that wrote them."""
        return self._recording.changed_rows(tensor)
