"""Write a graph of PyTorch operators and its constants as an exported program of torch.export.

A node has the operator's own name ("aten.conv2d.default"). Its inputs are the tensors among the operator's arguments,
in the order of the schema, and its attributes are all other arguments, as in a graph that is read from a program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qdebug.backends.torch.exported import without_logging
from qdebug.backends.torch.ops import schema_of, tensor_of
from qdebug.errors import BackendError
from qdebug.model import Graph, Node
from qdebug.model.dtypes import LOGICAL_DTYPES, logical_dtype

__all__ = ["write"]


def write(graph: Graph, constants: Mapping[str, np.ndarray], path: Path) -> None:
    """Write a model file.

    Args:
        graph: The graph with PyTorch's operators and attributes, with dtype and shape of each input.
        constants: Its constants by name.
        path: The file to write.

    Raises:
        BackendError: A part of the graph cannot be represented in PyTorch, or the file cannot be written.
    """
    import torch

    try:
        with without_logging():
            import torchao.quantization.pt2e.quantize_pt2e  # noqa: F401  registers quantized_decomposed

            module = _make_module(graph, constants)
            program = torch.export.export(
                module, tuple(_example_input(graph, name) for name in graph.inputs), strict=False
            )
            torch.export.save(program, path)
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError, OSError) as error:
        text = " ".join(str(error).split())[:300].rstrip(".")
        raise BackendError(f"The graph {graph.name!r} cannot be written as an exported program: {text}.") from error


def _make_module(graph: Graph, constants: Mapping[str, np.ndarray]) -> Any:
    """Return a module that calls the operators of a graph in order."""
    import torch
    from torch import fx

    root, fx_graph = torch.nn.Module(), fx.Graph()
    fx_nodes = {name: fx_graph.placeholder(name) for name in graph.inputs}
    for name, array in constants.items():
        root.register_buffer(name, tensor_of(array))
        fx_nodes[name] = fx_graph.get_attr(name)
    for node in graph.nodes:
        (name,) = node.outputs
        target = _find_operator(node.op)
        args, kwargs = _call_arguments(node, target, fx_nodes.__getitem__)
        fx_nodes[name] = fx_graph.create_node("call_function", target, args, kwargs, name)
    fx_graph.output(tuple(fx_nodes[name] for name in graph.outputs))
    return fx.GraphModule(root, fx_graph)


def _find_operator(name: str) -> Any:
    """Return PyTorch's operator with a name such as "aten.conv2d.default"."""
    import torch

    operator = torch.ops
    for part in name.split("."):
        operator = getattr(operator, part)
    return operator


def _call_arguments(
    node: Node, target: Any, fx_node_of: Callable[[str], Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of an operator, by position and by name.

    Args:
        node: The node.
        target: Its operator.
        fx_node_of: Returns the fx node that computes a tensor.
    """
    remaining_inputs = list(node.inputs)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for argument in schema_of(target).arguments:
        kind = str(argument.type)
        if argument.name in node.attrs:
            value = _attribute_value(node.attrs[argument.name], kind)
        elif "List[Tensor" in kind:
            value, remaining_inputs = [fx_node_of(name) for name in remaining_inputs], []
        elif "Tensor" in kind and remaining_inputs:
            name = remaining_inputs.pop(0)
            value = fx_node_of(name) if name else None
        elif argument.has_default_value():
            value = argument.default_value
        elif kind.startswith("Optional"):
            value = None
        else:
            raise ValueError(f"node {node.name!r} lacks the argument {argument.name!r} of {node.op}")
        if argument.kwarg_only:
            kwargs[argument.name] = value
        else:
            args.append(value)
    if remaining_inputs:
        raise ValueError(f"{node.op} of node {node.name!r} does not accept {', '.join(remaining_inputs)}")
    return tuple(args), kwargs


def _attribute_value(value: Any, kind: str) -> Any:
    """Return an attribute as PyTorch accepts it: a list, a dtype, or the value itself."""
    import torch

    if isinstance(value, tuple):
        return list(value)
    return getattr(torch, value) if kind in ("int", "Optional[int]") and value in LOGICAL_DTYPES else value


def _example_input(graph: Graph, name: str) -> Any:
    """Return a tensor of zeros with an input's shape and dtype. Free extents are 1."""
    info = graph.tensors[name]
    if info.dtype is None or info.shape is None or None in info.shape:
        raise ValueError(f"the input {name!r} has no dtype or no shape")
    shape = tuple(extent or 1 for extent in info.shape)
    return tensor_of(np.zeros(shape, logical_dtype(info.dtype)))
