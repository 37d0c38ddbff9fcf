"""Run a graph, or some of its nodes, on one feed. Each tensor is dropped after its last consumer.

A node normally computes with the stored values of its tensors. If input and output of an ordinary operator hold codes
(`computes_on_codes`), the node computes with the real numbers that the codes stand for, as fused graphs and
accelerators do. `one_thread` limits BLAS to one thread, so that results do not depend on their number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from qdebug.errors import InputError, KernelError
from qdebug.model import Graph, Node, QuantParams, TensorInfo, operators
from qdebug.model.dtypes import is_integer
from qdebug.model.thresholds.attribution import GRAPH_MIN_ELEMENTS
from qdebug.numerics.blas import one_thread
from qdebug.replay.evaluate import compute
from qdebug.replay.extents import max_elements, size_limits
from qdebug.replay.node_units import Coded, unit_of_codes, with_recorded_scale
from qdebug.replay.registry import has_kernel, refuse_large, run_node
from qdebug.replay.variant import Arithmetic

__all__ = [
    "Fault",
    "Instead",
    "OnTensor",
    "computes_on_codes",
    "one_thread",
    "run_as_recorded",
    "run_coded",
    "run_graph",
    "run_nodes",
]


def computes_on_codes(graph: Graph, node: Node, arithmetic: Arithmetic | None = None) -> bool:
    """Return whether a node is an ordinary operator whose inputs and output are codes.

    Args:
        graph: The graph with the quantization of its tensors.
        node: One of its nodes.
        arithmetic: The arithmetic. If it interpolates codes, a resize between codes of equal scale counts too.
    """
    if not node.outputs or not node.inputs or not has_kernel(node.op, node.domain):
        return False
    infos = [graph.tensors[name] for name in node.inputs if name]
    out = graph.tensors.get(node.outputs[0])
    coded = [info for info in infos if _has_codes(info)]
    if out is None or not _has_codes(out) or not coded:
        return False
    row = operators.of(node.op)
    if not row.unit or row.exact:
        return False
    if row.rescales or row.least is not None:
        return True
    if row.in_codes:  # if its bounds or fill values are codes already, the ordinary kernel can run on the codes
        settings = [graph.tensors[node.inputs[p]] for p in row.in_codes if p < len(node.inputs) and node.inputs[p]]
        return not any(info.dtype is not None and is_integer(info.dtype) for info in settings)
    blends = row.resizes and str(node.attrs.get("mode")) == "linear"
    if blends and arithmetic is not None and arithmetic.interpolates:
        return True
    return any(info.quant != out.quant for info in coded)


def run_coded(
    graph: Graph, node: Node, values: Mapping[str, np.ndarray], arithmetic: Arithmetic
) -> dict[str, np.ndarray]:
    """Compute a node whose inputs and output are codes.

    Args:
        graph: The graph.
        node: A node for which `computes_on_codes` is true.
        values: Arrays by tensor name, at least the node's inputs.
        arithmetic: Its arithmetic.

    Returns:
        The node's output by tensor name.

    Raises:
        KernelError: The operands do not fit the operator, or the operator is not computed on codes.
    """
    quant = graph.tensors[node.outputs[0]].quant
    inputs = [
        Coded(values=values[name], quant=_quant_of_codes(graph.tensors[name])) if name else None for name in node.inputs
    ]
    refuse_large(node, [values[name] if name else None for name in node.inputs], graph.opset)
    try:
        with np.errstate(all="ignore"):
            unit = None if quant is None else unit_of_codes(node, inputs, quant, opset=graph.opset)
            if unit is not None:
                return {node.outputs[0]: compute(unit, arithmetic.variant(unit))}
    except (KernelError, ValueError, ArithmeticError) as error:
        raise KernelError(f"Node {node.name!r} ({node.op}) cannot be computed on codes: {error}") from error
    raise KernelError(f"Node {node.name!r} ({node.op}) cannot be computed on the codes that it reads.")


def _has_codes(info: TensorInfo) -> bool:
    return info.quant is not None and is_integer(info.quant.dtype) and (info.dtype is None or is_integer(info.dtype))


def _quant_of_codes(info: TensorInfo) -> QuantParams | None:
    return info.quant if _has_codes(info) else None


OnTensor = Callable[[str, np.ndarray], None]
"""Called with the name and values of each tensor as soon as it is computed."""

Instead = Callable[[Node, Mapping[str, np.ndarray], Callable[[], Mapping[str, np.ndarray]]], Mapping[str, np.ndarray]]
"""Computes a node from its inputs, or calls the given function, which computes it as usual."""

Fault = Callable[[tuple[np.ndarray, ...]], tuple[np.ndarray, ...]]
"""Changes the outputs of a node to plant a bug deliberately."""


def run_graph(
    graph: Graph,
    feed: Mapping[str, np.ndarray],
    constants: Mapping[str, np.ndarray],
    *,
    arithmetic: Arithmetic | None = None,
    on_tensor: OnTensor | None = None,
    faults: Mapping[str, Fault] | None = None,
    instead: Instead | None = None,
) -> dict[str, np.ndarray]:
    """Compute all nodes of a graph in order.

    Args:
        graph: The graph.
        feed: One array for each input of the graph.
        constants: Arrays of the graph's constants by name; looked up when a node needs one.
        arithmetic: Choices of quantized arithmetic; ONNX's own by default.
        on_tensor: Called with every computed tensor, before it may be freed. It must not change the array.
        faults: Changes to the outputs of nodes, by node name.
        instead: Computes a node in another way, or calls the function that computes it as usual.

    Returns:
        The graph's outputs by name.

    Raises:
        InputError: An input of the graph is not fed.
        NoKernelError: An operator has no kernel.
        KernelError: A node cannot be computed, or a constant has no values.
    """
    _check_fed(graph, feed)
    choices, element_limit = arithmetic or Arithmetic(), GRAPH_MIN_ELEMENTS

    def run(node: Node, results: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        nonlocal element_limit
        names = dict.fromkeys(filter(None, node.inputs))
        needed = {name: _find_value(name, (results, feed, constants), node) for name in names}
        element_limit = max(
            element_limit, max_elements([array.shape for name, array in needed.items() if name not in results])
        )
        with size_limits(element_limit=element_limit):
            usual = partial(run_as_recorded, graph, node, needed, choices)
            outputs = usual() if instead is None else dict(instead(node, needed, usual))
        if faults and node.name in faults:
            outputs = _apply_fault(node, outputs, faults[node.name])
        if on_tensor is not None:
            for name, array in outputs.items():
                on_tensor(name, array)
        return outputs

    with one_thread():
        results = run_nodes(graph.nodes, graph.outputs, run)
    return {name: _find_value(name, (results, feed, constants)) for name in graph.outputs}


def run_as_recorded(
    graph: Graph, node: Node, values: Mapping[str, np.ndarray], arithmetic: Arithmetic
) -> dict[str, np.ndarray]:
    """Compute a node on the recorded values of its graph: on codes if its inputs and outputs are codes.

    Args:
        graph: The graph with the quantization of its tensors.
        node: One of its nodes.
        values: Arrays by tensor name, at least the node's inputs.
        arithmetic: The arithmetic of quantized nodes.

    Raises:
        NoKernelError: Its operator has no kernel.
        KernelError: It cannot be computed on these values.
    """
    if computes_on_codes(graph, node, arithmetic):
        return run_coded(graph, node, values, arithmetic)
    completed, completed_values = with_recorded_scale(node, values, graph.tensors)
    outputs = dict(run_node(completed, completed_values, graph.opset, arithmetic=arithmetic))
    quant = graph.tensors[node.outputs[0]].quant if completed is not node and operators.of(node.op).quantizes else None
    if quant is not None and quant.qmin is not None and quant.qmax is not None:  # the recorded range may be narrower
        outputs = {name: np.clip(codes, quant.qmin, quant.qmax).astype(codes.dtype) for name, codes in outputs.items()}
    return outputs


def run_nodes(
    nodes: Sequence[Node],
    outputs: Sequence[str],
    run: Callable[[Node, Mapping[str, np.ndarray]], Mapping[str, np.ndarray]],
) -> dict[str, np.ndarray]:
    """Compute nodes in order; each tensor is dropped after its last consumer.

    Args:
        nodes: The nodes, in topological order.
        outputs: Names of the requested tensors.
        run: Computes a node; called with the node and the available tensors of earlier nodes.

    Returns:
        The requested tensors that a node computes, by name.
    """
    waiting = Counter(tensor for node in nodes for tensor in dict.fromkeys(node.inputs) if tensor)
    waiting.update(outputs)
    available: dict[str, np.ndarray] = {}
    for node in nodes:
        available.update((name, array) for name, array in run(node, available).items() if waiting[name])
        for name in dict.fromkeys(node.inputs):
            waiting[name] -= 1
            if not waiting[name]:
                available.pop(name, None)
    return available


def _check_fed(graph: Graph, feed: Mapping[str, np.ndarray]) -> None:
    for name in graph.inputs:
        if name not in feed:
            raise InputError(
                f"Input {name!r} of the graph is not fed; the feed has: {', '.join(feed) or 'nothing'}.",
                hint=f"Give an array named {name!r}.",
            )


def _find_value(name: str, sources: Sequence[Mapping[str, np.ndarray]], node: Node | None = None) -> np.ndarray:
    values = next((values for values in sources if name in values), None)
    if values is not None:
        return values[name]
    reader_text = f", which node {node.name!r} ({node.op}) reads," if node is not None else ""
    raise KernelError(
        f"Tensor {name!r}{reader_text} has no values: no node computes it, and it is not a stored constant.",
        hint="If this is a recording, make it again without --no-weights.",
    )


def _apply_fault(node: Node, outputs: Mapping[str, np.ndarray], fault: Fault) -> dict[str, np.ndarray]:
    changed = fault(tuple(outputs.values()))
    if len(changed) != len(outputs):
        raise KernelError(f"The fault planted in node {node.name!r} returns {len(changed)} arrays, not {len(outputs)}.")
    return dict(zip(outputs, changed, strict=True))
