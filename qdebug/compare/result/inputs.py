"""What was found of the inputs of the network: whether both runs were given the same, and numbers."""

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
    """Return what was found of an input of the network that differs between the two runs; None of any other tensor."""
    return next((found for found in node.findings if found.kind is FindingKind.INPUT), None)


def _nan_finding(node: NodeResult) -> Finding | None:
    """Return what was found of an input of the network that holds NaN in both runs; None of any other tensor."""
    if node.op != "Input":
        return None
    kinds = FindingKind.NONFINITE, FindingRole.NOTE
    return next((found for found in node.findings if (found.kind, found.role) == kinds), None)


def different_inputs(of: ResultTable) -> list[NodeResult]:
    """Return the inputs of the network that differ between the two runs."""
    return [node for node in of.nodes if input_finding(node) is not None]


def different_inputs_clause(different: Sequence[NodeResult]) -> str:
    """Say in a clause that the two runs were given different inputs.

    Args:
        different: Those that differ, at least one.
    """
    found, others = input_finding(different[0]), len(different) - 1
    said = "" if found is None else f" {found.sentence}"
    more = f", and {plural(others, 'more input')}" if others else ""
    return f"the two runs were given different inputs ({different[0].tensor!r}{said}{more})"


def nan_input(of: ResultTable, first: NodeResult, graph: Graph) -> NodeResult | None:
    """Return an input of the network that holds NaN in both runs and leads to the first difference, if one does."""
    if first.status is not Status.NONFINITE:
        return None
    rows = of.rows_of(upstream(graph, (first.tensor,)))
    return next((of[row] for row in rows if _nan_finding(of[row]) is not None), None)


def nan_input_sentence(given: NodeResult, first: NodeResult) -> str:
    """Say that what was given to both runs holds NaN, and where they first make different things of it."""
    found = _nan_finding(given)
    said = "" if found is None else f": {found.sentence}"
    return f"The input {given.tensor!r} holds NaN{said}. The two runs handle that differently at {first.node!r}."
