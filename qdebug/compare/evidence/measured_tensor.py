"""The error of one compared tensor, its parts, the arithmetic that reproduces it, and the limits that it exceeds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from operator import itemgetter

import numpy as np

from qdebug.arithmetic.reproduce import Reproduced
from qdebug.compare.attribute.arithmetic_pair import ArithmeticPair, compare_with_reference_arithmetic
from qdebug.compare.attribute.attribute import Attribution, attribute, attribute_equal_tensor, reference_self_check
from qdebug.compare.attribute.backend_replay import describe_missing_kernel, is_undefined, real_values
from qdebug.compare.attribute.band import segment_share
from qdebug.compare.attribute.declared_format import declared_unit
from qdebug.compare.attribute.integer_tensors import rounds_nothing
from qdebug.compare.attribute.plan import PlannedNode, recorded_places
from qdebug.compare.attribute.segments import Segment, main_node
from qdebug.compare.evidence import excess
from qdebug.compare.evidence.measured import Error
from qdebug.compare.evidence.rounded_network import FormatLoss
from qdebug.compare.evidence.runs import Runs
from qdebug.compare.explaining.float_band import rounded_inputs
from qdebug.compare.graph_checks.constants import unrepresentable_constant
from qdebug.compare.graph_checks.differences import find_activation_missing_before
from qdebug.compare.graph_checks.quant_mismatch import find_contradicted_codes, quant_mismatch
from qdebug.compare.graph_checks.tensor_check import Digits, rounded_operands_clause
from qdebug.compare.graph_checks.unheld_constants import find_constant_outside_format
from qdebug.compare.measure.compare import Comparison, SampleStats
from qdebug.compare.measure.inputs import InputDifference
from qdebug.compare.measure.recordings import is_fed_back
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole
from qdebug.compare.result.limits import Limits
from qdebug.model import Node, operators
from qdebug.model.thresholds.attribution import (
    PASSED_ON_MAX_ERROR_RATIO,
    SELF_CHECK_MIN_ERROR_RATIO,
    SUBSTITUTE_REPLAY_MAX_ERROR_RATIO,
)
from qdebug.model.thresholds.verdict import (
    DEFAULT_MIN_SQNR,
    DERIVED_LSB,
    EQUAL_INPUTS_MIN_SQNR,
    EQUAL_INPUTS_MIN_SQNR_OF_16_BITS,
    GROWTH_MIN_EXCESS,
)
from qdebug.numerics.stats import ErrorStats, Rails

__all__ = ["MeasuredTensor"]

_REPLAYED_UNQUANTIZED = "it was replayed with the reference's unquantized constants"


_EQUAL_INPUTS_MIN_SQNR: Mapping[Digits | None, float] = {
    Digits.SINGLE: EQUAL_INPUTS_MIN_SQNR,
    Digits.SHORT: EQUAL_INPUTS_MIN_SQNR_OF_16_BITS,
}


class MeasuredTensor:
    """The error of one compared tensor, its parts, and the limits that it exceeds. Implements `Measured`.

    Args:
        runs: The two runs.
        entry: The tensor.
        comparison: Its error.
        limits: Its limits.

    Attributes:
        graph: The backend's graph.
        node: The backend node that computes the tensor, or None for a network input.
        reference_node: The reference node that computes its partner, or None.
        reference_quant: The quantization of its partner, or None if it holds no codes.
        info: Facts of the backend run.
        reference_info: Facts of the reference run.
    """

    def __init__(self, runs: Runs, entry: PlannedNode, comparison: Comparison, limits: Limits) -> None:
        self._runs, self.entry, self.comparison, self.limits = runs, entry, comparison, limits
        runs.store_comparison(entry.tensor, comparison)
        self.graph, self.info, self.reference_info = runs.backend.graph, runs.backend.info, runs.reference.info
        self.node: Node | None = self.graph.producer(entry.tensor)
        self.reference_node: Node | None = runs.reference.graph.producer(entry.reference_tensor)
        self.reference_quant = runs.reference.graph.tensors[entry.reference_tensor].quant
        self._tensor_check = runs.graphs.of(entry)
        self._segment: Segment | None = None if self._tensor_check is None else self._tensor_check.segment

    # Facts of the graphs and of the runs

    @property
    def name(self) -> str:
        """The backend node."""
        return self.entry.node

    @cached_property
    def _main_node(self) -> Node | None:
        """The reference node with the same operator, or None."""
        return None if self.node is None or self._segment is None else main_node(self.node, self._segment)

    @cached_property
    def _places(self) -> Sequence[tuple[int, int]]:
        """The samples and steps that both runs recorded."""
        return tuple(recorded_places(self._runs.reference, self._runs.backend, self.entry))

    # The error

    @property
    def stats(self) -> ErrorStats | None:
        """The total error, or None if the tensors cannot be compared."""
        return self.comparison.stats

    @property
    def _worst_sample(self) -> int:
        return 0 if self.stats is None else self.stats.worst_sample or 0

    @property
    def rails(self) -> Rails | None:
        """Clipped values and codes at the ends of the range, or None if the tensor is not quantized."""
        return self.comparison.rails

    @property
    def reference_rms(self) -> float | None:
        """Root mean square of the reference tensor, or None if it is zero or the error statistics do not contain it."""
        stats = self.stats
        if stats is None or not stats.rmse or not stats.rel_l2:
            return None
        return stats.rmse / stats.rel_l2 or None

    @property
    def usual_rms(self) -> float | None:
        """Always None, because this error covers all samples."""
        return None

    @property
    def input_difference(self) -> InputDifference | None:
        """The difference of a network input, or None for other tensors and for inputs with limits set by the user."""
        is_given = self.stats is not None and self.limits.judge_whole(self.stats)
        return None if is_given else self._runs.different_inputs.get(self.entry.tensor)

    @property
    def have_different_inputs(self) -> bool:
        """Whether any network input differs between the two runs."""
        return bool(self._runs.different_inputs)

    @cached_property
    def has_equal_inputs(self) -> bool:
        """Whether all inputs of the node are known to be equal in both runs, looking through nodes that never round."""
        segment = self._segment
        if segment is None or segment.has_extra_inputs or not all(node.inputs for node in segment.own):
            return False
        if not all(map(rounds_nothing, (*segment.own[:-1], *segment.nodes[:-1]))):
            return False
        return all(
            read.stats is not None and not read.stats.mismatches and not read.nonfinite and read.known_equal
            for read in self._runs.errors_of_inputs(segment)
        )

    @cached_property
    def harmless(self) -> bool:
        """Whether values that are non-finite on one side change no other tensor."""
        stats = self.stats
        return stats is not None and bool(stats.nonfinite) and self._has_no_effect(nonfinite=True)

    def _has_no_effect(self, *, nonfinite: bool) -> bool:
        effect = self._runs.error_effect
        return self.comparison.basis == "full" and all(
            effect.has_no_effect(self.entry.tensor, place, nonfinite=nonfinite) for place in self._places
        )

    def _arrays(self) -> Iterator[np.ndarray]:
        """Load the backend's values, sample by sample."""
        return (real_values(self._runs.backend, self.entry.tensor, place) for place in self._places)

    # Its parts, by a replay of the node

    @cached_property
    def _own_attribution(self) -> Attribution:
        """The attribution by a replay of the backend node's recorded operator."""
        if self.comparison.basis != "full":
            return Attribution(reason="only part of its values was kept")
        if self._tensor_check is None:
            return attribute(self._runs.reference, self._runs.backend, self.entry)
        stacked = self._runs.stacked
        return (
            self._attribution_of_identical
            or (None if stacked is None else stacked.attribution(self.entry))
            or self._tensor_check.attribution()
        )

    @property
    def _attribution_of_identical(self) -> Attribution | None:
        """The attribution of a tensor that is equal in both runs, or None for other tensors."""
        comparison, stats = self.comparison, self.stats
        if stats is None or stats.mismatches or stats.nonfinite or not comparison.known_equal or comparison.lacking:
            return None
        samples = {each.sample: each.stats for each in comparison.samples}
        return attribute_equal_tensor(self._runs.reference, self._runs.backend, self.entry, stats, samples)

    @cached_property
    def exact(self) -> bool:
        """Whether the tensor holds unrounded integers or booleans and the node's inputs are equal on both sides."""
        unknown = self.entry.whole and self._own_attribution.arithmetic_unsaturated is None
        return unknown and (self.node is None or self.has_equal_inputs)

    @cached_property
    def is_undefined(self) -> bool:
        """Whether the operation of the node is unknown and the reference's nodes do not reproduce its tensor."""
        if self.node is None or not is_undefined(self.node) or self._own_attribution.arithmetic_unsaturated is None:
            return False
        return self._exceeds_limit(self._own_attribution)

    def _exceeds_limit(self, attribution: Attribution | None, *, excused: bool = False) -> bool:
        """Return whether the error, split up this way, is finite and exceeds a derived limit."""
        if self.stats is None or self.comparison.nonfinite:
            return False
        return excess.exceeds_derived_limit(
            Error(stats=self.stats, attribution=attribution, limits=Limits(), excused=excused, exact=self.exact)
        )

    @cached_property
    def cause(self) -> Finding | None:
        """A possible cause of the node's own error: it misreads its input codes, or rounds its factors before use."""
        if self.node is None:
            return None
        return quant_mismatch(self._runs.backend, self.node) or self._rounded_inputs

    @cached_property
    def _rounded_inputs(self) -> Finding | None:
        """The formats to which a product rounds its factors, if that explains the node's own error."""
        stats = self._own_attribution.arithmetic_unsaturated
        if self.node is None or self.entry.quant is not None or self._own_attribution.allowed is None or stats is None:
            return None
        formats = rounded_inputs(self._runs.backend, self.node, self.entry.tensor, (stats.worst_sample or 0, 0))
        formats = formats or (() if self._tensor_check is None else self._tensor_check.rounded_factors())
        if not formats:
            return None
        return Finding(
            kind=FindingKind.PRECISION,
            role=FindingRole.CAUSE,
            node=self.node.name,
            sentence=rounded_operands_clause(formats),
            evidence=" or ".join(formats),
        )

    # The arithmetic that reproduces it

    @cached_property
    def reproduced(self) -> Reproduced | None:
        """The result of the arithmetic search for a node whose dequantized values differ from the reference."""
        if not self.limits.explain or self.node is None or self.stats is None or not self.stats.mismatches:
            return None
        result = self._runs.reproducer.reproduce(self.node, self.entry.tensor)
        if result is not None or self._tensor_check is None:
            return result
        sums = self._tensor_check.limited_sums if self._exceeds_limit(self._own_attribution) else None
        return None if sums is None else Reproduced(by=sums, firm=True)

    @cached_property
    def _is_reproduced_firmly(self) -> bool:
        """Whether a known arithmetic gives the same bits, on too many elements for chance, without any other cause."""
        return self.reproduced is not None and self.reproduced.firm and self.cause is None

    @property
    def known_arithmetic(self) -> str | None:
        """The known arithmetic that gives the same bits, in words, or None."""
        return self.reproduced.by if self.reproduced is not None and self._is_reproduced_firmly else None

    @cached_property
    def arithmetics(self) -> ArithmeticPair | None:
        """The comparison with the arithmetic of the reference's node, if both sides use the same codes."""
        check, runs = self._tensor_check, self._runs
        comparable = check is not None and check.is_declared_equally and self.comparison.basis == "full"
        reproduced = self.reproduced if comparable else None
        if reproduced is None:
            return None
        checks = runs.reference_reproducer, runs.reproducer
        return compare_with_reference_arithmetic((runs.reference, runs.backend), self.entry, checks, reproduced.variant)

    # The replay to rely on, and the limits that are exceeded

    @property
    def attribution(self) -> Attribution | None:
        """The split of the error by the most reliable replay, or None if the tensors cannot be compared."""
        return None if self.stats is None else self._reliable_attribution[0]

    @property
    def by_reference(self) -> bool:
        """Whether the reference's nodes reproduce the tensor but the recorded operator does not."""
        return self._reliable_attribution[1]

    @cached_property
    def _reliable_attribution(self) -> tuple[Attribution, bool]:
        """The attribution by the most reliable replay, and whether that replay uses the reference's nodes."""
        own_attribution = self._own_attribution
        if own_attribution.arithmetic_unsaturated is None or not self._exceeds_limit(own_attribution):
            return own_attribution, False
        if self._is_reproduced_firmly and not self._exceeds_limit(own_attribution, excused=True):
            return own_attribution, False
        # The node of an unknown operator may compute something other than the reference's nodes, so no replay counts.
        if self.is_undefined and self.node is not None:
            return own_attribution.without_judgement(describe_missing_kernel(self.node)), False
        by_reference = self._attribute_by_reference(own_attribution)
        return (
            (by_reference, True) if by_reference is not None else (self._drop_incomplete_replay(own_attribution), False)
        )

    def _attribute_by_reference(self, own_attribution: Attribution) -> Attribution | None:
        """Split the error by replaying the reference's nodes on the node's inputs, if that reproduces the tensor.

        A replay of the recorded operator means nothing if its description is incomplete: attributes are missing, or it
        uses the terms of a different framework. Return None if the reference's nodes do not reproduce the tensor
        either, or not clearly better.
        """
        check = self._tensor_check
        if check is None or not check.segment.nodes or self.entry.quant is not None:
            return None
        by_reference = check.by_reference(rounding=False)
        errors = [
            None if attribution.arithmetic_unsaturated is None else attribution.arithmetic_unsaturated.rmse
            for attribution in (by_reference, own_attribution)
        ]
        if errors[0] is None or errors[1] is None or not errors[0] < SUBSTITUTE_REPLAY_MAX_ERROR_RATIO * errors[1]:
            return None  # a tensor that is equally far from both replays is wrong
        by_reference = check.by_reference(rounding=True)
        return None if self._exceeds_limit(by_reference) else by_reference

    def _drop_incomplete_replay(self, own_attribution: Attribution) -> Attribution:
        """Return an attribution without a replay if the reference is just as far from its own node's replay.

        In that case both recordings lack a part of the operation, such as the slope of a LeakyRelu, and neither replay
        is evidence. A difference between the two graphs is judged separately.
        """
        graph = self._runs.reference.graph
        if graph.tensors[self.entry.reference_tensor].quant is not None:
            return own_attribution  # its rounding to codes would count as the reference's error
        self_check = reference_self_check(self._runs.reference, self.entry)
        reference_error, backend_error = (
            None if attribution.arithmetic_unsaturated is None else attribution.arithmetic_unsaturated.rel_l2
            for attribution in (self_check, own_attribution)
        )
        if (
            not reference_error
            or not backend_error
            or not SELF_CHECK_MIN_ERROR_RATIO <= reference_error / backend_error <= 1 / SELF_CHECK_MIN_ERROR_RATIO
        ):
            return own_attribution
        if not self._exceeds_limit(self_check):
            return own_attribution  # the reference's node has the same rounding error
        node = graph.producer(self.entry.reference_tensor)
        op = "its node" if node is None else node.op
        return Attribution(reason=f"a replay of {op} does not reproduce the reference's values either")

    @property
    def _is_replayed(self) -> bool:
        """Whether the node's own error is known by a replay of the recorded operator."""
        attribution = self.attribution
        return attribution is not None and attribution.arithmetic_unsaturated is not None and not self.by_reference

    @property
    def unreplayed(self) -> str | None:
        """Why the node's own error is unknown, or None if it is known."""
        is_known = self.attribution is None or self.attribution.arithmetic_unsaturated is not None
        return None if is_known or self.attribution is None else self.attribution.reason or _REPLAYED_UNQUANTIZED

    @property
    def failed(self) -> bool:
        """Whether the replay failed or was rejected although the node has a kernel and recorded inputs."""
        return self.attribution is not None and self.attribution.failed

    @cached_property
    def excused(self) -> bool:
        """Whether a known arithmetic gives the same bits, or the inputs may explain the error of an unreplayed node."""
        if self.input_difference is not None:
            return True
        if self.unreplayed is None or self.exact:
            return self._is_reproduced_firmly
        undecided = self.attribution is not None and self.attribution.undecided
        unknown = (
            self.failed
            or undecided
            or self._has_error_like_inputs
            or self._is_fed_back_state
            or self.have_different_inputs
        )
        return unknown or self._is_reproduced_firmly or self.format_loss is not None

    @cached_property
    def format_loss(self) -> tuple[SampleStats, FormatLoss] | None:
        """The worst sample and the loss by the tensor's short format in it, if that accounts for the error.

        None if the error is within the default limit, and if the node's own error is known.
        """
        if self.unreplayed is None or self.limits.given or self._holds_codes or self.comparison.basis != "full":
            return None
        levels = [(excess.level_of_sample(each.stats, self.reference_rms), each) for each in self.comparison.samples]
        low = [(level, each) for level, each in levels if level is not None and level < DEFAULT_MIN_SQNR]
        _, worst = min(low, key=itemgetter(0), default=(None, None))
        if worst is None or worst.stats.rmse is None or self.least_sqnr is not None:
            return None
        places = [place for place in self._places if place[0] == worst.sample]
        loss = self._runs.format_loss(self.entry.tensor, places[0]) if len(places) == 1 else None
        error = worst.stats.rmse * math.sqrt(worst.stats.count)
        return (worst, loss) if loss is not None and loss.excess_db(error) <= GROWTH_MIN_EXCESS else None

    @cached_property
    def _has_error_like_inputs(self) -> bool:
        """Whether the node's error is about as large as its inputs' errors.

        Without a replay, only the total error is known. If most of it may have come from the inputs, it is not evidence
        against the node.
        """
        own_error = None if self.stats is None else self.stats.rel_l2
        if own_error is None or self._segment is None:
            return False
        split = self.attribution
        if split is not None and split.introduced is not None and split.propagated is not None:
            parts = split.introduced.rmse, split.propagated.rmse
            return parts[0] is not None and parts[1] is not None and parts[0] <= parts[1]
        input_stats = (comparison.stats for comparison in self._runs.errors_of_inputs(self._segment))
        errors = [stats.rel_l2 for stats in input_stats if stats is not None and stats.rel_l2 is not None]
        return any(own_error <= PASSED_ON_MAX_ERROR_RATIO * input_error for input_error in errors)

    @cached_property
    def _is_fed_back_state(self) -> bool:
        """Whether each run feeds its own outputs back through this input, starting from equal values."""
        if self.node is not None:
            return False
        runs, entry = self._runs, self.entry
        sides = (runs.reference, entry.reference_tensor), (runs.backend, entry.tensor)
        if not all(is_fed_back(run, name) for run, name in sides):
            return False
        (reference, reference_tensor), (backend, backend_tensor) = sides
        return all(
            np.array_equal(
                real_values(reference, reference_tensor, (sample, 0)), real_values(backend, backend_tensor, (sample, 0))
            )
            for sample in dict.fromkeys(place[0] for place in self._places)
        )

    @cached_property
    def least_sqnr(self) -> float | None:
        """SQNR in dB that an unreplayed float node must reach on equal inputs, or None if the inputs differ."""
        stats, entry, check = self.stats, self.entry, self._tensor_check
        if stats is None or not stats.mismatches or self.unreplayed is None or self.failed or entry.whole:
            return None
        if self.is_undefined or self._holds_codes or check is None or not self.has_equal_inputs:
            return None
        return _EQUAL_INPUTS_MIN_SQNR.get(check.digits(stats))

    @property
    def _holds_codes(self) -> bool:
        """Whether the tensor of either run holds codes."""
        return self.entry.quant is not None or self.reference_quant is not None

    @cached_property
    def diverges(self) -> bool:
        """Whether the error exceeds a limit, set by the user or derived. Non-finite values are judged separately."""
        if excess.exceeds_total_limit(self):
            return True
        if not self._exceeds_limit(self.attribution):
            return False
        return not self.excused or self._exceeds_limit(self.attribution, excused=True)

    @property
    def is_nonfinite(self) -> bool:
        """Whether values are NaN or infinite on one side only and matter, or the statistics count such values."""
        return excess.nonfinite(self) is not None or bool(self.comparison.nonfinite)

    @cached_property
    def exceeds_rounding(self) -> bool:
        """Whether the error exceeds the rounding error of the values' float format."""
        has_format = self.attribution is not None and self.attribution.short_format is not None
        return has_format and self._exceeds_limit(self.attribution)

    def sample(self, number: int, stats: ErrorStats, *, excused: bool) -> Error:
        """Return the error in one sample.

        Args:
            number: The sample.
            stats: Its error.
            excused: Whether the node's own error there is excused.
        """
        attribution = self.attribution
        sample_attribution = None if attribution is None else attribution.samples.get(number)
        return Error(
            name=self.name,
            stats=stats,
            attribution=sample_attribution,
            limits=self.limits,
            excused=excused,
            exact=self.exact,
            harmless=self.harmless,
            usual_rms=self.reference_rms if len(self.comparison.samples) > 1 else None,
            least_sqnr=self.least_sqnr,
            unreplayed=None if self.least_sqnr is None else self.unreplayed,
        )

    @cached_property
    def reference_own_error(self) -> Attribution | None:
        """Error of the reference against a replay of its own node, if the backend is right but differs.

        None if exact or known arithmetic reproduces the reference, or if this cannot be decided.
        """
        stats, check, entry, reference = self.stats, self._tensor_check, self.entry, self._runs.reference
        own_error = None if self.attribution is None else self.attribution.arithmetic_unsaturated
        node = self.reference_node
        if stats is None or check is None or node is None or self.diverges or own_error is None:
            return None
        if operators.of(node.op).casts:  # a cast of numbers out of range depends on the processor
            return None
        if not stats.mismatches and not stats.nonfinite:
            return None
        if stats.nonfinite:
            ends = stats.backend_min, stats.backend_max
            if own_error.nonfinite or None in ends or not all(np.isfinite(array).all() for array in self._arrays()):
                return None
        elif self.reference_quant is None:
            if not self.has_equal_inputs:  # real values of the reference are checked only if its inputs are equal
                return None
        elif entry.quant is None or not (stats.max_lsb or 0.0) > DERIVED_LSB:
            return None
        if not check.is_declared_equally or self.node is None or not operators.same_family(node, self.node):
            return None
        result = self._runs.reference_reproducer.reproduce(node, entry.reference_tensor)
        if result is not None and result.firm:  # checked before the self-check, which replays all steps
            return None
        self_check = reference_self_check(reference, entry)
        reference_error = self_check.arithmetic_unsaturated
        is_beyond_limit = reference_error is not None and (
            reference_error.nonfinite if stats.nonfinite else self._exceeds_limit(self_check)
        )
        return self_check if is_beyond_limit else None

    # Differences of the graphs

    @cached_property
    def difference(self) -> tuple[Finding | None, str | None]:
        """A graph difference that affects the tensor, or the reason why it is unknown."""
        check, attribution = self._tensor_check, self.attribution
        if check is None or self.by_reference:
            return None, None
        if self.stats is None:
            return check.find_shape_difference(), None
        if attribution is None or not self.stats.mismatches:
            return None, None
        finding, why = check.difference(attribution, self.comparison)
        if finding is None and why is not None and self._has_unreplayed_error:
            finding = find_activation_missing_before(check.facts)
        return finding or self._find_contradicted_codes(check.node, check.segment), why

    @property
    def _has_unreplayed_error(self) -> bool:
        """Whether the error of an unreplayed node exceeds both float rounding and the errors of its inputs."""
        own_error = None if self.stats is None else self.stats.rel_l2
        if self.unreplayed is None or own_error is None or self.entry.whole or self._has_error_like_inputs:
            return False
        return own_error > segment_share(declared_unit(self._runs.backend))

    def _find_contradicted_codes(self, node: Node, segment: Segment) -> Finding | None:
        """Return the finding that a node reads codes with a scale or zero point other than their own, or None.

        None also if the reference does the same, and if the node diverges: its error is then the finding, and this is
        only the cause.
        """
        if self.is_nonfinite or self._exceeds_limit(self.attribution, excused=self._is_reproduced_firmly):
            return None
        nodes = {part_node.name: part_node for part_node in (node, *segment.own)}.values()
        finding = next(
            filter(None, (find_contradicted_codes(self._runs.backend, part_node) for part_node in nodes)), None
        )
        if finding is None or any(
            find_contradicted_codes(self._runs.reference, part_node) for part_node in segment.nodes
        ):
            return None
        return finding

    @cached_property
    def unrepresentable_constant(self) -> Finding | None:
        """A constant that its format cannot represent, if the graphs do not differ in any other respect."""
        check = self._tensor_check
        is_decided = self.stats is None or not self.stats.mismatches or self.difference[0] is not None
        if is_decided or check is None or self.by_reference:
            return None
        main = check.facts.main
        return self._constant_outside_format or (
            None if main is None else unrepresentable_constant(self._runs.graphs.replays, main, check.node)
        )

    @cached_property
    def _constant_outside_format(self) -> Finding | None:
        """A constant that the run's compute format cannot represent, if the node is wrong."""
        check = self._tensor_check
        if check is None or (excess.nonfinite(self) is None and not self.diverges):
            return None
        return next(filter(None, (find_constant_outside_format(check.facts, place) for place in self._places)), None)
