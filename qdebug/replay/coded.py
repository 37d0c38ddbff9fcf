"""Run plain operators whose tensors are codes: what a fused graph has, and what accelerators record.

Where input and output of a Conv hold codes, the node means the operator between the real numbers that they stand for.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qdebug.errors import KernelError
from qdebug.model import Graph, Node, QuantParams, TensorInfo, operators
from qdebug.model.dtypes import is_integer
from qdebug.replay.arithmetic import Arithmetic
from qdebug.replay.evaluate import compute
from qdebug.replay.registry import has_kernel
from qdebug.replay.unit_codes import Coded, unit_of_codes

__all__ = ["computes_on_codes", "run_coded"]


def computes_on_codes(graph: Graph, node: Node, arithmetic: Arithmetic | None = None) -> bool:
    """Tell whether a node stands for an operator between the real numbers of its codes.

    Args:
        graph: The graph; the quantization of its tensors decides.
        node: One of its nodes.
        arithmetic: What it is computed by: one that says how codes are interpolated does it between codes of one scale.
    """
    if not node.outputs or not node.inputs or not has_kernel(node.op, node.domain):
        return False
    infos = [graph.tensors[name] for name in node.inputs if name]
    out = graph.tensors.get(node.outputs[0])
    coded = [info for info in infos if _coded(info)]
    if out is None or not _coded(out) or not coded:
        return False
    row = operators.of(node.op)
    if not row.unit or row.exact:
        return False
    if row.rescales or row.least is not None:
        return True
    if row.in_codes:  # where these are codes, it works on codes
        settings = [graph.tensors[node.inputs[p]] for p in row.in_codes if p < len(node.inputs) and node.inputs[p]]
        return not any(info.dtype is not None and is_integer(info.dtype) for info in settings)
    blends = row.resizes and node.attrs.get("mode") == "linear"
    if blends and arithmetic is not None and arithmetic.interpolates:
        return True
    return any(info.quant != out.quant for info in coded)


def run_coded(
    graph: Graph, node: Node, values: Mapping[str, np.ndarray], arithmetic: Arithmetic
) -> dict[str, np.ndarray]:
    """Compute a node between codes.

    Args:
        graph: The graph.
        node: A node of which `computes_on_codes` is true.
        values: Arrays by tensor name; those of the node's inputs are read.
        arithmetic: How it is computed.

    Returns:
        The node's output by tensor name.

    Raises:
        KernelError: The operands do not fit the operator, or its operator is not one that is computed on codes.
    """
    quant = graph.tensors[node.outputs[0]].quant
    inputs = [Coded(values=values[name], quant=_quant(graph.tensors[name])) if name else None for name in node.inputs]
    try:
        with np.errstate(all="ignore"):
            unit = None if quant is None else unit_of_codes(node, inputs, quant, opset=graph.opset)
            if unit is not None:
                return {node.outputs[0]: compute(unit, arithmetic.variant(unit))}
    except (KernelError, ValueError, IndexError, TypeError, ArithmeticError) as error:
        raise KernelError(f"Node {node.name!r} ({node.op}) cannot be computed on codes: {error}") from error
    raise KernelError(f"Node {node.name!r} ({node.op}) cannot be computed on the codes that it reads.")


def _coded(info: TensorInfo) -> bool:
    return info.quant is not None and is_integer(info.quant.dtype) and (info.dtype is None or is_integer(info.dtype))


def _quant(info: TensorInfo) -> QuantParams | None:
    return info.quant if _coded(info) else None
