"""Why no known arithmetic gives a node's values: a mistake that reproduces them all, or where the wrong ones are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from qdebug.arithmetic.units import Units
from qdebug.compare.explaining.claims import LIKELY
from qdebug.compare.explaining.explain import Explainer
from qdebug.compare.explaining.float_band import wrong_place
from qdebug.compare.explaining.further import further_cause
from qdebug.compare.measure.recordings import with_understood_graph
from qdebug.errors import KernelError, NotRecordedError, UsageError
from qdebug.model import Node, Recording, operators
from qdebug.model.dtypes import is_float

__all__ = ["CodeCause", "cause_of_codes"]

_SAYS_NOTHING = "scattered"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeCause:
    """The cause or the position of wrong codes.

    Args:
        sentence: One clause, or None if nothing is known.
        explains_all: Whether it explains every element, not only where the wrong ones are.
    """

    sentence: str | None = None
    explains_all: bool = False


def cause_of_codes(recording: Recording, tensor: str, *, roundings: bool = True) -> CodeCause:
    """Look for the cause of values that no known arithmetic reproduces; of real numbers, for where the wrong ones are.

    Args:
        recording: The run.
        tensor: The output of the node.
        roundings: Whether real numbers of fewer digits are a cause.
    """
    recording = with_understood_graph(recording)
    node = recording.graph.producer(tensor)
    if node is None:
        return CodeCause()
    try:
        units = Units(recording)
        quant = recording.graph.tensors[tensor].quant
        if quant is None or is_float(quant.dtype):  # no integer arithmetic is searched for codes of 8-bit floats
            places = units.places(node, tensor) or tuple(recording.places(tensor))  # it may end a layer
            cause = further_cause(recording, node, tensor, places, roundings=roundings)
            if cause is not None:
                return CodeCause(sentence=cause.removeprefix(LIKELY), explains_all=True)
            place = wrong_place(recording, node, tensor, places)
            return CodeCause(sentence=None if place is None else f"wrong elements: {place}")
        is_complete = units.missing(node, tensor) is None
        before_rounding = CodeCause() if is_complete else _cause_before_rounding(recording, node, tensor)
        if before_rounding.explains_all:
            return before_rounding
        return _cause_of_search(recording, tensor) or before_rounding
    except (KernelError, NotRecordedError, UsageError):
        return CodeCause()


def _cause_of_search(recording: Recording, tensor: str) -> CodeCause | None:
    """Return the cause that the search for an arithmetic leaves, also of a layer whose end alone was recorded."""
    left = Explainer(recording).explain_alone(tensor).residual
    if left is None:
        return None
    if left.reproduces or not left.is_pattern_alone:
        return CodeCause(sentence=left.likely, explains_all=left.reproduces)
    if left.pattern == _SAYS_NOTHING:
        return None
    are = "is" if left.wrong == 1 else "are"
    return CodeCause(sentence=f"{left.wrong} of {left.total} codes {are} wrong, {left.detail}; likely: {left.likely}")


def _cause_before_rounding(recording: Recording, node: Node, tensor: str) -> CodeCause:
    """Return the cause of wrong codes that only round the result of another node, which was not recorded.

    That node is examined as if it returned the codes itself.

    Args:
        recording: The run.
        node: The node that returns the codes.
        tensor: The codes.
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
        else wrong_place(recording, rounding_itself, tensor, places)
    )
    return CodeCause(sentence=None if place is None else f"wrong elements: {place}")


def _is_mostly_saturated(recording: Recording, tensor: str, places: Sequence[tuple[int, int]]) -> bool:
    """Return whether most codes are at the ends of their range, where the place of wrong ones says little."""
    quant = recording.graph.tensors[tensor].quant
    codes = [recording.load(tensor, *place) for place in places]
    ends = [] if quant is None or quant.qmin is None or quant.qmax is None else [quant.qmin, quant.qmax]
    return any(2 * np.count_nonzero(np.isin(array, ends)) > array.size for array in codes)
