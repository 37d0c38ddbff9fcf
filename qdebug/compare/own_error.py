"""A node's own error, elementwise: what it does otherwise than the reference's node on the same inputs, and its parts.

The reference's node is taken in the reference's own arithmetic: where the reference is on codes, rounding to these
codes is no error. The budget, contributions and edits all measure against this.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qdebug.compare.align.layouts import in_reference_order
from qdebug.compare.align.pairs import clamp_of
from qdebug.compare.attribute.backend_replay import real_values, replay, replay_own
from qdebug.compare.attribute.band import difference
from qdebug.compare.attribute.code_spans import (
    folded_clamp,
    held,
    held_as_recorded,
    reference_codes,
    uniform_span,
)
from qdebug.compare.attribute.plan import PlannedNode
from qdebug.compare.graph_checks.graph_check import GraphCheck
from qdebug.compare.graph_checks.tensor_check import TensorCheck
from qdebug.compare.graph_checks.tensor_facts import one_shape
from qdebug.errors import KernelError
from qdebug.model import operators
from qdebug.numerics.accumulate import same_elements
from qdebug.numerics.affine import dequantize, on_grid, quantize

__all__ = ["PARTS", "own_error", "own_parts"]

PARTS = ("weights", "saturation", "rounding", "arithmetic")
"""What a node's own error is made of, in the order in which it comes about."""


def own_error(graphs: GraphCheck, entry: PlannedNode, place: tuple[int, int]) -> np.ndarray:
    """Return what the backend recorded, less what the reference's nodes and constants give on the same inputs.

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
    return difference(ours, theirs)


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
    view, codes = entry.pair.backend_view, reference_codes(reference.graph, backend.graph, entry)
    coded = entry.quant is not None and entry.quant != codes  # of equal codes the reference's rounding is the node's
    if check.segment.wide or any(operators.of(node.op).takes_codes for node in check.segment.own):
        stages = [on_grid(replay_own(backend, entry.pair, check.segment, theirs.shape, place), codes)]
        coded = False
    else:
        stored = backend.load(entry.tensor, *place)
        made = replay(backend, check.node, entry.tensor, place)
        if not same_elements(made.shape, stored.shape):
            raise KernelError(f"The replay gives shape {made.shape} and the recording has {stored.shape}.")
        made, folded = made.reshape(stored.shape), folded_clamp(reference, backend, entry)
        if folded is not None:
            made = held_as_recorded(made, dequantize(stored, entry.quant), folded)
        stages = [on_grid(made, codes)]
        if coded and entry.quant is not None:
            stages += [held(made, uniform_span(entry.quant)), dequantize(quantize(made, entry.quant), entry.quant)]
        stages = [in_reference_order(each, view, theirs.shape) for each in stages]
    steps = [theirs, *(held(each.reshape(theirs.shape), clamp_of(view)) for each in stages), ours]
    names = PARTS if coded else (PARTS[0], PARTS[-1])
    return {name: difference(after, before) for name, before, after in zip(names, steps[:-1], steps[1:], strict=True)}


def _check(graphs: GraphCheck, entry: PlannedNode) -> TensorCheck:
    found = graphs.of(entry)
    if found is None:
        raise KernelError(f"What leads to {entry.tensor!r} is not known.")
    return found


def _ends(
    graphs: GraphCheck, entry: PlannedNode, check: TensorCheck, place: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return what the reference's nodes make of the backend's inputs, and what the backend has."""
    backend = graphs.replays.be.recording
    theirs = graphs.replays.expected(entry, check.segment, place)
    view = entry.pair.backend_view
    ours = held(in_reference_order(real_values(backend, entry.tensor, place), view, theirs.shape), clamp_of(view))
    if not one_shape(ours.shape, theirs.shape):
        raise KernelError(f"The replay gives shape {theirs.shape} and the recording has {ours.shape}.")
    return theirs, ours.reshape(theirs.shape)
