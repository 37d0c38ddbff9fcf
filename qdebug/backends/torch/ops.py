"""PyTorch's operators and tensors in a recording: names, inputs, attributes, and codes with their scales.

A node has the operator's own name ("aten.conv2d.default"). Tensors among its arguments are its inputs, in the order of
the operator's schema; all other arguments are its attributes, including default values.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from qdebug.backends.protocol import RunFacts
from qdebug.backends.torch.cuda import gpu_facts, on_host
from qdebug.errors import BackendError
from qdebug.model import AttrValue, QuantParams
from qdebug.model.dtypes import LOGICAL_DTYPES, code_limits, is_integer, logical_dtype, logical_name
from qdebug.numerics.affine import dequantize
from qdebug.recording.environment import cpu_flags

if TYPE_CHECKING:
    from qdebug.recording.recorder import Recorder

__all__ = [
    "Arguments",
    "Codes",
    "Names",
    "array_of",
    "bind_arguments",
    "codes_of",
    "dtype_of",
    "dtype_of_number",
    "is_quantizer",
    "make_run_facts",
    "node_arguments",
    "node_title",
    "put_constant",
    "put_tensor",
    "quant_of_arguments",
    "quant_of_codes",
    "quantizes_activations",
    "schema_of",
    "tensor_of",
    "torch_errors",
    "unreadable_reason",
    "weight_of",
    "wraps_tensors",
]

_OPERAND_NAMES = frozenset(("other", "exponent", "value", "index"))
"""Names of arguments that are tensors in ONNX. If one is a plain number, it is recorded as a constant."""
_INDEX_OPERATORS = ("aten::select",)
"""Operators whose argument `index` is a tensor in ONNX."""
_RESHAPES = ("aten::view", "aten::reshape", "aten::_unsafe_view", "aten::unflatten")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """Arguments of an operator, as a node stores them.

    Args:
        inputs: Names of its input tensors; "" for an omitted one.
        attrs: All other arguments that are numbers, text, or lists of these.
        numbers: Plain numbers in place of a tensor, by their name in `inputs`.
    """

    inputs: tuple[str, ...]
    attrs: dict[str, AttrValue] = field(default_factory=dict)
    numbers: dict[str, np.ndarray] = field(default_factory=dict)


def schema_of(op: Any) -> Any:
    """Return the schema of an operator; None for control flow and the like."""
    return getattr(op, "_schema", None)


def bind_arguments(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by name, in the order of the operator's schema, including defaults."""
    values: dict[str, Any] = {}
    for position, argument in enumerate(schema_of(op).arguments):
        if position < len(args) and not argument.kwarg_only:
            values[argument.name] = args[position]
        elif argument.name in kwargs:
            values[argument.name] = kwargs[argument.name]
        elif argument.has_default_value():
            values[argument.name] = argument.default_value
    return values


def node_arguments(
    schema: Any, arguments_by_name: Mapping[str, Any], *, node: str, name_of: Callable[[Any], str | None]
) -> Arguments:
    """Split the arguments of a call into the inputs and attributes of a node.

    Args:
        schema: The operator's schema.
        arguments_by_name: Arguments by name, in the order of the schema.
        node: Name of the node, used for the names of constants from plain numbers.
        name_of: Returns the name of a tensor; None for anything else.
    """
    kinds = {argument.name: str(argument.type) for argument in schema.arguments}
    inputs: list[str] = []
    attrs: dict[str, AttrValue] = {}
    numbers: dict[str, np.ndarray] = {}
    for name, value in arguments_by_name.items():
        if name in ("size", "sizes", "shape") and schema.name in _RESHAPES:
            continue  # implied by the output extents, and may vary between calls
        tensor_name = name_of(value)
        is_number = isinstance(value, bool | int | float) and ("Tensor" in kinds[name] or _is_operand(schema, name))
        if tensor_name is not None:
            inputs.append(tensor_name)
        elif is_number:
            inputs.append(f"{node}.{name}")
            numbers[inputs[-1]] = np.asarray(value)
        elif "Tensor" in kinds[name]:
            inputs.extend(name_of(item) or "" for item in (value if isinstance(value, list | tuple) else (value,)))
        elif (attribute := _to_attribute(value)) is not None:
            attrs[name] = attribute
    while inputs and not inputs[-1]:
        inputs.pop()
    return Arguments(inputs=tuple(inputs), attrs=attrs, numbers=numbers)


