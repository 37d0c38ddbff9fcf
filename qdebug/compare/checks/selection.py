"""Reports how close the decision was when an index, a boolean or a rounded number differs from the reference.

Integers that are not codes have no step: they are equal or they are not. If a node's inputs account for its result, the
difference came with the inputs, and it may be as small as rounding.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qdebug.compare.attribute.backend_replay import real_values
from qdebug.compare.attribute.band import minus
from qdebug.compare.attribute.input_errors import partner_values
from qdebug.compare.attribute.integer_tensors import picked_values
from qdebug.compare.attribute.plan import recorded_places
from qdebug.compare.checks.context import NodeContext
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole
from qdebug.errors import KernelError, NotRecordedError
from qdebug.model import Node, operators
from qdebug.numerics.accumulate import same_elements

__all__ = ["selection"]


def selection(context: NodeContext) -> Finding | None:
    """Find which input difference flips the result of a node that is consistent with its own inputs.

    For an index or a comparison, this difference is how much the distance between the two candidate values changes from
    one side to the other. For a conversion to integers, it is the difference of the converted number.
    """
    node, stats, attribution = context.node, context.stats, context.attribution
    if node is None or stats is None or not stats.mismatches or not context.entry.whole:
        return None
    own_error = None if attribution is None else attribution.introduced
    if own_error is None or own_error.mismatches:
        return None
    try:
        margins = [margin for place in _places(context) for margin in _margins(context, node, place)]
    except (KernelError, NotRecordedError):
        return None
    if not margins:
        return None
    largest_margin, source = max(margins), node.inputs[0]
    verb = "differs" if stats.mismatches == 1 else "differ"
    count = f"{stats.mismatches} of {stats.count} elements {verb}"
    most = "" if len(margins) == 1 else "up to "
    reason = (
        f"a difference of {most}{largest_margin:.3g} in {source!r} changes the selection"
        if largest_margin
        else f"they select equal values of {source!r}"
    )
    return Finding(
        kind=FindingKind.SELECTION,
        role=FindingRole.NOTE,
        node=context.name,
        sentence=f"{count}; {reason}",
        amount=largest_margin,
        evidence=source,
    )


def _places(context: NodeContext) -> Iterator[tuple[int, int]]:
    return recorded_places(context.runs.reference, context.runs.backend, context.entry)


def _margins(context: NodeContext, node: Node, place: tuple[int, int]) -> Iterator[float]:
    """Yield the deciding input difference for each element that differs, or nothing if the operator does not select.

    Raises:
        KernelError: An input is stored in an unsupported dimension order.
        RecordingError: An input was not recorded.
    """
    row, replays, tensor = operators.of(node.op), context.runs.graphs.replays, context.entry.tensor
    backend_values = real_values(context.runs.backend, tensor, place)
    reference_values = partner_values(replays, tensor, place)
    if backend_values.shape != reference_values.shape or np.array_equal(backend_values, reference_values):
        return

    def read(slot: int) -> tuple[np.ndarray, np.ndarray]:
        name = node.inputs[slot]
        backend_input = real_values(context.runs.backend, name, place)
        return (partner_values(replays, name, place) if name in context.runs.pairs else backend_input), backend_input

    is_different, gaps = backend_values != reference_values, None
    if row.counts is operators.Count.COMPARISON:
        gaps = [minus(*operands) for operands in zip(read(0), read(1), strict=True)]
    elif row.casts and read(0)[1].dtype.kind == "f":
        gaps = list(read(0))
    elif row.picks_index and not (row.indices_beside and tensor == node.outputs[0]):
        candidate_values = [picked_values(node, side, reference_values, backend_values) for side in read(0)]
        gaps = [minus(*each) for each in candidate_values if each is not None]
    if gaps is None or len(gaps) < 2 or gaps[0].shape != gaps[1].shape:
        return
    distances = np.abs(minus(gaps[0], gaps[1]))
    if same_elements(distances.shape, is_different.shape):
        distances = distances.reshape(is_different.shape)[is_different]
        yield from distances[np.isfinite(distances)].tolist()
