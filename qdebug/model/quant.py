"""Quantization parameters: the mapping between codes and real numbers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from qdebug.model.dtypes import code_limits
from qdebug.model.frozen import frozen_array, rebuild
from qdebug.model.json_object import JsonObject, SchemaPart

__all__ = ["QuantParams", "is_same_scale"]


_MIN_NORMAL = np.finfo(np.float32).tiny


def _integer_array(values: npt.ArrayLike, title: str) -> np.ndarray:
    array = np.array(values, ndmin=1)
    if array.dtype.kind not in "iub" and not np.array_equal(array, np.trunc(array)):
        raise ValueError(f"{title} must be integers, found {array.ravel()[:4].tolist()}")
    return frozen_array(array, np.int64)


def _round_to_float32(scale: np.ndarray) -> np.ndarray:
    """Round scales to float32, returned as float64. A scale that is not a normal float32 is left unchanged."""
    exact = np.asarray(scale, np.float64)
    if scale.dtype == np.float32:
        return exact
    with np.errstate(all="ignore"):
        float32_scale = exact.astype(np.float32)
        is_normal = np.isfinite(float32_scale) & (np.abs(float32_scale) >= _MIN_NORMAL)
    return np.where(is_normal, float32_scale, exact)


def is_same_scale(scale: np.ndarray, other_scale: np.ndarray) -> bool:
    """Return whether two arrays of scales have equal shapes, and equal numbers after rounding to float32.

    Runtimes store scales as float32. Decimals printed from such a scale, or the float64 from which it was computed,
    count as the same scale.

    Examples:
        >>> is_same_scale(np.array([0.1]), np.float32([0.1]))
        True
    """
    return np.array_equal(_round_to_float32(scale), _round_to_float32(other_scale), equal_nan=True)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuantParams(JsonObject):
    """Affine quantization of one tensor: real = scale * (code - zero_point).

    A parameter that a backend actually uses is a fact and is kept unchanged, even if it is a zero or NaN scale. Other
    modules judge whether it makes sense.

    Scales are equal if they are equal after rounding to float32 (see `is_same_scale`). Real values are computed with
    the rounded scales.

    Args:
        dtype: Logical dtype of the codes, such as "int8".
        scale: Real units per code; one value, one per channel along `axis`, or an array of the tensor's rank for
            blocks. Stored as float32 if given as float32, else as float64.
        zero_point: The code of real 0, in the shape of `scale`; 0 by default. For both, a single value applies to all
            channels.
        axis: Channel axis of the values; None for one value per tensor.
        block_size: Elements along `axis` that share a scale; None, or 0 as in ONNX, unless block-wise.
        qmin: Lowest code in use; the dtype's lowest by default. None for float codes.
        qmax: Highest code in use; the dtype's highest by default. None for float codes.
        multiplier: Integer requantization multiplier of a fixed-point backend, if known.
        shift: Its right shift in bits, if known.

    Raises:
        ValueError: The shapes of `scale` and `zero_point` differ, there are several scales without an axis, a block
            size is negative, or a zero point, multiplier or shift is not a whole number.

    Examples:
        >>> quant = qdebug.QuantParams(dtype="int8", scale=0.5, zero_point=3)
        >>> quant.qmin, quant.qmax
        (-128, 127)
    """

    json_keys = "dtype scale zero_point axis"

    dtype: str
    scale: np.ndarray
    zero_point: Annotated[np.ndarray, SchemaPart(items={"type": "integer"})] = 0  # type: ignore[assignment]
    axis: int | None = None
    block_size: int | None = None
    qmin: int | None = None
    qmax: int | None = None
    multiplier: np.ndarray | None = None
    shift: np.ndarray | None = None

    def __post_init__(self) -> None:
        given_scale = np.asarray(self.scale)
        scale = frozen_array(given_scale, np.float32 if given_scale.dtype == np.float32 else np.float64, ndmin=1)
        zero_point = _integer_array(self.zero_point, "zero_point")
        if zero_point.size == 1:
            zero_point = frozen_array(np.broadcast_to(zero_point.reshape(()), scale.shape))
        elif scale.size == 1 and zero_point.ndim == 1 and self.axis is not None:
            scale = frozen_array(np.broadcast_to(scale.reshape(()), zero_point.shape))
        if zero_point.shape != scale.shape:
            raise ValueError(f"scale has shape {scale.shape}, but zero_point has {zero_point.shape}")
        if scale.size > 1 and self.axis is None:
            raise ValueError(f"{scale.size} scales need an axis")
        if self.block_size is not None and self.block_size < 0:
            raise ValueError(f"block_size must be at least 0, found {self.block_size}")
        low, high = code_limits(self.dtype)
        set_ = object.__setattr__
        set_(self, "scale", scale)
        set_(self, "zero_point", zero_point)
        set_(self, "block_size", self.block_size or None)
        set_(self, "qmin", low if self.qmin is None else int(self.qmin))
        set_(self, "qmax", high if self.qmax is None else int(self.qmax))
        for name in ("multiplier", "shift"):
            value = getattr(self, name)
            set_(self, name, None if value is None else _integer_array(value, name))

    def check_zero_point(self) -> None:
        """Check that all zero points are valid codes. Not called for the contents of files.

        Raises:
            ValueError: A zero point is outside the dtype's range.
        """
        low, high = code_limits(self.dtype)
        if low is None or high is None:
            return
        outside_range = self.zero_point[(self.zero_point < low) | (self.zero_point > high)]
        if outside_range.size:
            raise ValueError(
                f"zero_point {outside_range.flat[0]} is outside the range of {self.dtype}, {low} to {high}"
            )

    @property
    def real_scale(self) -> np.ndarray:
        """The scale with which real values are computed, as float64: rounded to float32, see `is_same_scale`."""
        return _round_to_float32(self.scale)

    @property
    def span(self) -> tuple[float, float] | None:
        """The lowest and highest real value of any code, over all channels; None for codes that are not integers."""
        if self.qmin is None or self.qmax is None:
            return None
        if self.scale.size == 1:  # same result as numpy's function, in a tenth of the time
            scale, zero_point = float(self.real_scale.item()), int(self.zero_point.item())
            return scale * (self.qmin - zero_point), scale * (self.qmax - zero_point)
        low = self.real_scale * (self.qmin - self.zero_point.astype(np.float64))
        high = self.real_scale * (self.qmax - self.zero_point.astype(np.float64))
        return float(np.min(low)), float(np.max(high))

    @property
    def per_channel(self) -> bool:
        """Whether there are several scales."""
        return self.scale.size > 1

    def has_same_scale(self, other: QuantParams) -> bool:
        """Return whether both have equal scales along the same axis and in the same blocks."""
        is_same_axis = (self.axis, self.block_size) == (other.axis, other.block_size)
        return (is_same_axis or self.scale.size == other.scale.size == 1) and is_same_scale(self.scale, other.scale)

    def has_same_codes(self, other: QuantParams) -> bool:
        """Return whether equal codes stand for equal real numbers in both, ignoring the type and range of codes."""
        return self.has_same_scale(other) and np.array_equal(self.zero_point, other.zero_point)

    def _key(self) -> tuple[Any, ...]:
        return (
            self.dtype,
            self.scale.shape,
            _round_to_float32(self.scale).tobytes(),
            self.zero_point.tobytes(),
            self.axis,
            self.block_size,
            self.qmin,
            self.qmax,
            None if self.multiplier is None else self.multiplier.tobytes(),
            None if self.shift is None else self.shift.tobytes(),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QuantParams) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, (type(self), {entry.name: getattr(self, entry.name) for entry in fields(self)})
