"""Read ONNX model files into graphs with quantization facts. Constants stay in the file until they are read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from qdebug.backends.onnx.quant import stands_for
from qdebug.backends.onnx.tensor import ELEMENT_TYPES, attr_array, tensor_array
from qdebug.backends.protocol import check_shapes
from qdebug.errors import UsageError
from qdebug.model import AttrValue, Graph, Node, Role, TensorInfo
from qdebug.model.operators.known_scales import Facts, quant_facts

__all__ = ["OnnxModel", "OnnxReader", "node_names", "read_proto", "reader"]

_MAX_INFERENCE_BYTES = 1 << 30
"""Maximum bytes of a model for shape inference, which serializes the model. The format is limited to 2 GB."""
_MAX_SCALE_ELEMENTS = 1 << 20  # maximum elements of a constant that may be a scale


class OnnxModel:
    """An ONNX model file: its graph, and its constants on demand.

    Args:
        path: The file.
        proto: Its `onnx.ModelProto`, without external data.
        name: Display name; the file's name by default.
        changed: Whether the model differs from the file.
    """

    def __init__(self, path: Path, proto: Any, *, name: str = "", changed: bool = False) -> None:
        self.path = path
        self.changed = changed
        self.name = name or path.name
        self.proto = proto
        self._sha256 = ""
        self._protos = _constant_protos(proto.graph)
        self.constants: Sequence[str] = tuple(name for name, value in self._protos.items() if _is_numeric(value))
        self.node_names: Sequence[str] = node_names(proto.graph.node)
        self.graph = self._make_graph()

    def fixed(self, shapes: Mapping[str, tuple[int, ...]]) -> OnnxModel:
        """Return the model with the free dimensions of its inputs fixed, along with all dimensions of the same name.

        Args:
            shapes: The shapes, by input.

        Raises:
            InputError: A name is not an input, or a shape does not match the model.
        """
        check_shapes([self.graph.tensors[name] for name in self.graph.inputs], shapes)
        proto = type(self.proto)()
        proto.CopyFrom(self.proto)
        inputs = {value.name: value.type.tensor_type.shape.dim for value in proto.graph.input}
        extents: dict[str, int] = {}
        for name, shape in shapes.items():
            for dim, extent_name, extent in zip(inputs[name], self.extent_names[name], shape, strict=True):
                extents.setdefault(extent_name, extent)
                dim.dim_value = extent
        dims = [dim for value in (*proto.graph.input, *proto.graph.output) for dim in value.type.tensor_type.shape.dim]
        for dim in dims:
            extent = extents.get(_extent_name(dim.dim_param), 0) if dim.dim_param else 0
            if extent and _extent_name(dim.dim_param):
                dim.dim_value = extent
        return OnnxModel(self.path, proto, name=self.name, changed=True)

    @property
    def sha256(self) -> str:
        """Hash of the model file in hexadecimal, without external data."""
        if not self._sha256:
            with self.path.open("rb") as file:
                self._sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return self._sha256

    @property
    def inner_node_counts(self) -> Mapping[str, int]:
        """Number of nodes of each subgraph, such as a branch or a loop body, by its attribute and node as text."""
        return {
            f"{attr.name} of {node.op_type} {name!r}": len(graph.node)
            for node, name in zip(self.proto.graph.node, self.node_names, strict=True)
            for attr in node.attribute
            for graph in ((attr.g,) if attr.type == attr.GRAPH else attr.graphs)
        }

    def with_shapes(self) -> OnnxModel:
        """Return the model with shapes from ONNX's shape inference; the model itself if that fails."""
        import onnx

        if self.proto.ByteSize() > _MAX_INFERENCE_BYTES:
            return self
        try:
            inferred_proto = onnx.shape_inference.infer_shapes(self.proto, data_prop=True)
        except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, ValueError, RuntimeError):
            return self
        return OnnxModel(self.path, inferred_proto, name=self.name)

    def constant(self, name: str) -> np.ndarray:
        """Return the elements of one constant.

        Raises:
            UsageError: The constant does not exist, does not hold numbers, or cannot be read.
        """
        if name not in self._protos:
            raise UsageError(f"Model {self.name!r} has no constant {name!r}.")
        value = self._protos[name]
        if not _is_numeric(value):
            raise UsageError(
                f"Constant {name!r} of model {self.name!r} contains text or sparse values, not dense numbers."
            )
        return tensor_array(value, self.path.parent) if hasattr(value, "dims") else np.asarray(value)

    @property
    def extent_names(self) -> dict[str, tuple[str, ...]]:
        """Names of the dimensions of each input; "" for a dimension without a name.

        Exporters write "?" or "None" for unknown dimensions. These are not treated as names.
        """
        inputs = [value for value in self.proto.graph.input if value.name not in self._protos]
        return {
            value.name: tuple(_extent_name(dim.dim_param) for dim in value.type.tensor_type.shape.dim)
            for value in inputs
            if value.type.HasField("tensor_type")
        }

    def _make_graph(self) -> Graph:
        proto = self.proto.graph
        nodes = [
            _make_node(node, name)
            for node, name in zip(proto.node, self.node_names, strict=True)
            if not _is_constant_node(node)
        ]
        tensors = self._tensor_infos()
        facts = Facts(constant=self._small_constant, dtype=_dtype_lookup(tensors), rank=_rank_lookup(tensors))
        inputs = [value.name for value in proto.input if value.name not in self._protos]
        outputs = [value.name for value in proto.output]
        names_used = {*inputs, *outputs, *(name for node in nodes for name in (*node.inputs, *node.outputs))}
        # value_info may list tensors that an optimizer has removed.
        graph = Graph(
            nodes,
            tensors=[info for name, info in tensors.items() if name in names_used],
            inputs=inputs,
            outputs=outputs,
            name=proto.name,
            opset={entry.domain: entry.version for entry in self.proto.opset_import},
        )
        quant, roots = quant_facts(graph.nodes, facts), stands_for(graph.nodes, graph.outputs)
        return replace_tensors(
            graph,
            {
                name: replace(
                    info,
                    quant=quant.get(name),
                    stands_for=roots.get(name),
                    dtype=info.dtype or (quant[name].dtype if name in quant else None),
                )
                for name, info in graph.tensors.items()
                if name in quant or name in roots
            },
        )

    def _tensor_infos(self) -> dict[str, TensorInfo]:
        graph = self.proto.graph
        infos: dict[str, TensorInfo] = {}
        for values, role in (
            (graph.value_info, Role.ACTIVATION),
            (graph.output, Role.OUTPUT),
            (graph.input, Role.INPUT),
        ):
            for value in values:
                infos[value.name] = _tensor_info(value, role)
        for name, value in self._protos.items():
            infos[name] = _constant_info(name, value)
        return infos

    def _small_constant(self, name: str) -> np.ndarray | None:
        value = self._protos.get(name)
        if value is None or not _is_numeric(value):
            return None
        if hasattr(value, "dims") and np.prod(value.dims, dtype=np.int64) > _MAX_SCALE_ELEMENTS:
            return None
        return self.constant(name)