def _is_operand(schema: Any, name: str) -> bool:
    return name in _OPERAND_NAMES and (name != "index" or schema.name in _INDEX_OPERATORS)


def _to_attribute(value: Any) -> AttrValue | None:
    """Return an argument as an attribute; None for devices, layouts, generators and unknown values."""
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        simple_items = [item for item in value if isinstance(item, bool | int | float | str)]
        return tuple(simple_items) if len(simple_items) == len(value) else None  # type: ignore[return-value]  # torch's lists have items of one type
    kind = str(value)
    return dtype_of(value) if kind.startswith("torch.") and kind[6:] in LOGICAL_DTYPES else None


def dtype_of(dtype: Any) -> str | None:
    """Return the logical name of a torch dtype; None if recordings cannot store it."""
    name = str(dtype).removeprefix("torch.")
    return name if name in LOGICAL_DTYPES else None


def wraps_tensors(tensor: Any) -> bool:
    """Return whether a tensor is a wrapper around other tensors, such as torchao's codes and scales."""
    return hasattr(tensor, "__tensor_flatten__")


def unreadable_reason(tensor: Any) -> str | None:
    """Return why the elements of a tensor cannot be recorded; None if they can."""
    import torch

    if tensor.layout is not torch.strided:
        return f"its layout is {str(tensor.layout).removeprefix('torch.')}"
    if dtype_of(tensor.dtype) is None or tensor.is_quantized:
        return f"its elements are {str(tensor.dtype).removeprefix('torch.')}"
    if tensor.device.type == "meta":
        return "it has no elements: it is on the device 'meta'"
    return None


def array_of(tensor: Any) -> np.ndarray:
    """Return the elements of a plain tensor in their own dtype. They may share its memory."""
    import torch

    host_tensor = tensor.detach().resolve_conj().resolve_neg().cpu()
    name = str(host_tensor.dtype).removeprefix("torch.")
    if logical_dtype(name).isbuiltin == 1:
        return np.asarray(host_tensor.numpy())
    bits = {1: torch.uint8, 2: torch.int16}[host_tensor.element_size()]
    return np.asarray(host_tensor.contiguous().view(bits).numpy()).view(logical_dtype(name))


def tensor_of(array: np.ndarray) -> Any:
    """Return a copy of an array as a tensor of the same dtype."""
    import torch

    # Only numpy's own dtype objects are built in. The array's dtype may be a copy, for example from a file.
    if logical_dtype(logical_name(array.dtype)).isbuiltin == 1:
        return torch.from_numpy(np.array(array, order="C"))
    bits = {1: np.uint8, 2: np.int16}[array.dtype.itemsize]
    kind = getattr(torch, logical_name(array.dtype))
    return torch.from_numpy(np.array(array, order="C").view(bits)).view(kind)


def dtype_of_number(tensor_dtypes: Sequence[str], number: np.ndarray) -> str:
    """Return the dtype of a plain number that is combined with tensors. It is float32 with tensors of short floats.

    Args:
        tensor_dtypes: Dtypes of the tensors.
        number: The number.
    """
    first_dtype = next(iter(tensor_dtypes), "")
    if number.dtype.kind == "f":
        return "float64" if first_dtype == "float64" else "float32"
    if first_dtype.startswith(("float", "bfloat")):
        return "float64" if first_dtype == "float64" else "float32"
    return first_dtype if first_dtype and number.dtype.kind != "b" and first_dtype != "bool" else number.dtype.name


# -- names -----------------------------------------------------------------------------------------------------------


