"""Resize and Upsample: interpolate along each axis in turn with a small matrix."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from qdebug.replay.extents import Cost
from qdebug.replay.interpolate import resize_like_onnxruntime, resized_axes
from qdebug.replay.precision import is_real, narrow, widen
from qdebug.replay.registry import Call, kernel
from qdebug.replay.within import normalize_indices

__all__: list[str] = []


def _positions(mode: str, out: int, size: int, scale: float, region: tuple[float, float]) -> np.ndarray:
    """Return the input position of each output along one axis, in float64."""
    coordinates = np.arange(out, dtype=np.float64)
    exact = scale * size
    if mode == "half_pixel":
        return (coordinates + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        offset = size / 2 * (1 - out / exact)
        return offset + (coordinates + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel":
        return (coordinates + 0.5) / scale - 0.5 if exact > 1 else np.zeros(out)
    if mode == "align_corners":
        return coordinates * (size - 1) / (exact - 1) if exact != 1 else np.zeros(out)
    if mode == "asymmetric":
        return coordinates / scale
    if mode == "tf_half_pixel_for_nn":
        return (coordinates + 0.5) / scale
    if mode == "tf_crop_and_resize":
        start, end = region
        if out == 1:
            return np.full(1, 0.5 * (start + end) * (size - 1))
        return start * (size - 1) + coordinates * (end - start) * (size - 1) / (exact - 1)
    raise ValueError(f"coordinate_transformation_mode {mode!r} is not supported")


_NEAREST: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda p: np.ceil(p - 0.5),
    "round_prefer_ceil": lambda p: np.floor(p + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """Compute Keys' cubic convolution kernel (1981)."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _weights(
    positions: np.ndarray, size: int, scale: float, *, cubic: float | None, outside: bool, antialias: bool
) -> np.ndarray:
    """Return the (outputs, inputs) matrix of a linear or cubic interpolation along one axis."""
    stretch = min(scale, 1.0) if antialias else 1.0
    reach = (1.0 if cubic is None else 2.0) / stretch
    first = np.floor(positions - reach).astype(np.int64)
    taps = first[:, None] + np.arange(int(np.ceil(2 * reach)) + 2)
    distance = (positions[:, None] - taps) * stretch
    kernel_values = np.maximum(1 - np.abs(distance), 0) if cubic is None else _cubic(distance, cubic)
    if outside:
        kernel_values = np.where((taps < 0) | (taps >= size), 0, kernel_values)
    if antialias or outside:
        total = kernel_values.sum(axis=1, keepdims=True)
        kernel_values = kernel_values / np.where(total == 0, 1, total)
    matrix = np.zeros((positions.size, size))
    rows = np.broadcast_to(np.arange(positions.size)[:, None], taps.shape)
    np.add.at(matrix, (rows, np.clip(taps, 0, size - 1)), kernel_values)
    return matrix


def _resize_cost(call: Call) -> Cost:
    """Estimate the cost of interpolating along each axis in turn with a matrix."""
    x, passed = call.array(0), 0
    shape = list(x.shape)
    widest = 4.0 if call.text("mode", "nearest") == "cubic" else 2.0
    for axis, scale, count in zip(*resized_axes(call, x), strict=True):
        taps = widest / min(scale, 1.0) if call.integer("antialias") and scale > 0 else widest
        passed += max(abs(count), 1) * (x.shape[axis] + int(taps) + 2)
        shape[axis] = abs(count)
        passed += prod(shape)
    return Cost(prod(shape), passed)


@kernel("Resize", "Upsample", cost=_resize_cost)
def _resize(call: Call) -> np.ndarray:
    """Resample x to given sizes or scales. Modes: nearest, linear and cubic."""
    x = call.array(0)
    if not is_real(x.dtype):
        interpolated = resize_like_onnxruntime(call, x)
        if interpolated is not None:
            return interpolated
    axes, scales, sizes = resized_axes(call, x)
    region = _region(call, axes, x.ndim)
    old = call.op == "Upsample" or call.opset < 11
    transform = "asymmetric" if old else call.text("coordinate_transformation_mode", "half_pixel")
    mode = call.text("mode", "nearest")
    out = widen(x) if is_real(x.dtype) else x.astype(np.float64)
    extrapolated: list[tuple[int, np.ndarray]] = []
    for axis, scale, count in zip(axes, scales, sizes, strict=True):
        size = x.shape[axis]
        if count == size and scale == 1 and transform != "tf_crop_and_resize":
            continue
        if not size:
            raise ValueError("an axis without elements cannot be resized")
        coordinates = _positions(transform, count, size, scale, region[axis])
        if transform == "tf_crop_and_resize":
            extrapolated.append((axis, (coordinates < 0) | (coordinates > size - 1)))
        if mode == "nearest":
            choose = _NEAREST["floor" if old else call.choice("nearest_mode", _NEAREST, "round_prefer_floor")]
            out = np.take(out, normalize_indices(np.clip(choose(coordinates), 0, size - 1), size), axis=axis)
            continue
        matrix = _weights(
            coordinates,
            size,
            scale,
            cubic=call.real("cubic_coeff_a", -0.75) if mode == "cubic" else None,
            outside=bool(call.integer("exclude_outside")),
            antialias=bool(call.integer("antialias")),
        ).astype(out.dtype)
        out = np.moveaxis(np.tensordot(matrix, out, axes=(1, axis)), 0, axis)
    for axis, beyond in extrapolated:
        line = [1] * out.ndim
        line[axis] = -1
        out = np.where(beyond.reshape(line), out.dtype.type(call.real("extrapolation_value")), out)
    if not is_real(x.dtype) and mode != "nearest":
        out = np.rint(out)
    return narrow(out, x.dtype)


def _region(call: Call, axes: list[int], ndim: int) -> list[tuple[float, float]]:
    region = [(0.0, 1.0)] * ndim
    region_input = call.optional(1) if call.op == "Resize" and call.opset >= 11 else None
    if region_input is not None and region_input.size:
        values = [float(value) for value in region_input.reshape(-1)]
        half = len(values) // 2
        for axis, start, end in zip(axes, values[:half], values[half:], strict=True):
            region[axis] = (start, end)
    return region
