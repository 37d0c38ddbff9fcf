"""Splits a tensor's error into three parts that add up to it, element by element.

Two replays run on the backend's recorded inputs, on real numbers and in reference arithmetic: the reference's nodes
with the reference's constants, and the backend's node with its own. Then propagated = first replay - reference output;
constants = second replay - first, the effect of different weights, biases, attributes or operators; arithmetic =
backend output - second replay. introduced = constants + arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from qdebug.compare.align.layouts import in_one_order, permute_quant
from qdebug.compare.align.pairs import clamp_of
from qdebug.compare.attribute.backend_replay import describe_missing_kernel, inputs_of
from qdebug.compare.attribute.band import (
    allowed_error,
    beyond_own_sums,
    beyond_own_terms,
    difference,
    finite_norm,
    is_free_scale,
    replay_noise,
    segment_share,
    unit_roundoff,
)
from qdebug.compare.attribute.code_spans import (
    clamp_unless_recorded_unclamped,
    clip_in_turn,
    folded_clamp,
    reference_codes,
    span_after,
    span_before,
    uniform_span,
)
from qdebug.compare.attribute.declared_format import declared_format_of_values, declared_unit
from qdebug.compare.attribute.error_parts import PARTS, ErrorParts
from qdebug.compare.attribute.grid_rounding import (
    allowed_squares,
    beyond_steps,
    grid_of_codes,
    has_too_few_values,
    weight_noise,
)
from qdebug.compare.attribute.integer_tensors import (
    break_ties_as_recorded,
    count_reordered_ties,
    holds_few_bits,
    rounds_to_integers,
)
from qdebug.compare.attribute.masked import is_relevant_to_softmax, softmax_axes
from qdebug.compare.attribute.plan import PlannedNode, recorded_places
from qdebug.compare.attribute.reference_replay import select_steps
from qdebug.errors import (
    KernelError,
    NoInputError,
    NoKernelError,
    NoScaleError,
    NotRecordedError,
    QdebugError,
    UsageError,
)
from qdebug.model import Node, Recording, operators
from qdebug.model.thresholds.rounding import FLOAT32_UNIT_ROUNDOFF
from qdebug.numerics.accumulate import ErrorAccumulator, has_same_elements
from qdebug.numerics.affine import dequantize, fake_quantize, quantize
from qdebug.numerics.blocks import stretches
from qdebug.numerics.code_loss import CodeLoss
from qdebug.numerics.format_range import OutOfRange, out_of_range
from qdebug.numerics.grid import Grid, grid_name, is_off_grid
from qdebug.numerics.short_formats import SINGLE, format_of
from qdebug.numerics.stats import ErrorStats
from qdebug.replay.real_form import describe_real_tensor, real_form
from qdebug.replay.registry import has_kernel
from qdebug.replay.segment import run_form

__all__ = [
    "Attribution",
    "OtherReplays",
    "SubstituteReplay",
    "attribute",
    "attribute_equal_tensor",
    "reference_self_check",
]

SubstituteReplay = Callable[[tuple[int, int]], np.ndarray]
"""Replays a node by different means: takes sample and step as a pair, returns real values in the reference's order."""

