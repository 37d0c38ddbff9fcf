"""Explains a recording: for each output of each node, the arithmetic that reproduces it, or what is wrong with it.

Nodes on codes are searched (see `qdebug.arithmetic.search`) and their evidence is pooled (see
`qdebug.arithmetic.pooling`); nodes that only move codes must match exactly; float nodes are compared with a replay (see
`qdebug.compare.explaining.float_band`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from typing import Protocol, TypeVar

import numpy as np

from qdebug.arithmetic.evidence import residual_of
from qdebug.arithmetic.fitted import other_widths
from qdebug.arithmetic.floats.rounded import ExplainedPlacements, roundings_of_nodes
from qdebug.arithmetic.patterns.residual import Residual
from qdebug.arithmetic.pooling import Pooled, choose_variants_by_kind, pool
from qdebug.arithmetic.presets import KnownRuntime, is_known, names_of, preset
from qdebug.arithmetic.search import SearchResult, search
from qdebug.arithmetic.units import Place, Units, UnitSource
from qdebug.compare.attribute.integer_tensors import holds_few_bits
from qdebug.compare.explaining.explanation import (
    ExplainedRun,
    ExplainStatus,
    NodeExplanation,
    PresetMatch,
    Recorded,
    RunnerUp,
)
from qdebug.compare.explaining.float_band import assumption_clause, judge_float
from qdebug.compare.explaining.further import further_cause, with_further_cause
from qdebug.compare.explaining.fused import WithFused
from qdebug.compare.explaining.layer_cause import cause_inside
from qdebug.compare.explaining.neighbours import with_neighbours
from qdebug.compare.explaining.placements import with_placement
from qdebug.compare.explaining.states import explain_state_read
from qdebug.compare.measure.recordings import RecentTensors, as_compared
from qdebug.errors import KernelError, NotRecordedError, UsageError
from qdebug.model import Graph, MemoryRecording, Node, Recording, operators
from qdebug.model.names import format_names, matching_names, near_names
from qdebug.model.thresholds.explanation import (
    FUSED_ROUNDING_MAX_SHARE,
    OUTLIER_ERROR_RATIO,
    RECORDED_MULTIPLIER_MAX_REL_DIFFERENCE,
    UNKNOWN_SEARCH_MAX_FAILURES,
)
from qdebug.replay.data_codes import describe_assumed_rounding, roundings
from qdebug.replay.extents import recorded_limits
from qdebug.replay.node_units import with_recorded_scale
from qdebug.replay.real_form import describe_real_tensor
from qdebug.replay.registry import has_kernel, run_node
from qdebug.replay.run import one_thread
from qdebug.replay.scaling import GIVEN
from qdebug.replay.variant import Variant, describe, parse_variant

__all__ = [
    "Explainer",
    "OnProgress",
    "Shared",
    "explain_recording",
    "find_backend_variants",
    "find_outputs",
    "outputs_with_same_operators",
]

Q = TypeVar("Q")
A = TypeVar("A")

OnProgress = Callable[[int, int, str], None]
"""Called with the number of finished outputs, their total and the name of the next node."""

_UNKNOWN_NOT_TRIED = (
    "step programs of no known runtime were not tried, because they failed for too many nodes of this operator"
)
_ANY_ARITHMETIC = "any arithmetic"
_UNDECIDED = "every arithmetic that was tried reproduces these codes; the recording cannot tell them apart"
_MOVED_KIND = "moved"
"""Kind of a node that outputs codes and computes nothing."""
_MERGED_QUANTIZER = "a quantizer merged with the quantized node before it"
_REPLAYED_INSIDE = "replayed values inside fused layers"
"""The assumption behind an explanation of a fused layer."""
_ANSWERED_STATUSES = (ExplainStatus.EXPLAINED, ExplainStatus.IN_BAND)
_EMPTY_RECORDING = MemoryRecording(Graph(()), {})
"""Stands in for the recording in data that travels between processes."""


class Explainer:
    """Explains single nodes of a recording. The caller pools the search results of sibling nodes.

    Args:
        recording: The backend's recording.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = RecentTensors(as_compared(recording))
        self.measured = KnownRuntime(self.recording.info)
        """The known arithmetic of the runtime that was recorded."""
        self.with_inner = WithFused(self.recording, self.measured.arithmetic)
        """The recording, together with computed tensors inside fused layers."""
        self.with_unrounded_inner = WithFused(self.recording, self.measured.arithmetic, rounded=False)
        """The same, but values inside a layer stay real numbers instead of being rounded to codes."""
        self._units, self._inner_units = Units(self.recording), Units(self.with_inner)

    def examine(self, tensor: str, *, unknown: bool) -> SearchResult | NodeExplanation:
        """Examine one output: search for its arithmetic, or explain it directly.

        Args:
            tensor: The output of a node.
            unknown: Whether to try step programs that no known runtime uses.
        """
        node = self.recording.graph.producer(tensor)
        if node is None:
            raise UsageError(f"No node computes {tensor!r}.")
        if operators.named(node.op).reads_state:
            return explain_state_read(self.recording, node, tensor)
        with _reproducible_arithmetic():
            missing_input = self._units.missing(node, tensor)
            finding: SearchResult | NodeExplanation
            if missing_input is None:
                finding = _examine_output(self.recording, self._units, node, tensor, unknown=unknown)
            else:
                finding = _make_answer(node, tensor, ExplainStatus.NO_INPUT, missing_input)
                with suppress(KernelError, NotRecordedError, UsageError):
                    finding = self._examine_end_of_layer(node, tensor, finding, unknown=unknown)
            with suppress(KernelError, NotRecordedError, UsageError):
                finding = self._examine_with_preceding_node(node, tensor, finding) or finding
            if isinstance(finding, NodeExplanation):
                with suppress(KernelError, NotRecordedError, UsageError):
                    finding = with_placement(self.recording, node, tensor, finding)
            return finding

    def explain_alone(self, tensor: str) -> NodeExplanation:
        """Explain one output without its siblings and without step programs that no known runtime uses.

        Args:
            tensor: The output of a node.
        """
        result = self.examine(tensor, unknown=False)
        findings, pooled = _pool_results(self, [result])
        return self.answer(findings[0], pooled[0]) if isinstance(result, SearchResult) else result

    def _examine_with_preceding_node(
        self, node: Node, tensor: str, finding: SearchResult | NodeExplanation
    ) -> SearchResult | None:
        """Search for one arithmetic of a quantizing node and the quantized node before it, or return None if none fits.

        A runtime that fuses the two may never compute the real numbers between them, even if the recording has them.
        """
        is_answered = finding.matching if isinstance(finding, SearchResult) else finding.status in _ANSWERED_STATUSES
        preceding_node = self.recording.graph.producer(node.inputs[0]) if any(node.inputs[:1]) else None
        if is_answered or preceding_node is None or not operators.of(node.op).quantizes:
            return None
        if len(self.recording.graph.consumers(node.inputs[0])) != 1 or not operators.plain(preceding_node).unit:
            return None
        merged_node = replace(preceding_node, outputs=(tensor,))
        source = self._inner_units.find(node, tensor, merged_node)
        if not isinstance(source, UnitSource) or source.bad_scale_text is not None:
            return None
        merged_finding = search(source, unknown=False)
        return replace(merged_finding, inside=_MERGED_QUANTIZER) if merged_finding.matching else None

    def _examine_end_of_layer(
        self, node: Node, tensor: str, fallback: NodeExplanation, *, unknown: bool
    ) -> SearchResult | NodeExplanation:
        """Examine the last node of a fused layer, whose unrecorded inputs are replayed.

        Args:
            node: The last node of the layer.
            tensor: Its output.
            fallback: The answer if the layer cannot be replayed.
            unknown: Whether to try step programs that no known runtime uses.
        """
        if tensor not in self.recording.names or self._inner_units.missing(node, tensor) is not None:
            return fallback
        chains = [chain for name in node.inputs if name and (chain := self.with_inner.chain(name)) is not None]
        if not chains:
            return fallback
        finding = _examine_output(self.with_inner, self._inner_units, node, tensor, unknown=unknown)
        if isinstance(finding, SearchResult):
            if not finding.matching and any(chain.makes_codes for chain in chains):
                unrounded_finding = _examine_output(
                    self.with_unrounded_inner, Units(self.with_unrounded_inner), node, tensor, unknown=False
                )
                if isinstance(unrounded_finding, SearchResult) and unrounded_finding.matching:
                    return replace(
                        unrounded_finding, inside=f"{_REPLAYED_INSIDE}, without rounding to codes", unrounded=True
                    )
            if (
                not finding.matching
                and any(chain.has_real_sums for chain in chains)
                and _is_explained_by_sum_order(finding)
            ):
                mismatch_count = round((1 - (finding.match or 0.0)) * finding.elements)
                symptom = (
                    f"{mismatch_count} of {finding.elements} codes are off by one after float sums inside the layer"
                )
                answer = _make_answer(node, tensor, ExplainStatus.IN_BAND, symptom)
                return replace(answer, match=finding.match, elements=finding.elements, assumed=_REPLAYED_INSIDE)
            return replace(finding, inside=_REPLAYED_INSIDE)
        assumptions = "; ".join(filter(None, (finding.assumed, _REPLAYED_INSIDE)))
        if finding.status is ExplainStatus.UNEXPLAINED and finding.band is not None:
            if not self._is_within_layer_rounding(node, tensor):
                likely = cause_inside(self.with_inner, node, tensor, self._inner_units.places(node, tensor))
                if likely is not None:
                    reason = f"a replay of its layer does not reproduce it; likely: {likely}"
                    return replace(finding, assumed=assumptions, reason=reason)
                return (
                    fallback if any(chain.has_real_sums for chain in chains) else replace(finding, assumed=assumptions)
                )
            finding = replace(finding, status=ExplainStatus.IN_BAND, reason=None)
        return (
            replace(finding, assumed=assumptions)
            if finding.status in (*_ANSWERED_STATUSES, ExplainStatus.UNEXPLAINED)
            else fallback
        )

    def _is_within_layer_rounding(self, node: Node, tensor: str) -> bool:
        """Return whether float32 rounding of all computations in a layer accounts for the error of its real output."""
        for place in self._inner_units.places(node, tensor):
            recorded_values = self.with_inner.load(tensor, *place).astype(np.float64)
            inputs = {name: self.with_inner.load(name, *place) for name in dict.fromkeys(node.inputs) if name}
            computed_values = self.with_inner.run(node, inputs)[tensor]
            if recorded_values.shape != computed_values.shape or not np.linalg.norm(
                recorded_values - computed_values
            ) <= self.with_inner.rounding_norm(node, *place):
                return False
        return True

    def map_inner_nodes_to_outputs(self, answers: Sequence[NodeExplanation]) -> Mapping[str, str]:
        """Map each node inside a fused layer to the layer's output, if that output has an answer."""
        last_nodes: dict[str, str] = {}
        for answer in answers:
            node = self.recording.graph.producer(answer.tensor)
            if answer.status is ExplainStatus.NO_INPUT or node is None:
                continue
            if self._units.missing(node, answer.tensor) is None:
                continue
            for chain in (self.with_inner.chain(name) for name in node.inputs if name):
                last_nodes |= dict.fromkeys((each.name for each in (chain.nodes if chain else ())), answer.tensor)
        return last_nodes

    def answer(self, finding: SearchResult, pooled: Pooled) -> NodeExplanation:
        """Return the answer for a search result, taking the node's siblings into account."""
        with _reproducible_arithmetic():
            return _with_recorded_multiplier(_build_answer(finding, pooled, self.measured))

    def attach_recording(self, finding: SearchResult) -> SearchResult:
        """Return a search result from another process with this process's recording attached."""
        return _with_recording(finding, self.with_unrounded_inner if finding.unrounded else self.with_inner)


