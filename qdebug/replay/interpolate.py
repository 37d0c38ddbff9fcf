"""The heavy part of a bilinear resize on codes: four neighbours, weighted by integers or in float32, as runtimes do.

All methods work on stored codes, which is valid if input and output have equal quantization. They differ in the
position of outputs and in the precision of weights. Sources: TensorFlow Lite
(kernels/internal/reference/resize_bilinear.h), XNNPACK (src/indirection.c, src/s8-ibilinear/scalar.c.in), ONNX Runtime
(core/providers/cpu/tensor/upsample.h), PyTorch (native/quantized/cpu/UpSampleBilinear2d.cpp).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from types import MappingProxyType

import numpy as np

from qdebug.errors import KernelError
from qdebug.numerics.fixedpoint import shift_right
from qdebug.replay.columns import Columns, HeavyPart
from qdebug.replay.precision import fused_multiply_add
from qdebug.replay.registry import Call
from qdebug.replay.unit import Unit
from qdebug.replay.within import normalize_axis

__all__ = ["FRACTION_BITS", "interpolate_codes", "is_bilinear", "resize_like_onnxruntime", "resized_axes"]

FRACTION_BITS: Mapping[str, int] = MappingProxyType({"grid10": 20, "blend10": 20, "blend11": 22})
"""Number of fractional bits of columns that hold integers, by their name."""

_HALF = np.float32(0.5)
_PLANE = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Taps:
    """The two neighbours of each output along an axis, and their weights.

    Args:
        low: Index of the lower neighbour, for each output.
        high: Index of the upper neighbour.
        below: Weight of the lower neighbour.
        above: Weight of the upper neighbour.
    """

    low: np.ndarray
    high: np.ndarray
    below: np.ndarray
    above: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class _ResizedAxis:
    """A resized axis: its size, its new size, the requested factor, and the coordinate mode."""

    size: int
    out: int
    factor: float
    mode: str

    @property
    def has_half_pixel_centers(self) -> bool:
        """Whether outputs are placed at pixel centers."""
        return self.mode == "half_pixel" or (self.mode == "pytorch_half_pixel" and self.out > 1)

    @property
    def aligns_corners(self) -> bool:
        """Whether the first and last pixels of input and output are aligned."""
        return self.mode == "align_corners" and self.out > 1

    def ratio(self) -> np.float32:
        """Return input pixels per output pixel, in float32."""
        shared_end = int(self.aligns_corners)
        return np.float32(self.size - shared_end) / np.float32(self.out - shared_end)


def interpolate_codes(unit: Unit, sums: HeavyPart) -> Columns:
    """Interpolate between codes along up to two axes.

    Raises:
        ValueError: The resize is not bilinear.
    """
    operand = unit.operands[0]
    call = Call(inputs=(operand.codes, *unit.settings), attrs=unit.attrs, opset=unit.opset, op=unit.function)
    axes = _resized_axes(call, operand.codes)
    if sums.columns == "real-lerp":
        value = np.asarray(operand.centred.astype(np.float32) * operand.scale.astype(np.float32))
        for axis in sorted(axes, reverse=True):
            value = _interpolate_by_difference(value, axis, _offset_taps(axes[axis]))
        return Columns(sums=sums, values=(value,), shape=value.shape)
    value = _interpolate_axes(operand.codes, axes, sums.columns)
    if sums.columns.startswith("lerp"):
        value = value - operand.zero_point.astype(np.float32)
    return Columns(sums=sums, values=(value,), shape=value.shape)


def resize_like_onnxruntime(call: Call, x: np.ndarray) -> np.ndarray | None:
    """Resize codes as ONNX Runtime does: in float32 in the plane of the last two axes, else with 10-bit weights.

    Returns:
        Codes, truncated; None if the resize is not bilinear.
    """
    try:
        axes = _resized_axes(call, x)
    except ValueError:
        return None
    has_inner_axis = any(axis < x.ndim - _PLANE for axis in axes)
    value = _interpolate_axes(x, axes, "blend10" if has_inner_axis else "blend32")
    integers = shift_right(value, FRACTION_BITS["blend10"], "trunc") if has_inner_axis else np.trunc(value)
    return np.asarray(integers.astype(x.dtype))


def is_bilinear(unit: Unit) -> bool:
    """Return whether a resize interpolates between codes."""
    x = unit.operands[0].codes
    try:
        _resized_axes(Call(inputs=(x, *unit.settings), attrs=unit.attrs, opset=unit.opset, op=unit.function), x)
    except (ValueError, KernelError):
        return False
    return True


def _resized_axes(call: Call, x: np.ndarray) -> dict[int, _ResizedAxis]:
    """Return the resized axes.

    Raises:
        ValueError: The resize is not bilinear.
    """
    mode = call.text("coordinate_transformation_mode", "half_pixel") if call.opset >= 11 else "asymmetric"
    modes = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
    if call.text("mode", "nearest") != "linear" or call.integer("antialias") or mode not in modes:
        raise ValueError("codes are interpolated only between neighbours")
    axes = {
        axis: _ResizedAxis(size=x.shape[axis], out=out, factor=factor, mode=mode)
        for axis, factor, out in zip(*resized_axes(call, x), strict=True)
        if out != x.shape[axis] or factor != 1
    }
    if len(axes) > _PLANE:
        raise ValueError("codes are interpolated along two axes at most")
    return axes


def _interpolate_axes(codes: np.ndarray, axes: Mapping[int, _ResizedAxis], columns: str) -> np.ndarray:
    bits = FRACTION_BITS.get(columns)
    value = codes.astype(np.float32 if bits is None else np.int64)
    if columns == "blend32":
        return _sum_by_products(value, axes)
    if columns in ("corners32", "weights32"):
        return _sum_of_corners(value, axes, products=columns == "weights32")
    for axis in sorted(axes, reverse=True):
        value = _blend_neighbours(value, axis, _TAPS[columns](axes[axis]), fma=columns == "lerp-fma")
    return value if bits is None else np.left_shift(value, (_PLANE - len(axes)) * (bits // _PLANE))


def resized_axes(call: Call, x: np.ndarray) -> tuple[list[int], list[float], list[int]]:
    """Return the resized axes, their scales and their new sizes."""
    axes_attribute = call.integers("axes")
    axes = (
        [normalize_axis(axis, x.ndim) for axis in axes_attribute] if axes_attribute is not None else list(range(x.ndim))
    )
    if len(set(axes)) < len(axes):
        raise ValueError(f"axes {axes} are not all different")
    scales_position = 1 if call.op == "Upsample" or call.opset < 11 else 2
    scales_input = (
        call.attrs.get("scales") if call.opset < 9 and call.op == "Upsample" else call.optional(scales_position)
    )
    if scales_input is not None and np.asarray(scales_input).size:
        scales = [float(scale) for scale in np.asarray(scales_input).reshape(-1)]
        extents = [np.float32(x.shape[axis]) for axis in axes]  # runtimes multiply by the float32 scales in float32
        return axes, scales, [int(extent * np.float32(scale)) for extent, scale in zip(extents, scales, strict=True)]
    sizes = [int(n) for n in call.array(3).reshape(-1)]
    scales = [n / x.shape[axis] for axis, n in zip(axes, sizes, strict=True)]
    policy = call.text("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        scale = (min if policy == "not_larger" else max)(scales)
        scales = [scale] * len(axes)
        sizes = [int(np.floor(scale * x.shape[axis] + 0.5)) for axis in axes]
    return axes, scales, sizes


def _blend_neighbours(values: np.ndarray, axis: int, taps: _Taps, *, fma: bool) -> np.ndarray:
    across = [1] * values.ndim
    across[axis] = -1
    below, above = (weight.astype(values.dtype).reshape(across) for weight in (taps.below, taps.above))
    low, high = np.take(values, taps.low, axis) * below, np.take(values, taps.high, axis)
    return fused_multiply_add(high, above, np.asarray(low)) if fma else np.asarray(low + high * above)


def _sum_by_products(values: np.ndarray, axes: Mapping[int, _ResizedAxis]) -> np.ndarray:
    """Sum the four neighbours, each multiplied by the product of its two weights.

    If fewer than two axes are resized, the last remaining axes complete the plane.
    """
    other_axes = [axis for axis in reversed(range(values.ndim)) if axis not in axes]
    plane = sorted([*axes, *other_axes][:_PLANE])
    if len(plane) < _PLANE:
        return _blend_neighbours(values, 0, _distance_taps(axes[0]), fma=False) if axes else values
    down, across = (
        _distance_taps(
            axes.get(axis) or _ResizedAxis(size=values.shape[axis], out=values.shape[axis], factor=1.0, mode="")
        )
        for axis in plane
    )
    total = np.zeros((), np.float32)
    for row, by_row in ((down.low, down.below), (down.high, down.above)):
        for column, by_column in ((across.low, across.below), (across.high, across.above)):
            weight = _shape_along(by_row, plane[0], values.ndim) * _shape_along(by_column, plane[1], values.ndim)
            total = total + np.take(np.take(values, row, plane[0]), column, plane[1]) * weight
    return np.asarray(total)


def _sum_of_corners(values: np.ndarray, axes: Mapping[int, _ResizedAxis], *, products: bool) -> np.ndarray:
    """Sum the four neighbours, each multiplied by its two weights in sequence or by their product.

    Neighbours are added column by column, or row by row if weights are multiplied first. Source: ResizeBilinear of
    uint8 in TensorFlow Lite (kernels/internal/reference/reference_ops.h, optimized/optimized_ops.h).
    """
    other_axes = [axis for axis in reversed(range(values.ndim)) if axis not in axes]
    plane = sorted([*axes, *other_axes][:_PLANE])
    if len(plane) < _PLANE:
        return _blend_neighbours(values, 0, _floor_taps(axes[0]), fma=False) if axes else values
    down, across = (
        _floor_taps(
            axes.get(axis) or _ResizedAxis(size=values.shape[axis], out=values.shape[axis], factor=1.0, mode="")
        )
        for axis in plane
    )
    ends = [(down.low, down.below), (down.high, down.above)], [(across.low, across.below), (across.high, across.above)]
    corners = product(*ends) if products else ((row, column) for column, row in product(*reversed(ends)))
    total: np.ndarray | None = None
    for (row, by_row), (column, by_column) in corners:
        corner_values = np.take(np.take(values, row, plane[0]), column, plane[1])
        row_weight, column_weight = (
            _shape_along(by_row, plane[0], values.ndim),
            _shape_along(by_column, plane[1], values.ndim),
        )
        term = corner_values * (row_weight * column_weight) if products else corner_values * row_weight * column_weight
        total = term if total is None else total + term
    return values if total is None else total


def _interpolate_by_difference(values: np.ndarray, axis: int, taps: _Taps) -> np.ndarray:
    """Compute low + (high - low) * weight. Source: XNNPACK, f32-ibilinear."""
    low, high = np.take(values, taps.low, axis), np.take(values, taps.high, axis)
    return np.asarray(low + (high - low) * _shape_along(taps.above, axis, values.ndim))


def _shape_along(weights: np.ndarray, axis: int, ndim: int) -> np.ndarray:
    across = [1] * ndim
    across[axis] = -1
    return weights.astype(np.float32).reshape(across)


def _grid_taps(resized: _ResizedAxis) -> _Taps:
    """Place outputs on a grid of 1024 steps per pixel, with the ratio rounded to whole steps."""
    shared_end = int(resized.aligns_corners)
    ratio = (1024 * (resized.size - shared_end) + (resized.out - shared_end) // 2) // (resized.out - shared_end)
    coordinates = np.arange(resized.out, dtype=np.int64) * ratio + (
        ratio // 2 - 512 if resized.has_half_pixel_centers else 0
    )
    # An output before the first pixel has that pixel as both neighbours, so its weights do not matter.
    low = np.maximum(coordinates >> 10, 0)
    high = np.minimum((coordinates + 1023) >> 10, resized.size - 1)
    return _Taps(
        low=low, high=np.maximum(high, 0), below=1024 - (coordinates - 1024 * low), above=coordinates - 1024 * low
    )


def _positions(resized: _ResizedAxis) -> np.ndarray:
    """Return the input position of each output in float32, by ONNX's formulas, which divide by the factor."""
    coordinates = np.arange(resized.out, dtype=np.float32)
    if resized.factor == 1:
        return coordinates
    if resized.mode == "align_corners":
        return coordinates * np.float32(resized.size - 1) / np.float32(max(resized.out - 1, 1))
    factor = np.float32(resized.factor)
    if resized.mode == "pytorch_half_pixel" and not resized.has_half_pixel_centers:
        return np.zeros_like(coordinates)
    return (coordinates + _HALF) / factor - _HALF if resized.has_half_pixel_centers else coordinates / factor


