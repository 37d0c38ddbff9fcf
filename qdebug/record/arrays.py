"""Whatever a harness holds a tensor in, as a numpy array of its logical dtype."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from qdebug.errors import RecordingError
from qdebug.model.dtypes import LOGICAL_DTYPES, is_float, is_integer, logical_dtype, logical_name
from qdebug.record.graph_builder import in_short
from qdebug.store.journal import MAX_NAME
from qdebug.store.payload import storable_dtype

__all__ = ["as_array"]

_BIT_PATTERNS = {1: np.dtype(np.uint8), 2: np.dtype(np.uint16)}
_BITS = {"float6": 6, "float4": 4}


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
    if not isinstance(name, str) or not name:
        raise RecordingError(
            f"A tensor is put under the name {name!r}; expected a text that is not empty.",
            hint="Name it as the framework does: put('conv1_out', array).",
        )
    if 4 * len(name) > MAX_NAME and len(name.encode("utf-8", "surrogatepass")) > MAX_NAME:
        raise RecordingError(
            f"A tensor is put under a name of {len(name)} characters, {in_short(name)}, which no recording can hold.",
            hint="Give it a shorter name.",
        )
    array = _from_anything(name, value)
    if dtype is not None:
        array = _as_dtype(name, array, dtype)
    storable_dtype(name, array)
    # A byte swap, never a conversion: the payloads of NaN stay.
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _from_anything(name: str, value: Any) -> np.ndarray:
    if type(value) is np.ndarray:
        return value
    try:
        if all(hasattr(value, method) for method in ("detach", "cpu", "numpy")):
            return _from_torch(value)
        if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
            raise ValueError("some of its elements are masked")
        if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
            return np.from_dlpack(value)
        return np.asarray(value)
    except Exception as exc:  # noqa: BLE001  whatever the array's own code raises
        why = (str(exc) or type(exc).__name__).rstrip(".")
        raise RecordingError(
            f"Tensor {name!r} is a {type(value).__name__} that gives no array: {why}.",
            hint="Convert it to a numpy array before recording it.",
        ) from None


def _from_torch(tensor: Any) -> np.ndarray:
    """Give a torch tensor's elements; formats that numpy lacks go through their bit patterns."""
    tensor = tensor.detach().cpu()
    try:
        return np.asarray(tensor.numpy())
    except TypeError:
        torch = sys.modules.get("torch")  # the caller's own; this layer imports no framework
        kind = str(tensor.dtype).removeprefix("torch.")
        if torch is None or kind not in LOGICAL_DTYPES or logical_dtype(kind).isbuiltin == 1:
            raise
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
    # Unsigned integers of an extension float's size can only be its bits: numpy has no such numbers.
    if is_float(dtype) and wanted.itemsize in _BIT_PATTERNS and array.dtype == _BIT_PATTERNS[wanted.itemsize]:
        if wanted == np.float16:
            raise RecordingError(
                f"Tensor {name!r} is put with dtype 'float16' and holds uint16: bits or numbers?",
                hint="Put array.view(np.float16), or array.astype(np.float16).",
            )
        limit = 1 << _BITS.get(dtype[:6], 8 * wanted.itemsize)
        if array.size and int(array.max()) >= limit:
            raise RecordingError(
                f"Tensor {name!r} is put with dtype {dtype!r} and holds {int(array.max())}; bits are below {limit}.",
                hint="Give one element a byte, in the low bits.",
            )
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