ReadsEqual = Callable[[tuple[int, int]], np.ndarray]
"""Returns whether the nodes of both sides read equal data in a sample and step: a boolean for each stacked step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution(ErrorParts):
    """The origin of a tensor's error.

    Its parts are measured against two replays. `introduced` is the error of the backend's output against the replay
    with the reference's constants, or with its own if `constants` is unknown. `propagated` is the error of that replay
    against the reference's output. `constants` is the difference between the replays with the backend's and with the
    reference's constants. `arithmetic` is the error of the backend's output against the replay with its own constants,
    and `clipping` is the error of clipping that replay to the range of the tensor's codes.

    Args:
        arithmetic_unsaturated: `arithmetic` without `clipping`, which is compared with the limits. Equal to
            `arithmetic` for a tensor without integer codes.
        allowed: Norm of the arithmetic error that rounding alone may cause. None for a tensor with integer codes.
        unexplained_elements: Number of elements whose arithmetic error exceeds the rounding error of their own terms,
            however small the elements are.
        saturation_error: Error of the reference's values after clipping to the range of the codes: whether the range
            fits. None for a tensor without integer codes.
        quantization_error: Error of the reference's values after rounding to these codes: whether the scale fits.
        relevant_propagated: Propagated error of the elements that `saturation_error` and `quantization_error` count.
            Only known if the tensor is read by a Softmax alone, where a mask may hide elements. None if all elements
            count.
        hidden: Number of elements that a mask hides.
        max_integer_error: Allowed deviation from the replay for booleans and integers that are not codes: 0, or 1 if
            their operator computes with real numbers. None for other tensors, and if the replay itself may round
            differently.
        tied: Number of these elements that hold the index of a different element with an equal value.
        short_format: Name of the float format that the output was rounded to although it is stored in a longer format,
            or None.
        outside: The part of the results that the range of that format, or of float32, clipped. None if unknown.
        samples: The attribution of each sample, by number. Empty in the attribution of a single sample.
        reason: Why the error cannot be judged, or None.
        undecided: Whether there are too few values to choose the applicable bound.
        failed: Whether the replay failed or was rejected although the node has a kernel and all its inputs were
            recorded.
    """

    arithmetic_unsaturated: ErrorStats | None = None
    allowed: float | None = None
    unexplained_elements: int = 0
    saturation_error: CodeLoss | None = None
    quantization_error: CodeLoss | None = None
    relevant_propagated: ErrorStats | None = None
    hidden: int = 0
    max_integer_error: int | None = None
    tied: int = 0
    short_format: str | None = None
    outside: OutOfRange | None = None
    samples: Mapping[int, Attribution] = field(default_factory=lambda: MappingProxyType({}))
    reason: str | None = None
    undecided: bool = False
    failed: bool = False

    def without_judgement(self, reason: str) -> Attribution:
        """Return a copy without the errors that are compared with the limits, and with a reason for that."""
        samples = {at: part.without_judgement(reason) for at, part in self.samples.items()}
        return replace(self, arithmetic_unsaturated=None, allowed=None, samples=samples, reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OtherReplays:
    """Alternative replays of a tensor's node, with facts about them.

    Args:
        substitute: Replays a node without a kernel by different means: takes sample and step as a pair, returns real
            values in the model's dimension order.
        rounding_noise: Estimates the rounding error of `substitute`. Takes the same arguments.
        overrides_kernel: Whether to use `substitute` even if the node has a kernel.
        exact: Whether `substitute` never rounds.
        as_reference: Replays the reference's nodes with the reference's constants. Takes the same arguments. None if
            the result is the same or unknown.
        same_node: Whether both graphs agree on the node, so that its constants cannot cause an error.
        reads_equal: Returns whether both sides' nodes read equal data in a sample and step. If so, the whole error is
            the node's own. None if unknown.
        min_grid_values: Number of distinct values needed to infer a tensor's grid, in a backend that stores real values
            instead of codes. Such tensors are judged by the grid step. 0 in other backends.
    """

    substitute: SubstituteReplay | None = None
    rounding_noise: SubstituteReplay | None = None
    overrides_kernel: bool = False
    exact: bool = False
    as_reference: SubstituteReplay | None = None
    same_node: bool = False
    reads_equal: ReadsEqual | None = None
    min_grid_values: int = 0


_NO_OTHER = OtherReplays()


def attribute(
    reference: Recording, backend: Recording, entry: PlannedNode, other_replays: OtherReplays = _NO_OTHER
) -> Attribution:
    """Replay the node of a compared tensor for every sample and step, and split its error.

    A tensor that is not computed by a node introduces no error and has no attribution.

    Args:
        reference: The reference run.
        backend: The backend run.
        entry: The compared tensor.
        other_replays: Other possible replays.
    """
    node = backend.graph.producer(entry.tensor)
    if node is None:
        return Attribution(reason="it is a network input")
    reason_not_in_codes = describe_real_tensor(node, backend.graph)
    if reason_not_in_codes is not None:
        return Attribution(reason=reason_not_in_codes)
    form, _ = real_form(node, backend.graph.opset)
    is_known = has_kernel(form.op, form.domain)
    if not is_known and other_replays.substitute is None:
        return Attribution(reason=describe_missing_kernel(node))
    substitute = None if is_known and not other_replays.overrides_kernel else other_replays.substitute
    # If one function does both replays, they cannot show which part of the error the constants cause.
    as_reference = None if substitute == other_replays.as_reference else other_replays.as_reference
    split = _Split(
        reference, backend, entry, node, replace(other_replays, substitute=substitute, as_reference=as_reference)
    )
    try:
        for place in recorded_places(reference, backend, entry):
            split.add(place)
    except _NoReferenceError:  # the error that the constants cause stays unknown
        return attribute(reference, backend, entry, replace(other_replays, as_reference=None, same_node=False))
    except (KernelError, NotRecordedError, UsageError) as error:
        attribution = _unreplayed_attribution(node, error, kernel_exists=is_known)
        return replace(attribution, failed=attribution.failed and not _reads_bare_codes(backend, form))
    return split.attribution()


def attribute_equal_tensor(
    reference: Recording, backend: Recording, entry: PlannedNode, stats: ErrorStats, samples: Mapping[int, ErrorStats]
) -> Attribution | None:
    """Return the attribution of a tensor that is equal in both runs, without a replay: all its parts are 0.

    Args:
        reference: The reference run.
        backend: The backend run.
        entry: The tensor.
        stats: Its error.
        samples: The error of each sample.

    Returns:
        The attribution, or None if the node could not be replayed.
    """
    node = backend.graph.producer(entry.tensor)
    if node is None or describe_real_tensor(node, backend.graph) is not None:
        return None
    form, _ = real_form(node, backend.graph.opset)
    input_names = [name for name in form.inputs if name]
    places = recorded_places(reference, backend, entry)
    if not has_kernel(form.op, form.domain) or not all(
        backend.has(name, *place) for place in places for name in input_names
    ):
        return None
    coded = entry.quant is not None
    max_whole_error = int(rounds_to_integers(form)) if entry.whole else None

    def make_attribution(error: ErrorStats) -> Attribution:
        clips = uniform_span(entry.quant) != (None, None)
        parts: dict[str, Any] = dict.fromkeys(PARTS if clips else PARTS[:-1], error)
        return Attribution(
            **parts, arithmetic_unsaturated=error, allowed=None if coded else 0.0, max_integer_error=max_whole_error
        )

    return replace(
        make_attribution(stats),
        samples=MappingProxyType({sample: make_attribution(sample_stats) for sample, sample_stats in samples.items()}),
    )


_UNKNOWABLE = (NoInputError, NoKernelError, NoScaleError, NotRecordedError)  # the recording lacks something


def _reads_bare_codes(backend: Recording, form: Node) -> bool:
    """Return whether a node computes with low-bit integers whose scale was not recorded."""
    graph, row = backend.graph, operators.of(form.op)
    if row.takes_codes or row.sums_codes or row.moves:
        return False
    return any(holds_few_bits(graph, name) and graph.tensors[name].quant is None for name in form.inputs if name)


def _unreplayed_attribution(node: Node, error: QdebugError, *, kernel_exists: bool) -> Attribution:
    """Return an attribution without parts, with the reason.

    Args:
        node: The node.
        error: The exception of its replay.
        kernel_exists: Whether the node has a kernel. If not, the reference's nodes were replayed instead.
    """
    reason = error.message[0].lower() + error.message[1:].rstrip(".")
    if kernel_exists:
        return Attribution(reason=reason, failed=not isinstance(error, _UNKNOWABLE))
    reason_without_kernel = describe_missing_kernel(node)
    return Attribution(
        reason=reason_without_kernel if reason == reason_without_kernel else f"{reason_without_kernel}, and {reason}"
    )


def _check_not_nan(reference: np.ndarray, replayed: np.ndarray, backend: np.ndarray) -> None:
    """Reject a replay that is NaN where both sides recorded finite values.

    A side with a different number of elements is ignored.

    Raises:
        KernelError: The replay is NaN at such an element.
    """
    if replayed.dtype.kind != "f" or not np.isnan(replayed).any():
        return
    is_nan = np.isnan(replayed)
    sides = [side for side in (reference, backend) if has_same_elements(side.shape, replayed.shape)]
    is_recorded_finite = [np.isfinite(side.reshape(replayed.shape)[is_nan]) for side in sides]
    if is_recorded_finite and np.logical_and.reduce(is_recorded_finite).any():
        raise KernelError("its replay produces NaN where the recorded values are finite")


class _NoReferenceError(Exception):
    """The reference's nodes cannot be replayed on the backend's inputs."""


_QUANTIZATION_UNKNOWN = "its values lie on a grid of codes, but the recording does not say how it is quantized"

_TOO_FEW_FOR_GRID = "this run stores codes as real values, and it has too few of them to infer the grid"


class _Split:
    """Accumulates the parts of one tensor's error over samples and steps."""

    def __init__(
        self, reference: Recording, backend: Recording, entry: PlannedNode, node: Node, replays: OtherReplays
    ) -> None:
        self._reference, self._backend = reference, backend
        self._entry, self._node, self._replays = entry, node, replays
        self._constants_known = replays.same_node or replays.as_reference is not None
        self._form, self._opset = real_form(node, backend.graph.opset)
        pair, quant = entry.pair, entry.quant
        self._view = pair.backend_view
        self._span = uniform_span(quant)
        self._folded = folded_clamp(reference, backend, entry)
        self._max_integer_error: int | None = None
        if entry.whole and (replays.exact or replays.substitute is None):
            self._max_integer_error = int(replays.substitute is None and rounds_to_integers(self._form))
        self._reference_span = span_before(reference.graph, pair.reference)
        self._reference_span_after = span_after(reference, pair.reference)
        self._reference_codes = reference_codes(reference.graph, backend.graph, entry)
        self._min_grid_values = replays.min_grid_values
        # The limits apply to the backend's error against real arithmetic. Values clipped by the codes of either side
        # and the reference's own rounding are not errors of the node, so the judged error needs sums of its own.
        saturates = any(span != (None, None) for span in (self._span, self._reference_span))
        self._has_own_judged_error = saturates or replays.reads_equal is not None
        self._sums_of_sample: dict[int, _Sums] = {}
        self._grid: Grid | None = None
        self._off_grid = self._undecided = False

    def add(self, place: tuple[int, int]) -> None:
        """Replay the node for one sample and step."""
        if self._replays.substitute is not None:
            self._add_substitute(place, self._replays.substitute(place))
            return
        entry, sample = self._entry, place[0]
        values = inputs_of(self._backend, self._form, place)
        replayed = run_form(self._node, self._form, self._opset, values)[entry.tensor]
        recorded_values = self._backend.load(entry.tensor, *place)
        if is_free_scale(self._form, entry.tensor, values, recorded_values):
            replayed = recorded_values
        reference_values = self._reference.load(entry.reference_tensor, *place)
        if entry.whole:
            replayed, reference_values = (
                break_ties_as_recorded(self._form, values, indices, recorded_values)
                for indices in (replayed, reference_values)
            )
        if self._folded is not None and replayed.size == recorded_values.size:
            replayed = clamp_unless_recorded_unclamped(replayed, dequantize(recorded_values, entry.quant), self._folded)
        replayed = clip_in_turn(replayed, clamp_of(self._view))
        if not has_same_elements(replayed.shape, recorded_values.shape):
            raise KernelError(
                f"the replay has shape {replayed.shape}, but the recorded tensor has {recorded_values.shape}"
            )
        sums = self._sums_of_sample.setdefault(sample, self._empty_sums())
        _, backend_values = in_one_order(reference_values, entry.pair.reference_view, recorded_values, self._view)
        reference_values, permuted_replay = in_one_order(
            reference_values, entry.pair.reference_view, replayed, self._view
        )
        arithmetic = self._add_parts(sums, (reference_values, permuted_replay, backend_values), place)
        grid = self._find_grid(recorded_values, values)
        if grid is not None:
            self._add_on_grid(sums, grid, values, (replayed, recorded_values), place)
            fitted = clip_in_turn(self._reference_values(reference_values), self._reference_span_after)
            sums.saturation_error.add(fitted, np.clip(fitted, grid.low - grid.step / 2, grid.high + grid.step / 2))
            return
        self._undecided = self._undecided or (
            entry.quant is None and has_too_few_values(recorded_values, self._min_grid_values)
        )
        self._add_judged(
            sums,
            (replayed, recorded_values),
            arithmetic if permuted_replay is replayed and backend_values is recorded_values else None,
            place,
        )
        if self._span != (None, None):
            self._add_fit(sums, replayed, place)
        elif entry.whole:
            sums.tied += count_reordered_ties(self._form, values, replayed, recorded_values)
        elif entry.quant is None:
            self._add_rounding(sums, values, replayed, recorded_values, place)

    def _find_grid(self, recorded_values: np.ndarray, values: Mapping[str, np.ndarray]) -> Grid | None:
        """Return the grid that the tensor's real values lie on if its scale was not recorded, or None.

        Args:
            recorded_values: The tensor's values at a sample and step.
            values: The inputs of its node there.
        """
        entry = self._entry
        if (
            self._off_grid
            or not self._min_grid_values
            or entry.whole
            or entry.quant is not None
            or not self._has_own_judged_error
        ):
            return None
        if self._grid is None:
            places = [*recorded_places(self._reference, self._backend, entry)]
            self._off_grid = (
                is_off_grid(recorded_values) or format_of(recorded_values, read=values.values()) is not None
            )
            if not self._off_grid:
                self._grid = grid_of_codes(lambda: (self._backend.load(entry.tensor, *place) for place in places))
                self._off_grid = self._grid is None
        return self._grid

    def _add_on_grid(
        self,
        sums: _Sums,
        grid: Grid,
        values: Mapping[str, np.ndarray],
        pair: tuple[np.ndarray, np.ndarray],
        place: tuple[int, int],
    ) -> None:
        """Add the arithmetic error of values on a grid, and the error that rounding to the grid may cause.

        Args:
            sums: The sums to add to.
            grid: The grid.
            values: The inputs of the node.
            pair: The replay, and the backend's values.
            place: Sample and step.
        """
        replayed, recorded = pair
        clipped = np.clip(replayed, grid.low, grid.high)
        noise = weight_noise(self._form, values, self._opset)
        sums.arithmetic_unsaturated.update(clipped, recorded, sample=place[0])
        sums.formats.add(grid_name(grid))
        sums.allowed += allowed_error(self._form, values, replayed, self._opset, FLOAT32_UNIT_ROUNDOFF) ** 2
        sums.allowed += allowed_squares(grid, recorded.size, noise)
        sums.unexplained_elements += beyond_steps(grid, clipped, recorded, noise)

    def _add_judged(
        self,
        sums: _Sums,
        values: tuple[np.ndarray, np.ndarray],
        arithmetic: _MeasuredError | None,
        place: tuple[int, int],
    ) -> None:
        """Add the arithmetic error that is compared with the limits. Unless something is clipped, this is all of it.

        Args:
            sums: The sums to add to.
            values: The replay, and the backend's values.
            arithmetic: The arithmetic error, or None if it was measured on other arrays than `values`.
            place: Sample and step.
        """
        if not self._has_own_judged_error:
            return
        replayed, recorded = values
        if (
            arithmetic is not None
            and arithmetic.replayed is replayed
            and arithmetic.error.is_reference_within(self._span)
        ):
            sums.arithmetic_unsaturated.merge(arithmetic.error)
        else:
            sums.arithmetic_unsaturated.update(replayed, recorded, sample=place[0])

    def _add_rounding(
        self,
        sums: _Sums,
        values: Mapping[str, np.ndarray],
        replayed: np.ndarray,
        recorded_values: np.ndarray,
        place: tuple[int, int],
    ) -> None:
        """Add the error that rounding may cause, and the values that the range of the float format clipped."""
        short_format = format_of(recorded_values, read=values.values()) or declared_format_of_values(
            self._backend, recorded_values
        )
        sums.formats.add(None if short_format is None else short_format.name)
        unit = max(
            unit_roundoff(recorded_values.dtype) if short_format is None else short_format.unit,
            declared_unit(self._backend),
        )
        allowed_norm = allowed_error(self._form, values, replayed, self._opset, unit)
        sums.allowed += allowed_norm**2
        sums.allowed += (unit * finite_norm(recorded_values)) ** 2
        smallest_normal = None
        if short_format is not None:
            smallest_normal = short_format.normal
            sums.allowed += (
                short_format.subnormal / 2
            ) ** 2 * recorded_values.size  # the spacing of subnormal numbers is constant
        if short_format is not None or recorded_values.dtype == np.float32:
            float32_bound = allowed_norm if unit == FLOAT32_UNIT_ROUNDOFF else None
            noise = replay_noise(self._form, values, replayed, self._opset, allowed=float32_bound)
            outside, _ = out_of_range(short_format or SINGLE, replayed, recorded_values, noise=noise)
            sums.outside = outside if sums.outside is None else sums.outside.merge(outside)
        clamped = clip_in_turn(recorded_values, clamp_of(self._view))
        unexplained_count = beyond_own_terms(self._form, values, replayed, clamped, unit, normal=smallest_normal)
        if unexplained_count:  # rare enough to load the reference tensor again
            carried_error = self._largest_input_error(replayed, place)
            unexplained_count = beyond_own_terms(
                self._form, values, replayed, clamped, unit, carried=carried_error, normal=smallest_normal
            )
        sums.unexplained_elements += unexplained_count
        sums.unexplained_elements += beyond_own_sums(
            self._form, values, replayed, clamped, opset=self._opset, unit=unit, normal=smallest_normal
        )

    def _largest_input_error(self, replayed: np.ndarray, place: tuple[int, int]) -> float:
        """Return the largest finite error in a node's inputs."""
        reference_values = self._reference.load(self._entry.reference_tensor, *place)
        reference_values, replayed = in_one_order(
            reference_values, self._entry.pair.reference_view, replayed, self._view
        )
        if not has_same_elements(reference_values.shape, replayed.shape) or reference_values.dtype.kind != "f":
            return 0.0
        largest = 0.0
        for first, second in stretches(reference_values.reshape(replayed.shape), replayed):
            with np.errstate(invalid="ignore", over="ignore"):
                errors = np.abs(np.subtract(first, second, dtype=np.float64))
            largest = max(largest, float(np.max(errors, where=np.isfinite(errors), initial=0.0)))
        return largest

    def _add_parts(
        self, sums: _Sums, values: tuple[np.ndarray, np.ndarray, np.ndarray], place: tuple[int, int]
    ) -> _MeasuredError:
        """Add the parts of the total error, and return the arithmetic part.

        Args:
            sums: The sums to add to.
            values: The reference, the replay with the backend's constants and the backend, in the same order.
            place: Sample and step.

        Raises:
            KernelError: The replay is NaN where both sides recorded finite values.
        """
        stored_reference, replayed, backend_values = values
        _check_not_nan(stored_reference, replayed, backend_values)
        replays = self._replays
        reference_replay = (
            None
            if replays.as_reference is None
            else self._replay_of_reference(replays.as_reference, place, replayed.shape)
        )
        # The node is not to blame for rounding to the reference's codes.
        second = fake_quantize(replayed, self._reference_codes)
        first = second if reference_replay is None else fake_quantize(reference_replay, self._reference_codes)
        is_equal = None
        if replays.reads_equal is not None and has_same_elements(stored_reference.shape, first.shape):
            is_equal = replays.reads_equal(place)
        if is_equal is not None and is_equal.any():
            reference_values = self._reference_values(stored_reference).reshape(first.shape)
            changed = reference_values if reference_replay is None else _add_difference(reference_values, first, second)
            if is_equal.all():
                first, second = reference_values, changed
            else:
                is_one = first is second
                second = select_steps(is_equal, changed, second)
                first = second if is_one else select_steps(is_equal, reference_values, first)
        arithmetic = sums.arithmetic.compare_separately(second, backend_values, sample=place[0])
        sums.arithmetic.merge(arithmetic)
        if self._span != (None, None):
            if arithmetic.is_reference_within(self._span):
                sums.clipping.add_unchanged(arithmetic)
            else:
                sums.clipping.update(second, second, sample=place[0])
        sums.propagated.update(stored_reference, first, sample=place[0])
        if self._constants_known:
            if first is second and arithmetic.is_reference_within((None, None)):
                sums.constants.add_unchanged(arithmetic)
            else:
                sums.constants.update(first, second, sample=place[0])
        if reference_replay is not None:
            sums.introduced.update(first, backend_values, sample=place[0])
        return _MeasuredError(replayed=second, error=arithmetic)

    def _reference_values(self, stored_values: np.ndarray) -> np.ndarray:
        """Convert stored reference elements, already in the compared dimension order, to clamped real values."""
        pair = self._entry.pair
        quant = permute_quant(self._reference.graph.tensors[pair.reference].quant, pair.reference_view)
        return clip_in_turn(dequantize(stored_values, quant), clamp_of(pair.reference_view))

    def _replay_of_reference(
        self, replay: SubstituteReplay, place: tuple[int, int], shape: tuple[int, ...]
    ) -> np.ndarray:
        """Replay the reference's nodes.

        Raises:
            _NoReferenceError: They cannot be replayed, or give a different shape.
        """
        try:
            replayed = replay(place)
        except (KernelError, NotRecordedError) as error:
            raise _NoReferenceError from error
        if not has_same_elements(replayed.shape, shape):
            raise _NoReferenceError
        return clip_in_turn(replayed.reshape(shape), clamp_of(self._view))

    def _add_fit(self, sums: _Sums, replayed: np.ndarray, place: tuple[int, int]) -> None:
        """Add the error of quantizing the reference's values to the backend's codes, independent of the node's result.

        Elements that a mask hides from a Softmax do not count, and values are clipped as the next Relu or Clip clips
        them: otherwise values without effect would outweigh the rest.
        """
        sample = place[0]
        quant, name, graph = self._entry.quant, self._entry.reference_tensor, self._reference.graph
        reference_values = dequantize(self._reference.load(name, *place), graph.tensors[name].quant)
        axes = None if self._entry.pair.reference_view else softmax_axes(graph, name, reference_values.ndim)
        reference_values, replayed = in_one_order(
            reference_values, self._entry.pair.reference_view, replayed, self._view
        )
        if quant is None or reference_values.dtype.kind != "f":
            return
        reference_values = clip_in_turn(reference_values, self._reference_span_after)
        codes = dequantize(quantize(reference_values, quant), quant)
        if axes is not None and reference_values.size:
            is_counted = is_relevant_to_softmax(reference_values, codes, axes)
            reference_values, codes, replayed = (
                reference_values[is_counted],
                codes[is_counted],
                replayed.reshape(is_counted.shape)[is_counted],
            )
            sums.relevant_propagated = sums.relevant_propagated or ErrorAccumulator()
            sums.relevant_propagated.update(reference_values, replayed, sample=sample)
            sums.hidden += int(is_counted.size - np.count_nonzero(is_counted))
        sums.saturation_error.add(reference_values, np.clip(reference_values, *self._span))
        sums.quantization_error.add(reference_values, codes)

    def _add_substitute(self, place: tuple[int, int], replayed: np.ndarray) -> None:
        """Add a replay by the reference's own nodes, given in the model's dimension order."""
        entry, sample = self._entry, place[0]
        reference_values = self._reference.load(entry.reference_tensor, *place)
        stored_values = self._backend.load(entry.tensor, *place)
        reference_values, recorded_values = in_one_order(
            reference_values, entry.pair.reference_view, stored_values, self._view
        )
        if not has_same_elements(replayed.shape, recorded_values.shape):
            raise KernelError(
                f"the replay has shape {replayed.shape}, but the recorded tensor has {recorded_values.shape}"
            )
        sums = self._sums_of_sample.setdefault(sample, self._empty_sums())
        # The reference saturates at the ends of its code range, and the backend has no codes to do so.
        if self._reference_span != (None, None) and entry.quant is None:
            replayed, recorded_values = (np.clip(array, *self._reference_span) for array in (replayed, recorded_values))
        arithmetic = self._add_parts(sums, (reference_values, replayed, recorded_values), place)
        self._add_judged(sums, (replayed, recorded_values), arithmetic if entry.quant is None else None, place)
        self._find_grid(recorded_values, {})
        unit = max(unit_roundoff(recorded_values.dtype), declared_unit(self._backend))
        sums.allowed += (segment_share(unit) * finite_norm(replayed)) ** 2
        if self._replays.rounding_noise is not None and entry.quant is None:
            sums.allowed += finite_norm(self._replays.rounding_noise(place)) ** 2

    def _empty_sums(self) -> _Sums:
        pair, quant = self._entry.pair, self._entry.quant
        bounds, step = clamp_of(self._view), None if quant is None or quant.per_channel else float(quant.scale[0])
        permuted_quant = permute_quant(quant, self._view)
        return _Sums(
            introduced=ErrorAccumulator(backend_quant=permuted_quant, backend_clamp=bounds),
            arithmetic=ErrorAccumulator(backend_quant=permuted_quant, backend_clamp=bounds),
            constants=ErrorAccumulator(step=step),
            clipping=ErrorAccumulator(backend_clamp=self._span, step=step),
            arithmetic_unsaturated=ErrorAccumulator(
                backend_quant=quant, backend_clamp=bounds, reference_clamp=self._span
            ),
            propagated=ErrorAccumulator(
                reference_quant=self._reference.graph.tensors[pair.reference].quant,
                reference_clamp=clamp_of(pair.reference_view),
                step=step,
            ),
        )

    def attribution(self) -> Attribution:
        """Return the accumulated attribution."""
        samples = {sample: self._attribution_of(sums) for sample, sums in self._sums_of_sample.items()}
        if len(samples) == 1:
            return replace(*samples.values(), samples=MappingProxyType(samples))
        total = self._empty_sums()
        for sums in self._sums_of_sample.values():
            total.merge(sums)
        return replace(self._attribution_of(total), samples=MappingProxyType(samples))

    def _attribution_of(self, sums: _Sums) -> Attribution:
        introduced_error = sums.arithmetic if self._replays.as_reference is None else sums.introduced
        introduced, propagated = introduced_error.stats(), sums.propagated.stats()
        if self._replays.substitute is not None and self._entry.quant is not None:
            # The replay has the reference's float weights, so it cannot show what a correctly quantized node returns.
            return Attribution(introduced=introduced, propagated=propagated)
        arithmetic = sums.arithmetic.stats()
        if self._undecided or (self._replays.substitute is not None and self._grid is not None):
            why = _TOO_FEW_FOR_GRID if self._undecided else _QUANTIZATION_UNKNOWN
            return Attribution(introduced=introduced, propagated=propagated, reason=why, undecided=self._undecided)
        return Attribution(
            introduced=introduced,
            propagated=propagated,
            constants=sums.constants.stats() if self._constants_known else None,
            arithmetic=arithmetic,
            clipping=None if self._span == (None, None) else sums.clipping.stats(),
            arithmetic_unsaturated=sums.arithmetic_unsaturated.stats() if self._has_own_judged_error else arithmetic,
            saturation_error=None if self._span == (None, None) and self._grid is None else sums.saturation_error,
            quantization_error=None if self._span == (None, None) else sums.quantization_error,
            relevant_propagated=None if sums.relevant_propagated is None else sums.relevant_propagated.stats(),
            hidden=sums.hidden,
            max_integer_error=self._max_integer_error,
            tied=sums.tied,
            short_format=next(iter(sums.formats)) if len(sums.formats) == 1 else None,
            outside=sums.outside if len(sums.formats) == 1 else None,
            allowed=math.sqrt(sums.allowed) if self._entry.quant is None else None,
            unexplained_elements=sums.unexplained_elements,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _MeasuredError:
    """The arithmetic error of one sample and step, and the replay that it is measured against."""

    replayed: np.ndarray
    error: ErrorAccumulator


@dataclass(slots=True, kw_only=True)
class _Sums:
    """Accumulated errors of one sample or of all samples. `allowed` is a squared norm."""

    introduced: ErrorAccumulator
    constants: ErrorAccumulator
    arithmetic: ErrorAccumulator
    clipping: ErrorAccumulator
    arithmetic_unsaturated: ErrorAccumulator
    propagated: ErrorAccumulator
    saturation_error: CodeLoss = field(default_factory=CodeLoss)
    quantization_error: CodeLoss = field(default_factory=CodeLoss)
    relevant_propagated: ErrorAccumulator | None = None
    hidden: int = 0
    tied: int = 0
    allowed: float = 0.0
    unexplained_elements: int = 0
    formats: set[str | None] = field(default_factory=set)
    outside: OutOfRange | None = None

    def merge(self, other: _Sums) -> None:
        """Add the sums of other samples."""
        for name in (*PARTS, "arithmetic_unsaturated", "saturation_error", "quantization_error"):
            getattr(self, name).merge(getattr(other, name))
        if other.relevant_propagated is not None:
            self.relevant_propagated = self.relevant_propagated or ErrorAccumulator()
            self.relevant_propagated.merge(other.relevant_propagated)
            self.hidden += other.hidden
        self.allowed += other.allowed
        self.tied += other.tied
        self.formats |= other.formats
        if other.outside is not None:
            self.outside = other.outside if self.outside is None else self.outside.merge(other.outside)
        self.unexplained_elements += other.unexplained_elements


def _add_difference(values: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return values plus the difference of two replays. Integers and booleans are replaced where the replays differ."""
    if values.dtype.kind != "f":
        return np.where(first == second, values, second)
    return np.asarray(values + difference(second, first).astype(values.dtype))


def reference_self_check(reference: Recording, entry: PlannedNode) -> Attribution:
    """Split the difference between a reference tensor and itself into introduced and propagated error, which cancel.

    If the recording describes the node completely, both are only rounding errors.

    Args:
        reference: The reference run.
        entry: The comparison entry of the tensor.
    """
    name = entry.reference_tensor
    pair = replace(entry.pair, backend=name, reference_view=None, backend_view=None)
    entry = replace(entry, pair=pair, quant=reference.graph.tensors[name].quant)
    return attribute(reference, reference, entry, OtherReplays(same_node=True))
