"""Network outputs whose SQNR is too low although no node exceeds its limit, and the nodes that cause it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from qdebug.compare.attribute.graph_walk import upstream
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole
from qdebug.compare.result.limits import Limits, RuleFinder
from qdebug.compare.result.node_result import cost_of, is_excused
from qdebug.compare.result.result import NodeResult, Status
from qdebug.compare.result.result_table import ResultTable
from qdebug.model import Graph
from qdebug.model.dtypes import is_integer

__all__ = ["beyond_by_its_arithmetic", "costs_that_count", "lost_part", "short_outputs"]


def short_outputs(of: ResultTable, graph: Graph, limits: Limits) -> list[NodeResult]:
    """Return the network outputs below the SQNR limit of outputs, worst first; none if a node exceeds its own limit.

    An accepted node beyond its limit may be the cause, so the outputs are then judged only if the user set the limit.
    Integers that are not codes have no meaningful SQNR. An output that matches a user rule is judged by that rule
    alone, unless the user also set the limit of outputs. Accepted outputs do not count.

    Args:
        of: The table of results.
        graph: The backend's graph.
        limits: The limits in force.
    """
    floor, rules = limits.output_sqnr_in_force, RuleFinder(limits.rules)
    if floor is None or (of.breaking if limits.min_output_sqnr is None else of.beyond).any():
        return []
    outputs_below: list[tuple[float, NodeResult]] = []
    for row in of.rows_of(graph.outputs):
        node = of[row]
        info = graph.tensors[node.tensor]
        is_integral = node.quant is None and info.dtype is not None and (is_integer(info.dtype) or info.dtype == "bool")
        has_rule = limits.min_output_sqnr is None and rules.find(node) is not None
        level = None if node.metrics is None else node.metrics.sqnr_db
        lost = lost_part(node)
        if level is not None and lost is not None and lost.amount is not None:
            level = min(level, lost.amount)
        if level is not None and level < floor and not (is_integral or has_rule or is_excused(node)):
            outputs_below.append((level, node))
    return [node for _, node in sorted(outputs_below, key=lambda each: each[0])]


def costs_that_count(of: ResultTable, graph: Graph, limits: Limits, short: Sequence[NodeResult]) -> list[NodeResult]:
    """Return the tensors whose codes lose too much, in order: those upstream of an output with too low an SQNR.

    If all judged outputs are good enough, return the tensors that lead to none of them, because nothing shows whether
    they matter. Return none if a node exceeds its limit, or user limits judge the tensor.

    Args:
        of: The table of results.
        graph: The backend's graph.
        limits: The limits in force.
        short: The result of `short_outputs`.
    """
    if of.breaking.any():
        return []
    rules = RuleFinder(limits.rules)
    costs = [
        node
        for node in of.nodes
        if cost_of(node) is not None
        and node.metrics is not None
        and not limits.under(rules.find(node)).judge_whole(node.metrics)
    ]
    if not costs:
        return []
    judged_outputs = [of[row].tensor for row in of.rows_of(graph.outputs) if of[row].metrics is not None]
    upstream_tensors = upstream(graph, [node.tensor for node in short] or judged_outputs)
    return [node for node in costs if (node.tensor in upstream_tensors) is bool(short)]


def beyond_by_its_arithmetic(sole: NodeResult, output: NodeResult) -> NodeResult | None:
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
        sentence += f"; this makes nearly all of the error of the output {output.tensor!r} (SQNR {level:.3g} dB)"
    breach = replace(cost, role=FindingRole.BREACH, sentence=sentence)
    samples = [replace(each, status=Status.DIVERGED) if each.max_abs else each for each in sole.samples]
    other_findings = (each for each in sole.findings if each is not cost)
    return replace(
        sole, status=Status.DIVERGED, reason=sentence, findings=(breach, *other_findings), samples=tuple(samples)
    )


def lost_part(output: NodeResult) -> Finding | None:
    """Return the finding that a part of an output exceeds the limit of outputs, or None."""
    return next((finding for finding in output.findings if finding.role is FindingRole.OUTPUT), None)