class OnnxReader:
    """Reader of ONNX files."""

    suffixes = (".onnx",)

    def open(self, path: Path) -> OnnxModel:
        """Read an ONNX file without its external data.

        Raises:
            UsageError: The file is missing or is not an ONNX model.
            GraphError: Its nodes do not form a valid graph.
        """
        return OnnxModel(path, read_proto(path))


reader = OnnxReader()
"""The reader that `qdebug.backends` loads for .onnx files."""


def read_proto(path: Path) -> Any:
    """Parse an ONNX file without loading its external data.

    Raises:
        UsageError: The file is missing or is not an ONNX model.
    """
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # no stubs

    try:
        proto = onnx.load(str(path), load_external_data=False)
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"The model file {str(path)!r} cannot be read: {reason}.", hint="Check the path.") from error
    except (DecodeError, UnicodeDecodeError) as error:
        raise _not_a_model_error(path) from error
    if not proto.ir_version or not proto.graph.output:
        raise _not_a_model_error(path)
    return proto


def _extent_name(text: str) -> str:
    return text if text != "None" and any(character.isalnum() for character in text) else ""


def _not_a_model_error(path: Path) -> UsageError:
    return UsageError(f"The file {str(path)!r} is not an ONNX model.", hint="Give a model saved by an ONNX exporter.")


def replace_tensors(graph: Graph, replacements: Mapping[str, TensorInfo]) -> Graph:
    """Return the graph with the descriptions of some tensors replaced."""
    return Graph(
        graph.nodes,
        tensors=[replacements.get(name, info) for name, info in graph.tensors.items()],
        inputs=graph.inputs,
        outputs=graph.outputs,
        name=graph.name,
        opset=graph.opset,
    )


def node_names(nodes: Sequence[Any]) -> tuple[str, ...]:
    """Return a unique name for each node: its own name, else its operator and first output, numbered if repeated."""
    own_names = {node.name for node in nodes if node.name}
    used_names: set[str] = set()
    names: list[str] = []
    for node in nodes:
        first_output = next((output for output in node.output if output), "")
        base_name = node.name or f"{node.op_type}:{first_output}"
        name, number = base_name, 1
        while name in used_names or (name in own_names and name != node.name):
            number += 1
            name = f"{base_name}#{number}"
        used_names.add(name)
        names.append(name)
    return tuple(names)


