"""Findings on the inputs of the network: different inputs, and NaN."""

from __future__ import annotations

from collections.abc import Sequence

from qdebug.compare.attribute.graph_walk import upstream
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole, Status
from qdebug.compare.result.node_result import NodeResult
from qdebug.compare.result.result_table import ResultTable
from qdebug.model import Graph
from qdebug.plural import plural

__all__ = [
    "different_inputs",
    "different_inputs_clause",
    "input_finding",
    "nan_input",
    "nan_input_sentence",
]


def input_finding(node: NodeResult) -> Finding | None:
    """Return the finding that a network input differs between the runs, or None for other tensors."""
    return next((finding for finding in node.findings if finding.kind is FindingKind.INPUT), None)


def _nan_finding(node: NodeResult) -> Finding | None:
    """Return the finding that a network input holds NaN in both runs, or None for other tensors."""
    if node.op != "Input":
        return None
    kinds = FindingKind.NONFINITE, FindingRole.NOTE
    return next((finding for finding in node.findings if (finding.kind, finding.role) == kinds), None)


def different_inputs(table: ResultTable) -> list[NodeResult]:
    """Return the network inputs that differ between the two runs."""
    return [node for node in table.nodes if input_finding(node) is not None]


def different_inputs_clause(different: Sequence[NodeResult]) -> str:
    """Return a clause saying that the two runs were given different inputs.

    Args:
        different: The inputs that differ, at least one.
    """
    finding, other_count = input_finding(different[0]), len(different) - 1
    detail = "" if finding is None else f" {finding.sentence}"
    more = f", and {plural(other_count, 'more input')}" if other_count else ""
    return f"the two runs were given different inputs ({different[0].tensor!r}{detail}{more})"


def nan_input(table: ResultTable, first: NodeResult, graph: Graph) -> NodeResult | None:
    """Return an input with NaN in both runs that leads to the first difference, or None."""
    if first.status is not Status.NONFINITE:
        return None
    rows = table.rows_of(upstream(graph, (first.tensor,)))
    return next((table[row] for row in rows if _nan_finding(table[row]) is not None), None)


def nan_input_sentence(input_result: NodeResult, first: NodeResult) -> str:
    """Return a sentence saying that an input holds NaN, and where the runs first differ because of it."""
    finding = _nan_finding(input_result)
    detail = "" if finding is None else f": {finding.sentence}"
    text = f"The input {input_result.tensor!r} contains NaN{detail}."
    return f"{text} The two runs handle NaN differently at {first.node!r}."
