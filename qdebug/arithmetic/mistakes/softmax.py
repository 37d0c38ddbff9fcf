"""Known mistakes of softmax kernels, also inside attention: sums and maxima of blocks. Begin at `softmax_mistakes`.

A kernel that runs over blocks keeps the largest number so far. When that grows, it must multiply the sum, and the
result of an attention, by exp(old maximum - new maximum) (Milakov and Gimelshein, "Online normalizer calculation for
softmax", 2018).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from qdebug.arithmetic.definitions.attention import define_attention
from qdebug.arithmetic.definitions.definition import Definition
from qdebug.arithmetic.mistakes.lanes import empty_lanes
from qdebug.arithmetic.mistakes.mistake import Mistake, always
from qdebug.model import Node
from qdebug.model.thresholds.explanation import FURTHER_CAUSE_MAX_SUMS
from qdebug.model.thresholds.patterns import KERNEL_BLOCKS

__all__ = ["INFINITE_MASK", "softmax_mistakes"]

_MAX_EXPONENTIALS = FURTHER_CAUSE_MAX_SUMS // 32
"""Maximum number of exponentials to compute. One costs about as much as 32 products."""
_VARIANTS = 8


def softmax_mistakes(node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int]) -> Iterator[Mistake]:
    """Yield the mistakes that a kernel could make in the sums and maxima of a softmax or an attention.

    Args:
        node: The node's real form.
        values: Its inputs.
        opset: Version of each operator set of its graph.
    """
    data, axis = values.get(node.inputs[0]) if node.inputs else None, node.attrs.get("axis", -1)
    if data is None or data.dtype.kind != "f":
        return
    if node.op in ("Softmax", "LogSoftmax"):
        if isinstance(axis, int) and -data.ndim <= axis < data.ndim and data.size:
            yield from _of_softmax(node, data, axis)
    elif node.op in ("Attention", "MultiHeadAttention"):
        inputs = [values.get(name) if name else None for name in node.inputs]
        definition = define_attention(node, inputs, opset.get(node.domain, 1))
        if definition is not None:
            yield from _of_attention(node, definition, data.dtype)


def _of_softmax(node: Node, data: np.ndarray, axis: int) -> Iterator[Mistake]:
    """Yield mistakes of a softmax along one axis."""
    scores = np.moveaxis(data.astype(np.float64), axis, -1)

    def finish(shares: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            result = np.log(shares) if node.op == "LogSoftmax" else shares
        return np.moveaxis(result, -1, axis).astype(data.dtype)

    for likely, shares in (*_padded_sums(scores), *_shares_of_blocks(scores)):
        yield Mistake(likely=likely, node=node, values={}, after=always(finish(shares)))
    for kind, detail, shares in _shares_in_tiles(scores):
        yield _of_tiles(node, kind, detail, finish(shares))


def _of_attention(node: Node, definition: Definition, dtype: np.dtype) -> Iterator[Mistake]:
    """Yield mistakes in the softmax of an attention."""
    names = definition.evaluate(definition.lines)
    scores, keyed_values = np.asarray(names["scores"], np.float64), np.asarray(names["values"], np.float64)
    is_hidden = np.asarray(scores.max(-1, keepdims=True) == -np.inf)

    def finish(shares: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return definition.finish(np.matmul(shares, keyed_values)).astype(dtype)

    for kind, detail, shares in (*_shares_in_tiles(scores), *_shares_without_last_keys(scores)):
        # A right kernel returns 0 where all keys are hidden.
        yield _of_tiles(node, kind, detail, finish(np.where(is_hidden, 0.0, shares)))
    if is_hidden.any():
        for likely, shares in _shares_of_hidden_rows(definition, scores, is_hidden):
            result = finish(shares)
            yield Mistake(
                likely=likely, node=node, values={}, after=always(result), about=INFINITE_MASK, kind=INFINITE_MASK
            )


def _of_tiles(node: Node, kind: str, detail: str, result: np.ndarray) -> Mistake:
    return Mistake(likely=f"{kind}{detail}", node=node, values={}, after=always(result), about=kind, kind=kind)


INFINITE_MASK = "the infinite values of a mask act as finite numbers"
"""Common kind (`Mistake.kind`) of mistakes with masks."""


def _shares_of_hidden_rows(
    definition: Definition, scores: np.ndarray, is_hidden: np.ndarray
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the shares of keys if queries whose keys are all hidden are not treated apart, each after a clause."""
    rows = "queries that see no key"
    shares = _softmax(np.where(is_hidden, 0.0, scores))
    yield f"{rows} get the average of all values, not 0 (the mask is a large finite number)", shares
    yield f"{rows} get NaN, not 0 (0 / 0 is not treated apart)", np.where(is_hidden, np.nan, shares)
    mask = definition.values.get("mask")
    if mask is not None:
        unmasked = np.ones_like(mask) if np.asarray(mask).dtype == np.bool_ else np.zeros_like(mask)
        plain = definition.evaluate(definition.lines, {**definition.values, "mask": unmasked})
        unhidden = np.where(is_hidden, np.asarray(plain["scores"], np.float64), scores)
        yield f"{rows} see all keys as if there were no mask, but should get 0", _softmax(unhidden)


