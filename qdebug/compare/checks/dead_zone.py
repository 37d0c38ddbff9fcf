"""Checks whether values near zero became exactly zero, because of a coarse step or although others are correct."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from qdebug.compare.attribute.backend_replay import real_values, replay
from qdebug.compare.attribute.code_spans import uniform_span
from qdebug.compare.attribute.plan import recorded_places
from qdebug.compare.checks.context import NodeContext
from qdebug.compare.measure.channel_axis import channel_axis
from qdebug.compare.measure.joined_parts import joining_axis
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole
from qdebug.errors import KernelError, NotRecordedError
from qdebug.model import Node, QuantParams
from qdebug.model.thresholds.checks import DEAD_ZONE_MIN_ELEMENTS
from qdebug.model.thresholds.verdict import DERIVED_LSB
from qdebug.numerics.affine import dequantize

__all__ = ["dead_channels", "dead_zone"]


def dead_zone(context: NodeContext) -> Finding | None:
    """Find that a node outputs zero for all values within some distance of zero, and is right beyond it.

    The distance lies between the largest replayed value that became zero and the smallest that did not. If a value that
    survived is nearer to zero than one that did not, there is no such distance.
    """
    attribution, quant, node = context.attribution, context.entry.quant, context.node
    if attribution is None or attribution.arithmetic_unsaturated is None or node is None or not context.diverges:
        return None
    if context.by_reference or context.entry.whole or (quant is not None and quant.per_channel):
        return None
    coded = quant is not None
    floor, slack, unit = (DERIVED_LSB, 0.5, "LSB") if coded else (0.0, 0.0, "absolute value")
    zone, smallest_survivor, worst, squares = 0.0, math.inf, 0.0, 0.0
    count, dropped_count, kept_count = 0, 0, 0
    try:
        for expected_values, actual_values in _values(context, node):
            size, zero = np.abs(expected_values), actual_values == 0
            is_lost = zero & (size > floor)
            errors = np.abs(expected_values - actual_values)[~zero]
            count, dropped_count, kept_count = (
                count + zero.size,
                dropped_count + int(np.count_nonzero(is_lost)),
                kept_count + errors.size,
            )
            zone, smallest_survivor = (
                max(zone, size[is_lost].max(initial=0.0)),
                min(smallest_survivor, size[~zero].min(initial=math.inf)),
            )
            worst, squares = max(worst, errors.max(initial=0.0)), squares + float(errors @ errors)
            if not smallest_survivor + slack >= zone:
                return None
    except (KernelError, NotRecordedError):
        return None
    rest_is_right = worst <= DERIVED_LSB if coded else math.sqrt(squares) <= (attribution.allowed or 0.0)
    if min(dropped_count, kept_count) < DEAD_ZONE_MIN_ELEMENTS or not rest_is_right:
        return None
    zone_text = f"{zone:.4g}{' LSB' if coded else ''}"
    clause = (
        f"dead zone: {dropped_count} of {count} elements are zero where a replay of the node gives up to {zone_text}"
    )
    clause += "; all larger elements are right"
    return Finding(
        kind=FindingKind.DEAD_ZONE,
        role=FindingRole.CAUSE,
        node=context.name,
        sentence=clause,
        amount=float(zone),
        limit=floor,
        unit=unit,
        evidence=context.entry.tensor,
    )


def dead_channels(context: NodeContext) -> Finding | None:
    """Find channels that rounding makes all zero: every value in the channel is smaller than the step of the tensor."""
    entry, attribution, node, quant = context.entry, context.attribution, context.node, context.entry.quant
    if attribution is None or attribution.arithmetic_unsaturated is None or node is None or context.by_reference:
        return None
    if quant is None or quant.per_channel or context.stats is None or not context.stats.mismatches:
        return None
    if entry.pair.reference_view is not None or entry.pair.backend_view is not None:
        return None
    try:
        dead, largest, count = _find_dead_channels(context, node, quant)
    except (KernelError, NotRecordedError):
        return None
    if not dead:
        return None
    step = float(quant.scale[0])
    noun = "channel" if len(dead) == 1 else "channels"
    clause = f"{noun} {_ranges(dead)} {'is' if len(dead) == 1 else 'are'} rounded to zero entirely"
    return Finding(
        kind=FindingKind.DEAD_ZONE,
        role=FindingRole.NOTE,
        node=context.name,
        sentence=f"{clause}; the largest magnitude there is {largest:.3g}, and one LSB is {step:.3g}",
        amount=float(len(dead)),
        limit=0.0,
        unit=f"of {count} channels",
        evidence=entry.tensor,
    )


def _find_dead_channels(context: NodeContext, node: Node, quant: QuantParams) -> tuple[list[int], float, int]:
    """Return the channels that a node's rounding makes all zero, their largest value, and the number of channels."""
    entry, runs = context.entry, context.runs
    places = list(recorded_places(runs.reference, runs.backend, entry))
    first = runs.backend.load(entry.tensor, *places[0])
    axis = joining_axis(runs.backend, node, first.ndim)
    if axis is None:
        axis = channel_axis(runs.reference, runs.backend, entry.pair, first.shape, quant=quant)
    if axis is None:
        return [], 0.0, 0
    other_axes = tuple(each for each in range(first.ndim) if each != axis)
    is_dead = np.ones(first.shape[axis], bool)
    for place in places:
        is_dead &= ~(runs.backend.load(entry.tensor, *place) != quant.zero_point[0]).any(axis=other_axes)
        if not is_dead.any():
            return [], 0.0, is_dead.size
    largest = np.zeros((2, is_dead.size))  # row 0: the node's input; row 1: the reference
    for place in places:
        for row, values in enumerate(
            (
                replay(runs.backend, node, entry.tensor, place),
                real_values(runs.reference, entry.reference_tensor, place),
            )
        ):
            if values.shape != first.shape:
                raise KernelError(f"the replay has shape {values.shape}, but the recorded tensor has {first.shape}")
            largest[row] = np.maximum(largest[row], np.abs(values).max(axis=other_axes, initial=0.0))
    step = float(quant.scale[0])
    is_dead &= (largest > 0.0).all(axis=0) & (largest[0] < step)  # a larger input cannot round to zero
    return np.flatnonzero(is_dead).tolist(), float(largest[0][is_dead].max(initial=0.0)), is_dead.size


