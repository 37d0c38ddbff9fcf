"""A mixture of experts with packed weight codes: QMoE of ONNX Runtime.

Source: onnxruntime, contrib_ops/cpu/moe/moe_quantization_cpu.cc.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from qdebug.errors import KernelError
from qdebug.replay.blockwise_weight import round_in_blocks, unpack_codes
from qdebug.replay.extents import Cost
from qdebug.replay.kernels.activation import activate, sigmoid
from qdebug.replay.precision import narrow, widen
from qdebug.replay.registry import Call, kernel

__all__ = ["experts_cost", "mix_experts"]

_LEAST_SHARE = 1e-8
"""Experts with a share up to this are skipped."""
_INT8_ACCURACY_LEVEL = 4
"""Accuracy level at which data may be rounded to 8-bit codes for 4-bit weights. For 8-bit weights they always are."""
_ACTIVATIONS = {"relu": "Relu", "silu": "Swish", "identity": ""}
_DisturbCodes = Callable[[int, np.ndarray], np.ndarray]


def _weight_bits(call: Call, layer: int) -> int:
    bits = call.integer(f"fc{layer}_expert_weight_bits") or call.integer("expert_weight_bits", 4)
    if bits not in (2, 4, 8):
        raise ValueError(f"weights of {bits} bits are not supported here")
    return bits


def _unpack_weights(call: Call, layer: int, disturb: _DisturbCodes) -> np.ndarray:
    """Return the weights (experts, outputs, inputs) of a layer."""
    position, bits = 3 * layer - 1, _weight_bits(call, layer)
    packed, scales, points = call.array(position), call.array(position + 1), call.optional(10 + layer)
    codes = disturb(position, unpack_codes(packed, bits).astype(np.float32))
    experts, rows, width = codes.shape
    steps = widen(scales).reshape(experts, rows, -1)
    if width % steps.shape[-1]:
        raise ValueError(f"{width} inputs cannot be split into {steps.shape[-1]} equal blocks")
    zero = np.full(steps.shape, 2.0 ** (bits - 1), np.float32)
    if points is not None:
        parts = unpack_codes(points, bits)
        parts = parts[..., : steps.shape[-1]] if scales.ndim == 3 else parts[:, :rows, None]
        zero = parts.astype(np.float32).reshape(steps.shape)
    block = width // steps.shape[-1]
    return np.asarray((codes - np.repeat(zero, block, axis=-1)) * np.repeat(steps, block, axis=-1))


def _round_layer_input(call: Call, layer: int, x: np.ndarray) -> np.ndarray:
    """Return the input of a layer, rounded to codes block by block where the runtime does so."""
    blocks, bits = call.array(3 * layer).ndim == 3, _weight_bits(call, layer)
    if blocks and (bits == 8 or (bits == 4 and call.integer("accuracy_level") == _INT8_ACCURACY_LEVEL)):
        return round_in_blocks(x, call.integer("block_size"))
    return x


def _activate_hidden(call: Call, x: np.ndarray) -> np.ndarray:
    name = call.text("activation_type", "relu")
    if name == "gelu":
        inner = np.float32(0.7978845608) * (x + np.float32(0.044715) * x * x * x)
        return np.asarray(np.float32(0.5) * x * (1 + np.tanh(inner)))
    if name != "swiglu":
        if name not in _ACTIVATIONS:
            raise ValueError(f"the activation {name!r} is not supported")
        return activate(x, _ACTIVATIONS[name])
    layout = call.integer("swiglu_fusion")
    if layout not in (1, 2):
        raise ValueError("gates and values are not in one tensor")
    gate, value = (x[..., ::2], x[..., 1::2]) if layout == 1 else np.split(x, 2, axis=-1)
    limit = call.real("swiglu_limit", np.inf)
    gate, value = np.minimum(gate, np.float32(limit)), np.clip(value, -np.float32(limit), np.float32(limit))
    alpha, beta = (np.float32(call.real(f"activation_{name}", usual)) for name, usual in (("alpha", 1.0), ("beta", 0)))
    return np.asarray(gate * sigmoid(alpha * gate) * (value + beta))


def _choose_experts(call: Call) -> tuple[np.ndarray, np.ndarray]:
    """Return the experts with the largest router values for each token, and their weights."""
    logits, weights, count = widen(call.array(1)), call.optional(14), call.integer("k", 1)
    if not 1 <= count <= logits.shape[-1]:
        raise ValueError(f"{count} of {logits.shape[-1]} experts are requested")
    expert_numbers = np.arange(logits.shape[-1])
    order = np.lexsort((-np.broadcast_to(expert_numbers, logits.shape), -logits), axis=-1)[:, :count]
    if weights is not None:
        shares = np.take_along_axis(widen(weights), order, axis=-1)
        if not call.integer("normalize_routing_weights"):
            return order, shares
    else:
        top = np.take_along_axis(logits, order, axis=-1)
        shares = np.exp(top - top[:, :1])
    total = shares.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        return order, np.asarray(shares * np.where(total == 0, np.float32(0), 1 / total))


def mix_experts(call: Call, disturb: _DisturbCodes) -> np.ndarray:
    """Compute a QMoE.

    Args:
        call: The node.
        disturb: Called with the input position and the codes of each weight; returns the codes to compute with.
    """
    if call.text("quant_type", "int") != "int" or call.optional(8) is not None:
        raise KernelError(
            f"Node {call.node!r} has weights in float formats or a third layer, which qdebug does not support."
        )
    x = widen(call.array(0)).reshape(-1, call.shape(0)[-1])
    order, shares = _choose_experts(call)
    first, second = (_unpack_weights(call, layer, disturb) for layer in (1, 2))
    biases = [None if bias is None else widen(bias) for bias in map(call.optional, (4, 7))]
    out = np.zeros_like(x)
    for expert in range(len(first)):
        tokens, ranks = np.nonzero((order == expert) & (shares > _LEAST_SHARE))
        if not tokens.size:
            continue
        hidden = _round_layer_input(call, 1, x[tokens]) @ first[expert].T
        inner = _activate_hidden(call, hidden if biases[0] is None else hidden + biases[0][expert])
        expert_output = _round_layer_input(call, 2, inner) @ second[expert].T
        expert_output = expert_output if biases[1] is None else expert_output + biases[1][expert]
        out[tokens] += shares[tokens, ranks][:, None] * expert_output
    return narrow(out.reshape(call.shape(0)), call.array(0).dtype)


def experts_cost(call: Call) -> Cost:
    """Estimate the output size and the work of a QMoE."""
    weights = sum(prod(call.shape(position)) * 8 // _weight_bits(call, layer) for layer, position in ((1, 2), (2, 5)))
    tokens = prod(call.shape(0)[:-1])
    return Cost(prod(call.shape(0)), weights * (1 + tokens // max(call.shape(2)[0], 1)))


@kernel("QMoE", domain="com.microsoft", cost=experts_cost, ranks=(1, 2, 3, 0, 0, 3))
def _experts(call: Call) -> np.ndarray:
    """Send each token to its k experts of two layers with packed codes. Sum the weighted results."""
    return mix_experts(call, lambda _, codes: codes)
