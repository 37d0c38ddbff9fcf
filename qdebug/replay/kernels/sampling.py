"""GridSample and DeformConv: interpolate an image at positions given by another input.

Shapes: N samples, C channels, P positions, D spatial dimensions. A position is interpolated along its last dimension
first.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod

import numpy as np

from qdebug.replay.extents import Cost
from qdebug.replay.precision import narrow, widen
from qdebug.replay.registry import Call, kernel

__all__: list[str] = []

_BLOCK = 1 << 20
"""Elements sampled per block."""
_FAR = float(1 << 40)
"""A position beyond all extents that int64 can still hold."""
_CUBIC = -0.75
_TAPS = {"nearest": 1, "linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}


def _reflect(coordinates: np.ndarray, low: float, high: float) -> np.ndarray:
    """Mirror positions outside an interval at its ends until they are inside."""
    span = high - low
    if span <= 0:
        return np.full_like(coordinates, low)
    far = np.where(coordinates < low, low - coordinates, coordinates - high)
    times = np.floor(far / span)
    rest = far - times * span
    from_low = (coordinates < low) == (times % 2 == 0)
    inside = np.where(from_low, low + rest, high - rest)
    return np.where((coordinates < low) | (coordinates > high), inside, coordinates).astype(coordinates.dtype)


def _axis_taps(
    coordinates: np.ndarray, extent: int, mode: str, padding: str, *, aligned: bool
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return the elements along one axis that each position is interpolated from.

    Args:
        coordinates: Positions in elements, float.
        extent: Extent of the axis.
        mode: Interpolation.
        padding: Padding mode, as for `_sample_image`.
        aligned: Whether the borders are the centers of the first and last elements instead of their outer edges.

    Returns:
        For each tap, three arrays (P,): indices inside the axis, weights, and whether the element counts.
    """
    low, high = (0.0, extent - 1.0) if aligned else (-0.5, extent - 0.5)
    at = np.rint(coordinates) if mode == "nearest" else coordinates
    outside = (at < low) | (at > high)
    if padding == "border":
        at = np.where(outside, np.clip(at, 0, extent - 1), at)
    elif padding == "reflection":
        at = _reflect(at, low, high)
    at = np.clip(np.nan_to_num(at, nan=-_FAR), -_FAR, _FAR)
    whole = np.trunc(at) if mode == "nearest" else np.floor(at)
    rest = np.where(np.isfinite(coordinates), at - whole, np.nan).astype(coordinates.dtype)
    taps = []
    for step, weight in _weights(rest, mode):
        index = whole.astype(np.int64) + step
        if padding == "reflection":
            index = np.trunc(_reflect(index.astype(np.float64), low, high)).astype(np.int64)
        clamped = np.clip(index, 0, extent - 1)
        taps.append((clamped, weight, (clamped == index) | (padding == "border")))
    return taps


def _weights(rest: np.ndarray, mode: str) -> list[tuple[int, np.ndarray]]:
    """Return the offsets and weights of the taps, given each position's distance past an element."""
    if mode == "nearest":
        return [(0, np.ones_like(rest))]
    if _TAPS[mode] == 2:
        return [(0, 1 - rest), (1, rest)]
    a, near, far = _CUBIC, (rest, 1 - rest), (rest + 1, 2 - rest)  # Keys 1981
    outer = [((a * d - 5 * a) * d + 8 * a) * d - 4 * a for d in far]
    inner = [((a + 2) * d - (a + 3)) * d * d + 1 for d in near]
    return [(-1, outer[0]), (0, inner[0]), (1, inner[1]), (2, outer[1])]


def _sample_image(x: np.ndarray, coordinates: np.ndarray, mode: str, padding: str, *, aligned: bool) -> np.ndarray:
    """Interpolate one sample.

    Args:
        x: (C, ...) with D spatial dimensions.
        coordinates: (P, D) in elements, in the order of the dimensions.
        mode: Interpolation.
        padding: Values outside: "zeros", "border" or "reflection".
        aligned: As for `_axis_taps`.

    Returns:
        (C, P).
    """
    extents, flat = x.shape[1:], x.reshape(x.shape[0], -1)
    out = np.empty((x.shape[0], len(coordinates)), x.dtype)
    size = max(1, _BLOCK // max(1, x.shape[0]))
    for start in range(0, len(coordinates), size):
        part = coordinates[start : start + size]
        taps = [
            _axis_taps(part[:, axis], extent, mode, padding, aligned=aligned) for axis, extent in enumerate(extents)
        ]
        first = np.zeros(len(part), np.int64)
        out[:, start : start + size] = _blend(flat, extents, taps, first, np.ones(len(part), bool))
    return out


def _blend(
    flat: np.ndarray,
    extents: Sequence[int],
    taps: Sequence[Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]],
    flat_index: np.ndarray,
    counts: np.ndarray,
) -> np.ndarray:
    if not taps:
        return np.where(counts, flat[:, flat_index], flat.dtype.type(0))
    parts = (
        _blend(flat, extents[1:], taps[1:], flat_index * extents[0] + index, counts & inside)
        * weight.astype(flat.dtype)
        for index, weight, inside in taps[0]
    )
    return reduce(np.add, parts)


