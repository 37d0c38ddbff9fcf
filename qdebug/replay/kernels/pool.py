"""Float pools over windows and over all spatial axes."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from qdebug.replay.blockwise import by_rows
from qdebug.replay.extents import Cost, Shape
from qdebug.replay.kernels.activation import apply_fused_activation
from qdebug.replay.precision import integer_limits, is_real, narrow, widen
from qdebug.replay.registry import Call, kernel
from qdebug.replay.windows import Window, pad_for_window, window_of

__all__ = ["pool_cost", "pool_window", "sum_by_nines", "window_counts", "window_sums"]


def pool_cost(call: Call, x: Shape) -> Cost:
    """Estimate the cost of a pool over x (N, C, *extent)."""
    window = pool_window(call, x[2:])
    images, taps, out = prod(x[:2]), prod(window.kernel), prod(window.out)
    reads = sum(size * reach for size, reach in zip(window.out, window.kernel, strict=True))
    return Cost(images * out, images * (prod(window.covered) + taps * out) + reads, taps)


def _pool_cost(call: Call) -> Cost:
    return pool_cost(call, call.shape(0))


def pool_window(call: Call, extent: tuple[int, ...]) -> Window:
    """Read the window of a pool over an input of spatial sizes `extent`.

    Raises:
        ValueError: The node states no kernel, or no window fits.
    """
    kernel_shape = call.integers("kernel_shape")
    if kernel_shape is None:
        raise ValueError("the node has no kernel_shape")
    return window_of(call, extent, kernel_shape, ceil_mode=bool(call.integer("ceil_mode")))


def window_sums(x: np.ndarray, window: Window) -> np.ndarray:
    """Sum x (N, C, *extent) over each window, tap by tap in C order. Padding counts as 0."""
    source = pad_for_window(x, window, 0)
    total: np.ndarray | None = None
    for tap_index in window.taps():
        part = source[tap_index]
        total = part.copy() if total is None else np.add(total, part, out=total)
    if total is None:
        raise ValueError("the window has no taps")
    return total


_NINE = 9
"""Taps that XNNPACK's float pools add per pass."""


def sum_by_nines(x: np.ndarray, window: Window) -> np.ndarray:
    """Sum x (N, C, *extent) over each window, adding nine taps per pass in pairs. Padding counts as 0.

    Taps are in column order. Source: XNNPACK, src/f32-avgpool, the kernels 9p.
    """
    source = pad_for_window(x, window, 0)
    order = np.arange(prod(window.kernel)).reshape(window.kernel).T.reshape(-1)
    tap_indices = list(window.taps())
    taps = [source[tap_indices[at]] for at in order]
    total: np.ndarray | None = None
    for start in range(0, len(taps), _NINE):
        nine = taps[start : start + _NINE]
        nine += [np.zeros_like(nine[0])] * (_NINE - len(nine))
        first, second, third, fourth = (nine[at] + nine[at + 1] for at in range(0, _NINE - 1, 2))
        part = (second + third) + ((first + nine[-1]) + fourth)
        total = part if total is None else total + part
    if total is None:
        raise ValueError("the window has no taps")
    return total


def window_counts(window: Window, *, include_pad: bool) -> np.ndarray:
    """Return the number of elements (*out) that each window averages over, as float32.

    Padding counts if `include_pad` is set. Elements that a window covers beyond the stated padding never count.
    """
    total = np.ones((), dtype=np.float32)
    for axis, count in enumerate(window.out):
        low = 0 if include_pad else window.begin[axis]
        high = window.begin[axis] + window.extent[axis] + (window.end[axis] if include_pad else 0)
        reads = (
            np.arange(count)[:, None] * window.strides[axis]
            + np.arange(window.kernel[axis])[None, :] * window.dilations[axis]
        )
        total = total[..., None] * ((reads >= low) & (reads < high)).sum(axis=1).astype(np.float32)
    return total


