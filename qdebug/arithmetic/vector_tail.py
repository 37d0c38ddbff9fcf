"""Kernels whose vector part and whose rest are computed by two arithmetics, which together give every element.

A kernel takes elements or channels some at a time; what is left over goes through other code, which may round in
another way (XNNPACK and ruy have both: a vector loop, and one element at a time).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from qdebug.arithmetic.search import channels_first
from qdebug.arithmetic.units import Place, UnitSource
from qdebug.errors import KernelError, UsageError
from qdebug.model.thresholds.explanation import UNKNOWN_PROGRAM_MIN_ELEMENTS
from qdebug.numerics.checkpoint import checkpoint
from qdebug.replay.columns import HeavyPart
from qdebug.replay.evaluate import accumulate, finish
from qdebug.replay.unit import Unit
from qdebug.replay.variant import Variant

__all__ = ["VectorTail", "vector_tail"]

_WIDTHS = (4, 8, 16, 32, 64)
"""Elements that vectors of 128 to 512 bits hold, of 8 to 32 bits each."""


class VectorTail(NamedTuple):
    """Two arithmetics of one node.

    Args:
        body: The arithmetic of the vector part.
        tail: That of what is left over.
        where: What is left over, in words.
        elements: How many recorded elements of them the vector part's arithmetic gets wrong.
    """

    body: Variant
    tail: Variant
    where: str
    elements: int


def vector_tail(source: UnitSource, places: Sequence[Place], variants: Iterable[Variant]) -> VectorTail | None:
    """Find two arithmetics that give every element of a node together, one of them what vectors leave over.

    Args:
        source: The node and its recorded values.
        places: The samples and steps that are looked at.
        variants: The arithmetics that are tried, none of which gives every element.
    """
    units = [source.unit(place) for place in places]
    recorded = [channels_first(source.codes(place), unit) for place, unit in zip(places, units, strict=True)]
    if len({codes.shape for codes in recorded}) > 1:
        return None
    wrong: dict[Variant, np.ndarray] = {}
    for sums, own in _by_sums(variants).items():
        wrong |= _wrong(units, recorded, sums, own)
    for where, own_order in _left_over(units[0], source.codes(places[0]).shape):
        left_over = channels_first(own_order, units[0])
        bodies = [variant for variant, missed in wrong.items() if not missed[:, ~left_over].any()]
        tails = [variant for variant, missed in wrong.items() if not missed[:, left_over].any()]
        count = int(np.count_nonzero(wrong[bodies[0]])) if bodies else 0
        if tails and count >= UNKNOWN_PROGRAM_MIN_ELEMENTS:  # fewer may fit one of many arithmetics by chance
            return VectorTail(bodies[0], tails[0], where, count)
    return None


def _by_sums(variants: Iterable[Variant]) -> dict[HeavyPart, list[Variant]]:
    groups: dict[HeavyPart, list[Variant]] = {}
    for variant in variants:
        groups.setdefault(variant.sums, []).append(variant)
    return groups


def _wrong(
    units: Sequence[Unit], recorded: Sequence[np.ndarray], sums: HeavyPart, variants: Sequence[Variant]
) -> dict[Variant, np.ndarray]:
    """Return which elements variants of the same sums get wrong: (samples, *output), channels first."""
    found: dict[Variant, list[np.ndarray]] = {variant: [] for variant in variants}
    for unit, codes in zip(units, recorded, strict=True):
        try:
            columns = accumulate(unit, sums)
        except KernelError:
            return {}
        for variant in list(found):
            checkpoint()
            try:
                made = finish(unit, columns, variant).reshape(columns.shape)
            except (KernelError, UsageError):
                del found[variant]
                continue
            if made.size != codes.size:
                return {}
            found[variant].append(made.reshape(codes.shape) != codes)
    return {variant: np.stack(missed) for variant, missed in found.items()}


def _left_over(unit: Unit, shape: tuple[int, ...]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield what vectors may leave over of an output: the ends of its channels, of its rows, of all its elements.

    Args:
        unit: The node.
        shape: Shape of the output in the node's own layout, as are the masks.
    """
    if not shape:
        return
    channel = len(shape) - 1 if unit.channels_last or unit.kind == "linear" else min(1, len(shape) - 1)
    for width in _WIDTHS:
        for name, axis in (("channels", channel), ("elements of each row", len(shape) - 1)):
            count = shape[axis] % width
            if count and count < shape[axis]:
                line = np.arange(shape[axis]) >= shape[axis] - count
                over = line.reshape(-1, *(1,) * (len(shape) - axis - 1))
                yield f"the last {count} {name}", np.broadcast_to(over, shape)
        size = int(np.prod(shape))
        count = size % width
        if count and count < size:
            yield f"the last {count} elements", (np.arange(size) >= size - count).reshape(shape)
