"""Judges a tensor computed by several backend nodes as a whole, because nothing between them has a partner."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

import numpy as np

from qdebug.compare.attribute.attribute import Attribution, attribute
from qdebug.compare.attribute.band import difference as either_way
from qdebug.compare.attribute.band import finite_norm, minus, norm, segment_share, unit_roundoff
from qdebug.compare.attribute.code_spans import (
    clip_in_turn,
    codes_behind,
    own_values,
    recorded_values,
    rounding_inside,
    span_before,
)
from qdebug.compare.attribute.declared_format import declared_format_of_values, declared_unit
from qdebug.compare.attribute.reference_replay import exceeds
from qdebug.compare.graph_checks.differences import declared_difference, has_codes
from qdebug.compare.graph_checks.own_nodes import find_inconsistent_node, tensors_with_short_sums
from qdebug.compare.graph_checks.tensor_check import TensorCheck, find_rounding_loss
from qdebug.compare.graph_checks.tensor_facts import is_same_shape_but_ones
from qdebug.compare.graph_checks.unheld_constants import find_constant_outside_format
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole, graph_difference
from qdebug.errors import KernelError, NotRecordedError
from qdebug.model import Node
from qdebug.model.thresholds.attribution import SUBSTITUTE_REPLAY_MAX_ERROR_RATIO
from qdebug.model.thresholds.verdict import DEFAULT_MIN_SQNR, DERIVED_LSB
from qdebug.numerics.short_formats import SHORT_FORMATS, format_of

__all__ = ["SeveralNodes"]

_BFLOAT16 = next(short for short in SHORT_FORMATS if short.name == "bfloat16")
"""The shortest format in which runtimes compute between codes."""


class SeveralNodes(TensorCheck):
    """Judges a tensor computed by several backend nodes."""

    checks_each_node = True

    def attribution(self) -> Attribution:
        """Replay only the last node, on the tensors recorded before it."""
        return attribute(self.facts.reference, self.facts.backend, self.facts.entry)

    def effect(self, attribution: Attribution, places: Sequence[tuple[int, int]]) -> Finding | None:  # noqa: ARG002
        """Find a difference from the reference's nodes on the same inputs, in any of the given samples and steps."""
        worst_first = reversed(places)
        return next(filter(None, map(self._effect_at, worst_first)), None)

    def _effect_at(self, place: tuple[int, int]) -> Finding | None:
        facts, entry = self.facts, self.facts.entry
        reference_values = facts.reference_replay(place)
        backend_values = recorded_values(facts.reference, facts.backend, entry, reference_values.shape, place)
        if not is_same_shape_but_ones(backend_values.shape, reference_values.shape):
            return declared_difference(facts)
        # Saturation is reported separately.
        reference_values = clip_in_turn(reference_values, span_before(facts.backend.graph, entry.tensor))
        difference = minus(reference_values, backend_values.reshape(reference_values.shape))
        share, coded = 10 ** (-DEFAULT_MIN_SQNR / 20), has_codes(facts)
        if not coded and not facts.be.reads_undeclared_codes:
            stored_values = facts.backend.load(entry.tensor, *place)
            share = min(segment_share(max(unit_roundoff(stored_values.dtype), declared_unit(facts.backend))), share)

        def is_significant(off: np.ndarray) -> bool:
            """Return whether a difference exceeds the allowed share of the result."""
            return finite_norm(off) > share * finite_norm(reference_values)

        # Without codes of its own, a run of dequantized values may still round to codes in each node.
        is_on_codes = not coded and bool(facts.replays.min_grid_values)
        backend_values = backend_values.reshape(reference_values.shape)
        if not is_significant(difference) or not exceeds(difference, facts.rounding_noise(place, on_codes=is_on_codes)):
            return self._find_codes_unlike_own_replay(reference_values, backend_values, place) if coded else None
        inside = self._rounding_inside(reference_values.shape, place) if coded else None
        if inside is not None and not is_significant(difference + inside):
            return find_rounding_loss(facts, reference_values, inside, "data")
        short_sum_tensors = (
            tensors_with_short_sums(facts) if coded and find_inconsistent_node(facts, place) is None else ()
        )
        inside = self._rounding_inside(reference_values.shape, place, short_sum_tensors) if short_sum_tensors else None
        if inside is not None and not is_significant(difference + inside):
            return None
        return (
            self._find_irreproducible_codes(place)
            or self._find_codes_unlike_own_replay(reference_values, backend_values, place)
            or find_constant_outside_format(facts, place)
            or self._find_precision_loss_inside(backend_values, difference, place)
            or declared_difference(facts)
        )

    def _find_irreproducible_codes(self, place: tuple[int, int]) -> Finding | None:
        """Find codes that no known arithmetic reproduces from the node's inputs. That is not a graph difference.

        Args:
            place: Sample and step.
        """
        facts, tensor = self.facts, self.facts.entry.tensor
        reproduction = None if facts.entry.quant is None else facts.reproducer.reproduce(facts.node, tensor)
        if reproduction is None or reproduction.by is not None:
            return None
        return self._make_finding_of_wrong_codes(facts.reproducer.codes_off(facts.node, tensor, place))

    def _find_codes_unlike_own_replay(
        self, reference_values: np.ndarray, backend_values: np.ndarray, place: tuple[int, int]
    ) -> Finding | None:
        """Find codes that differ from a replay of the backend's own nodes, which agrees with the reference's nodes.

        Args:
            reference_values: A replay of the reference's nodes on the same inputs.
            backend_values: The recorded values, in the reference's order.
            place: Sample and step.
        """
        facts, tensor = self.facts, self.facts.entry.tensor
        codes = codes_behind(facts.backend.graph, tensor)
        quant = facts.backend.graph.tensors[codes].quant
        inner = {name for node in self.segment.own for name in node.outputs if name} - {tensor, codes}
        if quant is None or any(facts.backend.graph.tensors[name].quant is not None for name in inner):
            return None  # inner codes may be rounded differently, by more than an output step
        replay_own_nodes = partial(own_values, facts.be, facts.entry.pair, self.segment, reference_values.shape, place)
        try:
            own_result, in_bfloat16 = replay_own_nodes(), replay_own_nodes(rounded=_BFLOAT16.rounded)
        except (KernelError, NotRecordedError):
            return None
        share = 10 ** (-DEFAULT_MIN_SQNR / 20)
        if finite_norm(minus(own_result, reference_values)) > share * finite_norm(reference_values):
            return None
        noise = np.abs(minus(in_bfloat16, own_result)).max(initial=0.0)
        steps = np.nan_to_num(np.abs(minus(own_result, backend_values)), nan=0.0).max(initial=0.0) / float(
            np.max(quant.scale)
        )
        if not DERIVED_LSB + noise / float(np.max(quant.scale)) < steps < np.inf:  # a damaged scale may be NaN
            return None
        reproduction = facts.reproducer.reproduce(facts.node, tensor)
        is_known = reproduction is not None and reproduction.by is not None
        return None if is_known else self._make_finding_of_wrong_codes(int(np.rint(steps)))

    def _make_finding_of_wrong_codes(self, largest_error: int) -> Finding | None:
        """Return the finding about codes that rounding does not explain, or None if it does."""
        if largest_error <= DERIVED_LSB:
            return None
        return Finding(
            kind=FindingKind.ARITHMETIC,
            role=FindingRole.BREACH,
            node=self.facts.entry.node,
            sentence=f"its codes are off by up to {largest_error} LSB; rounding explains at most {DERIVED_LSB:g} LSB",
            amount=float(largest_error),
            limit=DERIVED_LSB,
            unit="LSB",
        )

    def _find_precision_loss_inside(
        self, backend_values: np.ndarray, difference: np.ndarray, place: tuple[int, int]
    ) -> Finding | None:
        """Report that the reference's nodes reproduce the recorded values if each result is rounded to a short format.

        Args:
            backend_values: The backend's values, in the reference's order.
            difference: The error of a replay without that rounding.
            place: Sample and step.
        """
        facts = self.facts
        stored_values = facts.backend.load(facts.entry.tensor, *place)
        short_format = format_of(stored_values) or declared_format_of_values(facts.backend, stored_values)
        if short_format is None:
            return None
        overflows: dict[str, float] = {}

        def rounded(name: str, values: np.ndarray) -> np.ndarray:
            rounded_values = short_format.rounded(values.astype(np.float32))
            is_lost = np.isfinite(values) & ~np.isfinite(rounded_values)
            if is_lost.any():
                overflows.setdefault(name, float(np.max(np.abs(values), where=is_lost, initial=0.0)))
            return rounded_values.astype(values.dtype)

        try:
            with np.errstate(all="ignore"):
                reference_values = facts.reference_replay(place, after=rounded)
        except (KernelError, NotRecordedError):
            return None
        if reference_values.shape != backend_values.shape:
            return None
        error = norm(either_way(backend_values, reference_values))
        if not error <= SUBSTITUTE_REPLAY_MAX_ERROR_RATIO * finite_norm(difference):
            return None
        clause = f"the reference's nodes reproduce the recorded values if each result is rounded to {short_format.name}"
        name = next(iter(overflows), None)
        maker = None if name is None else facts.reference.graph.producer(name)
        if name is not None and maker is not None:
            end = f"beyond {short_format.largest:.6g}, the largest {short_format.name} value"
            clause += f"; {maker.op} {maker.name!r} overflows, because its result {overflows[name]:.6g} is {end}"
        return graph_difference(FindingKind.PRECISION, facts.node, clause, evidence=short_format.name)

    def find_inconsistent_node(self, sample: int) -> Node | None:
        """Return the first node whose output does not follow from its recorded inputs in a sample, or None."""
        place = next((place for place in self.facts.places if place[0] == sample), None)
        inconsistent = None if place is None else find_inconsistent_node(self.facts, place)
        return None if inconsistent is None else inconsistent.node

    def _rounding_inside(
        self, shape: tuple[int, ...], place: tuple[int, int], recorded_tensors: Collection[str] = ()
    ) -> np.ndarray | None:
        """Return the effect of rounding to the backend's codes inside a region on its result, or None if unknown.

        The codes of `recorded_tensors` are taken as recorded, because their arithmetic is not a graph difference.
        """
        facts = self.facts
        try:
            effect = rounding_inside(
                facts.be, facts.entry.pair, self.segment, shape, place, recorded_names=recorded_tensors
            )
        except (KernelError, NotRecordedError):
            return None
        return effect.reshape(shape)