def _distance_taps(resized: _ResizedAxis) -> _Taps:
    """Weight both neighbours by their distances, or equally if they are the same pixel."""
    coordinates = np.clip(_positions(resized), np.float32(0), np.float32(resized.size - 1))
    low = coordinates.astype(np.int64)
    high = np.minimum(low + 1, resized.size - 1)
    is_same_pixel = low == high
    below, above = np.abs(coordinates - high.astype(np.float32)), np.abs(coordinates - low.astype(np.float32))
    return _Taps(
        low=low, high=high, below=np.where(is_same_pixel, _HALF, below), above=np.where(is_same_pixel, _HALF, above)
    )


def _truncated_taps(resized: _ResizedAxis) -> _Taps:
    """Truncate the upper weight to 10 bits."""
    taps = _distance_taps(resized)
    above = (taps.above * np.float32(1024)).astype(np.int64)
    return _Taps(low=taps.low, high=taps.high, below=1024 - above, above=above)


def _rounded_taps(resized: _ResizedAxis) -> _Taps:
    """Round the upper weight to 11 bits."""
    taps = _offset_taps(resized)
    above = np.rint(taps.above * np.float32(2048)).astype(np.int64)
    return _Taps(low=taps.low, high=taps.high, below=2048 - above, above=above)


def _floor_taps(resized: _ResizedAxis) -> _Taps:
    """Place outputs by the ratio. An output before the first pixel has that pixel as both neighbours."""
    coordinates = np.arange(resized.out, dtype=np.float32)
    coordinates = (
        (coordinates + _HALF) * resized.ratio() - _HALF
        if resized.has_half_pixel_centers
        else coordinates * resized.ratio()
    )
    low = np.maximum(np.floor(coordinates).astype(np.int64), 0)
    high = np.minimum(np.ceil(coordinates).astype(np.int64), resized.size - 1)
    above = coordinates - low.astype(np.float32)
    return _Taps(low=low, high=high, below=np.float32(1) - above, above=above)


