"""Judges tensors that a backend computes with codes of a scale chosen at run time, however many nodes do that.

Three results are held against each other: what the reference's nodes make of the backend's inputs, what the backend's
own nodes would make of them on real numbers, and what was recorded. Between the first two lie weights that were rounded
to codes, or that are wrong; between the last two, data that were rounded.

Rounding data to codes makes errors that a wrong row can hide in. But the codes are there, or follow from the data: the
sums that they give are whole numbers, of which there is one right value each, and what scales them rounds once. So each
node whose inputs were recorded is computed as it is, codes and all, and its own elements are compared with that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from types import MappingProxyType

import numpy as np

from qdebug.arithmetic.presets import other_sums
from qdebug.arithmetic.reproduce import ReproductionCheck
from qdebug.compare.align.layouts import in_reference_order, plain_shape
from qdebug.compare.align.pairs import clamp_of
from qdebug.compare.attribute.attribute import Attribution, attribute
from qdebug.compare.attribute.backend_replay import inputs_of, replay_own
from qdebug.compare.attribute.band import beyond_own_terms, finite_norm, minus
from qdebug.compare.attribute.code_spans import held, span_before, uniform_span
from qdebug.compare.attribute.plan import PlannedNode, recorded_places
from qdebug.compare.attribute.reference_replay import ReferenceReplay, exceeds
from qdebug.compare.attribute.segments import Segment
from qdebug.compare.graph_checks.constants import coarse_constant
from qdebug.compare.graph_checks.differences import GraphDifferences
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole, apart
from qdebug.errors import KernelError, NotRecordedError
from qdebug.model import Node, Recording, operators
from qdebug.model.thresholds.attribution import (
    DISTURBANCE_HALF_STEPS,
    DYNAMIC_TIE_REL_DISTANCE,
    DYNAMIC_WRONG_MAX_SHARE,
)
from qdebug.model.thresholds.rounding import ELEMENTWISE_ROUNDOFFS, FLOAT32_UNIT_ROUNDOFF, LSB_SLACK
from qdebug.model.thresholds.verdict import CODES_MIN_SQNR, DERIVED_LSB
from qdebug.numerics.accumulate import same_elements
from qdebug.numerics.affine import dequantize
from qdebug.replay.blockwise_weight import packed_inputs
from qdebug.replay.data_codes import chosen_codes, roundings
from qdebug.replay.extents import recorded_room
from qdebug.replay.precision import limits
from qdebug.replay.real_form import real_form
from qdebug.replay.registry import Moved, has_kernel, run_node
from qdebug.replay.segment import offsets, run_form, run_real, spread
from qdebug.replay.variant import Arithmetic

__all__ = ["DynamicCheck", "lost_to_rounding"]

_SEED = 20250412

_Step = tuple[Node, int, int]
"""A node some of whose elements its recorded inputs do not account for, how many, and of how many.

