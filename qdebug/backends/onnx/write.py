"""Write a graph and its constants as an ONNX model file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qdebug.errors import BackendError
from qdebug.model import Graph, Node

if TYPE_CHECKING:
    import onnx

__all__ = ["node_proto", "write"]

_IR_VERSION = 8
"""IR version that every ONNX Runtime since 1.10 can read."""


def write(graph: Graph, constants: Mapping[str, np.ndarray], path: Path) -> None:
    """Write a model file.

    Args:
        graph: The graph, with a dtype for each of its inputs and outputs and a shape for its inputs.
        constants: Its constants by name.
        path: The file to write.

    Raises:
        BackendError: A part of the graph does not have an ONNX equivalent, or the file cannot be written.
    """
    import onnx
    from onnx import helper, numpy_helper

    try:
        graph_proto = helper.make_graph(
            [node_proto(node) for node in graph.nodes],
            graph.name or "graph",
            [_value_info(helper, graph, name) for name in graph.inputs],
            [_value_info(helper, graph, name) for name in graph.outputs],
            [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
        )
        domains = [helper.make_opsetid(domain, version) for domain, version in graph.opset.items()]
        onnx.save(helper.make_model(graph_proto, opset_imports=domains, ir_version=_IR_VERSION), str(path))
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise BackendError(f"The graph {graph.name!r} cannot be written as an ONNX model: {error}.") from error


def node_proto(node: Node) -> onnx.NodeProto:
    """Return the `onnx.NodeProto` of a node."""
    from onnx import helper

    attrs: dict[str, Any] = {
        name: list(value) if isinstance(value, tuple) else value for name, value in node.attrs.items()
    }
    proto: onnx.NodeProto = helper.make_node(
        node.op, list(node.inputs), list(node.outputs), name=node.name, domain=node.domain, **attrs
    )
    return proto


def _value_info(helper: Any, graph: Graph, name: str) -> onnx.ValueInfoProto:
    info = graph.tensors[name]
    if info.dtype is None or (info.shape is None and name in graph.inputs):
        raise ValueError(f"the input or output {name!r} lacks a dtype, or the input lacks a shape")
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(info.dtype))
    proto: onnx.ValueInfoProto = helper.make_tensor_value_info(name, kind, info.shape)
    return proto
