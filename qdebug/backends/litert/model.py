"""Read LiteRT (TensorFlow Lite) model files into graphs with quantization facts.

The main subgraph becomes the graph. Constants stay views of the file's buffers until they are read.
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from pkgutil import extend_path
from types import MappingProxyType
from typing import Any

import numpy as np

from qdebug.errors import UsageError
from qdebug.model import AttrValue, Graph, Node, QuantParams, Role, TensorInfo
from qdebug.model.dtypes import is_integer, logical_dtype
from qdebug.regular_file import open_binary

__all__ = ["CUSTOM_DOMAIN", "ELEMENT_TYPES", "LiteRTModel", "LiteRTReader", "reader"]

CUSTOM_DOMAIN = "tflite.custom"
"""Domain of custom operators, whose names only the model's own runtime knows."""

ELEMENT_TYPES: Mapping[int, tuple[str, str | None]] = MappingProxyType(
    {
        number: (name, dtype)
        for number, (name, dtype) in enumerate(
            (
                *(("FLOAT32", "float32"), ("FLOAT16", "float16"), ("INT32", "int32"), ("UINT8", "uint8")),
                *(("INT64", "int64"), ("STRING", None), ("BOOL", "bool"), ("INT16", "int16")),
                *(("COMPLEX64", "complex64"), ("INT8", "int8"), ("FLOAT64", "float64"), ("COMPLEX128", "complex128")),
                *(("UINT64", "uint64"), ("RESOURCE", None), ("VARIANT", None), ("UINT32", "uint32")),
                *(("UINT16", "uint16"), ("INT4", "int4"), ("BFLOAT16", "bfloat16"), ("INT2", "int2")),
                *(("UINT4", "uint4"), ("FLOAT8_E4M3FN", "float8_e4m3fn"), ("FLOAT8_E5M2", "float8_e5m2")),
            )
        )
    }
)
"""Name and logical dtype by the schema's number of an element type; None if the elements are not numbers."""

_BITS: Mapping[str, int] = MappingProxyType({"int4": 4, "uint4": 4, "int2": 2})
"""Bits of elements that share a byte, the first element in the lowest bits."""

_UNPACKING_OPS = frozenset(("DEQUANTIZE", "DENSIFY"))
"""Operators that unpack a constant: half-precision or integer weights of a float operator, or sparse weights."""

_PADDINGS = ("SAME", "VALID")
_MIRROR_MODES = ("REFLECT", "SYMMETRIC")
_WORD_STARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_PARSE_ERRORS = (struct.error, IndexError, KeyError, TypeError, ValueError, AttributeError, OverflowError, MemoryError)
"""Exceptions that a damaged flatbuffer causes in LiteRT's reader."""