Where they are half or fewer, the arithmetic is known: another one would change most of them.
"""


class DynamicCheck:
    """Judges one compared tensor.

    Args:
        replays: Replays the reference's nodes on what the backend recorded.
        differences: What the two graphs declare.
        reproducer: Looks for the arithmetic of the backend's nodes.
        entry: The compared tensor.
        segment: What leads to it in either graph.
    """

    def __init__(
        self,
        replays: ReferenceReplay,
        differences: GraphDifferences,
        reproducer: ReproductionCheck,
        entry: PlannedNode,
        segment: Segment,
    ) -> None:
        self._replays, self._differences, self._be = replays, differences, replays.be
        self._reference, self._backend, self._reproducer = replays.ref.recording, replays.be.recording, reproducer
        self._entry, self._segment, self._last = entry, segment, segment.own[-1]

    @cached_property
    def applies(self) -> bool:
        """Whether the backend's nodes compute with codes of a scale chosen at run time, and can be replayed.

        The scale and the zero point themselves are computed like any other value.
        """
        if not any(operators.of(node.op).takes_codes for node in self._segment.own):
            return False
        if operators.of(self._last.op).gives_scale and self._entry.tensor in self._last.outputs[1:]:
            return False
        for node in self._segment.own:
            form, _ = real_form(node, self._backend.graph.opset)
            if not operators.of(node.op).takes_codes and not has_kernel(form.op, form.domain):
                return False
        return True

    def wrong(self, places: Iterable[tuple[int, int]]) -> Finding | None:
        """Find the node that gives some elements that its recorded inputs do not account for, though most are right.

        However small their error is beside what rounding the data makes: what is right follows from the codes.
        """
        found = filter(None, map(self._first_wrong, places))
        return next((_wrong(step, self._last) for step in found if step[1] <= DYNAMIC_WRONG_MAX_SHARE * step[2]), None)

    def unaccounted(self, place: tuple[int, int]) -> Node | None:
        """Return the first of the segment's own nodes that its recorded inputs do not account for; None if all are."""
        step = self._first_wrong(place)
        return None if step is None else step[0]

    @cached_property
    def limited_sums(self) -> str | None:
        """How products are added in fewer than 32 bits, in words, if that gives what exact sums do not; None if not."""
        found: str | None = None
        for place in recorded_places(self._reference, self._backend, self._entry):
            for node in self._segment.own:
                exact, known = _counted_wrong(self._backend, node, place)
                if exact is not None and known is None:
                    return None
                found = found or known
        return found

    def _first_wrong(self, place: tuple[int, int]) -> _Step | None:
        """Return the first of the segment's own nodes that its recorded inputs do not account for; None if all are.

        A node whose inputs or outputs were not recorded, or that has no kernel, is passed over.
        """
        for node in self._segment.own:
            step, known = _counted_wrong(self._backend, node, place)
            if step is not None and known is None and not self._is_known(node):
                return step
        return None

    def _is_known(self, node: Node) -> bool:
        """Tell whether a known arithmetic gives a node's codes bit for bit, which can hardly be chance."""
        output = next(name for name in node.outputs if name)
        if self._backend.graph.tensors[output].quant is None:
            return False
        return self._reproducer.variant(node, output, firmly=True) is not None

    @property
    def short_sums(self) -> frozenset[str]:
        """Tensors of codes within the segment whose node is known to add products in fewer than 32 bits."""
        found = set[str]()
        for node in self._segment.own:
            name = next((each for each in node.outputs if each), "")
            if not name or self._backend.graph.tensors[name].quant is None:
                continue
            variant = self._reproducer.variant(node, name, firmly=True)
            if variant is not None and variant.limited_sums is not None:
                found.add(name)
        return frozenset(found)

    def attribution(self) -> Attribution:
        """Split the tensor's error: what is introduced is what rounding data to codes makes of it."""
        if self._raw_codes:
            found = attribute(self._reference, self._backend, self._entry)
            parts = {sample: _by_a_code(part) for sample, part in found.samples.items()}
            return replace(_by_a_code(found), samples=MappingProxyType(parts))
        return attribute(
            self._reference,
            self._backend,
            self._entry,
            substitute_replay=self._values,
            rounding_noise=self._of_data,
            instead=True,
            as_reference=partial(self._replays.values, self._entry.pair, self._segment),
        )

    @cached_property
    def _raw_codes(self) -> bool:
        """Whether the tensor is of codes that nobody gave their scale with: they are compared as they are."""
        entry, last = self._entry, self._last
        place = next(recorded_places(self._reference, self._backend, entry), (0, 0))
        chosen = operators.of(last.op).gives_scale and entry.tensor == last.outputs[0] and entry.quant is None
        return chosen and self._backend.load(entry.tensor, *place).dtype.kind in "iu"

    def _values(self, place: tuple[int, int], *, moved: Moved | None = None) -> np.ndarray:
        """Replay the backend's own nodes on real numbers.

        Args:
            place: Sample and step.
            moved: How far what is rounded to codes is moved; None leaves it.

        Returns:
            Real values in the order of dimensions that the tensor is compared in.

        Raises:
            KernelError: A node cannot be replayed.
            RecordingError: A constant or an input was not recorded.
        """
        pair, run = self._entry.pair, partial(run_real, disturbed=moved)
        shape = plain_shape(self._reference.load(pair.reference, *place).shape, pair.reference_view)
        return replay_own(self._backend, pair, self._segment, shape, place, run=run)

    def _of_data(self, place: tuple[int, int]) -> np.ndarray:
        """Estimate the error of each element that rounding data to codes makes, see `_values`."""
        values, rng = partial(self._values, place), np.random.default_rng(_SEED)
        return spread(values(), lambda: values(moved=lambda _, shape, chosen: offsets(rng, shape, 0.5 * chosen)))

    def _of_weights(self, place: tuple[int, int], *, any_scale: bool) -> np.ndarray:
        """Estimate the error of each element that rounding weights to codes makes, see `_values`.

        Args:
            place: Sample and step.
            any_scale: Of whatever scale; otherwise of none that is far larger than the weight needs.
        """
        values, rng = partial(self._values, place), np.random.default_rng(_SEED)
        half = self._half_codes(any_scale=any_scale)
        return spread(values(), lambda: values(moved=lambda name, shape, _: offsets(rng, shape, half.get(name, 0.0))))

    def _coarse(self) -> tuple[str, int, int] | None:
        """Return the weight whose scale is far larger than its values need, how many codes it uses and of how many."""
        exact, plain = (self._half_codes(any_scale=flag) for flag in (True, False))
        for name in exact:
            levels = self._replays.backend.levels(name)
            if levels is not None and np.any(np.asarray(plain[name]) < np.asarray(exact[name])):
                return name, *levels
        return None

    def _half_codes(self, *, any_scale: bool) -> Mapping[str, np.ndarray | float]:
        """Return half a step, in codes, of each weight of the backend's own nodes."""
        found: dict[str, np.ndarray | float] = {}
        for node in self._segment.own:
            for name in node.inputs if operators.of(node.op).takes_codes else ():
                if not name or not self._be.folds(name) or not self._be.recording.has(name):
                    continue
                quant = self._be.recording.graph.tensors[name].quant
                if quant is not None:
                    whole = self._replays.backend.half_steps(name, any_scale=True)
                    half = self._replays.backend.half_steps(name, any_scale=any_scale)
                    found[name] = np.asarray(np.divide(half, 2 * whole, out=np.zeros_like(whole), where=whole > 0))
                elif self._be.recording.load(name).ndim > 1 or name in packed_inputs(node)[:1]:
                    found[name] = 0.5
        return found

    def difference(self, place: tuple[int, int]) -> Finding | None:
        """Find what the graphs declare differently, or that rounding to codes leaves too little of a result.

        Raises:
            KernelError: A node cannot be replayed.
            RecordingError: A constant or an input was not recorded.
        """
        entry, node, segment = self._entry, self._last, self._segment
        theirs, ours = self._replays.values(entry.pair, segment, place), self._values(place)
        if not same_elements(ours.shape, theirs.shape):
            return self._differences.difference(entry, node, segment)
        span = span_before(self._reference.graph, entry.reference_tensor)
        ours = held(ours.reshape(theirs.shape), clamp_of(entry.pair.backend_view), span)
        theirs = held(theirs, span)
        difference = minus(theirs, ours)
        known = self._replays.rounding_noise(entry.pair, segment, place)

        def allowed(*, any_scale: bool) -> np.ndarray:
            weights = self._of_weights(place, any_scale=any_scale)
            return np.asarray(np.hypot(known, weights.reshape(known.shape)))

        most = allowed(any_scale=False)
        likely = exceeds(difference, most / DISTURBANCE_HALF_STEPS)
        if likely and exceeds(difference, most):
            rounded = self._replays.with_rounded_weight(entry.pair, segment, place)
            if rounded is None or exceeds(minus(held(rounded, span), ours), most):
                coarse = self._coarse()
                if coarse is None or exceeds(difference, allowed(any_scale=True)):
                    return self._differences.difference(entry, node, segment)
                return coarse_constant(node, "weight", *coarse)
        if likely and self._differences.constants.weight_is_other(segment):
            return self._differences.difference(entry, node, segment)
        if self._raw_codes:
            return None
        stored = dequantize(self._backend.load(entry.tensor, *place), entry.quant)
        recorded = in_reference_order(stored, entry.pair.backend_view, theirs.shape).reshape(theirs.shape)
        whole = minus(theirs, held(recorded, clamp_of(entry.pair.backend_view), span))
        lost = lost_to_rounding(entry, theirs, difference, "weights")
        lost = lost or lost_to_rounding(entry, theirs, whole, "weights and data")
        step = self._first_wrong(place) if lost else None
        return lost if step is None else _wrong(step, node)


