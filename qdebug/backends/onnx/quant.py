"""Find the tensors of an ONNX graph that are the codes of another tensor, or these dequantized."""

from __future__ import annotations

from collections.abc import Sequence

from qdebug.model import Node

__all__ = ["stands_for"]


def stands_for(nodes: Sequence[Node], outputs: Sequence[str] = ()) -> dict[str, str]:
    """Return, for each tensor with another tensor's values as codes or dequantized, that tensor's name.

    For q = QuantizeLinear(x) and d = DequantizeLinear(q) both stand for x; codes from an integer operator stand for the
    result of their DequantizeLinear. An output of the graph represents the others: its name is part of the model's
    interface, theirs are not.

    Args:
        nodes: In topological order.
        outputs: The graph's outputs.
    """
    roots: dict[str, str] = {}
    for node in nodes:
        if node.op not in ("QuantizeLinear", "DequantizeLinear") or not node.inputs or not node.outputs:
            continue
        source, target = node.inputs[0], node.outputs[0]
        if node.op == "QuantizeLinear" or source in roots:
            roots[target] = roots.get(source, source)
        else:
            roots[source] = target
    renamed = {roots[output]: output for output in outputs if output in roots}
    for tensor, root in tuple(roots.items()):
        if root in renamed:
            roots[root] = roots[tensor] = renamed[root]
    return {tensor: root for tensor, root in roots.items() if tensor != root}