class LiteRTModel:
    """A LiteRT model file: its graph, and its constants on demand.

    Args:
        path: The file.
        proto: Its `ModelT`, the object model that comes with LiteRT.
        sha256: Hash of the file in hexadecimal.
    """

    def __init__(self, path: Path, proto: Any, sha256: str) -> None:
        self.path = path
        self.name = path.name
        self.sha256 = sha256
        self.proto = proto
        self._main = proto.subgraphs[0]
        names = _tensor_names(self._main.tensors)
        self.names: Sequence[str] = names
        """Names of the tensors, ordered by LiteRT's index."""
        self.indices: Mapping[str, int] = MappingProxyType({name: index for index, name in enumerate(names)})
        """LiteRT's index of each tensor."""
        computed_indices = {index for operator in self._main.operators for index in _to_list(operator.outputs)}
        indices_with_values = {*_to_list(self._main.inputs), *computed_indices}
        self._constants = {
            names[index]: tensor
            for index, tensor in enumerate(self._main.tensors)
            if index not in indices_with_values and _is_constant(tensor, proto.buffers)
        }
        self.unreadable: dict[str, str] = {
            names[index]: reason
            for index, tensor in enumerate(self._main.tensors)
            if (reason := self._unreadable_reason(names[index], tensor))
        }
        """Tensors that cannot be recorded, with the reason."""
        self.unpacked: Sequence[str] = tuple(self._find_unpacked())
        """Constants that an operator computes from packed constants. LiteRT unpacks each of them once."""
        self.constants: Sequence[str] = tuple(name for name in self._constants if name not in self.unreadable)
        self.variables: Sequence[str] = tuple(
            names[index] for index, tensor in enumerate(self._main.tensors) if tensor.isVariable
        )
        """State that the runtime keeps between runs, in separate tensors."""
        self.graph = self._make_graph()

    @cached_property
    def stateful(self) -> bool:
        """Whether a run may depend on earlier runs: the model has variables, or resources that outlive a run."""
        tensors = [tensor for graph in self.proto.subgraphs for tensor in graph.tensors or ()]
        return any(tensor.isVariable or ELEMENT_TYPES.get(tensor.type, ("",))[0] == "RESOURCE" for tensor in tensors)

    @property
    def inner_subgraphs(self) -> Mapping[str, tuple[int, str]]:
        """For each subgraph except the first: its number of tensors, and the operator that runs it ("" for none)."""
        runner_of_subgraph: dict[int, str] = {}
        for graph in self.proto.subgraphs:
            nodes = self._make_nodes() if graph is self._main else [None] * len(graph.operators or ())
            for operator, node in zip(graph.operators or (), nodes, strict=True):
                runner_text = f"subgraph {_decode_name(graph.name)!r}" if node is None else f"{node.op} {node.name!r}"
                for index in _subgraphs_of(operator):
                    runner_of_subgraph.setdefault(index, runner_text)
        subgraphs: dict[str, tuple[int, str]] = {}
        for number, graph in enumerate(self.proto.subgraphs[1:], start=1):
            name = _decode_name(graph.name)
            name = name if name and name not in subgraphs else f"{name or 'subgraph'}:{number}"
            subgraphs[name] = len(graph.tensors or ()), runner_of_subgraph.get(number, "")
        return subgraphs

    @property
    def unrecorded_note(self) -> str:
        """A clause that lists the subgraphs that are not recorded; "" if there are none."""
        subgraphs_text = ", ".join(
            f"{name!r} ({count} tensors) of {runner or 'another signature'}"
            for name, (count, runner) in self.inner_subgraphs.items()
        )
        return f"tensors inside these subgraphs are not recorded: {subgraphs_text}" if subgraphs_text else ""

    @property
    def graph_to_record(self) -> Graph:
        """The graph with None for shapes that vary, since a recording states the shapes of its run."""
        tensors = [
            replace(info, shape=None) if info.shape is not None and None in info.shape else info
            for info in self.graph.tensors.values()
        ]
        graph = self.graph
        return Graph(graph.nodes, tensors=tensors, inputs=graph.inputs, outputs=graph.outputs, name=graph.name)

    def with_shapes(self) -> LiteRTModel:
        """Return the model itself, since its file states shapes."""
        return self

    def constant(self, name: str) -> np.ndarray:
        """Return the elements of one constant.

        Raises:
            UsageError: The constant does not exist, or its data cannot be read.
        """
        if name not in self._constants:
            raise UsageError(f"Model {self.name!r} has no constant {name!r}.")
        if name in self.unreadable:
            raise UsageError(f"Constant {name!r} of model {self.name!r} cannot be read: {self.unreadable[name]}.")
        return _read_array(self._constants[name], self.proto.buffers)

    def with_outputs(self, names: Sequence[str]) -> bytes:
        """Return the bytes of the model with the given tensors added as outputs.

        Args:
            names: The tensors.
        """
        from ai_edge_litert.tools import flatbuffer_utils

        outputs_before = self._main.outputs
        self._main.outputs = [*_to_list(outputs_before), *(self.indices[name] for name in names)]
        try:
            return bytes(flatbuffer_utils.convert_object_to_bytearray(self.proto))
        finally:
            self._main.outputs = outputs_before

    def _unreadable_reason(self, name: str, tensor: Any) -> str:
        """Return why the values of a tensor cannot be recorded; "" if they can."""
        kind, dtype = ELEMENT_TYPES.get(tensor.type, (f"type {tensor.type}", None))
        if dtype is None:
            return f"its elements are {kind.lower()}"
        if name not in self._constants:
            return ""
        if _is_external(tensor):
            return "its elements are in another file"
        try:
            _read_array(tensor, self.proto.buffers)
        except _PARSE_ERRORS:
            return "its bytes do not fit its shape"
        return ""

    def _make_graph(self) -> Graph:
        inputs = [self.names[index] for index in _to_list(self._main.inputs)]
        outputs = [self.names[index] for index in _to_list(self._main.outputs)]
        roles = {
            **dict.fromkeys((*self._constants, *self.unpacked), Role.CONSTANT),
            **dict.fromkeys(outputs, Role.OUTPUT),
            **dict.fromkeys(inputs, Role.INPUT),
        }
        tensors = [
            self._tensor_info(name, tensor, roles.get(name, Role.ACTIVATION))
            for name, tensor in zip(self.names, self._main.tensors, strict=True)
        ]
        nodes = list(self._make_nodes())
        names_used = {*inputs, *outputs, *(name for node in nodes for name in (*node.inputs, *node.outputs))}
        return Graph(
            nodes,
            tensors=[info for info in tensors if info.name in names_used],
            inputs=inputs,
            outputs=outputs,
            name=_decode_name(self._main.name),
        )

    def _find_unpacked(self) -> Iterator[str]:
        constant = {self.indices[name] for name in self._constants}
        for operator in self._main.operators:
            code = self.proto.operatorCodes[operator.opcodeIndex]
            op = _operator_names().get(max(code.builtinCode, code.deprecatedBuiltinCode))
            if op in _UNPACKING_OPS and constant.issuperset(_to_list(operator.inputs)):
                output_indices = set(_to_list(operator.outputs)).difference(_to_list(self._main.outputs))
                constant |= output_indices
                yield from (self.names[index] for index in sorted(output_indices))

    def _make_nodes(self) -> Iterator[Node]:
        used_names: set[str] = set()
        for number, operator in enumerate(self._main.operators):
            code = self.proto.operatorCodes[operator.opcodeIndex]
            op = _operator_names().get(max(code.builtinCode, code.deprecatedBuiltinCode), "UNKNOWN")
            is_custom = op == "CUSTOM"
            outputs = tuple(self.names[index] for index in _to_list(operator.outputs))
            name = f"{_decode_name(code.customCode) if is_custom else op}:{outputs[0] if outputs else number}"
            used_names.add(name if name not in used_names else (name := f"{name}#{number}"))
            yield Node(
                name=name,
                op=_decode_name(code.customCode) if is_custom else op,
                inputs=tuple("" if index < 0 else self.names[index] for index in _to_list(operator.inputs)),
                outputs=outputs,
                attrs={**_attrs(operator.builtinOptions), **_attrs(operator.builtinOptions2)},
                domain=CUSTOM_DOMAIN if is_custom else "",
            )

    def _tensor_info(self, name: str, tensor: Any, role: Role) -> TensorInfo:
        shape = _to_list(tensor.shapeSignature) or _to_list(tensor.shape)
        dtype = ELEMENT_TYPES.get(tensor.type, ("", None))[1]
        return TensorInfo(
            name=name,
            shape=tuple(None if extent < 0 else extent for extent in shape),
            dtype=dtype,
            role=role,
            quant=None if dtype is None else self._quant_of(tensor, dtype),
        )

    def _quant_of(self, tensor: Any, dtype: str) -> QuantParams | None:
        """Return the quantization of a tensor: per tensor, per channel or per block."""
        params = tensor.quantization
        if params is None or not is_integer(dtype):
            return None
        details = params.details
        if details is not None and hasattr(details, "blockSize"):
            return self._blockwise_quant(details, dtype, len(_to_list(tensor.shape)))
        scale = np.asarray(_to_list(params.scale), np.float32)
        zero = np.asarray(_to_list(params.zeroPoint) or [0], np.int64)
        if not scale.size or zero.size not in (1, scale.size):
            return None
        axis = int(params.quantizedDimension) if scale.size > 1 else None
        return QuantParams(dtype=dtype, scale=scale, zero_point=zero, axis=axis)

    def _blockwise_quant(self, details: Any, dtype: str, rank: int) -> QuantParams | None:
        """Return block-wise parameters: scales have the rank of the weight, and blocks lie along the last axis."""
        scale = self._constant_elements(details.scales)
        if scale is None or scale.ndim != rank or details.blockSize <= 0:
            return None
        zero = self._constant_elements(details.zeroPoints) if details.zeroPoints > 0 else None
        if zero is not None and zero.size != scale.size:
            return None
        return QuantParams(
            dtype=dtype,
            scale=scale.astype(np.float32),
            zero_point=np.zeros(scale.shape, np.int64) if zero is None else zero.reshape(scale.shape).astype(np.int64),
            axis=rank - 1,
            block_size=int(details.blockSize),
        )

    def _constant_elements(self, index: int) -> np.ndarray | None:
        """Return the elements of a constant tensor by index; None if the tensor is not constant."""
        if not 0 <= index < len(self._main.tensors):
            return None
        tensor = self._main.tensors[index]
        return _read_array(tensor, self.proto.buffers) if _is_constant(tensor, self.proto.buffers) else None