class Names:
    """Makes names unique by numbering repeated ones."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def unique(self, base_name: str) -> str:
        """Return an unused name."""
        name, number = base_name, 0
        while name in self._taken:
            number += 1
            name = f"{base_name}_{number}"
        self._taken.add(name)
        return name


def node_title(path: str, kind: str, op: str) -> str:
    """Return the name of a node: its module, followed by the operator unless the module is this operator.

    Args:
        path: Path of the module that runs it, such as "layers.0.fc".
        kind: The module's class, such as "torch.nn.modules.linear.Linear".
        op: The operator, such as "aten.linear.default".
    """
    word = op.split(".")[1 if op.count(".") > 1 else 0].strip("_")
    title = _letters_and_digits(kind.rpartition(".")[2])
    is_same_operator = title.startswith(_letters_and_digits(word)) or title.rstrip("123d") in _letters_and_digits(word)
    return path if path and is_same_operator and kind.startswith("torch.nn.") else f"{path}.{word}" if path else word


def _letters_and_digits(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


# -- codes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Codes:
    """The array to record for a tensor: codes with their quantization, or real numbers.

    Args:
        array: The codes; real numbers if `quant` is None.
        quant: Quantization of the codes; None for real numbers.
        note: A clause about why codes are recorded dequantized; else "".
    """

    array: np.ndarray
    quant: QuantParams | None = None
    note: str = ""


def is_quantizer(op: Any) -> bool:
    """Return whether an operator quantizes real numbers with a scale argument."""
    namespace, _, word = str(op).partition(".")
    return namespace in ("torchao", "quantized_decomposed") and word.startswith("quantize")


def quant_of_codes(
    dtype: str,
    shape: Sequence[int],
    block: Sequence[int],
    scale: np.ndarray,
    zero_point: np.ndarray | None = None,
    *,
    limits: tuple[int | None, int | None] = (None, None),
) -> QuantParams | None:
    """Return the quantization of codes with a scale per block; None if a recording cannot express it.

    Args:
        dtype: Logical dtype of the codes.
        shape: Their shape.
        block: Extents of a block, -1 for the whole extent.
        scale: One scale per block, in the order of blocks.
        zero_point: One zero point per block.
        limits: Lowest and highest code in use.
    """
    if len(block) != len(shape):
        return None
    block = [n if extent == -1 else extent for extent, n in zip(block, shape, strict=True)]
    if any(extent < 1 or n % extent for extent, n in zip(block, shape, strict=True)):
        return None
    counts = tuple(n // extent for extent, n in zip(block, shape, strict=True))
    if scale.size != np.prod(counts, dtype=int) or (zero_point is not None and zero_point.size not in (1, scale.size)):
        return None
    blocked_axes = [axis for axis, extent in enumerate(block) if extent > 1]
    axes_with_counts = [axis for axis, count in enumerate(counts) if count > 1]
    real_scale = scale.astype(np.float64 if scale.dtype == np.float64 else np.float32)
    points = np.zeros(1, np.int64) if zero_point is None else zero_point.astype(np.int64)
    facts: dict[str, Any] = {"dtype": dtype, "qmin": limits[0], "qmax": limits[1]}
    if not axes_with_counts:
        return QuantParams(scale=real_scale.reshape(-1), zero_point=points.reshape(-1), **facts)
    if len(axes_with_counts) == 1 and block[axes_with_counts[0]] == 1:
        return QuantParams(
            scale=real_scale.reshape(-1), zero_point=points.reshape(-1), axis=axes_with_counts[0], **facts
        )
    if len(blocked_axes) > 1:
        return None
    axis = blocked_axes[0] if blocked_axes else len(shape) - 1
    points = points if points.size == 1 else points.reshape(counts)
    return QuantParams(scale=real_scale.reshape(counts), zero_point=points, axis=axis, block_size=block[axis], **facts)


def quant_of_arguments(
    op: Any, operator_arguments: Mapping[str, Any], codes: str, shape: Sequence[int | None] | None
) -> QuantParams | None:
    """Return the quantization that the arguments of a quantizer or dequantizer state; None if unknown.

    Args:
        op: The operator, or its name.
        operator_arguments: Its arguments by name; scales and zero points as numbers or arrays.
        codes: Logical dtype of the codes.
        shape: Their shape, if known; not needed for a single scale.
    """
    scale = operator_arguments.get("scale", operator_arguments.get("scales"))
    points = operator_arguments.get("zero_point", operator_arguments.get("zero_points"))
    if not isinstance(scale, np.ndarray | float | int) or not is_integer(codes):
        return None
    scale = np.asarray(scale, None if isinstance(scale, np.ndarray) else np.float64)
    zero = np.asarray(points) if isinstance(points, np.ndarray | int) else None
    lowest, highest = (operator_arguments.get(f"quant_{end}") for end in ("min", "max"))
    limits = _limit_in_range(codes, lowest), _limit_in_range(codes, highest)
    if "per_tensor" in str(op):
        return quant_of_codes(codes, (), (), scale, zero, limits=limits)
    extents = [extent for extent in shape or () if extent is not None]
    if shape is None or len(extents) < len(shape):
        return None
    block = [*operator_arguments.get("block_size", extents)]
    if "per_channel" in str(op) and isinstance(operator_arguments.get("axis"), int):
        block[operator_arguments["axis"]] = 1
    elif "per_token" in str(op):
        block[:-1] = [1] * (len(shape) - 1)
    elif "block_size" not in operator_arguments:
        return None
    return quant_of_codes(codes, extents, block, scale, zero, limits=limits)


def _limit_in_range(codes: str, limit: Any) -> int | None:
    low, high = code_limits(codes)
    is_inside = isinstance(limit, int) and low is not None and high is not None and low <= limit <= high
    return limit if is_inside else None


def codes_of(tensor: Any) -> Codes:
    """Return the array to record for a torchao tensor: its codes in element order, or else its real numbers.

    torchao's classes list the names of their data and attributes, see `TorchAOBaseTensor`. Codes are recorded if they
    reproduce the tensor's dequantized elements bit for bit. Swizzled codes do not.
    """
    real_values = array_of(tensor.dequantize())
    parts = {name: getattr(tensor, name, None) for name in _data_names(tensor)}
    scale, points = (None if parts.get(name) is None else array_of(parts[name]) for name in ("scale", "zero_point"))
    block = getattr(tensor, "block_size", ())
    block = (
        [block if axis == real_values.ndim - 1 else 1 for axis in range(real_values.ndim)]
        if isinstance(block, int)
        else block
    )
    if scale is not None and parts.get("per_tensor_scale") is not None:
        scale = scale.astype(np.float32) * array_of(parts["per_tensor_scale"])
    for codes in _unpack_codes(tensor, parts.get("qdata"), real_values.shape):
        quant = (
            None
            if scale is None
            else quant_of_codes(logical_name(codes.dtype), real_values.shape, block, scale, points)
        )
        if quant is not None and _reproduces(codes, quant, real_values):
            return Codes(array=codes, quant=quant)
    return Codes(
        array=real_values,
        note=f"{type(tensor).__name__}: recorded dequantized, because its codes are packed or swizzled",
    )


_NIBBLE_DTYPES = ("float4_e2m1fn", "int4", "uint4")
"""Dtypes of codes that may be packed two to a byte, the first code in the low bits."""


def _unpack_codes(tensor: Any, data: Any, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Yield the codes that a torchao tensor's data may represent, one array per possible packing."""
    if data is None or unreadable_reason(data):
        return
    codes = array_of(data)
    if codes.shape == shape:
        dtype = dtype_of(getattr(tensor, "target_dtype", None))
        yield codes if dtype is None else codes.astype(logical_dtype(dtype))
    elif codes.dtype == np.uint8 and (*codes.shape[:-1], 2 * codes.shape[-1]) == shape:
        bits = np.stack([codes & 15, codes >> 4], axis=-1).reshape(shape)
        for kind in _NIBBLE_DTYPES:
            signed_bits = (
                np.where(bits > 7, bits.astype(np.int8) - 16, bits.astype(np.int8)) if kind == "int4" else bits
            )
            yield (
                bits.view(logical_dtype(kind)) if kind.startswith("float") else signed_bits.astype(logical_dtype(kind))
            )


