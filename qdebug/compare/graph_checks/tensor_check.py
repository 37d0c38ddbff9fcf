"""Checks whether the two graphs declare different computations for a compared tensor.

A replay with the backend's own constants looks clean even if those constants are wrong. So the reference's nodes that a
backend node corresponds to are replayed too, on the backend's recorded inputs and with the reference's constants. The
two replays may differ only by the effect of rounding each constant to its nearest code.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from functools import cached_property, partial

import numpy as np

from qdebug.compare.align.layouts import in_reference_order
from qdebug.compare.align.undeclared_quantization import is_loosely_described
from qdebug.compare.attribute.attribute import Attribution, OtherReplays, attribute
from qdebug.compare.attribute.backend_replay import describe_missing_kernel, is_undefined
from qdebug.compare.attribute.band import finite_norm, minus, segment_share, unit_roundoff_of_values
from qdebug.compare.attribute.declared_format import declared_unit
from qdebug.compare.attribute.integer_tensors import holds_few_bits, rounds_nothing
from qdebug.compare.graph_checks.differences import (
    declared_difference,
    is_declared_equally,
    stated_difference,
)
from qdebug.compare.graph_checks.own_nodes import wrong_elements
from qdebug.compare.graph_checks.tensor_facts import TensorFacts, is_same_shape_but_ones
from qdebug.compare.measure.compare import Comparison
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole, apart
from qdebug.errors import KernelError, NotRecordedError
from qdebug.model import Node, operators
from qdebug.model.thresholds.rounding import FLOAT32_UNIT_ROUNDOFF, SHORT_FORMAT_MIN_ELEMENTS
from qdebug.model.thresholds.verdict import CODES_MIN_SQNR
from qdebug.numerics.grid import grid_step
from qdebug.numerics.short_formats import SHORT_FORMATS
from qdebug.numerics.stats import ErrorStats
from qdebug.replay.real_form import describe_real_tensor

__all__ = ["Digits", "TensorCheck", "find_rounding_loss", "rounded_operands_clause"]

_QUANTIZATION_UNKNOWN = "the recording does not say where its inputs are rounded to codes"
_VISIBLE_WITHOUT_REPLAY = (
    FindingKind.WEIGHT,
    FindingKind.BIAS,
    FindingKind.CONSTANT,
    FindingKind.SCALE,
    FindingKind.OPERATOR,
    FindingKind.MISSING_NODE,
)
"""Kinds of findings that are visible even if a node cannot be replayed."""


class Digits(Enum):
    """The format in which real values are rounded."""

    SINGLE = "float32 or finer"
    SHORT = "a float format of 16 bits or fewer, or an unknown one because there are too few values"


class TensorCheck(ABC):
    """Checks whether the graphs declare different computations for one compared tensor.

    Args:
        facts: The tensor and its upstream nodes.

    Attributes:
        node: The backend node that computes the tensor.
        segment: The nodes upstream of the tensor in either graph.
    """

    limited_sums: str | None = None
    """How nodes on codes with run-time scales accumulate in fewer than 32 bits, or None if exact or unknown."""

    checks_each_node = False
    """Whether each backend node is compared with its recorded inputs separately."""

    def __init__(self, facts: TensorFacts) -> None:
        self.facts, self.node, self.segment = facts, facts.node, facts.segment

    @abstractmethod
    def attribution(self) -> Attribution:
        """Split the tensor's error by replaying the backend's node, or the reference's nodes that it corresponds to."""

    @abstractmethod
    def effect(self, attribution: Attribution, places: Sequence[tuple[int, int]]) -> Finding | None:
        """Find a declared difference between the graphs that changes the tensor at a place by more than rounding does.

        Raises:
            KernelError: A node cannot be replayed.
            RecordingError: A constant or an input was not recorded.
        """

    def why_check_is_impossible(self, attribution: Attribution) -> str | None:  # noqa: ARG002  some do not need it
        """Return why a tensor cannot be checked, or None if it can, as far as is known in advance."""
        own_nodes, facts = self.segment.own, self.facts
        if not facts.places:
            return "only part of its values was kept"
        if self.segment.has_several_nodes and (unknown := next(filter(is_undefined, own_nodes), None)):
            return describe_missing_kernel(unknown)
        if undefined_reason := next(
            filter(None, (describe_real_tensor(node, facts.backend.graph) for node in own_nodes)), None
        ):
            return undefined_reason
        if facts.entry.whole and not all(map(rounds_nothing, (*own_nodes[:-1], *self.segment.nodes[:-1]))):
            return "the values that it selects from were not compared, and rounding them may change the selection"
        return None

    def difference(self, attribution: Attribution, comparison: Comparison) -> tuple[Finding | None, str | None]:
        """Find a declared difference between the graphs that changes this tensor by more than rounding does.

        Only the first sample and the worst one are examined.

        Returns:
            The difference, or None if none was found; and why the check was inconclusive, or None if it was not.
        """
        worst = comparison.stats.worst_sample if comparison.stats else None
        at_worst = [place for place in self.facts.places if place[0] == worst]
        places = tuple(dict.fromkeys((*self.facts.places[:1], *at_worst[:1])))
        if self.checks_each_node and (inconsistent := wrong_elements(self.facts, places)):
            return inconsistent, None
        if self.is_declared_equally or is_declared_equally(self.facts, places):
            return None, None
        why, finding = self.why_check_is_impossible(attribution), None
        if why is None:
            try:
                finding = self.effect(attribution, places)
            except (KernelError, NotRecordedError) as error:  # without a replay, only the stated facts can be compared
                why = error.message[0].lower() + error.message[1:].rstrip(".")
                finding = self._stated_finding(attribution)
        formats = () if finding is None else self.rounded_factors()
        if finding is not None and formats:
            finding = replace(finding, sentence=f"{finding.sentence}; {rounded_operands_clause(formats)}")
        return finding, why

    def _stated_finding(self, attribution: Attribution) -> Finding | None:
        """Find a constant or an operator that differs or is missing at an inaccurate node without a kernel.

        Its effect shows in the results of the reference's nodes for the same inputs. An omitted attribute proves
        nothing here, because the recorder may not support it.
        """
        arithmetic, allowed_norm = attribution.arithmetic_unsaturated, attribution.allowed
        if arithmetic is None or arithmetic.nonfinite or arithmetic.rmse is None:
            return None
        if self.segment.has_several_nodes or operators.is_unknown(self.node) or operators.is_foreign(self.node):
            return None
        if allowed_norm is None or not arithmetic.rmse * math.sqrt(arithmetic.count) > allowed_norm:
            return None
        finding = stated_difference(self.facts)
        if finding is None or finding.kind not in _VISIBLE_WITHOUT_REPLAY:
            return None
        if finding.kind is FindingKind.OPERATOR:  # a fused node may correspond to several reference nodes
            return finding if len(self.segment.nodes) == 1 else None
        return finding if finding.evidence is not None else None

    @cached_property
    def is_declared_equally(self) -> bool:
        """Whether both graphs declare the same node, constants included."""
        return is_declared_equally(self.facts)

    def by_reference(self, *, rounding: bool) -> Attribution:
        """Split a tensor's error by replaying the reference's nodes, whatever the backend's nodes are declared to do.

        Args:
            rounding: Whether to estimate the effect of rounding, which takes several replays.
        """
        return self._split(by_reference_nodes=True, rounding=rounding)

    def _split(self, *, by_reference_nodes: bool = False, rounding: bool = True) -> Attribution:
        """Split a tensor's error by replaying the backend's node, or the reference's nodes instead."""
        facts = self.facts
        other_replays = OtherReplays(
            substitute=facts.reference_replay,
            rounding_noise=facts.rounding_noise if rounding else None,
            overrides_kernel=by_reference_nodes,
            exact=all(map(rounds_nothing, self.segment.nodes)),
            as_reference=None if by_reference_nodes or self.is_declared_equally else facts.reference_replay,
            same_node=not by_reference_nodes and self.is_declared_equally,
            reads_equal=partial(facts.replays.reads_equal, self.segment),
            min_grid_values=facts.replays.min_grid_values,
        )
        attribution = attribute(facts.reference, facts.backend, facts.entry, other_replays)
        if facts.entry.quant is not None or attribution.arithmetic_unsaturated is None:
            return attribution
        if not (is_loosely_described(self.node) and facts.be.reads_undeclared_codes):
            return attribution
        return attribution.without_judgement(_QUANTIZATION_UNKNOWN)

    def digits(self, stats: ErrorStats) -> Digits | None:
        """Return the format in which values and constants of both runs are rounded, or None if to codes or unknown.

        The precision of a node is unknown if it reads codes, even packed in a constant, or if it contains subgraphs.

        Args:
            stats: The error of the tensor, whose worst sample is examined.
        """
        facts, own_nodes, graph = self.facts, self.segment.own, self.facts.backend.graph
        input_names = {name for node in own_nodes for name in node.inputs if name}
        if any(operators.of(node.op).holds_nodes for node in own_nodes):
            return None
        if any(graph.tensors[name].quant is not None or holds_few_bits(graph, name) for name in input_names):
            return None
        worst = stats.worst_sample or 0
        place = next((place for place in facts.places if place[0] == worst), None)
        if place is None:
            return None
        sides = (facts.reference, facts.entry.reference_tensor), (facts.backend, facts.entry.tensor)
        values = [run.load(name, *place) for run, name in sides]
        if any(grid_step(array) is not None for array in values):
            return None
        if stats.count < SHORT_FORMAT_MIN_ELEMENTS:
            return Digits.SHORT
        constants = {name for name in input_names if facts.be.folds(name)}
        units = (
            *map(unit_roundoff_of_values, values),
            facts.replays.backend.coarsest_unit_roundoff(constants),
            declared_unit(facts.backend),
        )
        coarsest = max(units)
        return Digits.SINGLE if coarsest <= FLOAT32_UNIT_ROUNDOFF else Digits.SHORT

    def find_shape_difference(self) -> Finding | None:
        """Find a declared difference between the graphs if a node's shape does not follow from its inputs."""
        facts = self.facts
        if not self.segment.nodes or not facts.places:
            return None
        try:
            reference_values = facts.reference_replay(facts.places[0])
        except (KernelError, NotRecordedError):
            return None
        stored_values = facts.backend.load(facts.entry.tensor, *facts.places[0])
        backend_values = in_reference_order(stored_values, facts.entry.pair.backend_view, reference_values.shape)
        if operators.of(self.node.op).reshapes and sorted(reference_values.shape) == sorted(backend_values.shape):
            return None  # A runtime that changes the layout also permutes the extents of a reshape.
        return (
            None if is_same_shape_but_ones(reference_values.shape, backend_values.shape) else declared_difference(facts)
        )

    def find_inconsistent_node(self, sample: int) -> Node | None:  # noqa: ARG002  a single node has no earlier nodes
        """Return the first node whose output does not follow from its recorded inputs in a sample, or None."""
        return None

    def rounded_factors(self) -> tuple[str, ...]:
        """Return the short formats to which a product may have rounded its factors, by replaying the reference.

        Returns:
            Names of formats, empty if rounding does not account for the recorded values or there is not exactly one
                product.
        """
        facts = self.facts
        products = sum(operators.plain(node).product for node in self.segment.nodes)
        if products != 1 or not facts.places or facts.entry.quant is not None:
            return ()
        stored_values = facts.backend.load(facts.entry.tensor, *facts.places[0])

        def fits(rounded: Callable[[np.ndarray], np.ndarray] | None) -> bool:
            reference_values = facts.reference_replay(facts.places[0], rounded=rounded)
            backend_values = in_reference_order(stored_values, facts.entry.pair.backend_view, reference_values.shape)
            if not is_same_shape_but_ones(backend_values.shape, reference_values.shape):
                return False
            errors = minus(reference_values, backend_values.reshape(reference_values.shape))
            if np.any(~np.isfinite(reference_values) & np.isfinite(backend_values.reshape(reference_values.shape))):
                return False  # the factors overflow the backend's format
            return finite_norm(errors) <= segment_share(FLOAT32_UNIT_ROUNDOFF) * finite_norm(reference_values)

        try:
            if stored_values.dtype.kind != "f" or fits(None):
                return ()
            return tuple(short.name for short in reversed(SHORT_FORMATS) if fits(short.rounded))
        except (KernelError, NotRecordedError):
            return ()


def rounded_operands_clause(formats: Sequence[str]) -> str:
    """Return a clause saying that rounding its factors accounts for a product's error."""
    return f"rounding its operands to {' or '.join(formats)} first explains the error"


def find_rounding_loss(facts: TensorFacts, result: np.ndarray, error: np.ndarray, subject: str) -> Finding | None:
    """Return a finding if rounding to codes loses too much of a result, or None.

    Args:
        facts: The tensor.
        result: The result without rounding.
        error: The error caused by rounding.
        subject: What is rounded.
    """
    signal, noise = finite_norm(result), finite_norm(error)
    remaining_sqnr = 20 * math.log10(signal / noise) if signal and noise else math.inf
    if not remaining_sqnr < CODES_MIN_SQNR:
        return None
    level = apart(remaining_sqnr, CODES_MIN_SQNR)
    return Finding(
        kind=FindingKind.SCALE,
        role=FindingRole.COST,
        node=facts.entry.node,
        sentence=f"rounding {subject} to codes leaves an SQNR of {level} dB, below {CODES_MIN_SQNR:g} dB",
        amount=remaining_sqnr,
        limit=CODES_MIN_SQNR,
        unit="dB",
    )
