"""What rounding to its own codes makes of a backend's result, where these codes lie inside a part compared as a whole.

The part is replayed twice on the backend's recorded inputs and constants: with each tensor rounded to its codes, as the
backend's graph says, and with none. The difference is rounding that no other graph has and that nothing is wrong with.
"""

from __future__ import annotations

import numpy as np

from qdebug.compare.align.clamps import code_span
from qdebug.compare.align.layouts import in_reference_order
from qdebug.compare.align.pairs import Pair
from qdebug.compare.align.value_classes import Run
from qdebug.compare.attribute.backend_replay import codes_shared, compute
from qdebug.compare.attribute.rounding import real_values
from qdebug.compare.attribute.segments import Segment
from qdebug.errors import KernelError
from qdebug.model import Node, operators
from qdebug.numerics.affine import dequantize, quantize
from qdebug.replay.real_form import real_form

__all__ = ["rounding_inside"]


def rounding_inside(
    be: Run, pair: Pair, segment: Segment, shape: tuple[int, ...], place: tuple[int, int]
) -> np.ndarray:
    """Give what rounding to the backend's own codes adds to each element of a segment's result.

    What the codes cut off is no rounding: it stays in either replay.

    Args:
        be: The backend run.
        pair: The pair that the segment leads to.
        segment: The segment.
        shape: The shape of the reference's tensor, its dimensions in the order that the pair is compared in.
        place: Sample and step.

    Returns:
        Real values in that order.

    Raises:
        KernelError: A node cannot be replayed.
        RecordingError: A constant or an input was not recorded.
    """
    rounded, real = (_replayed(be, pair, segment, place, to_codes=flag) for flag in (True, False))
    return in_reference_order(np.subtract(rounded, real, dtype=np.float64), pair.backend_view, shape)


def _replayed(be: Run, pair: Pair, segment: Segment, place: tuple[int, int], *, to_codes: bool) -> np.ndarray:
    tensors, opset = be.recording.graph.tensors, be.recording.graph.opset
    known: dict[str, np.ndarray] = {}
    for node in segment.own:
        if operators.of(node.op).takes_codes:
            raise KernelError(f"{node.op} computes with codes")
        form, versions = real_form(node, opset)
        inputs = {name: _read(be, form, name, known, place) for name in form.inputs if name}
        for name, values in compute(node, form, versions, inputs).items():
            quant, span = tensors[name].quant, code_span(be, name)
            kept = values if span is None else np.asarray(np.clip(values, *span))
            if to_codes and quant is not None:
                kept = dequantize(quantize(kept, quant), quant)
            known[name] = kept
    if pair.backend not in known:
        raise KernelError(f"a replay does not give {pair.backend!r}")
    return known[pair.backend]


def _read(be: Run, form: Node, name: str, known: dict[str, np.ndarray], place: tuple[int, int]) -> np.ndarray:
    """Give what a node reads: what the replay made, or as it was recorded."""
    if name in known:
        return known[name]
    shared = codes_shared(be.recording, form, name)
    if shared is not None and be.recording.graph.tensors[name].quant is None and be.recording.has(name):
        return dequantize(be.recording.load(name), shared)
    return real_values(be.recording, name, *place)
