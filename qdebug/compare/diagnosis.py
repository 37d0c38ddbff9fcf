"""Draws the conclusion of a comparison: every fault with its share of the outputs' error, and what was ruled out."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from qdebug.compare.attribute.graph_walk import downstream
from qdebug.compare.result.diagnosis import Diagnosis, FaultClass, RuledOut, class_of
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole, JudgedBy, Status
from qdebug.compare.result.inputs import input_finding
from qdebug.compare.result.node_result import blamed, cost_of, is_beyond
from qdebug.compare.result.result import Contributions, NodeResult, RunComparison
from qdebug.compare.result.result_table import ResultTable
from qdebug.compare.weight_channels import WeightReason
from qdebug.model import Fidelity, Graph
from qdebug.model.thresholds.verdict import CAUSES_SOUGHT, DIAGNOSED_NODES, WEIGHTS_MIN_SHARE
from qdebug.plural import agreeing, plural

__all__ = ["ErrorPart", "WeightReasons", "diagnosed", "main_part"]

WeightReasons = Callable[[NodeResult], WeightReason | None]
"""Explains the error of a node's weights; None if it is not known."""

_ROLES = (FindingRole.DIFFERENCE, FindingRole.BREACH, FindingRole.CAUSE)
_NAME_OR_NUMBER = re.compile(r"'[^']*'|[-+]?\d[\d.,e+-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """Shares of a node's own error, in power."""

    constants: float
    clipping: float
    rounding: float

    @classmethod
    def of(cls, node: NodeResult) -> _Parts | None:
        """Split a node's own error; None where it is not known."""
        constants, arithmetic, clipping = (_power(part) for part in (node.constants, node.arithmetic, node.clipping))
        whole = constants + arithmetic
        if not whole or not math.isfinite(whole):
            return None
        clipped = min(clipping, arithmetic)
        return cls(constants=constants / whole, clipping=clipped / whole, rounding=(arithmetic - clipped) / whole)


def _power(stats: object) -> float:
    rmse = getattr(stats, "rmse", None)
    return 0.0 if rmse is None else float(rmse) ** 2


class ErrorPart(StrEnum):
    """What a node's own error comes from."""

    WEIGHTS = "weights"
    CLIPPING = "clipping"
    ROUNDING = "rounding"


def main_part(node: NodeResult) -> ErrorPart | None:
    """Return what most of a node's own error comes from; None where that is not known."""
    parts = _Parts.of(node)
    if parts is None:
        return None
    shares = {
        ErrorPart.WEIGHTS: parts.constants,
        ErrorPart.CLIPPING: parts.clipping,
        ErrorPart.ROUNDING: parts.rounding,
    }
    return max(shares, key=shares.__getitem__)


def diagnosed(
    result: RunComparison,
    graph: Graph,
    reference: Graph,
    *,
    contributing: Contributions | None = None,
    weights: WeightReasons | None = None,
    model_name: Callable[[NodeResult], str | None] | None = None,
    cause: Callable[[NodeResult], str | None] | None = None,
    inputs_allowed: bool = False,
) -> RunComparison:
    """Return a comparison with its diagnosis.

    Args:
        result: The comparison.
        graph: The backend's graph.
        reference: The reference's graph.
        contributing: What nodes contribute to the worst output; None if nobody looked.
        weights: Says why a node's weights keep too little; None to leave that out.
        model_name: Tells what the source model calls a node; None for the names that the graphs state.
        cause: Looks for why the codes of a node are wrong, see `verdict`; None to leave it out.
        inputs_allowed: Whether the user allows inputs to differ: then nodes are looked at all the same.
    """
    of = ResultTable(result.nodes)
    source = _Sources(of, graph, reference, contributing, weights=weights, model_name=model_name)
    if result.different_inputs and not inputs_allowed:
        found = [source.of_input(node) for node in result.different_inputs]
    elif of.beyond.any():
        faults = _with_causes(_faults(result, of, graph), cause)
        found = [_with_way_on(each, result) for each in source.grouped(faults)]
        named = {each.tensor for each in found}
        costs = [source.of_cost(node) for node in of.nodes if cost_of(node) is not None and node.tensor not in named]
        found = _in_order([*found, *costs[:DIAGNOSED_NODES]], result)
    elif result.status is Status.ACCUMULATED:
        found = source.of_costs(result)
    else:
        found = []
    return replace(result, diagnosis=tuple(found), ruled_out=tuple(_ruled_out(result, of, found)))


def _faults(result: RunComparison, of: ResultTable, graph: Graph) -> list[tuple[NodeResult, Finding]]:
    """Return the nodes that are beyond their limit by their own doing, each with what was found of it.

    A NaN or an infinity is a fault where it is born. A tensor that only its whole error judges may be beyond its limit
    because of a fault above it: then it is none of its own.
    """
    found: list[tuple[NodeResult, Finding]] = []
    below: set[str] = set()
    born = None if result.verdict.nonfinite is None else result.verdict.nonfinite.row
    for row in np.flatnonzero(of.beyond).tolist():
        node = of[row]
        finding = _deciding(node)
        if finding is None or (node.status is Status.NONFINITE and born not in (None, row)):
            continue
        if finding.kind is FindingKind.ERROR and node.judged_by is not JudgedBy.REPLAY and node.tensor in below:
            continue
        found.append((node, finding))
        if node.tensor not in below:
            below |= downstream(graph, (node.tensor,))
    if not found:  # a limit of the user on a tensor that nothing else speaks against
        found = [(node, finding) for node in of.nodes if is_beyond(node) and (finding := _deciding(node)) is not None]
    return found


def _deciding(node: NodeResult) -> Finding | None:
    """Return the finding that says most of why a tensor is beyond its limit."""
    deciding = [each for each in node.findings if each.role in _ROLES]
    causes = [each for each in deciding if each.role is not FindingRole.BREACH]
    return next(iter(causes or deciding), None)


class _Sources:
    """Knows what a diagnosis says of a node.

    Args:
        of: How compared tensors stand.
        graph: The backend's graph.
        reference: The reference's graph.
        contributing: What nodes contribute to the worst output; None if nobody looked.
        weights: Says why a node's weights keep too little; None to leave that out.
        model_name: Tells what the source model calls a node; None for the names that the graphs state.
    """

    def __init__(
        self,
        of: ResultTable,
        graph: Graph,
        reference: Graph,
        contributing: Contributions | None,
        *,
        weights: WeightReasons | None,
        model_name: Callable[[NodeResult], str | None] | None,
    ) -> None:
        self._of, self._graph, self._reference, self._weights = of, graph, reference, weights
        self._model_name = model_name
        self._known = () if contributing is None else contributing.nodes
        self._shares = {each.tensor: each.share for each in self._known if each.how == "exact"}
        self._output = next((each.output for each in self._known), None)

    def of_input(self, node: NodeResult) -> Diagnosis:
        """Return what is said of an input that differs between the two runs."""
        found = input_finding(node)
        why = "differs between the two runs" + ("" if found is None else f": {found.sentence}")
        return replace(self._of_node(node, FaultClass.RECORDING, why), share={})

    def grouped(self, faults: Sequence[tuple[NodeResult, Finding]]) -> list[Diagnosis]:
        """Return a diagnosis for each fault.

        Nodes share one where the same cause was found, but for names and numbers, or the same constant is at fault. An
        error that nothing explains is a fault of its own at each node.
        """
        groups: dict[tuple[str, ...], list[tuple[NodeResult, Finding]]] = {}
        for node, finding in faults:
            key = [str(finding.kind), str(finding.role), _NAME_OR_NUMBER.sub("", finding.sentence)]
            if finding.role is FindingRole.DIFFERENCE:
                key.append(finding.evidence or node.tensor)
            elif finding.role is FindingRole.BREACH and finding.kind is not FindingKind.REFERENCE:
                key.append(node.tensor)
            groups.setdefault(tuple(key), []).append((node, finding))
        return [self._of_group(class_of(members[0][1].kind), members) for members in groups.values()]

    def _of_group(self, fault: FaultClass, members: Sequence[tuple[NodeResult, Finding]]) -> Diagnosis:
        known = [self._shares.get(node.tensor) for node, _ in members]
        at = max(range(len(members)), key=lambda at: (known[at] or 0.0, -at))
        node, finding = members[at]
        others = [found.node for other, (_, found) in enumerate(members) if other != at]
        why = finding.sentence + (f"; the same at {_named(others)}" if others else "")
        made = self._of_node(node, fault, why, finding)
        nodes = dict.fromkeys([made.node, *(found.node for _, found in members)])
        shares = [share for share in known if share is not None]
        share = {} if self._output is None else {self._output: sum(shares) if shares else None}
        evidence = dict.fromkeys(found.evidence for _, found in members if found.evidence is not None)
        return replace(made, nodes=tuple(nodes), share=share, evidence=tuple(evidence))

    def of_costs(self, result: RunComparison) -> list[Diagnosis]:
        """Return what an output loses most by where no node is beyond its limit, the largest share first."""
        costs = [node for node in self._of.nodes if cost_of(node) is not None]
        exact = [each for each in self._known if each.how == "exact" and each.share]
        nodes = [self._of[self._of.rows[each.tensor]] for each in exact[:DIAGNOSED_NODES]]
        named = {node.tensor for node in nodes}
        origin = [node for node in costs if result.origin in (node.node, blamed(node))]
        others = {node.tensor: node for node in [*origin, *costs] if node.tensor not in named}
        nodes += [*others.values()][: DIAGNOSED_NODES - len(nodes)]
        return [self.of_cost(node) for node in nodes]

    def of_cost(self, node: NodeResult) -> Diagnosis:
        """Return what is said of a node that is within its limit and costs an output much."""
        cost, parts = cost_of(node), _Parts.of(node)
        weights = None
        if self._weights is not None and (parts is None or parts.constants >= WEIGHTS_MIN_SHARE):
            weights = self._weights(node)
        said = [] if cost is None else [cost.sentence]
        if weights is not None:
            said.append(weights.sentence + ("" if parts is None or cost is not None else _of_own(parts.constants)))
        elif parts is not None and cost is None:
            said.append(_of_parts(node, parts))
        coded = node.quant is not None or cost is not None or weights is not None  # a float result of weights in codes
        fault = FaultClass.QUANTIZATION if coded else FaultClass.NUMERIC
        if cost is not None and cost.kind is FindingKind.ARITHMETIC:
            fault = FaultClass.KERNEL
        elif weights is not None and not weights.rounded:
            fault = FaultClass.MODEL
        return self._of_node(node, fault, "; ".join(said) or "nothing tells why its error counts", cost)

    def _of_node(self, node: NodeResult, fault: FaultClass, why: str, finding: Finding | None = None) -> Diagnosis:
        producer = self._graph.producer(node.tensor)
        into = self._of.rows_of(() if producer is None else producer.inputs)
        worst = max(into, key=self._of.carried.__getitem__, default=None)
        share = self._shares.get(node.tensor)
        return Diagnosis(
            fault=fault,
            kind=None if finding is None else finding.kind,
            node=node.node if finding is None else finding.node,
            op=node.op,
            tensor=node.tensor,
            model_node=self._model_node(node, node.node if finding is None else finding.node),
            why=why,
            nodes=(node.node if finding is None else finding.node,),
            share={} if self._output is None else {self._output: share},
            before_db=None if worst is None else _sqnr_db(self._of[worst]),
            after_db=_sqnr_db(node),
            evidence=() if finding is None or finding.evidence is None else (finding.evidence,),
        )

    def _model_node(self, node: NodeResult, name: str) -> str | None:
        """Return what the source model calls a node: as the reference does, else as the backend says.

        Args:
            node: The result of the tensor that it is judged by.
            name: The backend node: of a part that is judged as one, any node of it.
        """
        if name != node.node:
            inside = next((each for each in self._graph.nodes if each.name == name), None)
            return next(iter(inside.origin), None) if inside is not None else None
        known = None if self._model_name is None else self._model_name(node)
        if known is not None:
            return known
        theirs = self._reference.producer(node.reference_tensor)
        if theirs is not None:
            return theirs.name
        producer = self._graph.producer(node.tensor)
        if producer is not None and producer.origin:
            return producer.origin[0]
        return None


def _named(nodes: Sequence[str]) -> str:
    """Quote a name or two, and count the rest."""
    first, more = " and ".join(map(repr, nodes[:2])), len(nodes) - 2
    return first + (f" and {plural(more, 'more node')}" if more > 0 else "")


def _sqnr_db(node: NodeResult) -> float | None:
    return None if node.metrics is None else node.metrics.sqnr_db


def _of_parts(node: NodeResult, parts: _Parts) -> str:
    """Say what most of a node's own error comes from."""
    rounding = "rounding to its codes" if node.quant is not None else "rounding of its sums"
    shares = {
        "its constants, which are not the reference's": parts.constants,
        "clipping": parts.clipping,
        rounding: parts.rounding,
    }
    first = max(shares, key=shares.__getitem__)
    rails = node.saturation
    if first == "clipping" and rails is not None and rails.clipped:
        first = f"clipping of {plural(rails.clipped, 'value')} of {rails.total}"
    share = max(shares.values())
    own = None if node.introduced is None else node.introduced.sqnr_db
    level = "" if own is None else f"; its own error leaves {own:.1f} dB"
    return f"{first}{_of_own(share)}{level}"


def _of_own(share: float) -> str:
    """Say how much of a node's own error something makes; nothing where it makes all of it."""
    percent = f"{share:.0%}"
    return "" if percent == "100%" else f" ({percent} of its own error)"


def _with_causes(
    faults: Sequence[tuple[NodeResult, Finding]], cause: Callable[[NodeResult], str | None] | None
) -> list[tuple[NodeResult, Finding]]:
    """Return faults with what a search finds out about the first few nodes whose codes nothing explains yet."""
    found, left = list[tuple[NodeResult, Finding]](), CAUSES_SOUGHT
    for node, finding in faults:
        unexplained = finding.kind is FindingKind.ARITHMETIC and finding.role is FindingRole.BREACH
        said = None
        if unexplained and node.status is Status.DIVERGED and cause is not None and left:
            said, left = cause(node), left - 1
        if said is None:
            found.append((node, finding))
        else:
            found.append((node, replace(finding, role=FindingRole.CAUSE, sentence=f"{said} ({finding.sentence})")))
    return found


def _with_way_on(fault: Diagnosis, result: RunComparison) -> Diagnosis:
    """Return a fault with where what is not finite goes on to."""
    if not result.verdict.way_on or fault.kind is not FindingKind.NONFINITE:
        return fault
    _, told, rest = result.verdict.way_on.partition(f"{fault.why}.")  # what is said already
    return replace(fault, why=f"{fault.why}. {(rest if told else result.verdict.way_on).strip()}")


def _in_order(found: list[Diagnosis], result: RunComparison) -> list[Diagnosis]:
    """Put faults in the order of their shares; where none is known, the origin and the first divergence first."""

    def key(each: Diagnosis) -> tuple[float, bool]:
        share = max((value for value in each.share.values() if value is not None), default=-1.0)
        return -share, not {result.origin, result.first_divergence} & {*each.nodes, each.node}

    return sorted(found, key=key)


def _ruled_out(result: RunComparison, of: ResultTable, found: Sequence[Diagnosis]) -> Iterable[RuledOut]:
    """Yield what was looked for and is not there; only what replays or hashes prove."""
    there = {each.fault for each in found}
    looked = [node for node in of.nodes if node.reproduced is not None]
    right = sum(node.reproduced is True for node in looked)
    if FaultClass.KERNEL not in there and looked and right == len(looked):
        many = len(looked)
        said = f"{many} of {many} quantized nodes {agreeing(many, 'match')} a known arithmetic bit for bit"
        yield RuledOut(fault=FaultClass.KERNEL, sentence=said)
    replayed = [node for node in of.nodes if node.judged_by is JudgedBy.REPLAY]
    plain = [node for node in replayed if node.reproduced is None]
    if FaultClass.KERNEL not in there and plain and not any(is_beyond(node) for node in of.nodes):
        yield RuledOut(
            fault=FaultClass.KERNEL,
            sentence=f"{plural(len(plain), 'other node')} {agreeing(len(plain), 'match')} a replay within rounding",
        )
    if FaultClass.MODEL not in there and replayed and not of.declared.any():
        yield RuledOut(
            fault=FaultClass.MODEL,
            sentence=f"the graphs agree at {plural(len(replayed), 'node')}, but for rounded weights",
        )
    counted = [node.metrics for node in of.nodes if node.metrics is not None]
    if FaultClass.NUMERIC not in there and counted and not any(stats.nonfinite for stats in counted):
        yield RuledOut(fault=FaultClass.NUMERIC, sentence="no NaN or infinity in one run only")
    both = (result.reference.fidelity, result.backend.fidelity)
    if FaultClass.RECORDING not in there and both == (Fidelity.BIT_EQUAL, Fidelity.BIT_EQUAL):
        yield RuledOut(fault=FaultClass.RECORDING, sentence="the outputs of both runs are bit-equal to plain runs")
