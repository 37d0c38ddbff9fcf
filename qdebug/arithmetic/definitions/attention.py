"""Definitions of attention and of rotary embeddings, as ONNX and ONNX Runtime state them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from qdebug.arithmetic.definitions.definition import Definition, Value, parse
from qdebug.arithmetic.definitions.functions import number
from qdebug.model import Node

__all__ = ["define_attention", "define_rotation"]

_FLAT_RANK = 3
_MAX_SCORES = 1 << 22
"""Maximum number of scores, which exist several times in the memory."""


def define_attention(node: Node, inputs: Sequence[np.ndarray | None], opset: int) -> Definition | None:
    """Return the definition of attention, or None where it is not supported.

    Args:
        node: The node.
        inputs: Its inputs in order, None where one is left out.
        opset: Version of its operator set.
    """
    del opset
    arrays = [*inputs, *[None] * 12]
    names = ("num_heads",) * 3
    if node.op == "MultiHeadAttention":
        mask, past, unsupported, causal = arrays[5], arrays[6:8], arrays[3:5], "unidirectional"
    elif node.domain == "":
        mask, past, unsupported, causal = arrays[3], arrays[4:6], arrays[6:7], "is_causal"
        names = ("q_num_heads", "kv_num_heads", "kv_num_heads")
    else:
        return None
    if any(array is not None for array in unsupported) or node.attrs.get("qk_matmul_output_mode"):
        return None
    heads = [
        _as_heads(array.astype(np.float64), int(number(node, name, 0)))
        for array, name in zip(arrays[:3], names, strict=True)
        if array is not None
    ]
    parts = [part for part in heads if part is not None]
    return (
        _define(node, parts, mask, past, is_causal=bool(node.attrs.get(causal))) if len(parts) == len(names) else None
    )


def _as_heads(array: np.ndarray, count: int) -> np.ndarray | None:
    """Return data as (B, N, S, h), or None if its number of heads is not stated."""
    if array.ndim != _FLAT_RANK:
        return array
    if count <= 0 or array.shape[2] % count:
        return None
    return array.reshape(*array.shape[:2], count, -1).transpose(0, 2, 1, 3)


def _define(
    node: Node,
    heads: Sequence[np.ndarray],
    mask: np.ndarray | None,
    past: Sequence[np.ndarray | None],
    *,
    is_causal: bool,
) -> Definition | None:
    """Return the definition for queries, keys and values.

    Args:
        node: The node.
        heads: Queries, keys and values (B, N, S, h).
        mask: A boolean or additive mask, or None.
        past: Cached keys and values, or None.
        is_causal: Whether later keys are hidden.
    """
    queries, *new = heads
    keys, values = (
        array if old is None else np.concatenate([old.astype(np.float64), array], axis=2)
        for old, array in zip(past, new, strict=True)
    )
    count, groups, length, total = queries.shape[1], keys.shape[1], queries.shape[2], keys.shape[2]
    if math.prod((*queries.shape[:3], total)) > _MAX_SCORES:
        return None
    names: dict[str, Value] = {
        "queries": queries, "all_keys": keys, "all_values": values, "root": math.sqrt(queries.shape[3]), "axes": (3,),
        "lowest": -math.inf, "head": np.arange(count), "key": np.arange(total), "query": np.arange(length)[:, None],
        "group_size": count // groups, "past": 0 if past[0] is None else past[0].shape[2],
    }  # fmt: skip
    names |= {name: number(node, name, 0) for name in ("scale", "softcap") if number(node, name, 0)}
    lines = ["keys = all_keys", "values = all_values"]
    if count != groups:
        lines = [f"{name} = heads(all_{name}, floor(head / group_size))" for name in ("keys", "values")]
    lines.append(f"scores = matmul(queries, transpose(keys)) {'* scale' if 'scale' in names else '/ root'}")
    if "softcap" in names:
        lines.append("scores = softcap * tanh(scores / softcap)")
    position = "query" if past[0] is None else "query + past"
    conditions = [f"(key <= {position})"] if is_causal else []
    if mask is not None:
        is_boolean = mask.dtype == np.bool_
        names["mask"] = mask if is_boolean else mask.astype(np.float64)
        conditions += ["mask"] if is_boolean else []
        lines += [] if is_boolean else ["scores = scores + mask"]
    if conditions:
        lines += [f"visible = {' & '.join(conditions)}", "scores = where(visible, scores, lowest)"]
    lines += ["top = largest(scores, axes)", "powers = exp(scores - top)", "shares = powers / total(powers, axes)"]
    lines += ["shares = where(top > lowest, shares, 0)"] if conditions or mask is not None else []
    lines.append("y = matmul(shares, values)")
    is_flat = node.domain != "" or bool(node.attrs.get("q_num_heads"))
    finish = _merge_heads if is_flat else np.asarray
    return Definition(lines=parse("\n".join(lines)), values=names, finish=finish)


def _merge_heads(result: np.ndarray) -> np.ndarray:
    """Return (B, N, S, h) as (B, S, N h)."""
    return result.transpose(0, 2, 1, 3).reshape(result.shape[0], result.shape[2], -1)


_ROTATION = """
partner = where(first, element + half, element - half)
angle = where(first, element, element - half)
cosine = at(cosines, angle)
sine = at(sines, angle)
turned = where(first, -at(x, partner), at(x, partner))
y = x * cosine + turned * sine
"""
_INTERLEAVED = """
partner = where(first, element + 1, element - 1)
angle = floor(element / 2)
cosine = at(cosines, angle)
sine = at(sines, angle)
turned = where(first, -at(x, partner), at(x, partner))
y = x * cosine + turned * sine
"""


def define_rotation(node: Node, inputs: Sequence[np.ndarray | None], opset: int) -> Definition | None:
    """Return the definition of a rotary embedding, or None where it is not supported.

    Args:
        node: The node.
        inputs: Data, positions, and tables of cosines and sines (M, r / 2).
        opset: Version of its operator set.
    """
    del opset
    order = (0, 3, 1, 2) if node.domain == "" else (0, 1, 2, 3)
    x, positions, cosines, sines = ([*inputs, *[None] * 4][at] for at in order)
    if x is None or positions is None or cosines is None or sines is None or cosines.ndim != 2:
        return None
    width = 2 * cosines.shape[1]
    count = int(number(node, "num_heads", 0)) or (x.shape[2] // width if x.ndim == _FLAT_RANK else 1)
    data = _as_heads(x.astype(np.float64), count)
    if data is None or data.shape[3] < width:
        return None
    places = positions.reshape(1, 1) + np.arange(data.shape[2]) if positions.size == 1 else positions
    places = np.broadcast_to(places, (len(data), data.shape[2])).astype(np.int64)
    if places.min() < 0 or places.max() >= len(cosines):
        return None
    element, is_interleaved = np.arange(width), bool(node.attrs.get("interleaved"))
    values: dict[str, Value] = {
        "x": data[..., :width],
        "element": element,
        "half": width // 2,
        "first": element % 2 == 0 if is_interleaved else element < width // 2,
        "cosines": cosines.astype(np.float64)[places][:, None],
        "sines": sines.astype(np.float64)[places][:, None],
    }
    own, other = (_INTERLEAVED, _ROTATION) if is_interleaved else (_ROTATION, _INTERLEAVED)

    def finish(result: np.ndarray) -> np.ndarray:
        if result.shape[-1] != width:
            return result
        whole = np.concatenate([result, data[..., width:]], axis=-1)
        return whole if x.ndim != _FLAT_RANK else whole.transpose(0, 2, 1, 3).reshape(x.shape)

    return Definition(lines=parse(own), values=values, finish=finish, alternatives=parse(other)[:2])