class LiteRTReader:
    """Reader of LiteRT files."""

    suffixes = (".tflite",)

    def open(self, path: Path) -> LiteRTModel:
        """Read a LiteRT file.

        Raises:
            UsageError: The file is missing or is not a LiteRT model.
            GraphError: Its operators do not form a valid graph.
        """
        _extend_package_path()
        from ai_edge_litert.tools import flatbuffer_utils

        try:
            with open_binary(path) as file:
                content = file.read()
        except OSError as error:
            reason = error.strerror or error
            raise UsageError(
                f"The model file {str(path)!r} cannot be read: {reason}.", hint="Check the path."
            ) from error
        if content[4:8] != b"TFL3":
            raise UsageError(
                f"The file {str(path)!r} is not a LiteRT model.", hint="Give a .tflite file that a converter wrote."
            )
        try:
            proto = flatbuffer_utils.read_model_from_bytearray(content)
            return LiteRTModel(path, proto, hashlib.sha256(content).hexdigest())
        except _PARSE_ERRORS as error:
            raise UsageError(
                f"The LiteRT model {str(path)!r} is damaged ({type(error).__name__} while reading it).",
                hint="Convert the model again, or copy the file again.",
            ) from error


reader = LiteRTReader()
"""The reader that `qdebug.backends` loads for .tflite files."""


