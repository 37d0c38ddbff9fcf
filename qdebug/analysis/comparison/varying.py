"""Recordings of tensors whose quantization changes from sample to sample, as the rest of the analysis can use them.

A graph says of a tensor how its codes stand for real numbers, once. Where a run says it anew for single samples, the
tensor is shown as what its codes stand for: float values, each made with the quantization that it was recorded with;
float64 for codes of 32 bits and more, which float32 does not tell apart.
What needs codes (steps, saturation, arithmetic bit for bit) is then not said of it; what is said is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from qdebug.model import Graph, QuantParams, Recording
from qdebug.model.dtypes import logical_dtype, logical_name
from qdebug.model.forwarding import ForwardingRecording
from qdebug.model.kept import Kept, kept_of
from qdebug.model.outline import Outline, outline_of
from qdebug.model.recording import event_quants_of, quant_of
from qdebug.numerics.affine import dequantize
from qdebug.numerics.wide_codes import is_wide_code

__all__ = ["RealWhereVarying", "real_where_varying"]


def real_where_varying(recording: Recording) -> Recording:
    """Give a recording in which every quantization holds for all samples; the same one if that is so already."""
    varying = {tensor for tensor, _, _ in event_quants_of(recording)}
    return RealWhereVarying(recording, varying) if varying else recording


class RealWhereVarying(ForwardingRecording):
    """A recording that shows some tensors as real values.

    Args:
        recording: The recording.
        tensors: Tensors whose quantization varies.
    """

    def __init__(self, recording: Recording, tensors: set[str]) -> None:
        super().__init__(recording)
        self._tensors = tensors
        given = recording.graph
        self._graph = Graph(
            given.nodes,
            tensors=[
                replace(info, quant=None, dtype=_shown_as(info.dtype)) if name in tensors else info
                for name, info in given.tensors.items()
            ],
            inputs=given.inputs,
            outputs=given.outputs,
            name=given.name,
            opset=given.opset,
        )

    @property
    def graph(self) -> Graph:
        """The graph that ran, without the quantization of what is shown as real values."""
        return self._graph

    def load(self, tensor: str, sample: int = 0, step: int = 0) -> np.ndarray:
        """Give the stored elements, or what they stand for; read-only.

        Raises:
            RecordingError: No values are kept under this name, sample and step.
        """
        array = self._recording.load(tensor, sample, step)
        if tensor not in self._tensors:
            return array
        shown = _shown_as(logical_name(array.dtype))
        quant = self._quant(tensor, sample, step)
        real = dequantize(array, quant, double=shown == "float64").astype(shown, copy=False)
        real.flags.writeable = False
        return real

    def outline(self, tensor: str, sample: int = 0, step: int = 0) -> Outline | None:
        """Give dtype, shape and hash of values that are shown as they were recorded; None of others."""
        return None if tensor in self._tensors else outline_of(self._recording, tensor, sample, step)

    def kept(self, tensor: str, sample: int = 0, step: int = 0) -> Kept | None:
        """Give what was kept of values that were not kept in full; of a tensor that varies nothing can be said."""
        return None if tensor in self._tensors else kept_of(self._recording, tensor, sample, step)

    @property
    def event_quants(self) -> Mapping[tuple[str, int, int], QuantParams]:
        """None is left."""
        return {}

    def _quant(self, tensor: str, sample: int, step: int) -> QuantParams | None:
        return quant_of(self._recording, tensor, sample, step)


def _shown_as(dtype: str | None) -> str:
    """Give the dtype that codes are shown in as real values."""
    return "float64" if dtype is not None and is_wide_code(logical_dtype(dtype)) else "float32"
