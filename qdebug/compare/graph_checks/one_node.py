"""Judges a tensor of a single backend node by comparing its replay with that of the reference's nodes."""

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
from qdebug.compare.attribute.code_spans import clamp_unless_recorded_unclamped, clip_in_turn, folded_clamp, span_before
from qdebug.compare.attribute.integer_tensors import rounds_nothing
from qdebug.compare.attribute.masked import is_relevant_to_softmax, softmax_axes
from qdebug.compare.attribute.reference_replay import exceeds
from qdebug.compare.graph_checks.constants import find_different_bias, has_other_constant
from qdebug.compare.graph_checks.differences import declared_difference, has_codes
from qdebug.compare.graph_checks.tensor_check import TensorCheck, find_rounding_loss
from qdebug.compare.graph_checks.tensor_facts import TensorFacts, is_same_shape_but_ones
from qdebug.compare.result.finding import Finding
from qdebug.errors import KernelError
from qdebug.model import operators
from qdebug.model.recording import shape_of
from qdebug.model.thresholds.attribution import DISTURBANCE_HALF_STEPS
from qdebug.model.thresholds.checks import FOLDING_MAX_ERROR_RATIO, LIKELY_ROUNDING_BOUND_SHARE, MOVED_CODES_MAX_LSB
from qdebug.model.thresholds.rounding import LSB_SLACK, ROUNDING_SUM_FACTOR
from qdebug.model.thresholds.verdict import DERIVED_LSB
from qdebug.numerics.accumulate import has_same_elements
from qdebug.numerics.affine import dequantize
from qdebug.numerics.short_formats import format_of
from qdebug.replay.precision import widen
from qdebug.replay.real_form import real_form
from qdebug.replay.segment import disturb_values, estimate_spread, run_form

__all__ = ["OneNode", "bias_effect", "why_replay_is_inconclusive"]

_SEED = 20250415