@contextmanager
def _reproducible_arithmetic() -> Iterator[None]:
    """Make results the same on every machine: use one BLAS thread, and ignore floating-point errors."""
    with one_thread(), np.errstate(all="ignore"):
        yield


def _is_explained_by_sum_order(finding: SearchResult) -> bool:
    """Return whether so few codes are wrong, all by one LSB, that another order of the float sums explains them."""
    if finding.best is None or 1 - (finding.match or 0.0) > FUSED_ROUNDING_MAX_SHARE:
        return False
    residual = residual_of(finding, finding.best)
    return residual is None or residual.max_lsb <= 1


def _with_recording(finding: SearchResult, recording: Recording) -> SearchResult:
    return replace(finding, source=replace(finding.source, recording=recording))


def examine_in_worker(explainer: Explainer, question: tuple[str, bool]) -> SearchResult | NodeExplanation:
    """Examine one output in a worker process, and return the result without the recording.

    Args:
        explainer: The explainer.
        question: The output, and whether to try step programs that no known runtime uses.
    """
    finding = explainer.examine(question[0], unknown=question[1])
    return _with_recording(finding, _EMPTY_RECORDING) if isinstance(finding, SearchResult) else finding


def answer_in_worker(explainer: Explainer, question: tuple[SearchResult, Pooled]) -> NodeExplanation:
    """Return the answer for a search result that comes without its recording, in a worker process.

    Args:
        explainer: The explainer.
        question: The search result, and the evidence of its siblings.
    """
    return explainer.answer(explainer.attach_recording(question[0]), question[1])


