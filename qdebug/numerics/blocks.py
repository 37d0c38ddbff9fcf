"""Read a stored tensor as real values, block by block of consecutive elements in C order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import cache
from math import prod

import numpy as np

from qdebug.errors import UsageError
from qdebug.model.dtypes import is_integer, logical_name
from qdebug.model.quant import QuantParams
from qdebug.numerics.affine import BLOCK, Affine, is_wide_code, to_single
from qdebug.numerics.checkpoint import checkpoint
from qdebug.numerics.large_arrays import passed_pages, touched_pages
from qdebug.numerics.row_sums import ROW

__all__ = [
    "Clamp",
    "RealBlocks",
    "Scratch",
    "StridedFlat",
    "incomparable_reason",
    "make_comparable",
    "scratch",
    "stretches",
]

_STRETCH = 1 << 20
"""Elements per range: 8 MB in float64, and a few milliseconds of work."""

_CACHED_BYTES = 1 << 16
"""Maximum bytes of a range that is cached, because codes are read twice: as stored, and as real values."""


class StridedFlat:
    """The elements of a non-contiguous array in C order; `flat[start:stop]` copies a range.

    numpy's flat iterator is slow for slices, because it computes the position of each element separately.

    Args:
        array: Elements of any shape and strides.
    """

    __slots__ = ("_array", "_last", "_pages", "_span")

    def __init__(self, array: np.ndarray) -> None:
        self._array, self._pages = array, touched_pages(array)
        self._span, self._last = (0, 0), _copy_range(array, 0, 0)

    def __getitem__(self, span: slice) -> np.ndarray:
        """Return a range of elements, 1-D and read-only.

        Args:
            span: A slice with a nonnegative start, a stop and no step.
        """
        bounds = int(span.start), min(int(span.stop), self._array.size)
        if bounds == self._span:
            return self._last
        if self._pages is not None:
            self._pages.count_read(bounds[1] - bounds[0])
        part = _copy_range(self._array, *bounds)
        if part.nbytes <= _CACHED_BYTES:
            self._span, self._last = bounds, part
        return part


def _copy_range(array: np.ndarray, start: int, stop: int) -> np.ndarray:
    if stop <= start:
        return np.empty(0, array.dtype)
    if array.ndim < 2:
        return np.ascontiguousarray(array.reshape(-1)[start:stop])
    inner = prod(array.shape[1:])
    row, last = start // inner, (stop - 1) // inner
    if row == last:
        return _copy_range(array[row], start - row * inner, stop - row * inner)
    parts = []
    if start > row * inner:
        parts.append(_copy_range(array[row], start - row * inner, inner))
        row += 1
    whole = stop // inner
    if whole > row:
        parts.append(np.ascontiguousarray(array[row:whole]).reshape(-1))
    if stop > whole * inner:
        parts.append(_copy_range(array[whole], 0, stop - whole * inner))
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


Clamp = tuple[float | None, float | None]
"""Lowest and highest real value; None if unbounded."""


class Scratch:
    """Buffers of one block each, 2.1 MB in total for tensors of any size."""

    def __init__(self) -> None:
        self.masks = tuple(np.empty(BLOCK, np.bool_) for _ in range(2))
        self.singles = tuple(np.empty(BLOCK, np.float32) for _ in range(5))
        self.doubles = tuple(np.empty(BLOCK, np.float64) for _ in range(4))
        self.index = np.empty(BLOCK, np.int64)
        self.row_singles = np.empty((5, BLOCK // ROW), np.float32)
        self.ones = np.ones(ROW, np.float32)


_LOCAL = threading.local()


def scratch() -> Scratch:
    """Return this thread's buffers. The next caller on this thread may overwrite them."""
    buffers: Scratch | None = getattr(_LOCAL, "buffers", None)
    if buffers is None:
        buffers = _LOCAL.buffers = Scratch()
    return buffers


@cache
def incomparable_reason(dtype: np.dtype) -> str | None:
    """Return why elements of a dtype cannot be compared as real numbers; None if they can."""
    try:
        name = logical_name(dtype)
    except ValueError:
        return f"elements of dtype {dtype} are not supported"
    if dtype.kind == "c":
        return f"elements of dtype {name} are complex numbers, which are not supported"
    return None


@cache
def _fits_single(dtype: np.dtype) -> bool:
    return dtype.itemsize <= (2 if is_integer(dtype.name) else 4)


@cache
def _is_integer(dtype: np.dtype) -> bool:
    return is_integer(dtype.name) or dtype == np.bool_


