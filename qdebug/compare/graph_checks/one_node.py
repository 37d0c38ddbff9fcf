"""Judges a tensor that one backend node makes: its replay against that of the reference's nodes on the same inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

from qdebug.compare.align.layouts import in_reference_order
from qdebug.compare.align.pairs import clamp_of
from qdebug.compare.attribute.attribute import Attribution
from qdebug.compare.attribute.backend_replay import inputs_of, real_values, replay
from qdebug.compare.attribute.band import finite_norm, minus
from qdebug.compare.attribute.code_spans import folded_clamp, held, held_as_recorded, span_before
from qdebug.compare.attribute.integer_tensors import rounds_nothing
from qdebug.compare.attribute.masked import softmax_axes, which_count
from qdebug.compare.attribute.reference_replay import exceeds
from qdebug.compare.graph_checks.constants import constants_are_other, other_bias
from qdebug.compare.graph_checks.differences import declared_difference, has_codes
from qdebug.compare.graph_checks.tensor_check import TensorCheck, lost_to_rounding
from qdebug.compare.graph_checks.tensor_facts import TensorFacts, one_shape
from qdebug.compare.result.finding import Finding
from qdebug.errors import KernelError
from qdebug.model import operators
from qdebug.model.recording import shape_of
from qdebug.model.thresholds.attribution import DISTURBANCE_HALF_STEPS
from qdebug.model.thresholds.checks import FOLDING_MAX_ERROR_RATIO, LIKELY_ROUNDING_BOUND_SHARE, MOVED_CODES_MAX_LSB
from qdebug.model.thresholds.rounding import LSB_SLACK, ROUNDING_SUM_FACTOR
from qdebug.model.thresholds.verdict import DERIVED_LSB
from qdebug.numerics.accumulate import same_elements
from qdebug.numerics.affine import dequantize
from qdebug.replay.real_form import real_form
from qdebug.replay.segment import moved, run_form, spread

__all__ = ["OneNode", "bias_effect", "unreplayed"]

_SEED = 20250415


class OneNode(TensorCheck):
    """Judges a tensor that one backend node makes."""

    def attribution(self) -> Attribution:
        """Replay the node; one without kernel, or of which not all was said, by the reference's nodes."""
        found = self._split()
        if found.introduced is not None:
            return found
        other = self.by_reference(rounding=True)  # who records may not know all that a node reads
        return found if other.introduced is None else other

    def why_not(self, attribution: Attribution) -> str | None:
        """Say why the node cannot be checked; None if it can, as far as is known beforehand."""
        if (said := unreplayed(self.facts, attribution)) is not None:
            return said
        if operators.of(self.node.op).takes_codes:
            return f"{self.node.op} computes with codes"
        return super().why_not(attribution)

    def effect(self, attribution: Attribution, places: Sequence[tuple[int, int]]) -> Finding | None:
        """Find what the two replays show beyond rounding of the constants, or what that leaves too little of."""
        if (found := bias_effect(self.facts, attribution, places)) is not None:
            return found
        if any(self._differs(attribution, place) for place in places):
            return declared_difference(self.facts)
        if not has_codes(self.facts):
            return None
        return next(filter(None, (self._lost(place) for place in places)), None)

    def _lost(self, place: tuple[int, int]) -> Finding | None:
        """Find whether too little is left of a product once its weights are rounded to codes."""
        facts, form = self.facts, self.facts.our_form(self.node)
        weights = [name for name in form.inputs[1:2] if name and facts.be.folds(name)]
        coded = any(facts.replays.backend.levels(name) is not None for name in weights)
        if not (operators.of(form.op).product and coded):
            return None
        theirs, ours = self._replayed(place)
        if ours.shape != theirs.shape:
            return None
        return lost_to_rounding(facts, theirs, minus(theirs, ours), "weights")

    def _replayed(self, place: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """Return what the reference's nodes and the backend's node make of the backend's inputs, in one order."""
        facts, entry = self.facts, self.facts.entry
        theirs = facts.theirs(place)
        ours = replay(facts.backend, self.node, entry.tensor, place)
        recorded = facts.backend.load(entry.tensor, *place)
        if not same_elements(ours.shape, recorded.shape):  # not all was said of what it does
            raise KernelError(f"The replay gives shape {ours.shape} and the recording has {recorded.shape}.")
        folded = folded_clamp(facts.reference, facts.backend, entry)
        ours = ours.reshape(recorded.shape)
        if folded is not None:
            ours = held_as_recorded(ours, dequantize(recorded, entry.quant), folded)
        ours = held(ours, clamp_of(entry.pair.backend_view), self._reference_span)
        theirs = held(theirs, self._reference_span)  # what only comes from the backend may lie beyond these codes
        return theirs, in_reference_order(ours, entry.pair.backend_view, theirs.shape)

    @property
    def _reference_span(self) -> tuple[float | None, float | None]:
        return span_before(self.facts.reference.graph, self.facts.entry.reference_tensor)

    def _differs(self, attribution: Attribution, place: tuple[int, int]) -> bool:
        facts, quant = self.facts, self.facts.entry.quant
        theirs, ours = self._replayed(place)
        if not one_shape(ours.shape, theirs.shape):
            return True
        ours = ours.reshape(theirs.shape)
        allowed, spread = _rounding_bound(facts, place), None
        if allowed is None:
            spread, allowed = self._as_theirs(_rounding_spread(facts, place), theirs), 0.0
        elif isinstance(allowed, np.ndarray):
            allowed = self._as_theirs(allowed, theirs)
        least = FOLDING_MAX_ERROR_RATIO * (attribution.samples.get(place[0], attribution).allowed or 0.0)

        def excess(share: float, off: np.ndarray) -> np.ndarray | None:
            """Return what lies beyond a share of the bound; None if that is nothing to speak of."""
            with np.errstate(invalid="ignore"):  # an endless bound accounts for an endless difference
                found = np.nan_to_num(np.maximum(off - share * (1 + LSB_SLACK) * allowed, 0), nan=0.0, posinf=np.inf)
            if quant is not None and quant.qmin is not None:
                lsb = MOVED_CODES_MAX_LSB if all(map(rounds_nothing, self.segment.own)) else DERIVED_LSB
                told = np.max(found, initial=0) > lsb * float(np.max(quant.scale))
            else:
                told = finite_norm(found) > least
            return found if told else None

        @cache
        def rounding_noise() -> np.ndarray:
            known = facts.rounding_noise(place)
            return known if spread is None else np.hypot(known, spread)

        def is_beyond(off: np.ndarray, share: float, half_steps: float) -> bool:
            found = excess(share, off)
            return found is not None and exceeds(found, rounding_noise() / half_steps)

        off = self._off(theirs, ours)
        if is_beyond(off, 1.0, 1.0):
            known = self._beside_weight(ours, place)
            return known is None or is_beyond(known, 1.0, 1.0)
        if excess(LIKELY_ROUNDING_BOUND_SHARE, off) is None or not constants_are_other(facts):
            return False
        known = self._beside_weight(ours, place)
        off = off if known is None else known
        return is_beyond(off, LIKELY_ROUNDING_BOUND_SHARE, DISTURBANCE_HALF_STEPS)

    def _as_theirs(self, array: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        """Bring what is known of each element of the backend's tensor into the order and shape of the reference's."""
        return in_reference_order(array, self.facts.entry.pair.backend_view, theirs.shape).reshape(theirs.shape)

    def _beside_weight(self, ours: np.ndarray, place: tuple[int, int]) -> np.ndarray | None:
        """Return by how much a replay is off beside what its weight's rounding makes; None where that is not known."""
        theirs = self.facts.with_rounded_weight(place)
        return None if theirs is None else self._off(held(theirs, self._reference_span).reshape(ours.shape), ours)

    def _off(self, theirs: np.ndarray, ours: np.ndarray) -> np.ndarray:
        """Return by how much two replays are apart, as far as the codes of the backend's tensor can tell.

        Where both lie beyond the same end of its codes, these hold nothing that tells them apart. What a mask hides
        from a Softmax counts for nothing either: a format of fewer digits holds a nearer mask.
        """
        facts, entry = self.facts, self.facts.entry
        off = np.nan_to_num(np.abs(minus(theirs, ours)), nan=0.0, posinf=np.inf)  # what is not finite is judged before
        low, high = (np.nan if end is None else end for end in span_before(facts.backend.graph, entry.tensor))
        hidden = ((theirs <= low) & (ours <= low)) | ((theirs >= high) & (ours >= high))
        if entry.pair.reference_view is None and theirs.size:
            axes = softmax_axes(facts.reference.graph, entry.reference_tensor, theirs.ndim)
            hidden |= False if axes is None else ~which_count(theirs, ours, axes)
        return np.asarray(np.where(hidden, 0.0, off))


def unreplayed(facts: TensorFacts, attribution: Attribution) -> str | None:
    """Say why the replay of a node tells nothing of its error; None if it does."""
    known = attribution.arithmetic_unsaturated is not None
    return None if known else attribution.reason or f"no bound of rounding is known for {facts.node.op}"


def bias_effect(facts: TensorFacts, attribution: Attribution, places: Sequence[tuple[int, int]]) -> Finding | None:
    """Find whether a bias in no codes is not the reference's, with more effect than rounding what is summed up."""
    if facts.entry.quant is not None:
        return None
    found = other_bias(facts)
    if found is None:
        return None
    for place in places:
        elements = math.prod(shape_of(facts.backend, facts.entry.tensor, *place))
        allowed = attribution.samples.get(place[0], attribution).allowed or 0.0
        if found[0] * math.sqrt(elements) > FOLDING_MAX_ERROR_RATIO * allowed:
            return found[1]
    return None


def _rounding_bound(facts: TensorFacts, place: tuple[int, int]) -> np.ndarray | float | None:
    """Bound what rounding the node's constants to their codes can change, in the backend's order of dimensions.

    Half a step of each weight, or its error where that is known, times the magnitude of what it meets, and half a
    step of the bias: their sum, or a few times the root of the sum of squares where that is less, since errors of
    rounding hardly ever have one sign.
    None where constants are rounded and no such bound is known.
    """
    node, half_steps = facts.node, facts.replays.backend.half_steps
    form, opset = real_form(node, facts.backend.graph.opset)
    constants = [name for name in form.inputs if name and facts.be.folds(name)]
    row = operators.of(form.op)
    if not row.product and not any(np.any(half_steps(name)) for name in constants):
        return 0.0
    if row.moves:
        return _moved_bound(facts, constants, place)
    scales = row.neutral == 1 and row.commutes
    if not (row.product or row.neutral == 0 or scales):
        return None
    main, known = facts.main, None
    if main is not None and row.product:
        known = facts.replays.weight_error(facts.their_form(main), form, facts.segment.beside(main))
    values: dict[str, np.ndarray] = {}
    rounded = False
    for slot, name in enumerate(form.inputs):
        if not name:
            continue
        if facts.be.folds(name):
            values[name] = half_steps(name) if known is None or slot != 1 else known
            rounded = rounded or bool(np.any(values[name]))
        elif slot > 1 or row.adds:  # what a constant is added to does not scale its rounding
            values[name] = np.zeros_like(real_values(facts.backend, name, place))
        else:
            values[name] = np.abs(real_values(facts.backend, name, place))
    if not rounded:
        return 0.0
    if row.adds:
        return np.asarray(sum(values[name] for name in form.inputs if name))
    worst = run_form(node, form, opset, values)[form.outputs[0]]
    if not row.product:
        return worst
    squares = run_form(node, form, opset, {name: array**2 for name, array in values.items()})[form.outputs[0]]
    return np.asarray(np.minimum(worst, ROUNDING_SUM_FACTOR * np.sqrt(squares)))


def _moved_bound(facts: TensorFacts, constants: Sequence[str], place: tuple[int, int]) -> np.ndarray:
    """Return the change by rounded constants in what a node only moves: half a step wherever one of them goes."""
    form, opset = real_form(facts.node, facts.backend.graph.opset)
    values: dict[str, np.ndarray] = {}
    for name in filter(None, form.inputs):
        values[name] = real_values(facts.backend, name, place)
        if values[name].dtype.kind == "f":  # indices and extents stay
            rounded = facts.replays.backend.half_steps(name) if name in constants else np.zeros((), np.float32)
            values[name] = np.broadcast_to(rounded, values[name].shape)
    return run_form(facts.node, form, opset, values)[form.outputs[0]]


def _rounding_spread(facts: TensorFacts, place: tuple[int, int]) -> np.ndarray:
    """Estimate what rounding a node's constants makes of one of its outputs, where `_rounding_bound` knows no bound."""
    node, tensor = facts.node, facts.entry.tensor
    form, opset = real_form(node, facts.backend.graph.opset)
    values = inputs_of(facts.backend, form, place)
    half = {
        name: facts.replays.backend.half_steps(name)
        for name, array in values.items()
        if facts.be.folds(name) and array.dtype.kind == "f" and name in operators.valued_inputs(form)
    }
    rng = np.random.default_rng(_SEED)

    def replayed() -> np.ndarray:
        disturbed = {name: moved(rng, array, half.get(name, 0.0)) for name, array in values.items()}
        return run_form(node, form, opset, disturbed)[tensor]

    return spread(run_form(node, form, opset, values)[tensor], replayed)
