"""What the neighbours of an unexplained node show about it: whether its values were recorded correctly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from qdebug.compare.explaining.explanation import ExplainStatus, NodeExplanation
from qdebug.model import Graph

__all__ = ["with_neighbours"]


def with_neighbours(graph: Graph, answers: Sequence[NodeExplanation]) -> tuple[NodeExplanation, ...]:
    """Annotate unexplained nodes that have an unexplained input, or whose readers are all unexplained.

    A kernel that computes wrongly passes wrong values on, and its readers compute correctly from them. If the readers
    do not fit either, the values were more likely recorded wrongly.

    Args:
        graph: The graph of the recording.
        answers: The findings for its nodes.
    """
    status = {answer.tensor: answer.status for answer in answers}
    wrong = {tensor for tensor, found in status.items() if found is ExplainStatus.UNEXPLAINED}
    if 2 * len(wrong) > len(answers):
        return tuple(answers)
    said = {tensor: _beside(graph, tensor, wrong, status) for tensor in wrong}
    return tuple(
        replace(answer, reason="; ".join(filter(None, (answer.reason, said[answer.tensor]))))
        if said.get(answer.tensor)
        else answer
        for answer in answers
    )


def _beside(graph: Graph, tensor: str, wrong: set[str], status: dict[str, ExplainStatus]) -> str | None:
    node = graph.producer(tensor)
    given = [name for name in (node.inputs if node else ()) if name in wrong]
    if given:
        return f"its input {given[0]!r} is unexplained too; if that was recorded wrongly, this node may be right"
    judged = (ExplainStatus.EXPLAINED, ExplainStatus.UNEXPLAINED, ExplainStatus.IN_BAND)
    readers = [name for reader in graph.consumers(tensor) for name in reader.outputs if status.get(name) in judged]
    if readers and wrong.issuperset(readers):
        return "the nodes that read it are unexplained too; it may have been computed rightly and recorded wrongly"
    return None
