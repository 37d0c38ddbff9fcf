"""Network outputs whose SQNR is too low although no node exceeds its limit, and the nodes that cause it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from qdebug.compare.attribute.graph_walk import upstream
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole, apart
from qdebug.compare.result.limits import Limits, LogitsRule, RuleFinder
from qdebug.compare.result.node_result import cost_of, is_excused
from qdebug.compare.result.result import NodeResult, OutputRanking, Status
from qdebug.compare.result.result_table import ResultTable
from qdebug.model import Graph
from qdebug.model.dtypes import is_integer
from qdebug.numerics.metric_table import metric

__all__ = [
    "costs_that_count",
    "judge_logits",
    "lost_part",
    "mark_ruinous_arithmetic",
    "outputs_below_limit",
    "unjudged_logits",
]


def outputs_below_limit(table: ResultTable, graph: Graph, limits: Limits) -> list[NodeResult]:
    """Return the network outputs below the SQNR limit of outputs, worst first; none if a node exceeds its own limit.

    An accepted node beyond its limit may be the cause, so the outputs are then judged only if the user set the limit.
    Integers that are not codes have no meaningful SQNR. An output that matches a user rule is judged by that rule
    alone, unless the user also set the limit of outputs. Accepted outputs do not count.

    Args:
        table: The table of results.
        graph: The backend's graph.
        limits: The limits in force.
    """
    floor, rules = limits.output_sqnr_in_force, RuleFinder(limits.rules)
    if floor is None or (table.breaking if limits.min_output_sqnr is None else table.beyond).any():
        return []
    outputs_below: list[tuple[float, NodeResult]] = []
    for row in table.rows_of(graph.outputs):
        node = table[row]
        info = graph.tensors[node.tensor]
        is_integral = node.quant is None and info.dtype is not None and (is_integer(info.dtype) or info.dtype == "bool")
        has_rule = limits.min_output_sqnr is None and rules.find(node) is not None
        level = None if node.metrics is None else node.metrics.sqnr_db
        lost = lost_part(node)
        if level is not None and lost is not None and lost.amount is not None:
            level = min(level, lost.amount)
        if level is not None and level < floor and not (is_integral or has_rule or is_excused(node)):
            outputs_below.append((level, node))
    return [node for _, node in sorted(outputs_below, key=lambda level_and_node: level_and_node[0])]


def costs_that_count(table: ResultTable, graph: Graph, limits: Limits, short: Sequence[NodeResult]) -> list[NodeResult]:
    """Return the tensors whose codes lose too much, in order: those upstream of an output with too low an SQNR.

    If all judged outputs are good enough, return the tensors that lead to none of them, because nothing shows whether
    they matter. Return none if a node exceeds its limit, or user limits judge the tensor.

    Args:
        table: The table of results.
        graph: The backend's graph.
        limits: The limits in force.
        short: The result of `outputs_below_limit`.
    """
    if table.breaking.any():
        return []
    rules = RuleFinder(limits.rules)
    costs = [
        node
        for node in table.nodes
        if cost_of(node) is not None
        and node.metrics is not None
        and not limits.under(rules.find(node)).judge_whole(node.metrics)
    ]
    if not costs:
        return []
    judged_outputs = [table[row].tensor for row in table.rows_of(graph.outputs) if table[row].metrics is not None]
    upstream_tensors = upstream(graph, [node.tensor for node in short] or judged_outputs)
    return [node for node in costs if (node.tensor in upstream_tensors) is bool(short)]


def mark_ruinous_arithmetic(sole: NodeResult, output: NodeResult) -> NodeResult | None:
    """Return a node whose arithmetic alone ruins an output, marked as beyond its limit, or None if it does not.

    A known arithmetic that gives the same bits excuses a node only while the outputs are right.

    Args:
        sole: The node that causes nearly all of the output's loss.
        output: The output.
    """
    cost = cost_of(sole)
    if cost is None or cost.kind is not FindingKind.ARITHMETIC:
        return None
    level = None if output.metrics is None else output.metrics.sqnr_db
    sentence = cost.sentence
    if level is not None:
        sentence += f"; this causes nearly all of the error of the output {output.tensor!r} (SQNR {level:.3g} dB)"
    breach = replace(cost, role=FindingRole.BREACH, sentence=sentence)
    samples = [replace(entry, status=Status.DIVERGED) if entry.max_abs else entry for entry in sole.samples]
    other_findings = (finding for finding in sole.findings if finding is not cost)
    return replace(
        sole, status=Status.DIVERGED, reason=sentence, findings=(breach, *other_findings), samples=tuple(samples)
    )


def lost_part(output: NodeResult) -> Finding | None:
    """Return the finding that a part of an output exceeds the limit of outputs, or None."""
    return next((finding for finding in output.findings if finding.role is FindingRole.OUTPUT), None)


def judge_logits(table: ResultTable, rankings: Sequence[OutputRanking], limits: Limits) -> ResultTable:
    """Return the table with each output of logits beyond its limit marked as diverged.

    Args:
        table: The table of results.
        rankings: The metrics of outputs that may hold scores.
        limits: The limits in force.
    """
    for ranking in rankings:
        rule = limits.logits_rule(ranking.tensor)
        node = table[table.rows[ranking.tensor]]
        breaches = [] if rule is None else _logits_breaches(node, ranking, rule)
        if breaches:
            status = Status.DIVERGED if node.status in (Status.IDENTICAL, Status.WITHIN) else node.status
            reason = node.reason if node.status is status else breaches[0].sentence
            findings = (*node.findings, *breaches)
            table = table.replacing(replace(node, status=status, reason=reason, findings=findings))
    return table


def _logits_breaches(node: NodeResult, ranking: OutputRanking, rule: LogitsRule) -> list[Finding]:
    breaches = []
    for name, limit in rule.bounds.items():
        key = name.partition("_")[2]
        amount = getattr(ranking, key)
        is_minimum = name.startswith("min_")
        # Comparisons with NaN are false, so NaN counts as beyond the limit.
        if amount is None or (amount >= limit if is_minimum else amount <= limit):
            continue
        spec = metric(key)
        unit = f" {spec.unit}" if spec.unit else ""
        bound = "at least" if is_minimum else "at most"
        sentence = f"{key} is {apart(amount, limit)}{unit}, the limit is {bound} {limit:g}{unit}"
        breaches.append(
            Finding(
                kind=FindingKind.ERROR,
                role=FindingRole.BREACH,
                node=node.node,
                sentence=sentence,
                amount=amount,
                limit=limit,
                unit=spec.unit or None,
                given=True,
            )
        )
    return breaches


def unjudged_logits(graph: Graph, rankings: Sequence[OutputRanking], limits: Limits) -> list[str]:
    """Return a clause for each limit on logits that was not judged because the output has no such metric.

    Args:
        graph: The backend's graph.
        rankings: The metrics of outputs that may hold scores.
        limits: The limits in force.
    """
    ranking_of = {ranking.tensor: ranking for ranking in rankings}
    rules = [(output, rule) for output in graph.outputs if (rule := limits.logits_rule(output)) is not None]
    return [
        f"limit {name} of the output {output!r} was not judged: it has no such metric"
        for output, rule in rules
        for name in rule.bounds
        if getattr(ranking_of.get(output), name.partition("_")[2], None) is None
    ]
