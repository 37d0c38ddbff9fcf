"""Compares two tensors that represent the same values, over all samples and steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qdebug.compare.align.layouts import in_one_order, permute_quant
from qdebug.compare.align.pairs import Pair, clamp_of
from qdebug.compare.attribute.integer_tensors import find_tensor_without_scale
from qdebug.compare.measure.partial import (
    ElementComparison,
    PartialComparison,
    compare_elements,
    compare_partly,
    count_one_sided_nonfinite,
    describe_missing_places,
    has_equal_hash,
)
from qdebug.errors import UsageError
from qdebug.model import QuantParams, Recording
from qdebug.model.recording import either_places
from qdebug.numerics.accumulate import ErrorAccumulator, has_same_elements
from qdebug.numerics.affine import BLOCK
from qdebug.numerics.blocks import incomparable_reason
from qdebug.numerics.rails import RailsCounter
from qdebug.numerics.stats import ErrorStats, Rails

__all__ = [
    "Comparison",
    "Places",
    "SamplePlace",
    "SampleStats",
    "compare_pair",
    "compared_places",
    "find_places",
    "group_by_sample",
]


@dataclass(frozen=True, slots=True)
class SamplePlace:
    """A sample and a step of it."""

    sample: int
    step: int


@dataclass(frozen=True, slots=True)
class Places:
    """Samples and steps of a pair, grouped by what both sides kept of them.

    Args:
        full: Places that both sides kept in full.
        partly: Places that both sides kept, at least one of them only in part.
        only: Number of places that only one side kept, by the side that lacks them.
    """

    full: list[SamplePlace]
    partly: list[SamplePlace]
    only: dict[str, int]

    def describe_left_out(
        self, reference: Recording, backend: Recording, rest: Sequence[ElementComparison] = ()
    ) -> str:
        """Return a clause about places and elements that are not compared, or "" if there are none."""
        uncompared_count = len(self.partly) - sum(part.places for part in rest)
        lacking = [f"the {side} has no values for {count}" for side, count in self.only.items() if count]
        lacking += [f"only part was kept for {uncompared_count}"] if uncompared_count else []
        total = len(self.full) + len(self.partly) + sum(self.only.values())
        unit = "samples" if max(reference.steps, backend.steps) == 1 else "steps of all samples"
        clauses = []
        if rest:
            compared_count, count = sum(part.compared for part in rest), sum(part.count for part in rest)
            clauses.append(f"and {compared_count} of {count} elements of {len(self.partly) - uncompared_count} more")
        if not lacking and not rest:
            return ""
        if not self.full and not rest:
            return ", ".join(lacking)
        head = f"compared {len(self.full)} of {total} {unit}"
        return " ".join([head, *clauses]) + (": " + ", ".join(lacking) if lacking else "")

    def has_skipped_places(self, rest: Sequence[ElementComparison]) -> bool:
        """Return whether there are places that the comparison skips."""
        return any(self.only.values()) or sum(part.places for part in rest) < len(self.partly)


def find_places(reference: Recording, backend: Recording, pair: Pair) -> Places:
    """Find the samples and steps that both sides kept at least in part, and count those kept on one side only."""
    all_places = [SamplePlace(*place) for place in either_places(reference, pair.reference, backend, pair.backend)]
    common: list[SamplePlace] = []
    partly: list[SamplePlace] = []
    only = {"reference": 0, "backend": 0}
    for place in all_places:
        reference_has = reference.has(pair.reference, place.sample, place.step)
        backend_has = backend.has(pair.backend, place.sample, place.step)
        if reference_has and backend_has:
            common.append(place)
            continue
        reference_has = reference_has or reference.kept(pair.reference, place.sample, place.step) is not None
        backend_has = backend_has or backend.kept(pair.backend, place.sample, place.step) is not None
        if reference_has and backend_has:
            partly.append(place)
        elif reference_has or backend_has:
            only["backend" if reference_has else "reference"] += 1
    return Places(common, partly, only)


def group_by_sample(places: Sequence[SamplePlace], further: Iterable[int]) -> Iterator[tuple[int, list[int]]]:
    """Yield each sample with its steps, in order. Further samples are included without steps."""
    steps: dict[int, list[int]] = {sample: [] for sample in further}
    for place in places:
        steps.setdefault(place.sample, []).append(place.step)
    yield from sorted(steps.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleStats:
    """The comparison of one tensor in one sample, over all its steps."""

    sample: int
    stats: ErrorStats

    @property
    def max_abs(self) -> float | None:
        """Largest absolute difference."""
        return self.stats.max_abs

    @property
    def sqnr_db(self) -> float | None:
        """10 log10(sum reference^2 / sum difference^2)."""
        return self.stats.sqnr_db


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The comparison of one backend tensor with its reference.

    Args:
        stats: The error over all samples and steps, or None if incomparable.
        rails: Clipped values and codes at the ends of the range, over all samples and steps. None if incomparable or
            without integer codes.
        samples: The error of each sample that both sides kept, in order.
        reason: Why nothing was compared, or None.
        note: What was left out of the comparison, or None.
        basis: "full": every element that both sides kept was compared; "elements": a selection that both kept;
            "sketch": random projections; "stats": hashes and statistics only.
        known_equal: Whether a comparison without a difference proves equality. False if only some elements were
            compared.
        sqnr_at_most: Upper bound of the SQNR in dB, from statistics or sketches, or None.
        sqnr_at_least: Lower bound of the SQNR in dB, from sketches, or None.
        nonfinite: Minimum number of elements that are NaN or infinite on one side only, according to the statistics.
        lacking: Whether one side kept more of some samples than the other, so that they were not compared.
    """

    stats: ErrorStats | None
    rails: Rails | None
    samples: tuple[SampleStats, ...]
    reason: str | None = None
    note: str | None = None
    basis: str = "full"
    known_equal: bool = True
    sqnr_at_most: float | None = None
    sqnr_at_least: float | None = None
    nonfinite: int = 0
    lacking: bool = False


