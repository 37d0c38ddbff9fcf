"""Normalizations: with stored statistics, or over layers, images or groups of channels."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from qdebug.replay.blockwise import by_rows, elementwise
from qdebug.replay.extents import Cost
from qdebug.replay.precision import compute_dtype, narrow, widen
from qdebug.replay.registry import Call, kernel
from qdebug.replay.within import normalize_indices

__all__ = ["coded_embeddings", "embeddings_cost"]


def _per_channel(values: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Return values (C,) in the precision of `like` (N, C, ...), shaped to multiply it."""
    return values.astype(like.dtype, copy=False).reshape(-1, *(1,) * (like.ndim - 2))


def _channel_cost(call: Call) -> Cost:
    """Estimate the cost of scaling x (N, C, ...) by channel parameters, even if their sizes do not match."""
    samples, channels, *space = call.shape(0)
    return Cost(None, samples * max([channels, *map(prod, call.shapes()[1:])]) * prod(space))


@kernel("BatchNormalization", cost=_channel_cost, kinds=("iuf",) * 5)
def _batch_normalization(call: Call) -> tuple[np.ndarray, ...]:
    """Compute (x - mean) / sqrt(var + epsilon) * scale + bias for x (N, C, ...) with stored mean and var.

    In training mode mean and var are computed from x, and outputs 1 and 2 are the running statistics.
    """
    x = widen(call.array(0))
    scale, bias, mean, variance = (_per_channel(call.array(position), x) for position in range(1, 5))
    running: tuple[np.ndarray, ...] = ()
    if call.integer("training_mode"):
        old, keep = (mean, variance), x.dtype.type(call.real("momentum", 0.9))
        axes = (0, *range(2, x.ndim))
        mean, variance = np.mean(x, axis=axes, keepdims=True)[0], np.var(x, axis=axes, keepdims=True)[0]
        running = tuple((o * keep + new * (1 - keep)).reshape(-1) for o, new in zip(old, (mean, variance), strict=True))
    root = np.sqrt(variance + x.dtype.type(call.real("epsilon", 1e-5)))
    dtype = call.array(0).dtype

    out = elementwise(
        lambda part, m, r, factor, offset: narrow((part - m) / r * factor + offset, dtype), x, mean, root, scale, bias
    )
    return out, *running