def _grid_cost(call: Call) -> Cost:
    """Estimate the cost of interpolating at all positions of a grid."""
    x, grid = call.shape(0), call.shape(1)
    elements = x[0] * x[1] * prod(grid[1:-1])
    return Cost(elements, elements * _TAPS.get(call.text("mode", "linear"), 4) ** max(len(x) - 2, 0))


@kernel("GridSample", cost=_grid_cost, ranks=(3, 3))
def _grid_sample(call: Call) -> np.ndarray:
    """Interpolate x (N, C, ...) at a grid (N, ..., D) of positions from -1 to 1, with the last dimension of x first."""
    x, grid = widen(call.array(0)), call.array(1)
    mode, padding = call.text("mode", "linear"), call.text("padding_mode", "zeros")
    if mode not in _TAPS or padding not in ("zeros", "border", "reflection"):
        raise ValueError(f"mode {mode!r} with padding_mode {padding!r} is not supported")
    aligned, extents = bool(call.integer("align_corners")), np.array(x.shape[2:])
    reversed_grid = widen(grid)[..., ::-1]
    last = (extents - 1).astype(reversed_grid.dtype)
    coordinates = (reversed_grid + 1) / 2 * last if aligned else ((reversed_grid + 1) * (last + 1) - 1) / 2
    coordinates = coordinates.reshape(len(x), -1, len(extents)).astype(np.float32)
    sampled = [
        _sample_image(sample, at, mode, padding, aligned=aligned) for sample, at in zip(x, coordinates, strict=True)
    ]
    shape = (*x.shape[:2], *grid.shape[1:-1])
    return narrow(np.reshape(sampled, shape) if sampled else np.empty(shape, x.dtype), call.array(0).dtype)


def _deformed_cost(call: Call) -> Cost:
    """Estimate the cost of a convolution at displaced positions."""
    x, weight, offset = call.shape(0), call.shape(1), call.shape(2)
    count = x[0] * prod(offset[2:])
    sampled = count * x[1] * prod(weight[2:])
    return Cost(count * weight[0], 4 * sampled + sampled * weight[0] // max(1, call.integer("group", 1)) // 64)


@kernel("DeformConv", cost=_deformed_cost, ranks=(4, 4, 4))
def _deform_conv(call: Call) -> np.ndarray:
    """Convolve x (N, C, H, W) at positions displaced by offsets (N, groups kh kw 2, oh, ow), weighted by a mask."""
    x, weight, offset = (widen(call.array(slot)) for slot in range(3))
    bias, mask = call.optional(3), call.optional(4)
    if x.ndim != 4:
        raise ValueError(f"x has {x.ndim} dimensions; expected 4")
    group, offset_groups = call.integer("group", 1), call.integer("offset_group", 1)
    window, out = weight.shape[2:], offset.shape[2:]
    taps = prod(window)
    step, spread = call.integers("strides") or (1, 1), call.integers("dilations") or (1, 1)
    begin = (call.integers("pads") or (0, 0, 0, 0))[:2]
    grids = [
        np.arange(window[axis]).reshape(-1, 1) * spread[axis] + np.arange(out[axis]) * step[axis] - begin[axis]
        for axis in (0, 1)
    ]
    undisplaced = np.stack(np.broadcast_arrays(grids[0][:, None, :, None], grids[1][None, :, None, :]), axis=2)
    shape = (len(x), offset_groups, *window, 2, *out)
    coordinates = undisplaced + offset.reshape(shape).astype(np.float64)  # (N, groups, kh, kw, 2, oh, ow)
    coordinates = np.moveaxis(coordinates, 4, -1).reshape(len(x), offset_groups, -1, 2).astype(np.float32)
    result = np.empty((len(x), weight.shape[0], prod(out)), x.dtype)
    factors = None if mask is None else widen(mask).reshape(len(x), offset_groups, 1, -1)
    kernels = weight.reshape(group, weight.shape[0] // group, -1)
    for sample, image in enumerate(x):
        parts = zip(np.split(image, offset_groups), coordinates[sample], strict=True)
        columns = [_sample_image(part, at, "linear", "zeros", aligned=True) for part, at in parts]
        if factors is not None:
            columns = [part * factor for part, factor in zip(columns, factors[sample], strict=True)]
        rows = np.concatenate(columns).reshape(group, -1, taps, prod(out))
        result[sample] = np.matmul(kernels, rows.reshape(group, -1, prod(out))).reshape(weight.shape[0], -1)
    result = result.reshape(len(x), weight.shape[0], *out)
    result = result if bias is None else result + widen(bias).reshape(1, -1, 1, 1)
    return narrow(result, call.array(0).dtype)