class Shared(Protocol):
    """Distributes questions to the explainers of other processes."""

    def __call__(self, work: Callable[[Explainer, Q], A], questions: Sequence[Q]) -> Iterator[A]:
        """Yield the answers in the order of the questions.

        Args:
            work: Answers one question. It and all questions can be pickled.
            questions: The questions.
        """


def explain_recording(
    recording: Recording,
    *,
    tensors: Collection[str] | None = None,
    progress: OnProgress | None = None,
    shared: Shared | None = None,
) -> ExplainedRun:
    """Find the arithmetic of every node, and describe the nodes that no arithmetic reproduces.

    Args:
        recording: The backend's recording.
        tensors: Outputs to examine. Only their evidence is pooled. None for all outputs.
        progress: Called with the number of finished outputs, their total and the name of the next node.
        shared: Distributes single nodes to other processes. None to do everything in this process.
    """
    recorded_graph = recording.graph
    explainer = Explainer(recording)
    recording = explainer.recording
    todo = [pair for pair in _outputs(recording) if tensors is None or pair[1] in tensors]
    results = (
        _examine_all(explainer, todo, progress)
        if shared is None
        else _examine_all_in_workers(explainer, todo, progress, shared)
    )
    findings, pooled = _pool_results(explainer, results)
    answers_by_position = {
        at: explainer.answer(result, pooled[at]) for at, result in findings.items() if result.matching or not shared
    }
    if shared is not None:
        open_positions = [at for at in findings if at not in answers_by_position]
        questions = [(_with_recording(findings[at], _EMPTY_RECORDING), pooled[at]) for at in open_positions]
        answers_by_position |= zip(open_positions, shared(answer_in_worker, questions), strict=True)
    if progress is not None:
        progress(len(todo), len(todo), "")
    answers = [
        answers_by_position[at] if isinstance(result, SearchResult) else result for at, result in enumerate(results)
    ]
    inside = explainer.map_inner_nodes_to_outputs(answers)
    nodes = list[NodeExplanation]()
    for answer in with_neighbours(recording.graph, answers):
        producer = recorded_graph.producer(answer.tensor)
        op = answer.op if producer is None else producer.op
        end = inside.get(answer.node) if answer.status is ExplainStatus.NO_INPUT else None
        why = f"it is computed inside the layer that ends with {end!r}, which is examined as a whole"
        coded = end is None and _is_on_codes(recording.graph, answer.tensor)
        nodes.append(replace(answer, op=op, on_codes=coded, reason=answer.reason if end is None else why))
    classes = [(finding, answers[position].members) for position, finding in findings.items() if finding.matching]
    arithmetic, exceptions = choose_variants_by_kind(classes)
    placed = [
        ExplainedPlacements(node=each.node, op=each.op, short=each.dtypes or "", placements=each.placements)
        for each in answers
        if each.placements
    ]
    return ExplainedRun(
        run=recording.info,
        nodes=tuple(nodes),
        arithmetic=arithmetic,
        exceptions=exceptions,
        roundings=roundings_of_nodes(placed),
    )


