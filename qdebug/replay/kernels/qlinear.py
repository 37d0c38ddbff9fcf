"""Quantized operators on codes, computed as units, and integer sums of convolutions and matrix products."""

from __future__ import annotations

import numpy as np

from qdebug.replay.data_codes import quantize_data
from qdebug.replay.evaluate import accumulate, compute
from qdebug.replay.extents import Cost, product_cost
from qdebug.replay.kernels.activation import apply_fused_activation
from qdebug.replay.kernels.conv import add_bias, conv_cost
from qdebug.replay.kernels.linear import gemm_cost, gemm_rows, matmul_cost
from qdebug.replay.kernels.pool import pool_cost
from qdebug.replay.node_units import unit_of_call
from qdebug.replay.qsum import as_int32, exact_dtype, subtract_zero_point, sum_bound
from qdebug.replay.registry import Call, kernel
from qdebug.replay.unit import Operand, Target, Unit
from qdebug.replay.windows import convolve, window_of


def _convolve_centered(
    call: Call, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None
) -> tuple[np.ndarray, float]:
    """Convolve centered codes x and weight and add a bias. Also return a bound for the magnitude of the sums."""
    bound = sum_bound(x, weight, tuple(range(1, weight.ndim)), bias)
    dtype = exact_dtype(bound)
    window = window_of(call, x.shape[2:], call.integers("kernel_shape") or weight.shape[2:])
    sums = convolve(x.astype(dtype), weight.astype(dtype), window, call.integer("group", 1))
    return add_bias(sums, bias), bound


def _reshape_by_filter(values: np.ndarray | None, axes: int) -> np.ndarray | None:
    """Reshape one value, or one value per filter, to broadcast along axis 0 of `axes` axes."""
    if values is None or values.size == 1:
        return None if values is None else values.reshape(())
    return values.reshape(-1, *(1,) * (axes - 1))


def _channels_second_shape(call: Call) -> tuple[int, ...]:
    """Return the shape of the first input with channels moved to the second axis."""
    shape = call.shape(0)
    return (shape[0], shape[-1], *shape[1:-1]) if call.integer("channels_last") and len(shape) > 1 else shape


def _coded_conv_cost(call: Call) -> Cost:
    return conv_cost(call, _channels_second_shape(call), call.shape(3))


@kernel("QLinearConv", cost=_coded_conv_cost, ranks=(3, 0, 0, 3))
@kernel("QLinearConv", domain="com.microsoft", cost=_coded_conv_cost, ranks=(3, 0, 0, 3))
@kernel("QLinearMatMul", cost=lambda call: product_cost(call.shape(0), call.shape(3)))
def _compute_as_unit(call: Call) -> np.ndarray:
    """Compute the operator as a unit, by the variant that the arithmetic chooses."""
    unit = unit_of_call(call)
    if unit is None:
        raise ValueError("the operands do not form a quantized unit")
    return compute(unit, call.arithmetic.variant(unit))


_ONE = np.ones((), np.float32)


def _limited_sums(call: Call, kind: str, a: Operand, b: Operand) -> np.ndarray | None:
    """Sum products as the arithmetic does for codes of these types; None if it sums them exactly."""
    out = Target(dtype=a.codes.dtype, scale=_ONE, zero_point=np.zeros((), a.codes.dtype))
    unit = Unit(kind=kind, operands=(a, b), out=out, attrs=call.attrs, op=call.op)
    variant = call.arithmetic.variant(unit)
    return None if variant.limited_sums is None else accumulate(unit, variant.sums).values[0]


def _make_operand(codes: np.ndarray, zero_point: np.ndarray | None) -> Operand:
    return Operand(codes=codes, scale=_ONE, zero_point=np.zeros((), codes.dtype) if zero_point is None else zero_point)


