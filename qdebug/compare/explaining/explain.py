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
from qdebug.arithmetic.pooling import Pooled, pool, standing_for
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
from qdebug.compare.explaining.float_band import assumption, judge_float
from qdebug.compare.explaining.further import further_cause, with_further_cause
from qdebug.compare.explaining.fused import WithFused
from qdebug.compare.explaining.layer_cause import cause_inside
from qdebug.compare.explaining.neighbours import with_neighbours
from qdebug.compare.explaining.placements import with_placement
from qdebug.compare.explaining.states import state_read
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

__all__ = ["Explainer", "OnProgress", "Shared", "explain_recording", "find_backend_variants", "siblings", "wanted"]

Q = TypeVar("Q")
A = TypeVar("A")

OnProgress = Callable[[int, int, str], None]
"""Called with the number of finished outputs, their total and the name of the next node."""

_SPARED = "step programs of no known runtime were not tried, because they failed for too many nodes of this operator"
_ANY = "any arithmetic"
_OPEN = "every arithmetic that was tried reproduces these codes; the recording cannot tell them apart"
_MOVES = "moved"
"""Kind of a node that outputs codes and computes nothing."""
_AS_ONE = "a quantizer merged with the quantized node before it"
_INSIDE = "replayed values inside fused layers"
"""The assumption behind an explanation of a fused layer."""
_ANSWERED = (ExplainStatus.EXPLAINED, ExplainStatus.IN_BAND)
_NOTHING = MemoryRecording(Graph(()), {})
"""Stands in for the recording in data that travels between processes."""


