"""Values near zero that a node returned as exactly zero, and the errors of its other values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from qdebug.compare.attribute.backend_replay import real_values, replay
from qdebug.compare.attribute.code_spans import uniform_span
from qdebug.compare.evidence.measured_tensor import MeasuredTensor
from qdebug.compare.measure.channel_axis import channel_axis
from qdebug.compare.measure.joined_parts import joining_axis
from qdebug.errors import KernelError, NotRecordedError
from qdebug.model import Node, QuantParams
from qdebug.model.thresholds.verdict import DERIVED_LSB
from qdebug.numerics.affine import dequantize

__all__ = ["DeadZone", "find_dead_channels", "find_dead_zone"]


@dataclass(slots=True, kw_only=True)
class DeadZone:
    """The elements of a tensor that are zero although a replay is not, and the errors of the others, the survivors.

    Args:
        floor: The replayed magnitude up to which a zero is right.
        size: The largest replayed magnitude that became zero.
        smallest_survivor: The smallest replayed magnitude that did not.
        dropped: Number of elements that became zero although the replayed magnitude exceeds `floor`.
        surviving: Number of survivors.
        total: Total number of elements.
        worst: The largest error of a survivor.
        squares: The sum of the survivors' squared errors.
    """

    floor: float
    size: float = 0.0
    smallest_survivor: float = math.inf
    dropped: int = 0
    surviving: int = 0
    total: int = 0
    worst: float = 0.0
    squares: float = 0.0

    def add(self, expected: np.ndarray, actual: np.ndarray) -> None:
        """Add elements, given by their replayed and their recorded values."""
        magnitudes, zero = np.abs(expected), actual == 0
        is_lost = zero & (magnitudes > self.floor)
        errors = np.abs(expected - actual)[~zero]
        self.total += zero.size
        self.dropped += int(np.count_nonzero(is_lost))
        self.surviving += errors.size
        self.size = max(self.size, magnitudes[is_lost].max(initial=0.0))
        self.smallest_survivor = min(self.smallest_survivor, magnitudes[~zero].min(initial=math.inf))
        self.worst, self.squares = max(self.worst, errors.max(initial=0.0)), self.squares + float(errors @ errors)


def find_dead_zone(measured: MeasuredTensor) -> DeadZone | None:
    """Find the distance from zero within which a replayed node outputs zero; in LSB for codes.

    None if a survivor is closer to zero than a value that became zero, or if the node cannot be replayed.
    """
    quant, node = measured.entry.quant, measured.node
    if node is None or not measured._is_replayed or measured.entry.whole or (quant is not None and quant.per_channel):
        return None
    slack, zone = (0.0, DeadZone(floor=0.0)) if quant is None else (0.5, DeadZone(floor=DERIVED_LSB))
    try:
        for expected_values, actual_values in _load_outputs(measured, node):
            zone.add(expected_values, actual_values)
            if not zone.smallest_survivor + slack >= zone.size:
                return None
    except (KernelError, NotRecordedError):
        return None
    return zone


def find_dead_channels(measured: MeasuredTensor) -> tuple[Sequence[int], float, int] | None:
    """Find the channels that a node rounds to zero completely.

    Returns:
        The channels, the largest magnitude in them before rounding, and the number of all channels; None if there are
        no such channels.
    """
    pair, node, quant, stats = measured.entry.pair, measured.node, measured.entry.quant, measured.stats
    if node is None or not measured._is_replayed or quant is None or quant.per_channel:
        return None
    if stats is None or not stats.mismatches or pair.reference_view is not None or pair.backend_view is not None:
        return None
    with suppress(KernelError, NotRecordedError):
        return _dead_channels(measured, node, quant)
    return None


def _dead_channels(measured: MeasuredTensor, node: Node, quant: QuantParams) -> tuple[Sequence[int], float, int] | None:
    runs, entry, places = measured._runs, measured.entry, measured._places
    reference, backend = runs.reference, runs.backend
    first = backend.load(entry.tensor, *places[0])
    axis = joining_axis(runs.backend, node, first.ndim)
    if axis is None:
        axis = channel_axis(runs.reference, runs.backend, entry.pair, first.shape, quant=quant)
    if axis is None:
        return None
    other_axes = tuple(other_axis for other_axis in range(first.ndim) if other_axis != axis)
    if axis > 0 and runs.stacked is not None:
        reference, backend, places = runs.stacked.of(entry) or (reference, backend, places)
    is_dead = np.ones(first.shape[axis], bool)
    for place in places:
        is_dead &= ~(backend.load(entry.tensor, *place) != quant.zero_point[0]).any(axis=other_axes)
        if not is_dead.any():
            return None
    largest = np.zeros((2, is_dead.size))  # row 0: the replay, not rounded; row 1: the reference
    for place in places:
        shape = backend.load(entry.tensor, *place).shape
        for row, values in enumerate(
            (
                replay(backend, node, entry.tensor, place),
                real_values(reference, entry.reference_tensor, place),
            )
        ):
            if values.shape != shape:
                raise KernelError(f"the replay has shape {values.shape}, but the recorded tensor has {shape}")
            largest[row] = np.maximum(largest[row], np.abs(values).max(axis=other_axes, initial=0.0))
    step = float(quant.scale[0])
    is_dead &= (largest > 0.0).all(axis=0) & (largest[0] < step)  # a value of a whole step or more cannot round to zero
    if not is_dead.any():
        return None
    return np.flatnonzero(is_dead).tolist(), float(largest[0][is_dead].max()), is_dead.size


def _load_outputs(measured: MeasuredTensor, node: Node) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the expected and the actual output of a node at each sample and step.

    For a quantized tensor, both are in LSB, and the expected output is clamped to the code range.

    Raises:
        KernelError: The node cannot be replayed, or gives a different shape.
        RecordingError: An input was not recorded.
    """
    entry, backend = measured.entry, measured._runs.backend
    size = 1.0 if entry.quant is None else float(entry.quant.scale[0])
    for sample, step in measured._places:
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