def _by_a_code(part: Attribution) -> Attribution:
    """Allow each element of a tensor of codes to be off by one, which side of a tie it is on."""
    return part if part.introduced is None else replace(part, allowed=math.sqrt(part.introduced.count))


def lost_to_rounding(entry: PlannedNode, result: np.ndarray, error: np.ndarray, what: str) -> Finding | None:
    """Find whether rounding to codes leaves too little of a result; None where enough is left, or there was none.

    Args:
        entry: The compared tensor.
        result: The result without rounding.
        error: The error that rounding makes.
        what: What is rounded.
    """
    signal, noise = finite_norm(result), finite_norm(error)
    left = 20 * math.log10(signal / noise) if signal and noise else math.inf
    if not left < CODES_MIN_SQNR:
        return None
    level = apart(left, CODES_MIN_SQNR)
    return Finding(
        kind=FindingKind.SCALE,
        role=FindingRole.COST,
        node=entry.node,
        sentence=f"with {what} rounded to codes, its result has an SQNR of {level} dB, below {CODES_MIN_SQNR:g} dB",
        amount=left,
        limit=CODES_MIN_SQNR,
        unit="dB",
    )


def _wrong(step: _Step, last: Node) -> Finding:
    """Return the finding that one node of a part does not give what its inputs account for."""
    node, wrong, count = step
    what = "sums" if operators.of(node.op).sums_codes else "elements"
    who = "it" if node is last else f"{node.op} {node.name!r}"
    return Finding(
        kind=FindingKind.ARITHMETIC,
        role=FindingRole.DIFFERENCE,
        node=node.name,
        sentence=f"{who} gives {wrong} of {count} {what} that are not those of its inputs",
        amount=float(wrong),
        limit=0.0,
        unit="elements",
    )


