"""Checks how a node with 16-bit or 8-bit float results rounds, beside the reference's node.

A limit on the size of an error passes a node that truncates. But its errors have one sign, so they add up along the
network, where those of rounding to nearest cancel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from qdebug.arithmetic.floats.search import PlacementFinding
from qdebug.compare.attribute.backend_replay import inputs_of
from qdebug.compare.attribute.plan import recorded_places
from qdebug.compare.checks.context import NodeContext
from qdebug.compare.explaining.float_band import output_format
from qdebug.compare.explaining.placements import find_placement, jointly_moved_axes
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole
from qdebug.errors import KernelError, NotRecordedError
from qdebug.model import Node, Recording
from qdebug.model.thresholds.explanation import ONE_SIDED_MIN_MEAN, ROUNDED_ELSEWHERE_MIN_SHARE
from qdebug.numerics.float_rounding import FLOAT_ROUNDINGS
from qdebug.numerics.rounding_errors import RoundingErrors
from qdebug.replay.extents import recorded_limits
from qdebug.replay.real_form import real_form
from qdebug.replay.segment import run_form

__all__ = ["one_sided"]

_UNIT = "units in the last place"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """A node of one run, and how it rounds.

    Args:
        errors: The errors of its results against a replay, in all samples or in the one that is one-sided.
        placement: The placement of roundings that reproduces it there; None if it was not sought or not found.
        sample: The only sample in which its errors have one sign; None for all.
    """

    errors: RoundingErrors
    placement: PlacementFinding | None = None
    sample: int | None = None

    @property
    def clauses(self) -> tuple[str, ...]:
        """How it rounds, in words; empty if unknown."""
        return () if self.placement is None else self.placement.clauses

    @property
    def words(self) -> str:
        """These clauses as one text."""
        return ", ".join(self.clauses)

    @property
    def one_sided(self) -> bool:
        """Whether its errors have one sign, unless it is known to round to nearest everywhere, ties aside."""
        if not self.errors.one_sided:
            return False
        named = None if self.placement is None else self.placement.named
        words = () if named is None else (named.rounding, *(word for _, word in named.edges))
        return named is None or any(FLOAT_ROUNDINGS[word].biased for word in words if word in FLOAT_ROUNDINGS)


def one_sided(context: NodeContext) -> Finding | None:
    """Find rounding errors that have one sign, or a rounding in another place than the reference's, and name both."""
    node, stats, entry, runs = context.node, context.stats, context.entry, context.runs
    if node is None or stats is None or not stats.mismatches or entry.quant is not None or entry.whole:
        return None
    if context.comparison.basis != "full" or stats.nonfinite:
        return None
    places = [*recorded_places(runs.reference, runs.backend, entry)]
    backend = _rounding_of(runs.backend, node, entry.tensor, places)
    if backend is None:
        return None
    named = None if backend.placement is None else backend.placement.named
    if not backend.one_sided and (named is None or named.is_usual):
        return None
    partner = runs.reference.graph.producer(entry.reference_tensor)
    reference = (
        None if partner is None else _rounding_of(runs.reference, partner, entry.reference_tensor, places, seek=True)
    )
    if backend.one_sided and not (reference is not None and reference.one_sided):
        return _one_sided_finding(context.name, backend, reference)
    if named is None or named.is_usual or (reference is not None and reference.clauses == backend.clauses):
        return None
    others = () if reference is None else reference.clauses
    differing = [clause for clause in backend.clauses if clause not in others] if others else backend.clauses
    sentence = ", ".join(differing) + (", unlike in the reference" if others else "")
    role = FindingRole.CAUSE if context.diverges else FindingRole.NOTE
    return Finding(kind=FindingKind.ROUNDING, role=role, node=context.name, sentence=sentence, evidence=str(named))


def _one_sided_finding(name: str, backend: _Side, reference: _Side | None) -> Finding:
    errors = backend.errors
    mean_text = f"{abs(errors.mean):.2f} {_UNIT} {errors.direction} on average"
    place_text = "" if backend.sample is None else f" in sample {backend.sample}"
    if backend.clauses and backend.placement is not None:
        count = backend.placement.elements
        clauses = sorted(backend.clauses, key=lambda clause: clause in (() if reference is None else reference.clauses))
        words = ", ".join(clauses)
        sentence = (
            f"{words} in {count:,} of {count:,} elements{place_text}, an error of {mean_text}{_beside(reference)}"
        )
    else:
        certainty = f"{errors.deviations:.3g} standard deviations from 0"
        sentence = f"its errors have one sign{place_text}: {mean_text}, {certainty}"
    return Finding(
        kind=FindingKind.ONE_SIDED,
        role=FindingRole.BREACH,
        node=name,
        sentence=sentence,
        amount=abs(errors.mean),
        limit=ONE_SIDED_MIN_MEAN,
        unit=_UNIT,
        evidence=None if backend.placement is None or backend.placement.named is None else str(backend.placement.named),
    )


def _beside(reference: _Side | None) -> str:
    return "" if reference is None or not reference.words else f"; in the reference, {reference.words}"


def _rounding_of(
    run: Recording, node: Node, tensor: str, places: list[tuple[int, int]], *, seek: bool = False
) -> _Side | None:
    """Return how a node rounds; None if its results are in no short format or it cannot be replayed.

    Args:
        run: The run.
        node: The node.
        tensor: Its output.
        places: Samples and steps.
        seek: Seek the placement in any case, not only where the results are not those of rounding to nearest once, or
            where inputs are missing.
    """
    form, _ = real_form(node, run.graph.opset)
    by_sample: dict[int, RoundingErrors] = {}
    try:
        short = output_format(run, form, tensor, places)
        if short is None:
            return None
        axes = jointly_moved_axes(form, run.load(tensor, *places[0]).ndim)
        errors = RoundingErrors(short, axes)
        with suppress(NotRecordedError):  # of a fused layer, whose placement is sought anyway
            for place, (unrounded, recorded) in zip(places, _results(run, node, tensor, places), strict=True):
                by_sample.setdefault(place[0], RoundingErrors(short, axes)).add(unrounded, recorded)
    except (KernelError, NotRecordedError):
        return None
    for each in by_sample.values():
        errors.merge(each)
    sample = None if errors.one_sided else next((at for at, each in by_sample.items() if each.one_sided), None)
    if sample is not None:
        errors, places = by_sample[sample], [place for place in places if place[0] == sample]
    if (
        not seek
        and errors.elements
        and not errors.one_sided
        and errors.unequal <= ROUNDED_ELSEWHERE_MIN_SHARE * errors.elements
    ):
        return _Side(errors=errors)
    return _Side(errors=errors, placement=find_placement(run, node, tensor, places, short), sample=sample)


def _results(
    run: Recording, node: Node, tensor: str, places: list[tuple[int, int]]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the results of a node computed in float32, and the recorded ones.

    Raises:
        KernelError: It cannot be replayed.
        RecordingError: An input was not recorded.
    """
    form, opset = real_form(node, run.graph.opset)
    for place in places:
        values = {name: _wide(array) for name, array in inputs_of(run, form, place).items()}
        with recorded_limits(run, place):
            recorded, unrounded = run.load(tensor, *place), run_form(node, form, opset, values)[tensor]
        if recorded.shape != unrounded.shape:
            raise KernelError(f"the replay has shape {unrounded.shape}, but the tensor has {recorded.shape}")
        yield unrounded, recorded


def _wide(array: np.ndarray) -> np.ndarray:
    """Return real numbers in float32, so that a kernel does not round its result to a shorter format."""
    return array if array.dtype.kind in "iub" or array.dtype == np.float64 else array.astype(np.float32)
