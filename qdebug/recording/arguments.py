"""Check the arguments that a harness passes to a recorder: arrays in any form, quantization, and options."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from qdebug.errors import RecordingError, UsageError
from qdebug.model import QuantParams
from qdebug.model.dtypes import LOGICAL_DTYPES, code_limits, is_float, is_integer, logical_dtype, logical_name
from qdebug.model.recording import SkipCause
from qdebug.recording.format.payload import storable_dtype
from qdebug.recording.graph_builder import check_texts, format_short
from qdebug.recording.journal import MAX_NAME

__all__ = [
    "QuantFacts",
    "as_array",
    "check_types",
    "find_doubt",
    "parse_skip_cause",
    "recording_path",
    "tensor_facts",
]

_BIT_PATTERNS = {1: np.dtype(np.uint8), 2: np.dtype(np.uint16)}
_USED_BITS = {"float6": 6, "float4": 4}


def as_array(name: str, value: Any, dtype: str | None = None) -> np.ndarray:
    """Return a tensor as a NumPy array that a recording can hold, without a copy if possible.

    Args:
        name: The tensor, for errors.
        value: A NumPy array, a number, a list, a buffer, a torch tensor, anything with `__array__` or `__dlpack__`.
        dtype: Logical dtype of the elements, if the array's own is less specific: bit patterns of bfloat16 or fp8 in
            unsigned integers of the same size, int4 values in int8, any values that the dtype holds exactly.

    Raises:
        RecordingError: The value is not an array, or its elements cannot be represented in the dtype.
    """
    if not isinstance(name, str) or not name:
        raise RecordingError(
            f"put() got the tensor name {name!r}; expected a non-empty string.",
            hint="Use the framework's name of the tensor: put('conv1_out', array).",
        )
    if 4 * len(name) > MAX_NAME and len(name.encode("utf-8", "surrogatepass")) > MAX_NAME:
        raise RecordingError(
            f"The tensor name {format_short(name)} has {len(name)} characters, more than a recording can hold.",
            hint="Give it a shorter name.",
        )
    array = _convert_to_array(name, value)
    if dtype is not None:
        array = _convert_to_dtype(name, array, dtype)
    storable_dtype(name, array)
    # Swap bytes instead of converting numbers, which could change NaN payloads.
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _convert_to_array(name: str, value: Any) -> np.ndarray:
    if type(value) is np.ndarray:
        return value
    try:
        if all(hasattr(value, method) for method in ("detach", "cpu", "numpy")):
            return _convert_torch(value)
        if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
            raise ValueError("some of its elements are masked")
        if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
            return np.from_dlpack(value)
        return np.asarray(value)
    except Exception as exc:  # noqa: BLE001  the array's own code may raise anything
        reason = (str(exc) or type(exc).__name__).rstrip(".")
        raise RecordingError(
            f"Tensor {name!r} is a {type(value).__name__} that cannot be converted to an array: {reason}.",
            hint="Convert it to a numpy array before recording it.",
        ) from None


def _convert_torch(tensor: Any) -> np.ndarray:
    """Return a torch tensor's elements. Formats that numpy lacks are converted through their bit patterns."""
    tensor = tensor.detach().cpu()
    try:
        return np.asarray(tensor.numpy())
    except TypeError:
        torch = sys.modules.get("torch")  # already imported by the caller; this layer imports no framework
        kind = str(tensor.dtype).removeprefix("torch.")
        if torch is None or kind not in LOGICAL_DTYPES or logical_dtype(kind).isbuiltin == 1:
            raise
        pattern = {1: torch.uint8, 2: torch.int16}[logical_dtype(kind).itemsize]
        return np.asarray(tensor.contiguous().view(pattern).numpy()).view(logical_dtype(kind))


def _convert_to_dtype(name: str, array: np.ndarray, dtype: str) -> np.ndarray:
    try:
        target = logical_dtype(dtype)
    except ValueError as exc:
        raise RecordingError(
            f"Tensor {name!r} was put with dtype {dtype!r}: {exc}.", hint="Use a dtype name of numpy or ml_dtypes."
        ) from None
    if array.dtype == target:
        return array
    # Unsigned integers of the same size as a float that numpy lacks can only be its bit patterns.
    if is_float(dtype) and target.itemsize in _BIT_PATTERNS and array.dtype == _BIT_PATTERNS[target.itemsize]:
        if target == np.float16:
            raise RecordingError(
                f"Tensor {name!r} was put with dtype 'float16' but contains uint16, which may be bit patterns "
                "or numbers.",
                hint="Put array.view(np.float16), or array.astype(np.float16).",
            )
        limit = 1 << _USED_BITS.get(dtype[:6], 8 * target.itemsize)
        if array.size and int(array.max()) >= limit:
            raise RecordingError(
                f"Tensor {name!r} was put with dtype {dtype!r} but contains {int(array.max())}; its bits "
                f"must be below {limit}.",
                hint="Store one element per byte, in the low bits.",
            )
        return array.view(target)
    converted = _convert_exactly(array, target, dtype)
    if converted is not None:
        return converted
    raise RecordingError(
        f"Tensor {name!r} was put with dtype {dtype!r}, which cannot represent its {array.dtype} values exactly.",
        hint="Convert the array, or leave dtype out.",
    )


