"""Files of ONNX's TensorProto: the node dumps of ONNX Runtime (`.tensorproto`), and test data of ONNX (`.pb`).

ONNX Runtime writes them if it is built with `onnxruntime_DEBUG_NODE_INPUTS_OUTPUTS`, see
`onnxruntime/core/framework/debug_node_inputs_outputs_utils.cc`: the file name is the tensor's name with `_` for every
character except letters and digits, and the message has the name itself. The message is decoded here (see
`onnx/onnx.proto3` and https://protobuf.dev/programming-guides/encoding/), so that reading it needs no package.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from qdebug.importing.dump import DumpedTensor
from qdebug.importing.files import Files, damaged
from qdebug.model.dtypes import bit_width, logical_dtype
from qdebug.recording.writing.write import Place

__all__ = ["TensorMessage", "decode_tensor_proto", "tensors_of_tensor_proto"]

_KIND = "TensorProto of ONNX"
_MAX_RANK = 64
_MAX_BYTES = (1 << 31) - 1
"""Maximum size of a Protocol Buffers message."""
_MAX_INTEGERS = 1 << 24
"""Maximum number of elements that are stored as varints. Writers store larger tensors as raw bytes."""

_DTYPES: Mapping[int, str] = MappingProxyType(
    {
        1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool",
        10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 14: "complex64", 15: "complex128", 16: "bfloat16",
        17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz", 21: "uint4", 22: "int4",
        23: "float4_e2m1fn", 24: "float8_e8m0fnu",
    }
)  # fmt: skip
"""Dtypes by their numbers in `TensorProto.DataType`."""

_DIMS, _DATA_TYPE, _NAME, _RAW_DATA, _LOCATION = 1, 2, 8, 9, 14
_VARINT_DATA = (5, 7, 11)
_FIXED_DATA: Mapping[int, str] = MappingProxyType({4: "<f4", 10: "<f8"})
"""Numbers of the fields with elements: int32, int64 and uint64 as varints (above), float and double as is (here)."""


class TensorMessage(NamedTuple):
    """The fields of a message.

    Args:
        name: The tensor's name.
        dtype: Logical dtype of the tensor; None if it is not known.
        shape: Extents of the tensor.
        elements: The elements, as stored.
        field: Number of the field with the elements; 0 if the message has none.
        is_external: Whether the elements are in another file.
    """

    name: str
    dtype: str | None
    shape: tuple[int, ...]
    elements: memoryview | list[int]
    field: int
    is_external: bool

    def array(self) -> np.ndarray:
        """Return the elements as an array.

        Raises:
            ValueError: The number of elements does not match the shape.
        """
        dtype, bits = logical_dtype(self.dtype or ""), bit_width(self.dtype or "")
        count = math.prod(self.shape)
        if isinstance(self.elements, list) and bits >= 8:
            values = _from_integers(self.elements, dtype)
        elif self.field in _FIXED_DATA:
            values = np.frombuffer(bytes(self.elements), _FIXED_DATA[self.field])
            values = values.view(np.complex64 if dtype.kind == "c" else values.dtype).astype(dtype)
        else:
            content = (
                bytes(value & 0xFF for value in self.elements)
                if isinstance(self.elements, list)
                else bytes(self.elements)
            )
            stored_dtype = dtype if dtype.isbuiltin != 1 else dtype.newbyteorder("<")
            values = np.frombuffer(content, stored_dtype) if bits >= 8 else _unpack_bits(content, dtype, bits)[:count]
        if values.size != count:
            raise ValueError(f"it has {values.size} elements, not {count}")
        return values.reshape(self.shape).astype(dtype, copy=False)


def _from_integers(integers: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray:
    """Return elements that are stored as integers, which are the bit patterns of elements of a float format."""
    unsigned = np.array(integers, np.uint64)
    if dtype.kind in "iub":
        return unsigned.view(np.int64).astype(dtype)
    return unsigned.astype(np.dtype(f"u{dtype.itemsize}")).view(dtype)


def _unpack_bits(content: bytes, dtype: np.dtype[Any], bits: int) -> np.ndarray:
    """Return elements that are smaller than a byte. The first element of a byte is in its lowest bits."""
    codes = np.frombuffer(content, np.uint8)
    parts = [(codes >> (bits * part)) & ((1 << bits) - 1) for part in range(8 // bits)]
    patterns = np.stack(parts, axis=-1).reshape(-1)
    if dtype.name == "int4":
        return (patterns.astype(np.int8) ^ 8).astype(np.int8) - 8
    return patterns if dtype.name == "uint4" else patterns.view(dtype)


@dataclass(slots=True)
class _Fields:
    """The fields of a message, filled in while it is decoded."""

    name: str = ""
    data_type: int = 0
    shape: list[int] = field(default_factory=list)
    elements: memoryview | list[int] = field(default_factory=list)
    field_number: int = 0
    is_external: bool = False


def decode_tensor_proto(content: bytes) -> TensorMessage:
    """Decode a message.

    Args:
        content: The bytes of the message.

    Raises:
        ValueError: The bytes are not a TensorProto, or its elements do not match its shape.
    """
    fields = _Fields()
    view, position = memoryview(content), 0
    while position < len(view):
        key, position = _read_varint(view, position)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, position = _read_varint(view, position)
            _store_integer(fields, number, value)
            continue
        size = {1: 8, 5: 4}.get(wire)
        if wire == 2:
            size, position = _read_varint(view, position)
        if size is None or size > len(view) - position:
            raise ValueError("a field extends beyond the message")
        _store_bytes(fields, number, view[position : position + size], is_packed=wire == 2)
        position += size
    dtype = _DTYPES.get(fields.data_type)
    shape = tuple(fields.shape)
    if len(shape) > _MAX_RANK or any(extent >= 1 << 31 for extent in shape):
        raise ValueError("its shape is too large for any message")
    message = TensorMessage(fields.name, dtype, shape, fields.elements, fields.field_number, fields.is_external)
    if dtype is not None and not message.is_external and fields.data_type:
        _check_size(message, dtype)
    return message


def _check_size(message: TensorMessage, dtype: str) -> None:
    """Check that raw elements have the size that the shape requires, before an array is allocated.

    Raises:
        ValueError: They have another size.
    """
    count = math.prod(message.shape)
    if message.field in (0, _RAW_DATA):
        expected, available = -(-count * bit_width(dtype) // 8), len(message.elements)
        if expected != available:
            raise ValueError(f"its shape needs {expected} bytes of elements, but {available} follow")


def _store_integer(fields: _Fields, number: int, value: int) -> None:
    """Store a field that has an integer value."""
    if number == _DIMS:
        fields.shape.append(value)
    elif number == _DATA_TYPE:
        fields.data_type = value
    elif number == _LOCATION:
        fields.is_external = value == 1
    elif number in _VARINT_DATA:
        _integer_elements(fields, number).append(value)


def _integer_elements(fields: _Fields, number: int) -> list[int]:
    if not isinstance(fields.elements, list):
        raise ValueError("its elements are stored twice")
    if len(fields.elements) >= _MAX_INTEGERS:
        raise ValueError("it stores too many integers as individual values")
    fields.field_number = number
    return fields.elements


def _store_bytes(fields: _Fields, number: int, content: memoryview, *, is_packed: bool) -> None:
    """Store a field that has bytes: text, elements, or packed integers."""
    if number == _NAME:
        fields.name = bytes(content).decode("utf-8")
    elif number == _RAW_DATA or (number in _FIXED_DATA and is_packed):
        if len(fields.elements):
            raise ValueError("its elements are stored twice")
        fields.elements, fields.field_number = content, number
    elif is_packed and (number == _DIMS or number in _VARINT_DATA):
        position = 0
        while position < len(content):
            value, position = _read_varint(content, position)
            (fields.shape if number == _DIMS else _integer_elements(fields, number)).append(value)


def _read_varint(view: memoryview, position: int) -> tuple[int, int]:
    """Return the varint at a position, and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(view):
            break
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & ((1 << 64) - 1), position
    raise ValueError("an integer is truncated")


