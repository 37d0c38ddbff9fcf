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
from qdebug.arithmetic.patterns.residual import Residual
from qdebug.arithmetic.pooling import Pooled, pool, standing_for
from qdebug.arithmetic.presets import KnownRuntime, names_of, preset
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
from qdebug.compare.explaining.mistaken import mistake_inside
from qdebug.compare.explaining.neighbours import with_neighbours
from qdebug.compare.explaining.states import state_read
from qdebug.compare.measure.recordings import RecentTensors, as_compared
from qdebug.errors import KernelError, NotRecordedError, UsageError
from qdebug.model import Graph, MemoryRecording, Node, Recording, operators
from qdebug.model.names import fitting_names, listed_names, near_names
from qdebug.model.thresholds.explanation import (
    FUSED_ROUNDING_MAX_SHARE,
    OUTLIER_ERROR_RATIO,
    RECORDED_MULTIPLIER_MAX_REL_DIFFERENCE,
    UNKNOWN_SEARCH_MAX_FAILURES,
)
from qdebug.replay.data_codes import rounding_assumed, roundings
from qdebug.replay.extents import recorded_limits
from qdebug.replay.node_units import with_recorded_scale
from qdebug.replay.real_form import not_in_codes
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
_OPEN = "every arithmetic that was tried gives these codes; the recording cannot tell them apart"
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
        with _alike():
            missing = self._units.missing(node, tensor)
            found: SearchResult | NodeExplanation
            if missing is None:
                found = _look(self.recording, self._units, node, tensor, unknown=unknown)
            else:
                found = _bare(node, tensor, ExplainStatus.NO_INPUT, missing)
                with suppress(KernelError, NotRecordedError, UsageError):
                    found = self._look_at_layer(node, tensor, found, unknown=unknown)
            with suppress(KernelError, NotRecordedError, UsageError):
                found = self._look_before(node, tensor, found) or found
            return found

    def _look_before(self, node: Node, tensor: str, found: SearchResult | NodeExplanation) -> SearchResult | None:
        """Examine a quantizing node together with the preceding node on codes, or return None if that does not help.

        A runtime that fuses both may never compute the real numbers between them, even if they were recorded.
        """
        answered = found.matching if isinstance(found, SearchResult) else found.status in _ANSWERED
        before = self.recording.graph.producer(node.inputs[0]) if any(node.inputs[:1]) else None
        if answered or before is None or not operators.of(node.op).quantizes:
            return None
        if len(self.recording.graph.consumers(node.inputs[0])) != 1 or not operators.plain(before).unit:
            return None
        both = replace(before, outputs=(tensor,))
        source = self._whole_units.find(node, tensor, both)
        if not isinstance(source, UnitSource) or source.flaw is not None:
            return None
        other = search(source, unknown=False)
        return replace(other, inside=_AS_ONE) if other.matching else None

    def _look_at_layer(
        self, node: Node, tensor: str, without: NodeExplanation, *, unknown: bool
    ) -> SearchResult | NodeExplanation:
        """Examine the end of a layer whose last node has unrecorded inputs inside the layer."""
        if tensor not in self.recording.names or self._whole_units.missing(node, tensor) is not None:
            return without
        chains = [chain for name in node.inputs if name and (chain := self.whole.chain(name)) is not None]
        if not chains:
            return without
        found = _look(self.whole, self._whole_units, node, tensor, unknown=unknown)
        if isinstance(found, SearchResult):
            if not found.matching and any(chain.makes_codes for chain in chains):
                other = _look(self.unrounded, Units(self.unrounded), node, tensor, unknown=False)
                if isinstance(other, SearchResult) and other.matching:
                    return replace(other, inside=f"{_INSIDE}, without rounding to codes", unrounded=True)
            if not found.matching and any(chain.sums for chain in chains) and _rounded_otherwise(found):
                wrong = round((1 - (found.match or 0.0)) * found.elements)
                off = f"{wrong} of {found.elements} codes are off by one after float sums inside the layer"
                answer = _bare(node, tensor, ExplainStatus.IN_BAND, off)
                return replace(answer, match=found.match, elements=found.elements, assumed=_INSIDE)
            return replace(found, inside=_INSIDE)
        said = "; ".join(filter(None, (found.assumed, _INSIDE)))
        if found.status is ExplainStatus.UNEXPLAINED and found.band is not None:
            if not self._is_rounded(node, tensor):
                likely = mistake_inside(self.whole, node, tensor, self._whole_units.places(node, tensor))
                if likely is not None:
                    reason = f"a replay of its layer does not reproduce it; likely: {likely}"
                    return replace(found, assumed=said, reason=reason)
                return without if any(chain.sums for chain in chains) else replace(found, assumed=said)
            found = replace(found, status=ExplainStatus.IN_BAND, reason=None)
        return replace(found, assumed=said) if found.status in (*_ANSWERED, ExplainStatus.UNEXPLAINED) else without

    def _is_rounded(self, node: Node, tensor: str) -> bool:
        """Return whether the rounding of all computations in a layer accounts for its real result."""
        for place in self._whole_units.places(node, tensor):
            ours = self.whole.load(tensor, *place).astype(np.float64)
            inputs = {name: self.whole.load(name, *place) for name in dict.fromkeys(node.inputs) if name}
            made = self.whole.run(node, inputs)[tensor]
            if ours.shape != made.shape or not np.linalg.norm(ours - made) <= self.whole.rounding(node, *place):
                return False
        return True

    def judged_inside(self, answers: Sequence[NodeExplanation]) -> Mapping[str, str]:
        """Return the nodes inside layers whose last node has an answer, mapped to that last node."""
        found: dict[str, str] = {}
        for answer in answers:
            node = self.recording.graph.producer(answer.tensor)
            if answer.status is ExplainStatus.NO_INPUT or node is None:
                continue
            if self._units.missing(node, answer.tensor) is None:
                continue
            for chain in (self.whole.chain(name) for name in node.inputs if name):
                found |= dict.fromkeys((each.name for each in (chain.nodes if chain else ())), answer.tensor)
        return found

    def answer(self, finding: SearchResult, pooled: Pooled) -> NodeExplanation:
        """Return the answer for a search result, taking the node's siblings into account."""
        with _alike():
            return _with_recorded(_answer(finding, pooled, self.measured))

    def attached(self, finding: SearchResult) -> SearchResult:
        """Return a finding from another process with its recording attached."""
        return _of_recording(finding, self.unrounded if finding.unrounded else self.whole)


