"""Rules for `qdebug record --keep`: which tensors the next run should record in full."""

from __future__ import annotations

from collections.abc import Sequence
from glob import escape

from qdebug.compare.result.node_result import is_doubt
from qdebug.compare.result.result import NodeResult, RunComparison, Status
from qdebug.model import Graph

__all__ = ["retake_text"]


def retake_text(results: Sequence[tuple[RunComparison, Graph]]) -> str:
    """Return keep rules, one per line, that record the suspected tensors in full in the next run.

    A tensor that was not compared in full is suspected if it exceeds its limit, if its partial record cannot show
    whether it does, or if it differs although all compared inputs of its node are identical. The inputs of its node
    get rules too. Every tensor is listed by its backend and its reference name, so that both runs can use the rules.

    Args:
        results: Comparisons, each with the backend's graph.
    """
    names: dict[str, None] = {}
    for result, graph in results:
        by_tensor = {node.tensor: node for node in result.nodes}
        for node in result.nodes:
            inputs = _compared_inputs(node, graph, by_tensor)
            if not _is_suspect(node, inputs):
                continue
            for needed in (*inputs, node):
                if needed.basis != "full":
                    names |= dict.fromkeys((needed.tensor, needed.reference_tensor))
    return "\n".join(f"{escape(name)}=full" for name in names if "\n" not in name)


def _compared_inputs(node: NodeResult, graph: Graph, by_tensor: dict[str, NodeResult]) -> list[NodeResult]:
    producer = graph.producer(node.tensor)
    names = () if producer is None else producer.inputs
    return [by_tensor[name] for name in names if name in by_tensor]


def _is_suspect(node: NodeResult, inputs: Sequence[NodeResult]) -> bool:
    if node.basis == "full" or node.status is Status.IDENTICAL:
        return False
    has_identical_inputs = all(entry.status is Status.IDENTICAL for entry in inputs)
    return has_identical_inputs or node.status is not Status.WITHIN or any(map(is_doubt, node.findings))
