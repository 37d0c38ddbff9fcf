"""Transformer attention as ONNX defines it and as ONNX Runtime fuses it, and rotary embeddings.

The fused operators are those of docs/ContribOperators.md in ONNX Runtime.

Shapes: B batch, N heads, S positions of the query, P past positions, T = P + new positions, h size of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import prod

import numpy as np

from qdebug.errors import KernelError
from qdebug.replay.extents import Cost, broadcast_shapes
from qdebug.replay.kernels.activation import softmax
from qdebug.replay.precision import narrow, widen
from qdebug.replay.qsum import exact_dtype, subtract_zero_point, sum_bound
from qdebug.replay.registry import Call, kernel
from qdebug.replay.within import normalize_indices

__all__ = ["coded_attention", "coded_attention_cost"]

_MICROSOFT = "com.microsoft"
_DOUBLE = 11
"""The ONNX element type of float64."""
_SCORES_AT_ONCE = 1 << 22
"""Scores computed per block of rows: 16 MiB, and several times that during a softmax."""
_Biases = Callable[[slice], Iterable[np.ndarray]]
"""Returns the terms that are added to a slice of score rows."""
_MASKED = -10000.0
"""Value added to masked scores by default."""


def _unsupported(call: Call, reason: str) -> KernelError:
    return KernelError(f"Node {call.node!r} ({call.op}) {reason}, which qdebug does not support.")


def _split_heads(x: np.ndarray, heads: int) -> np.ndarray:
    """Reshape (B, S, N h) to (B, N, S, h)."""
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def _merge_heads(x: np.ndarray) -> np.ndarray:
    """Reshape (B, N, S, h) to (B, S, N h)."""
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def _scale(call: Call, extent: int) -> np.float32:
    return np.float32(call.real("scale") or 1 / np.sqrt(extent))


def _split_rows(scores: tuple[int, ...]) -> Iterator[slice]:
    """Yield slices of S that keep scores (..., S, T) within bounded memory."""
    *heads, length, total = scores
    rows = max(1, _SCORES_AT_ONCE // max(1, prod(heads) * total))
    for start in range(0, length, rows):
        yield slice(start, min(start + rows, length))


def _select_rows(added: np.ndarray, rows: slice) -> np.ndarray:
    """Return the selected rows of a term that is added to scores, (..., S or 1, T or 1)."""
    return added[..., rows, :] if added.ndim > 1 and added.shape[-2] > 1 else added


def _attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: np.float32, added: _Biases) -> np.ndarray:
    """Compute softmax(q k^T scale + added) v by blocks of rows, since the scores may be far larger than the result."""
    out = np.empty((*q.shape[:-1], v.shape[-1]), np.result_type(q, k, v))
    for rows in _split_rows((*q.shape[:-1], k.shape[-2])):
        scores = np.matmul(q[..., rows, :], k.swapaxes(-1, -2)) * scale
        for summand in added(rows):
            scores = scores + widen(summand)
        out[..., rows, :] = np.matmul(softmax(scores, -1), v)
    return out


def _causal_term(length: int, total: int, hidden: float, rows: slice) -> np.ndarray:
    """Return the term (rows, T) that hides later positions from queries, which are the last `length` of T positions."""
    later = np.arange(total) > np.arange(total - length, total)[rows, None]
    return np.where(later, np.float32(hidden), np.float32(0))


def _mask_term(call: Call, mask: np.ndarray, length: int, total: int, rows: slice) -> np.ndarray | None:
    """Return the mask term for some rows of scores (B, N, S, T).

    The mask hides its zeros, or positions outside a range.

    Args:
        call: The call.
        mask: (B,) ends; (2 B,) ends, then starts; (B, T); (B, S, T) or (B, 1, M, M) with M at least T.
        length: S.
        total: T.
        rows: The slice of S.
    """
    batch, hidden = call.array(0).shape[0], call.real("mask_filter_value", _MASKED)
    positions = np.arange(total)
    if mask.ndim == 1 and mask.size == batch:
        is_visible = positions < mask[:, None]
    elif mask.ndim == 1 and mask.size == 2 * batch:
        is_visible = (positions < mask[:batch, None]) & (positions >= mask[batch:, None])
    elif mask.ndim == 2 and mask.shape[1] == 1 != total:
        return None  # a placeholder
    elif mask.ndim in (2, 3) and mask.shape[-1] == total:
        is_visible = (mask if mask.ndim == 2 else mask[:, rows]) > 0
    elif mask.ndim == 4:
        is_visible = mask[:, :1, total - length : total, :total][:, 0][:, rows] > 0
    else:
        raise _unsupported(call, f"has a mask of {list(mask.shape)}")
    shape = (batch, 1, 1 if is_visible.ndim == 2 else is_visible.shape[1], total)
    return np.where(is_visible, np.float32(0), np.float32(hidden)).reshape(shape)


def _score_biases(call: Call, mask: np.ndarray | None, length: int, total: int) -> _Biases:
    """Return a function that yields the terms of a mask, of causality and of input 5 for some rows of scores."""
    bias, ahead = call.optional(5), not call.integer("unidirectional")

    def added(rows: slice) -> Iterator[np.ndarray]:
        hidden = None if mask is None else _mask_term(call, mask, length, total, rows)
        if hidden is not None:
            yield hidden
        if not ahead:
            yield _causal_term(length, total, float(np.finfo(np.float32).min), rows)
        if bias is not None:
            yield _select_rows(bias, rows)

    return added


def _score_count(call: Call, scores: tuple[int, ...], bias: int) -> int:
    """Return the number of scores (B, N, S, T), including the bias at an input position."""
    added = call.optional(bias)
    shape = scores if added is None else broadcast_shapes(scores, added.shape)
    return prod(scores if shape is None else shape)


def _attention_cost(call: Call) -> Cost:
    """Estimate the cost of projecting and attending."""
    batch, length, _ = call.shape(0)
    past = call.optional(4)
    total = length + (0 if past is None else past.shape[3])
    hidden = call.shape(1)[1]
    sizes = call.integers("qkv_hidden_sizes") or (hidden // 3,) * 3
    scores = _score_count(call, (batch, abs(call.integer("num_heads")), length, total), 5)
    return Cost(batch * length * sizes[-1], scores + batch * length * hidden)


def _multi_head_cost(call: Call) -> Cost:
    """Estimate the cost of attending with projected queries, (B, S, N h) or (B, N, S, h)."""
    query, past = call.shape(0), call.optional(6)
    length, total = query[-2], call.shape(1)[-2] + (0 if past is None else past.shape[2])
    scores = _score_count(call, (query[0], abs(call.integer("num_heads")), length, total), 5)
    return Cost(None, scores + sum(map(prod, call.shapes())))


def _grouped_cost(call: Call) -> Cost:
    """Estimate the cost of attention with several query heads per key head."""
    batch, length, width = call.shape(0)
    past, heads = call.optional(3), abs(call.integer("num_heads"))
    ends = [abs(int(end)) + 1 for end in call.array(5).reshape(-1)]
    cache_length = max(abs(call.whole(6)), 0 if past is None else past.shape[2], *ends)
    scores = _score_count(call, (batch, heads, length, cache_length), 10)
    return Cost(None, scores + 2 * batch * cache_length * width, len(ends))


@kernel("Attention", domain=_MICROSOFT, cost=_attention_cost, ranks=(3, 2, 0, 0, 5), kinds=("iuf",) * 3)
def _attention(call: Call) -> tuple[np.ndarray, ...]:
    """Project x (B, S, H) to queries, keys and values, and attend. Output 1 is the cache (2, B, N, T, h)."""
    if call.integer("do_rotary") or call.integer("past_present_share_buffer") or call.optional(6) is not None:
        raise _unsupported(call, "rotates its heads or shares its key-value buffer")
    x, weight, bias = widen(call.array(0)), widen(call.array(1)), call.optional(2)
    projected = np.matmul(x, weight) if bias is None else np.matmul(x, weight) + widen(bias)
    added = partial(_score_biases, call, call.optional(3))
    return _self_attend(call, projected, call.optional(4), added, call.array(0).dtype)


def _self_attend(
    call: Call,
    projected: np.ndarray,
    past: np.ndarray | None,
    make_biases: Callable[[int, int], _Biases],
    dtype: np.dtype,
) -> tuple[np.ndarray, ...]:
    """Attend with queries, keys and values concatenated along the last axis, (B, S, 3 N h). Also return the cache."""
    heads = call.integer("num_heads")
    sizes = call.integers("qkv_hidden_sizes") or (projected.shape[2] // 3,) * 3
    q, k, v = (_split_heads(part, heads) for part in np.split(projected, np.cumsum(sizes[:2]), axis=2))
    if past is not None:
        k, v = (np.concatenate([widen(old), new], axis=2) for old, new in zip(past, (k, v), strict=True))
    added = make_biases(q.shape[2], k.shape[2])
    out = narrow(_merge_heads(_attend(q, k, v, _scale(call, q.shape[3]), added)), dtype)
    return (out, narrow(np.stack([k, v]), out.dtype)) if k.shape == v.shape else (out,)


def coded_attention(call: Call, data: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, ...]:
    """Compute attention as QAttention does.

    Args:
        call: The node.
        data: Codes of the data minus their zero point, in a type that holds the sums.
        weight: Codes of the weight minus their zero point, in the same type.
    """
    if call.integer("do_rotary") or call.integer("past_present_share_buffer"):
        raise _unsupported(call, "rotates its heads or shares its key-value buffer")
    scale = call.array(4).astype(np.float32).reshape(-1) * call.array(3).astype(np.float32).reshape(())
    projected = np.matmul(data, weight).astype(np.float32) * scale + call.array(2).astype(np.float32)
    without_mask = replace(call, inputs=call.inputs[:5])  # input 5 is a mask here, but a bias for `_score_biases`
    added = partial(_score_biases, without_mask, call.optional(5))
    return _self_attend(call, projected, call.optional(8), added, np.dtype(np.float32))


def coded_attention_cost(call: Call) -> Cost:
    """Estimate the output size and the work of a QAttention."""
    batch, length, _ = call.shape(0)
    past, hidden = call.optional(8), call.shape(1)[1]
    total = length + (0 if past is None else past.shape[3])
    scores = batch * abs(call.integer("num_heads")) * length * total
    return Cost(batch * length * hidden // 3, scores + batch * length * hidden)


@kernel("QAttention", domain=_MICROSOFT, cost=coded_attention_cost, ranks=(3, 2), kinds=("iu", "iu", "f", "f", "f"))
def _coded_attention(call: Call) -> tuple[np.ndarray, ...]:
    """Project codes x (B, S, H) to queries, keys and values by exact sums, scaled, plus a bias. Then attend.

    Source: onnxruntime, contrib_ops/cpu/quantization/attention_quant.cc.
    """
    data, weight = (subtract_zero_point(call.array(at), _zero_point_input(call, zero)) for at, zero in ((0, 6), (1, 7)))
    dtype = exact_dtype(sum_bound(data, weight, (0,), None))
    return coded_attention(call, data.astype(dtype), weight.astype(dtype))


def _zero_point_input(call: Call, position: int) -> np.ndarray | None:
    """Return the zero point at an input position, one or one per column; None if left out."""
    zero_point = call.optional(position)
    return zero_point if zero_point is None or zero_point.size > 1 else zero_point.reshape(())


def _project_parts(call: Call) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return queries, keys and values of a MultiHeadAttention as (B, N, S, h)."""
    parts = [call.optional(slot) for slot in range(3)]
    projected = [widen(part) for part in parts if part is not None]
    if len(projected) < 3 or any(part.ndim > 4 for part in projected):
        raise _unsupported(call, "packs queries, keys and values into one input")
    heads, bias = call.integer("num_heads"), call.optional(3)
    if bias is not None:
        extents = [heads * part.shape[3] if part.ndim == 4 else part.shape[2] for part in projected]
        biases = np.split(widen(bias), np.cumsum(extents)[:2])
        projected = [part if part.ndim == 4 else part + b for part, b in zip(projected, biases, strict=True)]
    q, k, v = (part if part.ndim == 4 else _split_heads(part, heads) for part in projected)
    return q, k, v


