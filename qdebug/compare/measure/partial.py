"""Compares partially recorded tensors: by the elements that both sides kept, or by hashes and statistics."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qdebug.compare.align.layouts import in_one_order
from qdebug.compare.align.pairs import Pair, Transform, clamp_of
from qdebug.model import QuantParams, Recording
from qdebug.model.dtypes import is_whole, logical_name
from qdebug.model.kept import Kept
from qdebug.model.recording import either_places, quant_of
from qdebug.model.thresholds.attribution import MOMENTS_MIN_REL_ERROR
from qdebug.numerics.accumulate import ErrorAccumulator
from qdebug.numerics.blocks import incomparable_reason
from qdebug.numerics.sketch import squared_error, take_sketch
from qdebug.numerics.stats import ErrorStats
from qdebug.numerics.summary import take_statistics

__all__ = [
    "ElementComparison",
    "PartialComparison",
    "compare_elements",
    "compare_partly",
    "count_one_sided_nonfinite",
    "describe_missing_places",
    "has_equal_hash",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialComparison:
    """The comparison of a pair with partial records.

    Args:
        basis: "elements", "sketch" or "stats".
        samples: The error of each sample, over the compared elements. Empty if only statistics are known and differ.
        stats: The error of all samples together. None if only statistics are known and differ.
        note: What was compared and what was not, or "" if nothing was left out.
        equal: Whether all values, kept or not, are equal bit for bit.
        sqnr_at_most: Upper bound of the SQNR in dB, according to the statistics, or None.
        sqnr_at_least: Lower bound of the SQNR in dB, according to sketches, or None.
        nonfinite: Lower bound of the number of elements that are NaN or infinite on one side only, according to the
            statistics.
    """

    basis: str
    samples: tuple[tuple[int, ErrorStats], ...]
    stats: ErrorStats | None
    note: str
    equal: bool = False
    sqnr_at_most: float | None = None
    sqnr_at_least: float | None = None
    nonfinite: int = 0


def compare_partly(
    reference: Recording, backend: Recording, pair: Pair, *, tolerance: tuple[float, float] | None = None
) -> PartialComparison | None:
    """Compare the partial records of a pair if both sides kept no values in full.

    Args:
        reference: The reference run.
        backend: The backend run.
        pair: The pair.
        tolerance: (atol, rtol), as in `compare_pair`.

    Returns:
        The comparison, or None if one side has no record.

    Raises:
        RecordingError: A record cannot be read.
    """
    places = list(_places_with_records(reference, backend, pair))
    if not places:
        return None
    comparison = _compare_all_elements(reference, backend, pair, places, tolerance)
    if comparison is None:
        comparison = _compare_sketches(reference, backend, pair, places)
    if comparison is None:
        comparison = _compare_statistics(reference, backend, pair, places)
    else:
        comparison = replace(comparison, equal=all(has_equal_hash(reference, backend, pair, place) for place in places))
    return (
        comparison
        if comparison.equal
        else replace(comparison, nonfinite=count_one_sided_nonfinite(reference, backend, pair))
    )


def count_one_sided_nonfinite(reference: Recording, backend: Recording, pair: Pair) -> int:
    """Return a lower bound of the number of elements that are NaN or infinite on one side only, from their counts.

    Args:
        reference: The reference run.
        backend: The backend run.
        pair: The pair. Samples and steps that both sides kept in full are left out, because their elements are
            compared.
    """
    if (clamp_of(pair.reference_view), clamp_of(pair.backend_view)) != ((None, None), (None, None)):
        return 0
    lower_bound = 0
    for place in _places_with_records(reference, backend, pair):
        if reference.has(pair.reference, *place) and backend.has(pair.backend, *place):
            continue
        reference_statistics, backend_statistics = (
            _load_record(side, name, *place).statistics
            for side, name in ((reference, pair.reference), (backend, pair.backend))
        )
        if reference_statistics.count == backend_statistics.count:
            lower_bound += max(
                abs(reference_statistics.nan - backend_statistics.nan),
                abs(reference_statistics.inf - backend_statistics.inf),
            )
    return lower_bound


def _places_with_records(reference: Recording, backend: Recording, pair: Pair) -> Iterator[tuple[int, int]]:
    """Yield samples and steps with a record on both sides."""
    sides = ((reference, pair.reference), (backend, pair.backend))
    for place in either_places(reference, pair.reference, backend, pair.backend):
        if all(side.has(name, *place) or side.kept(name, *place) for side, name in sides):
            yield place


def describe_missing_places(reference: Recording, backend: Recording, pair: Pair) -> str:
    """Return a clause with the number of samples and steps that only one side has, or "" if there are none."""
    sides = {"reference": (reference, pair.reference), "backend": (backend, pair.backend)}
    if all(side.graph.is_constant(name) for side, name in sides.values()):
        return ""
    missing_counts = dict.fromkeys(sides, 0)
    for place in either_places(reference, pair.reference, backend, pair.backend):
        lacking = [
            title for title, (side, name) in sides.items() if not (side.has(name, *place) or side.kept(name, *place))
        ]
        if len(lacking) == 1:
            missing_counts[lacking[0]] += 1
    samples, steps = (max(sizes) for sizes in ((reference.samples, backend.samples), (reference.steps, backend.steps)))
    total_text = f"{samples} samples" if steps == 1 else f"{samples * steps} steps of all samples"
    return ", ".join(
        f"the {side} has no values for {count} of {total_text}" for side, count in missing_counts.items() if count
    )


def _compare_all_elements(
    reference: Recording,
    backend: Recording,
    pair: Pair,
    places: Sequence[tuple[int, int]],
    tolerance: tuple[float, float] | None,
) -> PartialComparison | None:
    parts: dict[int, ElementComparison] = {}
    for sample, step in places:
        comparison = compare_elements(reference, backend, pair, (sample, step), tolerance=tolerance)
        if comparison is None:
            return None
        parts[sample] = parts[sample].merged_with(comparison) if sample in parts else comparison
    compared_count, count = (
        sum(comparison.compared for comparison in parts.values()),
        sum(comparison.count for comparison in parts.values()),
    )
    if not compared_count:
        return None
    samples = tuple((sample, comparison.stats()) for sample, comparison in parts.items())
    stats = samples[0][1]
    if len(samples) > 1:
        first, *other_comparisons = parts.values()
        for comparison in other_comparisons:
            first.sums.merge(comparison.sums)
        stats = first.sums.stats()
        stats = replace(stats, worst_index=dict(samples)[stats.worst_sample or 0].worst_index)
    note = f"{compared_count} of {count} elements were kept and compared; the error covers these elements only"
    return PartialComparison(basis="elements", samples=samples, stats=stats, note=note)


def _compare_sketches(
    reference: Recording, backend: Recording, pair: Pair, places: Sequence[tuple[int, int]]
) -> PartialComparison | None:
    """Estimate the error from sketches, or return None if sketches cannot show it or nothing differs.

    Permuted elements have a different sketch, and integers that are not codes must be exactly equal.
    """
    views = [view for view in (pair.reference_view, pair.backend_view) if view is not None]
    if any(view != Transform() for view in views):
        return None
    unequal = [place for place in places if not has_equal_hash(reference, backend, pair, place)]
    count, signal, estimate, low, high = 0, 0.0, 0.0, 0.0, 0.0
    for place in places:
        sides = ((reference, pair.reference), (backend, pair.backend))
        records = [_load_record(side, name, *place, with_sketch=True) for side, name in sides]
        first, second = (record.statistics for record in records)
        if first.count != second.count or first.nan or first.inf or second.nan or second.inf:
            return None
        count, signal = count + first.count, signal + first.l2**2
        if place not in unequal:
            continue
        sketches = [record.sketch for record in records]
        if sketches[0] is None or sketches[1] is None or all(_is_whole(side, name) for side, name in sides):
            return None
        error = squared_error(sketches[0], sketches[1])
        if error is None:
            return None
        estimate, low, high = estimate + error.estimate, low + error.low, high + error.high
    if not unequal or not count or not math.isfinite(high):
        return None
    bounds = [_decibels(signal, squares) for squares in (estimate, low, high)]
    stats = replace(
        _zero_error(count),
        max_abs=None,
        mean_abs=None,
        rmse=math.sqrt(estimate / count),
        max_rel=None,
        rel_l2=math.sqrt(estimate / signal) if signal else math.inf,
        sqnr_db=bounds[0],
        mismatches=1,
        estimated=True,
    )
    note = f"estimated from sketches: SQNR {bounds[0]:.3g} dB, between {bounds[2]:.3g} and {bounds[1]:.3g} dB"
    return PartialComparison(
        basis="sketch", samples=(), stats=stats, note=note, sqnr_at_most=bounds[1], sqnr_at_least=bounds[2]
    )


def _decibels(signal: float, noise: float) -> float:
    if not noise:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf


def _is_whole(recording: Recording, tensor: str) -> bool:
    """Return whether a tensor holds whole numbers that are not codes."""
    info = recording.graph.tensors.get(tensor)
    return info is not None and info.quant is None and info.dtype is not None and is_whole(info.dtype)


def _compare_statistics(
    reference: Recording, backend: Recording, pair: Pair, places: Sequence[tuple[int, int]]
) -> PartialComparison:
    bounds, clauses = [], []
    unequal = [place for place in places if not has_equal_hash(reference, backend, pair, place)]
    for place in unequal:
        reference_record, backend_record = (
            _load_record(reference, pair.reference, *place),
            _load_record(backend, pair.backend, *place),
        )
        if (clamp_of(pair.reference_view), clamp_of(pair.backend_view)) == ((None, None), (None, None)):
            bound = _sqnr_bound(reference_record, backend_record)
            if bound is not None:
                bounds.append(bound)
                clauses.append(_moments_text(reference_record, backend_record))
    if not unequal:
        count = sum(_load_record(reference, pair.reference, *place).statistics.count for place in places)
        stats = _zero_error(count)
        samples = tuple((sample, stats) for sample in dict.fromkeys(sample for sample, _ in places))
        return PartialComparison(basis="stats", samples=samples, stats=stats, note="", equal=True)
    lowest_bound = min(bounds, default=None)
    bound_text = (
        f"; {clauses[bounds.index(lowest_bound)]}, so the SQNR is at most {lowest_bound:.3g} dB"
        if lowest_bound is not None
        else ""
    )
    note = f"only statistics were kept, which cannot prove that a tensor is right{bound_text}"
    return PartialComparison(basis="stats", samples=(), stats=None, note=note, sqnr_at_most=lowest_bound)


def has_equal_hash(reference: Recording, backend: Recording, pair: Pair, place: tuple[int, int]) -> bool:
    """Return whether the values of both sides are equal bit for bit, by their hashes."""
    reference_record, backend_record = reference.kept(pair.reference, *place), backend.kept(pair.backend, *place)
    if (
        reference_record is None
        or backend_record is None
        or clamp_of(pair.reference_view) != clamp_of(pair.backend_view)
    ):
        return False
    quants = quant_of(reference, pair.reference, *place), quant_of(backend, pair.backend, *place)
    is_equal = (reference_record.digest, reference_record.dtype, reference_record.shape) == (
        backend_record.digest,
        backend_record.dtype,
        backend_record.shape,
    )
    return is_equal and quants[0] == quants[1]


def _load_record(recording: Recording, tensor: str, sample: int, step: int, *, with_sketch: bool = False) -> Kept:
    """Return the statistics of a tensor, and its sketch if requested, computed from its values if they were kept."""
    record = recording.kept(tensor, sample, step)
    if record is not None:
        return record
    array = recording.load(tensor, sample, step)
    quant = quant_of(recording, tensor, sample, step)
    statistics, sketch = take_statistics(array, quant), take_sketch(array, quant) if with_sketch else None
    return Kept(dtype=logical_name(array.dtype), shape=array.shape, digest=b"", statistics=statistics, sketch=sketch)


def _sqnr_bound(reference_record: Kept, backend_record: Kept) -> float | None:
    """Return an upper bound of the SQNR in dB, or None if there is none, as for non-finite values."""
    reference_statistics, backend_statistics = reference_record.statistics, backend_record.statistics
    if reference_statistics.count != backend_statistics.count or any(
        statistics.nan or statistics.inf for statistics in (reference_statistics, backend_statistics)
    ):
        return None
    error = math.hypot(
        reference_statistics.mean - backend_statistics.mean, reference_statistics.std - backend_statistics.std
    ) * math.sqrt(reference_statistics.count)
    # A difference within the rounding of the moments themselves proves nothing.
    if (
        not error > MOMENTS_MIN_REL_ERROR * max(reference_statistics.l2, backend_statistics.l2)
        or not reference_statistics.l2 > 0
    ):
        return None
    return 20 * math.log10(reference_statistics.l2 / error)


def _moments_text(reference_record: Kept, backend_record: Kept) -> str:
    means, deviations = (
        f"{getattr(reference_record.statistics, moment):.4g} and {getattr(backend_record.statistics, moment):.4g}"
        for moment in ("mean", "std")
    )
    return f"reference and backend have mean {means}, standard deviation {deviations}"


def _zero_error(count: int) -> ErrorStats:
    """Return the error of tensors that are equal bit for bit, with all other fields unknown."""
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
class ElementComparison:
    """The comparison of the kept elements of one sample.

    Args:
        sums: Its error.
        compared: Number of compared elements.
        count: Total number of elements.
        shape: The tensor's shape.
        positions: Flat positions of the compared elements. None after joining several steps.
        places: Number of steps.
    """

    sums: ErrorAccumulator
    compared: int
    count: int
    shape: tuple[int, ...]
    positions: np.ndarray | None
    places: int = 1

    def merged_with(self, other: ElementComparison) -> ElementComparison:
        """Return the comparison merged with another step of the sample."""
        self.sums.merge(other.sums)
        compared, count, places = self.compared + other.compared, self.count + other.count, self.places + other.places
        return replace(self, compared=compared, count=count, places=places, positions=None)

    def stats(self) -> ErrorStats:
        """Return the error, with the worst element's index in the whole tensor."""
        error = self.sums.stats()
        if error.worst_index is None or self.positions is None:
            return replace(error, worst_index=None)
        at = int(self.positions[error.worst_index[-1]])
        return replace(error, worst_index=tuple(int(index) for index in np.unravel_index(at, self.shape)))


