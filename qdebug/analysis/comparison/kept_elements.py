"""Compare the elements that were kept of two tensors, at the positions that both sides kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from qdebug.analysis.alignment.layouts import in_one_order
from qdebug.analysis.alignment.pairs import Pair, clamp_of
from qdebug.model import QuantParams, Recording
from qdebug.model.kept import kept_of
from qdebug.model.recording import quant_of
from qdebug.numerics.accumulate import ErrorAccumulator
from qdebug.numerics.blocks import why_incomparable
from qdebug.numerics.stats import ErrorStats

__all__ = ["ElementsCompared", "compare_elements"]


@dataclass(slots=True)
class ElementsCompared:
    """The comparison of the elements that were kept of one sample.

    Args:
        sums: Its error.
        compared: Elements compared.
        count: Elements in all.
        shape: The tensor's shape.
        positions: Where the elements compared are; None once there are several steps.
        places: Number of steps.
    """

    sums: ErrorAccumulator
    compared: int
    count: int
    shape: tuple[int, ...]
    positions: np.ndarray | None
    places: int = 1

    def joined(self, other: ElementsCompared) -> ElementsCompared:
        """Give this with another step of the sample."""
        self.sums.merge(other.sums)
        compared, count, places = self.compared + other.compared, self.count + other.count, self.places + other.places
        return replace(self, compared=compared, count=count, places=places, positions=None)

    def stats(self) -> ErrorStats:
        """Give the error, with the worst element's index in its tensor instead of that among the elements compared."""
        found = self.sums.stats()
        if found.worst_index is None or self.positions is None:
            return replace(found, worst_index=None)
        at = int(self.positions[found.worst_index[-1]])
        return replace(found, worst_index=tuple(int(index) for index in np.unravel_index(at, self.shape)))


@dataclass(frozen=True, slots=True)
class Elements:
    """Some elements of a tensor.

    Args:
        positions: Where they are in C order, ascending.
        values: The stored elements.
        shape: The tensor's shape.
        quant: How they stand for real numbers, in the tensor as it was recorded.
        recorded: Where they are in that, and its shape; None where it is this one.
    """

    positions: np.ndarray
    values: np.ndarray
    shape: tuple[int, ...]
    quant: QuantParams | None
    recorded: tuple[np.ndarray, tuple[int, ...]] | None = None

    def at(self, positions: np.ndarray) -> tuple[np.ndarray, QuantParams | None]:
        """Give the elements at some of the positions, with a quantization that fits them as a row of their own."""
        chosen = np.searchsorted(self.positions, positions)
        quant = self.quant
        if quant is None or quant.scale.size == 1:
            return self.values[chosen], None if quant is None else replace(quant, axis=None)
        where, shape = (self.positions, self.shape) if self.recorded is None else self.recorded
        places = np.unravel_index(where[chosen], shape)
        scale, zero_point = (_at(values, places, quant) for values in (quant.scale, quant.zero_point))
        return self.values[chosen], replace(quant, scale=scale, zero_point=zero_point, axis=0, block_size=None)


def _at(values: np.ndarray, places: Sequence[np.ndarray], quant: QuantParams) -> np.ndarray:
    """Give the scale or zero point of elements."""
    axis, block = quant.axis or 0, quant.block_size or 1
    if values.ndim == 1:
        return np.asarray(values[places[axis] // block])
    return np.asarray(values[tuple(place // (block if at == axis else 1) for at, place in enumerate(places))])


def compare_elements(
    reference: Recording,
    backend: Recording,
    pair: Pair,
    place: tuple[int, int],
    *,
    tolerance: tuple[float, float] | None = None,
) -> ElementsCompared | None:
    """Compare the elements at the positions that both sides kept of a sample and step.

    Args:
        reference: The reference run.
        backend: The backend run.
        pair: Which tensors, and what is done to their values first.
        place: Sample and step.
        tolerance: (atol, rtol), as of `compare_pair`.

    Returns:
        The comparison; None if a side kept no elements, or they cannot be compared.

    Raises:
        RecordingError: What a recording says it kept cannot be read.
    """
    ours = _elements(reference, pair.reference, *place)
    theirs = _elements(backend, pair.backend, *place)
    theirs = None if ours is None or theirs is None else _in_reference_order(theirs, ours, pair)
    if ours is None or theirs is None or any(why_incomparable(each.values.dtype) for each in (ours, theirs)):
        return None
    return _compared(ours, theirs, pair, tolerance, place[0])


def _compared(
    ours: Elements, theirs: Elements, pair: Pair, tolerance: tuple[float, float] | None, sample: int
) -> ElementsCompared:
    """Compare the elements at the positions that both sides kept."""
    shared = np.intersect1d(ours.positions, theirs.positions, assume_unique=True)
    (one, one_quant), (other, other_quant) = ours.at(shared), theirs.at(shared)
    sums = ErrorAccumulator(
        reference_quant=one_quant,
        backend_quant=other_quant,
        reference_clamp=clamp_of(pair.reference_view),
        backend_clamp=clamp_of(pair.backend_view),
        tolerance=tolerance,
    )
    sums.update(one, other, sample=sample)
    return ElementsCompared(sums, shared.size, math.prod(ours.shape), ours.shape, shared)


def _elements(recording: Recording, tensor: str, sample: int, step: int) -> Elements | None:
    """Give the elements that were kept of a tensor, all of them if they were; None if none were."""
    quant = quant_of(recording, tensor, sample, step)
    if recording.has(tensor, sample, step):
        array = recording.load(tensor, sample, step)
        return Elements(np.arange(array.size), array.reshape(-1), array.shape, quant)
    kept = kept_of(recording, tensor, sample, step)
    if kept is None or kept.positions is None or kept.values is None:
        return None
    return Elements(kept.positions, kept.values, kept.shape, quant)


def _in_reference_order(theirs: Elements, ours: Elements, pair: Pair) -> Elements | None:
    """Give a backend's elements at the positions of the reference's order; None if there is no such order."""
    if pair.reference_view is None and pair.backend_view is None:
        same = math.prod(theirs.shape) == math.prod(ours.shape)
        return theirs if same else None
    numbers = np.arange(math.prod(theirs.shape)).reshape(theirs.shape)
    turned = in_one_order(np.empty(ours.shape, np.bool_), pair.reference_view, numbers, pair.backend_view)
    if turned[0].shape != ours.shape or turned[1].size != math.prod(ours.shape):
        return None  # the reference's own order is another too, or the two do not fit
    back = np.empty(numbers.size, np.int64)
    back[turned[1].reshape(-1)] = np.arange(turned[1].size)
    positions = back[theirs.positions]
    order = np.argsort(positions)
    recorded = theirs.positions[order], theirs.shape
    return Elements(positions[order], theirs.values[order], ours.shape, theirs.quant, recorded)