class OneNode(TensorCheck):
    """Judges a tensor computed by a single backend node."""

    def attribution(self) -> Attribution:
        """Replay the node, or the reference's nodes if it has no kernel or its description is incomplete."""
        own_attribution = self._split()
        if own_attribution.introduced is not None:
            return own_attribution
        by_reference = self.by_reference(rounding=True)  # a harness may not record all inputs of a node
        return own_attribution if by_reference.introduced is None else by_reference

    def why_check_is_impossible(self, attribution: Attribution) -> str | None:
        """Return why the node cannot be checked, or None if it can, as far as is known in advance."""
        if (reason := why_replay_is_inconclusive(self.facts, attribution)) is not None:
            return reason
        if operators.of(self.node.op).takes_codes:
            return f"{self.node.op} computes with codes"
        return super().why_check_is_impossible(attribution)

    def effect(self, attribution: Attribution, places: Sequence[tuple[int, int]]) -> Finding | None:
        """Find a difference between the replays beyond the rounding of constants, or a loss by that rounding."""
        if (finding := bias_effect(self.facts, attribution, places)) is not None:
            return finding
        if any(self._differs(attribution, place) for place in places):
            return declared_difference(self.facts)
        if not has_codes(self.facts):
            return None
        return next(filter(None, (self._rounding_loss(place) for place in places)), None)

    def _rounding_loss(self, place: tuple[int, int]) -> Finding | None:
        """Find a product that loses too much by quantizing its weights."""
        facts, form = self.facts, self.facts.backend_form(self.node)
        weights = [name for name in form.inputs[1:2] if name and facts.be.folds(name)]
        coded = any(facts.replays.backend.levels(name) is not None for name in weights)
        if not (operators.of(form.op).product and coded):
            return None
        reference_values, backend_values = self._replay_both(place)
        if backend_values.shape != reference_values.shape:
            return None
        return find_rounding_loss(facts, reference_values, minus(reference_values, backend_values), "weights")

    def _replay_both(self, place: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the outputs of both sides' nodes on the backend's inputs, in the reference's order."""
        facts, entry = self.facts, self.facts.entry
        reference_values = facts.reference_replay(place)
        backend_values = replay(facts.backend, self.node, entry.tensor, place)
        recorded = facts.backend.load(entry.tensor, *place)
        if not has_same_elements(backend_values.shape, recorded.shape):  # the recording lacks attributes of this node
            raise KernelError(
                f"The replay has shape {backend_values.shape}, but the recorded tensor has {recorded.shape}."
            )
        clamp = folded_clamp(facts.reference, facts.backend, entry)
        backend_values = backend_values.reshape(recorded.shape)
        if clamp is not None:
            backend_values = clamp_unless_recorded_unclamped(backend_values, dequantize(recorded, entry.quant), clamp)
        backend_values = clip_in_turn(backend_values, clamp_of(entry.pair.backend_view), self._reference_span)
        # The reference's nodes, replayed on the backend's inputs, may exceed the range of the reference's codes.
        reference_values = clip_in_turn(reference_values, self._reference_span)
        return reference_values, in_reference_order(backend_values, entry.pair.backend_view, reference_values.shape)

    @property
    def _reference_span(self) -> tuple[float | None, float | None]:
        return span_before(self.facts.reference.graph, self.facts.entry.reference_tensor)

    def _differs(self, attribution: Attribution, place: tuple[int, int]) -> bool:
        facts, quant = self.facts, self.facts.entry.quant
        reference_values, backend_values = self._replay_both(place)
        if not is_same_shape_but_ones(backend_values.shape, reference_values.shape):
            return True
        backend_values = backend_values.reshape(reference_values.shape)
        allowed, spread = _rounding_bound(facts, place), None
        if allowed is None:
            spread, allowed = self._in_reference_shape(_rounding_spread(facts, place), reference_values), 0.0
        elif isinstance(allowed, np.ndarray):
            allowed = self._in_reference_shape(allowed, reference_values)
        min_difference = FOLDING_MAX_ERROR_RATIO * _rounding_of_result(facts, attribution, place)

        def find_excess(share: float, magnitude: np.ndarray) -> np.ndarray | None:
            """Return the excess over a share of the bound, or None if it is negligible."""
            with np.errstate(invalid="ignore"):  # inf - inf: an infinite bound allows any difference
                beyond = np.nan_to_num(
                    np.maximum(magnitude - share * (1 + LSB_SLACK) * allowed, 0), nan=0.0, posinf=np.inf
                )
            if quant is not None and quant.qmin is not None:
                lsb = MOVED_CODES_MAX_LSB if all(map(rounds_nothing, self.segment.own)) else DERIVED_LSB
                is_notable = np.max(beyond, initial=0) > lsb * float(np.max(quant.scale))
            else:
                is_notable = finite_norm(beyond) > min_difference
            return beyond if is_notable else None

        @cache
        def rounding_noise() -> np.ndarray:
            noise = facts.rounding_noise(place)
            return noise if spread is None else np.hypot(noise, spread)

        def is_beyond(magnitude: np.ndarray, share: float, half_steps: float) -> bool:
            beyond = find_excess(share, magnitude)
            return beyond is not None and exceeds(beyond, rounding_noise() / half_steps)

        difference = self._difference(reference_values, backend_values)
        if is_beyond(difference, 1.0, 1.0):
            without_weight = self._difference_without_weight_rounding(backend_values, place)
            return without_weight is None or is_beyond(without_weight, 1.0, 1.0)
        if find_excess(LIKELY_ROUNDING_BOUND_SHARE, difference) is None or not has_other_constant(facts):
            return False
        without_weight = self._difference_without_weight_rounding(backend_values, place)
        difference = difference if without_weight is None else without_weight
        return is_beyond(difference, LIKELY_ROUNDING_BOUND_SHARE, DISTURBANCE_HALF_STEPS)

    def _in_reference_shape(self, array: np.ndarray, reference_values: np.ndarray) -> np.ndarray:
        """Return a backend array in the order and shape of the reference's."""
        shape = reference_values.shape
        return in_reference_order(array, self.facts.entry.pair.backend_view, shape).reshape(shape)

    def _difference_without_weight_rounding(
        self, backend_values: np.ndarray, place: tuple[int, int]
    ) -> np.ndarray | None:
        """Return the difference if both replays use the backend's rounded weight, or None if that is not possible."""
        reference_values = self.facts.with_rounded_weight(place)
        if reference_values is None:
            return None
        return self._difference(
            clip_in_turn(reference_values, self._reference_span).reshape(backend_values.shape), backend_values
        )

    def _difference(self, reference_values: np.ndarray, backend_values: np.ndarray) -> np.ndarray:
        """Return the magnitude of the difference between two replays, as far as the backend's codes can show it.

        Elements that exceed the same end of the code range on both sides count as equal. So do elements that a mask
        hides from a Softmax, because a shorter format has a different mask value.
        """
        facts, entry = self.facts, self.facts.entry
        # Another check judges non-finite values.
        difference = np.nan_to_num(np.abs(minus(reference_values, backend_values)), nan=0.0, posinf=np.inf)
        low, high = (np.nan if end is None else end for end in span_before(facts.backend.graph, entry.tensor))
        hidden = ((reference_values <= low) & (backend_values <= low)) | (
            (reference_values >= high) & (backend_values >= high)
        )
        if entry.pair.reference_view is None and reference_values.size:
            axes = softmax_axes(facts.reference.graph, entry.reference_tensor, reference_values.ndim)
            hidden |= False if axes is None else ~is_relevant_to_softmax(reference_values, backend_values, axes)
        return np.asarray(np.where(hidden, 0.0, difference))


def why_replay_is_inconclusive(facts: TensorFacts, attribution: Attribution) -> str | None:
    """Return why the replay of a node is not conclusive about its error, or None if it is."""
    has_bound = attribution.arithmetic_unsaturated is not None
    return None if has_bound else attribution.reason or f"no rounding bound is known for {facts.node.op}"


def bias_effect(facts: TensorFacts, attribution: Attribution, places: Sequence[tuple[int, int]]) -> Finding | None:
    """Find an unquantized bias that differs from the reference's by more than rounding the terms of the sums allows."""
    if facts.entry.quant is not None:
        return None
    error_and_finding = find_different_bias(facts)
    if error_and_finding is None:
        return None
    for place in places:
        element_count = math.prod(shape_of(facts.backend, facts.entry.tensor, *place))
        allowed = FOLDING_MAX_ERROR_RATIO * _rounding_of_result(facts, attribution, place)
        if error_and_finding[0] * math.sqrt(element_count) > allowed:
            return error_and_finding[1]
    return None


def _rounding_of_result(facts: TensorFacts, attribution: Attribution, place: tuple[int, int]) -> float:
    """Return the norm of the rounding error of a node's result in one sample.

    It is compared with the difference between two replays, which accumulate in float32. So it allows for one rounding
    of the result to a short format, but not for accumulation in that format.
    """
    allowed = attribution.samples.get(place[0], attribution).allowed or 0.0
    recorded = facts.backend.load(facts.entry.tensor, *place)
    short = None if facts.entry.quant is not None else format_of(recorded)
    return allowed if short is None else min(allowed, short.unit * finite_norm(widen(recorded)))


def _rounding_bound(facts: TensorFacts, place: tuple[int, int]) -> np.ndarray | float | None:
    """Bound the effect of rounding the node's constants to codes, in the backend's dimension order.

    It is half a step of each weight, or its error if known, times the magnitude of its factor, plus half a step of the
    bias. Their sum is the bound, or a few times the root of the sum of squares if that is less, because rounding errors
    hardly ever have the same sign. None if constants are rounded and no such bound is known.
    """
    node, half_steps = facts.node, facts.replays.backend.half_steps
    form, opset = real_form(node, facts.backend.graph.opset)
    constants = [name for name in form.inputs if name and facts.be.folds(name)]
    row = operators.of(form.op)
    if not row.product and not any(np.any(half_steps(name)) for name in constants):
        return 0.0
    if row.moves:
        return _bound_of_moved_constants(facts, constants, place)
    scales = row.neutral == 1 and row.commutes
    if not (row.product or row.neutral == 0 or scales):
        return None
    main, weight_error = facts.main, None
    if main is not None and row.product:
        weight_error = facts.replays.weight_error(facts.reference_form(main), form, facts.segment.nodes_except(main))
    values: dict[str, np.ndarray] = {}
    rounded = False
    for slot, name in enumerate(form.inputs):
        if not name:
            continue
        if facts.be.folds(name):
            values[name] = half_steps(name) if weight_error is None or slot != 1 else weight_error
            rounded = rounded or bool(np.any(values[name]))
        elif slot > 1 or row.adds:  # adding a constant does not scale the rounding error
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


def _bound_of_moved_constants(facts: TensorFacts, constants: Sequence[str], place: tuple[int, int]) -> np.ndarray:
    """Return the effect of rounded constants on a node that only moves values: half a step per constant element."""
    form, opset = real_form(facts.node, facts.backend.graph.opset)
    values: dict[str, np.ndarray] = {}
    for name in filter(None, form.inputs):
        values[name] = real_values(facts.backend, name, place)
        if values[name].dtype.kind == "f":  # indices and extents are exact
            rounded = facts.replays.backend.half_steps(name) if name in constants else np.zeros((), np.float32)
            values[name] = np.broadcast_to(rounded, values[name].shape)
    return run_form(facts.node, form, opset, values)[form.outputs[0]]


def _rounding_spread(facts: TensorFacts, place: tuple[int, int]) -> np.ndarray:
    """Estimate the effect of rounding a node's constants on its output, if `_rounding_bound` has no bound."""
    node, tensor = facts.node, facts.entry.tensor
    form, opset = real_form(node, facts.backend.graph.opset)
    values = inputs_of(facts.backend, form, place)
    half = {
        name: facts.replays.backend.half_steps(name)
        for name, array in values.items()
        if facts.be.folds(name) and array.dtype.kind == "f" and name in operators.valued_inputs(form)
    }
    rng = np.random.default_rng(_SEED)

    def replay_disturbed() -> np.ndarray:
        disturbed = {name: disturb_values(rng, array, half.get(name, 0.0)) for name, array in values.items()}
        return run_form(node, form, opset, disturbed)[tensor]

    return estimate_spread(run_form(node, form, opset, values)[tensor], replay_disturbed)
