"""A recording that stands before another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from qdebug.model.graph import Graph
from qdebug.model.kept import Kept, kept_of
from qdebug.model.quant import QuantParams
from qdebug.model.recording import Recording, RunInfo, event_quants_of, places_of

__all__ = ["ForwardingRecording"]


class ForwardingRecording:
    """Passes every question on to another recording; a subclass answers the ones it is made for itself.

    Args:
        recording: The recording behind it.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    @property
    def info(self) -> RunInfo:
        """Facts of the run."""
        return self._recording.info

    @property
    def graph(self) -> Graph:
        """The graph that ran."""
        return self._recording.graph

    @property
    def samples(self) -> int:
        """Number of samples."""
        return self._recording.samples

    @property
    def steps(self) -> int:
        """Number of steps of a stateful net."""
        return self._recording.steps

    @property
    def names(self) -> Sequence[str]:
        """Names of the tensors of which anything was kept."""
        return self._recording.names

    def places(self, tensor: str | None = None) -> Sequence[tuple[int, int]]:
        """Return the samples and steps of which anything was kept of a tensor, or of any; in order."""
        return places_of(self._recording, tensor)

    def has(self, tensor: str, sample: int = 0, step: int = 0) -> bool:
        """Tell whether values of a tensor were kept for a sample and step."""
        return self._recording.has(tensor, sample, step)

    def load(self, tensor: str, sample: int = 0, step: int = 0) -> np.ndarray:
        """Return the stored elements, read-only.

        Raises:
            RecordingError: No values are kept under this name, sample and step.
        """
        return self._recording.load(tensor, sample, step)

    def kept(self, tensor: str, sample: int = 0, step: int = 0) -> Kept | None:
        """Return what was kept of values that were not kept in full; None if they were, or there are none."""
        return kept_of(self._recording, tensor, sample, step)

    @property
    def event_quants(self) -> Mapping[tuple[str, int, int], QuantParams]:
        """Quantization of values that do not have their tensor's, by tensor, sample and step."""
        return event_quants_of(self._recording)
