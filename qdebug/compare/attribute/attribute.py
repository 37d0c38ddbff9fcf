"""Splits a tensor's error into three parts that add up to it, element by element.

On the backend's own recorded inputs, on real numbers and in reference arithmetic, two things are replayed: what the
reference's nodes make of them with the reference's constants, and what the backend's node makes with its own. Then
propagated = first replay - reference output; constants = second replay - first, which is what other weights, biases,
attributes or operators make; arithmetic = backend output - second replay. introduced = constants + arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from qdebug.compare.align.layouts import in_one_order, turned_quant
from qdebug.compare.align.pairs import clamp_of
from qdebug.compare.attribute.backend_replay import inputs_of, without_kernel
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
    folded_clamp,
    held,
    held_as_recorded,
    reference_codes,
    span_after,
    span_before,
    uniform_span,
)
from qdebug.compare.attribute.declared_format import declared_unit, held_in_declared
from qdebug.compare.attribute.error_parts import PARTS, ErrorParts
from qdebug.compare.attribute.grid_rounding import (
    allowed_squares,
    are_few,
    beyond_steps,
    grid_of_codes,
    weight_noise,
)
from qdebug.compare.attribute.integer_tensors import holds_few_bits, picks_of_equals, rounds_to_integers
from qdebug.compare.attribute.masked import softmax_axes, which_count
from qdebug.compare.attribute.plan import PlannedNode, recorded_places
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
from qdebug.numerics.accumulate import ErrorAccumulator, same_elements
from qdebug.numerics.affine import dequantize, on_grid, quantize
from qdebug.numerics.code_loss import CodeLoss
from qdebug.numerics.format_range import OutOfRange, out_of_range
from qdebug.numerics.grid import Grid, grid_name, lies_on_no_grid
from qdebug.numerics.short_formats import SINGLE, format_of
from qdebug.numerics.stats import ErrorStats
from qdebug.replay.real_form import not_in_codes, real_form
from qdebug.replay.registry import has_kernel
from qdebug.replay.segment import run_form

__all__ = [
    "Attribution",
    "OtherReplays",
    "SubstituteReplay",
    "attribute",
    "no_error",
    "reference_self_check",
]

SubstituteReplay = Callable[[tuple[int, int]], np.ndarray]
"""Another way to replay a node: called with sample and step as a pair, gives real values in the reference's order."""

