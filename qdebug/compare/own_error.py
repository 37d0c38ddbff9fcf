"""A node's own error, elementwise: what it makes of the inputs that it got, and the parts that this is made of."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qdebug.compare.align.layouts import in_reference_order
from qdebug.compare.align.pairs import clamp_of
from qdebug.compare.attribute.backend_replay import replay, replay_own
from qdebug.compare.attribute.band import minus
from qdebug.compare.attribute.code_spans import (
    folded_clamp,
    held,
    held_as_recorded,
    recorded_values,
    span_before,
    uniform_span,
)
from qdebug.compare.attribute.plan import PlannedNode
from qdebug.compare.graph_checks.graph_check import GraphCheck, TensorCheck, one_shape
from qdebug.errors import KernelError
from qdebug.model import operators
from qdebug.numerics.accumulate import same_elements
from qdebug.numerics.affine import dequantize, quantize

__all__ = ["PARTS", "own_error", "own_parts"]

PARTS = ("weights", "saturation", "rounding", "arithmetic")
"""What a node's own error is made of, in the order in which it comes about."""


def own_error(graphs: GraphCheck, entry: PlannedNode, place: tuple[int, int]) -> np.ndarray:
    """Return what the backend recorded, less a replay of its inputs with the reference's nodes and constants.

    Args:
        graphs: Holds the two graphs against each other.
        entry: The compared tensor.
        place: Sample and step.

    Returns:
        float64 in the order of dimensions that the pair is compared in.

    Raises:
        KernelError: A node cannot be replayed, or gives another shape.
        RecordingError: A constant or an input was not recorded.
    """
    theirs, ours = _ends(graphs, entry, _check(graphs, entry), place)
    return minus(ours, theirs)


def own_parts(graphs: GraphCheck, entry: PlannedNode, place: tuple[int, int]) -> Mapping[str, np.ndarray]:
    """Return what a tensor's own error is made of; the parts add up to `own_error`.

    "weights" is what other constants make, rounded ones above all; "saturation" what is cut off at the ends of the
    codes; "rounding" what rounding to the codes makes of the rest; "arithmetic" what the backend computed otherwise.
    Of a tensor without codes all that is no "weights" is "arithmetic".

    Args:
        graphs: Holds the two graphs against each other.
        entry: The compared tensor.
        place: Sample and step.

    Returns:
        float64 by name, one of `PARTS`, in the order of dimensions that the pair is compared in.

    Raises:
        KernelError: A node cannot be replayed, or gives another shape.
        RecordingError: A constant or an input was not recorded.
    """
    check = _check(graphs, entry)
    theirs, ours = _ends(graphs, entry, check, place)
    backend, reference = graphs.replays.be.recording, graphs.replays.ref.recording
    view, coded = entry.pair.backend_view, entry.quant is not None
    if check.segment.wide or any(operators.of(node.op).takes_codes for node in check.segment.own):
        stages = [replay_own(backend, entry.pair, check.segment, theirs.shape, place)]
        coded = False
    else:
        stored = backend.load(entry.tensor, *place)
        made = replay(backend, check.node, entry.tensor, place)
        if not same_elements(made.shape, stored.shape):
            raise KernelError(f"The replay gives shape {made.shape} and the recording has {stored.shape}.")
        made, folded = made.reshape(stored.shape), folded_clamp(reference, backend, entry)
        if folded is not None:
            made = held_as_recorded(made, dequantize(stored, entry.quant), folded)
        stages = [made]
        if entry.quant is not None:
            stages += [held(made, uniform_span(entry.quant)), dequantize(quantize(made, entry.quant), entry.quant)]
        stages = [in_reference_order(each, view, theirs.shape) for each in stages]
    span = span_before(reference.graph, entry.reference_tensor)
    steps = [theirs, *(held(each.reshape(theirs.shape), clamp_of(view), span) for each in stages), ours]
    names = PARTS if coded else (PARTS[0], PARTS[-1])
    return {name: minus(after, before) for name, before, after in zip(names, steps[:-1], steps[1:], strict=True)}


def _check(graphs: GraphCheck, entry: PlannedNode) -> TensorCheck:
    found = graphs.of(entry)
    if found is None:
        raise KernelError(f"What leads to {entry.tensor!r} is not known.")
    return found


def _ends(
    graphs: GraphCheck, entry: PlannedNode, check: TensorCheck, place: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return what the reference's nodes make of the backend's inputs, and what the backend has."""
    reference, backend = graphs.replays.ref.recording, graphs.replays.be.recording
    theirs = graphs.replays.values(entry.pair, check.segment, place)
    ours = recorded_values(reference, backend, entry, theirs.shape, place)
    if not one_shape(ours.shape, theirs.shape):
        raise KernelError(f"The replay gives shape {theirs.shape} and the recording has {ours.shape}.")
    return held(theirs, span_before(reference.graph, entry.reference_tensor)), ours.reshape(theirs.shape)
