"""Judges tensors that a backend computes with codes of a scale chosen at run time, however many nodes do that.

Three results are held against each other: what the reference's nodes make of the backend's inputs, what the backend's
own nodes would make of them on real numbers, and what was recorded. Between the first two lie weights that were rounded
to codes, or that are wrong; between the last two, data that were rounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from qdebug.compare.align.layouts import in_reference_order, plain_shape
from qdebug.compare.align.pairs import clamp_of
from qdebug.compare.attribute.attribute import Attribution, attribute
from qdebug.compare.attribute.band import norm
from qdebug.compare.attribute.code_spans import span_before
from qdebug.compare.attribute.dynamic import WrongStep
from qdebug.compare.attribute.plan import PlannedNode, recorded_places
from qdebug.compare.attribute.reference_replay import exceeds
from qdebug.compare.attribute.segments import Segment
from qdebug.compare.graph_checks.constants import coarse_constant
from qdebug.compare.graph_checks.differences import GraphDifferences
from qdebug.compare.result.finding import Finding, FindingKind, Role
from qdebug.model import Node, Recording, operators
from qdebug.model.thresholds.attribution import DISTURBANCE_HALF_STEPS
from qdebug.model.thresholds.verdict import CODES_MIN_SQNR
from qdebug.numerics.accumulate import same_elements
from qdebug.numerics.affine import dequantize

__all__ = ["DynamicCheck", "lost_to_rounding"]


class DynamicCheck:
    """Judges tensors one by one.

    Args:
        reference: The reference run.
        backend: The backend run.
        differences: What the two graphs declare.
    """

    def __init__(self, reference: Recording, backend: Recording, differences: GraphDifferences) -> None:
        self._reference, self._backend = reference, backend
        self._differences, self._dynamic = differences, differences.dynamic

    def wrong(self, node: Node, segment: Segment, places: Iterable[tuple[int, int]]) -> Finding | None:
        """Find the node that gives some elements that its recorded inputs do not account for, though most are right.

        However small their error is beside what rounding the data makes: what is right follows from the codes.
        """
        steps = filter(None, (self._dynamic.steps.wrong(segment, place) for place in places))
        return next((_wrong_step(step, node) for step in steps if step.few), None)

    def attribution(self, entry: PlannedNode, segment: Segment) -> Attribution:
        """Split a tensor's error: what is introduced is what rounding data to codes makes of it."""
        if self._raw_codes(entry, segment):
            found = attribute(self._reference, self._backend, entry)
            parts = {sample: _by_a_code(part) for sample, part in found.samples.items()}
            return replace(_by_a_code(found), samples=MappingProxyType(parts))

        def shape(sample: int, step: int) -> tuple[int, ...]:
            theirs = self._reference.load(entry.reference_tensor, sample, step)
            return plain_shape(theirs.shape, entry.pair.reference_view)

        def replayed(sample: int, step: int) -> np.ndarray:
            return self._dynamic.values(entry.pair, segment, shape(sample, step), (sample, step))

        def rounding_noise(sample: int, step: int) -> np.ndarray:
            return self._dynamic.of_data(entry.pair, segment, shape(sample, step), (sample, step))

        return attribute(
            self._reference,
            self._backend,
            entry,
            substitute_replay=replayed,
            rounding_noise=rounding_noise,
            instead=True,
        )

    def _raw_codes(self, entry: PlannedNode, segment: Segment) -> bool:
        """Tell whether a tensor is of codes that nobody gave their scale with: they are compared as they are."""
        last = segment.own[-1]
        chosen = operators.of(last.op).gives_scale and entry.tensor == last.outputs[0] and entry.quant is None
        return chosen and self._backend.load(entry.tensor, *self._place(entry)).dtype.kind in "iu"

    def _place(self, entry: PlannedNode) -> tuple[int, int]:
        return next(recorded_places(self._reference, self._backend, entry), (0, 0))

    def difference(self, entry: PlannedNode, node: Node, segment: Segment, place: tuple[int, int]) -> Finding | None:
        """Find what the graphs declare differently, or that rounding to codes leaves too little of a result.

        Raises:
            KernelError: A node cannot be replayed.
            RecordingError: A constant or an input was not recorded.
        """
        theirs = self._differences.replays.values(entry.pair, segment, sample=place[0], step=place[1])
        ours = self._dynamic.values(entry.pair, segment, theirs.shape, place)
        if not same_elements(ours.shape, theirs.shape):
            return self._differences.difference(node, segment)
        ours = self._clamped(entry, ours.reshape(theirs.shape))
        span = span_before(self._reference.graph, entry.reference_tensor)
        if span != (None, None):
            theirs = np.clip(theirs, *span)
        difference = _minus(theirs, ours)
        known = self._differences.replays.rounding_noise(entry.pair, segment, sample=place[0], step=place[1])

        def allowed(*, any_scale: bool) -> np.ndarray:
            weights = self._dynamic.of_weights(entry.pair, segment, theirs.shape, place, any_scale=any_scale)
            return np.asarray(np.hypot(known, weights.reshape(known.shape)))

        most = allowed(any_scale=False)
        likely = exceeds(difference, most / DISTURBANCE_HALF_STEPS)
        if likely and exceeds(difference, most) and exceeds(self._beside_weight(entry, segment, ours, place), most):
            coarse = self._dynamic.coarse(segment)
            if coarse is None or exceeds(difference, allowed(any_scale=True)):
                return self._differences.difference(node, segment)
            return coarse_constant(node, "weight", *coarse)
        if likely and self._differences.constants.weight_is_other(segment):
            return self._differences.difference(node, segment)
        if self._raw_codes(entry, segment):
            return None
        lost = self._lost(entry, theirs, difference, place)
        step = self._dynamic.steps.wrong(segment, place) if lost else None
        return lost if step is None else _wrong_step(step, node)

    def _beside_weight(
        self, entry: PlannedNode, segment: Segment, ours: np.ndarray, place: tuple[int, int]
    ) -> np.ndarray:
        """Give by how much a replay is off beside what its weight's rounding makes; all of it where that is unknown."""
        theirs = self._differences.with_rounded_weight(entry.pair, segment, sample=place[0], step=place[1])
        if theirs is None:
            theirs = self._differences.replays.values(entry.pair, segment, sample=place[0], step=place[1])
        span = span_before(self._reference.graph, entry.reference_tensor)
        return _minus(theirs if span == (None, None) else np.clip(theirs, *span), ours)

    def _clamped(self, entry: PlannedNode, values: np.ndarray) -> np.ndarray:
        """Hold a replay to what clamps the recorded tensor, on either side."""
        span = span_before(self._reference.graph, entry.reference_tensor)
        for bounds in (clamp_of(entry.pair.backend_view), span):
            if bounds != (None, None):
                values = np.clip(values, *bounds)
        return values

    def _lost(
        self, entry: PlannedNode, theirs: np.ndarray, by_weights: np.ndarray, place: tuple[int, int]
    ) -> Finding | None:
        """Find whether too little is left of a result once weights and data are rounded to codes."""
        stored = self._backend.load(entry.tensor, *place)
        recorded = dequantize(stored, self._backend.graph.tensors[entry.tensor].quant)
        recorded = in_reference_order(recorded, entry.pair.backend_view, theirs.shape).reshape(theirs.shape)
        whole = _minus(theirs, self._clamped(entry, recorded))
        signal = norm(theirs)
        by_weights_alone = lost_to_rounding(entry, signal, norm(by_weights), "weights")
        return by_weights_alone or lost_to_rounding(entry, signal, norm(whole), "weights and data")