def _reproduces(codes: np.ndarray, quant: QuantParams, real_values: np.ndarray) -> bool:
    """Return whether dequantized codes equal the given real values exactly."""
    with np.errstate(all="ignore"):
        dequantized = dequantize(codes, quant)
        return bool(np.array_equal(np.asarray(dequantized).astype(real_values.dtype), real_values))


def _data_names(tensor: Any) -> Iterator[str]:
    for kind in ("tensor_data_names", "optional_tensor_data_names"):
        yield from getattr(tensor, kind, None) or ()


def quantizes_activations(tensor: Any) -> bool:
    """Return whether a torchao weight states that the activations it is applied to are quantized at run time."""
    names = [*(getattr(tensor, "tensor_attribute_names", None) or ())]
    names += getattr(tensor, "optional_tensor_attribute_names", None) or ()
    activation_names = [name for name in names if name in ("act_quant_kwargs", "activation_quantization")]
    return any(getattr(tensor, name, None) is not None for name in activation_names)


def weight_of(tensor: Any) -> Codes | None:
    """Return the array to record for any tensor; None if it cannot be read."""
    if wraps_tensors(tensor):
        return codes_of(tensor) if hasattr(tensor, "dequantize") and next(_data_names(tensor), None) else None
    return None if unreadable_reason(tensor) else Codes(array=array_of(tensor))