def _softmax(scores: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        return np.asarray(powers / powers.sum(-1, keepdims=True))


def _shares_without_last_keys(scores: np.ndarray) -> Iterator[tuple[str, str, np.ndarray]]:
    """Yield the shares of keys if those beyond the last whole tile are not seen at all, each after a clause."""
    count = scores.shape[-1]
    for end in sorted({count - count % tile for tile in KERNEL_BLOCKS} - {0, count}):
        cut = np.where(np.arange(count) < end, scores, -np.inf)
        yield f"the last {count - end} of {count} keys are not seen, as they do not fill a tile", "", _softmax(cut)


def _padded_sums(scores: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the shares if the sum counts empty lanes, which hold 0 and contribute exp(0), each after a clause."""
    count = scores.shape[-1]
    for lanes in empty_lanes(count):
        with np.errstate(all="ignore"):
            largest = np.maximum(scores.max(-1, keepdims=True), 0)
            powers = np.exp(scores - largest)
            shares = powers / (powers.sum(-1, keepdims=True) + lanes * np.exp(-largest))
        yield f"the sum includes {lanes} empty lanes beyond the {count} elements, each as exp(0)", shares


def _shares_of_blocks(scores: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the shares if each block is normalized by its own maximum and sum, each after a clause."""
    count = scores.shape[-1]
    for block in (each for each in KERNEL_BLOCKS if each < count):
        parts = [_softmax(part) for part in np.split(scores, range(block, count, block), -1)]
        yield f"each block of {block} elements is normalized separately", np.concatenate(parts, -1)


def _shares_in_tiles(scores: np.ndarray) -> Iterator[tuple[str, str, np.ndarray]]:
    """Yield the shares if a step of a softmax over tiles is wrong, each after a clause and its detail on the tile."""
    tiles = [tile for tile in KERNEL_BLOCKS if tile < scores.shape[-1]]
    for tile in tiles[: _MAX_EXPONENTIALS // (_VARIANTS * max(scores.size, 1))]:
        yield from _Tiles.split(scores, tile).wrong_shares()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tiles:
    """The scores of a softmax over tiles.

    Args:
        scores: The scores (..., n).
        tile: Number of elements of a tile. The last one may be shorter.
        own: Largest number of the tile of each element (..., n).
        running: Largest number up to the end of the tile of each element (..., n).
    """

    scores: np.ndarray
    tile: int
    own: np.ndarray
    running: np.ndarray

    @staticmethod
    def split(scores: np.ndarray, tile: int) -> _Tiles:
        """Split scores into tiles."""
        count = scores.shape[-1]
        tops = np.maximum.reduceat(scores, np.arange(0, count, tile), axis=-1)
        number = np.arange(count) // tile
        running = np.maximum.accumulate(tops, axis=-1)
        return _Tiles(scores=scores, tile=tile, own=tops[..., number], running=running[..., number])

    def wrong_shares(self) -> Iterator[tuple[str, str, np.ndarray]]:
        """Yield the shares with one step left out, each after a clause and its detail on the tile."""
        scores, tile, count = self.scores, self.tile, self.scores.shape[-1]
        grows, of_tile = "when the maximum grows", f" after a tile of {tile} elements"
        with np.errstate(all="ignore"):
            top = scores.max(-1, keepdims=True)
            powers, early = np.exp(scores - top), np.exp(scores - self.running)
            sums, early_sums = (each.sum(-1, keepdims=True) for each in (powers, early))
            yield f"the running sum is not rescaled {grows}", of_tile, powers / early_sums
            yield f"the running result is not rescaled {grows}", of_tile, early / sums
            yield f"neither the running sum nor the result is rescaled {grows}", of_tile, early / early_sums
            shifted = np.exp(scores - self.own)
            likely = "each tile subtracts its own maximum, but all are divided by one sum"
            yield likely, f" (tiles of {tile} elements)", shifted / shifted.sum(-1, keepdims=True)
            whole = count - count % tile
            last = whole if whole < count else count - tile
            unshifted = np.where(np.arange(count) >= last, np.exp(scores), powers)
            likely = f"the maximum is not subtracted in the last {count - last} of {count} elements"
            yield likely, "", unshifted / unshifted.sum(-1, keepdims=True)
            for end in {whole, last} - {0, count}:
                likely = f"the sum covers only the first {end} of {count} elements"
                yield likely, "", powers / powers[..., :end].sum(-1, keepdims=True)