ReadsEqual = Callable[[tuple[int, int]], bool]
"""Tells of a sample and step whether the nodes of both sides read equal data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution(ErrorParts):
    """Where a tensor's error comes from.

    Its parts are measured against two replays. `introduced` is the error of the backend's output against the replay
    with the reference's constants, or with its own where `constants` is not known. `propagated` is the error of that
    replay against the reference's output, `constants` that of the replay with the backend's constants against that with
    the reference's. `arithmetic` is the error of the backend's output against the replay with its own constants, and
    `clipping` what the codes of the tensor cut off of that replay.

    Args:
        arithmetic_unsaturated: `arithmetic` without `clipping`, which limits are held against; the same for a tensor
            without integer codes.
        allowed: Norm of the arithmetic error that rounding alone accounts for; None for a tensor with integer codes.
        unexplained_elements: Elements of the arithmetic error that rounding what each is made of does not account for,
            however small they are beside the rest.
        saturation_error: Error of the reference's values when they are held to what the codes can represent: whether
            the range fits. None for a tensor without integer codes.
        quantization_error: Error of the reference's values when they are rounded to these codes: whether the scale
            fits.
        arriving: Propagated error among the elements that `saturation_error` and `quantization_error` look at. If a
            Softmax alone reads the tensor, a mask may hide others; None elsewhere: they look at all.
        hidden: How many elements a mask hides.
        whole_off: How far integers that are no codes, and booleans, may be off the replay: 0, or 1 where their operator
            computes with real numbers. None for other tensors, and where the replay itself may round otherwise.
        tied: How many of them are the index of another one of equal values.
        short: Name of the float format that all of the output was rounded to, though it is kept in a longer one; None
            if there is none.
        outside: What the range of that format, or of float32, has taken from the results; None if that is not known.
        samples: The same for each sample, by its number; empty within these.
        reason: Why there is none.
        undecided: Whether the values are too few to tell which bound they are judged by.
        failed: Whether the node has a kernel and all its inputs were recorded, and its replay failed or was refused.
    """

    arithmetic_unsaturated: ErrorStats | None = None
    allowed: float | None = None
    unexplained_elements: int = 0
    saturation_error: CodeLoss | None = None
    quantization_error: CodeLoss | None = None
    arriving: ErrorStats | None = None
    hidden: int = 0
    whole_off: int | None = None
    tied: int = 0
    short: str | None = None
    outside: OutOfRange | None = None
    samples: Mapping[int, Attribution] = field(default_factory=lambda: MappingProxyType({}))
    reason: str | None = None
    undecided: bool = False
    failed: bool = False

    def unjudged(self, reason: str) -> Attribution:
        """Return the same error without the part that limits are held against, and why that is not known."""
        samples = {at: part.unjudged(reason) for at, part in self.samples.items()}
        return replace(self, arithmetic_unsaturated=None, allowed=None, samples=samples, reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OtherReplays:
    """What can be replayed for a tensor besides its own node, and what is known of that.

    Args:
        substitute: Replays a node without kernel in another way: called with sample and step as a pair, gives real
            values in the model's order of dimensions.
        rounding_noise: Called likewise, estimates the error that rounding in that replay makes.
        instead: Replay the node in that way whether it has a kernel or not.
        exact: Whether what is replayed in that way rounds nothing.
        as_reference: Replays what the reference's nodes make, with the reference's constants, likewise; None where
            that is the same or not known.
        alike: Whether both graphs say the same of the node, so that its constants make no error.
        reads_equal: Tells of a sample and step whether both sides' nodes read equal data: then the whole error is the
            node's own. None if that is not known.
        telling: How many different values tell the grid of a tensor, where the backend shows real values in place of
            codes: those are judged by its step. 0 where it does not.
    """

    substitute: SubstituteReplay | None = None
    rounding_noise: SubstituteReplay | None = None
    instead: bool = False
    exact: bool = False
    as_reference: SubstituteReplay | None = None
    alike: bool = False
    reads_equal: ReadsEqual | None = None
    telling: int = 0


_NO_OTHER = OtherReplays()


def attribute(
    reference: Recording, backend: Recording, entry: PlannedNode, others: OtherReplays = _NO_OTHER
) -> Attribution:
    """Replay the node of a compared tensor for every sample and step, and split its error.

    A tensor that no node produces introduces nothing and has no attribution.

    Args:
        reference: The reference run.
        backend: The backend run.
        entry: The compared tensor.
        others: What can be replayed besides its node.
    """
    node = backend.graph.producer(entry.tensor)
    if node is None:
        return Attribution(reason="it is an input of the network")
    real = not_in_codes(node, backend.graph)
    if real is not None:
        return Attribution(reason=real)
    form, _ = real_form(node, backend.graph.opset)
    known = has_kernel(form.op, form.domain)
    if not known and others.substitute is None:
        return Attribution(reason=without_kernel(node))
    chosen = None if known and not others.instead else others.substitute
    first = None if chosen == others.as_reference else others.as_reference  # one replay tells nothing of constants
    split = _Split(reference, backend, entry, node, replace(others, substitute=chosen, as_reference=first))
    try:
        for place in recorded_places(reference, backend, entry):
            split.add(place)
    except _NoReferenceError:  # then the constants part is not known
        return attribute(reference, backend, entry, replace(others, as_reference=None, alike=False))
    except (KernelError, NotRecordedError, UsageError) as error:
        found = _unreplayed(node, error, known=known)
        return replace(found, failed=found.failed and not _reads_bare_codes(backend, form))
    return split.attribution()


def no_error(
    reference: Recording, backend: Recording, entry: PlannedNode, stats: ErrorStats, samples: Mapping[int, ErrorStats]
) -> Attribution | None:
    """Attribute a tensor that is the same in both runs, without a replay: every part of its error is 0.

    Args:
        reference: The reference run.
        backend: The backend run.
        entry: The tensor, which is the same in both runs.
        stats: Its error.
        samples: The same for each sample.

    Returns:
        None where its node could not be replayed.
    """
    node = backend.graph.producer(entry.tensor)
    if node is None or not_in_codes(node, backend.graph) is not None:
        return None
    form, _ = real_form(node, backend.graph.opset)
    read = [name for name in form.inputs if name]
    places = recorded_places(reference, backend, entry)
    if not has_kernel(form.op, form.domain) or not all(backend.has(name, *place) for place in places for name in read):
        return None
    coded = entry.quant is not None
    whole = int(rounds_to_integers(form)) if entry.whole else None

    def given(each: ErrorStats) -> Attribution:
        clips = uniform_span(entry.quant) != (None, None)
        parts: dict[str, Any] = dict.fromkeys(PARTS if clips else PARTS[:-1], each)
        return Attribution(**parts, arithmetic_unsaturated=each, allowed=None if coded else 0.0, whole_off=whole)

    return replace(given(stats), samples=MappingProxyType({at: given(each) for at, each in samples.items()}))


_UNKNOWABLE = (NoInputError, NoKernelError, NoScaleError, NotRecordedError)  # the recording lacks something


def _reads_bare_codes(backend: Recording, form: Node) -> bool:
    """Tell whether a node computes with integers of few bits of which nobody recorded the scale."""
    graph, row = backend.graph, operators.of(form.op)
    if row.takes_codes or row.sums_codes or row.moves:
        return False
    return any(holds_few_bits(graph, name) and graph.tensors[name].quant is None for name in form.inputs if name)


def _unreplayed(node: Node, error: QdebugError, *, known: bool) -> Attribution:
    """Return an attribution without parts, and why.

    Args:
        node: The node.
        error: What its replay raised.
        known: Whether the node has a kernel; otherwise the reference's nodes were replayed in its place.
    """
    reason = error.message[0].lower() + error.message[1:].rstrip(".")
    if known:
        return Attribution(reason=reason, failed=not isinstance(error, _UNKNOWABLE))
    missing = without_kernel(node)
    return Attribution(reason=missing if reason == missing else f"{missing}, and {reason}")


def _check_finite(theirs: np.ndarray, replayed: np.ndarray, ours: np.ndarray) -> None:
    """Refuse a replay that is NaN where both sides recorded numbers: it tells nothing of them.

    A side of another number of elements has none at the same places: then the other one counts alone.

    Raises:
        KernelError: It is.
    """
    if replayed.dtype.kind != "f" or not np.isnan(replayed).any():
        return
    odd = np.isnan(replayed)
    sides = [each for each in (theirs, ours) if same_elements(each.shape, replayed.shape)]
    recorded = [np.isfinite(each.reshape(replayed.shape)[odd]) for each in sides]
    if recorded and np.logical_and.reduce(recorded).any():
        raise KernelError("its replay is not a number where the recorded values are numbers")


class _NoReferenceError(Exception):
    """What the reference's nodes make of the backend's inputs cannot be replayed."""


_UNSAID = "its values are on the grid of codes, and nobody said what it computes of which codes"

_TOO_FEW = "this run shows codes as real values, and these are too few to tell on which grid"


class _Split:
    """Accumulates the parts of one tensor's error over samples and steps."""

    def __init__(
        self, reference: Recording, backend: Recording, entry: PlannedNode, node: Node, replays: OtherReplays
    ) -> None:
        self._reference, self._backend = reference, backend
        self._entry, self._node, self._replays = entry, node, replays
        self._constants_known = replays.alike or replays.as_reference is not None
        self._form, self._opset = real_form(node, backend.graph.opset)
        pair, quant = entry.pair, entry.quant
        self._view = pair.backend_view
        self._span = uniform_span(quant)
        self._folded = folded_clamp(reference, backend, entry)
        self._whole_off: int | None = None
        if entry.whole and (replays.exact or replays.substitute is None):
            self._whole_off = int(replays.substitute is None and rounds_to_integers(self._form))
        self._reference_span = span_before(reference.graph, pair.reference)
        self._reference_span_after = span_after(reference, pair.reference)
        self._reference_codes = reference_codes(reference.graph, backend.graph, entry)
        self._telling = replays.telling
        # Limits judge the backend against real arithmetic: what the codes of either side cut off is no error of the
        # node, nor is what the reference itself rounds.
        saturates = any(span != (None, None) for span in (self._span, self._reference_span))
        self._judged_apart = saturates or replays.reads_equal is not None
        self._parts: dict[int, _Part] = {}
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
        ours = self._backend.load(entry.tensor, *place)
        if is_free_scale(self._form, entry.tensor, values, ours):
            replayed = ours
        if self._folded is not None and replayed.size == ours.size:
            replayed = held_as_recorded(replayed, dequantize(ours, entry.quant), self._folded)
        replayed = held(replayed, clamp_of(self._view))
        if not same_elements(replayed.shape, ours.shape):
            raise KernelError(f"the replay gives shape {replayed.shape} and the recording has {ours.shape}")
        part = self._parts.setdefault(sample, self._new_part())
        theirs = self._reference.load(entry.reference_tensor, *place)
        _, shown = in_one_order(theirs, entry.pair.reference_view, ours, self._view)
        theirs, turned = in_one_order(theirs, entry.pair.reference_view, replayed, self._view)
        own = self._add_parts(part, (theirs, turned, shown), place)
        grid = self._grid_of(ours, values)
        if grid is not None:
            self._add_on_grid(part, grid, values, (replayed, ours), place)
            return
        self._undecided = self._undecided or (entry.quant is None and are_few(ours, self._telling))
        self._add_judged(part, (replayed, ours), own if turned is replayed and shown is ours else None, place)
        if self._span != (None, None):
            self._add_fit(part, replayed, place)
        elif entry.whole:
            part.tied += picks_of_equals(self._form, values, replayed, ours)
        elif entry.quant is None:
            self._add_rounding(part, values, replayed, ours, place)

    def _grid_of(self, ours: np.ndarray, values: Mapping[str, np.ndarray]) -> Grid | None:
        """Return the grid of codes of which nobody stated the scale; None of other values.

        Args:
            ours: The tensor's values at some sample and step.
            values: What its node reads there.
        """
        entry = self._entry
        if self._off_grid or not self._telling or entry.whole or entry.quant is not None or not self._judged_apart:
            return None
        if self._grid is None:
            places = [*recorded_places(self._reference, self._backend, entry)]
            self._off_grid = lies_on_no_grid(ours) or format_of(ours, read=values.values()) is not None
            if not self._off_grid:
                self._grid = grid_of_codes(lambda: (self._backend.load(entry.tensor, *place) for place in places))
                self._off_grid = self._grid is None
        return self._grid

    def _add_on_grid(
        self,
        part: _Part,
        grid: Grid,
        values: Mapping[str, np.ndarray],
        pair: tuple[np.ndarray, np.ndarray],
        place: tuple[int, int],
    ) -> None:
        """Add the arithmetic error of values on a grid, beyond whose ends nothing is known, and what rounding explains.

        Args:
            part: Where it is added.
            grid: The grid.
            values: What the node reads.
            pair: The replay, and the backend's values.
            place: Sample and step.
        """
        replayed, ours = pair
        shown = np.clip(replayed, grid.low, grid.high)
        noise = weight_noise(self._form, values, self._opset)
        part.arithmetic_unsaturated.update(shown, ours, sample=place[0])
        part.formats.add(grid_name(grid))
        part.allowed += allowed_error(self._form, values, replayed, self._opset, FLOAT32_UNIT_ROUNDOFF) ** 2
        part.allowed += allowed_squares(grid, ours.size, noise)
        part.unexplained_elements += beyond_steps(grid, shown, ours, noise)

    def _add_judged(
        self, part: _Part, values: tuple[np.ndarray, np.ndarray], own: _Own | None, place: tuple[int, int]
    ) -> None:
        """Add the arithmetic error that limits are held against, which is the whole of it where nothing is cut off.

        Args:
            part: Where it is added.
            values: The replay, and the backend's values.
            own: The arithmetic error of the same values; None if that is of others.
            place: Sample and step.
        """
        if not self._judged_apart:
            return
        replayed, ours = values
        if own is not None and own.replayed is replayed and own.error.reference_lies_in(self._span):
            part.arithmetic_unsaturated.merge(own.error)
        else:
            part.arithmetic_unsaturated.update(replayed, ours, sample=place[0])

    def _add_rounding(
        self,
        part: _Part,
        values: Mapping[str, np.ndarray],
        replayed: np.ndarray,
        ours: np.ndarray,
        place: tuple[int, int],
    ) -> None:
        """Add what rounding and the range of the format account for, in whatever the values of a run are kept."""
        short = format_of(ours, read=values.values()) or held_in_declared(self._backend, ours)
        part.formats.add(None if short is None else short.name)
        unit = max(unit_roundoff(ours.dtype) if short is None else short.unit, declared_unit(self._backend))
        allowed = allowed_error(self._form, values, replayed, self._opset, unit)
        part.allowed += allowed**2
        part.allowed += (unit * finite_norm(ours)) ** 2
        normal = None
        if short is not None:
            normal = short.normal
            part.allowed += (short.subnormal / 2) ** 2 * ours.size  # below the normal numbers all steps are alike
        if short is not None or ours.dtype == np.float32:
            known = allowed if unit == FLOAT32_UNIT_ROUNDOFF else None
            noise = replay_noise(self._form, values, replayed, self._opset, allowed=known)
            outside, _ = out_of_range(short or SINGLE, replayed, ours, noise=noise)
            part.outside = outside if part.outside is None else part.outside.with_more(outside)
        shown = held(ours, clamp_of(self._view))
        beyond = beyond_own_terms(self._form, values, replayed, shown, unit, normal=normal)
        if beyond:  # rarely: the reference is read once more
            carried = self._carried(replayed, place)
            beyond = beyond_own_terms(self._form, values, replayed, shown, unit, carried=carried, normal=normal)
        part.unexplained_elements += beyond
        part.unexplained_elements += beyond_own_sums(
            self._form, values, replayed, shown, opset=self._opset, unit=unit, normal=normal
        )

    def _carried(self, replayed: np.ndarray, place: tuple[int, int]) -> float:
        """Return the largest finite error that comes in with a node's inputs."""
        theirs = self._reference.load(self._entry.reference_tensor, *place)
        theirs, replayed = in_one_order(theirs, self._entry.pair.reference_view, replayed, self._view)
        if not same_elements(theirs.shape, replayed.shape) or theirs.dtype.kind != "f":
            return 0.0
        with np.errstate(invalid="ignore", over="ignore"):
            off = np.abs(np.subtract(theirs.reshape(replayed.shape), replayed, dtype=np.float64))
        return float(np.max(off, where=np.isfinite(off), initial=0.0))

    def _add_parts(
        self, part: _Part, values: tuple[np.ndarray, np.ndarray, np.ndarray], place: tuple[int, int]
    ) -> _Own:
        """Add the parts that the whole error is made of, and return the arithmetic one.

        Args:
            part: Where they are added.
            values: The reference's, the replay with the backend's constants and the backend's, in one order.
            place: Sample and step.

        Raises:
            KernelError: The replay is NaN where both sides recorded numbers.
        """
        theirs, replayed, ours = values
        _check_finite(theirs, replayed, ours)
        other = self._replays
        real = None if other.as_reference is None else self._first(other.as_reference, place, replayed.shape)
        second = on_grid(replayed, self._reference_codes)  # what its codes round or cut off is no error
        first = second if real is None else on_grid(real, self._reference_codes)
        if other.reads_equal is not None and same_elements(theirs.shape, first.shape) and other.reads_equal(place):
            known = self._reference_values(theirs).reshape(first.shape)
            first, second = known, known if real is None else _carried_over(known, first, second)
        own = part.arithmetic.apart(second, ours, sample=place[0])
        part.arithmetic.merge(own)
        if self._span != (None, None):
            if own.reference_lies_in(self._span):
                part.clipping.add_unchanged(own)
            else:
                part.clipping.update(second, second, sample=place[0])
        part.propagated.update(theirs, first, sample=place[0])
        if self._constants_known:
            if first is second and own.reference_lies_in((None, None)):
                part.constants.add_unchanged(own)
            else:
                part.constants.update(first, second, sample=place[0])
        if real is not None:
            part.introduced.update(first, ours, sample=place[0])
        return _Own(replayed=second, error=own)

    def _reference_values(self, theirs: np.ndarray) -> np.ndarray:
        """Return the reference's real values of its stored elements, in the order that the pair is compared in."""
        pair = self._entry.pair
        quant = turned_quant(self._reference.graph.tensors[pair.reference].quant, pair.reference_view)
        return held(dequantize(theirs, quant), clamp_of(pair.reference_view))

    def _first(self, replay: SubstituteReplay, place: tuple[int, int], shape: tuple[int, ...]) -> np.ndarray:
        """Replay the reference's nodes.

        Raises:
            _NoReferenceError: They cannot be replayed, or give another shape.
        """
        try:
            made = replay(place)
        except (KernelError, NotRecordedError) as error:
            raise _NoReferenceError from error
        if not same_elements(made.shape, shape):
            raise _NoReferenceError
        return held(made.reshape(shape), clamp_of(self._view))

    def _add_fit(self, part: _Part, replayed: np.ndarray, place: tuple[int, int]) -> None:
        """Add what holding the reference's values to the backend's codes makes of them, whatever was computed.

        What a mask hides from a Softmax, or a Relu or Clip drops next, counts for nothing: beside it, the rest would
        not.
        """
        sample = place[0]
        quant, name, graph = self._entry.quant, self._entry.reference_tensor, self._reference.graph
        theirs = dequantize(self._reference.load(name, *place), graph.tensors[name].quant)
        axes = None if self._entry.pair.reference_view else softmax_axes(graph, name, theirs.ndim)
        theirs, replayed = in_one_order(theirs, self._entry.pair.reference_view, replayed, self._view)
        if quant is None or theirs.dtype.kind != "f":
            return
        theirs = held(theirs, self._reference_span_after)
        codes = dequantize(quantize(theirs, quant), quant)
        if axes is not None and theirs.size:
            counts = which_count(theirs, codes, axes)
            theirs, codes, replayed = theirs[counts], codes[counts], replayed.reshape(counts.shape)[counts]
            part.arriving = part.arriving or ErrorAccumulator()
            part.arriving.update(theirs, replayed, sample=sample)
            part.hidden += int(counts.size - np.count_nonzero(counts))
        part.saturation_error.add(theirs, np.clip(theirs, *self._span))
        part.quantization_error.add(theirs, codes)

    def _add_substitute(self, place: tuple[int, int], replayed: np.ndarray) -> None:
        """Add a replay by the reference's own nodes, which is in the model's order of dimensions."""
        entry, sample = self._entry, place[0]
        theirs = self._reference.load(entry.reference_tensor, *place)
        stored = self._backend.load(entry.tensor, *place)
        theirs, ours = in_one_order(theirs, entry.pair.reference_view, stored, self._view)
        if not same_elements(replayed.shape, ours.shape):
            raise KernelError(f"the replay gives shape {replayed.shape} and the recording has {ours.shape}")
        part = self._parts.setdefault(sample, self._new_part())
        if (
            self._reference_span != (None, None) and entry.quant is None
        ):  # where the reference's codes end, it saturates
            replayed, ours = (np.clip(array, *self._reference_span) for array in (replayed, ours))
        own = self._add_parts(part, (theirs, replayed, ours), place)
        self._add_judged(part, (replayed, ours), own if entry.quant is None else None, place)
        self._grid_of(ours, {})
        unit = max(unit_roundoff(ours.dtype), declared_unit(self._backend))
        part.allowed += (segment_share(unit) * finite_norm(replayed)) ** 2
        if self._replays.rounding_noise is not None and entry.quant is None:
            part.allowed += finite_norm(self._replays.rounding_noise(place)) ** 2

    def _new_part(self) -> _Part:
        pair, quant = self._entry.pair, self._entry.quant
        bounds, step = clamp_of(self._view), None if quant is None or quant.per_channel else float(quant.scale[0])
        turned = turned_quant(quant, self._view)
        return _Part(
            introduced=ErrorAccumulator(backend_quant=turned, backend_clamp=bounds),
            arithmetic=ErrorAccumulator(backend_quant=turned, backend_clamp=bounds),
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
        """Return what was accumulated."""
        samples = {sample: self._given(part) for sample, part in self._parts.items()}
        if len(samples) == 1:
            return replace(*samples.values(), samples=MappingProxyType(samples))
        total = self._new_part()
        for part in self._parts.values():
            total.merge(part)
        return replace(self._given(total), samples=MappingProxyType(samples))

    def _given(self, part: _Part) -> Attribution:
        whole = part.arithmetic if self._replays.as_reference is None else part.introduced
        introduced, propagated = whole.stats(), part.propagated.stats()
        if self._replays.substitute is not None and self._entry.quant is not None:
            # the reference's weights are not rounded to codes: what a clean node introduces here is not known
            return Attribution(introduced=introduced, propagated=propagated)
        arithmetic = part.arithmetic.stats()
        if self._undecided or (self._replays.substitute is not None and self._grid is not None):
            why = _TOO_FEW if self._undecided else _UNSAID
            return Attribution(introduced=introduced, propagated=propagated, reason=why, undecided=self._undecided)
        return Attribution(
            introduced=introduced,
            propagated=propagated,
            constants=part.constants.stats() if self._constants_known else None,
            arithmetic=arithmetic,
            clipping=None if self._span == (None, None) else part.clipping.stats(),
            arithmetic_unsaturated=part.arithmetic_unsaturated.stats() if self._judged_apart else arithmetic,
            saturation_error=None if self._span == (None, None) else part.saturation_error,
            quantization_error=None if self._span == (None, None) else part.quantization_error,
            arriving=None if part.arriving is None else part.arriving.stats(),
            hidden=part.hidden,
            whole_off=self._whole_off,
            tied=part.tied,
            short=next(iter(part.formats)) if len(part.formats) == 1 else None,
            outside=part.outside if len(part.formats) == 1 else None,
            allowed=math.sqrt(part.allowed) if self._entry.quant is None else None,
            unexplained_elements=part.unexplained_elements,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Own:
    """The arithmetic error of one sample and step, and the replay that it is an error of."""

    replayed: np.ndarray
    error: ErrorAccumulator


@dataclass(slots=True, kw_only=True)
class _Part:
    """Sums over one sample, or over all; `allowed` is a squared norm."""

    introduced: ErrorAccumulator
    constants: ErrorAccumulator
    arithmetic: ErrorAccumulator
    clipping: ErrorAccumulator
    arithmetic_unsaturated: ErrorAccumulator
    propagated: ErrorAccumulator
    saturation_error: CodeLoss = field(default_factory=CodeLoss)
    quantization_error: CodeLoss = field(default_factory=CodeLoss)
    arriving: ErrorAccumulator | None = None
    hidden: int = 0
    tied: int = 0
    allowed: float = 0.0
    unexplained_elements: int = 0
    formats: set[str | None] = field(default_factory=set)
    outside: OutOfRange | None = None

    def merge(self, other: _Part) -> None:
        """Add what another part has seen."""
        for name in (*PARTS, "arithmetic_unsaturated", "saturation_error", "quantization_error"):
            getattr(self, name).merge(getattr(other, name))
        if other.arriving is not None:
            self.arriving = self.arriving or ErrorAccumulator()
            self.arriving.merge(other.arriving)
            self.hidden += other.hidden
        self.allowed += other.allowed
        self.tied += other.tied
        self.formats |= other.formats
        if other.outside is not None:
            self.outside = other.outside if self.outside is None else self.outside.with_more(other.outside)
        self.unexplained_elements += other.unexplained_elements


def _carried_over(known: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return values with the difference between two replays: of integers and booleans, the second where they differ."""
    if known.dtype.kind != "f":
        return np.where(first == second, known, second)
    return np.asarray(known + difference(second, first).astype(known.dtype))


def reference_self_check(reference: Recording, entry: PlannedNode) -> Attribution:
    """Split the difference between a reference tensor and itself: its node introduces what propagation takes back.

    A node of which all that it does was said introduces rounding alone.

    Args:
        reference: The reference run.
        entry: What is compared with the tensor.
    """
    name = entry.reference_tensor
    pair = replace(entry.pair, backend=name, reference_view=None, backend_view=None)
    entry = replace(entry, pair=pair, quant=reference.graph.tensors[name].quant)
    return attribute(reference, reference, entry, OtherReplays(alike=True))
