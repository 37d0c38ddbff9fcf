"""Where the wrong elements of a tensor lie: in a tail, on the borders, in a block of channels, in one sample.

A place counts as found only if wrong elements scattered at random would hardly ever fall into it: a place of share f
of all elements holds k random ones with probability f**k, and there are about n**2 places to choose from along an axis
of n. A node with three wrong elements therefore has no place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from qdebug.model.thresholds.patterns import (
    BLOCK_PART_MAX_PROBABILITY,
    BORDER_MAX_WIDTH,
    FEW_ARE_ONE_IN,
    FLOAT64_COMPARISON_SLACK,
    KERNEL_BLOCKS,
    PLACE_MAX_PROBABILITY,
)
from qdebug.replay.unit import Unit

__all__ = ["Layout", "WrongPlace", "chance", "layout_of", "places"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Which axes of a tensor mean what.

    Args:
        channel: Axis of the channels; None if there is none.
        spatial: Axes of positions: height and width, or the columns of a picture's patches.
        first: What axis 0 counts.
        vectors: Whether the channels are the features of vectors, as those that a product with a matrix gives, and the
            last axis of positions counts these vectors.
    """

    channel: int | None = None
    spatial: tuple[int, ...] = ()
    first: str = "sample"
    vectors: bool = False

    @property
    def channel_name(self) -> str:
        """Channel or feature: the role of the channel axis."""
        return "feature" if self.vectors else "channel"

    @property
    def spatial_names(self) -> list[tuple[str, str]]:
        """The role of each spatial axis, in singular and plural."""
        many = len(self.spatial)
        if self.vectors:
            vector = ("row", "rows") if many == 1 else ("token", "tokens")
            return [("index", "indices")] * (many - 1) + [vector] * min(many, 1)
        names = [("plane", "planes"), ("row", "rows"), ("column", "columns")]
        if many == 1:
            return [("position", "positions")]
        return [*[("index", "indices")] * (many - 3), *names[max(0, 3 - many) :]]

    def element(self, index: Sequence[int]) -> str:
        """Say which element an index is, the first axis included: by the roles of the axes."""
        names = {0: self.first} | {
            axis + 1: name for axis, (name, _) in zip(self.spatial, self.spatial_names, strict=True)
        }
        if self.channel is not None:
            names[self.channel + 1] = self.channel_name
        return ", ".join(f"{names.get(axis, 'index')} {at}" for axis, at in enumerate(index))


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongPlace:
    """A part of a tensor that holds all wrong elements.

    Args:
        pattern: Its kind, such as "tail" or "borders".
        detail: The place in words.
        share: Share of the tensor's elements that lie in it.
        loose: Whether it is a list of indices without order.
        channels: Whether it is some of the channels, in all positions.
    """

    pattern: str
    detail: str
    share: float
    loose: bool = False
    channels: bool = False


def layout_of(unit: Unit, axes: int, *, last: bool = False) -> Layout:
    """Assign roles (channel, row, column, feature) to the axes of an output after the first one.

    Args:
        unit: What is computed.
        axes: Number of the other axes.
        last: Whether the channels come last after all.
    """
    if unit.kind == "linear" or (axes == 2 and unit.kind != "conv"):
        vectors = unit.kind == "linear"
        return Layout(channel=axes - 1, spatial=tuple(range(axes - 1)), vectors=vectors)
    if axes == 0:
        return Layout()
    if last:
        return Layout(channel=axes - 1, spatial=tuple(range(axes - 1)))
    return Layout(channel=0, spatial=tuple(range(1, axes)))


def chance(share: float, wrong: int, choices: int = 1, *, total: int | None = None) -> bool:
    """Tell whether it may be chance that all wrong elements lie in a place of this share of the tensor.

    Args:
        share: Share of the tensor's elements in the place.
        wrong: How many elements are wrong.
        choices: How many such places there are to choose from.
        total: How many elements the tensor has, none of which is wrong twice; None if it has far more.
    """
    likelihood = wrong * math.log(share)
    if total is not None:
        likelihood = _ways(max(round(share * total), wrong), wrong) - _ways(total, wrong)
    return likelihood + math.log(choices) > math.log(PLACE_MAX_PROBABILITY)