@kernel(
    "MultiHeadAttention",
    domain=_MICROSOFT,
    cost=_multi_head_cost,
    ranks=(3, 3, 3, 1, 0, 0, 4, 4),
    kinds=("iuf",) * 4,
)
def _multi_head_attention(call: Call) -> tuple[np.ndarray, ...]:
    """Attend with projected queries, keys and values. Outputs 1 and 2 are the cache."""
    if call.optional(8) is not None or call.optional(9) is not None or call.outputs > 3:
        raise _unsupported(call, "shares its key-value buffer, or returns its scores")
    q, k, v = _project_parts(call)
    past = [call.optional(6), call.optional(7)]
    k, v = (
        new if old is None else np.concatenate([widen(old), new], axis=2) for old, new in zip(past, (k, v), strict=True)
    )
    length, total = q.shape[2], k.shape[2]
    added = _score_biases(call, call.optional(4), length, total)
    dtype = call.array(0).dtype
    out = _merge_heads(_attend(q, k, v, _scale(call, q.shape[3]), added))
    return narrow(out, dtype), narrow(k, dtype), narrow(v, dtype)


def _rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, *, interleaved: bool) -> np.ndarray:
    """Rotate the first r elements of each head, pair by pair; cos, sin (B, S, r / 2), x (B, N, S, h).

    Each pair is rotated by the angle of its position. Pairs are neighbours if interleaved, else elements i and i + r /
    2 (Su et al. 2021, RoFormer).
    """
    half = cos.shape[-1]
    cos, sin = cos[:, None], sin[:, None]
    out = x.copy()
    first, second = (
        (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(0, half), slice(half, 2 * half))
    )
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., second] * cos + x[..., first] * sin
    return out


