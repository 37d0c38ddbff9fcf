"""Detects kernels whose vectorized loop and remainder use two different arithmetics.

A vectorized loop processes a block of elements or channels at a time. The remainder is handled by different code, which
may round differently, as in XNNPACK and ruy.
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

_VECTOR_WIDTHS = (4, 8, 16, 32, 64)
"""Number of elements of 8 to 32 bits in vectors of 128 to 512 bits."""


class VectorTail(NamedTuple):
    """The two arithmetics of a node whose remainder is computed differently.

    Args:
        body: The arithmetic of the vectorized loop.
        tail: The arithmetic of the remainder.
        place_text: The remainder in words.
        elements: Number of recorded elements in the remainder that the arithmetic of the vectorized loop gets wrong.
    """

    body: Variant
    tail: Variant
    place_text: str
    elements: int


def vector_tail(source: UnitSource, places: Sequence[Place], variants: Iterable[Variant]) -> VectorTail | None:
    """Find two arithmetics, one of them for the remainder, that together reproduce every element of a node.

    None if there are no such arithmetics, or too few elements tell them apart.

    Args:
        source: The node and its recorded values.
        places: Samples and steps to examine.
        variants: Arithmetics to try, none of which reproduces every element alone.
    """
    units = [source.unit(place) for place in places]
    recorded = [channels_first(source.codes(place), unit) for place, unit in zip(places, units, strict=True)]
    if len({codes.shape for codes in recorded}) > 1:
        return None
    wrong_masks: dict[Variant, np.ndarray] = {}
    for sums, with_sums in _group_by_heavy_part(variants).items():
        wrong_masks |= _masks_of_wrong_elements(units, recorded, sums, with_sums)
    for place_text, mask in _possible_tails(units[0], source.codes(places[0]).shape):
        is_remainder = channels_first(mask, units[0])
        bodies = [variant for variant, missed in wrong_masks.items() if not missed[:, ~is_remainder].any()]
        tails = [variant for variant, missed in wrong_masks.items() if not missed[:, is_remainder].any()]
        count = int(np.count_nonzero(wrong_masks[bodies[0]])) if bodies else 0
        if tails and count >= UNKNOWN_PROGRAM_MIN_ELEMENTS:  # with fewer, one of many may fit by chance
            return VectorTail(bodies[0], tails[0], place_text, count)
    return None


def _group_by_heavy_part(variants: Iterable[Variant]) -> dict[HeavyPart, list[Variant]]:
    groups: dict[HeavyPart, list[Variant]] = {}
    for variant in variants:
        groups.setdefault(variant.sums, []).append(variant)
    return groups


def _masks_of_wrong_elements(
    units: Sequence[Unit], recorded: Sequence[np.ndarray], sums: HeavyPart, variants: Sequence[Variant]
) -> dict[Variant, np.ndarray]:
    """Return a mask of the elements that each variant gets wrong: (samples, *output), channels first.

    Variants that the unit does not support are missing.

    Args:
        units: The node in each sample.
        recorded: Its recorded codes in each sample, channels first.
        sums: The heavy part that the variants share.
        variants: The variants.
    """
    masks: dict[Variant, list[np.ndarray]] = {variant: [] for variant in variants}
    for unit, codes in zip(units, recorded, strict=True):
        try:
            columns = accumulate(unit, sums)
        except KernelError:
            return {}
        for variant in list(masks):
            checkpoint()
            try:
                computed = finish(unit, columns, variant).reshape(columns.shape)
            except (KernelError, UsageError):
                del masks[variant]
                continue
            if computed.size != codes.size:
                return {}
            masks[variant].append(computed.reshape(codes.shape) != codes)
    return {variant: np.stack(missed) for variant, missed in masks.items()}


def _possible_tails(unit: Unit, shape: tuple[int, ...]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the parts of an output that a vectorized loop may leave as a remainder: in words, and as a mask.

    Args:
        unit: The node.
        shape: Shape of the output in the node's own layout. The masks have the same shape.
    """
    if not shape:
        return
    channel = len(shape) - 1 if unit.channels_last or unit.kind == "linear" else min(1, len(shape) - 1)
    for width in _VECTOR_WIDTHS:
        for name, axis in (("channels", channel), ("elements of each row", len(shape) - 1)):
            count = shape[axis] % width
            if count and count < shape[axis]:
                axis_mask = np.arange(shape[axis]) >= shape[axis] - count
                mask = axis_mask.reshape(-1, *(1,) * (len(shape) - axis - 1))
                yield f"the last {count} {name}", np.broadcast_to(mask, shape)
        size = int(np.prod(shape))
        count = size % width
        if count and count < size:
            yield f"the last {count} elements", (np.arange(size) >= size - count).reshape(shape)
