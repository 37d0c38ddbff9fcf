"""Real-valued kernels for operators that quantize their inputs by the range of the data.

DynamicQuantizeLinear, and operators that include it, choose a scale at run time. Their sums equal those of an ordinary
product of real data and dequantized weights, so here data keep their real values, with a scale of 1 and a zero point of
0. The effect of rounding is sampled by moving the data at random within a few times the rounding error. Weights are
moved likewise, in codes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qdebug.model import Node
from qdebug.replay.blockwise_weight import can_round_data, max_rounding_errors
from qdebug.replay.data_codes import BY_ROW, NO_CODES
from qdebug.replay.extents import Cost
from qdebug.replay.kernels.activation import apply_fused_activation
from qdebug.replay.kernels.attention import coded_attention, coded_attention_cost
from qdebug.replay.kernels.conv import conv_cost, convolution
from qdebug.replay.kernels.experts import experts_cost, mix_experts
from qdebug.replay.kernels.indexing import look_up, table_lookup_cost
from qdebug.replay.kernels.linear import gemm_rows, matmul_cost, node_of, packed_matmul_cost, unpack_weight
from qdebug.replay.kernels.normalization import coded_embeddings, embeddings_cost
from qdebug.replay.registry import REAL, Call, find_kernel, kernel

__all__: list[str] = []

_CODES = 255
"""Steps that the range of the data is divided into (ONNX, DynamicQuantizeLinear)."""


def _disturbed_operand(
    call: Call, position: int, values: np.ndarray, *, chosen: bool = False, span: np.ndarray | None = None
) -> np.ndarray:
    """Return an operand, moved as a disturbed replay requests.

    Args:
        call: The node.
        position: Position of the operand.
        values: Codes, or real data that are rounded to codes.
        chosen: Whether it is quantized at run time.
        span: For data: the range that is divided into codes.
    """
    offsets = None if call.moved is None else call.moved(position, values.shape, chosen)
    if offsets is None:
        return values
    steps = offsets.astype(np.float32)
    return np.asarray(values + (steps if span is None else steps * span / np.float32(_CODES)))


def _data_of_chosen_scale(call: Call) -> np.ndarray:
    """Return data for which the node chooses a scale from their range."""
    x = call.array(0).astype(np.float32)
    return _disturbed_operand(call, 0, x, chosen=True, span=np.asarray(np.max(x, initial=0) - np.min(x, initial=0)))


def _centered_operand(call: Call, position: int, zero_point: int, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """Return an operand minus its zero point, if any. Multiple zero points are reshaped to `shape`."""
    codes, point = call.array(position).astype(np.float32), call.optional(zero_point)
    if point is None:
        return np.asarray(codes)
    return np.asarray(codes - _reshape_parameter(point, point.shape if shape is None else shape).astype(np.float32))


def _reshape_parameter(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Reshape one value, or one value per row, filter or gate, to broadcast over codes."""
    return values.reshape(() if values.size == 1 else shape)


def _centered_rows(call: Call, zero_point: int) -> np.ndarray:
    """Return data minus one zero point, or minus one zero point per row."""
    point = call.optional(zero_point)
    return _centered_operand(call, 0, zero_point, (-1, 1) if point is not None and point.ndim == 1 else None)


def _centered_weight(call: Call, zero_point: int) -> np.ndarray:
    """Return a weight minus one zero point, or minus one zero point per column."""
    return _disturbed_operand(call, 1, _centered_operand(call, 1, zero_point))


