"""Compare what was kept of tensors that were not kept in full: some of the elements, or their statistics alone.

Elements at the same positions are compared as all elements are; the result is right for them and an estimate for the
rest. Statistics prove less: the hash says whether all elements are equal, and means and deviations bound the error from
below, since for any two tensors of n elements

    sum (a - b)^2 >= n (mean a - mean b)^2 + n (std a - std b)^2,

the triangle inequality for what is left of each when its mean is taken off. Nothing bounds it from above, so a tensor
is never within a limit by its statistics.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from qdebug.analysis.alignment.pairs import Pair, clamp_of
from qdebug.analysis.comparison.kept_elements import ElementsCompared, compare_elements
from qdebug.model import Recording
from qdebug.model.dtypes import logical_name
from qdebug.model.kept import Kept, kept_of
from qdebug.model.recording import quant_of
from qdebug.model.thresholds.attribution import MOMENTS_MIN_REL_ERROR
from qdebug.numerics.stats import ErrorStats
from qdebug.numerics.summary import take_statistics

__all__ = [
    "PartlyCompared",
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
    once = all(side.graph.is_constant(name) for side, name in sides)
    for sample in range(1 if once else min(reference.samples, backend.samples)):
        for step in range(1 if once else min(reference.steps, backend.steps)):
            if all(side.has(name, sample, step) or kept_of(side, name, sample, step) for side, name in sides):
                yield sample, step


def some_missing(reference: Recording, backend: Recording, pair: Pair) -> str:
    """Say in a clause of how many samples and steps only one side kept anything; "" if of none."""
    sides = {"reference": (reference, pair.reference), "backend": (backend, pair.backend)}
    if all(side.graph.is_constant(name) for side, name in sides.values()):
        return ""
    only = dict.fromkeys(sides, 0)
    for sample in range(max(reference.samples, backend.samples)):
        for step in range(max(reference.steps, backend.steps)):
            lacking = [
                title
                for title, (side, name) in sides.items()
                if not (side.has(name, sample, step) or kept_of(side, name, sample, step))
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
    ours, theirs = kept_of(reference, pair.reference, *place), kept_of(backend, pair.backend, *place)
    if ours is None or theirs is None or clamp_of(pair.reference_view) != clamp_of(pair.backend_view):
        return False
    quants = quant_of(reference, pair.reference, *place), quant_of(backend, pair.backend, *place)
    same = (ours.digest, ours.dtype, ours.shape) == (theirs.digest, theirs.dtype, theirs.shape)
    return same and quants[0] == quants[1]


def _kept(recording: Recording, tensor: str, sample: int, step: int) -> Kept:
    """Give the statistics of a tensor, from its values if they were kept."""
    kept = kept_of(recording, tensor, sample, step)
    if kept is not None:
        return kept
    array = recording.load(tensor, sample, step)
    statistics = take_statistics(array, quant_of(recording, tensor, sample, step))
    return Kept(dtype=logical_name(array.dtype), shape=array.shape, digest=b"", statistics=statistics)


def _sqnr_at_most(ours: Kept, theirs: Kept) -> float | None:
    """Give an upper bound of the SQNR in dB; None if the statistics give none, as where a value is not finite."""
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
    """Give the error of tensors that are equal bit for bit, of which nothing else is known."""
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
