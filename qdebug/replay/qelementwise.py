"""Quantized operators of ONNX Runtime (domain com.microsoft) that need no integer sums over channels.

Each follows the arithmetic that the runtime's own x86 kernels were measured to use, bit for bit where the
function is exact: see each kernel.
"""

from __future__ import annotations

import numpy as np

from qdebug.numerics.rounding import round_values
from qdebug.replay.activation import sigmoid, softmax
from qdebug.replay.integers import centred, requantize, saturate
from qdebug.replay.pool import counts, pool_window, window_sums
from qdebug.replay.registry import Call, kernel

__all__: list[str] = []

_DOMAIN = "com.microsoft"


def _scalar(call: Call, position: int) -> np.ndarray:
    return call.array(position).reshape(())


def _zero_point(call: Call, position: int, codes: np.ndarray) -> np.ndarray:
    """Give a zero point that may be left out, in the dtype of the codes it belongs to."""
    given = call.optional(position)
    return np.zeros((), codes.dtype) if given is None else given.reshape(())


def _real(codes: np.ndarray, scale: np.ndarray, zero_point: np.ndarray) -> np.ndarray:
    return np.asarray(centred(codes, zero_point).astype(np.float32) * scale.astype(np.float32))


def _codes(real: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, call: Call) -> np.ndarray:
    quotient = np.asarray(real / scale.astype(np.float32), dtype=np.float32)
    return saturate(round_values(quotient, call.arithmetic.rounding), zero_point)


def _codes_zero_point_inside(scaled: np.ndarray, zero_point: np.ndarray, call: Call) -> np.ndarray:
    """Add the zero point before rounding, which differs at ties if it is odd."""
    shifted = np.asarray(scaled + zero_point.astype(np.float32), dtype=np.float32)
    return saturate(round_values(shifted, call.arithmetic.rounding), np.zeros((), zero_point.dtype))


@kernel("QLinearAdd", domain=_DOMAIN)
def _add(call: Call) -> np.ndarray:
    """Compute round(fma(a, ra, fma(b, rb, zc - (ra za + rb zb)))) with ra = sa / sc and rb = sb / sc.

    The fused multiply-adds run in float64 and are rounded to float32: code times ratio is exact there.
    """
    a, b = call.array(0), call.array(3)
    zero_a, zero_b = _zero_point(call, 2, a), _zero_point(call, 5, b)
    zero = _zero_point(call, 7, a)
    out_scale = _scalar(call, 6).astype(np.float32)
    ratio_a, ratio_b = (_scalar(call, position).astype(np.float32) / out_scale for position in (1, 4))
    folded = np.float32(zero.astype(np.float32)) - (
        ratio_a * zero_a.astype(np.float32) + ratio_b * zero_b.astype(np.float32)
    )
    inner = (b.astype(np.float64) * ratio_b.astype(np.float64) + np.float64(folded)).astype(np.float32)
    total = (a.astype(np.float64) * ratio_a.astype(np.float64) + inner).astype(np.float32)
    return saturate(round_values(total, call.arithmetic.rounding), np.zeros((), a.dtype))


@kernel("QLinearMul", domain=_DOMAIN)
def _mul(call: Call) -> np.ndarray:
    """Compute round((a - za)(b - zb) * (sa sb / sc) + zc)."""
    a, b = call.array(0), call.array(3)
    product = centred(a, _zero_point(call, 2, a)) * centred(b, _zero_point(call, 5, b))
    scales = [_scalar(call, position).astype(np.float32) for position in (1, 4, 6)]
    scaled = product.astype(np.float32) * np.float32(scales[0] * scales[1] / scales[2])
    return _codes_zero_point_inside(scaled, _zero_point(call, 7, a), call)