def find_backend_variants(recording: Recording, *, tensors: Collection[str]) -> Mapping[str, str]:
    """Return the variant of each kind of unit, as found on the given outputs.

    Unlike `explain_recording`, this does not look for the causes of unexplained outputs.

    Args:
        recording: The backend's recording.
        tensors: Outputs to examine.

    Returns:
        Text of the variant by key of `Arithmetic.variants`. Kinds without an explained output are missing.
    """
    explainer = Explainer(recording)
    todo = [pair for pair in _outputs(explainer.recording) if pair[1] in tensors]
    findings, pooled = _pool_results(explainer, _examine_all(explainer, todo, None))
    matching = [(finding, pooled[at]) for at, finding in findings.items() if finding.matching]
    return choose_variants_by_kind(
        [(finding, explainer.answer(finding, evidence).members) for finding, evidence in matching]
    )[0]


def _pool_results(
    explainer: Explainer, results: Sequence[SearchResult | NodeExplanation]
) -> tuple[dict[int, SearchResult], Mapping[int, Pooled]]:
    """Return the search results among the given results, and their pooled evidence, both by position."""
    findings = {position: result for position, result in enumerate(results) if isinstance(result, SearchResult)}
    with _reproducible_arithmetic():
        pooled = pool(findings, explainer.measured)
    findings |= {at: findings[at].without_novel() for at, evidence in pooled.items() if evidence.doubt is not None}
    findings |= {
        at: replace(findings[at], matching=evidence.variants, match=1.0)
        for at, evidence in pooled.items()
        if evidence.variants and not findings[at].matching and evidence.doubt is None
    }
    return findings, pooled