def _ranges(places: Sequence[int], *, limit: int = 6) -> str:
    """Write positions as ranges, such as "2..9, 12". If there are many ranges, write only the first few."""
    breaks = [at for at in range(1, len(places)) if places[at] != places[at - 1] + 1]
    runs = [places[start:stop] for start, stop in pairwise([0, *breaks, len(places)])]
    range_texts = [str(run[0]) if len(run) == 1 else f"{run[0]}..{run[-1]}" for run in runs[:limit]]
    rest_count = sum(map(len, runs[limit:]))
    return ", ".join(range_texts) + (f" and {rest_count} more" if rest_count else "")


def _values(context: NodeContext, node: Node) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the expected and the actual output of a node, sample by sample; for codes in steps, clamped to their range.

    Raises:
        KernelError: The node cannot be replayed, or gives a different shape.
        RecordingError: An input was not recorded.
    """
    entry, backend = context.entry, context.runs.backend
    size = 1.0 if entry.quant is None else float(entry.quant.scale[0])
    for sample, step in recorded_places(context.runs.reference, backend, entry):
        replayed_values = replay(backend, node, entry.tensor, (sample, step))
        expected_values = (
            np.clip(replayed_values, *uniform_span(entry.quant)) if entry.quant is not None else replayed_values
        )
        actual_values = dequantize(backend.load(entry.tensor, sample, step), entry.quant)
        if actual_values.size != expected_values.size:
            raise KernelError(
                f"the replay has {expected_values.size} elements, but the recorded tensor has {actual_values.size}"
            )
        yield (
            np.asarray(expected_values, np.float64).ravel() / size,
            np.asarray(actual_values, np.float64).ravel() / size,
        )