# -- recording -------------------------------------------------------------------------------------------------------


def put_tensor(recorder: Recorder, name: str, tensor: Any, quant: QuantParams | None = None, **facts: Any) -> None:
    """Record a tensor, or skip it with the reason why it cannot be recorded.

    Args:
        recorder: The recorder.
        name: The tensor's name.
        tensor: The tensor.
        quant: The quantization of its codes, if it holds codes.
        **facts: Further facts as for `Recorder.put`. The device of a node's result is recorded as its placement.
    """
    if "node" in facts:
        facts = {"placement": str(tensor.device), **facts}
    is_plain = not wraps_tensors(tensor) and unreadable_reason(tensor) is None
    record = weight_of(
        on_host(tensor) if is_plain else tensor
    )  # a host copy is valid until the next call; the recorder copies it before
    if record is None:
        recorder.skip(name, unreadable_reason(tensor) or f"its class is {type(tensor).__name__}")
    else:
        recorder.put(name, record.array, **_quant_facts(record.quant or quant), **facts)


def put_constant(recorder: Recorder, name: str, tensor: Any) -> None:
    """Record a constant, or skip it with the reason why it cannot be recorded.

    Args:
        recorder: The recorder.
        name: The constant's name.
        tensor: Its tensor.
    """
    record = weight_of(tensor)
    if record is None:
        recorder.skip(name, unreadable_reason(tensor) or f"its class is {type(tensor).__name__}")
    else:
        recorder.constant(name, record.array, **_quant_facts(record.quant))


def _quant_facts(quant: QuantParams | None) -> dict[str, Any]:
    names = ("scale", "zero_point", "axis", "block_size", "qmin", "qmax")
    return {} if quant is None else {name: getattr(quant, name) for name in names}


def make_run_facts(way: str, notes: Iterable[str], *, taps: str, devices: Iterable[Any]) -> RunFacts:
    """Return the facts of a run.

    Args:
        way: The recording method.
        notes: Remarks about the recording.
        taps: One of `TAPS`.
        devices: Devices of inputs and parameters.
    """
    import torch

    try:
        precision = {"float32_matmul_precision": torch.get_float32_matmul_precision()}
    except RuntimeError:  # the newer switches have values that this older one cannot express
        precision = {}
    packages: dict[str, str] = {name: version(name) for name in ("torch", "torchao") if name in sys.modules}
    note = "; ".join(notes)
    return RunFacts(
        backend="torch",
        taps=taps,
        versions=packages,
        cpu_flags=cpu_flags(),
        options={
            "way": way,
            "threads": torch.get_num_threads(),
            "cpus": os.cpu_count() or 0,
            "mkldnn": bool(torch.backends.mkldnn.is_available()),
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            **precision,
            **gpu_facts(devices),
            **({"note": note} if note else {}),
        },
    )


@contextmanager
def torch_errors(action: str, hint: str) -> Iterator[None]:
    """Raise PyTorch's exceptions as a BackendError with a short message.

    Args:
        action: The failed action.
        hint: A suggested remedy.
    """
    try:
        yield
    except (RuntimeError, ValueError, TypeError, AssertionError, IndexError, KeyError, AttributeError) as error:
        text = " ".join(str(error).split()) or f"{type(error).__name__} without a message"
        text = text if len(text) <= 300 else f"{text[:297]}..."
        raise BackendError(f"{action}: {text.rstrip('.')}.", hint=hint) from error
