"""Checks whether all that is wrong with a node's values is that those near zero are exactly zero."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from qdebug.compare.attribute.backend_replay import replay
from qdebug.compare.attribute.code_spans import uniform_span
from qdebug.compare.attribute.plan import recorded_places
from qdebug.compare.checks.context import NodeContext
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole
from qdebug.errors import KernelError, RecordingError
from qdebug.model import Node
from qdebug.model.thresholds.checks import DEAD_ZONE_MIN_ELEMENTS
from qdebug.model.thresholds.verdict import DERIVED_LSB
from qdebug.numerics.affine import dequantize

__all__ = ["dead_zone"]


def dead_zone(context: NodeContext) -> Finding | None:
    """Find that a node gives zero for all values nearer to zero than some distance, and is right beyond it.

    The distance lies between the largest value that came out as zero and the smallest that did not, by the replay of
    the node. Where a value that came out is nearer to zero than one that did not, there is no such distance.
    """
    attribution, quant, node = context.attribution, context.entry.quant, context.node
    if attribution is None or attribution.arithmetic_unsaturated is None or node is None or not context.diverges:
        return None
    if context.by_reference or context.entry.whole or (quant is not None and quant.per_channel):
        return None
    coded = quant is not None
    floor, slack, unit = (DERIVED_LSB, 0.5, "LSB") if coded else (0.0, 0.0, "absolute value")
    zone, least, worst, squares = 0.0, math.inf, 0.0, 0.0
    count, dropped, kept = 0, 0, 0
    try:
        for right, given in _values(context, node):
            size, zero = np.abs(right), given == 0
            lost = zero & (size > floor)
            off = np.abs(right - given)[~zero]
            count, dropped, kept = count + zero.size, dropped + int(np.count_nonzero(lost)), kept + off.size
            zone, least = max(zone, size[lost].max(initial=0.0)), min(least, size[~zero].min(initial=math.inf))
            worst, squares = max(worst, off.max(initial=0.0)), squares + float(off @ off)
            if not least + slack >= zone:
                return None
    except (KernelError, RecordingError):
        return None
    rest_is_right = worst <= DERIVED_LSB if coded else math.sqrt(squares) <= (attribution.allowed or 0.0)
    if min(dropped, kept) < DEAD_ZONE_MIN_ELEMENTS or not rest_is_right:
        return None
    said = f"{dropped} of {count} elements are zero that should be up to {zone:.4g}{' LSB' if coded else ''} from it"
    said += ", and all that should be farther are right: a dead zone"
    return Finding(
        kind=FindingKind.DEAD_ZONE,
        role=FindingRole.CAUSE,
        node=context.name,
        sentence=said,
        amount=float(zone),
        limit=floor,
        unit=unit,
        evidence=context.entry.tensor,
    )


def _values(context: NodeContext, node: Node) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield what a node should give and what it gave, sample by sample; of codes in steps, held to their range.

    Raises:
        KernelError: The node cannot be replayed, or gives another shape.
        RecordingError: An input was not recorded.
    """
    entry, backend = context.entry, context.runs.backend
    size = 1.0 if entry.quant is None else float(entry.quant.scale[0])
    for sample, step in recorded_places(context.runs.reference, backend, entry):
        replayed = replay(backend, node, entry.tensor, (sample, step))
        right = np.clip(replayed, *uniform_span(entry.quant)) if entry.quant is not None else replayed
        given = dequantize(backend.load(entry.tensor, sample, step), entry.quant)
        if given.size != right.size:
            raise KernelError(f"the replay gives {right.size} elements and the recording has {given.size}")
        yield np.asarray(right, np.float64).ravel() / size, np.asarray(given, np.float64).ravel() / size