def _examine_all(
    explainer: Explainer, todo: Sequence[tuple[Node, str]], progress: OnProgress | None
) -> list[SearchResult | NodeExplanation]:
    """Examine outputs in sequence.

    Once the search has failed for too many nodes of an operator, it skips step programs that no known runtime uses for
    the operator's other nodes.
    """
    failures: Counter[str] = Counter()
    results = []
    for position, (node, tensor) in enumerate(todo):
        if progress is not None:
            progress(position, len(todo), node.name)
        result = explainer.examine(tensor, unknown=failures[node.op] < UNKNOWN_SEARCH_MAX_FAILURES)
        failures[node.op] += isinstance(result, SearchResult) and not result.matching
        results.append(result)
    return results


def _examine_all_in_workers(
    explainer: Explainer, todo: Sequence[tuple[Node, str]], progress: OnProgress | None, shared: Shared
) -> list[SearchResult | NodeExplanation]:
    """Examine outputs in other processes, with the same results as in sequence.

    Step programs that no known runtime uses are tried last. A batch has no more nodes of an operator than a sequential
    search would try before it gives up on the operator.
    """
    results: list[SearchResult | NodeExplanation] = []
    for result in shared(examine_in_worker, [(tensor, False) for _, tensor in todo]):
        results.append(result)
        if progress is not None and len(results) < len(todo):
            progress(len(results), len(todo), todo[len(results)][0].name)
    failed_positions: dict[str, list[int]] = {}
    for position, result in enumerate(results):
        if isinstance(result, SearchResult) and not result.matching:
            failed_positions.setdefault(todo[position][0].op, []).append(position)
    failures: Counter[str] = Counter()
    while batch := [
        at
        for op in failed_positions
        for at in failed_positions[op][: max(0, UNKNOWN_SEARCH_MAX_FAILURES - failures[op])]
    ]:
        for at, result in zip(batch, shared(examine_in_worker, [(todo[at][1], True) for at in batch]), strict=True):
            results[at] = result
            failures[todo[at][0].op] += isinstance(result, SearchResult) and not result.matching
        failed_positions = {
            op: [at for at in positions if at not in batch] for op, positions in failed_positions.items()
        }
    return [explainer.attach_recording(result) if isinstance(result, SearchResult) else result for result in results]


def _is_on_codes(graph: Graph, tensor: str) -> bool:
    """Return whether a tensor holds codes, or is computed by a quantized operator or with quantized operands.

    A node that only dequantizes, moves or counts its input does not compute with codes.
    """
    node = graph.producer(tensor)
    if node is None or graph.tensors[tensor].quant is not None:
        return graph.tensors[tensor].quant is not None
    row = operators.named(node.op)
    if row.converts_codes or row.rounds_nothing or row.casts or row.counts or row.holds_nodes:
        return False
    if row.takes_codes or row.real is not None:
        return True
    input_names = [name for name in node.inputs if name]
    if any(graph.tensors[name].quant is not None for name in input_names):
        return True
    packed = any(graph.is_constant(name) and holds_few_bits(graph, name) for name in input_names)
    return packed and (row.product or operators.is_unknown(node))


def find_outputs(recording: Recording, name: str) -> tuple[str, ...]:
    """Return the outputs of the node that a user names, or the tensor that a user names.

    Args:
        recording: The run.
        name: Full name of a node or a tensor, or a substring or pattern that matches only one node.

    Raises:
        UsageError: No node and no computed tensor matches, or several nodes match.
    """
    outputs = list(_outputs(recording))
    exact_matches = tuple(tensor for node, tensor in outputs if name in (node.name, tensor))
    if exact_matches:
        return exact_matches
    known_names = [each for node, tensor in outputs for each in (node.name, tensor)]
    fitting = set(matching_names(name, known_names))
    hits = [(node.name, tensor) for node, tensor in outputs if {node.name, tensor} & fitting]
    nodes = dict.fromkeys(node for node, _ in hits)
    if len(nodes) == 1:
        return tuple(tensor for _, tensor in hits)
    if nodes:
        raise UsageError(
            f"{name!r} matches {len(nodes)} nodes: {format_names(nodes)}.",
            hint="Give one of these names, or a longer part of the name.",
        )
    raise UsageError(
        f"No node and no computed tensor is called {name!r}.{near_names(name, known_names)}",
        hint="List the names: qdebug explain BACKEND --all.",
    )


