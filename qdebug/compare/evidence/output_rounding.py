"""How a node rounds: results in a short float format, by position, direction and error; a quantizer, its quotients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from qdebug.arithmetic.floats.search import PlacementFinding
from qdebug.arithmetic.presets import is_known
from qdebug.compare.attribute.backend_replay import inputs_of, real_values
from qdebug.compare.evidence.measured_tensor import MeasuredTensor
from qdebug.compare.explaining.float_node import output_format
from qdebug.compare.explaining.placements import find_placement, jointly_moved_axes
from qdebug.errors import KernelError, NotRecordedError, QdebugError
from qdebug.model import Node, Recording, operators
from qdebug.model.dtypes import is_integer
from qdebug.model.thresholds.explanation import ONE_SIDED_MIN_DEVIATIONS, ROUNDED_ELSEWHERE_MIN_SHARE
from qdebug.numerics.affine import quantize
from qdebug.numerics.float_rounding import FLOAT_ROUNDINGS
from qdebug.numerics.rounding import ROUNDINGS
from qdebug.numerics.rounding_errors import RoundingErrors
from qdebug.replay.extents import recorded_limits
from qdebug.replay.real_form import real_form
from qdebug.replay.segment import run_form

__all__ = ["CutQuotients", "OutputRounding", "backend_rounding", "cut_quotients", "reference_rounding"]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CutQuotients:
    """A quantizer that reproduces all its codes if it cuts quotients off instead of rounding them.

    Args:
        words: How it cuts them off.
        differing: Number of codes that rounding to nearest does not give.
        elements: Number of all codes.
    """

    words: str
    differing: int
    elements: int


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


def cut_quotients(measured: MeasuredTensor) -> CutQuotients | None:
    """Return how the backend's quantizer cuts its quotients off, if no known runtime does, or else None."""
    node, quant, reproduced = measured.node, measured.entry.quant, measured.reproduced
    if node is None or measured.stats is None or not measured.stats.mismatches or quant is None:
        return None
    if not node.inputs or not operators.plain(node).quantizes or not is_integer(quant.dtype):
        return None
    if reproduced is not None and reproduced.variant is not None and is_known(reproduced.variant):
        return None
    cutting = {name: rounding.words for name, rounding in ROUNDINGS.items() if rounding.cuts}
    differing = elements = 0
    try:
        for place in measured._places:
            values = real_values(measured._runs.backend, node.inputs[0], place)
            codes = measured._runs.backend.load(measured.entry.tensor, *place)
            cutting = {
                name: words for name, words in cutting.items() if np.array_equal(quantize(values, quant, name), codes)
            }
            if not cutting:
                return None
            differing += int(np.count_nonzero(quantize(values, quant) != codes))
            elements += codes.size
    except QdebugError:  # the input was not recorded
        return None
    if differing < ONE_SIDED_MIN_DEVIATIONS**2:
        return None
    return CutQuotients(words=next(iter(cutting.values())), differing=differing, elements=elements)