@contextmanager
def _alike() -> Iterator[None]:
    """Make computation reproducible everywhere: one BLAS thread, and a defined result for overflow."""
    with one_thread(), np.errstate(all="ignore"):
        yield


def _rounded_otherwise(finding: SearchResult) -> bool:
    """Return whether only few codes are off, by one step, so that a different order of the real sums explains it."""
    if finding.best is None or 1 - (finding.match or 0.0) > FUSED_ROUNDING_MAX_SHARE:
        return False
    left = residual_of(finding, finding.best)
    return left is None or left.max_lsb <= 1


def _of_recording(finding: SearchResult, recording: Recording) -> SearchResult:
    return replace(finding, source=replace(finding.source, recording=recording))


def look_apart(explainer: Explainer, question: tuple[str, bool]) -> SearchResult | NodeExplanation:
    """Examine one output in another process, and return the finding without the recording.

    Args:
        explainer: The explainer.
        question: The output, and whether to try step programs that no known runtime uses.
    """
    found = explainer.look(question[0], unknown=question[1])
    return _of_recording(found, _NOTHING) if isinstance(found, SearchResult) else found


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
    said = recording.graph
    explainer = Explainer(recording)
    recording = explainer.recording
    todo = [pair for pair in _outputs(recording) if tensors is None or pair[1] in tensors]
    looked = _looked(explainer, todo, progress) if shared is None else _looked_apart(explainer, todo, progress, shared)
    findings, pooled = _pooled(explainer, looked)
    known = {at: explainer.answer(found, pooled[at]) for at, found in findings.items() if found.matching or not shared}
    if shared is not None:
        left = [at for at in findings if at not in known]
        questions = [(_of_recording(findings[at], _NOTHING), pooled[at]) for at in left]
        known |= zip(left, shared(answer_apart, questions), strict=True)
    if progress is not None:
        progress(len(todo), len(todo), "")
    answers = [known[at] if isinstance(found, SearchResult) else found for at, found in enumerate(looked)]
    inside = explainer.judged_inside(answers)
    nodes = list[NodeExplanation]()
    for answer in with_neighbours(recording.graph, answers):
        producer = said.producer(answer.tensor)
        op = answer.op if producer is None else producer.op
        end = inside.get(answer.node) if answer.status is ExplainStatus.NO_INPUT else None
        why = f"it is computed inside the layer that ends with {end!r}, which is examined as a whole"
        coded = end is None and _is_on_codes(recording.graph, answer.tensor)
        nodes.append(replace(answer, op=op, on_codes=coded, reason=answer.reason if end is None else why))
    classes = [(finding, answers[position].members) for position, finding in findings.items() if finding.matching]
    arithmetic, exceptions = standing_for(classes)
    return ExplainedRun(run=recording.info, nodes=tuple(nodes), arithmetic=arithmetic, exceptions=exceptions)