def _add_bias(product: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    return np.asarray(product if bias is None else product + bias)


@kernel("DynamicQuantizeLinear", domain=REAL)
def _quantize(call: Call) -> tuple[np.ndarray, ...]:
    """Return the data, a scale of 1 and a zero point of 0."""
    return _data_of_chosen_scale(call), np.ones((), np.float32), np.zeros((), np.uint8)


@kernel(
    "ConvInteger",
    domain=REAL,
    cost=lambda call: conv_cost(call, call.shape(0), call.shape(1)),
    ranks=(3, 3),
)
def _convolve(call: Call) -> np.ndarray:
    """Convolve data and filters."""
    by_filters = (-1, *(1,) * (call.array(1).ndim - 1))
    filters = _disturbed_operand(call, 1, _centered_operand(call, 1, 3, by_filters))
    return convolution(replace(call, inputs=(_centered_rows(call, 2), filters)))


@kernel("MatMulInteger", domain=REAL, cost=matmul_cost)
def _multiply(call: Call) -> np.ndarray:
    """Multiply matrices."""
    return np.asarray(np.matmul(_centered_rows(call, 2), _centered_weight(call, 3)))


@kernel("MatMulIntegerToFloat", domain=REAL, cost=matmul_cost)
def _multiply_and_scale(call: Call) -> np.ndarray:
    """Multiply matrices, scale the product and add a bias."""
    product = np.matmul(_centered_rows(call, 4), _centered_weight(call, 5))
    scale = call.array(2).astype(np.float32) * call.array(3).astype(np.float32)
    return _add_bias(product * scale, call.optional(6))


@kernel("DynamicQuantizeMatMul", domain=REAL, cost=matmul_cost)
def _quantize_and_multiply(call: Call) -> np.ndarray:
    """Multiply matrices, scale the product and add a bias. Each row of the data may have its own scale."""
    x = _data_of_row_scales(call) if BY_ROW in call.attrs else _data_of_chosen_scale(call)
    product = np.matmul(gemm_rows(call, x, call.shape(1)), _centered_weight(call, 3))
    return apply_fused_activation(
        call, _add_bias(product * call.array(2).astype(np.float32).reshape(-1), call.optional(4))
    )


@kernel(
    "DynamicQuantizeConv",
    domain=REAL,
    cost=lambda call: conv_cost(call, call.shape(0), call.shape(1)),
    ranks=(3, 3),
)
def _quantize_and_convolve(call: Call) -> np.ndarray:
    """Convolve, scale the sums and add a bias. Each sample has its own scale."""
    x = call.array(0).astype(np.float32)
    if call.text(BY_ROW) != NO_CODES:
        span = 2 * np.max(np.abs(x), axis=tuple(range(1, x.ndim)), keepdims=True, initial=0)
        x = _disturbed_operand(call, 0, x, chosen=True, span=np.broadcast_to(span, x.shape))
    by_filters = (-1, *(1,) * (x.ndim - 1))
    weight = _disturbed_operand(call, 1, call.array(1).astype(np.float32)) * call.array(2).astype(np.float32).reshape(
        by_filters
    )
    return apply_fused_activation(call, convolution(replace(call, inputs=(x, weight, call.optional(4)))))


def _data_of_row_scales(call: Call) -> np.ndarray:
    """Return data for which the node chooses a scale per row. The wider of the two possible ranges is used."""
    x = call.array(0).astype(np.float32)
    if call.text(BY_ROW) == NO_CODES:
        return x
    rows = gemm_rows(call, x, call.shape(1))
    span = 2 * np.max(np.abs(rows), axis=-1, keepdims=True, initial=0)
    return _disturbed_operand(call, 0, x, chosen=True, span=np.broadcast_to(span, rows.shape).reshape(x.shape))


@kernel("MatMulNBits", domain=REAL, cost=packed_matmul_cost)
def _multiply_blocks(call: Call) -> np.ndarray:
    """Multiply by a weight of packed codes. The data may be rounded in blocks along their last axis."""
    codes, scales = unpack_weight(call)
    x, block = call.array(0).astype(np.float32), call.integer("block_size")
    if call.moved is not None and can_round_data(node_of(call)):
        reach = np.maximum.reduceat(np.abs(x), np.arange(0, x.shape[-1], block), axis=-1)
        x = _disturbed_operand(call, 0, x, chosen=True, span=2 * np.repeat(reach, block, axis=-1)[..., : x.shape[-1]])
    return _add_bias(np.matmul(x, _disturbed_operand(call, 1, codes) * scales), call.optional(5))


@kernel("MatMulBnb4", domain=REAL, cost=packed_matmul_cost)
def _multiply_levels(call: Call) -> np.ndarray:
    """Multiply by a weight of levels, which are moved in proportion to the gaps between levels."""
    levels, scales = unpack_weight(call)
    gaps = 2 * max_rounding_errors(node_of(call), levels, np.ones_like(levels))
    return np.asarray(np.matmul(call.array(0), _disturbed_operand(call, 1, levels, span=_CODES * gaps) * scales))


@kernel("GatherBlockQuantized", domain=REAL, cost=table_lookup_cost)
def _look_up(call: Call) -> np.ndarray:
    """Pick rows of a table of packed codes."""
    return look_up(call, lambda codes: _disturbed_operand(call, 0, codes))


@kernel("QMoE", domain=REAL, cost=experts_cost, ranks=(0, 2, 3, 0, 0, 3))
def _mix_experts(call: Call) -> np.ndarray:
    """Mix experts whose weight codes are disturbed."""
    return mix_experts(call, lambda position, codes: _disturbed_operand(call, position, codes))


@kernel("QAttention", domain=REAL, cost=coded_attention_cost, ranks=(3, 2))
def _attend(call: Call) -> tuple[np.ndarray, ...]:
    """Compute attention on disturbed codes."""
    return coded_attention(
        call,
        _disturbed_operand(call, 0, _centered_operand(call, 0, 6)),
        _disturbed_operand(call, 1, _centered_operand(call, 1, 7)),
    )


@kernel("QEmbedLayerNormalization", domain=REAL, ranks=(2, 0, 2, 2, 2), cost=embeddings_cost)
def _embed(call: Call) -> tuple[np.ndarray, ...]:
    """Add and standardize embeddings from tables of disturbed codes."""
    return coded_embeddings(call, lambda position, codes: _disturbed_operand(call, position, codes))


def _lstm_cost(call: Call) -> Cost:
    steps, batch, _ = call.shape(0)
    directions, hidden, gates = call.shape(2)
    return Cost(steps * batch * directions * hidden, steps * batch * directions * gates, steps * directions)


@kernel("DynamicQuantizeLSTM", domain=REAL, cost=_lstm_cost, ranks=(3, 3, 3, 2, 1, 3, 3, 2))
def _run_lstm(call: Call) -> tuple[np.ndarray, ...]:
    """Run an LSTM whose weights are stored with the inputs as the first matrix axis, unlike the standard operator's.

    Its state is rounded to codes at every step. Moving the recurrent weights within a code has an equally large effect.
    """
    x, weights = _data_of_chosen_scale(call), []
    for position, scale, zero_point in ((1, 8, 9), (2, 10, 11)):
        by_gates = (call.array(position).shape[0], 1, -1)
        codes = _disturbed_operand(
            call, position, _centered_operand(call, position, zero_point, by_gates), chosen=position == 2
        )
        weights.append(np.swapaxes(codes * _reshape_parameter(call.array(scale).astype(np.float32), by_gates), 1, 2))
    inputs = (x, *weights, *map(call.optional, range(3, 8)))
    outputs = find_kernel(Node(name=call.node, op="LSTM"))(replace(call, inputs=inputs, op="LSTM"))
    return outputs if isinstance(outputs, tuple) else (outputs,)