def _convert_exactly(array: np.ndarray, target: np.dtype[Any], dtype: str) -> np.ndarray | None:
    """Convert numbers to a dtype; None if it cannot hold all of them exactly."""
    try:
        own_dtype = logical_name(array.dtype)
    except ValueError:
        return None
    is_number = is_integer(own_dtype) or is_float(own_dtype)
    if not is_number or not (is_integer(dtype) or is_float(dtype)) or (is_float(own_dtype) and is_integer(dtype)):
        return None
    with np.errstate(all="ignore"):
        converted: np.ndarray = array.astype(target)
        converted_back = converted.astype(array.dtype)
    is_same = (converted_back == array) | ((converted_back != converted_back) & (array != array))  # noqa: PLR0124  NaN is unequal to itself
    return converted if bool(np.all(is_same)) else None


class QuantFacts(NamedTuple):
    """The stated facts of a tensor's quantization, None if not stated. Arguments as for `Recorder.put`."""

    scale: npt.ArrayLike | None = None
    zero_point: npt.ArrayLike | None = None
    axis: int | None = None
    block_size: int | None = None
    qmin: int | None = None
    qmax: int | None = None
    multiplier: npt.ArrayLike | None = None
    shift: npt.ArrayLike | None = None

    def to_params(self, name: str, data: np.ndarray) -> QuantParams | None:
        """Return quantization parameters; None if nothing was stated.

        Args:
            name: The tensor, for errors.
            data: Its codes.

        Raises:
            RecordingError: The facts contradict each other, or do not match the tensor's shape.
        """
        if self.scale is None:
            for value in self:
                if value is not None:
                    title = next(title for title, fact in zip(self._fields, self, strict=True) if fact is value)
                    raise RecordingError(
                        f"Tensor {name!r} was put with {title} but without a scale.", hint="Give its scale too."
                    )
            return None
        try:
            if (block_size := _to_integer("block_size", self.block_size)) is not None and block_size < 1:
                raise ValueError(f"block_size {block_size}")
            quant = QuantParams(
                dtype=logical_name(data.dtype),
                scale=_to_scale_array(self.scale),
                zero_point=_to_integer_array("zero_point", 0 if self.zero_point is None else self.zero_point),
                axis=self._positive_axis(data.ndim),
                block_size=block_size,
                qmin=_to_integer("qmin", self.qmin),
                qmax=_to_integer("qmax", self.qmax),
                multiplier=None if self.multiplier is None else _to_integer_array("multiplier", self.multiplier),
                shift=None if self.shift is None else _to_integer_array("shift", self.shift),
            )
            quant.check_zero_point()
        except (TypeError, ValueError) as exc:
            raise RecordingError(f"The quantization of tensor {name!r} is invalid: {exc}.") from None
        _check_channels(name, data, quant)
        _check_limits(name, quant)
        _check_scale(name, data, quant)
        return quant

    def _positive_axis(self, ndim: int) -> int | None:
        """Return the axis counted from the front, as it is stored."""
        axis = _to_integer("axis", self.axis)
        if axis is None:
            return None
        if not -ndim <= axis < ndim:
            raise ValueError(f"axis {axis} of a tensor with {ndim} dimensions")
        return axis % ndim


def find_doubt(quant: QuantParams | None) -> str | None:
    """Return a warning about an unusual quantization. It is kept as stated, since a backend may really use it.

    Args:
        quant: The quantization; None if nothing was stated.
    """
    if quant is None:
        return None
    scale = quant.scale.ravel()
    for description, is_unusual in (
        ("not finite", ~np.isfinite(scale)),
        ("0", scale == 0),
        ("negative", scale < 0),
    ):
        count = int(np.count_nonzero(is_unusual))
        if count:
            subject = "its scale is" if scale.size == 1 else f"{count} of its {scale.size} scales are"
            return f"{subject} {description}"
    return None


def _to_scale_array(values: npt.ArrayLike) -> np.ndarray:
    array = np.asarray(values)
    name = array.dtype.name
    is_real = array.dtype.kind in "biuf" or (name in LOGICAL_DTYPES and is_float(name))
    if array.size == 0 or not is_real:
        raise ValueError(f"scale must be numeric, found {array.dtype} of shape {array.shape}")
    return array