def tensors_of_tensor_proto(
    files: Files, path: Path, place: Place, prefix: str, ignored: dict[str, str]
) -> Iterator[DumpedTensor]:
    """Yield the tensor of a file, with the name in its message.

    Args:
        files: The files of the dump.
        path: The file.
        place: Sample and step of the tensor.
        prefix: Text before the name.
        ignored: Receives the file if it is not read, with the reason.

    Raises:
        UsageError: The file is damaged.
    """
    message = _read_message(files, path)
    if message.dtype is None or message.is_external:
        ignored[path.name] = "its elements are in another file" if message.is_external else "its dtype is unknown"
        return
    yield DumpedTensor(
        name=prefix + (message.name or path.stem),
        location=path.name,
        dtype=logical_dtype(message.dtype),
        shape=message.shape,
        load=partial(_read_array, files, path),
        place=place,
    )


def _read_message(files: Files, path: Path) -> TensorMessage:
    with files.open_member(path) as (file, size):
        if size > _MAX_BYTES:
            raise damaged(path, None, "it is larger than 2 GB", kind=_KIND)
        try:
            return decode_tensor_proto(file.read(size))
        except ValueError as error:
            raise damaged(path, None, str(error), kind=_KIND) from None


def _read_array(files: Files, path: Path) -> np.ndarray:
    try:
        return _read_message(files, path).array()
    except ValueError as error:
        raise damaged(path, None, str(error), kind=_KIND) from None