def find_backend_variants(recording: Recording, *, tensors: Collection[str]) -> Mapping[str, str]:
    """Return the variant that each kind of unit uses, from those of the given outputs that have one.

    Unlike `explain_recording`, this does not examine what is wrong with the other nodes.

    Args:
        recording: The backend's recording.
        tensors: Outputs to examine.
    """
    explainer = Explainer(recording)
    todo = [pair for pair in _outputs(explainer.recording) if pair[1] in tensors]
    findings, pooled = _pooled(explainer, _looked(explainer, todo, None))
    matching = [(found, pooled[at]) for at, found in findings.items() if found.matching]
    return standing_for([(found, explainer.answer(found, own).members) for found, own in matching])[0]


def _pooled(
    explainer: Explainer, looked: Sequence[SearchResult | NodeExplanation]
) -> tuple[dict[int, SearchResult], Mapping[int, Pooled]]:
    """Return the search results, and the evidence of their siblings, by position."""
    findings = {position: found for position, found in enumerate(looked) if isinstance(found, SearchResult)}
    with _alike():
        pooled = pool(findings, explainer.measured)
    findings |= {at: findings[at].without_novel() for at, own in pooled.items() if own.doubt is not None}
    return findings, pooled


def _looked(
    explainer: Explainer, todo: Sequence[tuple[Node, str]], progress: OnProgress | None
) -> list[SearchResult | NodeExplanation]:
    """Examine outputs in sequence. After too many failures of an operator, skip unknown programs for its nodes."""
    vain: Counter[str] = Counter()
    looked = []
    for position, (node, tensor) in enumerate(todo):
        if progress is not None:
            progress(position, len(todo), node.name)
        found = explainer.look(tensor, unknown=vain[node.op] < UNKNOWN_SEARCH_MAX_FAILURES)
        vain[node.op] += isinstance(found, SearchResult) and not found.matching
        looked.append(found)
    return looked


def _looked_apart(
    explainer: Explainer, todo: Sequence[tuple[Node, str]], progress: OnProgress | None, shared: Shared
) -> list[SearchResult | NodeExplanation]:
    """Examine outputs in other processes, with the same findings as in sequence.

    Unknown programs are tried last, and only on as many nodes of an operator at once as a sequential search would try.
    """
    looked: list[SearchResult | NodeExplanation] = []
    for found in shared(look_apart, [(tensor, False) for _, tensor in todo]):
        looked.append(found)
        if progress is not None and len(looked) < len(todo):
            progress(len(looked), len(todo), todo[len(looked)][0].name)
    left: dict[str, list[int]] = {}
    for position, found in enumerate(looked):
        if isinstance(found, SearchResult) and not found.matching:
            left.setdefault(todo[position][0].op, []).append(position)
    vain: Counter[str] = Counter()
    while asked := [at for op in left for at in left[op][: max(0, UNKNOWN_SEARCH_MAX_FAILURES - vain[op])]]:
        for at, found in zip(asked, shared(look_apart, [(todo[at][1], True) for at in asked]), strict=True):
            looked[at] = found
            vain[todo[at][0].op] += isinstance(found, SearchResult) and not found.matching
        left = {op: [at for at in positions if at not in asked] for op, positions in left.items()}
    return [explainer.attached(found) if isinstance(found, SearchResult) else found for found in looked]


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
    read = [name for name in node.inputs if name]
    if any(graph.tensors[name].quant is not None for name in read):
        return True
    packed = any(graph.is_constant(name) and holds_few_bits(graph, name) for name in read)
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
    found = tuple(tensor for node, tensor in outputs if name in (node.name, tensor))
    if found:
        return found
    known = [each for node, tensor in outputs for each in (node.name, tensor)]
    fitting = set(fitting_names(name, known))
    hits = [(node.name, tensor) for node, tensor in outputs if {node.name, tensor} & fitting]
    nodes = dict.fromkeys(node for node, _ in hits)
    if len(nodes) == 1:
        return tuple(tensor for _, tensor in hits)
    if nodes:
        raise UsageError(
            f"{name!r} fits {len(nodes)} nodes: {listed_names(nodes)}.",
            hint="Give one of these names, or a longer part of the name.",
        )
    raise UsageError(
        f"No node and no computed tensor is called {name!r}.{near_names(name, known)}",
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
            return _moved(recording, node, tensor, "", units.places(node, tensor))
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
            _moved(recording, node, tensor, source, at)
            if units.quantized(node, tensor)
            else _real(recording, node, tensor, at)
        )
    except (KernelError, NotRecordedError, UsageError) as error:
        return _bare(node, tensor, ExplainStatus.NO_KERNEL, _clause(error.message))