class Explainer:
    """Answers for single nodes of a recording. The caller pools the findings.

    Args:
        recording: The backend's recording.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = RecentTensors(as_compared(recording))
        self.measured = KnownRuntime(self.recording.info)
        """What is known about the runtime."""
        self.whole = WithFused(self.recording, self.measured.arithmetic)
        """The recording including tensors inside fused layers."""
        self.unrounded = WithFused(self.recording, self.measured.arithmetic, rounded=False)
        """The same without rounding to codes inside layers."""
        self._units, self._whole_units = Units(self.recording), Units(self.whole)

    def look(self, tensor: str, *, unknown: bool) -> SearchResult | NodeExplanation:
        """Examine one output: search for its arithmetic, or explain it directly.

        Args:
            tensor: The output of a node.
            unknown: Whether to try step programs that no known runtime uses.
        """
        node = self.recording.graph.producer(tensor)
        if node is None:
            raise UsageError(f"No node computes {tensor!r}.")
        if operators.named(node.op).reads_state:
            return state_read(self.recording, node, tensor)
        with _reproducible_arithmetic():
            missing_input = self._units.missing(node, tensor)
            finding: SearchResult | NodeExplanation
            if missing_input is None:
                finding = _look(self.recording, self._units, node, tensor, unknown=unknown)
            else:
                finding = _bare(node, tensor, ExplainStatus.NO_INPUT, missing_input)
                with suppress(KernelError, NotRecordedError, UsageError):
                    finding = self._look_at_layer(node, tensor, finding, unknown=unknown)
            with suppress(KernelError, NotRecordedError, UsageError):
                finding = self._look_before(node, tensor, finding) or finding
            if isinstance(finding, NodeExplanation):
                with suppress(KernelError, NotRecordedError, UsageError):
                    finding = with_placement(self.recording, node, tensor, finding)
            return finding

    def explain_alone(self, tensor: str) -> NodeExplanation:
        """Explain one output without its siblings and without step programs that no known runtime uses.

        Args:
            tensor: The output of a node.
        """
        result = self.look(tensor, unknown=False)
        findings, pooled = _pooled(self, [result])
        return self.answer(findings[0], pooled[0]) if isinstance(result, SearchResult) else result

    def _look_before(self, node: Node, tensor: str, finding: SearchResult | NodeExplanation) -> SearchResult | None:
        """Examine a quantizing node together with the preceding node on codes, or return None if that does not help.

        A runtime that fuses both may never compute the real numbers between them, even if they were recorded.
        """
        is_answered = finding.matching if isinstance(finding, SearchResult) else finding.status in _ANSWERED
        preceding_node = self.recording.graph.producer(node.inputs[0]) if any(node.inputs[:1]) else None
        if is_answered or preceding_node is None or not operators.of(node.op).quantizes:
            return None
        if len(self.recording.graph.consumers(node.inputs[0])) != 1 or not operators.plain(preceding_node).unit:
            return None
        merged_node = replace(preceding_node, outputs=(tensor,))
        source = self._whole_units.find(node, tensor, merged_node)
        if not isinstance(source, UnitSource) or source.flaw is not None:
            return None
        merged_finding = search(source, unknown=False)
        return replace(merged_finding, inside=_AS_ONE) if merged_finding.matching else None

    def _look_at_layer(
        self, node: Node, tensor: str, fallback: NodeExplanation, *, unknown: bool
    ) -> SearchResult | NodeExplanation:
        """Examine the end of a layer whose last node has unrecorded inputs inside the layer."""
        if tensor not in self.recording.names or self._whole_units.missing(node, tensor) is not None:
            return fallback
        chains = [chain for name in node.inputs if name and (chain := self.whole.chain(name)) is not None]
        if not chains:
            return fallback
        finding = _look(self.whole, self._whole_units, node, tensor, unknown=unknown)
        if isinstance(finding, SearchResult):
            if not finding.matching and any(chain.makes_codes for chain in chains):
                unrounded_finding = _look(self.unrounded, Units(self.unrounded), node, tensor, unknown=False)
                if isinstance(unrounded_finding, SearchResult) and unrounded_finding.matching:
                    return replace(unrounded_finding, inside=f"{_INSIDE}, without rounding to codes", unrounded=True)
            if not finding.matching and any(chain.sums for chain in chains) and _is_rounded_otherwise(finding):
                mismatch_count = round((1 - (finding.match or 0.0)) * finding.elements)
                symptom = (
                    f"{mismatch_count} of {finding.elements} codes are off by one after float sums inside the layer"
                )
                answer = _bare(node, tensor, ExplainStatus.IN_BAND, symptom)
                return replace(answer, match=finding.match, elements=finding.elements, assumed=_INSIDE)
            return replace(finding, inside=_INSIDE)
        assumptions = "; ".join(filter(None, (finding.assumed, _INSIDE)))
        if finding.status is ExplainStatus.UNEXPLAINED and finding.band is not None:
            if not self._is_rounded(node, tensor):
                likely = cause_inside(self.whole, node, tensor, self._whole_units.places(node, tensor))
                if likely is not None:
                    reason = f"a replay of its layer does not reproduce it; likely: {likely}"
                    return replace(finding, assumed=assumptions, reason=reason)
                return fallback if any(chain.sums for chain in chains) else replace(finding, assumed=assumptions)
            finding = replace(finding, status=ExplainStatus.IN_BAND, reason=None)
        return (
            replace(finding, assumed=assumptions)
            if finding.status in (*_ANSWERED, ExplainStatus.UNEXPLAINED)
            else fallback
        )

    def _is_rounded(self, node: Node, tensor: str) -> bool:
        """Return whether the rounding of all computations in a layer accounts for its real result."""
        for place in self._whole_units.places(node, tensor):
            recorded_values = self.whole.load(tensor, *place).astype(np.float64)
            inputs = {name: self.whole.load(name, *place) for name in dict.fromkeys(node.inputs) if name}
            computed_values = self.whole.run(node, inputs)[tensor]
            if recorded_values.shape != computed_values.shape or not np.linalg.norm(
                recorded_values - computed_values
            ) <= self.whole.rounding(node, *place):
                return False
        return True

    def judged_inside(self, answers: Sequence[NodeExplanation]) -> Mapping[str, str]:
        """Return the nodes inside layers whose last node has an answer, mapped to that last node."""
        last_nodes: dict[str, str] = {}
        for answer in answers:
            node = self.recording.graph.producer(answer.tensor)
            if answer.status is ExplainStatus.NO_INPUT or node is None:
                continue
            if self._units.missing(node, answer.tensor) is None:
                continue
            for chain in (self.whole.chain(name) for name in node.inputs if name):
                last_nodes |= dict.fromkeys((each.name for each in (chain.nodes if chain else ())), answer.tensor)
        return last_nodes

    def answer(self, finding: SearchResult, pooled: Pooled) -> NodeExplanation:
        """Return the answer for a search result, taking the node's siblings into account."""
        with _reproducible_arithmetic():
            return _with_recorded_multiplier(_answer(finding, pooled, self.measured))

    def attached(self, finding: SearchResult) -> SearchResult:
        """Return a finding from another process with its recording attached."""
        return _of_recording(finding, self.unrounded if finding.unrounded else self.whole)


