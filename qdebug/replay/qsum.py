"""The heavy part of convolutions and matrix products: exact integer sums, and sums limited to 16 bits.

Exact sums use floating-point BLAS. Sums of integer products are exact in any order and with fused operations as long as
every partial sum fits the integers of the float type, so a float32 or float64 matrix product gives the integer
accumulator bit for bit, many times faster than numpy's integer product.

Pair sums: processors without an 8-bit dot product multiply an unsigned by a signed byte and add two neighbouring
products in a 16-bit lane, where vpmaddubsw of x86 saturates and smull, smlal of ARM wrap around. Zero points are
subtracted from the sums afterwards. The loss in the lanes is computed here and subtracted from exact sums. Most pairs
lose nothing and are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np

from qdebug.numerics.fixedpoint import round_values, shift_right, wrap_to
from qdebug.replay.columns import Columns, HeavyPart
from qdebug.replay.kernels.conv import conv_transpose
from qdebug.replay.precision import integer_limits
from qdebug.replay.registry import Call
from qdebug.replay.scaling import fixed_multiplier, scales_of, sum_scale
from qdebug.replay.unit import Unit
from qdebug.replay.windows import Window, convolve, pad_for_window, window_of

__all__ = [
    "as_int32",
    "convolve_codes",
    "exact_dtype",
    "loss_of_pair_sums",
    "loss_of_saturated_sums",
    "multiply_matrices",
    "saturate",
    "shift_to_unsigned",
    "subtract_zero_point",
    "sum_bound",
]


def exact_dtype(bound: float) -> np.dtype:
    """Return the fastest dtype that holds integer sums of magnitude up to `bound` exactly."""
    return np.dtype(np.float32 if bound < 2.0**24 else np.float64 if bound < 2.0**53 else np.int64)


def subtract_zero_point(codes: np.ndarray, zero_point: np.ndarray | None) -> np.ndarray:
    """Subtract a zero point that broadcasts to the codes, in int32. Codes of at most 16 bits cannot overflow."""
    wide = codes.astype(np.int32)
    if zero_point is not None and np.any(zero_point):
        wide -= zero_point.astype(np.int32)
    return wide


def sum_bound(left: np.ndarray, right: np.ndarray, axes: tuple[int, ...], extra: np.ndarray | None = None) -> float:
    """Bound the magnitude of every partial sum of products.

    Args:
        left: First factor; only its largest magnitude is used.
        right: Second factor; its magnitudes are summed over `axes`.
        axes: The summed axes of `right`.
        extra: Added to the sums, such as a bias.
    """
    largest = max(abs(int(left.max(initial=0))), abs(int(left.min(initial=0))))
    weights = float(np.abs(right).sum(axis=axes, dtype=np.int64).max(initial=0))
    added = 0.0 if extra is None else float(np.abs(extra.astype(np.int64)).max(initial=0))
    return weights * largest + added


def as_int32(sums: np.ndarray) -> np.ndarray:
    """Return exact integer sums as int32, wrapped around as in hardware."""
    return sums.astype(np.int64).astype(np.int32)


def saturate(rounded: np.ndarray, zero_point: np.ndarray) -> np.ndarray:
    """Add a zero point to whole numbers and clamp them to its dtype. NaN becomes the lowest code.

    Args:
        rounded: Whole numbers in a float dtype; overwritten.
        zero_point: A scalar, or an array that broadcasts.
    """
    low, high = integer_limits(zero_point.dtype)
    if np.any(zero_point):
        offset = zero_point.astype(rounded.dtype)
        # Clamp before adding the zero point, since a float32 sum beyond 2**24 would not be exact.
        np.fmin(np.fmax(rounded, low - offset, out=rounded), high - offset, out=rounded)
        rounded += offset
    else:
        np.fmin(np.fmax(rounded, low, out=rounded), high, out=rounded)
    return rounded.astype(zero_point.dtype)


_INT16_LIMITS = (-(2**15), 2**15 - 1)


def shift_to_unsigned(codes: np.ndarray, zero_point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shift int8 codes and their zero point by 128 to the range of uint8, as x86 kernels do. Keep uint8 codes."""
    shift = 128 if codes.dtype == np.int8 else 0
    return codes.astype(np.int32) + shift, zero_point.astype(np.int32) + shift