def outputs_with_same_operators(recording: Recording, tensors: Collection[str]) -> frozenset[str]:
    """Return the outputs of all nodes that have the operator of any node that computes one of the given tensors."""
    outputs = list(_outputs(recording))
    ops = {node.op for node, tensor in outputs if tensor in tensors}
    return frozenset(tensor for node, tensor in outputs if node.op in ops)


def _outputs(recording: Recording) -> Iterator[tuple[Node, str]]:
    """Yield each node with each of its outputs, without constants."""
    for node in recording.graph.nodes:
        if operators.of(node.op).constant:
            continue
        for tensor in node.outputs:
            if tensor and not recording.graph.is_constant(tensor):
                yield node, tensor


def _make_answer(node: Node, tensor: str, status: ExplainStatus, reason: str | None = None) -> NodeExplanation:
    return NodeExplanation(node=node.name, op=node.op, tensor=tensor, status=status, reason=reason)


def _examine_output(
    recording: Recording, units: Units, node: Node, tensor: str, *, unknown: bool
) -> SearchResult | NodeExplanation:
    """Examine one output: search for its arithmetic, or explain it directly."""
    try:
        source = units.find(node, tensor)
        if isinstance(source, UnitSource) and source.only_moves_codes:
            return _explain_moved_codes(recording, node, tensor, "", units.places(node, tensor))
        if isinstance(source, UnitSource):
            bad_scale_text = source.bad_scale_text
            if bad_scale_text is not None:
                return _make_answer(node, tensor, ExplainStatus.UNEXPLAINED, bad_scale_text)
            finding = search(source, unknown=unknown)
            return (
                finding
                if finding.reason is None
                else _make_answer(node, tensor, ExplainStatus.NO_KERNEL, _as_clause(finding.reason))
            )
        at = units.places(node, tensor)
        return (
            _explain_moved_codes(recording, node, tensor, source, at)
            if units.quantized(node, tensor)
            else _explain_real_node(recording, node, tensor, at)
        )
    except (KernelError, NotRecordedError, UsageError) as error:
        return _make_answer(node, tensor, ExplainStatus.NO_KERNEL, _as_clause(error.message))


def _as_clause(message: str) -> str:
    """Turn a sentence into a clause, without its capital and its period. An operator's name keeps its capital."""
    name = any(letter.isupper() for letter in message.split(" ", 1)[0][1:])
    return (message if name else message[:1].lower() + message[1:]).rstrip(".")


def _explain_real_node(recording: Recording, node: Node, tensor: str, at: Sequence[Place]) -> NodeExplanation:
    """Compare the output of a node on floats or plain integers with its replay."""
    if not has_kernel(node.op, node.domain):
        return _make_answer(node, tensor, ExplainStatus.NO_KERNEL, f"no kernel is known for {node.op}")
    stated, *alternative_nodes = roundings(node)
    finding = judge_float(recording, stated, tensor, at)
    assumed_node = stated
    for alternative in () if finding.within else alternative_nodes:
        alternative_finding = judge_float(recording, alternative, tensor, at)
        if alternative_finding.within:
            finding, assumed_node = alternative_finding, alternative
            break
    if (
        not finding.within
        and finding.likely is None
        and operators.plain(node).rescales
        and _has_codes_without_scale(recording, tensor, at[0])
    ):
        reason_text = f"the recording does not say how its output {tensor!r} is quantized"
        return _make_answer(node, tensor, ExplainStatus.NO_KERNEL, reason_text)
    mistaken = None if finding.within else _clause_of_fractional_codes(recording, node, tensor, at[0])
    is_far_off = not finding.within and (finding.band.ratio or 0.0) > OUTLIER_ERROR_RATIO
    further_reason = further_cause(recording, node, tensor, at) if is_far_off and finding.likely is None else None
    reason = "; ".join(filter(None, (finding.reason, further_reason, mistaken))) or None
    answer = _make_answer(node, tensor, ExplainStatus.IN_BAND if finding.within else ExplainStatus.UNEXPLAINED, reason)
    assumed = (
        [describe_assumed_rounding(assumed_node, node), assumption_clause(recording, tensor, finding.band)]
        if finding.within
        else []
    )
    clause = "; ".join(filter(None, assumed)) or None
    return replace(answer, band=finding.band, match=finding.match, elements=finding.elements, assumed=clause)


