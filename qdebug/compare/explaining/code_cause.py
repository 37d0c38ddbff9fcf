"""Finds why no known arithmetic reproduces a node: a mistake that does, or else where the wrong elements are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from qdebug.arithmetic.units import Units
from qdebug.compare.explaining.claims import LIKELY
from qdebug.compare.explaining.explain import Explainer
from qdebug.compare.explaining.float_band import locate_outliers
from qdebug.compare.explaining.further import further_cause
from qdebug.compare.measure.recordings import with_understood_graph
from qdebug.errors import KernelError, NotRecordedError, UsageError
from qdebug.model import Node, QuantParams, Recording, operators
from qdebug.model.dtypes import is_float
from qdebug.model.view import View
from qdebug.numerics.affine import quantize

__all__ = ["CodeCause", "cause_of_codes"]

_VAGUE_PATTERN = "scattered"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeCause:
    """The cause of wrong elements, or where they are.

    Args:
        sentence: One clause, or None if nothing was found.
        explains_all: Whether the cause reproduces every element. If not, the sentence may only say where the wrong
            elements are.
    """

    sentence: str | None = None
    explains_all: bool = False


def cause_of_codes(recording: Recording, tensor: str, *, roundings: bool = True) -> CodeCause:
    """Find the cause of an output that no known arithmetic reproduces, or else where its wrong elements are.

    Args:
        recording: The run.
        tensor: The output of the node.
        roundings: Whether a rounding to a shorter float format counts as a cause.
    """
    recording = with_understood_graph(recording)
    node = recording.graph.producer(tensor)
    if node is None:
        return CodeCause()
    with_codes = _WithCodes.behind(recording, node, tensor)
    if with_codes is not None:
        return cause_of_codes(with_codes, node.inputs[0], roundings=roundings)
    try:
        units = Units(recording)
        quant = recording.graph.tensors[tensor].quant
        if quant is None or is_float(quant.dtype):  # the search for an arithmetic does not support 8-bit float codes
            # A node at the end of a fused layer has no place with recorded inputs.
            places = units.places(node, tensor) or tuple(recording.places(tensor))
            cause = further_cause(recording, node, tensor, places, roundings=roundings)
            if cause is not None:
                return CodeCause(sentence=cause.removeprefix(LIKELY), explains_all=True)
            place = locate_outliers(recording, node, tensor, places)
            return CodeCause(sentence=None if place is None else f"wrong elements: {place}")
        is_complete = units.missing(node, tensor) is None
        before_rounding = CodeCause() if is_complete else _cause_before_rounding(recording, node, tensor)
        if before_rounding.explains_all:
            return before_rounding
        if operators.of(node.op).passes_codes and not operators.plain(node).unit:
            return _cause_without_unit(recording, node, tensor)
        return _cause_of_search(recording, tensor) or before_rounding
    except (KernelError, NotRecordedError, UsageError):
        return CodeCause()


class _WithCodes(View):
    """A recording with unrecorded codes, which follow exactly from the recorded tensor that they are dequantized to.

    Args:
        recording: The recording.
        codes: The tensor of codes.
        dequantized: The recorded tensor.
        quant: The quantization of the codes.
    """

    def __init__(self, recording: Recording, codes: str, dequantized: str, quant: QuantParams) -> None:
        super().__init__(recording)
        self._codes, self._dequantized, self._quant = codes, dequantized, quant

    @classmethod
    def behind(cls, recording: Recording, node: Node, tensor: str) -> _WithCodes | None:
        """Return the recording with the codes that a node dequantizes to a tensor, or None if these are recorded."""
        codes = node.inputs[0] if operators.plain(node).dequantizes else ""
        info = recording.graph.tensors.get(codes)
        if info is None or info.quant is None or recording.graph.producer(codes) is None or recording.places(codes):
            return None
        return cls(recording, codes, tensor, info.quant)

    def places(self, tensor: str | None = None) -> Sequence[tuple[int, int]]:
        """Return the samples and steps with values of a tensor, or of any tensor, in order."""
        return super().places(self._dequantized if tensor == self._codes else tensor)

    def has(self, tensor: str, sample: int = 0, step: int = 0) -> bool:
        """Return whether there are values of a tensor for a sample and step."""
        return super().has(self._dequantized if tensor == self._codes else tensor, sample, step)

    def load(self, tensor: str, sample: int = 0, step: int = 0) -> np.ndarray:
        """Return the elements of a tensor. Raises RecordingError if no values are kept."""
        if tensor != self._codes:
            return super().load(tensor, sample, step)
        return quantize(super().load(self._dequantized, sample, step), self._quant)


def _cause_of_search(recording: Recording, tensor: str) -> CodeCause | None:
    """Return the cause in the residual of a search for the arithmetic, or None if the residual shows none.

    If only the output of a fused layer was recorded, the inside of the layer is replayed.
    """
    residual = Explainer(recording).explain_alone(tensor).residual
    if residual is None:
        return None
    if residual.reproduces or not residual.is_pattern_alone:
        return CodeCause(sentence=residual.likely, explains_all=residual.reproduces)
    if residual.pattern == _VAGUE_PATTERN:
        return None
    are = "is" if residual.wrong == 1 else "are"
    return CodeCause(
        sentence=f"{residual.wrong} of {residual.total} codes {are} wrong, {residual.detail}; likely: {residual.likely}"
    )


def _cause_before_rounding(recording: Recording, node: Node, tensor: str) -> CodeCause:
    """Return the cause of wrong codes that a node quantizes from the unrecorded result of the node before it.

    The node before it is examined as if it returned the codes itself.

    Args:
        recording: The run.
        node: The node that quantizes.
        tensor: Its output.
    """
    maker = recording.graph.producer(node.inputs[0]) if operators.plain(node).quantizes and node.inputs else None
    if maker is None:
        return CodeCause()
    rounding_itself = replace(maker, outputs=(tensor,))
    places = Units(recording).places(rounding_itself, tensor)
    if places:
        cause = further_cause(recording, rounding_itself, tensor, places)
    else:  # the inputs of that node were not recorded either
        cause = further_cause(recording, node, tensor, tuple(recording.places(tensor)))
    if cause is not None:
        return CodeCause(sentence=cause.removeprefix(LIKELY), explains_all=True)
    place = (
        None
        if _is_mostly_saturated(recording, tensor, places[:1])
        else locate_outliers(recording, rounding_itself, tensor, places)
    )
    return CodeCause(sentence=None if place is None else f"wrong elements: {place}")


def _cause_without_unit(recording: Recording, node: Node, tensor: str) -> CodeCause:
    """Return the cause of wrong codes of a node that no search for an arithmetic supports, such as a ScatterND."""
    places = tuple(recording.places(tensor))
    cause = further_cause(recording, node, tensor, places)
    if cause is not None:
        return CodeCause(sentence=cause.removeprefix(LIKELY), explains_all=True)
    place = locate_outliers(recording, node, tensor, places)
    return CodeCause(sentence=None if place is None else f"wrong elements: {place}")


def _is_mostly_saturated(recording: Recording, tensor: str, places: Sequence[tuple[int, int]]) -> bool:
    """Return whether most codes of a place are saturated. The positions of wrong codes then reveal little."""
    quant = recording.graph.tensors[tensor].quant
    codes = [recording.load(tensor, *place) for place in places]
    ends = [] if quant is None or quant.qmin is None or quant.qmax is None else [quant.qmin, quant.qmax]
    return any(2 * np.count_nonzero(np.isin(array, ends)) > array.size for array in codes)