def loss_of_pair_sums(columns: np.ndarray, weights: np.ndarray, accumulate: str) -> np.ndarray:
    """Return how much sums of products lose because each sum of two neighbouring products is limited to 16 bits.

    Args:
        columns: Codes (K, P) of one operand, in the order of the pairs.
        weights: Codes (M, K) of the other operand.
        accumulate: `pairsat16:ORDER` or `pairwrap16:ORDER`, followed by the distance of partners unless it is 1.

    Returns:
        Exact sums minus limited sums (M, P), int64.
    """
    kind, _, *fields = accumulate.split(":")
    distance = int(fields[0]) if fields else 1
    first, second = _pair_indices(weights.shape[1], distance)
    x, w = _with_zero(columns, axis=0), _with_zero(weights, axis=1)
    lost = np.zeros((weights.shape[0], columns.shape[1]), dtype=np.int64)
    ends = np.stack([w * x.min(axis=1, initial=0), w * x.max(axis=1, initial=0)])
    low, high = ends.min(axis=0), ends.max(axis=0)
    low, high = low[:, first] + low[:, second], high[:, first] + high[:, second]
    reach = (low < _INT16_LIMITS[0]) | (high > _INT16_LIMITS[1])
    for pair in np.flatnonzero(reach.any(axis=0)):
        a, b, rows = first[pair], second[pair], np.flatnonzero(reach[:, pair])
        total = w[rows, a][:, None] * x[a][None] + w[rows, b][:, None] * x[b][None]
        limited = np.clip(total, *_INT16_LIMITS) if kind == "pairsat16" else total.astype(np.int16)
        lost[rows] += total - limited
    return lost