def _has_codes_without_scale(recording: Recording, tensor: str, place: Place) -> bool:
    """Return whether a tensor holds 8-bit or 16-bit integers without a scale."""
    dtype = recording.load(tensor, *place).dtype
    return recording.graph.tensors[tensor].quant is None and dtype.kind in "iu" and dtype.itemsize <= 2


def _clause_of_fractional_codes(recording: Recording, node: Node, tensor: str, place: Place) -> str | None:
    """Return a clause on an input or output that has a scale but holds fractions instead of codes, or None."""
    for name in (tensor, *filter(None, node.inputs)):
        values = recording.load(name, *place)
        if recording.graph.tensors[name].quant is None or values.dtype.kind != "f":
            continue
        if np.any(values != np.rint(values)):
            return f"{name!r} was recorded with a scale, but its values are not integers"
    return None


def _explain_moved_codes(
    recording: Recording, node: Node, tensor: str, reason: str, at: Sequence[Place]
) -> NodeExplanation:
    """Compare a node that only moves codes, or converts them in one defined way, with its replay.

    Args:
        recording: The recording.
        node: The node.
        tensor: Its output.
        reason: Why there is no answer if the node does something else.
        at: Samples and steps to examine.
    """
    quants = [recording.graph.tensors[name].quant for name in node.inputs if name]
    equal_quants = [quant for quant in quants if quant is not None and quant == recording.graph.tensors[tensor].quant]
    row = operators.plain(node)
    # For other codes (int32, 8-bit floats, blocks with a shared scale), QuantizeLinear and DequantizeLinear have only
    # one correct result.
    is_defined = equal_quants or (row.converts_codes and describe_real_tensor(node, recording.graph) is None)
    if not has_kernel(node.op, node.domain) or row.rescales or not is_defined:
        return _make_answer(node, tensor, ExplainStatus.NO_KERNEL, _as_clause(reason))
    equal = total = 0
    for place in at:
        values = {name: recording.load(name, *place) for name in dict.fromkeys(node.inputs) if name}
        completed = with_recorded_scale(node, values, recording.graph.tensors)
        with recorded_limits(recording, place):
            replayed = run_node(*completed, recording.graph.opset)[tensor]
        recorded_values = recording.load(tensor, *place)
        if recorded_values.shape != replayed.shape:
            raise KernelError(
                f"The replay has shape {replayed.shape}, but the recorded tensor has {recorded_values.shape}."
            )
        equal += int(np.count_nonzero(recorded_values == replayed))
        total += recorded_values.size
    status = ExplainStatus.EXPLAINED if equal == total else ExplainStatus.UNEXPLAINED
    difference_text = (
        None if equal == total else f"{total - equal} of {total} elements differ from a replay of {node.op}"
    )
    answer = _make_answer(node, tensor, status, difference_text)
    return replace(
        answer,
        kind=_MOVED_KIND if equal_quants else "defined",
        words="codes copied unchanged" if equal_quants else "as the operator is defined",
        match=equal / max(total, 1),
        elements=total,
        tried=1,
    )