@dataclass(frozen=True, slots=True)
class Elements:
    """Some elements of a tensor.

    Args:
        positions: Their flat positions in C order, ascending.
        values: The stored elements.
        shape: The tensor's shape.
        quant: The quantization of the recorded tensor.
        recorded: Positions and shape in the recorded tensor, or None if they are the same.
    """

    positions: np.ndarray
    values: np.ndarray
    shape: tuple[int, ...]
    quant: QuantParams | None
    recorded: tuple[np.ndarray, tuple[int, ...]] | None = None

    def at(self, positions: np.ndarray) -> tuple[np.ndarray, QuantParams | None]:
        """Return the elements at some of the positions, with the quantization of each as a row."""
        indices = np.searchsorted(self.positions, positions)
        quant = self.quant
        if quant is None or quant.scale.size == 1:
            return self.values[indices], None if quant is None else replace(quant, axis=None)
        recorded_positions, shape = (self.positions, self.shape) if self.recorded is None else self.recorded
        coordinates = np.unravel_index(recorded_positions[indices], shape)
        scale, zero_point = (_values_at(values, coordinates, quant) for values in (quant.real_scale, quant.zero_point))
        return self.values[indices], replace(quant, scale=scale, zero_point=zero_point, axis=0, block_size=None)


def _values_at(values: np.ndarray, coordinates: Sequence[np.ndarray], quant: QuantParams) -> np.ndarray:
    """Return the scale or zero point of each element."""
    axis, block = quant.axis or 0, quant.block_size or 1
    if values.ndim == 1:
        return np.asarray(values[coordinates[axis] // block])
    return np.asarray(
        values[tuple(coordinate // (block if at == axis else 1) for at, coordinate in enumerate(coordinates))]
    )


def compare_elements(
    reference: Recording,
    backend: Recording,
    pair: Pair,
    place: tuple[int, int],
    *,
    tolerance: tuple[float, float] | None = None,
) -> ElementComparison | None:
    """Compare a sample and step at the positions that both sides kept.

    Args:
        reference: The reference run.
        backend: The backend run.
        pair: The pair.
        place: Sample and step.
        tolerance: (atol, rtol), as in `compare_pair`.

    Returns:
        The comparison, or None if a side kept no elements or they cannot be compared.

    Raises:
        RecordingError: A record cannot be read.
    """
    reference_elements = _load_elements(reference, pair.reference, *place)
    backend_elements = _load_elements(backend, pair.backend, *place)
    backend_elements = (
        None
        if reference_elements is None or backend_elements is None
        else _in_reference_order(backend_elements, reference_elements, pair)
    )
    if (
        reference_elements is None
        or backend_elements is None
        or any(incomparable_reason(side.values.dtype) for side in (reference_elements, backend_elements))
    ):
        return None
    return _compare_shared(reference_elements, backend_elements, pair, tolerance, place[0])


def _compare_shared(
    reference_elements: Elements,
    backend_elements: Elements,
    pair: Pair,
    tolerance: tuple[float, float] | None,
    sample: int,
) -> ElementComparison:
    """Compare the elements at the positions that both sides kept."""
    shared = np.intersect1d(reference_elements.positions, backend_elements.positions, assume_unique=True)
    (reference_values, reference_quant), (backend_values, backend_quant) = (
        reference_elements.at(shared),
        backend_elements.at(shared),
    )
    sums = ErrorAccumulator(
        reference_quant=reference_quant,
        backend_quant=backend_quant,
        reference_clamp=clamp_of(pair.reference_view),
        backend_clamp=clamp_of(pair.backend_view),
        tolerance=tolerance,
    )
    sums.update(reference_values, backend_values, sample=sample)
    return ElementComparison(sums, shared.size, math.prod(reference_elements.shape), reference_elements.shape, shared)


def _load_elements(recording: Recording, tensor: str, sample: int, step: int) -> Elements | None:
    """Return the kept elements of a tensor: all of them if it was kept in full, None if none were kept."""
    quant = quant_of(recording, tensor, sample, step)
    if recording.has(tensor, sample, step):
        array = recording.load(tensor, sample, step)
        return Elements(np.arange(array.size), array.reshape(-1), array.shape, quant)
    record = recording.kept(tensor, sample, step)
    if record is None or record.positions is None or record.values is None:
        return None
    return Elements(record.positions, record.values, record.shape, quant)


def _in_reference_order(backend_elements: Elements, reference_elements: Elements, pair: Pair) -> Elements | None:
    """Return a backend's elements at positions in the reference's order, or None if there is no such order."""
    if pair.reference_view is None and pair.backend_view is None:
        is_same_size = math.prod(backend_elements.shape) == math.prod(reference_elements.shape)
        return backend_elements if is_same_size else None
    numbers = np.arange(math.prod(backend_elements.shape)).reshape(backend_elements.shape)
    reordered = in_one_order(
        np.empty(reference_elements.shape, np.bool_), pair.reference_view, numbers, pair.backend_view
    )
    if reordered[0].shape != reference_elements.shape or reordered[1].size != math.prod(reference_elements.shape):
        return None  # the reference is transposed too, or the shapes do not fit
    reference_positions = np.empty(numbers.size, np.int64)
    reference_positions[reordered[1].reshape(-1)] = np.arange(reordered[1].size)
    positions = reference_positions[backend_elements.positions]
    order = np.argsort(positions)
    source = backend_elements.positions[order], backend_elements.shape
    return Elements(
        positions[order], backend_elements.values[order], reference_elements.shape, backend_elements.quant, source
    )
