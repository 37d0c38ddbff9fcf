"""Makes the diagnosis of a comparison: each fault with its share of the output's error, and the faults ruled out."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from qdebug.compare.attribute.graph_walk import downstream
from qdebug.compare.explaining.claims import EVERY, ONE_OFF
from qdebug.compare.growth import fails_by_growth, growth_sentence
from qdebug.compare.result.diagnosis import Diagnosis, FaultClass, RuledOut, class_of
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole, JudgedBy, Status
from qdebug.compare.result.inputs import input_finding
from qdebug.compare.result.node_result import cost_of, is_beyond, node_to_blame
from qdebug.compare.result.result import Contributions, Growth, NodeResult, RunComparison
from qdebug.compare.result.result_table import ResultTable
from qdebug.compare.weight_channels import WeightReason
from qdebug.model import Fidelity, Graph, Node
from qdebug.model.thresholds.verdict import CAUSES_SOUGHT, DEFAULT_MIN_SQNR, DIAGNOSED_NODES, WEIGHTS_MIN_SHARE
from qdebug.numerics.short_formats import SHORT_FORMATS, ShortFormat
from qdebug.plural import agreeing, plural

__all__ = ["ErrorPart", "WeightReasons", "add_diagnosis", "main_part"]

WeightReasons = Callable[[NodeResult], WeightReason | None]
"""Explains the error of a node's weights, or returns None if unknown."""

JointShare = Callable[[str, Sequence[str]], float | None]
"""Returns the share of an output's error that several tensors cause together, or None if unknown."""