def _rotation_cost(call: Call) -> Cost:
    """Estimate the cost of rotating by the angles of all positions."""
    x = call.shape(0)
    return Cost(prod(x), 2 * x[0] * x[-2] * call.shape(2)[-1])


@kernel("RotaryEmbedding", domain=_MICROSOFT, cost=_rotation_cost, ranks=(3, 0, 2, 2), kinds=("iuf",) * 4)
def _rotary_embedding(call: Call) -> np.ndarray:
    """Rotate x, (B, S, N h) or (B, N, S, h), by angles with cosines and sines (M, r / 2) by position."""
    if call.integer("is_packed_batching"):
        raise _unsupported(call, "packs sequences of several lengths")
    x, ids = widen(call.array(0)), call.array(1)
    cos, sin = widen(call.array(2)), widen(call.array(3))
    part = call.integer("rotary_embedding_dim")
    if x.ndim == 3 and part and not call.integer("num_heads"):
        raise _unsupported(call, "does not say how many heads it has")
    heads = call.integer("num_heads") or (x.shape[2] // (2 * cos.shape[1]) if x.ndim == 3 else 1)
    split = x if x.ndim == 4 else _split_heads(x, heads)
    positions = ids.reshape(1, 1) + np.arange(split.shape[2]) if ids.size == 1 else ids
    positions = np.broadcast_to(positions, (split.shape[0], split.shape[2]))
    cos, sin = (angles[normalize_indices(positions, len(angles))] for angles in (cos, sin))
    out = _rotate(split, cos, sin, interleaved=bool(call.integer("interleaved")))
    return narrow(out if x.ndim == 4 else _merge_heads(out), call.array(0).dtype)


def _check_grouped(call: Call) -> None:
    for slot in range(11, len(call.inputs)):
        if call.optional(slot) is not None:
            raise _unsupported(call, f"has input {slot}")
    if any(call.text(f"{side}_quant_type", "NONE") != "NONE" for side in "kv"):
        raise _unsupported(call, "quantizes its keys or values")
    if call.integer("smooth_softmax") > 0 or not call.integer("causal", 1) or call.outputs > 3:
        raise _unsupported(call, "smooths its softmax, looks ahead, or returns its scores")


def _grouped_parts(call: Call) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return queries (B, N, S, h), keys and values (B, K, S, h) of a GroupQueryAttention."""
    heads, groups = call.integer("num_heads"), call.integer("kv_num_heads")
    q, k, v = widen(call.array(0)), call.optional(1), call.optional(2)
    if k is None or v is None:
        extent = q.shape[2] // (heads + 2 * groups)
        q, packed_k, packed_v = np.split(q, [heads * extent, (heads + groups) * extent], axis=2)
        return _split_heads(q, heads), _split_heads(packed_k, groups), _split_heads(packed_v, groups)
    return _split_heads(q, heads), _split_heads(widen(k), groups), _split_heads(widen(v), groups)


@kernel(
    "GroupQueryAttention",
    domain=_MICROSOFT,
    cost=_grouped_cost,
    ranks=(3, 3, 3, 4, 4, 0, 0, 2, 2, 1),
    kinds=("iuf",) * 10,
)
def _group_query_attention(call: Call) -> tuple[np.ndarray, ...]:
    """Attend causally with several query heads per key head. Outputs 1 and 2 are the cached keys and values.

    The cache of each sample has `seqlens_k` + 1 - S positions; it is empty in the first run of a sequence.
    """
    _check_grouped(call)
    q, k, v = _grouped_parts(call)
    length, total = q.shape[2], call.whole(6)
    ends = call.array(5).reshape(-1).astype(np.int64) + 1
    if any(part is not None and len(part) != ends.size for part in (q, k, v, call.optional(3), call.optional(4))):
        raise ValueError(f"{ends.size} sequence lengths do not match the inputs")
    begins = np.zeros_like(ends) if length == total else ends - length
    if call.integer("do_rotary"):
        positions = call.optional(9)
        positions = begins[:, None] + np.arange(length) if positions is None else positions
        cos, sin = (widen(call.array(slot))[normalize_indices(positions, call.shape(slot)[0])] for slot in (7, 8))
        interleaved = bool(call.integer("rotary_interleaved"))
        q, k = (_rotate(part, cos, sin, interleaved=interleaved) for part in (q, k))
    caches = [_append_to_past(call.optional(slot), new, begins, total) for slot, new in ((3, k), (4, v))]
    out = np.stack([_attend_sample(call, q, caches, sample, int(begin)) for sample, begin in enumerate(begins)])
    dtype = call.array(0).dtype
    return narrow(_merge_heads(out), dtype), *(narrow(part, dtype) for part in caches)


def _append_to_past(past: np.ndarray | None, new: np.ndarray, begins: np.ndarray, total: int) -> np.ndarray:
    """Append new keys or values (B, K, S, h) to each sample's cache, padded with zeros."""
    batch, groups, length, extent = new.shape
    cache_length = max(total, 0 if past is None else past.shape[2])
    cache = np.zeros((batch, groups, cache_length, extent), new.dtype)
    for sample, begin in enumerate(begins.tolist()):
        if past is not None:
            cache[sample, :, :begin] = past[sample, :, :begin]
        cache[sample, :, begin : begin + length] = new[sample]
    return cache


def _attend_sample(call: Call, q: np.ndarray, caches: Sequence[np.ndarray], sample: int, begin: int) -> np.ndarray:
    """Compute attention for the queries of one sample, (N, S, h)."""
    length, extent = q.shape[2:]
    total = begin + length
    group_size = q.shape[1] // caches[0].shape[1]
    k, v = (np.repeat(part[sample, :, :total], group_size, axis=0) for part in caches)
    cap, bias = np.float32(call.real("softcap")), call.optional(10)
    biases = None if bias is None else np.broadcast_to(bias, (q.shape[0], q.shape[1], *bias.shape[2:]))
    window, key_positions = call.integer("local_window_size", -1), np.arange(total)
    out = np.empty((*q.shape[1:3], v.shape[-1]), np.result_type(q, k, v))
    for rows in _split_rows((q.shape[1], length, total)):
        scores = np.matmul(q[sample][:, rows], k.swapaxes(-1, -2)) * _scale(call, extent)
        scores = np.tanh(scores / cap) * cap if cap > 0 else scores
        if biases is not None:
            scores = scores + widen(biases[sample, :, :length, :total][:, rows])
        query_positions = np.arange(begin, total)[rows, None]
        hidden = (key_positions > query_positions) | (
            (key_positions <= query_positions - window) if window > 0 else False
        )
        out[:, rows] = np.matmul(softmax(np.where(hidden, np.float32(-np.inf), scores), -1), v)
    return out


# The operator Attention of the standard ONNX domain


def _onnx_attention_cost(call: Call) -> Cost:
    """Estimate the cost of ONNX's own attention operator."""
    query, key, value = (call.shape(slot) for slot in range(3))
    past = call.optional(4)
    heads = abs(call.integer("q_num_heads")) if len(query) == 3 else query[1]
    total = key[-2] + (0 if past is None else past.shape[-2])
    groups = max(1, abs(call.integer("kv_num_heads"))) if len(value) == 3 else 1
    width = query[-2] * value[-1] // groups * heads if len(value) == 3 else query[-2] * value[-1] * heads
    return Cost(query[0] * width, query[0] * heads * query[-2] * total + sum(map(prod, call.shapes())))


@kernel("Attention", cost=_onnx_attention_cost, ranks=(3, 3, 3), kinds=("f",) * 3)
def _attention_of_onnx(call: Call) -> tuple[np.ndarray, ...]:
    """Attend with queries, keys and values, (B, S, N h) or (B, N, S, h).

    A boolean mask keeps the positions that are true. Outputs 1 and 2 are the keys and values including the cache.
    Output 3 holds the scores at the requested stage.
    """
    projected = [widen(call.array(slot)) for slot in range(3)]
    flat, dtype = projected[0].ndim == 3, call.array(0).dtype
    counts = (call.integer("q_num_heads"), *(call.integer("kv_num_heads"),) * 2)
    q, k, v = (_split_heads(part, count) if flat else part for part, count in zip(projected, counts, strict=True))
    past = [call.optional(slot) for slot in (4, 5)]
    caches = tuple(
        new if old is None else np.concatenate([widen(old), new], axis=2) for old, new in zip(past, (k, v), strict=True)
    )
    k, v = (np.repeat(part, q.shape[1] // part.shape[1], axis=1) for part in caches)
    root = q.dtype.type(np.sqrt(call.real("scale") if "scale" in call.attrs else 1 / np.sqrt(q.shape[3])))
    out = np.empty((*q.shape[:3], v.shape[3]), q.dtype)
    shown_scores = np.empty((*q.shape[:3], k.shape[2]), q.dtype) if call.outputs > 3 else None
    scaled_keys = k.swapaxes(-1, -2) * root
    for rows in _split_rows((*q.shape[:3], k.shape[2])):
        stages = _score_stages(call, np.matmul(q[:, :, rows] * root, scaled_keys), _onnx_bias(call, q.shape[2], rows))
        out[:, :, rows] = np.matmul(stages[-1], v)
        if shown_scores is not None:
            shown_scores[:, :, rows] = stages[max(0, call.integer("qk_matmul_output_mode") - 1)]
    outputs = [_merge_heads(out) if flat else out, *caches, *(() if shown_scores is None else (shown_scores,))]
    return tuple(narrow(part, dtype) for part in outputs)


def _score_stages(call: Call, scores: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the scores before and after a bias is added, and their softmax, which is 0 in fully hidden rows."""
    cap = call.real("softcap")
    scores = np.tanh(scores / scores.dtype.type(cap)) * scores.dtype.type(cap) if cap > 0 else scores
    biased = scores + bias
    probabilities = softmax(biased if call.integer("softmax_precision") != _DOUBLE else biased.astype(np.float64), -1)
    hidden = np.isneginf(np.max(bias, axis=-1, keepdims=True))
    return scores, biased, np.where(hidden, 0, probabilities).astype(scores.dtype)


def _onnx_bias(call: Call, length: int, rows: slice) -> np.ndarray:
    """Return the term that mask, causality, window and padding add to some rows of scores, (..., rows, T)."""
    past, mask, filled = call.optional(4), call.optional(3), call.optional(6)
    total = call.shape(1)[-2] + (0 if past is None else past.shape[2])
    minus_inf = np.float32(-np.inf)
    bias = np.zeros((rows.stop - rows.start, total), np.float32)
    if mask is not None:
        part = _select_rows(mask, rows)
        part = np.where(part, np.float32(0), minus_inf) if part.dtype == np.bool_ else widen(part)
        padding = [(0, 0)] * (part.ndim - 1) + [(0, max(0, total - part.shape[-1]))]
        bias = bias + np.pad(part, padding, constant_values=minus_inf)
    past_length = np.array(0 if past is None else past.shape[2])
    if past is None and filled is not None:
        past_length = (filled.reshape(-1) - length).reshape(-1, 1, 1, 1)
    ahead = np.arange(total) - (np.arange(length)[rows, None] + past_length)
    left, right = call.integer("left_window_size", -1), call.integer("right_window_size", -1)
    for hidden, is_used in (
        (ahead > 0, call.integer("is_causal")),
        (-ahead > left, left >= 0),
        (ahead > right, right >= 0),
    ):
        if is_used:
            bias = bias + np.where(hidden, minus_inf, np.float32(0))
    if filled is not None:
        bias = bias + np.where(np.arange(total) < filled.reshape(-1, 1, 1, 1), np.float32(0), minus_inf)
    return bias
