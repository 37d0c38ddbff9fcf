"""Judges tensors that a backend computes with codes whose scale is chosen at run time, over any number of nodes.

Three results are compared: the reference's nodes applied to the backend's inputs, the backend's own nodes applied to
them on real numbers, and the recorded values. The first two differ if weights were quantized or are wrong, the last
two if data were quantized.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from types import MappingProxyType

import numpy as np

from qdebug.compare.align.layouts import permuted_shape
from qdebug.compare.align.pairs import clamp_of
from qdebug.compare.attribute.attribute import Attribution, OtherReplays, attribute
from qdebug.compare.attribute.backend_replay import replay_own
from qdebug.compare.attribute.band import minus
from qdebug.compare.attribute.code_spans import clip_in_turn, recorded_values, span_before
from qdebug.compare.attribute.reference_replay import exceeds
from qdebug.compare.graph_checks.constants import coarse_constant, has_other_weight
from qdebug.compare.graph_checks.differences import declared_difference
from qdebug.compare.graph_checks.one_node import bias_effect, why_replay_is_inconclusive
from qdebug.compare.graph_checks.own_nodes import find_inconsistent_node, limited_sums
from qdebug.compare.graph_checks.tensor_check import TensorCheck, find_rounding_loss
from qdebug.compare.graph_checks.tensor_facts import TensorFacts
from qdebug.compare.result.finding import Finding
from qdebug.model import Node, operators
from qdebug.model.thresholds.attribution import DISTURBANCE_HALF_STEPS
from qdebug.numerics.accumulate import has_same_elements
from qdebug.replay.blockwise_weight import can_round_data, packed_inputs
from qdebug.replay.registry import Moved, has_kernel
from qdebug.replay.segment import draw_offsets, estimate_spread, run_real

__all__ = ["ChosenScale", "chooses_scale"]

_SEED = 20250412


def chooses_scale(facts: TensorFacts) -> bool:
    """Return whether the backend's nodes compute with codes whose scale is chosen at run time, and can be replayed.

    The outputs of such a node that hold the scale and the zero point are judged like any other tensor.
    """
    own_nodes, last_node = facts.segment.own, facts.node
    coded_nodes = [node for node in own_nodes if operators.of(node.op).takes_codes]
    if facts.segment.has_several_nodes:  # a packed weight has its scales in the graph
        coded_nodes = [node for node in coded_nodes if operators.of(node.op).packed is None or can_round_data(node)]
    if not coded_nodes:
        return False
    if operators.of(last_node.op).gives_scale and facts.entry.tensor in last_node.outputs[1:]:
        return False
    real_forms = (facts.backend_form(node) for node in own_nodes if not operators.of(node.op).takes_codes)
    return all(has_kernel(form.op, form.domain) for form in real_forms)


class ChosenScale(TensorCheck):
    """Judges a tensor computed with codes whose scale is chosen at run time.

    Args:
        facts: The tensor and its upstream nodes.
        plain: The check that would judge it in other cases. It splits the error if the real-valued replay cannot.
    """

    checks_each_node = True

    def __init__(self, facts: TensorFacts, plain: TensorCheck) -> None:
        super().__init__(facts)
        self._plain = plain

    def attribution(self) -> Attribution:
        """Split the tensor's error. The introduced part is the error that quantizing the data causes."""
        facts = self.facts
        if self._has_raw_codes:
            attribution = attribute(facts.reference, facts.backend, facts.entry)
            parts = {sample: _allow_one_code(part) for sample, part in attribution.samples.items()}
            attribution = replace(_allow_one_code(attribution), samples=MappingProxyType(parts))
        else:
            other_replays = OtherReplays(
                substitute=self._replay_backend,
                rounding_noise=self._estimate_data_noise,
                overrides_kernel=True,
                as_reference=facts.reference_replay,
            )
            attribution = attribute(facts.reference, facts.backend, facts.entry, other_replays)
        return self._plain.attribution() if attribution.introduced is None else attribution

    def why_check_is_impossible(self, attribution: Attribution) -> str | None:
        """Return why the tensor cannot be checked, or None if it can, as far as is known in advance."""
        reason = None if self.segment.has_several_nodes else why_replay_is_inconclusive(self.facts, attribution)
        return super().why_check_is_impossible(attribution) if reason is None else reason

    @cached_property
    def limited_sums(self) -> str | None:  # type: ignore[override]
        """The narrow accumulator that reproduces the tensor although exact sums do not, in words, or None."""
        return limited_sums(self.facts)

    def find_inconsistent_node(self, sample: int) -> Node | None:
        """Return the first node whose output does not follow from its recorded inputs in a sample, or None."""
        return self._plain.find_inconsistent_node(sample)

    @cached_property
    def _has_raw_codes(self) -> bool:
        """Whether the tensor holds codes without a declared scale, which are compared as integers."""
        facts, entry = self.facts, self.facts.entry
        place = next(iter(facts.places), (0, 0))
        is_output_of_chooser = (
            operators.of(self.node.op).gives_scale and entry.tensor == self.node.outputs[0] and entry.quant is None
        )
        return is_output_of_chooser and facts.backend.load(entry.tensor, *place).dtype.kind in "iu"

    def _replay_backend(self, place: tuple[int, int], *, disturbance: Moved | None = None) -> np.ndarray:
        """Replay the backend's own nodes on real numbers, with quantized tensors moved by `disturbance`."""
        pair, run = self.facts.entry.pair, partial(run_real, disturbed=disturbance)
        shape = permuted_shape(self.facts.reference.load(pair.reference, *place).shape, pair.reference_view)
        return replay_own(self.facts.backend, pair, self.segment, shape, place, run=run)

    def _estimate_data_noise(self, place: tuple[int, int]) -> np.ndarray:
        """Estimate the error of each element caused by quantizing data, see `_replay_backend`."""
        values, rng = partial(self._replay_backend, place), np.random.default_rng(_SEED)
        return estimate_spread(
            values(), lambda: values(disturbance=lambda _, shape, chosen: draw_offsets(rng, shape, 0.5 * chosen))
        )

    def _estimate_weight_noise(self, place: tuple[int, int], *, any_scale: bool) -> np.ndarray:
        """Estimate the error of each element caused by quantizing weights, see `_replay_backend`.

        Without `any_scale`, a scale far larger than the weight needs is replaced by the scale it needs.
        """
        values, rng = partial(self._replay_backend, place), np.random.default_rng(_SEED)
        half = self._half_codes(any_scale=any_scale)
        return estimate_spread(
            values(), lambda: values(disturbance=lambda name, shape, _: draw_offsets(rng, shape, half.get(name, 0.0)))
        )

    def _half_codes(self, *, any_scale: bool) -> Mapping[str, np.ndarray | float]:
        """Return half the rounding step of each weight of the backend's own nodes, in codes."""
        facts, half_steps = self.facts, self.facts.replays.backend.half_steps
        half_codes: dict[str, np.ndarray | float] = {}
        for node in self.segment.own:
            for name in node.inputs if operators.of(node.op).takes_codes else ():
                if not name or not facts.be.folds(name) or not facts.backend.has(name):
                    continue
                if facts.backend.graph.tensors[name].quant is not None:
                    full_steps, steps = half_steps(name, any_scale=True), half_steps(name, any_scale=any_scale)
                    half_codes[name] = np.asarray(
                        np.divide(steps, 2 * full_steps, out=np.zeros_like(full_steps), where=full_steps > 0)
                    )
                elif facts.backend.load(name).ndim > 1 or name in packed_inputs(node)[:1]:
                    half_codes[name] = 0.5
        return half_codes

    def _find_coarse_weight(self) -> tuple[str, int, int] | None:
        """Return a weight whose scale is far larger than needed, how many codes it uses, and how many exist."""
        exact, plain = (self._half_codes(any_scale=flag) for flag in (True, False))
        for name in exact:
            levels = self.facts.replays.backend.levels(name)
            if levels is not None and np.any(np.asarray(plain[name]) < np.asarray(exact[name])):
                return name, *levels
        return None

    def effect(self, attribution: Attribution, places: Sequence[tuple[int, int]]) -> Finding | None:
        """Find a declared difference between the graphs, or that quantization loses too much of a result."""
        if not self.segment.has_several_nodes and (finding := bias_effect(self.facts, attribution, places)) is not None:
            return finding
        return next(filter(None, map(self._effect_at, places)), None)

    def _effect_at(self, place: tuple[int, int]) -> Finding | None:
        facts, entry = self.facts, self.facts.entry
        reference_values, backend_values = facts.reference_replay(place), self._replay_backend(place)
        if not has_same_elements(backend_values.shape, reference_values.shape):
            return declared_difference(facts)
        span = span_before(facts.reference.graph, entry.reference_tensor)
        backend_values = clip_in_turn(
            backend_values.reshape(reference_values.shape), clamp_of(entry.pair.backend_view), span
        )
        reference_values = clip_in_turn(reference_values, span)
        difference = minus(reference_values, backend_values)
        known_noise = facts.rounding_noise(place)

        def noise_bound(*, any_scale: bool) -> np.ndarray:
            weights = self._estimate_weight_noise(place, any_scale=any_scale)
            return np.asarray(np.hypot(known_noise, weights.reshape(known_noise.shape)))

        bound = noise_bound(any_scale=False)
        is_likely = exceeds(difference, bound / DISTURBANCE_HALF_STEPS)
        if is_likely and exceeds(difference, bound):
            rounded = facts.with_rounded_weight(place)
            if rounded is None or exceeds(minus(clip_in_turn(rounded, span), backend_values), bound):
                coarse = self._find_coarse_weight()
                if coarse is None or exceeds(difference, noise_bound(any_scale=True)):
                    return declared_difference(facts)
                return coarse_constant(self.node, "weight", *coarse)
        if is_likely and has_other_weight(facts):
            return declared_difference(facts)
        if self._has_raw_codes:
            return None
        recorded_backend = recorded_values(facts.reference, facts.backend, entry, reference_values.shape, place)
        whole_error = minus(reference_values, recorded_backend.reshape(reference_values.shape))
        finding = find_rounding_loss(facts, reference_values, difference, "weights")
        finding = finding or find_rounding_loss(facts, reference_values, whole_error, "weights and data")
        inconsistent = find_inconsistent_node(facts, place) if finding else None
        return finding if inconsistent is None else inconsistent.finding(self.node)


def _allow_one_code(attribution: Attribution) -> Attribution:
    """Allow each element of a quantized tensor to be off by one code, for ties broken either way."""
    return (
        attribution
        if attribution.introduced is None
        else replace(attribution, allowed=math.sqrt(attribution.introduced.count))
    )