@kernel("QLinearAveragePool", domain=_DOMAIN)
def _average_pool(call: Call) -> np.ndarray:
    """Average the real values (summed tap by tap), divide by the output scale, add the zero point, round."""
    x = call.array(0)
    last = bool(call.integer("channels_last"))
    real = _real(x, _scalar(call, 1), _zero_point(call, 2, x))
    real = np.moveaxis(real, -1, 1) if last else real
    window = pool_window(call, real.shape[2:])
    mean = window_sums(real, window) / counts(window, include_pad=bool(call.integer("count_include_pad")))
    out = _codes_zero_point_inside(mean / _scalar(call, 3).astype(np.float32), _zero_point(call, 4, x), call)
    return np.moveaxis(out, 1, -1) if last else out


@kernel("QLinearGlobalAveragePool", domain=_DOMAIN)
def _global_average_pool(call: Call) -> np.ndarray:
    """Sum the centred codes over space exactly, then requantize with sx / (sy * area)."""
    x = call.array(0)
    axes = tuple(range(1, x.ndim - 1)) if call.integer("channels_last") else tuple(range(2, x.ndim))
    area = int(np.prod([x.shape[axis] for axis in axes]))
    sums = centred(x, _zero_point(call, 2, x)).sum(axis=axes, keepdims=True, dtype=np.int64)
    factor = _scalar(call, 1).astype(np.float32) / (_scalar(call, 3).astype(np.float32) * np.float32(area))
    return requantize(sums, np.asarray(factor, dtype=np.float32), _zero_point(call, 4, x), call.arithmetic)


@kernel("QLinearSigmoid", "QLinearLeakyRelu", domain=_DOMAIN)
def _by_code(call: Call) -> np.ndarray:
    """Apply a function to the real value of each code: a table of all codes, looked up."""
    x = call.array(0)
    zero_point, out_zero = _zero_point(call, 2, x), _zero_point(call, 4, x)
    every = np.arange(256, dtype=np.uint8).view(x.dtype)
    real = _real(every, _scalar(call, 1), zero_point)
    if call.op == "QLinearSigmoid":
        real = sigmoid(real)
    else:
        real = np.where(real >= 0, real, real * np.float32(call.real("alpha", 0.01)))
    table = _codes(real, _scalar(call, 3), out_zero, call)
    return table[x.view(np.uint8)]


@kernel("QLinearConcat", domain=_DOMAIN)
def _concat(call: Call) -> np.ndarray:
    """Bring each input to the output's scale and zero point, then join along an axis."""
    scale, zero = _scalar(call, 0), call.array(1).reshape(())
    parts = []
    for position in range(2, len(call.inputs), 3):
        codes, own_scale, own_zero = call.array(position), _scalar(call, position + 1), _scalar(call, position + 2)
        same = own_scale == scale and own_zero == zero
        parts.append(codes if same else _codes(_real(codes, own_scale, own_zero), scale, zero, call))
    return np.concatenate(parts, axis=call.integer("axis"))


@kernel("QLinearWhere", domain=_DOMAIN)
def _where(call: Call) -> np.ndarray:
    """Choose between two tensors, each brought to the output's scale and zero point."""
    scale, zero = _scalar(call, 7), _scalar(call, 8)
    sides = [
        _codes(_real(call.array(i), _scalar(call, i + 1), _scalar(call, i + 2)), scale, zero, call) for i in (1, 4)
    ]
    return np.where(call.array(0), sides[0], sides[1])


@kernel("QLinearSoftmax", domain=_DOMAIN)
def _softmax(call: Call) -> np.ndarray:
    """Take the softmax of the real values and quantize it.

    The runtime looks up scaled exponentials instead, so that single codes may differ by one.
    """
    x = call.array(0)
    real = _real(x, _scalar(call, 1), _zero_point(call, 2, x))
    axis = call.integer("axis", -1)
    if call.integer("opset", 13) < 13:
        real = real.reshape(int(np.prod(x.shape[: axis % x.ndim], dtype=np.int64)), -1)
        axis = 1
    scale, zero_point = _scalar(call, 3), _zero_point(call, 4, x)
    return _codes(softmax(real, axis).reshape(x.shape), scale, zero_point, call)
