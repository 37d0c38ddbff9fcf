"""Remarks on unexplained nodes whose neighbours suggest that their values were recorded incorrectly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from qdebug.compare.explaining.explanation import ExplainStatus, NodeExplanation
from qdebug.model import Graph

__all__ = ["with_neighbours"]


def with_neighbours(graph: Graph, answers: Sequence[NodeExplanation]) -> tuple[NodeExplanation, ...]:
    """Add a remark to unexplained nodes that have an unexplained input, or whose readers are all unexplained.

    If a kernel computes a wrong value, its readers still compute correctly from that value. If the readers are
    unexplained too, the value was more likely recorded incorrectly.

    Args:
        graph: The graph of the recording.
        answers: The findings for its nodes.
    """
    status = {answer.tensor: answer.status for answer in answers}
    wrong = {tensor for tensor, found in status.items() if found is ExplainStatus.UNEXPLAINED}
    if 2 * len(wrong) > len(answers):
        return tuple(answers)
    clauses = {tensor: _clause_of_neighbours(graph, tensor, wrong, status) for tensor in wrong}
    return tuple(
        replace(answer, reason="; ".join(filter(None, (answer.reason, clauses[answer.tensor]))))
        if clauses.get(answer.tensor)
        else answer
        for answer in answers
    )


def _clause_of_neighbours(graph: Graph, tensor: str, wrong: set[str], status: dict[str, ExplainStatus]) -> str | None:
    """Return a remark on an unexplained tensor with unexplained neighbours, or None if it has none."""
    node = graph.producer(tensor)
    given = [name for name in (node.inputs if node else ()) if name in wrong]
    if given:
        return f"its input {given[0]!r} is unexplained too; if that was recorded wrongly, this node may be right"
    judged = (ExplainStatus.EXPLAINED, ExplainStatus.UNEXPLAINED, ExplainStatus.IN_BAND)
    readers = [name for reader in graph.consumers(tensor) for name in reader.outputs if status.get(name) in judged]
    if readers and wrong.issuperset(readers):
        return "the nodes that read it are unexplained too; it may have been computed correctly and recorded wrongly"
    return None
