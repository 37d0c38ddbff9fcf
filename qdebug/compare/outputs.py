"""Outputs of the network that are short of SQNR while no node is beyond its limit, and the nodes that make them so."""

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
    """Return the network's outputs whose SQNR is below the limit of outputs, the worst first; none if a node is beyond.

    A node that is beyond its limit and was accepted may be why. Then the outputs are judged only if the user says so.

    Integers that are no codes have no SQNR to speak of. An output that a rule of the user fits is judged by that alone,
    unless the limit of outputs is the user's too; one that was accepted counts for nothing.

    Args:
        of: How compared tensors stand.
        graph: The backend's graph.
        limits: The limits in force.
    """
    floor, rules = limits.output_sqnr_in_force, RuleFinder(limits.rules)
    if floor is None or (of.breaking if limits.min_output_sqnr is None else of.beyond).any():
        return []
    found: list[tuple[float, NodeResult]] = []
    for row in of.rows_of(graph.outputs):
        node = of[row]
        info = graph.tensors[node.tensor]
        whole = node.quant is None and info.dtype is not None and (is_integer(info.dtype) or info.dtype == "bool")
        ruled = limits.min_output_sqnr is None and rules.find(node) is not None
        level = None if node.metrics is None else node.metrics.sqnr_db
        part = lost_part(node)
        if level is not None and part is not None and part.amount is not None:
            level = min(level, part.amount)
        if level is not None and level < floor and not (whole or ruled or is_excused(node)):
            found.append((level, node))
    return [node for _, node in sorted(found, key=lambda each: each[0])]


def costs_that_count(of: ResultTable, graph: Graph, limits: Limits, short: Sequence[NodeResult]) -> list[NodeResult]:
    """Return the tensors whose codes lose too much, in order: those above an output that is short of SQNR.

    Where all outputs that were judged have enough, those that lead to none of these: nothing tells whether it matters.
    None where a node is beyond its limit, or limits of the user judge the tensor.

    Args:
        of: How compared tensors stand.
        graph: The backend's graph.
        limits: The limits in force.
        short: What `short_outputs` found.
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
    judged = [of[row].tensor for row in of.rows_of(graph.outputs) if of[row].metrics is not None]
    above = upstream(graph, [node.tensor for node in short] or judged)
    return [node for node in costs if (node.tensor in above) is bool(short)]


def beyond_by_its_arithmetic(sole: NodeResult, output: NodeResult) -> NodeResult | None:
    """Return the result of a node whose arithmetic alone ruins an output, as one beyond its limit; None if it does not.

    That a known arithmetic gives the same bits excuses a node as long as its outputs are right.

    Args:
        sole: The node that makes nearly all of the output's loss.
        output: The output.
    """
    cost = cost_of(sole)
    if cost is None or cost.kind is not FindingKind.ARITHMETIC:
        return None
    level = None if output.metrics is None else output.metrics.sqnr_db
    said = cost.sentence
    if level is not None:
        said += f"; this makes nearly all of the error of the output {output.tensor!r} (SQNR {level:.3g} dB)"
    found = replace(cost, role=FindingRole.BREACH, sentence=said)
    samples = [replace(each, status=Status.DIVERGED) if each.max_abs else each for each in sole.samples]
    others = (each for each in sole.findings if each is not cost)
    return replace(sole, status=Status.DIVERGED, reason=said, findings=(found, *others), samples=tuple(samples))


def lost_part(output: NodeResult) -> Finding | None:
    """Return what was found of a part of an output that is beyond the limit of outputs; None if there is none."""
    return next((found for found in output.findings if found.role is FindingRole.OUTPUT), None)
