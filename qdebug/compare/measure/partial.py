"""Compare tensors of which a part was kept: elements that both sides hold, else hashes and statistics."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qdebug.compare.align.layouts import in_one_order
from qdebug.compare.align.pairs import Pair, clamp_of
from qdebug.model import QuantParams, Recording
from qdebug.model.dtypes import logical_name
from qdebug.model.kept import Kept
from qdebug.model.recording import either_places, quant_of
from qdebug.model.thresholds.attribution import MOMENTS_MIN_REL_ERROR
from qdebug.numerics.accumulate import ErrorAccumulator
from qdebug.numerics.blocks import incomparable_reason
from qdebug.numerics.stats import ErrorStats
from qdebug.numerics.summary import take_statistics

__all__ = [
    "ElementsCompared",
    "PartlyCompared",
    "compare_elements",
    "compare_partly",
    "hash_equal",
    "one_sided",
    "some_missing",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartlyCompared:
    """What is known of a pair of which not all values were kept.

    Args:
        basis: "elements" or "stats".
        samples: The error of each sample, of the elements compared; empty if only statistics are known and differ.
        stats: The same of all samples together; None likewise.
        note: What was compared and what was not; "" if nothing was left out.
        equal: Whether all values are equal bit for bit, kept or not.
        sqnr_at_most: Upper bound of the SQNR in dB that the statistics prove; None if they prove none.
        nonfinite: Elements that the statistics prove to be NaN or infinite on one side only, at the least.
    """

    basis: str
    samples: tuple[tuple[int, ErrorStats], ...]
    stats: ErrorStats | None
    note: str
    equal: bool = False
    sqnr_at_most: float | None = None
    nonfinite: int = 0


def compare_partly(
    reference: Recording, backend: Recording, pair: Pair, *, tolerance: tuple[float, float] | None = None
) -> PartlyCompared | None:
    """Compare what was kept of a pair of which no values were kept in full on both sides.

    Args:
        reference: The reference run.
        backend: The backend run.
        pair: Which tensors, and what is done to their values first.
        tolerance: (atol, rtol), as of `compare_pair`.

    Returns:
        What is known; None if one side has nothing.

    Raises:
        RecordingError: What a recording says it kept cannot be read.
    """
    places = list(_places(reference, backend, pair))
    if not places:
        return None
    found = _elements_compared(reference, backend, pair, places, tolerance)
    if found is None:
        found = _statistics_compared(reference, backend, pair, places)
    else:
        found = replace(found, equal=all(hash_equal(reference, backend, pair, place) for place in places))
    return found if found.equal else replace(found, nonfinite=one_sided(reference, backend, pair))


def one_sided(reference: Recording, backend: Recording, pair: Pair) -> int:
    """Count the elements that cannot but be NaN or infinite on one side only: there are more of them there.

    Args:
        reference: The reference run.
        backend: The backend run.
        pair: Which tensors. Samples and steps that both kept in full are left out: their elements are compared.
    """
    if (clamp_of(pair.reference_view), clamp_of(pair.backend_view)) != ((None, None), (None, None)):
        return 0
    least = 0
    for place in _places(reference, backend, pair):
        if reference.has(pair.reference, *place) and backend.has(pair.backend, *place):
            continue
        one, other = (
            _kept(side, name, *place).statistics
            for side, name in ((reference, pair.reference), (backend, pair.backend))
        )
        if one.count == other.count:
            least += max(abs(one.nan - other.nan), abs(one.inf - other.inf))
    return least


def _places(reference: Recording, backend: Recording, pair: Pair) -> Iterator[tuple[int, int]]:
    """List samples and steps of which both sides kept something."""
    sides = ((reference, pair.reference), (backend, pair.backend))
    for place in either_places(reference, pair.reference, backend, pair.backend):
        if all(side.has(name, *place) or side.kept(name, *place) for side, name in sides):
            yield place


def some_missing(reference: Recording, backend: Recording, pair: Pair) -> str:
    """Say in a clause of how many samples and steps only one side kept anything; "" if of none."""
    sides = {"reference": (reference, pair.reference), "backend": (backend, pair.backend)}
    if all(side.graph.is_constant(name) for side, name in sides.values()):
        return ""
    only = dict.fromkeys(sides, 0)
    for place in either_places(reference, pair.reference, backend, pair.backend):
        lacking = [
            title for title, (side, name) in sides.items() if not (side.has(name, *place) or side.kept(name, *place))
        ]
        if len(lacking) == 1:
            only[lacking[0]] += 1
    samples, steps = (max(sizes) for sizes in ((reference.samples, backend.samples), (reference.steps, backend.steps)))
    every = f"{samples} samples" if steps == 1 else f"{samples * steps} steps of all samples"
    return ", ".join(f"the {side} has nothing of {count} of {every}" for side, count in only.items() if count)


def _elements_compared(
    reference: Recording,
    backend: Recording,
    pair: Pair,
    places: Sequence[tuple[int, int]],
    tolerance: tuple[float, float] | None,
) -> PartlyCompared | None:
    parts: dict[int, ElementsCompared] = {}
    for sample, step in places:
        part = compare_elements(reference, backend, pair, (sample, step), tolerance=tolerance)
        if part is None:
            return None
        parts[sample] = parts[sample].joined(part) if sample in parts else part
    compared, count = sum(part.compared for part in parts.values()), sum(part.count for part in parts.values())
    if not compared:
        return None
    samples = tuple((sample, part.stats()) for sample, part in parts.items())
    whole = samples[0][1]
    if len(samples) > 1:
        first, *rest = parts.values()
        for part in rest:
            first.sums.merge(part.sums)
        whole = first.sums.stats()
        whole = replace(whole, worst_index=dict(samples)[whole.worst_sample or 0].worst_index)
    note = f"{compared} of {count} elements were kept and compared: what is said of the error holds for them"
    return PartlyCompared(basis="elements", samples=samples, stats=whole, note=note)


def _statistics_compared(
    reference: Recording, backend: Recording, pair: Pair, places: Sequence[tuple[int, int]]
) -> PartlyCompared:
    bounds, clauses = [], []
    unequal = [place for place in places if not hash_equal(reference, backend, pair, place)]
    for place in unequal:
        ours, theirs = _kept(reference, pair.reference, *place), _kept(backend, pair.backend, *place)
        if (clamp_of(pair.reference_view), clamp_of(pair.backend_view)) == ((None, None), (None, None)):
            bound = _sqnr_at_most(ours, theirs)
            if bound is not None:
                bounds.append(bound)
                clauses.append(_clause(ours, theirs))
    if not unequal:
        count = sum(_kept(reference, pair.reference, *place).statistics.count for place in places)
        stats = _equal(count)
        samples = tuple((sample, stats) for sample in dict.fromkeys(sample for sample, _ in places))
        return PartlyCompared(basis="stats", samples=samples, stats=stats, note="", equal=True)
    least = min(bounds, default=None)
    told = f": {clauses[bounds.index(least)]}, so that the SQNR is at most {least:.3g} dB" if least is not None else ""
    note = f"only statistics were kept, which never prove that a tensor is right{told}"
    return PartlyCompared(basis="stats", samples=(), stats=None, note=note, sqnr_at_most=least)


def hash_equal(reference: Recording, backend: Recording, pair: Pair, place: tuple[int, int]) -> bool:
    """Tell whether the values of both sides are equal bit for bit by the hashes that were kept of them."""
    ours, theirs = reference.kept(pair.reference, *place), backend.kept(pair.backend, *place)
    if ours is None or theirs is None or clamp_of(pair.reference_view) != clamp_of(pair.backend_view):
        return False
    quants = quant_of(reference, pair.reference, *place), quant_of(backend, pair.backend, *place)
    same = (ours.digest, ours.dtype, ours.shape) == (theirs.digest, theirs.dtype, theirs.shape)
    return same and quants[0] == quants[1]


def _kept(recording: Recording, tensor: str, sample: int, step: int) -> Kept:
    """Return the statistics of a tensor, from its values if they were kept."""
    kept = recording.kept(tensor, sample, step)
    if kept is not None:
        return kept
    array = recording.load(tensor, sample, step)
    statistics = take_statistics(array, quant_of(recording, tensor, sample, step))
    return Kept(dtype=logical_name(array.dtype), shape=array.shape, digest=b"", statistics=statistics)


def _sqnr_at_most(ours: Kept, theirs: Kept) -> float | None:
    """Return an upper bound of the SQNR in dB; None if the statistics give none, as where a value is not finite."""
    one, other = ours.statistics, theirs.statistics
    if one.count != other.count or any(found.nan or found.inf for found in (one, other)):
        return None
    error = math.hypot(one.mean - other.mean, one.std - other.std) * math.sqrt(one.count)
    # What rounding does to the moments themselves proves nothing.
    if not error > MOMENTS_MIN_REL_ERROR * max(one.l2, other.l2) or not one.l2 > 0:
        return None
    return 20 * math.log10(one.l2 / error)


def _clause(ours: Kept, theirs: Kept) -> str:
    one, other = ours.statistics, theirs.statistics
    return (
        f"mean {one.mean:.4g} and {other.mean:.4g}, deviation {one.std:.4g} and {other.std:.4g} "
        "of reference and backend"
    )


def _equal(count: int) -> ErrorStats:
    """Return the error of tensors that are equal bit for bit, of which nothing else is known."""
    return ErrorStats(
        count=count,
        max_abs=0.0,
        mean_abs=0.0,
        rmse=0.0,
        max_rel=0.0,
        zero_refs=0,
        rel_l2=0.0,
        sqnr_db=math.inf,
        cosine=None,
        max_lsb=None,
        mismatches=0,
        nonfinite=0,
        matched_nonfinite=0,
        worst_index=None,
        worst_sample=None,
        reference_min=None,
        reference_max=None,
        backend_min=None,
        backend_max=None,
    )


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
        """Return this with another step of the sample."""
        self.sums.merge(other.sums)
        compared, count, places = self.compared + other.compared, self.count + other.count, self.places + other.places
        return replace(self, compared=compared, count=count, places=places, positions=None)

    def stats(self) -> ErrorStats:
        """Return the error, with the worst element's index in its tensor, not among the elements compared."""
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
        """Return the elements at some of the positions, with a quantization that fits them as a row of their own."""
        chosen = np.searchsorted(self.positions, positions)
        quant = self.quant
        if quant is None or quant.scale.size == 1:
            return self.values[chosen], None if quant is None else replace(quant, axis=None)
        where, shape = (self.positions, self.shape) if self.recorded is None else self.recorded
        places = np.unravel_index(where[chosen], shape)
        scale, zero_point = (_at(values, places, quant) for values in (quant.real_scale, quant.zero_point))
        return self.values[chosen], replace(quant, scale=scale, zero_point=zero_point, axis=0, block_size=None)


def _at(values: np.ndarray, places: Sequence[np.ndarray], quant: QuantParams) -> np.ndarray:
    """Return the scale or zero point of elements."""
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
    if ours is None or theirs is None or any(incomparable_reason(each.values.dtype) for each in (ours, theirs)):
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
    """Return the elements that were kept of a tensor, all of them if they were; None if none were."""
    quant = quant_of(recording, tensor, sample, step)
    if recording.has(tensor, sample, step):
        array = recording.load(tensor, sample, step)
        return Elements(np.arange(array.size), array.reshape(-1), array.shape, quant)
    kept = recording.kept(tensor, sample, step)
    if kept is None or kept.positions is None or kept.values is None:
        return None
    return Elements(kept.positions, kept.values, kept.shape, quant)


def _in_reference_order(theirs: Elements, ours: Elements, pair: Pair) -> Elements | None:
    """Return a backend's elements at the positions of the reference's order; None if there is no such order."""
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