@contextmanager
def _reproducible_arithmetic() -> Iterator[None]:
    """Make computation reproducible everywhere: one BLAS thread, and a defined result for overflow."""
    with one_thread(), np.errstate(all="ignore"):
        yield


def _is_rounded_otherwise(finding: SearchResult) -> bool:
    """Return whether only few codes are off, by one step, so that a different order of the real sums explains it."""
    if finding.best is None or 1 - (finding.match or 0.0) > FUSED_ROUNDING_MAX_SHARE:
        return False
    residual = residual_of(finding, finding.best)
    return residual is None or residual.max_lsb <= 1


def _of_recording(finding: SearchResult, recording: Recording) -> SearchResult:
    return replace(finding, source=replace(finding.source, recording=recording))


def look_apart(explainer: Explainer, question: tuple[str, bool]) -> SearchResult | NodeExplanation:
    """Examine one output in another process, and return the finding without the recording.

    Args:
        explainer: The explainer.
        question: The output, and whether to try step programs that no known runtime uses.
    """
    finding = explainer.look(question[0], unknown=question[1])
    return _of_recording(finding, _NOTHING) if isinstance(finding, SearchResult) else finding


def answer_apart(explainer: Explainer, question: tuple[SearchResult, Pooled]) -> NodeExplanation:
    """Return the answer for a search result in another process.

    Args:
        explainer: The explainer.
        question: The search result, and the evidence of its siblings.
    """
    return explainer.answer(explainer.attached(question[0]), question[1])


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
    """Find the arithmetic of every node.

    Args:
        recording: The backend's recording.
        tensors: Only examine these outputs, and pool evidence over these alone. None for all outputs.
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
        else _examine_all_apart(explainer, todo, progress, shared)
    )
    findings, pooled = _pooled(explainer, results)
    answers_by_position = {
        at: explainer.answer(result, pooled[at]) for at, result in findings.items() if result.matching or not shared
    }
    if shared is not None:
        open_positions = [at for at in findings if at not in answers_by_position]
        questions = [(_of_recording(findings[at], _NOTHING), pooled[at]) for at in open_positions]
        answers_by_position |= zip(open_positions, shared(answer_apart, questions), strict=True)
    if progress is not None:
        progress(len(todo), len(todo), "")
    answers = [
        answers_by_position[at] if isinstance(result, SearchResult) else result for at, result in enumerate(results)
    ]
    inside = explainer.judged_inside(answers)
    nodes = list[NodeExplanation]()
    for answer in with_neighbours(recording.graph, answers):
        producer = recorded_graph.producer(answer.tensor)
        op = answer.op if producer is None else producer.op
        end = inside.get(answer.node) if answer.status is ExplainStatus.NO_INPUT else None
        why = f"it is computed inside the layer that ends with {end!r}, which is examined as a whole"
        coded = end is None and _is_on_codes(recording.graph, answer.tensor)
        nodes.append(replace(answer, op=op, on_codes=coded, reason=answer.reason if end is None else why))
    classes = [(finding, answers[position].members) for position, finding in findings.items() if finding.matching]
    arithmetic, exceptions = standing_for(classes)
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
    """Return the variant that each kind of unit uses, from those of the given outputs that have one.

    Unlike `explain_recording`, this does not examine what is wrong with the other nodes.

    Args:
        recording: The backend's recording.
        tensors: Outputs to examine.
    """
    explainer = Explainer(recording)
    todo = [pair for pair in _outputs(explainer.recording) if pair[1] in tensors]
    findings, pooled = _pooled(explainer, _examine_all(explainer, todo, None))
    matching = [(finding, pooled[at]) for at, finding in findings.items() if finding.matching]
    return standing_for([(finding, explainer.answer(finding, evidence).members) for finding, evidence in matching])[0]


def _pooled(
    explainer: Explainer, looked: Sequence[SearchResult | NodeExplanation]
) -> tuple[dict[int, SearchResult], Mapping[int, Pooled]]:
    """Return the search results, and the evidence of their siblings, by position."""
    findings = {position: result for position, result in enumerate(looked) if isinstance(result, SearchResult)}
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
    """Examine outputs in sequence. After too many failures of an operator, skip unknown programs for its nodes."""
    failures: Counter[str] = Counter()
    results = []
    for position, (node, tensor) in enumerate(todo):
        if progress is not None:
            progress(position, len(todo), node.name)
        result = explainer.look(tensor, unknown=failures[node.op] < UNKNOWN_SEARCH_MAX_FAILURES)
        failures[node.op] += isinstance(result, SearchResult) and not result.matching
        results.append(result)
    return results


def _examine_all_apart(
    explainer: Explainer, todo: Sequence[tuple[Node, str]], progress: OnProgress | None, shared: Shared
) -> list[SearchResult | NodeExplanation]:
    """Examine outputs in other processes, with the same findings as in sequence.

    Unknown programs are tried last, and only on as many nodes of an operator at once as a sequential search would try.
    """
    results: list[SearchResult | NodeExplanation] = []
    for result in shared(look_apart, [(tensor, False) for _, tensor in todo]):
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
        for at, result in zip(batch, shared(look_apart, [(todo[at][1], True) for at in batch]), strict=True):
            results[at] = result
            failures[todo[at][0].op] += isinstance(result, SearchResult) and not result.matching
        failed_positions = {
            op: [at for at in positions if at not in batch] for op, positions in failed_positions.items()
        }
    return [explainer.attached(result) if isinstance(result, SearchResult) else result for result in results]


def _is_on_codes(graph: Graph, tensor: str) -> bool:
    """Return whether a tensor holds codes or is computed from codes: with quantized weights or by a quantized operator.

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


