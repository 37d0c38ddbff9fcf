"""Elements of ONNX tensors: element types by number and by name, values inline or in external files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qdebug.errors import UsageError
from qdebug.model.dtypes import logical_dtype

__all__ = ["ELEMENT_TYPES", "RUNTIME_TYPES", "attr_array", "external_file", "packed_bytes", "tensor_array", "unpack"]

ELEMENT_TYPES: Mapping[int, str] = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
    17: "float8_e4m3fn",
    18: "float8_e4m3fnuz",
    19: "float8_e5m2",
    20: "float8_e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4_e2m1fn",
    24: "float8_e8m0fnu",
    25: "uint2",
    26: "int2",
}
"""Logical dtypes by TensorProto.DataType; text (8) does not have one."""

RUNTIME_TYPES: Mapping[str, str] = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    **{
        f"tensor({name.replace('_', '')})": name
        for name in ELEMENT_TYPES.values()
        if name not in ("float32", "float64")
    },
}
"""Logical dtypes by ONNX Runtime's type names."""

_BITS = {"uint4": 4, "int4": 4, "float4_e2m1fn": 4, "uint2": 2, "int2": 2}


def packed_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    """Return the size of a tensor as ONNX raw bytes."""
    return -(-math.prod(shape) * _BITS.get(dtype, 8 * logical_dtype(dtype).itemsize) // 8)


def unpack(data: Any, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return the elements that a buffer holds as ONNX raw bytes.

    Args:
        data: Little-endian elements; types below 8 bits packed from the low bits up.
        dtype: Logical dtype.
        shape: Shape of the result.

    Returns:
        The elements; a view of `data` unless they are packed.
    """
    count = math.prod(shape)
    bits = _BITS.get(dtype)
    target = logical_dtype(dtype)
    if bits is None:
        return np.frombuffer(data, target, count=count).reshape(shape)
    packed = np.frombuffer(data, np.uint8)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = ((packed[:, None] >> shifts) & ((1 << bits) - 1)).astype(np.uint8).ravel()[:count].reshape(shape)
    if dtype.startswith("float"):
        return codes.view(target)
    if dtype.startswith("int"):
        sign_bit = 1 << (bits - 1)
        return ((codes.astype(np.int8) ^ sign_bit) - sign_bit).astype(target)
    return codes.astype(target)


def attr_array(proto: Any) -> np.ndarray:
    """Return the elements of a small tensor stored inside the model, such as an attribute.

    Raises:
        UsageError: The element type has no logical dtype.
    """
    return tensor_array(proto, Path())


def tensor_array(proto: Any, folder: Path) -> np.ndarray:
    """Return the elements of a TensorProto, mapped from its file if they are external.

    Args:
        proto: An `onnx.TensorProto`.
        folder: Folder of the model file, which must contain external data.

    Raises:
        UsageError: The element type has no logical dtype, or external data is missing, too short or outside the folder.
    """
    dtype = ELEMENT_TYPES.get(proto.data_type)
    if dtype is None:
        raise UsageError(f"Tensor {proto.name!r} has elements of ONNX type {proto.data_type}, which are not numbers.")
    shape = tuple(proto.dims)
    if proto.data_location == 1:
        return _read_external(proto, dtype, shape, folder)
    if proto.HasField("raw_data"):
        return unpack(proto.raw_data, dtype, shape)
    return _read_typed_fields(proto, dtype, shape)


def external_file(proto: Any, folder: Path) -> tuple[Path, int, int | None]:
    """Return file, offset and length of a tensor's external data.

    Raises:
        UsageError: The file is missing or outside the folder.
    """
    entries = {entry.key: entry.value for entry in proto.external_data}
    root = folder.resolve()
    path = (root / entries.get("location", "")).resolve()
    if not path.is_relative_to(root):
        raise UsageError(f"External data of tensor {proto.name!r} is outside the model's folder: {str(path)!r}.")
    if not path.is_file():
        raise UsageError(
            f"External data of tensor {proto.name!r} is missing: there is no file {str(path)!r}.",
            hint="Put the data file next to the model file.",
        )
    length = entries.get("length")
    return path, int(entries.get("offset", 0)), None if length is None else int(length)


def _read_external(proto: Any, dtype: str, shape: tuple[int, ...], folder: Path) -> np.ndarray:
    path, offset, _ = external_file(proto, folder)
    size = packed_bytes(dtype, shape)
    if offset + size > path.stat().st_size:
        raise UsageError(
            f"External data of tensor {proto.name!r} is truncated: {size} bytes at {offset} of {str(path)!r} "
            f"are expected, but the file has {path.stat().st_size}."
        )
    if size == 0:
        return np.empty(shape, logical_dtype(dtype))
    return unpack(np.memmap(path, np.uint8, mode="r", offset=offset, shape=(size,)), dtype, shape)


def _read_typed_fields(proto: Any, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return elements from the typed repeated fields, the alternative to raw data (onnx.proto, TensorProto)."""
    target = logical_dtype(dtype)
    if dtype in ("complex64", "complex128"):
        parts = np.array(proto.float_data if dtype == "complex64" else proto.double_data)
        return parts.astype(parts.dtype if dtype == "complex128" else np.float32).view(target).reshape(shape)
    if dtype == "float32":
        return np.array(proto.float_data, target).reshape(shape)
    if dtype == "float64":
        return np.array(proto.double_data, target).reshape(shape)
    if dtype == "int64":
        return np.array(proto.int64_data, target).reshape(shape)
    if dtype in ("uint32", "uint64"):
        return np.array(proto.uint64_data, np.uint64).astype(target).reshape(shape)
    words = np.array(proto.int32_data, np.int32)
    if dtype in _BITS:
        return unpack(words.astype(np.uint8).tobytes(), dtype, shape)
    if dtype.startswith(("int", "uint", "bool")):
        return words.astype(target).reshape(shape)
    return words.astype(f"<u{target.itemsize}").view(target).reshape(shape)