def _clause(message: str) -> str:
    """Turn a sentence into a clause. Names of operators keep their capitals."""
    name = any(letter.isupper() for letter in message.split(" ", 1)[0][1:])
    return (message if name else message[:1].lower() + message[1:]).rstrip(".")


def _real(recording: Recording, node: Node, tensor: str, at: Sequence[Place]) -> NodeExplanation:
    """Compare a node on floats or plain integers with its replay."""
    if not has_kernel(node.op, node.domain):
        return _bare(node, tensor, ExplainStatus.NO_KERNEL, f"no kernel is known for {node.op}")
    stated, *others = roundings(node)
    found = judge_float(recording, stated, tensor, at)
    used = stated
    for other in () if found.within else others:
        judged = judge_float(recording, other, tensor, at)
        if judged.within:
            found, used = judged, other
            break
    if (
        not found.within
        and found.likely is None
        and operators.plain(node).rescales
        and _bare_codes(recording, tensor, at[0])
    ):
        said = f"the recording does not say how its output {tensor!r} is quantized"
        return _bare(node, tensor, ExplainStatus.NO_KERNEL, said)
    mistaken = None if found.within else _no_codes(recording, node, tensor, at[0])
    far = not found.within and (found.band.ratio or 0.0) > OUTLIER_ERROR_RATIO
    further = further_cause(recording, node, tensor, at) if far and found.likely is None else None
    reason = "; ".join(filter(None, (found.reason, further, mistaken))) or None
    answer = _bare(node, tensor, ExplainStatus.IN_BAND if found.within else ExplainStatus.UNEXPLAINED, reason)
    assumed = [rounding_assumed(used, node), assumption(recording, tensor, found.band)] if found.within else []
    clause = "; ".join(filter(None, assumed)) or None
    return replace(answer, band=found.band, match=found.match, elements=found.elements, assumed=clause)


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


def _moved(recording: Recording, node: Node, tensor: str, why: str, at: Sequence[Place]) -> NodeExplanation:
    """Compare a node that only moves codes with a kernel that leaves them unchanged."""
    quants = [recording.graph.tensors[name].quant for name in node.inputs if name]
    same = [quant for quant in quants if quant is not None and quant == recording.graph.tensors[tensor].quant]
    row = operators.plain(node)  # other codes (int32, 8-bit floats, blocks) leave Q and DQ no choice
    defined = same or (row.converts_codes and not_in_codes(node, recording.graph) is None)
    if not has_kernel(node.op, node.domain) or row.rescales or not defined:
        return _bare(node, tensor, ExplainStatus.NO_KERNEL, _clause(why))
    equal = total = 0
    for place in at:
        values = {name: recording.load(name, *place) for name in dict.fromkeys(node.inputs) if name}
        completed = with_recorded_scale(node, values, recording.graph.tensors)
        with recorded_limits(recording, place):
            replayed = run_node(*completed, recording.graph.opset)[tensor]
        ours = recording.load(tensor, *place)
        if ours.shape != replayed.shape:
            raise KernelError(f"The replay has shape {replayed.shape}, but the recorded tensor has {ours.shape}.")
        equal += int(np.count_nonzero(ours == replayed))
        total += ours.size
    status = ExplainStatus.EXPLAINED if equal == total else ExplainStatus.UNEXPLAINED
    left = None if equal == total else f"{total - equal} of {total} elements differ from a replay of {node.op}"
    answer = _bare(node, tensor, status, left)
    return replace(
        answer,
        kind=_MOVES if same else "defined",
        words="codes copied unchanged" if same else "as the operator is defined",
        match=equal / max(total, 1),
        elements=total,
        tried=1,
    )