def _standardize(x: np.ndarray, axes: tuple[int, ...], epsilon: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (x - mean) / sqrt(var + epsilon), the mean, and the reciprocal of the root."""

    def standardized(part: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        mean = np.mean(part, axis=axes, keepdims=True)
        centred = part - mean
        inverse = 1 / np.sqrt(np.mean(centred * centred, axis=axes, keepdims=True) + x.dtype.type(epsilon))
        return centred * inverse, mean, inverse

    out, mean, inverse = by_rows(standardized, x, min(axes, default=0))
    return out, mean, inverse


def _add_skip(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.asarray(widen(a) + widen(b))


def _scale_and_shift(out: np.ndarray, scale: np.ndarray, bias: np.ndarray | None, dtype: np.dtype) -> np.ndarray:
    """Scale and shift standardized data."""
    if bias is None:
        return elementwise(lambda part, factor: narrow(widen(part) * widen(factor), dtype), out, scale)
    return elementwise(
        lambda part, factor, offset: narrow(widen(part) * widen(factor) + widen(offset), dtype), out, scale, bias
    )


@kernel("LayerNormalization")
def _layer_normalization(call: Call) -> tuple[np.ndarray, ...]:
    """Standardize over `axis` and all later axes, then scale and shift. Also return the mean and 1 / deviation."""
    x = widen(call.array(0))
    axis = call.integer("axis", -1)
    axes = tuple(range(axis + x.ndim if axis < 0 else axis, x.ndim))
    out, mean, inverse = _standardize(x, axes, call.real("epsilon", 1e-5))
    out = narrow(out, call.array(0).dtype) if call.integer("stash_type", 1) and x.dtype != call.array(0).dtype else out
    return _scale_and_shift(out, call.array(1), call.optional(2), call.array(0).dtype), mean, inverse


@kernel("SkipLayerNormalization", domain="com.microsoft")
def _skip_layer_normalization(call: Call) -> tuple[np.ndarray, ...]:
    """Add a skip connection and a bias, standardize over the last axis, then scale and shift. Output 3 is the sum."""
    x = elementwise(_add_skip, call.array(0), call.array(1))
    extra, bias = call.optional(4), call.optional(3)
    if extra is not None:
        x = elementwise(_add_skip, x, extra)
    out, mean, inverse = _standardize(x, (x.ndim - 1,), call.real("epsilon", 1e-12))
    dtype = call.array(0).dtype
    return _scale_and_shift(out, call.array(2), bias, dtype), mean, inverse, narrow(x, dtype)


_Dequantize = Callable[[int, np.ndarray], np.ndarray]
"""Dequantizes an input: called with its position and some of its elements."""


def _embeddings(call: Call, positions: np.ndarray | None, real: _Dequantize) -> np.ndarray:
    """Return the sum of the word, position and (if given) segment embeddings.

    Only selected rows are dequantized.
    """
    ids = call.array(0)
    rows = np.arange(ids.shape[1])[None] if positions is None else positions
    x = real(2, _pick_rows(call.array(2), ids)) + real(3, _pick_rows(call.array(3), rows))
    segments = call.optional(1)
    return x if segments is None else x + real(4, _pick_rows(call.array(4), segments))


def _pick_rows(table: np.ndarray, ids: np.ndarray) -> np.ndarray:
    return np.asarray(table[normalize_indices(ids, len(table))])


def _count_mask_ones(call: Call) -> np.ndarray:
    """Count the ones in each sample's mask; 0 without a mask."""
    ids, mask = call.array(0), call.optional(7)
    return np.zeros(len(ids), np.int32) if mask is None else np.asarray(np.sum(mask == 1, axis=1, dtype=np.int32))


def embeddings_cost(call: Call) -> Cost:
    """Estimate the output size and the work of looking up and adding embeddings."""
    return Cost(call.array(0).size * call.shape(2)[-1], call.array(0).size * call.shape(3)[-1])


@kernel("EmbedLayerNormalization", domain="com.microsoft", ranks=(2, 0, 2, 2, 2), cost=embeddings_cost)
def _embed_layer_normalization(call: Call) -> tuple[np.ndarray, ...]:
    """Add the word, position and segment embeddings, standardize over the last axis, then scale and shift.

    Output 1 counts the ones in each sample's mask, 0 without a mask. Output 2 is the sum.
    """
    x = _embeddings(call, call.optional(8), lambda _, part: widen(part))
    out, _, _ = _standardize(x, (2,), call.real("epsilon", 1e-12))
    dtype = call.array(2).dtype
    return _scale_and_shift(out, call.array(5), call.array(6), dtype), _count_mask_ones(call), narrow(x, dtype)


def coded_embeddings(call: Call, rounded: _Dequantize) -> tuple[np.ndarray, ...]:
    """Compute a QEmbedLayerNormalization. Tables, scale and shift are codes, each with one scale and zero point.

    Tables without a scale are real numbers.

    Args:
        call: The node.
        rounded: Called with the input position and the centered codes; returns the codes to compute with.
    """

    def real(position: int, array: np.ndarray) -> np.ndarray:
        scale, point = call.optional(position + 6), call.optional(position + 11)
        if scale is None:
            return widen(array)
        codes = array.astype(np.float32) - (np.float32(0) if point is None else point.astype(np.float32).reshape(()))
        return np.asarray(rounded(position, codes) * scale.astype(np.float32).reshape(()))

    out, _, _ = _standardize(_embeddings(call, None, real), (2,), call.real("epsilon", 1e-12))
    scale, shift = (real(position, call.array(position)) for position in (5, 6))
    return _scale_and_shift(out, scale, shift, np.dtype(np.float32)), _count_mask_ones(call)


@kernel("QEmbedLayerNormalization", domain="com.microsoft", ranks=(2, 0, 2, 2, 2), cost=embeddings_cost)
def _coded_embed_layer_normalization(call: Call) -> tuple[np.ndarray, ...]:
    """Compute EmbedLayerNormalization of tables of codes.

    Source: onnxruntime, contrib_ops/cpu/quantization/qembed_layer_norm.cc.
    """
    return coded_embeddings(call, lambda _, codes: codes)


def _divide_by_rms(x: np.ndarray, axes: tuple[int, ...], epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """Return x / sqrt(mean(x^2) + epsilon), and the reciprocal of the root."""
    typed_epsilon = x.dtype.type(epsilon)

    def divided(part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        root = np.sqrt(np.mean(part * part, axis=axes, keepdims=True) + typed_epsilon)
        return part / root, 1 / root

    out, inverse = by_rows(divided, x, min(axes, default=0))
    return out, inverse


@kernel("RMSNormalization", "SimplifiedLayerNormalization")
def _rms_normalization(call: Call) -> tuple[np.ndarray, ...]:
    """Divide by the root mean square over `axis` and all later axes, and scale. Also return 1 / root."""
    x = widen(call.array(0))
    axis = call.integer("axis", -1)
    axes = tuple(range(axis + x.ndim if axis < 0 else axis, x.ndim))
    out, inverse = _divide_by_rms(x, axes, call.real("epsilon", 1e-5))
    return _scale_and_shift(out, call.array(1), None, call.array(0).dtype), inverse


@kernel("SkipSimplifiedLayerNormalization", domain="com.microsoft")
def _skip_rms_normalization(call: Call) -> tuple[np.ndarray, ...]:
    """Add a skip connection and a bias, divide by the root mean square over the last axis, and scale.

    Output 3 is the sum.
    """
    x = elementwise(_add_skip, call.array(0), call.array(1))
    extra, dtype = call.optional(3), call.array(0).dtype
    if extra is not None:
        x = elementwise(_add_skip, x, extra)
    out, inverse = _divide_by_rms(x, (x.ndim - 1,), call.real("epsilon", 1e-12))
    return _scale_and_shift(out, call.array(2), None, dtype), np.zeros_like(inverse), inverse, narrow(x, dtype)


@kernel("InstanceNormalization", cost=_channel_cost, kinds=("iuf",) * 3)
def _instance_normalization(call: Call) -> np.ndarray:
    """Standardize each channel of each sample of x (N, C, ...) over space, scale and shift."""
    x = widen(call.array(0))
    out, _, _ = _standardize(x, tuple(range(2, x.ndim)), call.real("epsilon", 1e-5))
    return _scale_and_shift(out, _per_channel(call.array(1), x), _per_channel(call.array(2), x), call.array(0).dtype)


@kernel("GroupNormalization", cost=_channel_cost, kinds=("iuf",) * 3)
def _group_normalization(call: Call) -> np.ndarray:
    """Standardize groups of channels of each sample, then scale and shift (per channel; per group before set 21)."""
    x = widen(call.array(0))
    groups = call.integer("num_groups")
    parts = x.reshape(x.shape[0], groups, -1)
    out = _standardize(parts, (2,), call.real("epsilon", 1e-5))[0].reshape(x.shape)
    scale, bias = (
        np.repeat(values, x.shape[1] // groups) if call.opset < 21 and values.size == groups else values
        for values in (call.array(1), call.array(2))
    )
    return _scale_and_shift(out, _per_channel(scale, x), _per_channel(bias, x), call.array(0).dtype)


@kernel("LpNormalization")
def _lp_normalization(call: Call) -> np.ndarray:
    """Divide by the 1-norm or 2-norm along an axis; 0 where the norm is 0."""
    x, axis = widen(call.array(0)), call.integer("axis", -1)
    norm = np.linalg.norm(x, ord=call.integer("p", 2), axis=axis, keepdims=True)
    return narrow(np.where(norm == 0, 0, x / norm), call.array(0).dtype)


@kernel("MeanVarianceNormalization")
def _mean_variance_normalization(call: Call) -> np.ndarray:
    """Standardize over the stated axes."""
    x = widen(call.array(0))
    axes = call.integers("axes") or (0, 2, 3)
    deviation = np.sqrt(np.mean(x * x, axis=axes, keepdims=True) - np.mean(x, axis=axes, keepdims=True) ** 2)
    return narrow((x - np.mean(x, axis=axes, keepdims=True)) / (deviation + x.dtype.type(1e-9)), call.array(0).dtype)


def _neighbour_cost(call: Call) -> Cost:
    """Estimate the cost of summing over neighbouring channels."""
    size = abs(call.integer("size"))
    return Cost(None, call.array(0).size * min(size, call.shape(0)[1]), size)


@kernel("LRN", cost=_neighbour_cost, ranks=(2,))
def _local_response(call: Call) -> np.ndarray:
    """Divide x (N, C, ...) by (bias + alpha / size * sum of squares of neighbouring channels) ** beta."""
    x = call.array(0)
    dtype = compute_dtype(x.dtype)
    size, squares = call.integer("size"), widen(x) ** 2
    total = np.zeros_like(squares)
    for shift in range(-((size - 1) // 2), size // 2 + 1):
        low, high = max(0, -shift), min(x.shape[1], x.shape[1] - shift)
        total[:, low:high] += squares[:, low + shift : high + shift]
    base = call.real("bias", 1.0) + dtype.type(call.real("alpha", 1e-4) / size) * total
    return narrow(widen(x) / base ** dtype.type(call.real("beta", 0.75)), x.dtype)
