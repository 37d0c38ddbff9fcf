"""Known mistakes of attention kernels. Begin at `attention_mistakes`.

They are based on public bug reports, like those in `qdebug.arithmetic.mistakes.known`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

import numpy as np

from qdebug.arithmetic.mistakes.mistake import Mistake
from qdebug.model import Node
from qdebug.model.thresholds.patterns import KERNEL_BLOCKS

__all__ = ["attention_mistakes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Heads:
    """How an attention operator states its heads.

    Args:
        queries: Attribute with the number of query heads.
        keys: Attribute with the number of key and value heads.
        projected: Slots of the inputs with keys and values.
        cached: Slots of the inputs with cached keys and values.
    """

    queries: str
    keys: str
    projected: tuple[int, ...]
    cached: tuple[int, ...]


_HEADS: Mapping[tuple[str, str], _Heads] = MappingProxyType(
    {
        ("com.microsoft", "GroupQueryAttention"): _Heads(
            queries="num_heads", keys="kv_num_heads", projected=(1, 2), cached=(3, 4)
        ),
        ("", "Attention"): _Heads(queries="q_num_heads", keys="kv_num_heads", projected=(1, 2), cached=(4, 5)),
    }
)


def attention_mistakes(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield the mistakes that an attention kernel could make.

    Args:
        node: The node's real form.
        values: Its inputs.
    """
    yield from _wrong_positions(node, values)
    yield from _wrong_windows(node, values)
    yield from _shifted_causal_masks(node, values)
    yield from _interleaved_heads(node, values)
    heads = _HEADS.get((node.domain, node.op))
    projected = [node.inputs[at] for at in heads.projected if at < len(node.inputs)] if heads else []
    if heads is None or len(projected) != len(heads.projected) or not all(projected) or not node.inputs[0]:
        return
    data = [values[name] for name in (node.inputs[0], *projected)]
    if data[0].ndim == _RANK_OF_FLAT_HEADS:
        count, groups = (node.attrs.get(name) for name in (heads.queries, heads.keys))
    else:
        count, groups = data[0].shape[1], data[1].shape[1]
    if not isinstance(count, int) or not isinstance(groups, int) or not 0 < groups <= count or count % groups:
        return
    cached = [node.inputs[at] for at in heads.cached if at < len(node.inputs) and node.inputs[at]]
    for likely, read in _wrong_groups(count, groups):
        taken = {
            name: _expanded_heads(values[name], read, groups if values[name].ndim == _RANK_OF_FLAT_HEADS else 0)
            for name in dict.fromkeys((*projected, *cached))
        }
        ungrouped = replace(node, attrs={**node.attrs, heads.keys: count}) if heads.keys in node.attrs else node
        yield Mistake(likely=likely, node=ungrouped, values=taken)
        right = [head // (count // groups) for head in range(count)]
        rightly = {
            name: _expanded_heads(values[name], right, groups if values[name].ndim == _RANK_OF_FLAT_HEADS else 0)
            for name in taken
        }
        for name, title in zip(projected, ("keys", "values"), strict=True) if not cached else ():
            if projected[0] != projected[1]:
                clause = f"{likely.replace('the keys and values', f'the {title} alone')}"
                yield Mistake(likely=clause, node=ungrouped, values={**rightly, name: taken[name]})


def _wrong_windows(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which queries see too many or too few keys, or empty keys after the last one.

    Only self-attention without a cache is examined, and only if all samples and heads have the same mask.
    """
    inputs = (*node.inputs, *[""] * 6)[:6]
    if (node.domain, node.op) != ("", "Attention") or not all(inputs[:3]) or any(inputs[4:]):
        return
    keys, mask = values[inputs[1]], values.get(inputs[3])
    length = keys.shape[-2]
    ahead = np.arange(length) - np.arange(length)[:, None]  # position of each key relative to each query
    visible = np.ones((length, length), bool) if mask is None else _common_mask(mask, length)
    if visible is None or values[inputs[0]].shape[-2] != length:
        return
    if node.attrs.get("is_causal"):
        visible = visible & (ahead <= 0)
    attrs = {name: value for name, value in node.attrs.items() if name != "is_causal"}
    seeing = replace(node, inputs=(*inputs[:3], f"{node.name} mask"), attrs=attrs)

    def with_mask(words: str, mask: np.ndarray, **padded: np.ndarray) -> Mistake:
        return Mistake(likely=words, node=seeing, values={seeing.inputs[3]: mask, **padded})

    if visible.any():
        back, forth = -int(ahead[visible].min()), int(ahead[visible].max())
        if np.array_equal(visible, (ahead >= -back) & (ahead <= forth)):
            for more in (step for step in range(-2, _MAX_EXTRA_KEYS + 1) if step):
                change = "more" if more > 0 else "fewer"
                if forth + more < length and -back <= forth + more:
                    words = f"each query sees {abs(more)} {change} of the keys after it"
                    yield with_mask(words, (ahead >= -back) & (ahead <= forth + more))
                if 0 <= back + more < length:
                    words = f"each query sees {abs(more)} {change} of the keys before it, as with a different window"
                    yield with_mask(words, (ahead >= -back - more) & (ahead <= forth))
    counts = {*range(1, _MAX_EXTRA_KEYS + 1), *(-length % tile for tile in KERNEL_BLOCKS)} - {0}
    for count in sorted(counts):
        padded = {
            name: np.concatenate(
                [values[name], np.zeros_like(values[name], shape=_padding_shape(values[name], count))], -2
            )
            for name in dict.fromkeys(inputs[1:3])
        }
        seen = np.concatenate([visible, np.ones((length, count), bool)], -1)
        yield with_mask(f"each query also sees {count} empty keys, as in a cache that is not full", seen, **padded)


def _shifted_causal_masks(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in the diagonal of a causal mask, for different numbers of queries and keys.

    For attention without a mask, yield attention to empty keys instead.
    """
    inputs = (*node.inputs, *[""] * 6)[:6]
    if (node.domain, node.op) != ("", "Attention") or not all(inputs[:3]) or any(inputs[3:]):
        return
    queries, keys = (values[name].shape[-2] for name in inputs[:2])
    if not node.attrs.get("is_causal"):
        yield from _with_empty_keys(node, values, inputs) if queries != keys else ()
        return
    attrs = {name: value for name, value in node.attrs.items() if name != "is_causal"}
    masked = replace(node, inputs=(*inputs[:3], f"{node.name} mask"), attrs=attrs)
    diagonals = {-1: "no query sees its own key", 1: "each query sees the key after its own"}
    diagonals[keys - queries] = "the last query sees the last key: the causal mask is aligned to the end"
    for diagonal, likely in diagonals.items() if queries != keys else ():
        seen = np.tril(np.ones((queries, keys), bool), diagonal)
        if diagonal:
            yield Mistake(likely=likely, node=masked, values={masked.inputs[3]: seen})


def _with_empty_keys(node: Node, values: Mapping[str, np.ndarray], inputs: tuple[str, ...]) -> Iterator[Mistake]:
    """Yield mistakes in which queries also see the empty keys that fill up the last block of keys."""
    keys = values[inputs[1]].shape[-2]
    for count in sorted({-keys % tile for tile in KERNEL_BLOCKS} - {0}):
        padded = {
            name: np.concatenate(
                [values[name], np.zeros_like(values[name], shape=_padding_shape(values[name], count))], -2
            )
            for name in dict.fromkeys(inputs[1:3])
        }
        likely = f"each query also sees {count} empty keys, which pad them to a multiple of a block"
        yield Mistake(likely=likely, node=node, values=padded)


def _interleaved_heads(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield the mistake of reading and writing heads as interleaved columns, although a head has adjacent columns."""
    names = _HEAD_COUNTS.get(node.op)
    data = list(dict.fromkeys(filter(None, node.inputs[:3])))
    if names is None or any(values[name].ndim != _RANK_OF_FLAT_HEADS for name in data):
        return
    counts = [node.attrs.get(name) for name in names]
    orders = {
        name: _interleaved_columns(values[name].shape[-1], count)
        for name, count in zip(node.inputs[:3], (counts[0], counts[-1], counts[-1]), strict=False)
        if name and isinstance(count, int) and count > 1 and values[name].shape[-1] % count == 0
    }

    def written(result: np.ndarray) -> np.ndarray:
        heads = counts[0]
        if not isinstance(heads, int) or result.ndim != _RANK_OF_FLAT_HEADS or result.shape[-1] % heads:
            return result
        return np.asarray(result[..., np.argsort(_interleaved_columns(result.shape[-1], heads))])

    if orders:
        moved = {name: np.ascontiguousarray(values[name][..., order]) for name, order in orders.items()}
        likely = "heads are interleaved: column i belongs to head i modulo the number of heads"
        yield Mistake(likely=likely, node=node, values=moved, after=written)


def _interleaved_columns(width: int, count: int) -> np.ndarray:
    """Return the columns grouped by head, where column i belongs to head i modulo the number of heads."""
    return np.arange(width).reshape(-1, count).T.reshape(-1)


_HEAD_COUNTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Attention": ("q_num_heads", "kv_num_heads"),
        "GroupQueryAttention": ("num_heads", "kv_num_heads"),
        "MultiHeadAttention": ("num_heads",),
    }
)
"""Attributes with the number of query heads, and of key and value heads if it may differ."""
_MAX_EXTRA_KEYS = 8
"""Maximum number of extra keys on either side that are tried."""


def _padding_shape(array: np.ndarray, count: int) -> tuple[int, ...]:
    return (*array.shape[:-2], count, array.shape[-1])


def _common_mask(mask: np.ndarray, length: int) -> np.ndarray | None:
    """Return a boolean matrix (query, key) of the visible keys, or None if samples or heads differ in it."""
    if mask.ndim < 2 or mask.shape[-2:] != (length, length):
        return None
    rows = mask.reshape(-1, length, length)
    visible = rows if mask.dtype == bool else rows > _HIDING_BELOW
    if mask.dtype != bool and np.any(rows[visible]):
        return None
    return visible[0] if (visible == visible[0]).all() else None


_HIDING_BELOW = -1e4
"""Additive masks hide a key by a value below this."""
_RANK_OF_FLAT_HEADS = 3
"""Rank of data with its heads side by side in the last axis. Data of rank 4 has its heads along axis 1."""


def _expanded_heads(array: np.ndarray, read: Sequence[int], groups: int) -> np.ndarray:
    """Expand keys or values to one head for each query head.

    Args:
        array: Keys or values, (B, S, G h) or (B, G, S, h).
        read: The head that each query head reads.
        groups: Number of heads G of the first layout, or 0 for the second.
    """
    if not groups:
        return array.take(read, 1)
    return array.reshape(*array.shape[:2], groups, -1).take(read, 2).reshape(*array.shape[:2], -1)


def _wrong_groups(count: int, groups: int) -> Iterator[tuple[str, list[int]]]:
    """Yield wrong assignments of query heads to key and value heads.

    Args:
        count: Number of query heads.
        groups: Number of key and value heads.

    Yields:
        The mistake in words, and the key and value head that each query head reads.
    """
    size = count // groups
    right = [head // size for head in range(count)]
    rules = [
        ("as if heads were assigned to groups round-robin", [head % groups for head in range(count)]),
        ("as if there were one head", [0] * count),
        ("the next group's", [(group + 1) % groups for group in right]),
        ("the previous group's", [(group - 1) % groups for group in right]),
        ("as if the number of heads in a group were the number of groups", [head // groups for head in range(count)]),
        *(
            (f"that of the first head in each tile of {tile}", [head // tile * tile // size for head in range(count)])
            for tile in KERNEL_BLOCKS
            if tile < count
        ),
    ]
    seen = [right]
    for rule, read in rules:
        if read in seen or max(read) >= groups:
            continue
        seen.append(read)
        wrong = [head for head in range(count) if read[head] != right[head]]
        yield f"query heads {_ranges(wrong)} read the keys and values of the wrong group, {rule}", read


def _ranges(numbers: Sequence[int]) -> str:
    """Format ascending numbers, with runs as `first to last`."""
    starts = [at for at in range(len(numbers)) if not at or numbers[at] != numbers[at - 1] + 1]
    runs = [numbers[start:end] for start, end in zip(starts, [*starts[1:], len(numbers)], strict=True)]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)


def _wrong_positions(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which a rotary embedding uses wrong positions. Data is (B, S, N h) or (B, N, S, h)."""
    if (node.domain, node.op) != ("com.microsoft", "RotaryEmbedding"):
        return
    name, position_ids, table = node.inputs[:3]
    data, positions, count = values[name], values[position_ids], node.attrs.get("num_heads")
    flat, batch = data.ndim == _RANK_OF_FLAT_HEADS, data.shape[0]
    if not isinstance(count, int) or not count:
        count = data.shape[2] // (2 * values[table].shape[1])
    length, count = (data.shape[1], count) if flat else (data.shape[2], data.shape[1])
    if positions.size not in (1, length, batch * length) or not count or data.size % (batch * length * count):
        return
    first = positions.reshape(1, 1) if positions.size == 1 else positions[:, :1]
    by_head = np.broadcast_to(first + np.arange(count, dtype=positions.dtype), (batch, count))
    if np.all(by_head < len(values[table])):
        by_token = data.reshape(batch, length, count, -1) if flat else data.swapaxes(1, 2)
        yield Mistake(
            likely="the position is the index of the head, not of the token",
            node=node,
            values={name: by_token, position_ids: by_head},
            after=partial(_with_axes_of_data, shape=data.shape),
        )
    counted = np.broadcast_to(np.arange(length, dtype=positions.dtype), (batch, length))
    yield Mistake(
        likely="positions count from 0 instead of being read from the input", node=node, values={position_ids: counted}
    )
    repeated = np.broadcast_to(first, (batch, length))
    yield Mistake(likely="every token has the first position", node=node, values={position_ids: repeated})


def _with_axes_of_data(result: np.ndarray, *, shape: tuple[int, ...]) -> np.ndarray:
    """Return a result (B, S, N, h) in the layout of the data."""
    return np.asarray(result.reshape(shape) if len(shape) == _RANK_OF_FLAT_HEADS else result.swapaxes(1, 2))