_ROLES = (FindingRole.DIFFERENCE, FindingRole.BREACH, FindingRole.CAUSE)
_COMPLETE = (EVERY, ONE_OFF, "all wrong elements")
"""Claims of causes that account for all of an error."""
_NAME_OR_NUMBER = re.compile(r"'[^']*'|[-+]?\d[\d.,e+-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """Shares of a node's own error, in power."""

    constants: float
    clipping: float
    rounding: float

    @classmethod
    def of(cls, node: NodeResult) -> _Parts | None:
        """Split a node's own error into its parts, or return None if the error is unknown."""
        constants, arithmetic, clipping = (_power(part) for part in (node.constants, node.arithmetic, node.clipping))
        total = constants + arithmetic
        if not total or not math.isfinite(total):
            return None
        clipped = min(clipping, arithmetic)
        return cls(constants=constants / total, clipping=clipped / total, rounding=(arithmetic - clipped) / total)


def _power(stats: object) -> float:
    rmse = getattr(stats, "rmse", None)
    return 0.0 if rmse is None else float(rmse) ** 2


class ErrorPart(StrEnum):
    """Origin of a node's own error."""

    WEIGHTS = "weights"
    CLIPPING = "clipping"
    ROUNDING = "rounding"


def main_part(node: NodeResult) -> ErrorPart | None:
    """Return the largest part of a node's own error, or None if unknown."""
    parts = _Parts.of(node)
    if parts is None:
        return None
    shares = {
        ErrorPart.WEIGHTS: parts.constants,
        ErrorPart.CLIPPING: parts.clipping,
        ErrorPart.ROUNDING: parts.rounding,
    }
    return max(shares, key=shares.__getitem__)


def add_diagnosis(
    result: RunComparison,
    graph: Graph,
    reference: Graph,
    *,
    contributing: Contributions | None = None,
    weights: WeightReasons | None = None,
    model_name: Callable[[NodeResult], str | None] | None = None,
    cause: Callable[[NodeResult], str | None] | None = None,
    joint_share: JointShare | None = None,
    inputs_allowed: bool = False,
) -> RunComparison:
    """Return a comparison with its diagnosis.

    Args:
        result: The comparison.
        graph: The backend's graph.
        reference: The reference's graph.
        contributing: Contributions of nodes to the worst output, or None if they were not measured.
        weights: Explains why a node's weights lose precision, or None to skip this.
        model_name: Returns a node's name in the source model, or None to use the names in the graphs.
        cause: Searches for the reason why a node's codes are wrong, see `verdict`. None to skip the search.
        joint_share: Replays several tensors' own errors together, or None to add their shares.
        inputs_allowed: Whether the user accepts different inputs, so that nodes are diagnosed anyway.
    """
    table = ResultTable(result.nodes)
    maker = _DiagnosisMaker(
        table, graph, reference, contributing, weights=weights, model_name=model_name, joint_share=joint_share
    )
    if result.different_inputs and not inputs_allowed:
        entries = [maker.make_input_entry(node) for node in result.different_inputs]
    elif table.beyond.any():
        faults = maker.select_one_fault_per_node(_with_causes(_failing_nodes(result, table, graph), cause))
        entries = [
            _with_growth(_with_path(entry, result), result.verdict.growth) for entry in maker.group_faults(faults)
        ]
        diagnosed_tensors = {entry.tensor for entry in entries}
        costs = [
            maker.make_cost_entry(node)
            for node in table.nodes
            if cost_of(node) is not None and node.tensor not in diagnosed_tensors
        ]
        entries = _sort_by_share([*entries, *costs[:DIAGNOSED_NODES]], result)
    elif result.status is Status.ACCUMULATED:
        growth = result.verdict.growth
        entries = maker.make_cost_entries(result)
        if growth is not None and fails_by_growth(growth):
            entries = [
                maker.make_growth_entry(growth),
                *(entry for entry in entries if entry.node not in growth.nodes),
            ]
    else:
        entries = []
    if contributing is not None and result.verdict.together is None:
        result = replace(result, verdict=replace(result.verdict, together=contributing.together))
    return replace(result, diagnosis=tuple(entries), ruled_out=tuple(_ruled_out(result, table, entries)))


def _failing_nodes(result: RunComparison, table: ResultTable, graph: Graph) -> list[tuple[NodeResult, Finding]]:
    """Return the nodes that fail because of their own error, each with its main finding.

    A NaN or an infinity counts against the node that produces it. A tensor judged only by its total error does not
    count, because it may fail due to an upstream fault.
    """
    failing: list[tuple[NodeResult, Finding]] = []
    downstream_tensors: set[str] = set()
    nonfinite_tensors: set[str] = set()
    first_nonfinite = None if result.verdict.nonfinite is None else result.verdict.nonfinite.row
    for row in np.flatnonzero(table.beyond).tolist():
        node = table[row]
        finding = _main_finding(node)
        is_passed_on = first_nonfinite != row if first_nonfinite is not None else node.tensor in nonfinite_tensors
        if finding is None or (node.status is Status.NONFINITE and is_passed_on):
            continue
        if node.status is Status.NONFINITE:
            nonfinite_tensors |= downstream(graph, (node.tensor,))
        if (
            finding.kind is FindingKind.ERROR
            and node.judged_by is not JudgedBy.REPLAY
            and node.tensor in downstream_tensors
        ):
            continue
        failing.append((node, finding))
        if node.tensor not in downstream_tensors:
            downstream_tensors |= downstream(graph, (node.tensor,))
    if not failing:  # here, only a limit set by the user is exceeded
        failing = [
            (node, finding) for node in table.nodes if is_beyond(node) and (finding := _main_finding(node)) is not None
        ]
    return failing


def _main_finding(node: NodeResult) -> Finding | None:
    """Return the finding that best explains why a tensor fails."""
    deciding = [finding for finding in node.findings if finding.role in _ROLES]
    causes = [finding for finding in deciding if finding.role is not FindingRole.BREACH]
    return next(iter(causes or deciding), None)


class _DiagnosisMaker:
    """Makes the entries of a diagnosis.

    Args:
        table: The compared tensors.
        graph: The backend's graph.
        reference: The reference's graph.
        contributing: Contributions of nodes to the worst output, or None if they were not measured.
        weights: Explains why a node's weights lose precision, or None to skip this.
        model_name: Returns a node's name in the source model, or None to use the names in the graphs.
        joint_share: Replays several tensors' own errors together, or None to add their shares.
    """

    def __init__(
        self,
        table: ResultTable,
        graph: Graph,
        reference: Graph,
        contributing: Contributions | None,
        *,
        weights: WeightReasons | None,
        model_name: Callable[[NodeResult], str | None] | None,
        joint_share: JointShare | None,
    ) -> None:
        self._table, self._graph, self._reference, self._weights = table, graph, reference, weights
        self._model_name, self._joint_share = model_name, joint_share
        self._known = () if contributing is None else contributing.nodes
        self._shares = {entry.tensor: entry.share for entry in self._known if entry.how == "exact"}
        self._output = next((entry.output for entry in self._known), None)

    def make_input_entry(self, node: NodeResult) -> Diagnosis:
        """Return the entry of an input that differs between the two runs."""
        finding = input_finding(node)
        why = "differs between the two runs" + ("" if finding is None else f": {finding.sentence}")
        return replace(self._make_entry(node, FaultClass.RECORDING, why), share={})

    def select_one_fault_per_node(
        self, faults: Sequence[tuple[NodeResult, Finding]]
    ) -> list[tuple[NodeResult, Finding]]:
        """Return one fault per node, because outputs of a node fail together. A fault with a cause is preferred.

        The share of such a node is unknown, because the errors of its outputs are correlated and may cancel.
        """
        by_node: dict[str, list[tuple[NodeResult, Finding]]] = {}
        for node, finding in faults:
            producer = self._graph.producer(node.tensor)
            by_node.setdefault(node.tensor if producer is None else producer.outputs[0], []).append((node, finding))
        for outputs in by_node.values():
            if len(outputs) > 1:
                self._shares.update({node.tensor: None for node, _ in outputs})
        return [min(outputs, key=lambda fault: fault[1].role is FindingRole.BREACH) for outputs in by_node.values()]

    def group_faults(self, faults: Sequence[tuple[NodeResult, Finding]]) -> list[Diagnosis]:
        """Return the diagnosis entries of the given faults.

        Nodes share an entry if their findings are equal except for names and numbers, blame the same constant, or name
        the same rounding. Each node with an unexplained error gets its own entry.
        """
        groups: dict[tuple[str, ...], list[tuple[NodeResult, Finding]]] = {}
        for node, finding in faults:
            key = [str(finding.kind), str(finding.role), _NAME_OR_NUMBER.sub("", finding.sentence)]
            if finding.role is FindingRole.DIFFERENCE or finding.kind is FindingKind.ONE_SIDED:
                key.append(finding.evidence or node.tensor)
            elif finding.role is FindingRole.BREACH and finding.kind is not FindingKind.REFERENCE:
                key.append(node.tensor)
            groups.setdefault(tuple(key), []).append((node, finding))
        return [self._make_group_entry(class_of(members[0][1].kind), members) for members in groups.values()]

    def _make_group_entry(self, fault: FaultClass, members: Sequence[tuple[NodeResult, Finding]]) -> Diagnosis:
        shares_of_members = [self._shares.get(node.tensor) for node, _ in members]
        at = max(range(len(members)), key=lambda at: (shares_of_members[at] or 0.0, -at))
        node, finding = members[at]
        other_nodes = [member_finding.node for position, (_, member_finding) in enumerate(members) if position != at]
        why = finding.sentence + (f"; the same at {_names_text(other_nodes)}" if other_nodes else "")
        entry = self._make_entry(node, fault, why, finding)
        nodes = dict.fromkeys([entry.node, *(member_finding.node for _, member_finding in members)])
        shares = [share for share in shares_of_members if share is not None]
        total = sum(shares) if shares else None
        if len(shares) > 1 and self._output is not None and self._joint_share is not None:
            total = self._joint_share(self._output, [member.tensor for member, _ in members])
        share = {} if self._output is None else {self._output: total}
        evidence = dict.fromkeys(
            member_finding.evidence for _, member_finding in members if member_finding.evidence is not None
        )
        return replace(entry, nodes=tuple(nodes), share=share, evidence=tuple(evidence))

    def make_cost_entries(self, result: RunComparison) -> list[Diagnosis]:
        """Return entries for the nodes that cost an output most if no node fails, largest share first."""
        costs = [node for node in self._table.nodes if cost_of(node) is not None]
        exact = [entry for entry in self._known if entry.how == "exact" and entry.share]
        nodes = [self._table[self._table.rows[entry.tensor]] for entry in exact[:DIAGNOSED_NODES]]
        exact_tensors = {node.tensor for node in nodes}
        origin = [node for node in costs if result.origin in (node.node, node_to_blame(node))]
        other_nodes = {node.tensor: node for node in [*origin, *costs] if node.tensor not in exact_tensors}
        nodes += [*other_nodes.values()][: DIAGNOSED_NODES - len(nodes)]
        return [self.make_cost_entry(node) for node in nodes]

    def make_growth_entry(self, growth: Growth) -> Diagnosis:
        """Return the entry of nodes whose rounding errors add up at an output, although no node fails."""
        nodes = [node for node in self._table.nodes if node.node in growth.nodes and node.op == growth.op]
        largest = max(nodes, key=lambda node: self._shares.get(node.tensor) or 0.0)
        tensors = [node.tensor for node in nodes]
        share = None if self._joint_share is None else self._joint_share(growth.output, tensors)
        names = dict.fromkeys([largest.node, *growth.nodes])
        entry = self._make_entry(largest, FaultClass.NUMERIC, growth_sentence(growth).rstrip("."))
        return replace(entry, nodes=tuple(names), share={growth.output: share})

    def make_cost_entry(self, node: NodeResult) -> Diagnosis:
        """Return the entry of a node that passes but costs an output much of its accuracy."""
        cost, parts = cost_of(node), _Parts.of(node)
        weights = None
        if self._weights is not None and (parts is None or parts.constants >= WEIGHTS_MIN_SHARE):
            weights = self._weights(node)
        clauses = [] if cost is None else [cost.sentence]
        if weights is not None:
            clauses.append(
                weights.sentence + ("" if parts is None or cost is not None else _share_text(parts.constants))
            )
        elif parts is not None and cost is None:
            clauses.append(_parts_text(node, parts))
        elif cost is None:
            clauses += self._rounding_clauses(node)
        # A node with a float output may still have weights in codes.
        is_coded = node.quant is not None or cost is not None or weights is not None
        fault = FaultClass.QUANTIZATION if is_coded else FaultClass.NUMERIC
        if cost is not None and cost.kind is FindingKind.ARITHMETIC:
            fault = FaultClass.KERNEL
        elif weights is not None and not weights.rounded:
            fault = FaultClass.MODEL
        return self._make_entry(node, fault, "; ".join(clauses) or "the cause of its error is unknown", cost)

    def _rounding_clauses(self, node: NodeResult) -> list[str]:
        """Return clauses on the rounding of a node's results to a short format, and on the reader that amplifies it.

        There are none if more than that rounding is wrong.
        """
        short = next((short for short in SHORT_FORMATS if short.name == node.precision), None)
        level = _sqnr_of(node)
        if short is None or level is None or level < _level_of(short):
            return []
        clauses = [f"its results are rounded to {short.name}, which leaves {level:.1f} dB"]
        readers = {name for reader in self._graph.consumers(node.tensor) for name in reader.outputs}
        levels = {
            row: reader_level
            for row in self._table.rows_of([*filter(None, readers)])
            if (reader_level := _sqnr_of(self._table[row])) is not None
        }
        worst = min(levels, key=levels.__getitem__, default=None)
        if worst is not None and levels[worst] < level - DEFAULT_MIN_SQNR:
            reader = self._table[worst]
            clauses.append(f"{reader.op} {reader.node!r} turns that into {levels[worst]:.1f} dB")
        return clauses

    def _make_entry(self, node: NodeResult, fault: FaultClass, why: str, finding: Finding | None = None) -> Diagnosis:
        producer = self._graph.producer(node.tensor)
        input_rows = self._table.rows_of(() if producer is None else producer.inputs)
        worst = max(input_rows, key=self._table.carried.__getitem__, default=None)
        share = self._shares.get(node.tensor)
        return Diagnosis(
            fault=fault,
            kind=None if finding is None else finding.kind,
            node=node.node if finding is None else finding.node,
            op=node.op if finding is None or finding.node == node.node else self._op_of(finding.node, node.op),
            tensor=node.tensor,
            model_node=self._model_node(node, node.node if finding is None else finding.node),
            why=why,
            nodes=(node.node if finding is None else finding.node,),
            share={} if self._output is None else {self._output: share},
            before_db=None if worst is None else _sqnr_of(self._table[worst]),
            after_db=_sqnr_of(node),
            evidence=() if finding is None or finding.evidence is None else (finding.evidence,),
        )

    def _op_of(self, name: str, default: str) -> str:
        """Return the operator of a backend node, or a default if there is no such node."""
        return next((node.op for node in self._graph.nodes if node.name == name), default)

    def _model_node(self, node: NodeResult, name: str) -> str | None:
        """Return a node's name in the source model: the name in the reference, or else the one that the backend states.

        Args:
            node: The result of the tensor that judges the node.
            name: The backend node. In a region judged as a whole, any node of it.
        """
        if name != node.node:
            part_node = next((candidate for candidate in self._graph.nodes if candidate.name == name), None)
            return next(iter(part_node.origin), None) if part_node is not None else None
        model_name = None if self._model_name is None else self._model_name(node)
        if model_name is not None:
            return model_name
        reference_producer = self._reference.producer(node.reference_tensor)
        if reference_producer is not None and not _is_unnamed(reference_producer):
            return reference_producer.name
        producer = self._graph.producer(node.tensor)
        if producer is not None and producer.origin:
            return producer.origin[0]
        return None


def _is_unnamed(node: Node) -> bool:
    """Return whether a node's name is only made up of its operator and its output."""
    return any(node.name == f"{node.op}:{output}" for output in node.outputs[:1])


def _names_text(nodes: Sequence[str]) -> str:
    """Quote one or two names, and count the rest."""
    quoted_names, rest_count = " and ".join(map(repr, nodes[:2])), len(nodes) - 2
    return quoted_names + (f" and {plural(rest_count, 'more node')}" if rest_count > 0 else "")


def _level_of(short: ShortFormat) -> float:
    """Return the SQNR in dB that rounding to a short format leaves at least: that of an error of one unit roundoff."""
    return -20 * math.log10(short.unit)


def _sqnr_of(node: NodeResult) -> float | None:
    return None if node.metrics is None else node.metrics.sqnr_db


def _parts_text(node: NodeResult, parts: _Parts) -> str:
    """Describe the largest part of a node's own error."""
    rounding = "rounding to its codes" if node.quant is not None else "rounding of its sums"
    shares = {
        "its constants, which differ from the reference's": parts.constants,
        "clipping": parts.clipping,
        rounding: parts.rounding,
    }
    part_text = max(shares, key=shares.__getitem__)
    rails = node.saturation
    if part_text == "clipping" and rails is not None and rails.clipped:
        part_text = f"clipping of {rails.clipped} of {plural(rails.total, 'value')}"
    share = max(shares.values())
    own_sqnr = None if node.introduced is None else node.introduced.sqnr_db
    level = "" if own_sqnr is None else f"; its own error leaves {own_sqnr:.1f} dB"
    return f"{part_text}{_share_text(share)}{level}"


def _share_text(share: float) -> str:
    """Return a clause with a part's share of the own error, or "" if it is the whole error."""
    percent = f"{share:.0%}"
    return "" if percent == "100%" else f" ({percent} of its own error)"


def _with_causes(
    faults: Sequence[tuple[NodeResult, Finding]], cause: Callable[[NodeResult], str | None] | None
) -> list[tuple[NodeResult, Finding]]:
    """Return failing nodes. The first few unexplained ones get the cause found by a search."""
    results, searches_left = list[tuple[NodeResult, Finding]](), CAUSES_SOUGHT
    for node, finding in faults:
        is_arithmetic = finding.kind is FindingKind.ARITHMETIC
        is_one_sided = finding.kind is FindingKind.ONE_SIDED and finding.evidence is None
        is_unexplained = finding.role is FindingRole.BREACH and (is_arithmetic or is_one_sided)
        # A difference can also be elements that differ from a replay although the total error is within its limit.
        is_unexplained |= finding.role is FindingRole.DIFFERENCE and is_arithmetic and finding.unit == "elements"
        cause_text = None
        if is_unexplained and node.status is Status.DIVERGED and cause is not None and searches_left:
            cause_text, searches_left = cause(node), searches_left - 1
        if cause_text is None:
            results.append((node, finding))
        else:
            repeated_text = f"every bit is reproduced by {cause_text}; "
            # The check of a layer may have found a cause too. The mere size of an error adds nothing to a full cause.
            is_size = not _accounts_for_all(finding.sentence)
            is_dropped = finding.sentence == cause_text or (is_size and _accounts_for_all(cause_text))
            rest = "" if is_dropped else f"; {finding.sentence.removeprefix(repeated_text)}"
            results.append((node, replace(finding, role=FindingRole.CAUSE, sentence=cause_text + rest)))
    return results


def _accounts_for_all(sentence: str) -> bool:
    """Return whether a sentence names a cause that accounts for all wrong elements."""
    return any(claim in sentence for claim in _COMPLETE)


def _with_path(fault: Diagnosis, result: RunComparison) -> Diagnosis:
    """Return a fault with the path that its NaN or infinity takes."""
    if not result.verdict.way_on or fault.kind is not FindingKind.NONFINITE:
        return fault
    _, is_repeated, remainder = result.verdict.way_on.partition(f"{fault.why}.")  # drop the repeated sentence
    return replace(fault, why=f"{fault.why}. {(remainder if is_repeated else result.verdict.way_on).strip()}")


def _with_growth(fault: Diagnosis, growth: Growth | None) -> Diagnosis:
    """Return a fault of several nodes with how their errors of one sign add up at the output."""
    if fault.kind is not FindingKind.ONE_SIDED or growth is None or growth.op != fault.op or len(fault.nodes) == 1:
        return fault
    ratio = f"together {growth.ratio:.2g} times as large as independent errors would be"
    return replace(fault, why=f"{fault.why}; their errors add up at {growth.output!r}, {ratio}")


def _sort_by_share(faults: list[Diagnosis], result: RunComparison) -> list[Diagnosis]:
    """Sort faults by share. Without shares, the origin and the first divergence come first."""

    def key(fault: Diagnosis) -> tuple[float, bool]:
        share = max((value for value in fault.share.values() if value is not None), default=-1.0)
        return -share, not {result.origin, result.first_divergence} & {*fault.nodes, fault.node}

    return sorted(faults, key=key)


def _ruled_out(result: RunComparison, table: ResultTable, faults: Sequence[Diagnosis]) -> Iterable[RuledOut]:
    """Yield the kinds of faults that replays or hashes prove absent."""
    present = {fault.fault for fault in faults}
    reproducible = [node for node in table.nodes if node.reproduced is not None]
    reproduced_count = sum(node.reproduced is True for node in reproducible)
    if FaultClass.KERNEL not in present and reproducible and reproduced_count == len(reproducible):
        count = len(reproducible)
        sentence = (
            f"{count} of {count} quantized nodes {agreeing(count, 'match')} a known runtime's arithmetic bit for bit"
        )
        yield RuledOut(fault=FaultClass.KERNEL, sentence=sentence)
    replayed_nodes = [node for node in table.nodes if node.judged_by is JudgedBy.REPLAY]
    unsearched_nodes = [node for node in replayed_nodes if node.reproduced is None]
    if FaultClass.KERNEL not in present and unsearched_nodes and not any(is_beyond(node) for node in table.nodes):
        count = len(unsearched_nodes)
        sentence = f"{plural(count, 'other node')} {agreeing(count, 'match')} a replay within rounding"
        yield RuledOut(fault=FaultClass.KERNEL, sentence=sentence)
    has_graph = not result.backend.borrowed_order
    if FaultClass.MODEL not in present and has_graph and replayed_nodes and not table.declared.any():
        yield RuledOut(
            fault=FaultClass.MODEL,
            sentence=f"the graphs agree at {plural(len(replayed_nodes), 'node')}, except for rounded weights",
        )
    all_stats = [node.metrics for node in table.nodes if node.metrics is not None]
    if FaultClass.NUMERIC not in present and all_stats and not any(stats.nonfinite for stats in all_stats):
        yield RuledOut(fault=FaultClass.NUMERIC, sentence="no NaN or infinity in one run only")
    fidelities = (result.reference.fidelity, result.backend.fidelity)
    if FaultClass.RECORDING not in present and fidelities == (Fidelity.BIT_EQUAL, Fidelity.BIT_EQUAL):
        yield RuledOut(fault=FaultClass.RECORDING, sentence="the outputs of both runs are bit-equal to plain runs")