def _by_a_code(part: Attribution) -> Attribution:
    """Allow each element of a tensor of codes to be off by one, which side of a tie it is on."""
    return part if part.introduced is None else replace(part, allowed=math.sqrt(part.introduced.count))


def lost_to_rounding(entry: PlannedNode, signal: float, error: float, what: str) -> Finding | None:
    """Find whether rounding to codes leaves too little of a result; None where enough is left, or there was none.

    Args:
        entry: The compared tensor.
        signal: Norm of the result without rounding.
        error: Norm of the error that rounding makes.
        what: What is rounded.
    """
    left = 20 * math.log10(signal / error) if signal and error else math.inf
    if not left < CODES_MIN_SQNR:
        return None
    return Finding(
        kind=FindingKind.SCALE,
        role=Role.DIFFERENCE,
        node=entry.node,
        sentence=f"rounding {what} to codes leaves an SQNR of {left:.3g} dB of its result, below {CODES_MIN_SQNR:g} dB",
        amount=left,
        limit=CODES_MIN_SQNR,
        unit="dB",
    )


def _wrong_step(step: WrongStep, node: Node) -> Finding:
    """Return the finding that one node of a part does not give what its inputs account for."""
    return Finding(
        kind=FindingKind.ARITHMETIC,
        role=Role.DIFFERENCE,
        node=step.node.name,
        sentence=step.said(node),
        amount=float(step.wrong),
        limit=0.0,
        unit="elements",
    )


def _minus(theirs: np.ndarray, ours: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(np.subtract(theirs, ours, dtype=np.float64))
