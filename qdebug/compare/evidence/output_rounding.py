"""How a node rounds its 16-bit or 8-bit float results: where, in which direction, and with which errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from qdebug.arithmetic.floats.search import PlacementFinding
from qdebug.compare.attribute.backend_replay import inputs_of
from qdebug.compare.evidence.measured_tensor import MeasuredTensor
from qdebug.compare.explaining.float_band import output_format
from qdebug.compare.explaining.placements import find_placement, jointly_moved_axes
from qdebug.errors import KernelError, NotRecordedError
from qdebug.model import Node, Recording
from qdebug.model.thresholds.explanation import ROUNDED_ELSEWHERE_MIN_SHARE
from qdebug.numerics.float_rounding import FLOAT_ROUNDINGS
from qdebug.numerics.rounding_errors import RoundingErrors
from qdebug.replay.extents import recorded_limits
from qdebug.replay.real_form import real_form
from qdebug.replay.segment import run_form

__all__ = ["OutputRounding", "backend_rounding", "reference_rounding"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRounding:
    """A node of one run, and how it rounds.

    Args:
        errors: The errors of its results against a replay, in all samples or in `sample` alone.
        placement: The placement of roundings that reproduces the results; None if it was not searched or not found.
        sample: The first sample with one-sided errors if the errors of all samples together are not; None otherwise.
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
        """The clauses, joined by commas."""
        return ", ".join(self.clauses)

    @property
    def one_sided(self) -> bool:
        """Whether its errors have one sign and it is not known to round to nearest everywhere, apart from ties."""
        if not self.errors.one_sided:
            return False
        named = None if self.placement is None else self.placement.named
        words = () if named is None else (named.rounding, *(word for _, word in named.edges))
        return named is None or any(FLOAT_ROUNDINGS[word].biased for word in words if word in FLOAT_ROUNDINGS)


def backend_rounding(measured: MeasuredTensor) -> OutputRounding | None:
    """Return how the node rounds results that differ from the reference, or None without a short float format."""
    node, stats, entry = measured.node, measured.stats, measured.entry
    if node is None or stats is None or not stats.mismatches or entry.quant is not None or entry.whole:
        return None
    if measured.comparison.basis != "full" or stats.nonfinite:
        return None
    return _output_rounding(measured._runs.backend, node, entry.tensor, measured._places)


def reference_rounding(measured: MeasuredTensor) -> OutputRounding | None:
    """Return how the reference's node rounds, or None if that is unknown."""
    run, node, tensor = measured._runs.reference, measured.reference_node, measured.entry.reference_tensor
    return None if node is None else _output_rounding(run, node, tensor, measured._places, seek=True)


def _output_rounding(
    run: Recording, node: Node, tensor: str, places: Sequence[tuple[int, int]], *, seek: bool = False
) -> OutputRounding | None:
    """Return how a node rounds; None if its results have no short format or it cannot be replayed.

    With `seek`, the placement of roundings is searched in any case. Without, it is searched only if an input is missing
    or the results are not those of a single rounding to nearest.
    """
    form, _ = real_form(node, run.graph.opset)
    by_sample: dict[int, RoundingErrors] = {}
    try:
        short = output_format(run, form, tensor, places)
        if short is None:
            return None
        axes = jointly_moved_axes(form, run.load(tensor, *places[0]).ndim)
        errors = RoundingErrors(short, axes)
        with suppress(NotRecordedError):  # inputs inside a fused layer; the placement is searched anyway
            for place, (unrounded, recorded) in zip(
                places, _computed_and_recorded(run, node, tensor, places), strict=True
            ):
                by_sample.setdefault(place[0], RoundingErrors(short, axes)).add(unrounded, recorded)
    except (KernelError, NotRecordedError):
        return None
    for sample_errors in by_sample.values():
        errors.merge(sample_errors)
    sample = (
        None
        if errors.one_sided
        else next((at for at, sample_errors in by_sample.items() if sample_errors.one_sided), None)
    )
    if sample is not None:
        errors, places = by_sample[sample], [place for place in places if place[0] == sample]
    if (
        not seek
        and errors.elements
        and not errors.one_sided
        and errors.unequal <= ROUNDED_ELSEWHERE_MIN_SHARE * errors.elements
    ):
        return OutputRounding(errors=errors)
    return OutputRounding(errors=errors, placement=find_placement(run, node, tensor, places, short), sample=sample)


def _computed_and_recorded(
    run: Recording, node: Node, tensor: str, places: Sequence[tuple[int, int]]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the results of a node computed in float32, together with the recorded results.

    Raises:
        KernelError: It cannot be replayed.
        RecordingError: An input was not recorded.
    """
    form, opset = real_form(node, run.graph.opset)
    for place in places:
        values = {name: _widen_to_float32(array) for name, array in inputs_of(run, form, place).items()}
        with recorded_limits(run, place):
            recorded, unrounded = run.load(tensor, *place), run_form(node, form, opset, values)[tensor]
        if recorded.shape != unrounded.shape:
            raise KernelError(f"the replay has shape {unrounded.shape}, but the tensor has {recorded.shape}")
        yield unrounded, recorded


def _widen_to_float32(array: np.ndarray) -> np.ndarray:
    """Return real numbers in float32, so that a kernel does not round its result to a shorter format."""
    return array if array.dtype.kind in "iub" or array.dtype == np.float64 else array.astype(np.float32)