@kernel("AveragePool", cost=_pool_cost)
def _average_pool(call: Call) -> np.ndarray:
    """Average x (N, C, *extent) over windows, then apply a fused activation.

    Padding counts if count_include_pad is set.
    """
    x = call.array(0)
    window = pool_window(call, x.shape[2:])
    divisor = window_counts(window, include_pad=bool(call.integer("count_include_pad")))

    def averages(part: np.ndarray) -> tuple[np.ndarray]:
        total = window_sums(widen(part), window)
        return (narrow(total / divisor.astype(total.dtype), x.dtype),)

    return apply_fused_activation(call, by_rows(averages, x, 2)[0])


@kernel("LpPool", cost=_pool_cost)
def _lp_pool(call: Call) -> np.ndarray:
    """Compute the p-norm of x (N, C, *extent) over each window."""
    x, order = call.array(0), call.integer("p", 2)
    window = pool_window(call, x.shape[2:])

    def norms(part: np.ndarray) -> tuple[np.ndarray]:
        total = window_sums(np.abs(widen(part)) ** order, window)
        return (narrow(total ** total.dtype.type(1 / order), x.dtype),)

    return by_rows(norms, x, 2)[0]


def _max_pool(call: Call) -> tuple[np.ndarray, ...]:
    """Return the largest element of each window of x (N, C, *extent), and optionally its index."""
    x = call.array(0)
    window = pool_window(call, x.shape[2:])
    if call.outputs == 1:
        return by_rows(lambda part: _window_maxima(part, window, track=False)[:1], x, 2)
    best, chosen = _window_maxima(x, window, track=True)
    return best, _flat_indices(chosen, window, call.integer("storage_order"))


def _window_maxima(x: np.ndarray, window: Window, *, track: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest element of each window, and the index of its tap if `track` is set."""
    source = pad_for_window(x, window, -np.inf if is_real(x.dtype) else integer_limits(x.dtype)[0])
    best: np.ndarray | None = None
    chosen = np.zeros((*x.shape[:2], *window.out) if track else (), dtype=np.int64)
    for tap, tap_index in enumerate(window.taps()):
        part = source[tap_index]
        if best is None:
            best = part.copy()
            continue
        if track:
            chosen[part > best] = tap
        np.maximum(best, part, out=best)
    if best is None:
        raise ValueError("the window has no taps")
    return best, chosen


kernel("MaxPool", cost=_pool_cost)(_max_pool)


def _channels_last_pool_cost(call: Call) -> Cost:
    samples, *extent, channels = call.shape(0)
    return pool_cost(call, (samples, channels, *extent))


@kernel("NhwcMaxPool", domain="com.microsoft", cost=_channels_last_pool_cost)
def _channels_last_max_pool(call: Call) -> np.ndarray:
    """Return the largest element of each window of x (N, *extent, C)."""
    channels_second_call = replace(call, inputs=(np.moveaxis(call.array(0), -1, 1),), outputs=1)
    return np.moveaxis(_max_pool(channels_second_call)[0], 1, -1)


def _flat_indices(chosen: np.ndarray, window: Window, order: int) -> np.ndarray:
    """Convert tap indices to flat indices of the input, with spatial axes in C or Fortran order."""
    taps = np.unravel_index(chosen, window.kernel)
    sizes = window.extent
    steps = [int(np.prod(sizes[:axis] if order else sizes[axis + 1 :], dtype=np.int64)) for axis in range(len(sizes))]
    flat = np.zeros_like(chosen)
    for axis, (tap, step) in enumerate(zip(taps, steps, strict=True)):
        line = [1] * chosen.ndim
        line[2 + axis] = -1
        start = (np.arange(window.out[axis]) * window.strides[axis] - window.begin[axis]).reshape(line)
        flat += (start + tap * window.dilations[axis]) * step
    images = np.arange(chosen.shape[0] * chosen.shape[1]).reshape(*chosen.shape[:2], *(1,) * len(sizes))
    return np.asarray(flat + images * int(np.prod(sizes, dtype=np.int64)))


@kernel("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(call: Call) -> np.ndarray:
    """Average or maximize x (N, C, *extent) over all spatial axes."""
    x = call.array(0)
    axes = tuple(range(2, x.ndim))
    apply = np.mean if call.op == "GlobalAveragePool" else np.max
    return by_rows(lambda part: (narrow(apply(widen(part), axis=axes, keepdims=True), x.dtype),), x, 2)[0]