class RealBlocks:
    """Reads ranges of a stored tensor as real values.

    A tensor is `single` if float32 holds its real values exactly: quantized codes of up to 16 bits and of float types
    (whose real values are float32 by definition), floats of up to 32 bits, integers of up to 16 bits, bool. Other
    tensors are read as float64. 64-bit integers, and codes of 32 and 64 bits, are read as an unevaluated sum of two
    float64 (`wide`). That sum holds integers exactly and codes as described for `wide_codes`. `integer` states that the
    real values are the stored integers themselves. Tensors to be compared are first passed through `make_comparable`.

    Args:
        array: Stored elements of any shape; may be read-only, mapped, strided, or in foreign byte order.
        quant: Quantization of codes; None for real numbers.
        clamp: Bounds to which the real values are clamped; NaN stays NaN.

    Raises:
        UsageError: The dtype does not hold real numbers, or the parameters do not match the shape.
    """

    __slots__ = (
        "_affine",
        "_clamp",
        "_direct",
        "_flat",
        "_pages",
        "dtype",
        "integer",
        "quant",
        "shape",
        "single",
        "size",
        "wide",
    )

    def __init__(self, array: np.ndarray, quant: QuantParams | None = None, clamp: Clamp = (None, None)) -> None:
        array = np.asarray(array)
        reason = incomparable_reason(array.dtype)
        if reason is not None:
            raise UsageError(f"The {reason[0]}{reason[1:]}.")
        self.shape = array.shape
        self.size = array.size
        self.dtype = array.dtype
        self.quant = quant
        contiguous = array.flags.c_contiguous
        self._flat: np.ndarray | StridedFlat = array.reshape(-1) if contiguous else StridedFlat(array)
        self._pages = passed_pages(array) if contiguous else None
        self._affine = None if quant is None else Affine(quant, array.shape, array.dtype)
        self._clamp = clamp
        coded = array.dtype != np.float64 and not is_wide_code(array.dtype)
        self.single = coded if quant is not None else _fits_single(array.dtype)
        self.integer = quant is None and clamp == (None, None) and _is_integer(array.dtype)
        self.wide = is_wide_code(array.dtype) and (quant is not None or array.dtype.itemsize == 8)
        plain = array.dtype.isnative and array.flags.aligned and contiguous and quant is None and clamp == (None, None)
        self._direct = array.dtype if plain else None

    @property
    def quantized(self) -> bool:
        """Whether the stored elements are codes."""
        return self.quant is not None

    @property
    def wide_codes(self) -> bool:
        """Whether the stored elements are codes that float32 cannot distinguish."""
        return self.quant is not None and is_wide_code(self.dtype)

    def read_as(self, *, single: bool, wide: bool) -> RealBlocks:
        """Return the same tensor with its values read as float32, as sums of two float64, or as float64."""
        blocks = RealBlocks.__new__(RealBlocks)
        for name in RealBlocks.__slots__:
            setattr(blocks, name, getattr(self, name))
        blocks.single, blocks.wide = single, wide
        return blocks

    @property
    def clamped(self) -> bool:
        """Whether the real values are clamped."""
        return self._clamp != (None, None)

    def stored(self, start: int, stop: int) -> np.ndarray:
        """Return stored elements start to stop, 1-D, read-only."""
        if self._pages is not None:
            self._pages.read_up_to(start)
        return np.asarray(self._flat[start:stop])

    def read_single(self, start: int, stop: int, out: np.ndarray) -> np.ndarray:
        """Return real values start to stop as float32, either in `out` or as a view of the tensor."""
        stored = self.stored(start, stop)
        if self._direct == np.float32:
            return stored
        out = out[: stop - start]
        if self._affine is not None:
            self._affine.apply(stored, start, out)
        else:
            to_single(stored, out)
        self._clamp_in_place(out)
        return out

    def read_double(self, start: int, stop: int, out: np.ndarray, single: np.ndarray) -> np.ndarray:
        """Return real values start to stop as float64, either in `out` or as a view of the tensor.

        Args:
            start: First flat element.
            stop: One past the last.
            out: A float64 buffer.
            single: A float32 buffer for an intermediate conversion, so that both widths give the same values.
        """
        if self._direct == np.float64:
            return self.stored(start, stop)
        out = out[: stop - start]
        if self.single:
            np.copyto(out, self.read_single(start, stop, single))
            return out
        stored = self.stored(start, stop)
        if self._affine is not None:
            self._affine.apply(stored, start, out)
        else:
            np.copyto(out, stored, casting="unsafe")
        self._clamp_in_place(out)
        return out

    def read_wide(self, start: int, stop: int, out: np.ndarray, low: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return 64-bit integers or codes start to stop as two float64 arrays with an exact sum."""
        stored = self.stored(start, stop)
        high, low = out[: stop - start], low[: stop - start]
        if self._affine is not None:
            self._affine.apply_wide(stored, start, high, low)
        else:
            np.copyto(high, (stored >> 32), casting="unsafe")
            np.multiply(high, 2.0**32, out=high)
            np.copyto(low, (stored & 0xFFFFFFFF), casting="unsafe")
        for bound, outside in ((self._clamp[0], np.less), (self._clamp[1], np.greater)):
            if bound is not None:
                beyond = outside((high - bound) + low, 0.0)
                high[beyond], low[beyond] = bound, 0.0
        return high, low

    def _clamp_in_place(self, values: np.ndarray) -> None:
        low, high = self._clamp
        if low is not None:
            np.maximum(values, low, out=values)
        if high is not None:
            np.minimum(values, high, out=values)


def make_comparable(reference: RealBlocks, backend: RealBlocks) -> tuple[RealBlocks, RealBlocks]:
    """Return two tensors to be compared, read so that equal real values become equal numbers.

    If one side has codes of 32 or 64 bits, the other side's codes are read the same way. When such codes are compared
    with a float tensor, their real values are rounded to its precision, so that a dequantized tensor equals its codes.
    """
    sides = reference, backend
    if not any(side.wide_codes for side in sides):
        return sides
    floats = [side for side in sides if not (side.quantized or _is_integer(side.dtype))]
    single = any(side.single for side in floats)
    first, second = (side.read_as(single=single, wide=not floats and (side.wide or side.quantized)) for side in sides)
    return first, second


def stretches(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield the same range of each of several arrays, in C order, so that float64 copies stay small.

    All arrays have the same shape.

    Args:
        arrays: The arrays. Ranges of an array in C order are views of it and can be written to.
    """
    flat = [np.asarray(array).reshape(-1) for array in arrays]
    for start in range(0, flat[0].size, _STRETCH):
        checkpoint()
        yield tuple(array[start : start + _STRETCH] for array in flat)