@kernel(
    "ConvInteger",
    cost=lambda call: conv_cost(call, call.shape(0), call.shape(1)),
    ranks=(3, 3),
)
def _conv_integer(call: Call) -> np.ndarray:
    """Convolve codes into int32 accumulators."""
    x, weight = call.array(0), call.array(1)
    x_zero, w_zero = call.optional(2), _reshape_by_filter(call.optional(3), weight.ndim)
    x_zero = None if x_zero is None else x_zero.reshape(())
    sums = _limited_sums(call, "conv", _make_operand(x, x_zero), _make_operand(weight, w_zero))
    if sums is None:
        sums = _convolve_centered(call, subtract_zero_point(x, x_zero), subtract_zero_point(weight, w_zero), None)[0]
    return as_int32(sums)


def _multiply_centered(a: np.ndarray, b: np.ndarray, bias: np.ndarray | None = None) -> tuple[np.ndarray, float]:
    """Multiply matrices of centered codes and add a bias. Also return a bound for the magnitude of the sums."""
    bound = sum_bound(a, b, (max(b.ndim - 2, 0),), bias)
    dtype = exact_dtype(bound)
    sums = np.asarray(np.matmul(a.astype(dtype), b.astype(dtype)))
    return (sums if bias is None else sums + bias.astype(dtype)), bound


def _reshape_by_row(values: np.ndarray | None) -> np.ndarray | None:
    """Reshape one value, or one value per row, to broadcast to (..., rows, columns)."""
    if values is None or values.size == 1:
        return None if values is None else values.reshape(())
    return values.reshape(-1, 1) if values.ndim == 1 else values


def _reshape_by_column(values: np.ndarray | None) -> np.ndarray | None:
    """Reshape one value, or one value per column, to broadcast to (..., rows, columns)."""
    return values.reshape(()) if values is not None and values.size == 1 else values


def _multiply_codes(call: Call, a: Operand, b: Operand) -> np.ndarray:
    """Multiply matrices of codes, summing products as the arithmetic does."""
    sums = _limited_sums(call, "linear", a, b)
    return _multiply_centered(a.centred, b.centred)[0] if sums is None else sums


@kernel("MatMulInteger", cost=matmul_cost)
def _matmul_integer(call: Call) -> np.ndarray:
    """Multiply matrices of codes into int32 accumulators."""
    a = _make_operand(call.array(0), _reshape_by_row(call.optional(2)))
    return as_int32(_multiply_codes(call, a, _make_operand(call.array(1), _reshape_by_column(call.optional(3)))))


@kernel("QGemm", domain="com.microsoft", cost=lambda call: gemm_cost(call, call.shape(0), call.shape(3)))
def _qgemm(call: Call) -> np.ndarray:
    """Compute alpha A B + C on codes, with an int32 bias C at scale alpha sa sb; float32 without an output scale."""
    unit = unit_of_call(call)
    if unit is not None:
        return compute(unit, call.arithmetic.variant(unit))
    a, a_scale, a_zero, b, b_scale, b_zero = (call.array(i) for i in range(6))
    left = subtract_zero_point(a, a_zero.reshape(()))
    right = subtract_zero_point(b, (b_zero.reshape(-1) if call.integer("transB") == 0 else b_zero.reshape(-1, 1)))
    sums, _ = _multiply_centered(
        left.T if call.integer("transA") else left, right.T if call.integer("transB") else right, call.optional(6)
    )
    alpha = np.float32(call.real("alpha", 1.0))
    product = np.asarray(alpha * a_scale.reshape(-1) * b_scale.reshape(-1), dtype=np.float32)
    return np.asarray(np.multiply(sums, product, dtype=np.float32))


@kernel("MatMulIntegerToFloat", domain="com.microsoft", cost=matmul_cost, kinds=("", "", "f", "f"))
def _matmul_integer_to_float(call: Call) -> np.ndarray:
    """Multiply matrices of codes, scale the sums by sa sb, and add a float bias."""
    a_scale, b_scale, bias = call.array(2), call.array(3), call.optional(6)
    a = _make_operand(call.array(0), _reshape_by_row(call.optional(4)))
    b = _make_operand(call.array(1), _reshape_by_column(call.optional(5)))
    out = np.multiply(_multiply_codes(call, a, b), a_scale.reshape(-1) * b_scale.reshape(-1), dtype=np.float32)
    return np.asarray(out if bias is None else out + bias)


