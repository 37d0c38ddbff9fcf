"""Find tensors of an ONNX graph that are the codes of another tensor, or its dequantized values."""

from __future__ import annotations

from collections.abc import Sequence

from qdebug.model import Node

__all__ = ["stands_for"]


def stands_for(nodes: Sequence[Node], outputs: Sequence[str] = ()) -> dict[str, str]:
    """Map each tensor that holds the codes or the dequantized values of another tensor to that tensor.

    With q = QuantizeLinear(x) and d = DequantizeLinear(q), both q and d stand for x. Codes from an integer operator
    stand for the result of their DequantizeLinear. If one of these tensors is an output of the graph, the others stand
    for it, since its name is part of the model's interface.

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
    output_of_root = {roots[output]: output for output in outputs if output in roots}
    for tensor, root in tuple(roots.items()):
        if root in output_of_root:
            roots[root] = roots[tensor] = output_of_root[root]
    return {tensor: root for tensor, root in roots.items() if tensor != root}