def _make_node(node: Any, name: str) -> Node:
    outer_reads = dict.fromkeys((*_subgraph_reads(node),))
    return Node(
        name=name,
        op=node.op_type,
        inputs=(*node.input, *(outer_name for outer_name in outer_reads if outer_name not in node.input)),
        outputs=tuple(node.output),
        attrs=MappingProxyType(
            {attr.name: value for attr in node.attribute if (value := _attr_value(attr)) is not None}
        ),
        domain="" if node.domain == "ai.onnx" else node.domain,
    )


def _attr_value(attr: Any) -> AttrValue | None:
    """Return the Python value of an attribute; None for a subgraph, a type or a text tensor."""
    kind = attr.type
    if kind == attr.INT:
        return int(attr.i)
    if kind == attr.FLOAT:
        return float(attr.f)
    if kind == attr.STRING:
        return str(attr.s.decode("utf-8", "replace"))
    if kind == attr.INTS:
        return tuple(attr.ints)
    if kind == attr.FLOATS:
        return tuple(attr.floats)
    if kind == attr.STRINGS:
        return tuple(value.decode("utf-8", "replace") for value in attr.strings)
    if kind == attr.TENSOR and _is_numeric(attr.t):
        return attr_array(attr.t)
    return None


def _subgraph_reads(node: Any) -> Iterator[str]:
    """Yield the outer tensors that a node's subgraphs read."""
    for attr in node.attribute:
        for graph in (attr.g, *attr.graphs) if attr.type in (attr.GRAPH, attr.GRAPHS) else ():
            inner_names = {value.name for value in (*graph.input, *graph.initializer)}
            inner_names.update(output for inner_node in graph.node for output in inner_node.output)
            for inner_node in graph.node:
                yield from (
                    name
                    for name in (*inner_node.input, *_subgraph_reads(inner_node))
                    if name and name not in inner_names
                )
            yield from (value.name for value in graph.output if value.name not in inner_names)


def _is_constant_node(node: Any) -> bool:
    return bool(node.op_type == "Constant" and node.domain in ("", "ai.onnx") and node.output)


def _constant_protos(graph: Any) -> dict[str, Any]:
    """Return each constant's TensorProto, or the number or list of a Constant node."""
    protos: dict[str, Any] = {proto.name: proto for proto in graph.initializer}
    protos.update({proto.values.name: proto for proto in graph.sparse_initializer})
    for node in graph.node:
        if _is_constant_node(node) and node.attribute:
            attr = node.attribute[0]
            protos[node.output[0]] = {
                "value": lambda attr=attr: attr.t,
                "sparse_value": lambda attr=attr: attr.sparse_tensor,
                "value_float": lambda attr=attr: np.float32(attr.f),
                "value_floats": lambda attr=attr: np.array(attr.floats, np.float32),
                "value_int": lambda attr=attr: np.int64(attr.i),
                "value_ints": lambda attr=attr: np.array(attr.ints, np.int64),
            }.get(attr.name, lambda: None)()
    return protos


def _is_numeric(value: Any) -> bool:
    if isinstance(value, np.ndarray | np.generic):
        return True
    return value is not None and getattr(value, "data_type", None) in ELEMENT_TYPES


def _tensor_info(value: Any, role: Role) -> TensorInfo:
    kind = value.type
    if not kind.HasField("tensor_type"):
        return TensorInfo(name=value.name, role=role)
    tensor = kind.tensor_type
    shape = None
    if tensor.HasField("shape"):
        # Some exporters write -1 where an extent varies.
        dims = (dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim)
        shape = tuple(extent if extent >= 0 else None for extent in dims)
    return TensorInfo(name=value.name, shape=shape, dtype=ELEMENT_TYPES.get(tensor.elem_type), role=role)


def _constant_info(name: str, value: Any) -> TensorInfo:
    if not _is_numeric(value):
        return TensorInfo(name=name, role=Role.CONSTANT)
    if hasattr(value, "dims"):
        dtype, shape = ELEMENT_TYPES[value.data_type], tuple(value.dims)
    else:
        dtype, shape = str(value.dtype), value.shape
    return TensorInfo(name=name, shape=shape, dtype=dtype, role=Role.CONSTANT)


def _dtype_lookup(tensors: Mapping[str, TensorInfo]) -> Any:
    return lambda name: tensors[name].dtype if name in tensors else None


def _rank_lookup(tensors: Mapping[str, TensorInfo]) -> Any:
    def rank(name: str) -> int | None:
        shape = tensors[name].shape if name in tensors else None
        return None if shape is None else len(shape)

    return rank