@kernel("DynamicQuantizeMatMul", domain="com.microsoft", cost=matmul_cost, kinds=("f", "", "f"))
def _dynamic_quantize_matmul(call: Call) -> np.ndarray:
    """Quantize a by its own range, multiply matrices of codes, scale the sums by sa sb, and add a float bias.

    Each row of a may have its own range, and an activation may follow. That is how TensorFlow Lite computes
    FULLY_CONNECTED on real data and a quantized weight (EvalHybridDense, tensorflow/lite/kernels/fully_connected.cc).
    """
    b_scale, bias = call.array(2), call.optional(4)
    x = gemm_rows(call, call.array(0), call.shape(1))
    codes, scale, zero_point = quantize_data(call.attrs, x)
    weight = _make_operand(call.array(1), _reshape_by_column(call.optional(3)))
    if codes.dtype.kind == "f":
        sums = np.asarray(np.matmul(codes, weight.centred.astype(codes.dtype)))
    else:
        sums = _multiply_codes(call, _make_operand(codes, np.asarray(zero_point)), weight)
    out = np.multiply(sums, scale * b_scale.reshape(-1), dtype=np.float32)
    return apply_fused_activation(call, np.asarray(out if bias is None else out + bias))


@kernel(
    "DynamicQuantizeConv",
    domain="com.microsoft",
    cost=lambda call: conv_cost(call, call.shape(0), call.shape(1)),
    ranks=(3, 3),
    kinds=("f", "", "f"),
)
def _dynamic_quantize_conv(call: Call) -> np.ndarray:
    """Quantize each sample by its own range, convolve, scale the sums, add a float bias, and apply an activation.

    Source: TensorFlow Lite, HybridConvPerChannel (kernels/internal/reference/conv.h) and hybrid_conv for a single
    scale.
    """
    x, weight, bias = call.array(0), call.array(1), call.optional(4)
    codes, scale, zero_point = quantize_data(call.attrs, x.reshape(len(x), -1))
    by_sample = (-1, *(1,) * (x.ndim - 1))
    data = np.asarray(codes.reshape(x.shape))
    if data.dtype.kind != "f":
        data = subtract_zero_point(data, zero_point.reshape(by_sample))
    axes = tuple(range(1, weight.ndim))
    dtype = np.dtype(np.float32) if data.dtype.kind == "f" else exact_dtype(sum_bound(data, weight, axes))
    window = window_of(call, x.shape[2:], call.integers("kernel_shape") or weight.shape[2:])
    groups = call.integer("group", 1)
    sums = convolve(data.astype(dtype), weight.astype(dtype), window, groups).astype(np.float32)
    factor, sample_scale = call.array(2).astype(np.float32).reshape(-1, *by_sample[2:]), scale.reshape(by_sample)
    # The order of the two products follows the optimized kernels.
    scaled = sums * (sample_scale * factor) if groups == 1 else (sums * factor) * sample_scale
    return apply_fused_activation(call, add_bias(scaled, bias))


_OPERATORS = (
    "QLinearAdd",
    "QLinearMul",
    "QLinearGlobalAveragePool",
    "QLinearReduceMean",
    "QLinearSigmoid",
    "QLinearLeakyRelu",
    "QLinearConcat",
    "QLinearWhere",
    "QLinearSoftmax",
)


@kernel("QLinearAveragePool", domain="com.microsoft", cost=lambda call: pool_cost(call, _channels_second_shape(call)))
@kernel(*_OPERATORS, domain="com.microsoft")
def _compute_elementwise_as_unit(call: Call) -> np.ndarray:
    """Compute the operator as a unit, by the variant that the arithmetic chooses."""
    unit = unit_of_call(call)
    if unit is None:
        raise ValueError("the operands do not form a quantized unit")
    return compute(unit, call.arithmetic.variant(unit))