def _counted_wrong(recording: Recording, node: Node, place: tuple[int, int]) -> tuple[_Step | None, str | None]:
    """Count what a node's recorded inputs do not account for; and say by which sums in few bits they do, if by any.

    Returns:
        The count, None where all is right or that cannot be told; and the way of adding products in words.
    """
    outputs = [name for name in node.outputs if name and recording.has(name, *place)]
    if not outputs or recording.graph.is_constant(outputs[0]) or not (node.inputs and node.inputs[0]):
        return None, None
    codes = operators.of(node.op).takes_codes
    try:
        wrong = (_wrong_codes if codes else _wrong_elements)(recording, node, outputs[0], place)
        if not wrong:
            return None, None
        ways = other_sums().items() if codes else ()
        known = (words for words, how in ways if not _wrong_codes(recording, node, outputs[0], place, arithmetic=how))
        return (node, wrong, recording.load(outputs[0], *place).size), next(known, None)
    except (KernelError, NotRecordedError):
        return None, None


def _wrong_elements(recording: Recording, node: Node, output: str, place: tuple[int, int]) -> int:
    """Count the wrong elements of a node on real numbers; 0 where no bound of rounding is known."""
    recorded, quant = recording.load(output, *place), recording.graph.tensors[output].quant
    form, opset = real_form(node, recording.graph.opset)
    if quant is not None:
        span = uniform_span(quant)
        if span == (None, None) or quant.per_channel:
            return 0
        with recorded_room(recording, place):
            made = np.clip(run_form(node, form, opset, inputs_of(recording, form, place))[output], *span)
        stored = dequantize(recorded, quant)
        if made.shape != stored.shape:
            return 0
        off = np.nan_to_num(np.abs(minus(made, stored)), nan=0.0)
        return int(np.count_nonzero(off > (DERIVED_LSB + LSB_SLACK) * float(quant.scale[0])))
    if form is not node or recorded.dtype.kind != "f":
        return 0
    values = inputs_of(recording, form, place)
    with recorded_room(recording, place):
        made = run_node(form, values, opset)[output]
    return beyond_own_terms(form, values, made, recorded, FLOAT32_UNIT_ROUNDOFF)