def _build_answer(finding: SearchResult, pooled: Pooled, measured: KnownRuntime) -> NodeExplanation:
    """Return the answer for a search result, taking the node's siblings into account."""
    node, tensor = finding.source.node, finding.source.tensor
    is_explained = bool(finding.matching)
    answer = NodeExplanation(
        node=node.name,
        op=node.op,
        tensor=tensor,
        status=ExplainStatus.EXPLAINED if is_explained else ExplainStatus.UNEXPLAINED,
        reason=pooled.reason,
        kind=finding.kind,
        dtypes=_dtypes_text(finding.dtypes),
        elements=finding.elements,
        alone=len(finding.matching),
        siblings=pooled.siblings,
        match=finding.match,
        witnesses=finding.witnesses,
        witness_elements=finding.witness_elements,
        tried=finding.tried,
        recorded=_recorded_multiplier_of(finding),
        assumed=finding.inside,
        runner_up=None
        if finding.runner_up is None
        else RunnerUp(variant=str(finding.runner_up), match=finding.runner_up_match),
    )
    members = pooled.variants if is_explained else tuple(v for v in (finding.best,) if v is not None)
    if not members:
        return answer
    known_variants = measured.variants(finding.kind, finding.dtypes, finding.branch)
    members = tuple(
        sorted(members, key=lambda variant: variant not in known_variants)
    )  # a stable sort: measured variants first
    names = tuple(map(str, pooled.members))
    clause = "" if any(map(is_known, pooled.members)) or not pooled.members else other_widths(pooled.members)
    words = ", ".join(filter(None, (describe(members[0]), clause)))
    answer = replace(answer, variants=tuple(map(str, members)), members=names, words=words)
    if not is_explained:
        expected_variant = pooled.usual or finding.plain or members[0]
        residual = residual_of(finding, expected_variant)
        residual = residual if residual is None or pooled.fits is not None else with_further_cause(residual, finding)
        stated_reasons = (
            finding.source.zero_scales_text,
            pooled.doubt,
            None if finding.unknown else _UNKNOWN_NOT_TRIED,
        )
        reasons = [reason for reason in stated_reasons if reason]
        if residual is not None:
            answer = _with_residual_variant(answer, residual, finding)
            if pooled.fits is not None:  # a variant that reproduces every element is the likeliest
                residual = replace(residual, likely=f"{describe(pooled.fits)} (reproduces every element)")
        else:
            mismatch_count = finding.elements - round((finding.match or 0.0) * finding.elements)
            reasons.insert(0, f"{mismatch_count} of {finding.elements} elements differ from a replay of {node.op}")
        return replace(answer, residual=residual, reason="; ".join(reasons) or None)
    if finding.runner_up is None and finding.tried > 1 and len(pooled.members) == finding.tried:
        return replace(answer, words=_ANY_ARITHMETIC, reason="; ".join(filter(None, (_UNDECIDED, answer.reason))))
    matching_presets = _matching_presets(pooled.members, finding.kind, finding.dtypes, finding.branch)
    by_name = {match.name: match for match in matching_presets}
    return replace(answer, presets=tuple(by_name[name] for name in measured.ordered(by_name)))


def _with_residual_variant(answer: NodeExplanation, residual: Residual, finding: SearchResult) -> NodeExplanation:
    """Set the answer's variant to the one that the residual was measured against.

    If another variant reproduces more elements, it becomes the runner-up.
    """
    match = 1 - residual.wrong / residual.total
    answer = replace(answer, variants=(residual.against,), words=describe(parse_variant(residual.against)), match=match)
    if finding.match is None or finding.match <= match or str(finding.best) == residual.against:
        return answer
    return replace(answer, runner_up=RunnerUp(variant=str(finding.best), match=finding.match))


def _recorded_multiplier_of(finding: SearchResult) -> Recorded | None:
    if finding.given is None:
        return None
    reproduces = any(variant.multiplier.number == GIVEN for variant in finding.matching)
    return Recorded(reproduces=reproduces, ratio=finding.given)


def _with_recorded_multiplier(answer: NodeExplanation) -> NodeExplanation:
    """Add a remark if the recorded multiplier and shift do not reproduce a node, or contradict the recorded scales."""
    multiplier = answer.recorded
    if multiplier is None:
        return answer
    quotient_clause = f"their product is {multiplier.ratio:.6g} times the quotient of the recorded scales"
    clause = (
        "" if multiplier.reproduces else "no step program with the recorded multiplier and shift reproduces the codes"
    )
    if abs(multiplier.ratio - 1) > RECORDED_MULTIPLIER_MAX_REL_DIFFERENCE:
        clause = clause or "the recorded multiplier and shift reproduce the codes, but the scales do not"
        clause = f"{clause}; {quotient_clause}"
    return replace(answer, reason="; ".join(filter(None, (answer.reason, clause))) or None)


def _dtypes_text(dtypes: tuple[str, ...]) -> str:
    return f"{' x '.join(dict.fromkeys(dtypes[:-1]) if len(dtypes) > 3 else dtypes[:-1])} -> {dtypes[-1]}"


@lru_cache(maxsize=64)  # sibling nodes usually have the same variants
def _matching_presets(
    members: tuple[Variant, ...], kind: str, dtypes: tuple[str, ...], branch: str
) -> tuple[PresetMatch, ...]:
    preset_names = dict.fromkeys(name for variant in members for name in names_of(variant, kind, dtypes, branch))
    return tuple(
        PresetMatch(name=name, provenance=preset(name).known(kind), detail=preset(name).about) for name in preset_names
    )