def wanted(recording: Recording, name: str) -> tuple[str, ...]:
    """Return the outputs of the node of the given name, or the tensor of that name.

    Args:
        recording: The run.
        name: A full name, or a substring or pattern that matches the names of only one node.

    Raises:
        UsageError: No node and no computed tensor has this name, or the pattern matches several nodes.
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
            f"{name!r} fits {len(nodes)} nodes: {format_names(nodes)}.",
            hint="Give one of these names, or a longer part of the name.",
        )
    raise UsageError(
        f"No node and no computed tensor is called {name!r}.{near_names(name, known_names)}",
        hint="List the names: qdebug explain BACKEND --all.",
    )


def siblings(recording: Recording, tensors: Collection[str]) -> frozenset[str]:
    """Return the outputs of all nodes whose operator produces one of the given tensors."""
    outputs = list(_outputs(recording))
    ops = {node.op for node, tensor in outputs if tensor in tensors}
    return frozenset(tensor for node, tensor in outputs if node.op in ops)


def _outputs(recording: Recording) -> Iterator[tuple[Node, str]]:
    """Yield the outputs of all nodes that compute something."""
    for node in recording.graph.nodes:
        if operators.of(node.op).constant:
            continue
        for tensor in node.outputs:
            if tensor and not recording.graph.is_constant(tensor):
                yield node, tensor


def _bare(node: Node, tensor: str, status: ExplainStatus, reason: str | None = None) -> NodeExplanation:
    return NodeExplanation(node=node.name, op=node.op, tensor=tensor, status=status, reason=reason)


def _look(
    recording: Recording, units: Units, node: Node, tensor: str, *, unknown: bool
) -> SearchResult | NodeExplanation:
    """Examine one output: search for its arithmetic, or explain it directly."""
    try:
        source = units.find(node, tensor)
        if isinstance(source, UnitSource) and source.moves:
            return _explain_moved_codes(recording, node, tensor, "", units.places(node, tensor))
        if isinstance(source, UnitSource):
            flaw = source.flaw
            if flaw is not None:
                return _bare(node, tensor, ExplainStatus.UNEXPLAINED, flaw)
            finding = search(source, unknown=unknown)
            return (
                finding
                if finding.reason is None
                else _bare(node, tensor, ExplainStatus.NO_KERNEL, _clause(finding.reason))
            )
        at = units.places(node, tensor)
        return (
            _explain_moved_codes(recording, node, tensor, source, at)
            if units.quantized(node, tensor)
            else _explain_real_node(recording, node, tensor, at)
        )
    except (KernelError, NotRecordedError, UsageError) as error:
        return _bare(node, tensor, ExplainStatus.NO_KERNEL, _clause(error.message))


def _clause(message: str) -> str:
    """Turn a sentence into a clause. Names of operators keep their capitals."""
    name = any(letter.isupper() for letter in message.split(" ", 1)[0][1:])
    return (message if name else message[:1].lower() + message[1:]).rstrip(".")


def _explain_real_node(recording: Recording, node: Node, tensor: str, at: Sequence[Place]) -> NodeExplanation:
    """Compare a node on floats or plain integers with its replay."""
    if not has_kernel(node.op, node.domain):
        return _bare(node, tensor, ExplainStatus.NO_KERNEL, f"no kernel is known for {node.op}")
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
        and _bare_codes(recording, tensor, at[0])
    ):
        reason_text = f"the recording does not say how its output {tensor!r} is quantized"
        return _bare(node, tensor, ExplainStatus.NO_KERNEL, reason_text)
    mistaken = None if finding.within else _no_codes(recording, node, tensor, at[0])
    is_far_off = not finding.within and (finding.band.ratio or 0.0) > OUTLIER_ERROR_RATIO
    further_reason = further_cause(recording, node, tensor, at) if is_far_off and finding.likely is None else None
    reason = "; ".join(filter(None, (finding.reason, further_reason, mistaken))) or None
    answer = _bare(node, tensor, ExplainStatus.IN_BAND if finding.within else ExplainStatus.UNEXPLAINED, reason)
    assumed = (
        [describe_assumed_rounding(assumed_node, node), assumption(recording, tensor, finding.band)]
        if finding.within
        else []
    )
    clause = "; ".join(filter(None, assumed)) or None
    return replace(answer, band=finding.band, match=finding.match, elements=finding.elements, assumed=clause)


def _bare_codes(recording: Recording, tensor: str, place: Place) -> bool:
    """Return whether values look like codes but their scale is unknown."""
    dtype = recording.load(tensor, *place).dtype
    return recording.graph.tensors[tensor].quant is None and dtype.kind in "iu" and dtype.itemsize <= 2


def _no_codes(recording: Recording, node: Node, tensor: str, place: Place) -> str | None:
    """Return a clause on inputs or outputs that were recorded with a scale but are real numbers, or None."""
    for name in (tensor, *filter(None, node.inputs)):
        values = recording.load(name, *place)
        if recording.graph.tensors[name].quant is None or values.dtype.kind != "f":
            continue
        if np.any(values != np.rint(values)):
            return f"{name!r} was recorded with a scale, but its values are not integers"
    return None


def _explain_moved_codes(
    recording: Recording, node: Node, tensor: str, why: str, at: Sequence[Place]
) -> NodeExplanation:
    """Compare a node that only moves codes with a kernel that leaves them unchanged."""
    quants = [recording.graph.tensors[name].quant for name in node.inputs if name]
    equal_quants = [quant for quant in quants if quant is not None and quant == recording.graph.tensors[tensor].quant]
    row = operators.plain(node)  # other codes (int32, 8-bit floats, blocks) leave Q and DQ no choice
    is_defined = equal_quants or (row.converts_codes and describe_real_tensor(node, recording.graph) is None)
    if not has_kernel(node.op, node.domain) or row.rescales or not is_defined:
        return _bare(node, tensor, ExplainStatus.NO_KERNEL, _clause(why))
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
    answer = _bare(node, tensor, status, difference_text)
    return replace(
        answer,
        kind=_MOVES if equal_quants else "defined",
        words="codes copied unchanged" if equal_quants else "as the operator is defined",
        match=equal / max(total, 1),
        elements=total,
        tried=1,
    )


def _answer(finding: SearchResult, pooled: Pooled, measured: KnownRuntime) -> NodeExplanation:
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
        dtypes=_types(finding.dtypes),
        elements=finding.elements,
        alone=len(finding.matching),
        siblings=pooled.siblings,
        match=finding.match,
        witnesses=finding.witnesses,
        witness_elements=finding.witness_elements,
        tried=finding.tried,
        recorded=_recorded_of(finding),
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
        stated_reasons = (finding.source.void, pooled.doubt, None if finding.unknown else _SPARED)
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
        return replace(answer, words=_ANY, reason="; ".join(filter(None, (_OPEN, answer.reason))))
    matching_presets = _presets(pooled.members, finding.kind, finding.dtypes, finding.branch)
    by_name = {match.name: match for match in matching_presets}
    return replace(answer, presets=tuple(by_name[name] for name in measured.ordered(by_name)))


def _with_residual_variant(answer: NodeExplanation, residual: Residual, finding: SearchResult) -> NodeExplanation:
    """Show the variant by which wrong elements were counted, with the best variant as runner-up if it differs."""
    match = 1 - residual.wrong / residual.total
    answer = replace(answer, variants=(residual.against,), words=describe(parse_variant(residual.against)), match=match)
    if finding.match is None or finding.match <= match or str(finding.best) == residual.against:
        return answer
    return replace(answer, runner_up=RunnerUp(variant=str(finding.best), match=finding.match))


def _recorded_of(finding: SearchResult) -> Recorded | None:
    if finding.given is None:
        return None
    reproduces = any(variant.multiplier.number == GIVEN for variant in finding.matching)
    return Recorded(reproduces=reproduces, ratio=finding.given)


def _with_recorded_multiplier(answer: NodeExplanation) -> NodeExplanation:
    """Note if recorded integers do not reproduce a node, or if the recorded scales give a different quotient."""
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


def _types(dtypes: tuple[str, ...]) -> str:
    return f"{' x '.join(dict.fromkeys(dtypes[:-1]) if len(dtypes) > 3 else dtypes[:-1])} -> {dtypes[-1]}"


@lru_cache(maxsize=64)  # sibling nodes usually have the same variants
def _presets(members: tuple[Variant, ...], kind: str, dtypes: tuple[str, ...], branch: str) -> tuple[PresetMatch, ...]:
    preset_names = dict.fromkeys(name for variant in members for name in names_of(variant, kind, dtypes, branch))
    return tuple(
        PresetMatch(name=name, provenance=preset(name).known(kind), detail=preset(name).about) for name in preset_names
    )