def _wrong_codes(
    recording: Recording, node: Node, output: str, place: tuple[int, int], *, arithmetic: Arithmetic | None = None
) -> int:
    """Count the wrong elements of a node on codes; 0 where these are not known to the last unit."""
    row = operators.of(node.op)
    if not (row.sums_codes or row.scales_sums or row.gives_scale) or not has_kernel(node.op, node.domain):
        return 0
    values = {name: recording.load(name, *place) for name in node.inputs if name}
    if row.gives_scale:
        return _wrong_chosen(recording, node, values[node.inputs[0]], place)
    recorded = recording.load(output, *place)
    if row.sums_codes and recorded.dtype.kind != "i":
        return 0  # shown as real values
    if not row.chooses_scale and values[node.inputs[0]].dtype.kind not in "iu":
        return 0
    counts = []
    for way in roundings(node):
        with recorded_room(recording, place):
            made = run_node(way, values, recording.graph.opset, arithmetic=arithmetic)[output]
        if made.shape != recorded.shape:
            return 0
        off = np.nan_to_num(np.abs(minus(made, recorded)), nan=0.0)  # what is not finite is judged before
        counts.append(int(np.count_nonzero(off > (0.0 if row.sums_codes else _allowed(way, values, made)))))
    return min(counts)


def _wrong_chosen(recording: Recording, node: Node, data: np.ndarray, place: tuple[int, int]) -> int:
    """Count the codes that data do not give under the scale that was recorded with them; a tie may go either way."""
    names = node.outputs[:3]
    if len(names) < 3 or not all(recording.has(name, *place) for name in names):
        return 0
    codes, scale, zero = (recording.load(name, *place) for name in names)
    if codes.dtype.kind not in "iu" or not scale.size == zero.size == 1 or not float(scale.reshape(())):
        return 0
    steps = data.astype(np.float64) / float(scale.reshape(())) + int(zero.reshape(()))
    low, high = limits(codes.dtype)
    off = np.nan_to_num(np.abs(np.clip(steps, low, high) - codes.astype(np.float64)), nan=0.0)
    return int(np.count_nonzero(off > 0.5 + DYNAMIC_TIE_REL_DISTANCE * (high - low + 1)))


def _allowed(node: Node, values: Mapping[str, np.ndarray], made: np.ndarray) -> np.ndarray:
    """Bound what scaling exact sums and adding a bias rounds, and what codes beside a tie change."""
    row = operators.of(node.op)
    name = node.inputs[row.bias] if row.bias is not None and row.bias < len(node.inputs) else ""
    bias = values[name].astype(np.float64) if name else np.zeros(())
    allowed = ELEMENTWISE_ROUNDOFFS * FLOAT32_UNIT_ROUNDOFF * (np.abs(made - bias) + np.abs(bias))
    return allowed + _by_ties(node, values) if row.chooses_scale else allowed


def _by_ties(node: Node, values: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return what each element of a product may change where data near a tie are rounded either way."""
    data, weight, scales = (values[name] for name in node.inputs[:3])
    if node.attrs.get("flatten"):
        data = data.reshape(-1, len(weight))
    _, scale, _ = chosen_codes(node.attrs, data)
    scale = np.where(scale == 0, 1.0, scale.astype(np.float64))
    steps = data.astype(np.float64) / scale
    either = np.abs(np.abs(steps - np.floor(steps)) - 0.5) <= DYNAMIC_TIE_REL_DISTANCE * np.maximum(np.abs(steps), 1)
    name = node.inputs[3] if len(node.inputs) > 3 else ""
    zero = values[name].astype(np.float64) if name else np.zeros(())
    centred = np.abs(weight.astype(np.float64) - (zero.reshape(()) if zero.size == 1 else zero))
    return np.asarray(np.matmul(either.astype(np.float64), centred) * scale * np.abs(scales.reshape(-1)))