def _answer(finding: SearchResult, pooled: Pooled, measured: KnownRuntime) -> NodeExplanation:
    """Return the answer for a search result, taking the node's siblings into account."""
    node, tensor = finding.source.node, finding.source.tensor
    explained = bool(finding.matching)
    answer = NodeExplanation(
        node=node.name,
        op=node.op,
        tensor=tensor,
        status=ExplainStatus.EXPLAINED if explained else ExplainStatus.UNEXPLAINED,
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
        recorded=_recorded(finding),
        assumed=finding.inside,
        runner_up=None
        if finding.runner_up is None
        else RunnerUp(variant=str(finding.runner_up), match=finding.runner_up_match),
    )
    members = pooled.variants if explained else tuple(v for v in (finding.best,) if v is not None)
    if not members:
        return answer
    known = measured.variants(finding.kind, finding.dtypes, finding.branch)
    members = tuple(sorted(members, key=lambda variant: variant not in known))  # a stable sort: measured variants first
    names = tuple(map(str, pooled.members))
    answer = replace(answer, variants=tuple(map(str, members)), members=names, words=describe(members[0]))
    if not explained:
        expected = pooled.usual or finding.plain or members[0]
        left = residual_of(finding, expected)
        left = left if left is None or pooled.fits is not None else with_further_cause(left, finding)
        given = (finding.source.void, pooled.doubt, None if finding.unknown else _SPARED)
        reasons = [reason for reason in given if reason]
        if left is not None:
            answer = _held_against(answer, left, finding)
            if pooled.fits is not None:  # a variant that reproduces every element is the likeliest
                left = replace(left, likely=f"{describe(pooled.fits)} (reproduces every element)")
        else:
            wrong = finding.elements - round((finding.match or 0.0) * finding.elements)
            reasons.insert(0, f"{wrong} of {finding.elements} elements differ from a replay of {node.op}")
        return replace(answer, residual=left, reason="; ".join(reasons) or None)
    if finding.runner_up is None and finding.tried > 1 and len(pooled.members) == finding.tried:
        return replace(answer, words=_ANY, reason="; ".join(filter(None, (_OPEN, answer.reason))))
    named = _presets(pooled.members, finding.kind, finding.dtypes, finding.branch)
    by_name = {match.name: match for match in named}
    return replace(answer, presets=tuple(by_name[name] for name in measured.ordered(by_name)))


def _held_against(answer: NodeExplanation, left: Residual, finding: SearchResult) -> NodeExplanation:
    """Show the variant by which wrong elements were counted, with the best variant as runner-up if it differs."""
    match = 1 - left.wrong / left.total
    answer = replace(answer, variants=(left.against,), words=describe(parse_variant(left.against)), match=match)
    if finding.match is None or finding.match <= match or str(finding.best) == left.against:
        return answer
    return replace(answer, runner_up=RunnerUp(variant=str(finding.best), match=finding.match))


def _recorded(finding: SearchResult) -> Recorded | None:
    if finding.given is None:
        return None
    fits = any(variant.multiplier.number == GIVEN for variant in finding.matching)
    return Recorded(reproduces=fits, ratio=finding.given)


def _with_recorded(answer: NodeExplanation) -> NodeExplanation:
    """Note if recorded integers do not reproduce a node, or if the recorded scales give a different quotient."""
    known = answer.recorded
    if known is None:
        return answer
    far = f"their product is {known.ratio:.6g} times the quotient of the recorded scales"
    said = "" if known.reproduces else "no step program with the recorded multiplier and shift reproduces the codes"
    if abs(known.ratio - 1) > RECORDED_MULTIPLIER_MAX_REL_DIFFERENCE:
        said = f"{said or 'the recorded multiplier and shift reproduce the codes, but the scales do not'}; {far}"
    return replace(answer, reason="; ".join(filter(None, (answer.reason, said))) or None)


def _types(dtypes: tuple[str, ...]) -> str:
    return f"{' x '.join(dict.fromkeys(dtypes[:-1]) if len(dtypes) > 3 else dtypes[:-1])} -> {dtypes[-1]}"


@lru_cache(maxsize=64)  # sibling nodes usually have the same variants
def _presets(members: tuple[Variant, ...], kind: str, dtypes: tuple[str, ...], branch: str) -> tuple[PresetMatch, ...]:
    named = dict.fromkeys(name for variant in members for name in names_of(variant, kind, dtypes, branch))
    return tuple(
        PresetMatch(name=name, provenance=preset(name).known(kind), detail=preset(name).about) for name in named
    )