def _permuted_quants(
    reference: Recording, backend: Recording, pair: Pair
) -> tuple[QuantParams | None, QuantParams | None]:
    return (
        permute_quant(_quant(reference, pair.reference), pair.reference_view),
        permute_quant(_quant(backend, pair.backend), pair.backend_view),
    )


def compare_pair(
    reference: Recording,
    backend: Recording,
    pair: Pair,
    *,
    relu_floor: bool = False,
    tolerance: tuple[float, float] | None = None,
) -> Comparison:
    """Compare the two tensors of a pair over all samples and steps, one array of each side in memory at a time.

    Args:
        reference: The reference run.
        backend: The backend run.
        pair: The tensors, and the changes to their values.
        relu_floor: Whether a Relu is fused into the backend's tensor, so that codes at qmin may be its zeros.
        tolerance: (atol, rtol), to count the elements that differ by more than atol + rtol * abs(reference).

    Returns:
        The comparison. If the tensors cannot be compared, it has a reason but no numbers.

    Raises:
        RecordingError: Values in a recording cannot be read.
    """
    places = find_places(reference, backend, pair)
    if not places.full and (partial := compare_partly(reference, backend, pair, tolerance=tolerance)) is not None:
        return _comparison_of_part(partial, describe_missing_places(reference, backend, pair))
    if not places.full:
        left_out = places.describe_left_out(reference, backend)
        return _make_incomparable(
            f"no sample was recorded in both runs ({left_out})" if left_out else "neither run has values"
        )
    partial_samples = _compare_partial_samples(reference, backend, pair, places.partly, tolerance)
    tensor_without_scale = find_tensor_without_scale(reference.graph, backend.graph, pair)
    quants = _permuted_quants(reference, backend, pair) if tensor_without_scale is None else (None, None)
    counter = _rails_counter(quants[1], relu_floor=relu_floor)
    can_join = all(quant is None or quant.axis is None or quant.axis > 0 for quant in quants)
    total: ErrorAccumulator | None = None
    samples: list[SampleStats] = []
    for sample, steps in group_by_sample(places.full, partial_samples):
        accumulator = _accumulator(pair, quants, tolerance, counter)
        values_of_steps = _load_steps(reference, backend, pair, sample, steps)
        for values in _join_steps(values_of_steps, can_join=can_join):
            reason = _find_mismatch(values.reference, values.backend)
            if reason is None:
                try:
                    accumulator.update(values.reference, values.backend, sample=sample, steps=values.steps)
                except UsageError as error:  # the quantization does not fit the tensor
                    reason = error.message[0].lower() + error.message[1:].rstrip(".")
            if reason is not None:
                return _make_incomparable(
                    reason if len(places.full) == 1 else f"{reason} (sample {sample}, step {values.first_step})"
                )
        stats = (
            accumulator.stats()
            if sample not in partial_samples
            else _stats_with_remaining_elements(accumulator, partial_samples[sample], alone=not steps)
        )
        samples.append(SampleStats(sample=sample, stats=stats))
        if total is None:
            total = accumulator
        else:
            total.merge(accumulator)
    rails = None if counter is None else counter.rails()
    total_stats = samples[0].stats if total is None or len(samples) == 1 else total.stats()
    if tensor_without_scale is not None and total_stats.mismatches:  # equal codes are equal, whatever their scale
        sides = reference.graph.tensors[pair.reference], backend.graph.tensors[pair.backend]
        coded = any(info.quant is not None for info in sides)
        differ = f"{total_stats.mismatches} of {total_stats.count} codes differ, and " if coded else ""
        return _make_incomparable(
            f"{differ}no scale was recorded for {tensor_without_scale!r}, so its codes cannot be dequantized"
        )
    if total_stats.worst_sample in partial_samples:  # the merged index counts the compared elements only
        (worst,) = (sample.stats for sample in samples if sample.sample == total_stats.worst_sample)
        total_stats = replace(total_stats, worst_index=worst.worst_index)
    return Comparison(
        stats=total_stats,
        rails=rails,
        samples=tuple(samples),
        note=places.describe_left_out(reference, backend, tuple(partial_samples.values())) or None,
        basis="elements" if partial_samples else "full",
        known_equal=all(
            has_equal_hash(reference, backend, pair, (sample.sample, sample.step)) for sample in places.partly
        ),
        lacking=places.has_skipped_places(tuple(partial_samples.values())),
        nonfinite=count_one_sided_nonfinite(reference, backend, pair) if places.partly else 0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _StepValues:
    """Stored values of a pair in one or more steps of a sample, joined along the first axis."""

    reference: np.ndarray
    backend: np.ndarray
    first_step: int
    steps: int = 1


def _load_steps(
    reference: Recording, backend: Recording, pair: Pair, sample: int, steps: Sequence[int]
) -> Iterator[_StepValues]:
    """Yield the values of each step, in the model's dimension order."""
    for step in steps:
        values = reference.load(pair.reference, sample, step), backend.load(pair.backend, sample, step)
        in_order = in_one_order(values[0], pair.reference_view, values[1], pair.backend_view)
        yield _StepValues(reference=in_order[0], backend=in_order[1], first_step=step)


def _join_steps(values_of_steps: Iterable[_StepValues], *, can_join: bool) -> Iterator[_StepValues]:
    """Join successive steps of equal shape and dtype to at most a block of elements, since each update takes long.

    Args:
        values_of_steps: The values of each step.
        can_join: Whether the first axis has no scales of its own.
    """
    waiting: list[_StepValues] = []
    for values in values_of_steps:
        size, shape = values.backend.size, values.backend.shape
        if not can_join or not shape or not size or values.reference.shape != shape or size + size > BLOCK:
            yield from _joined(waiting)
            yield values
            waiting = []
            continue
        if waiting and (_kinds_of(waiting[0]) != _kinds_of(values) or (len(waiting) + 1) * size > BLOCK):
            yield from _joined(waiting)
            waiting = []
        waiting.append(values)
    yield from _joined(waiting)


def _kinds_of(values: _StepValues) -> tuple[tuple[int, ...], np.dtype[Any], np.dtype[Any]]:
    return values.backend.shape, values.backend.dtype, values.reference.dtype


def _joined(waiting: Sequence[_StepValues]) -> Iterator[_StepValues]:
    if len(waiting) < 2:
        yield from waiting
        return
    yield _StepValues(
        reference=np.concatenate([values.reference for values in waiting]),
        backend=np.concatenate([values.backend for values in waiting]),
        first_step=waiting[0].first_step,
        steps=len(waiting),
    )


def _compare_partial_samples(
    reference: Recording,
    backend: Recording,
    pair: Pair,
    places: Sequence[SamplePlace],
    tolerance: tuple[float, float] | None,
) -> dict[int, ElementComparison]:
    """Compare the elements that both sides kept of partially kept samples, by sample; others are left out."""
    comparisons: dict[int, ElementComparison] = {}
    for place in places:
        comparison = compare_elements(reference, backend, pair, (place.sample, place.step), tolerance=tolerance)
        if comparison is not None and comparison.compared:
            comparisons[place.sample] = (
                comparisons[place.sample].merged_with(comparison) if place.sample in comparisons else comparison
            )
    return comparisons


def _stats_with_remaining_elements(
    accumulator: ErrorAccumulator, remaining_elements: ElementComparison, *, alone: bool
) -> ErrorStats:
    """Add the error of the remaining elements of a sample, and return the error of the sample."""
    accumulator.merge(remaining_elements.sums)
    return remaining_elements.stats() if alone else replace(accumulator.stats(), worst_index=None)


def _comparison_of_part(partial: PartialComparison, missing_text: str) -> Comparison:
    note = "; ".join(filter(None, (partial.note if partial.stats is not None else "", missing_text)))
    return Comparison(
        stats=partial.stats,
        rails=None,
        samples=tuple(SampleStats(sample=sample, stats=stats) for sample, stats in partial.samples),
        reason=None if partial.stats is not None else partial.note,
        note=note or None,
        lacking=bool(missing_text),
        basis=partial.basis,
        known_equal=partial.equal,
        sqnr_at_most=partial.sqnr_at_most,
        sqnr_at_least=partial.sqnr_at_least,
        nonfinite=partial.nonfinite,
    )


def compared_places(reference: Recording, backend: Recording, pair: Pair) -> list[tuple[int, int]]:
    """Return the samples and steps of a pair that both sides kept, or a single one for a constant."""
    return [(place.sample, place.step) for place in find_places(reference, backend, pair).full]


def _make_incomparable(reason: str) -> Comparison:
    return Comparison(stats=None, rails=None, samples=(), reason=reason)


def _quant(recording: Recording, tensor: str) -> QuantParams | None:
    info = recording.graph.tensors.get(tensor)
    return None if info is None else info.quant


def _accumulator(
    pair: Pair,
    quants: tuple[QuantParams | None, QuantParams | None],
    tolerance: tuple[float, float] | None,
    rails: RailsCounter | None,
) -> ErrorAccumulator:
    return ErrorAccumulator(
        reference_quant=quants[0],
        backend_quant=quants[1],
        reference_clamp=clamp_of(pair.reference_view),
        backend_clamp=clamp_of(pair.backend_view),
        tolerance=tolerance,
        rails=rails,
    )


def _rails_counter(quant: QuantParams | None, *, relu_floor: bool) -> RailsCounter | None:
    if quant is None or quant.qmin is None or quant.qmax is None:
        return None
    return RailsCounter(quant, relu_floor=relu_floor)


def _find_mismatch(reference: np.ndarray, backend: np.ndarray) -> str | None:
    for side, array in (("reference", reference), ("backend", backend)):
        why = incomparable_reason(array.dtype)
        if why is not None:
            return f"the {side}'s {why}"
    # Shapes of the same rank that differ only in dimensions of extent 1 have their dimensions in another order.
    is_permuted = reference.ndim == backend.ndim and reference.shape != backend.shape
    if is_permuted or not has_same_elements(reference.shape, backend.shape):
        return f"the reference has shape {reference.shape} and the backend {backend.shape}"
    return None