def _to_integer_array(title: str, values: npt.ArrayLike) -> np.ndarray:
    array = np.asarray(values)
    if array.dtype.kind not in "biuf" or array.size == 0 or not bool(np.all(np.abs(array.astype(np.float64)) < 2**63)):
        raise ValueError(f"{title} must be integers of at most 64 bits, found {array.ravel()[:3].tolist()}")
    return array


def _to_integer(title: str, value: float | None) -> int | None:
    """Return a whole number of any type as an int."""
    if value is None:
        return None
    integer = int(value)
    if integer != value:
        raise ValueError(f"{title} must be an integer, found {value!r}")
    return integer


def _check_limits(name: str, quant: QuantParams) -> None:
    low, high = code_limits(quant.dtype)
    low, high = -(2**63) if low is None else low, 2**63 - 1 if high is None else high
    for title, limit in (("qmin", quant.qmin), ("qmax", quant.qmax)):
        if limit is not None and not low <= limit <= high:
            raise RecordingError(
                f"Tensor {name!r} was put with {title} {limit}, which is outside the range of {quant.dtype} codes.",
                hint="Give the limits in codes, not in real units.",
            )
    if quant.qmin is not None and quant.qmax is not None and quant.qmin > quant.qmax:
        raise RecordingError(f"Tensor {name!r} was put with qmin {quant.qmin} above qmax {quant.qmax}.")


def _check_scale(name: str, data: np.ndarray, quant: QuantParams) -> None:
    """Refuse a scale of 0 unless all codes equal the zero point, which runtimes write for data that is all 0."""
    is_zero = quant.scale == 0
    if not np.any(is_zero):
        return
    from qdebug.numerics.affine import dequantize

    nonzero_count = np.count_nonzero(dequantize(data, replace(quant, scale=is_zero.astype(np.float32))))
    if nonzero_count:
        raise RecordingError(
            f"Tensor {name!r} was put with a scale of 0, but {nonzero_count} of its {data.size} codes differ "
            "from the zero point.",
            hint="Give a scale above 0, in real units per code.",
        )


def _check_channels(name: str, data: np.ndarray, quant: QuantParams) -> None:
    if quant.axis is None or quant.scale.size == 1:
        return
    extent, block = data.shape[quant.axis], quant.block_size
    expected = extent if block is None else -(-extent // block)
    is_per_channel = quant.scale.shape == (expected,)
    block_shape = (*data.shape[: quant.axis], expected, *data.shape[quant.axis + 1 :])
    count = quant.scale.size if quant.scale.ndim == 1 else "x".join(map(str, quant.scale.shape))
    if not is_per_channel and (block is None or quant.scale.shape != block_shape):
        raise RecordingError(
            f"Tensor {name!r} was put with {count} scales along axis {quant.axis}, "
            f"which has {extent} elements (shape {data.shape}){'' if block is None else f' in blocks of {block}'}.",
            hint="Give one scale, or one for each channel or block.",
        )


def parse_skip_cause(because: str | None) -> SkipCause | None:
    """Return the cause of a skipped tensor; None if none was stated.

    Raises:
        UsageError: The cause is unknown.
    """
    if because is None or because in tuple(SkipCause):
        return None if because is None else SkipCause(because)
    raise UsageError(
        f"skip() got because={because!r}; expected one of {', '.join(map(repr, map(str, SkipCause)))}.",
        hint="Leave because= out if none of these fits.",
    )


def tensor_facts(
    name: str, data: np.ndarray, quant: QuantParams | None, layout: str | None, stands_for: str | None
) -> dict[str, Any]:
    """Return the stated facts of a tensor, as fields of `TensorInfo`.

    Raises:
        RecordingError: `layout` or `stands_for` is not a string.
    """
    facts: dict[str, Any] = {"dtype": logical_name(data.dtype)}
    if quant is not None:
        facts["quant"] = quant
    for title, text in (("layout", layout), ("stands_for", stands_for)):
        if text is not None:
            check_texts(name, title, (text,))
            facts[title] = text
    return facts


def check_types(arguments: Mapping[str, Any], types: tuple[type, ...], expected: str) -> None:
    """Reject arguments of a wrong type before the run starts.

    Args:
        arguments: The arguments, by the name that the message uses.
        types: Allowed types.
        expected: Description of the types, for the message.

    Raises:
        UsageError: An argument has a different type.
    """
    for title, value in arguments.items():
        if not isinstance(value, types):
            raise UsageError(f"Recorder() got {title} {format_short(value)}; expected {expected}.")


def recording_path(path: str | os.PathLike[str]) -> Path:
    """Return the path given to a recorder as a Path.

    Raises:
        UsageError: It is not a path, or is "-".
    """
    try:
        path = os.fsdecode(path)
    except TypeError:
        raise UsageError(f"{path!r} is not a path.", hint="Name a file, such as run.h5.") from None
    if path == "-":
        raise UsageError(
            "A recording cannot be written to standard output.",
            hint="Name a file, such as run.h5.",
        )
    return Path(path)
