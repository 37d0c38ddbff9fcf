"""Whatever a harness holds a tensor in, as a numpy array of its logical dtype."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from qdebug.errors import RecordingError
from qdebug.model.dtypes import is_float, is_integer, logical_dtype, logical_name
from qdebug.store.payload import storable_dtype

__all__ = ["as_array"]

_BIT_PATTERNS = {1: np.dtype(np.uint8), 2: np.dtype(np.uint16)}


def as_array(name: str, value: Any, dtype: str | None = None) -> np.ndarray:
    """Give a tensor as a numpy array that a recording can hold; no copy is made where none is needed.

    Args:
        name: The tensor, for errors.
        value: A numpy array, a number, a list, a buffer, a torch tensor, anything with `__array__` or `__dlpack__`.
        dtype: Logical dtype of the elements, where the array's own says less: bit patterns of bfloat16 or fp8 in
            unsigned integers of the same size, int4 values in int8, any values that the dtype holds exactly.

    Raises:
        RecordingError: It is no array, or its elements cannot be of that dtype.
    """
    array = _from_anything(name, value)
    if dtype is not None:
        array = _as_dtype(name, array, dtype)
    storable_dtype(name, array)
    # A byte swap, never a conversion: the payloads of NaN stay.
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _from_anything(name: str, value: Any) -> np.ndarray:
    try:
        if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach"):
            return _from_torch(value)
        if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
            return np.from_dlpack(value)
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError, BufferError) as exc:
        raise RecordingError(
            f"Tensor {name!r} is a {type(value).__name__} that gives no array: {str(exc).rstrip('.')}.",
            hint="Convert it to a numpy array before recording it.",
        ) from None


def _from_torch(tensor: Any) -> np.ndarray:
    """Give a torch tensor's elements; formats that numpy lacks go through their bit patterns."""
    tensor = tensor.detach().cpu()
    try:
        return np.asarray(tensor.numpy())
    except TypeError:
        torch = sys.modules["torch"]  # the caller's own; this layer imports no framework
        kind = str(tensor.dtype).removeprefix("torch.")
        pattern = {1: torch.uint8, 2: torch.int16}[logical_dtype(kind).itemsize]
        return np.asarray(tensor.contiguous().view(pattern).numpy()).view(logical_dtype(kind))


def _as_dtype(name: str, array: np.ndarray, dtype: str) -> np.ndarray:
    try:
        wanted = logical_dtype(dtype)
    except ValueError as exc:
        raise RecordingError(
            f"Tensor {name!r} is put with dtype {dtype!r}: {exc}.", hint="Name it as numpy or ml_dtypes does."
        ) from None
    if array.dtype == wanted:
        return array
    # Extension floats have no numpy kind, so unsigned integers of their size can only be their bits.
    if array.dtype == _BIT_PATTERNS.get(wanted.itemsize) and is_float(dtype) and wanted.kind != "f":
        return array.view(wanted)
    converted = _exactly(array, wanted, dtype)
    if converted is not None:
        return converted
    raise RecordingError(
        f"Tensor {name!r} is put with dtype {dtype!r}, which cannot hold its {array.dtype} values exactly.",
        hint="Convert the array, or leave dtype out.",
    )


def _exactly(array: np.ndarray, wanted: np.dtype[Any], dtype: str) -> np.ndarray | None:
    """Convert numbers to a dtype that holds all of them; None if it does not."""
    try:
        given = logical_name(array.dtype)
    except ValueError:
        return None
    numbers = is_integer(given) or is_float(given)
    if not numbers or not (is_integer(dtype) or is_float(dtype)) or (is_float(given) and is_integer(dtype)):
        return None
    with np.errstate(all="ignore"):
        converted: np.ndarray = array.astype(wanted)
        back = converted.astype(array.dtype)
    same = (back == array) | ((back != back) & (array != array))  # noqa: PLR0124  NaN is unequal to itself
    return converted if bool(np.all(same)) else None
