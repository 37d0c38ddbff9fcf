"""A recording that remembers the small tensors it gave last: a node's own comparison reads one, and so do its readers.

Finding a tensor in a file costs more than reading a small one; large ones are views of the file and cost little to give
again.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from qdebug.model import Recording
from qdebug.model.forwarding import ForwardingRecording
from qdebug.model.outline import Outline, outline_of
from qdebug.numerics.checkpoint import checkpoint

__all__ = ["RecentTensors"]

_MOST_BYTES = 1 << 23
_LARGEST = 1 << 18


class RecentTensors(ForwardingRecording):
    """A recording with its most recent small tensors at hand: 8 MB of them, none above 256 kB.

    Args:
        recording: The recording.
    """

    def __init__(self, recording: Recording) -> None:
        super().__init__(recording)
        self._kept: OrderedDict[tuple[str, int, int], np.ndarray] = OrderedDict()
        self._bytes = 0

    def has(self, tensor: str, sample: int = 0, step: int = 0) -> bool:
        """Tell whether values of a tensor were kept for a sample and step."""
        return (tensor, sample, step) in self._kept or self._recording.has(tensor, sample, step)

    def outline(self, tensor: str, sample: int = 0, step: int = 0) -> Outline | None:
        """Give dtype, shape and hash of values that were kept in full; None if they are not known."""
        return outline_of(self._recording, tensor, sample, step)

    def load(self, tensor: str, sample: int = 0, step: int = 0) -> np.ndarray:
        """Give the stored elements, read-only.

        Raises:
            RecordingError: No values are kept under this name, sample and step.
        """
        checkpoint()
        key = (tensor, 0, 0) if self.graph.is_constant(tensor) else (tensor, sample, step)
        array = self._kept.get(key)
        if array is not None:
            self._kept.move_to_end(key)
            return array
        array = self._recording.load(tensor, sample, step)
        if array.nbytes <= _LARGEST:
            self._kept[key] = array
            self._bytes += array.nbytes + 512  # an array that is nearly empty takes room too
            while self._bytes > _MOST_BYTES:
                _, oldest = self._kept.popitem(last=False)
                self._bytes -= oldest.nbytes + 512
        return array