def _offset_taps(resized: _ResizedAxis) -> _Taps:
    """Place outputs by the ratio, with the half-pixel offset added as one constant. Source: XNNPACK, indirection.c."""
    ratio = resized.ratio()
    coordinates = np.arange(resized.out, dtype=np.float32) * ratio
    if resized.has_half_pixel_centers:
        coordinates = np.clip(coordinates + (_HALF * ratio - _HALF), np.float32(0), np.float32(resized.size - 1))
    low = coordinates.astype(np.int64)
    above = coordinates - low.astype(np.float32)
    return _Taps(low=low, high=np.minimum(low + 1, resized.size - 1), below=np.float32(1) - above, above=above)


def _product_taps(resized: _ResizedAxis, *, fma: bool = False) -> _Taps:
    """Place outputs by the ratio, in float32, and clamp them at the first pixel."""
    ratio = np.float32(0) if resized.mode == "align_corners" and resized.out == 1 else resized.ratio()
    coordinates = np.arange(resized.out, dtype=np.float32)
    if resized.has_half_pixel_centers:
        middle = coordinates + _HALF
        coordinates = (
            fused_multiply_add(middle, np.asarray(ratio), np.asarray(-_HALF)) if fma else ratio * middle - _HALF
        )
        coordinates = np.maximum(coordinates, np.float32(0))
    else:
        coordinates = ratio * coordinates
    low = np.minimum(coordinates.astype(np.int64), resized.size - 1)
    above = coordinates - low.astype(np.float32)
    return _Taps(low=low, high=np.minimum(low + 1, resized.size - 1), below=np.float32(1) - above, above=above)


_TAPS: Mapping[str, Callable[[_ResizedAxis], _Taps]] = MappingProxyType(
    {
        "grid10": _grid_taps,
        "blend10": _truncated_taps,
        "blend11": _rounded_taps,
        "rows32": _distance_taps,
        "lerp": _product_taps,
    }
    | {"lerp-fma": partial(_product_taps, fma=True)}
)