def loss_of_saturated_sums(columns: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return how much sums of products lose because they saturate at 16 bits after each product.

    Args:
        columns: Centered codes (K, P) of one operand, in the order of the products.
        weights: Centered codes (M, K) of the other operand.

    Returns:
        Exact sums minus limited sums (M, P), int64.
    """
    limited = np.zeros((weights.shape[0], columns.shape[1]), dtype=np.int64)
    exact = np.zeros_like(limited)
    for row, factor in zip(columns, weights.T, strict=True):
        product = factor[:, None] * row[None]
        exact += product
        limited += product
        np.clip(limited, *_INT16_LIMITS, out=limited)
    return exact - limited


def _pair_indices(depth: int, distance: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of both elements of each pair.

    The index `depth` stands for the zero that pads an odd depth.
    """
    padded_depth = -(-depth // (2 * distance)) * 2 * distance
    indices = np.minimum(np.arange(padded_depth), depth).reshape(-1, 2, distance)
    return indices[:, 0].reshape(-1), indices[:, 1].reshape(-1)


def _with_zero(array: np.ndarray, axis: int) -> np.ndarray:
    shape = list(array.shape)
    shape[axis] = 1
    return np.concatenate([array, np.zeros(shape, array.dtype)], axis=axis)


_SINGLE_END, _INT32_END = 2.0**24, 2.0**31
_MAX_PARTS = 4


def _window(unit: Unit) -> Window:
    x, weight = unit.operands[0].codes, unit.operands[1].codes
    call = Call(inputs=(), attrs=unit.attrs, opset=unit.opset, op=unit.op)
    return window_of(call, x.shape[2:], call.integers("kernel_shape") or weight.shape[2:])


def _bias(unit: Unit, sums: HeavyPart) -> np.ndarray | None:
    """Return the integer bias of the sums, if any.

    A real bias is divided by the scale of the sums and rounded to even. An integer bias with its own scale is rescaled
    to the scale of the sums: in float32 with ties away from zero, as in Glow's interpreter, or with integers, as in
    Glow's compiler.
    """
    if unit.bias is None or sums.bias in ("float", "none"):
        return None
    if unit.bias.dtype.kind in "iu" and unit.bias_scale is None:
        return unit.bias
    scale = sum_scale(scales_of(unit)).reshape(-1)
    if unit.bias_scale is None:
        return np.asarray(np.rint(unit.bias.astype(np.float32) / scale)).astype(np.int64)
    ratio = np.asarray(unit.bias_scale.astype(np.float32).reshape(-1) / scale, dtype=np.float32)
    if sums.bias == "glow":
        fixed_ratio = fixed_multiplier(ratio, "glow")
        product = wrap_to(shift_right(unit.bias, fixed_ratio.pre) * fixed_ratio.multiplier, 32)
        return shift_right(product, -fixed_ratio.exponent, "up")
    return round_values(unit.bias.astype(np.float32) * ratio, "away").astype(np.int64)


def convolve_codes(unit: Unit, sums: HeavyPart) -> Columns:
    """Convolve the centered codes of operand 0 (N, C, *extent) with the centered codes of operand 1."""
    x, weight = unit.operands[0].centred, unit.operands[1].centred
    bias = _bias(unit, sums)
    # A transposed convolution sums over the first axis of its weight and, for the bound, over all taps.
    axes = (0, *range(2, weight.ndim)) if unit.transposed else tuple(range(1, weight.ndim))
    groups = unit.groups
    window = None if unit.transposed else _window(unit)

    def product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        if window is None:
            return conv_transpose(Call(inputs=(left, right), attrs=unit.attrs, opset=unit.opset, op=unit.op))
        return convolve(left, right, window, groups)

    split = 1 if groups == 1 and not unit.transposed else None
    total, bound = _sum_products(product, (x, weight), axes, (split, split))
    if sums.accumulate.startswith(("pair", "sat16:")):
        total = total - _convolution_loss(unit, sums).reshape(total.shape)
    if bias is not None:
        bias = bias.reshape(-1, *(1,) * (total.ndim - 2))
    return _make_columns(sums, total, bias, bound)


def _sum_products(
    product: Callable[[np.ndarray, np.ndarray], np.ndarray],
    operands: tuple[np.ndarray, np.ndarray],
    axes: tuple[int, ...],
    split: tuple[int | None, int | None],
) -> tuple[np.ndarray, float]:
    """Sum products exactly and fast, and return a bound for the sums.

    Float32 is exact while no sum can reach 2**24. Somewhat deeper sums are split into a few such parts and added in
    int32, since float64 takes twice as long.

    Args:
        product: Sums the products of two arrays in their dtype.
        operands: Both arrays, as whole numbers.
        axes: The summed axes of the second array.
        split: The axis of each array along which the depth may be split; None if it may not be split.
    """
    left, right = operands
    bound = sum_bound(left, right, axes)
    count = int(bound // _SINGLE_END) + 1
    left_axis, right_axis = split
    if 1 < count <= _MAX_PARTS and left_axis is not None and right_axis is not None:
        pairs = list(zip(np.array_split(left, count, left_axis), np.array_split(right, count, right_axis), strict=True))
        if all(sum_bound(a, b, axes) < _SINGLE_END for a, b in pairs):
            parts = (product(a.astype(np.float32), b.astype(np.float32)).astype(np.int32) for a, b in pairs)
            return np.asarray(reduce(np.add, parts)), bound
    dtype = exact_dtype(bound)
    return product(left.astype(dtype), right.astype(dtype)), bound


def _convolution_loss(unit: Unit, sums: HeavyPart) -> np.ndarray:
    """Return how much the sums (N, M, *out) of a convolution lose in 16 bits.

    The depth is ordered by taps first within a group (chw: channels first). With `tap`, channels are padded with zeros
    to an even number, and taps in the padding are left out, as in oneDNN's convolutions on AVX2.
    """
    if unit.transposed:
        raise ValueError("the order of the products of a transposed convolution is not known")
    x, zero = shift_to_unsigned(unit.operands[0].codes, unit.operands[0].zero_point)
    if "wrap" in sums.accumulate:
        x, zero = unit.operands[0].codes.astype(np.int32), unit.operands[0].zero_point.astype(np.int32)
    weight, window = unit.operands[1].codes.astype(np.int32), _window(unit)
    if sums.accumulate.startswith("sat16:"):
        x, zero, weight = unit.operands[0].centred, np.zeros((), np.int32), unit.operands[1].centred
    groups = unit.groups
    source = pad_for_window(x, window, 0 if ":tap" in sums.accumulate else int(zero.reshape(-1)[0]))
    taps = np.stack([source[tap_index] for tap_index in window.taps()], axis=2)
    taps = taps.reshape(x.shape[0], groups, x.shape[1] // groups, -1, int(np.prod(window.out)))
    matrix = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1)
    if ":tap" in sums.accumulate and matrix.shape[2] % 2:
        taps, matrix = _with_zero(taps, axis=2), _with_zero(matrix, axis=2)
    if ":chw" not in sums.accumulate:
        taps, matrix = np.swapaxes(taps, 2, 3), np.swapaxes(matrix, 2, 3)
    depth = matrix.shape[2] * matrix.shape[3]
    positions = np.moveaxis(taps, 0, -2)  # samples next to positions, to merge both axes
    lost = [
        _loss_of_limited_sums(
            positions[group].reshape(depth, -1), matrix[group].reshape(matrix.shape[1], depth), sums.accumulate
        )
        for group in range(groups)
    ]
    return np.moveaxis(np.stack(lost).reshape(groups, matrix.shape[1], x.shape[0], -1), 2, 0)


def multiply_matrices(unit: Unit, sums: HeavyPart) -> Columns:
    """Multiply the centered codes of operand 0 (..., M, K) by the centered codes of operand 1 (..., K, N)."""
    a, b = unit.operands[0].centred, unit.operands[1].centred
    if not a.ndim or not b.ndim or a.shape[-1] != b.shape[max(b.ndim - 2, 0)]:
        raise ValueError(f"shapes {a.shape} and {b.shape} do not fit one another")
    bias = _bias(unit, sums)
    total, bound = _sum_products(np.matmul, (a, b), (max(b.ndim - 2, 0),), (a.ndim - 1, max(b.ndim - 2, 0)))
    if sums.accumulate.startswith(("pair", "sat16:")):
        total = total - _product_loss(unit, sums, total.shape)
    return _make_columns(sums, total, bias, bound)


def _product_loss(unit: Unit, sums: HeavyPart, shape: tuple[int, ...]) -> np.ndarray:
    """Return how much the sums of a matrix product lose in 16 bits."""
    left = unit.operands[0].codes.astype(np.int32)
    if "wrap" not in sums.accumulate:
        left, _ = shift_to_unsigned(unit.operands[0].codes, unit.operands[0].zero_point)
    right = unit.operands[1].codes.astype(np.int32)
    if sums.accumulate.startswith("sat16:"):
        left, right = unit.operands[0].centred, unit.operands[1].centred
    left = np.broadcast_to(left, (*shape[:-2], *left.shape[-2:])).reshape(-1, *left.shape[-2:])
    right = np.broadcast_to(right, (*shape[:-2], *right.shape[-2:])).reshape(-1, *right.shape[-2:])
    return np.stack(
        [_loss_of_limited_sums(a.T, b.T, sums.accumulate).T for a, b in zip(left, right, strict=True)]
    ).reshape(shape)


def _loss_of_limited_sums(columns: np.ndarray, weights: np.ndarray, accumulate: str) -> np.ndarray:
    if accumulate.startswith("sat16:"):
        return loss_of_saturated_sums(columns, weights)
    return loss_of_pair_sums(columns, weights, accumulate)


def _make_columns(sums: HeavyPart, total: np.ndarray, bias: np.ndarray | None, bound: float) -> Columns:
    if bias is not None:
        bound += float(np.abs(bias.astype(np.int64)).max(initial=0))
        fits_int32 = total.dtype == np.int32 and bound < _INT32_END
        total = total + bias.astype(np.int32 if fits_int32 else np.promote_types(total.dtype, exact_dtype(bound)))
    if sums.accumulate == "sat16":
        total = np.clip(total, *_INT16_LIMITS)
    if sums.accumulate == "wrap16":
        total = wrap_to(total.astype(np.int64), 16)
    if sums.accumulate.startswith("pair"):  # the loss of pairs may move a sum beyond its bound
        bound = max(bound, float(np.abs(total).max(initial=0)))
    if sums.accumulate.startswith(("wrap32", "pair")) and bound >= _INT32_END:
        total, bound = as_int32(total), _INT32_END
    return Columns(sums=sums, values=(total,), shape=total.shape, bound=bound)
