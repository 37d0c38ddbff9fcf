"""Kernels for rare ONNX operators, computed by the onnx package's reference implementation."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from qdebug.errors import KernelError
from qdebug.model import Node
from qdebug.replay.extents import Cost, refuse_excessive_cost
from qdebug.replay.registry import Call, Kernel

__all__ = ["kernel_of"]

_RANDOM_OPS = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
"""Random operators, whose replay is meaningless."""
_VECTORIZED_OPS = frozenset(
    {
        "AffineGrid",
        "BitCast",
        "BlackmanWindow",
        "CausalConvWithState",
        "CenterCropPad",
        "DFT",
        "Det",
        "HammingWindow",
        "HannWindow",
        "ImageDecoder",
        "LinearAttention",
        "MelWeightMatrix",
        "OptionalGetElement",
        "OptionalHasElement",
        "ReverseSequence",
        "RotaryEmbedding",
        "STFT",
        "SwiGLU",
        "TensorScatter",
        "Unique",
    }
)
"""Operators that the reference implementation computes with whole arrays.

For others, it loops over the elements in Python. With onnx 1.23, RoiAlign, MaxUnpool, Col2Im and TfIdfVectorizer take
3 us per element.
"""
_MAX_SETTING_ELEMENTS = 16
"""Maximum number of elements of an input that may determine the output size."""


def kernel_of(op: str, domain: str) -> Kernel | None:
    """Return a kernel for an ONNX operator; None if the reference implementation cannot compute it on tensors."""
    if domain or op in _RANDOM_OPS or not _is_implemented(op):
        return None
    return _compute


def _is_implemented(op: str) -> bool:
    from onnx import defs, helper
    from onnx.reference.op_run import RuntimeImplementationError

    try:
        schema = defs.get_schema(op)
    except defs.SchemaError:
        return False
    graphs = (defs.OpSchema.AttrType.GRAPH, defs.OpSchema.AttrType.GRAPHS)
    if schema.deprecated or any(attr.type in graphs for attr in schema.attributes.values()):
        return False
    if not all(_can_be_tensor(parameter) for parameter in (*schema.inputs, *schema.outputs)):
        return False
    names = [f"x{position}" for position in range(schema.min_input)]
    try:
        _make_evaluator(helper.make_node(op, names, ["y"]), {}, defs.onnx_opset_version())
    except RuntimeImplementationError:
        return False
    except Exception:  # noqa: BLE001  it is implemented, but requires an attribute, which is missing here
        return True
    return True


def _read_defaults(call: Call, version: int) -> None:
    """Read every attribute that the operator defines, since reading a missing one may record its default."""
    from onnx import defs, helper

    for name, attribute in defs.get_schema(call.op, version).attributes.items():
        default = helper.get_attribute_value(attribute.default_value) if attribute.default_value.name else None
        call.attrs.get(name, default.decode() if isinstance(default, bytes) else default)


def _can_be_tensor(parameter: Any) -> bool:
    return any(str(kind).startswith("tensor(") for kind in parameter.types)


def _compute(call: Call) -> tuple[np.ndarray, ...]:
    """Run one node as a separate model.

    Raises:
        RefusedSizeError: It would take too much memory, or too many iterations of a Python loop.
        KernelError: The reference implementation cannot compute it.
    """
    from onnx import defs, helper, numpy_helper

    inputs = [f"x{position}" if array is not None else "" for position, array in enumerate(call.inputs)]
    outputs = [f"y{position}" for position in range(call.outputs)]  # unused outputs need a name too
    feed = {name: array for name, array in zip(inputs, call.inputs, strict=True) if array is not None}
    attrs: dict[str, Any] = {
        name: numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        for name, value in call.attrs.items()
    }
    _read_defaults(call, min(call.opset, defs.onnx_opset_version()))
    try:
        node = helper.make_node(call.op, inputs, outputs, **attrs)
        bare_node = Node(name=call.node, op=call.op, outputs=tuple(outputs))
        cost = _estimate_cost(call, node, feed)
        refuse_excessive_cost(bare_node, call.shapes(), cost)
        # The evaluator's loops are slow, so refuse a node with many iterations even if its tensors are small.
        refuse_excessive_cost(bare_node, (), Cost(None, 0, _loop_iterations(call, cost)))
        evaluator = _make_evaluator(node, feed, min(call.opset, defs.onnx_opset_version()))
        results = evaluator.run(None, feed)
    except (KernelError, MemoryError):
        raise
    except Exception as error:  # any error means that this node cannot be replayed
        raise KernelError(
            f"Node {call.node!r} ({call.op}) cannot be computed by the reference implementation of ONNX: "
            f"{str(error).rstrip('.') or type(error).__name__}."
        ) from error
    return tuple(np.asarray(array) for array in results)


def _estimate_cost(call: Call, node: Any, feed: dict[str, np.ndarray]) -> Cost:
    """Estimate the cost of a node from ONNX's shape inference or, if that fails, from its settings.

    Attributes may cause additional loops for each element, such as the samples of a RoiAlign.
    """
    from onnx import defs, helper, numpy_helper
    from onnx.shape_inference import infer_node_outputs

    types = {
        name: helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feed.items()
    }
    settings = {name: numpy_helper.from_array(array) for name, array in feed.items() if _is_setting(array)}
    version = min(call.opset, defs.onnx_opset_version())
    inferred_types = infer_node_outputs(defs.get_schema(call.op, version), node, types, settings)
    sizes = [_count_elements(kind) for kind in inferred_types.values()]
    requested_sizes = [
        prod(abs(int(value)) for value in array.reshape(-1)) for array in feed.values() if _is_setting(array)
    ]
    loops = [abs(value) for value in call.attrs.values() if type(value) is int]
    elements = max(requested_sizes, default=1) if None in sizes or not sizes else max(filter(None, sizes), default=0)
    return Cost(elements, elements * max(loops, default=1) ** 2)


def _loop_iterations(call: Call, cost: Cost) -> int:
    """Return the number of iterations of the reference implementation's own loops."""
    if call.op in _VECTORIZED_OPS:
        return 0
    largest_size = max([cost.elements or 0, *map(prod, call.shapes())])
    if call.op != "RoiAlign":
        return largest_size
    ratio = abs(call.integer("sampling_ratio")) or max(
        call.shape(0)[2:], default=1
    )  # 0 adapts the ratio to a region, which is at most as large as the image
    return largest_size * ratio**2


def _is_setting(array: np.ndarray) -> bool:
    return array.dtype == np.int64 and array.size <= _MAX_SETTING_ELEMENTS and array.ndim < 2


def _count_elements(kind: Any) -> int | None:
    """Return the number of elements of an inferred type; None if an extent is unknown."""
    dims = kind.tensor_type.shape.dim
    is_known = kind.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims)
    return prod(dim.dim_value for dim in dims) if is_known else None


def _make_evaluator(node: Any, feed: dict[str, np.ndarray], opset: int) -> Any:
    from onnx import TensorProto, ValueInfoProto, helper
    from onnx.reference import ReferenceEvaluator

    def value_info(name: str) -> Any:
        dtype = helper.np_dtype_to_tensor_dtype(feed[name].dtype) if name in feed else TensorProto.FLOAT
        return helper.make_tensor_value_info(name, dtype, feed[name].shape if name in feed else None)

    graph = helper.make_graph(
        [node],
        "node",
        [value_info(name) for name in dict.fromkeys(node.input) if name],
        [ValueInfoProto(name=name) for name in node.output],
    )
    return ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]))