def _extend_package_path() -> None:
    """Let an old LiteRT import the modules that it lacks from a newer LiteRT later on `sys.path`."""
    import ai_edge_litert

    ai_edge_litert.__path__ = extend_path(ai_edge_litert.__path__, ai_edge_litert.__name__)


@cache
def _operator_names() -> Mapping[int, str]:
    """Return the name of each builtin operator by its number."""
    from ai_edge_litert import schema_py_generated as schema

    return {number: name for name, number in vars(schema.BuiltinOperator).items() if isinstance(number, int)}


@cache
def _activation_names() -> Mapping[int, str]:
    from ai_edge_litert import schema_py_generated as schema

    return {number: name for name, number in vars(schema.ActivationFunctionType).items() if isinstance(number, int)}


def _read_array(tensor: Any, buffers: Sequence[Any]) -> np.ndarray:
    """Return the elements of a constant.

    Raises:
        ValueError: Its buffer is too short for its shape, or does not contain numbers.
        IndexError: An index of a sparse constant is outside its shape.
    """
    dtype, shape = ELEMENT_TYPES.get(tensor.type, ("", None))[1], _to_list(tensor.shape)
    if dtype is None:
        raise ValueError("its elements are not numbers")
    data = buffers[tensor.buffer].data
    content = np.frombuffer(b"" if data is None else memoryview(data), np.uint8)
    if tensor.sparsity is None:
        return _unpack_elements(content, dtype, math.prod(shape)).reshape(shape)
    indices = _sparse_indices(tensor.sparsity, shape)
    dense_array = np.zeros(shape, logical_dtype(dtype))
    dense_array[indices] = _unpack_elements(content, dtype, len(indices[0]))
    return dense_array


def _unpack_elements(content: np.ndarray, dtype: str, count: int) -> np.ndarray:
    """Return the first elements of a buffer as a 1-D array.

    Raises:
        ValueError: The buffer is too short.
    """
    bits = _BITS.get(dtype)
    if bits is None:
        return content[: count * logical_dtype(dtype).itemsize].view(logical_dtype(dtype)).reshape(count)
    fields = np.stack([content >> shift & ((1 << bits) - 1) for shift in range(0, 8, bits)], axis=-1)
    codes = fields.reshape(-1)[:count].astype(np.int8).reshape(count)
    if dtype.startswith("int"):
        codes[codes >= 1 << (bits - 1)] -= 1 << bits
    return codes.astype(logical_dtype(dtype))