def _ways(count: int, chosen: int) -> float:
    """Return the logarithm of the number of ways to choose some elements of many."""
    return math.lgamma(count + 1) - math.lgamma(chosen + 1) - math.lgamma(count - chosen + 1)


def places(wrong: np.ndarray, layout: Layout) -> tuple[WrongPlace, ...]:
    """Find the places that hold all wrong elements, the smallest first.

    Args:
        wrong: Which elements are wrong: axis 0 counts samples (and steps), the others are the tensor's own.
        layout: The axes of the tensor, counted without the first of `wrong`.
    """
    count = int(np.count_nonzero(wrong))
    if not count:
        return ()
    found = _samples(wrong, layout.first, count)
    if layout.channel is not None:
        name = layout.channel_name
        along = _along(wrong, layout.channel + 1, count, (name, f"{name}s"))
        as_channels = {"rows": "channels"}
        found += [replace(each, pattern=as_channels.get(each.pattern, each.pattern), channels=True) for each in along]
    found += _spatial(wrong, layout, count)
    return tuple(sorted(found, key=lambda place: place.share))


def _samples(wrong: np.ndarray, name: str, count: int) -> list[WrongPlace]:
    hit = np.flatnonzero(wrong.reshape(wrong.shape[0], -1).any(axis=1))
    total = wrong.shape[0]
    share = float(hit.size / total)
    in_order = hit[-1] - hit[0] + 1 == hit.size
    side = "first" if in_order and hit[0] == 0 else "last" if in_order and hit[-1] == total - 1 else ""
    few = hit.size <= max(1, total // FEW_ARE_ONE_IN)
    if hit.size == total or not (few or side) or chance(share, count, total, total=None if few else wrong.size):
        return []
    if hit.size == 1:
        return [WrongPlace(pattern="one_sample", detail=f"only in {name} {hit[0]} of {total}", share=share)]
    if side:
        return [
            WrongPlace(pattern="few_samples", detail=f"only in the {side} {hit.size} {name}s of {total}", share=share)
        ]
    return [WrongPlace(pattern="few_samples", detail=f"only in {hit.size} of {total} {name}s", share=share, loose=True)]


def _spatial(wrong: np.ndarray, layout: Layout, count: int) -> list[WrongPlace]:
    axes = [axis + 1 for axis in layout.spatial]
    names = layout.spatial_names
    found = [place for axis, name in zip(axes, names, strict=True) for place in _along(wrong, axis, count, name)]
    tails = [tail for tail in _block_tails(wrong, axes, count) if all(tail.share < place.share for place in found)]
    if tails:
        return tails
    borders = _borders(wrong, axes, names, count)
    return [
        *found,
        *(place for place in borders if all(place.share < other.share - FLOAT64_COMPARISON_SLACK for other in found)),
    ]


def _along(wrong: np.ndarray, axis: int, count: int, name: tuple[str, str]) -> list[WrongPlace]:
    """Find a tail, a head, a block or a few indices along one axis."""
    total = wrong.shape[axis]
    hit = np.flatnonzero(wrong.any(axis=tuple(other for other in range(wrong.ndim) if other != axis)))
    share = hit.size / total
    if hit.size == total or chance(share, count, total * total):
        return []
    first, last = int(hit[0]), int(hit[-1])
    title = name[1] if hit.size > 1 else name[0]
    one_piece = last - first + 1 == hit.size
    if one_piece and last == total - 1:
        return [WrongPlace(pattern="tail", detail=f"only in the last {_many(hit.size, name)} of {total}", share=share)]
    if one_piece and first == 0:
        return [WrongPlace(pattern="rows", detail=f"only in the first {_many(hit.size, name)} of {total}", share=share)]
    if one_piece:
        span = f"{first}" if hit.size == 1 else f"{first} to {last}"
        return [WrongPlace(pattern="rows", detail=f"only in {title} {span} of {total}", share=share)]
    if chance(share, count, math.comb(total, hit.size)):  # any few elements lie in few indices
        return []
    period = _period(hit, total)
    if period is not None:
        return [WrongPlace(pattern="block_tail", detail=f"only in {period} of the {name[1]}", share=share)]
    if share <= 0.5:
        listed = ", ".join(str(index) for index in hit[:6]) + (", ..." if hit.size > 6 else "")
        detail = f"only in {hit.size} of {total} {name[1]}: {listed}"
        return [WrongPlace(pattern="rows", detail=detail, share=share, loose=True)]
    return []


def _many(count: int, name: tuple[str, str]) -> str:
    return name[0] if count == 1 else f"{count} {name[1]}"


def _period(hit: np.ndarray, total: int) -> str | None:
    """Say of which blocks the indices are the same part, if of any: of the blocks of which they are the least part."""
    best: tuple[float, int, np.ndarray] | None = None
    for block in KERNEL_BLOCKS:
        residues = np.unique(hit % block)
        ways = math.log(math.comb(block, residues.size))
        repeats = hit.size * math.log(residues.size / block) + ways < math.log(BLOCK_PART_MAX_PROBABILITY)
        few = residues.size <= block // FEW_ARE_ONE_IN and total >= 2 * block
        if repeats and few and (best is None or residues.size / block < best[0]):
            best = (residues.size / block, block, residues)
    if best is None:
        return None
    _, block, residues = best
    if residues[0] == block - residues.size:
        return f"the last{f' {residues.size}' if residues.size > 1 else ''} of every {block}"
    part = ", ".join(str(residue) for residue in residues[:4]) + (", ..." if residues.size > 4 else "")
    return f"number {part} of every {block}"


def _borders(wrong: np.ndarray, axes: Sequence[int], names: Sequence[tuple[str, str]], count: int) -> list[WrongPlace]:
    """Find a frame that holds all wrong elements and that no single axis accounts for."""
    for width in range(1, BORDER_MAX_WIDTH + 1):
        if any(wrong.shape[axis] <= 2 * width for axis in axes) or not axes:
            return []
        inside = tuple(slice(width, -width) if axis in axes else slice(None) for axis in range(wrong.ndim))
        if wrong[inside].any():
            continue
        sides = _sides(wrong, axes, names, width)
        share = 1 - math.prod(
            1 - len(_of_axis(sides, name)) * width / wrong.shape[axis] for axis, name in zip(axes, names, strict=True)
        )
        if chance(share, count, BORDER_MAX_WIDTH * 4 ** len(axes)):
            return []
        several = f"{width} " if width > 1 else ""
        detail = " and ".join(f"the {end} {several}{name[width > 1]}" for end, name in sides)
        return [WrongPlace(pattern="borders", detail=f"only in {detail}", share=share)]
    return []


def _sides(
    wrong: np.ndarray, axes: Sequence[int], names: Sequence[tuple[str, str]], width: int
) -> list[tuple[str, tuple[str, str]]]:
    """List the ends of the axes that are needed to hold all wrong elements: ends first that hold most on their own."""
    left = wrong.copy()
    rated = []
    for axis, name in zip(axes, names, strict=True):
        for end, part in (("first", slice(0, width)), ("last", slice(-width, None))):
            where = tuple(part if other == axis else slice(None) for other in range(wrong.ndim))
            rated.append((int(np.count_nonzero(wrong[where])), end, name, where))
    needed = []
    for _, end, name, where in sorted(rated, key=lambda entry: -entry[0]):
        if left[where].any():
            needed.append((end, name))
            left[where] = False
    order = list(names)
    return sorted(needed, key=lambda side: (order.index(side[1]), side[0]))


def _of_axis(sides: Sequence[tuple[str, tuple[str, str]]], name: tuple[str, str]) -> list[str]:
    return [end for end, own in sides if own == name]


def _block_tails(wrong: np.ndarray, axes: Sequence[int], count: int) -> list[WrongPlace]:
    """Find the same part of every block of positions, counted through all spatial axes as a kernel counts them."""
    if len(axes) < 2:
        return []
    positions = np.flatnonzero(wrong.any(axis=tuple(axis for axis in range(wrong.ndim) if axis not in axes)))
    total = math.prod(wrong.shape[axis] for axis in axes)
    period = _period(positions, total)
    share = positions.size / total
    if period is None or chance(share, count, sum(KERNEL_BLOCKS)):
        return []
    return [WrongPlace(pattern="block_tail", detail=f"only in {period} positions", share=share)]
