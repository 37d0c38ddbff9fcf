"""Float convolutions: Conv, ConvTranspose and the fused form of ONNX Runtime."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from qdebug.numerics.checkpoint import checkpoint
from qdebug.replay.extents import Cost, Shape
from qdebug.replay.kernels.activation import apply_fused_activation
from qdebug.replay.precision import compute_dtype, narrow, widen
from qdebug.replay.registry import Call, kernel
from qdebug.replay.windows import convolve, window_of

__all__ = ["add_bias", "conv_cost", "conv_transpose", "convolution"]


def conv_cost(call: Call, x: Shape, weight: Shape) -> Cost:
    """Estimate the cost of convolving x (N, C, *extent) with w (M, C / group, *kernel)."""
    window = window_of(call, x[2:], call.integers("kernel_shape") or weight[2:])
    taps, out = prod(window.kernel), prod(window.out)
    columns = x[0] * x[1] * (prod(window.covered) + taps * out)
    return Cost(x[0] * weight[0] * out, columns, x[0] * taps)


def _conv_cost(call: Call) -> Cost:
    return conv_cost(call, call.shape(0), call.shape(1))


def convolution(call: Call) -> np.ndarray:
    """Convolve x (N, C, *extent) with w (M, C / group, *kernel), and add b (M,) if given."""
    x, weight, bias = call.array(0), call.array(1), call.optional(2)
    dtype = compute_dtype(x.dtype)
    window = window_of(call, x.shape[2:], call.integers("kernel_shape") or weight.shape[2:])
    out = convolve(widen(x), weight.astype(dtype, copy=False), window, call.integer("group", 1))
    return narrow(add_bias(out, bias), x.dtype)


kernel("Conv", cost=_conv_cost, ranks=(3, 3))(convolution)


@kernel("FusedConv", domain="com.microsoft", cost=_conv_cost, ranks=(3, 3))
def _fused_conv(call: Call) -> np.ndarray:
    """Convolve, add the tensor of input 3 if given, and apply the attribute `activation`."""
    out = convolution(call)
    summand = call.optional(3)
    if summand is not None:
        out = out + summand
    return apply_fused_activation(call, out)


def add_bias(out: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Add a bias (M,) to out (N, M, ...) in place. Return out."""
    if bias is not None:
        out += bias.astype(out.dtype, copy=False).reshape(-1, *(1,) * (out.ndim - 2))
    return out


def _transposed_geometry(call: Call) -> tuple[tuple[int, ...], tuple[int, ...], list[int], list[int], list[int]]:
    """Return strides, dilations, the crop before the first output, the output sizes, and the sizes before cropping."""
    extent, kernel_shape = call.shape(0)[2:], call.shape(1)[2:]
    strides = call.integers("strides") or (1,) * len(extent)
    dilations = call.integers("dilations") or (1,) * len(extent)
    extra = call.integers("output_padding") or (0,) * len(extent)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel_shape, dilations, strict=True)]
    full = [(size - 1) * s + span + e for size, s, span, e in zip(extent, strides, spans, extra, strict=True)]
    begin, out = _transposed_crop(call, extent, strides, full)
    return strides, dilations, begin, out, [max(f, b + o) for f, b, o in zip(full, begin, out, strict=True)]


def _transposed_conv_cost(call: Call) -> Cost:
    """Estimate the cost of a transposed convolution."""
    x, weight = call.shape(0), call.shape(1)
    _, _, _, out, reach = _transposed_geometry(call)
    filters, taps = call.integer("group", 1) * weight[1], prod(weight[2:])
    passed = x[0] * filters * (prod(reach) + taps * prod(x[2:]))
    return Cost(x[0] * filters * prod(out), passed, x[0] * taps)


def conv_transpose(call: Call) -> np.ndarray:
    """Spread x (N, C, *extent) through w (C, M / group, *kernel), the gradient of Conv, and add b (M,) if given."""
    x, weight, bias = call.array(0), call.array(1), call.optional(2)
    dtype = compute_dtype(x.dtype)
    groups, kernel_shape = call.integer("group", 1), weight.shape[2:]
    strides, dilations, begin, out_shape, reach = _transposed_geometry(call)
    samples, channels = x.shape[:2]
    if weight.shape[0] != channels:
        raise ValueError(f"filters of {weight.shape[0]} channels do not fit an input of {channels} channels")
    per_group = weight.shape[1]
    matrix = weight.astype(dtype, copy=False).reshape(groups, channels // groups, -1).transpose(0, 2, 1)
    total = np.zeros((samples, groups * per_group, *reach), dtype=dtype)
    for sample in range(samples):
        spread = np.matmul(matrix, widen(x[sample]).reshape(groups, channels // groups, -1))
        spread = spread.reshape(groups * per_group, -1, *x.shape[2:])
        for tap, taps in enumerate(np.ndindex(*kernel_shape)):
            checkpoint()
            output_slices: tuple[Any, ...] = tuple(
                slice(t * d, t * d + (size - 1) * s + 1, s)
                for t, d, s, size in zip(taps, dilations, strides, x.shape[2:], strict=True)
            )
            total[sample][(..., *output_slices)] += spread[:, tap]
    inside: tuple[Any, ...] = (..., *(slice(b, b + o) for b, o in zip(begin, out_shape, strict=True)))
    return narrow(add_bias(np.ascontiguousarray(total[inside]), bias), x.dtype)


kernel("ConvTranspose", cost=_transposed_conv_cost, ranks=(3, 3), kinds=("biuf",))(conv_transpose)


def _transposed_crop(
    call: Call, extent: tuple[int, ...], strides: tuple[int, ...], full: list[int]
) -> tuple[list[int], list[int]]:
    """Return the crop before the first output, and the output sizes."""
    axes = len(extent)
    output_shape = call.integers("output_shape")
    mode = call.text("auto_pad", "NOTSET") or "NOTSET"
    if output_shape is None and mode in ("NOTSET", "VALID"):
        pads = (call.integers("pads") if mode == "NOTSET" else None) or (0,) * (2 * axes)
        begin = list(pads[:axes])
        return begin, [f - b - e for f, b, e in zip(full, begin, pads[axes:], strict=True)]
    sizes = (
        list(output_shape[-axes:])
        if output_shape is not None
        else [n * s for n, s in zip(extent, strides, strict=True)]
    )
    total = [max(f - size, 0) for f, size in zip(full, sizes, strict=True)]
    # The operator's definition puts the odd element after the output for SAME_UPPER, before it otherwise.
    return [t // 2 if mode == "SAME_UPPER" else t - t // 2 for t in total], sizes
