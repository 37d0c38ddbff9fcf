"""Keep rules for the next run: the tensors that a comparison of partial recordings needs in full."""

from __future__ import annotations

from collections.abc import Sequence
from glob import escape

from qdebug.compare.result.node_result import is_doubt
from qdebug.compare.result.result import NodeResult, RunComparison, Status
from qdebug.model import Graph

__all__ = ["retake_text"]


def retake_text(results: Sequence[tuple[RunComparison, Graph]]) -> str:
    """Return keep rules, one a line, that record the suspected nodes in full in the next run.

    A tensor that was not compared in full is suspected if it is beyond its limit, if its partial record does not tell
    whether it is, or if it differs although no compared input of its node does. The inputs of its node are listed with
    it. The names are those of the backend and those of the reference, so that both runs can use the rules.

    Args:
        results: Comparisons, each with the backend's graph.
    """
    names: dict[str, None] = {}
    for result, graph in results:
        by_tensor = {node.tensor: node for node in result.nodes}
        for node in result.nodes:
            inputs = _inputs(node, graph, by_tensor)
            if not _is_suspect(node, inputs):
                continue
            for needed in (*inputs, node):
                if needed.basis != "full":
                    names |= dict.fromkeys((needed.tensor, needed.reference_tensor))
    return "\n".join(f"{escape(name)}=full" for name in names if "\n" not in name)


def _inputs(node: NodeResult, graph: Graph, by_tensor: dict[str, NodeResult]) -> list[NodeResult]:
    producer = graph.producer(node.tensor)
    names = () if producer is None else producer.inputs
    return [by_tensor[name] for name in names if name in by_tensor]


def _is_suspect(node: NodeResult, inputs: Sequence[NodeResult]) -> bool:
    if node.basis == "full" or node.status is Status.IDENTICAL:
        return False
    is_first = all(entry.status is Status.IDENTICAL for entry in inputs)
    return is_first or node.status is not Status.WITHIN or any(map(is_doubt, node.findings))
