"""Sliding windows: input indices of the taps of a convolution or pool, and convolution as a matrix product.

Float and quantized kernels share the convolution. Its columns are copied, one slice per tap, into a reused scratch
buffer, in blocks of output rows, so that memory is bounded and the buffer stays in cache (the "im2col" of Chellapilla,
Puri and Simard 2006). Padding is 0: subtract a zero point first.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np

from qdebug.numerics.checkpoint import checkpoint
from qdebug.plural import plural
from qdebug.replay.blockwise import split_shape
from qdebug.replay.registry import Call

__all__ = ["Window", "convolve", "pad_for_window", "same_pads", "scratch", "window_of"]

_AT_ONCE = 1 << 20
"""Elements copied between two checks for cancellation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A window that slides over spatial axes; each field has one value per axis.

    Args:
        extent: Size of the input.
        kernel: Taps.
        strides: Step from one output to the next.
        dilations: Distance between taps.
        begin: Padding before the first element.
        end: Stated padding after the last element.
        out: Number of outputs; the last window may reach beyond `end` if outputs are rounded up.
    """

    extent: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]
    out: tuple[int, ...]

    @property
    def covered(self) -> tuple[int, ...]:
        """Size of the padded input that the taps read."""
        return tuple(
            (out - 1) * stride + (kernel - 1) * dilation + 1
            for out, stride, kernel, dilation in zip(self.out, self.strides, self.kernel, self.dilations, strict=True)
        )

    @property
    def is_pointwise(self) -> bool:
        """Whether each output reads only the element at its own position."""
        is_single_tap = all(k == 1 for k in self.kernel) and all(s == 1 for s in self.strides)
        return is_single_tap and self.out == self.extent and not any(self.begin)

    def taps(self, first: int = 0, last: int | None = None) -> Iterator[tuple[Any, ...]]:
        """Yield, for each tap in C order, the index of the padded input (..., *covered) that it reads.

        Args:
            first: First output along the first axis.
            last: One past the last output along the first axis; all outputs by default.
        """
        bounds = [(0, count) for count in self.out]
        bounds[0] = (first, self.out[0] if last is None else last)
        for taps in product(*(range(count) for count in self.kernel)):
            yield (
                ...,
                *(
                    slice(tap * dilation + low * stride, tap * dilation + (high - 1) * stride + 1, stride)
                    for tap, dilation, stride, (low, high) in zip(
                        taps, self.dilations, self.strides, bounds, strict=True
                    )
                ),
            )


def pad_for_window(array: np.ndarray, window: Window, fill: float) -> np.ndarray:
    """Pad and crop an array (..., *extent) to the extent of the taps (..., *covered). Return it unchanged if equal."""
    if window.covered == window.extent and not any(window.begin):
        return array
    leading_shape = array.shape[: array.ndim - len(window.extent)]
    result = np.empty((*leading_shape, *window.covered), dtype=array.dtype)
    copied = [
        min(extent, covered - begin)
        for extent, covered, begin in zip(window.extent, window.covered, window.begin, strict=True)
    ]
    target: tuple[Any, ...] = (..., *(slice(b, b + n) for b, n in zip(window.begin, copied, strict=True)))
    source: tuple[Any, ...] = (..., *(slice(0, n) for n in copied))
    for part in split_shape(leading_shape, max(_AT_ONCE // max(prod(window.covered), 1), 1)):
        checkpoint()
        result[part] = fill
        if min(copied, default=0) > 0:
            result[part][target] = array[part][source]
    return result


def window_of(call: Call, extent: Sequence[int], kernel: Sequence[int], *, ceil_mode: bool = False) -> Window:
    """Read the window of a convolution or pool from its node.

    Args:
        call: The node; `strides`, `dilations`, `pads` and `auto_pad` are read.
        extent: Spatial sizes of the input.
        kernel: Taps per axis.
        ceil_mode: Round the number of outputs up.

    Raises:
        ValueError: The numbers of axes disagree, or no window fits.
    """
    axes = len(extent)
    strides = _listed_attribute(call, "strides", (1,) * axes)
    dilations = _listed_attribute(call, "dilations", (1,) * axes)
    if len(kernel) != axes:
        raise ValueError(f"the kernel has {len(kernel)} axes, but the input has {axes}")
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    mode = call.text("auto_pad", "NOTSET") or "NOTSET"
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        out = [-(-size // stride) for size, stride in zip(extent, strides, strict=True)]
        begin, end = same_pads(mode, extent, kernel, strides, dilations)
    elif mode in ("NOTSET", "VALID"):
        pads = _listed_attribute(call, "pads", (0,) * (2 * axes)) if mode == "NOTSET" else (0,) * (2 * axes)
        begin, end = list(pads[:axes]), list(pads[axes:])
        out = [
            _count_outputs(size, before, after, span, stride, ceil_mode=ceil_mode)
            for size, before, after, span, stride in zip(extent, begin, end, spans, strides, strict=True)
        ]
    else:
        raise ValueError(f"auto_pad {mode!r} is not supported")
    if min(out, default=0) < 1:
        raise ValueError(f"windows of {list(spans)} do not fit an input of {list(extent)} with pads {begin + end}")
    return Window(
        extent=tuple(extent),
        kernel=tuple(kernel),
        strides=strides,
        dilations=dilations,
        begin=tuple(begin),
        end=tuple(end),
        out=tuple(out),
    )


def same_pads(
    mode: str, extent: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Return the padding before and after each axis that gives one output per stride of the input.

    Args:
        mode: "SAME_UPPER" to put an odd padding element after the input, "SAME_LOWER" to put it before.
        extent: Spatial sizes of the input.
        kernel: Taps per axis.
        strides: Steps per axis.
        dilations: Distance between taps per axis.
    """
    begin, end = [], []
    for size, taps, stride, dilation in zip(extent, kernel, strides, dilations, strict=True):
        total = max((-(-size // stride) - 1) * stride + (taps - 1) * dilation + 1 - size, 0)
        begin.append(total // 2 if mode == "SAME_UPPER" else total - total // 2)
        end.append(total - begin[-1])
    return begin, end


def _listed_attribute(call: Call, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    """Return an attribute that lists the same number of integers as its default."""
    values = call.integers(name) or default
    if len(values) != len(default):
        raise ValueError(f"{name} has {len(values)} values; expected {len(default)}")
    return values


def _count_outputs(size: int, before: int, after: int, span: int, stride: int, *, ceil_mode: bool) -> int:
    headroom = size + before + after - span
    # Runtimes divide toward zero: a window that lacks less than a stride is pooled over the remaining elements.
    if headroom < 0:
        return 1 if headroom > -stride else 0
    count = math.ceil(headroom / stride) + 1 if ceil_mode else headroom // stride + 1
    # A window that would begin in the padding after the input is dropped (ONNX, since operator set 19).
    return count - 1 if ceil_mode and (count - 1) * stride >= size + before else count


_BLOCK_BYTES = 8 << 20
_DEPTHWISE_ELEMENTS = 1 << 16
_SMALL_PLANE = 1 << 10
"""Largest number of outputs of a channel that is convolved with the channels along the last axis."""
_local = threading.local()


def scratch(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return uninitialized working memory of the current thread. The next call overwrites it."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    buffer: np.ndarray | None = getattr(_local, "buffer", None)
    if buffer is None or buffer.nbytes < size:
        buffer = np.empty(max(size, 1 << 16), dtype=np.uint8)
        _local.buffer = buffer if buffer.nbytes <= 2 * _BLOCK_BYTES else None
    return buffer[:size].view(dtype).reshape(shape)


def convolve(x: np.ndarray, weight: np.ndarray, window: Window, groups: int) -> np.ndarray:
    """Cross-correlate, which neural networks call convolution.

    Args:
        x: Input (N, C, *extent).
        weight: Filters (M, C / groups, *kernel), in the dtype of `x`.
        window: The window.
        groups: Number of channel groups.

    Returns:
        The output (N, M, *out) in the dtype of `x`. Sums are exact if `x` and `weight` hold integers whose sums stay
        within the dtype's exact range.

    Raises:
        ValueError: Channels and groups do not match, or the dtypes differ.
    """
    if x.dtype != weight.dtype:
        raise ValueError(f"{x.dtype} cannot be convolved with filters of {weight.dtype}")
    samples, channels = x.shape[:2]
    filters = weight.shape[0]
    if weight.shape[1] * groups != channels or filters % groups:
        groups_text = plural(groups, "group")
        last = x.shape[-1] == weight.shape[1] * groups
        hint = "; if the channels come last, that is the attribute channels_last=1" if last else ""
        raise ValueError(
            f"{channels} channels and {filters} filters of {weight.shape[1]} channels do not form {groups_text}{hint}"
        )
    out = np.empty((samples, filters, *window.out), dtype=x.dtype)
    if out.size == 0:
        return out
    if groups > 1 and groups == channels == filters:
        factors = np.tile(weight.reshape(channels, -1), (samples, 1))
        planes, out_planes = x.reshape(-1, *x.shape[2:]), out.reshape(-1, *window.out)
        # 0 times infinity is NaN, so that the padding counts
        is_small = prod(window.out) <= _SMALL_PLANE and bool(np.isfinite(factors).all())
        (_convolve_small_planes if is_small else _convolve_planes)(planes, factors, window, out_planes)
        return out
    matrix = np.ascontiguousarray(weight).reshape(groups, filters // groups, -1)
    at_once = max(1, _AT_ONCE // max(x[0].size, out[0].size))
    for first in range(0, samples, at_once if window.is_pointwise else 1):
        checkpoint()
        if window.is_pointwise:
            part = slice(first, min(first + at_once, samples))
            columns = x[part].reshape(-1, groups, channels // groups, prod(window.out))
            np.matmul(matrix, columns, out=out[part].reshape(-1, groups, filters // groups, prod(window.out)))
        else:
            _convolve_by_columns(x[first], matrix, window, out[first])
    return out


def _convolve_by_columns(x: np.ndarray, matrix: np.ndarray, window: Window, out: np.ndarray) -> None:
    """Fill out (M, *out) from x (C, *extent) and matrix (groups, M / groups, C / groups * taps)."""
    groups, per_group, depth = matrix.shape
    source = pad_for_window(x, window, 0)
    taps = int(np.prod(window.kernel))
    per_row = int(np.prod(window.out[1:], dtype=np.int64))
    row_bytes = groups * depth * per_row * x.dtype.itemsize
    rows = max(1, _BLOCK_BYTES // max(row_bytes, 1))
    for first in range(0, window.out[0], rows):
        checkpoint()
        last = min(first + rows, window.out[0])
        columns = scratch((x.shape[0], taps, last - first, *window.out[1:]), x.dtype)
        for tap, tap_index in enumerate(window.taps(first, last)):
            columns[:, tap] = source[tap_index]
        block = out.reshape(groups, per_group, window.out[0] * per_row)[:, :, first * per_row : last * per_row]
        np.matmul(matrix, columns.reshape(groups, depth, -1), out=block)


def _convolve_planes(x: np.ndarray, factors: np.ndarray, window: Window, out: np.ndarray) -> None:
    """Fill out (P, *out) from planes x (P, *extent) and factors (P, taps) by shifted multiply-adds."""
    at_once = max(1, _DEPTHWISE_ELEMENTS // prod(window.out))
    ones = (1,) * len(window.out)
    for first in range(0, len(x), at_once):
        checkpoint()
        part = slice(first, first + at_once)
        source = pad_for_window(x[part], window, 0)
        total = out[part]
        term = scratch(total.shape, x.dtype)
        for tap, tap_index in enumerate(window.taps()):
            factor = factors[part, tap].reshape(-1, *ones)
            target = total if tap == 0 else term
            np.multiply(source[tap_index], factor, out=target)
            if tap:
                np.add(total, term, out=total)


def _convolve_small_planes(x: np.ndarray, factors: np.ndarray, window: Window, out: np.ndarray) -> None:
    """Like `_convolve_planes`, with the planes along the last axis, since the rows of small planes are too short.

    Products with the padding are left out, since they are most products of a plane of a few rows. At an edge, this may
    change the sign of a result of 0.
    """
    at_once = max(1, _DEPTHWISE_ELEMENTS // (2 * prod(window.out)))
    taps = list(_clipped_taps(window))
    for first in range(0, len(x), at_once):
        checkpoint()
        part = slice(first, first + at_once)
        source = np.ascontiguousarray(np.moveaxis(x[part], 0, -1))
        total = np.full((*window.out, source.shape[-1]), -0.0, x.dtype)  # the sum of no products, of either sign
        term = scratch(total.shape, x.dtype)
        row = np.empty((window.out[-1], source.shape[-1]), x.dtype)
        for tap, source_index, target_index in taps:
            row[...] = factors[part, tap]  # one factor for each element of a row, so that long rows are multiplied
            target = total[target_index]
            np.multiply(source[source_index], row[target_index[-1]], out=term[target_index])
            np.add(target, term[target_index], out=target)
        out[part] = np.moveaxis(total, -1, 0)


def _clipped_taps(window: Window) -> Iterator[tuple[int, tuple[slice, ...], tuple[slice, ...]]]:
    """Yield each tap that reads the input: its number in C order, the elements it reads, and their outputs."""
    axes = list(zip(window.dilations, window.strides, window.begin, window.extent, window.out, strict=True))
    for number, taps in enumerate(np.ndindex(*window.kernel)):
        reads, outputs = list[slice](), list[slice]()
        for tap, (dilation, stride, begin, extent, count) in zip(taps, axes, strict=True):
            start = tap * dilation - begin
            first, last = max(0, -(start // stride)), min(count, (extent - 1 - start) // stride + 1)
            if first < last:
                reads.append(slice(start + first * stride, start + (last - 1) * stride + 1, stride))
                outputs.append(slice(first, last))
        if len(reads) == len(axes):
            yield number, tuple(reads), tuple(outputs)
