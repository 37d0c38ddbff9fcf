"""Whatever a harness holds a tensor in, as a numpy array of its logical dtype."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from qdebug.errors import RecordingError
from qdebug.model.dtypes import is_float, logical_dtype, logical_name

__all__ = ["as_array"]

_BIT_PATTERNS = {1: np.uint8, 2: np.uint16}


def as_array(name: str, value: Any, dtype: str | None = None) -> np.ndarray:
    """Give a tensor as a numpy array; no copy is made where none is needed.

    Args:
        name: The tensor, for errors.
        value: A numpy array, a number, a buffer, anything with `__array__` or `__dlpack__`, a torch tensor.
        dtype: Logical dtype of the elements, where the array's own says less: bit patterns of bfloat16 or fp8 in
            unsigned integers of the same size, int4 values in int8.

    Raises:
        RecordingError: It is no array, or its elements cannot be of that dtype.
    """
    array = _torch_array(value) if type(value).__module__.partition(".")[0] == "torch" else None
    if array is None:
        try:
            array = np.asarray(value)
        except (TypeError, ValueError, RuntimeError) as exc:
            raise RecordingError(
                f"Tensor {name!r} is a {type(value).__name__} that gives no array: {exc}.",
                hint="Convert it to a numpy array before recording it.",
            ) from None
    return array if dtype is None else _as_dtype(name, array, dtype)


def _torch_array(value: Any) -> np.ndarray | None:
    """Give a torch tensor's elements; formats that numpy lacks go through their bit patterns."""
    tensor = value.detach().cpu()
    kind = str(tensor.dtype).removeprefix("torch.")
    try:
        return np.asarray(tensor.numpy())
    except TypeError:
        torch = sys.modules["torch"]  # the caller's own; this layer imports no framework
        patterns = {1: torch.uint8, 2: torch.int16}
        if tensor.element_size() not in patterns:
            return None
        bits = tensor.contiguous().view(patterns[tensor.element_size()]).numpy()
        return np.asarray(bits).view(logical_dtype(kind))


def _as_dtype(name: str, array: np.ndarray, dtype: str) -> np.ndarray:
    try:
        wanted = logical_dtype(dtype)
    except ValueError as exc:
        raise RecordingError(f"Tensor {name!r} is put with dtype {dtype!r}: {exc}.") from None
    if array.dtype == wanted:
        return array
    if array.dtype == _BIT_PATTERNS.get(wanted.itemsize) and is_float(dtype):
        return array.view(wanted)
    if dtype in ("int4", "uint4", "int2", "uint2") and array.dtype in (np.dtype(np.int8), np.dtype(np.uint8)):
        converted = array.astype(wanted)
        if np.array_equal(converted.astype(array.dtype), array):
            return converted
        raise RecordingError(f"Tensor {name!r} is put with dtype {dtype!r} and has values outside its range.")
    found = logical_name(array.dtype) if array.dtype.kind != "O" else str(array.dtype)
    raise RecordingError(
        f"Tensor {name!r} is put with dtype {dtype!r} and its array has dtype {found}.",
        hint="Convert the array, or leave dtype out.",
    )