def _sparse_indices(sparsity: Any, shape: Sequence[int]) -> tuple[np.ndarray, ...]:
    """Return the index arrays of the stored elements of a sparse constant, one per dimension.

    Dimensions, including block dimensions, are traversed in the order that the file states. Each is dense, or lists its
    indices for each index of the preceding dimensions. Source: tensorflow/lite/schema/schema.fbs, SparsityParameters.
    """
    positions = np.zeros(1, np.int64)
    index_arrays: list[np.ndarray] = []
    max_positions = math.prod(shape)
    for level in sparsity.dimMetadata:
        if level.format == 0:
            if len(positions) * level.denseSize > max_positions:
                raise ValueError("more positions than the shape has elements")
            parents = np.repeat(np.arange(len(positions)), level.denseSize)
            level_indices = np.tile(np.arange(level.denseSize), len(positions))
            positions = positions[parents] * level.denseSize + level_indices
        else:
            segments, indices = (
                np.asarray(segment.values, np.int64) for segment in (level.arraySegments, level.arrayIndices)
            )
            counts = segments[positions + 1] - segments[positions]
            if counts.sum() > max_positions:
                raise ValueError("more positions than the shape has elements")
            parents = np.repeat(np.arange(len(positions)), counts)
            positions = np.arange(counts.sum()) + np.repeat(segments[positions] - np.cumsum(counts) + counts, counts)
            level_indices = indices[positions]
        index_arrays = [*(earlier_indices[parents] for earlier_indices in index_arrays), level_indices]
    result = [np.zeros(len(positions), np.int64) for _ in shape]
    blocks = {
        len(shape) + number: blocked_dimension for number, blocked_dimension in enumerate(_to_list(sparsity.blockMap))
    }
    levels = list(zip(_to_list(sparsity.traversalOrder), sparsity.dimMetadata, index_arrays, strict=True))
    for dimension, _, level_indices in levels:
        if dimension not in blocks:
            result[dimension] += level_indices
    for dimension, level, level_indices in levels:
        if dimension in blocks:
            blocked_dimension = blocks[dimension]
            result[blocked_dimension] = result[blocked_dimension] * level.denseSize + level_indices
    return tuple(result)


def _subgraphs_of(operator: Any) -> list[int]:
    """Return the subgraphs that an operator runs: branches, conditions, bodies."""
    options = [
        vars(options_object)
        for options_object in (operator.builtinOptions, operator.builtinOptions2)
        if options_object is not None
    ]
    items = (item for values in options for item in values.items())
    return [int(value) for key, value in items if key.lower().endswith(("subgraphindex", "subgraph")) and value > 0]


def _to_list(values: Any) -> list[Any]:
    """Return a vector of the object model as a list; empty if the file has None."""
    return [] if values is None else list(values)


def _decode_name(name: Any) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name or "")


def _tensor_names(tensors: Sequence[Any]) -> tuple[str, ...]:
    """Return a unique name for each tensor: its own, with its index appended if the name is empty or repeated."""
    own_names = {_decode_name(tensor.name) for tensor in tensors}
    used_names: set[str] = set()
    names: list[str] = []
    for index, tensor in enumerate(tensors):
        name = own_name = _decode_name(tensor.name)
        if not own_name or own_name in used_names:
            name = f"{own_name or 'tensor'}:{index}"
            while name in own_names or name in used_names:
                name += "'"
        used_names.add(name)
        names.append(name)
    return tuple(names)


def _is_external(tensor: Any) -> bool:
    """Return whether a tensor's data is in another file, which LiteRT before 2.1 does not support."""
    return bool(getattr(tensor, "externalBuffer", 0))


def _is_constant(tensor: Any, buffers: Sequence[Any]) -> bool:
    if tensor.isVariable:
        return False
    data = buffers[tensor.buffer].data
    return _is_external(tensor) or (data is not None and len(data) > 0) or 0 in _to_list(tensor.shape)


def _attrs(options: Any) -> dict[str, AttrValue]:
    """Return an operator's options under the schema's names, with the schema's words for enumerated values."""
    attrs: dict[str, AttrValue] = {}
    for key, value in vars(options).items() if options is not None else ():
        name = _WORD_STARTS.sub("_", key).lower()
        plain_value = _attribute_value(name, value, has_mirror_modes=type(options).__name__ == "MirrorPadOptionsT")
        if plain_value is not None:
            attrs[name] = plain_value
    return attrs


def _attribute_value(name: str, value: Any, *, has_mirror_modes: bool) -> AttrValue | None:
    if name == "fused_activation_function":
        return _activation_names().get(value, str(value))
    words = _PADDINGS if name == "padding" else _MIRROR_MODES if has_mirror_modes and name == "mode" else ()
    if words and 0 <= value < len(words):
        return words[value]
    if isinstance(value, bytes):
        return _decode_name(value)
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray | list | tuple):
        array = np.asarray(value)
        return tuple(array.tolist()) if array.ndim == 1 and array.dtype.kind in "iuf" else None
    return None
