"""Write a graph of TensorFlow Lite operators and its constants as a LiteRT model file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from qdebug.backends.litert.model import ELEMENT_TYPES
from qdebug.errors import BackendError
from qdebug.model import Graph, Node, QuantParams, TensorInfo

__all__ = ["write"]

_OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "CONV_2D": "Conv2DOptions",
        "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
        "AVERAGE_POOL_2D": "Pool2DOptions",
        "MAX_POOL_2D": "Pool2DOptions",
        "MEAN": "ReducerOptions",
        "LOGISTIC": "",
        "TANH": "",
        "RELU": "",
        "PRELU": "",
    }
)
"""The schema's name for an operator's options if the operator's name does not give it; "" for no options."""

_VERSIONS: Mapping[str, int] = MappingProxyType({"HARD_SWISH": 1, "PRELU": 1, "QUANTIZE": 2, "DEPTHWISE_CONV_2D": 3})
_INT8_VERSION = 2
"""For most operators, the version that introduced int8 codes."""

_ENUMERATIONS: Mapping[str, str] = MappingProxyType(
    {"padding": "Padding", "fused_activation_function": "ActivationFunctionType"}
)
"""The schema's enumeration for each attribute whose value is one of its names."""


def write(graph: Graph, constants: Mapping[str, np.ndarray], path: Path) -> None:
    """Write a model file.

    Args:
        graph: The graph with TensorFlow Lite's operators and attributes, with dtype, shape and quantization for each
            tensor.
        constants: Its constants by name.
        path: The file to write.

    Raises:
        BackendError: A part of the graph cannot be represented in TensorFlow Lite, or the file cannot be written.
    """
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    main, model = schema.SubGraphT(), schema.ModelT()
    main.name = graph.name.encode()
    model.version, model.buffers, model.subgraphs = 3, [schema.BufferT()], [main]
    try:
        index = {name: number for number, name in enumerate(graph.tensors)}
        main.tensors = [_make_tensor(schema, info) for info in graph.tensors.values()]
        for name, array in constants.items():
            main.tensors[index[name]].buffer = len(model.buffers)
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
            model.buffers.append(buffer)
        ops = list(dict.fromkeys(node.op for node in graph.nodes))
        model.operatorCodes = [_make_operator_code(schema, op) for op in ops]
        main.operators = [_make_operator(schema, node, ops.index(node.op), index) for node in graph.nodes]
        main.inputs, main.outputs = ([index[name] for name in names] for names in (graph.inputs, graph.outputs))
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), b"TFL3")
        path.write_bytes(bytes(builder.Output()))
    except (ValueError, TypeError, KeyError, AttributeError, OSError) as error:
        raise BackendError(f"The graph {graph.name!r} cannot be written as a LiteRT model: {error}.") from error


def _make_tensor(schema: Any, info: TensorInfo) -> Any:
    if info.shape is None or None in info.shape:
        raise ValueError(f"the tensor {info.name!r} has no shape")
    tensor = schema.TensorT()
    tensor.name, tensor.shape = info.name.encode(), list(info.shape)
    tensor.type = next(number for number, (_, dtype) in ELEMENT_TYPES.items() if dtype == info.dtype)
    if info.quant is not None:
        tensor.quantization = _make_quantization(schema, info.quant)
    return tensor


def _make_quantization(schema: Any, quant: QuantParams) -> Any:
    quantization = schema.QuantizationParametersT()
    quantization.scale = quant.scale.reshape(-1).astype(np.float32)
    quantization.zeroPoint = np.broadcast_to(quant.zero_point.reshape(-1), quantization.scale.shape).astype(np.int64)
    quantization.quantizedDimension = quant.axis or 0
    return quantization


def _make_operator_code(schema: Any, op: str) -> Any:
    code = schema.OperatorCodeT()
    code.builtinCode, code.version = getattr(schema.BuiltinOperator, op), _VERSIONS.get(op, _INT8_VERSION)
    code.deprecatedBuiltinCode = min(code.builtinCode, 127)
    return code


def _make_operator(schema: Any, node: Node, code: int, index: Mapping[str, int]) -> Any:
    operator = schema.OperatorT()
    operator.opcodeIndex = code
    operator.inputs, operator.outputs = [index[name] for name in node.inputs], [index[name] for name in node.outputs]
    name = _OPTIONS.get(node.op, f"{_camel_case(node.op)}Options")
    if name:
        operator.builtinOptionsType = getattr(schema.BuiltinOptions, name)
        operator.builtinOptions = getattr(schema, f"{name}T")()
        for key, value in node.attrs.items():
            enumeration = getattr(schema, _ENUMERATIONS[key]) if key in _ENUMERATIONS else None
            schema_name = _camel_case(key)
            setattr(
                operator.builtinOptions,
                schema_name[0].lower() + schema_name[1:],
                getattr(enumeration, str(value)) if enumeration else value,
            )
    return operator


def _camel_case(name: str) -> str:
    """Return a name in capitals with underscores in camel case, as in the schema: RESIZE_BILINEAR as ResizeBilinear."""
    return "".join(word.capitalize() for word in name.split("_"))
