"""Convolution as a matrix product, shared by the float and the quantized kernels.

The columns are made by one slice copy per tap into a scratch buffer that is used again, in blocks of
output rows, so that memory is bounded and the buffer stays in cache (the "im2col" of Chellapilla, Puri
and Simard 2006). What is padded is 0: subtract a zero point first.
"""

from __future__ import annotations

import threading

import numpy as np

from qdebug.numerics.checkpoint import checkpoint
from qdebug.replay.windows import Window, padded

__all__ = ["convolve", "scratch"]

_BLOCK_BYTES = 8 << 20
_DEPTHWISE_ELEMENTS = 1 << 16
_local = threading.local()


def scratch(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Give uninitialized working memory of this thread: it is overwritten by the next call."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    buffer: np.ndarray | None = getattr(_local, "buffer", None)
    if buffer is None or buffer.nbytes < size:
        buffer = np.empty(max(size, 1 << 16), dtype=np.uint8)
        _local.buffer = buffer if buffer.nbytes <= 2 * _BLOCK_BYTES else None
    return buffer[:size].view(dtype).reshape(shape)


def convolve(x: np.ndarray, weight: np.ndarray, window: Window, groups: int) -> np.ndarray:
    """Cross-correlate, as networks do and call convolution.

    Args:
        x: Input (N, C, *extent).
        weight: Filters (M, C / groups, *kernel), of the dtype of `x`.
        window: Where the taps read.
        groups: Number of groups that channels are split into.

    Returns:
        The output (N, M, *out) in the dtype of `x`. Sums are exact if `x` and `weight` hold integers
        whose sums stay within the dtype's exact range.

    Raises:
        ValueError: Channels and groups do not fit.
    """
    samples, channels = x.shape[:2]
    filters = weight.shape[0]
    if weight.shape[1] * groups != channels or filters % groups:
        made = "1 group" if groups == 1 else f"{groups} groups"
        last = x.shape[-1] == weight.shape[1] * groups
        hint = "; if the channels come last, that is the attribute channels_last=1" if last else ""
        raise ValueError(
            f"{channels} channels and {filters} filters of {weight.shape[1]} channels do not make {made}{hint}"
        )
    out = np.empty((samples, filters, *window.out), dtype=x.dtype)
    if out.size == 0:
        return out
    matrix = np.ascontiguousarray(weight).reshape(groups, filters // groups, -1)
    for sample in range(samples):
        checkpoint()
        if groups > 1 and groups == channels == filters:
            _depthwise(x[sample], weight, window, out[sample])
        elif window.plain:
            columns = x[sample].reshape(groups, channels // groups, -1)
            np.matmul(matrix, columns, out=out[sample].reshape(groups, filters // groups, -1))
        else:
            _by_columns(x[sample], matrix, window, out[sample])
    return out


def _by_columns(x: np.ndarray, matrix: np.ndarray, window: Window, out: np.ndarray) -> None:
    """Fill out (M, *out) from x (C, *extent) and matrix (groups, M / groups, C / groups * taps)."""
    groups, per_group, depth = matrix.shape
    source = padded(x, window, 0)
    taps = int(np.prod(window.kernel))
    per_row = int(np.prod(window.out[1:], dtype=np.int64))
    row_bytes = groups * depth * per_row * x.dtype.itemsize
    rows = max(1, _BLOCK_BYTES // max(row_bytes, 1))
    for first in range(0, window.out[0], rows):
        checkpoint()
        last = min(first + rows, window.out[0])
        columns = scratch((x.shape[0], taps, last - first, *window.out[1:]), x.dtype)
        for tap, place in enumerate(window.taps(first, last)):
            columns[:, tap] = source[place]
        block = out.reshape(groups, per_group, window.out[0] * per_row)[:, :, first * per_row : last * per_row]
        np.matmul(matrix, columns.reshape(groups, depth, -1), out=block)


def _depthwise(x: np.ndarray, weight: np.ndarray, window: Window, out: np.ndarray) -> None:
    """Fill out (C, *out) from x (C, *extent) and weight (C, 1, *kernel) by shifted multiply-adds."""
    channels = x.shape[0]
    at_once = max(1, _DEPTHWISE_ELEMENTS // max(int(np.prod(window.out)), 1))
    factors = weight.reshape(channels, -1)
    ones = (1,) * len(window.out)
    for first in range(0, channels, at_once):
        checkpoint()
        part = slice(first, min(first + at_once, channels))
        source = padded(x[part], window, 0)
        total = out[part]
        term = scratch(total.shape, x.dtype)
        for tap, place in enumerate(window.taps()):
            factor = factors[part, tap].reshape(-1, *ones)
            target = total if tap == 0 else term
            np.multiply(source[place], factor, out=target)
            if tap:
                np.add(total, term, out=total)
