"""Finds where wrong elements lie: in a tail, on the borders, in a block of channels, in one sample. Begin at `places`.

A place is reported only if randomly scattered wrong elements would hardly ever all fall into it. A place with a share f
of all elements contains k random elements with probability f**k, and an axis of extent n has about n**2 places. So a
node with only three wrong elements has no place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qdebug.model import Node, operators
from qdebug.model.operators import Sums
from qdebug.model.thresholds.patterns import (
    BLOCK_PART_MAX_PROBABILITY,
    BORDER_MAX_WIDTH,
    CONFINED_MAX_OTHER_SHARE,
    FEW_ARE_ONE_IN,
    FLOAT64_COMPARISON_SLACK,
    KERNEL_BLOCKS,
    MEMORY_PART_MAX_SHARE,
    PLACE_MAX_PROBABILITY,
    UNBROADCAST_MIN_WRONG_SHARE,
)
from qdebug.replay.unit import Unit

__all__ = ["Layout", "WrongPlace", "layout_of", "may_be_chance", "may_be_confined", "places", "unbroadcast_operand"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Roles of the axes of a tensor. Axes are numbered without axis 0.

    Args:
        channel: The channel axis, or None if there is none.
        spatial: Axes of positions: height and width, or the columns of image patches.
        first: Role of axis 0, as a noun.
        vectors: Whether the channels are the features of vectors, as in a matrix product. The last spatial axis then
            numbers these vectors.
    """

    channel: int | None = None
    spatial: tuple[int, ...] = ()
    first: str = "sample"
    vectors: bool = False

    @property
    def channel_name(self) -> str:
        """Name of an index of the channel axis: "channel" or "feature"."""
        return "feature" if self.vectors else "channel"

    @property
    def spatial_names(self) -> list[tuple[str, str]]:
        """The role of each spatial axis, in singular and plural."""
        rank = len(self.spatial)
        if self.vectors:
            vector = ("row", "rows") if rank == 1 else ("token", "tokens")
            return [("index", "indices")] * (rank - 1) + [vector] * min(rank, 1)
        names = [("plane", "planes"), ("row", "rows"), ("column", "columns")]
        if rank == 1:
            return [("position", "positions")]
        return [*[("index", "indices")] * (rank - 3), *names[max(0, 3 - rank) :]]

    def element(self, index: Sequence[int]) -> str:
        """Format an index, including axis 0, with the roles of its axes: "sample 0, channel 3, row 1"."""
        names = {0: self.first} | {
            axis + 1: name for axis, (name, _) in zip(self.spatial, self.spatial_names, strict=True)
        }
        if self.channel is not None:
            names[self.channel + 1] = self.channel_name
        return ", ".join(f"{names.get(axis, 'index')} {position}" for axis, position in enumerate(index))


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongPlace:
    """A part of a tensor that contains all wrong elements.

    Args:
        pattern: Its kind, such as "tail" or "borders".
        detail: A clause for readers.
        share: Its share of the tensor's elements.
        loose: Whether it is a list of indices without a pattern.
        channels: Whether it consists of whole channels, at all positions.
    """

    pattern: str
    detail: str
    share: float
    loose: bool = False
    channels: bool = False


def layout_of(unit: Unit, axes: int, *, last: bool = False) -> Layout:
    """Return the roles (channel, row, column, feature) of an output's axes, without axis 0.

    Args:
        unit: The unit.
        axes: Number of axes without axis 0.
        last: Whether the channels come last.
    """
    if unit.kind == "linear" or (axes == 2 and unit.kind != "conv"):
        vectors = unit.kind == "linear"
        return Layout(channel=axes - 1, spatial=tuple(range(axes - 1)), vectors=vectors)
    if axes == 0:
        return Layout()
    if last:
        return Layout(channel=axes - 1, spatial=tuple(range(axes - 1)))
    return Layout(channel=0, spatial=tuple(range(1, axes)))


def may_be_chance(share: float, wrong: int, choices: int = 1, *, total: int | None = None) -> bool:
    """Return whether all wrong elements may lie in a place by chance.

    Args:
        share: Share of the tensor's elements in the place.
        wrong: Number of wrong elements.
        choices: Number of such places to choose from.
        total: Number of elements of the tensor, to draw without replacement. None to draw with replacement, which is
            close enough if the tensor is far larger than `wrong`.
    """
    likelihood = wrong * math.log(share)
    if total is not None:
        likelihood = _log_binomial(max(round(share * total), wrong), wrong) - _log_binomial(total, wrong)
    return likelihood + math.log(choices) > math.log(PLACE_MAX_PROBABILITY)


def _log_binomial(count: int, chosen_count: int) -> float:
    """Return the logarithm of a binomial coefficient."""
    return math.lgamma(count + 1) - math.lgamma(chosen_count + 1) - math.lgamma(count - chosen_count + 1)


def places(wrong: np.ndarray, layout: Layout) -> tuple[WrongPlace, ...]:
    """Find the places that contain all wrong elements, smallest first.

    Args:
        wrong: Boolean mask. Axis 0 counts samples (and steps), the other axes are the tensor's own.
        layout: Roles of the tensor's axes, counted without axis 0 of `wrong`.
    """
    count = int(np.count_nonzero(wrong))
    if not count:
        return ()
    result = _places_in_samples(wrong, layout.first, count)
    if layout.channel is not None:
        name = layout.channel_name
        channel_places = _places_along_axis(wrong, layout.channel + 1, count, (name, f"{name}s"))
        as_channels = {"rows": "channels"}
        result += [
            replace(channel_place, pattern=as_channels.get(channel_place.pattern, channel_place.pattern), channels=True)
            for channel_place in channel_places
        ]
    result += _places_in_positions(wrong, layout, count)
    smallest_share = min((place.share for place in result), default=1.0)
    result += [
        place
        for place in _places_in_memory_order(wrong, count)
        if place.share <= MEMORY_PART_MAX_SHARE * smallest_share
    ]
    return tuple(sorted(result, key=lambda place: place.share))


def may_be_confined(is_wrong: np.ndarray, is_other: np.ndarray) -> bool:
    """Return whether a mistake that reproduces all wrong elements may be made in one place alone.

    It may be if there is a box, a range in memory or a part of every block that contains all wrong elements, and nearly
    no right ones that the mistake would change.

    Args:
        is_wrong: Mask of the wrong elements.
        is_other: Mask of the right elements that the mistake would change.
    """
    allowed_count = CONFINED_MAX_OTHER_SHARE * np.count_nonzero(is_wrong)
    return any(np.count_nonzero(is_other & region) <= allowed_count for region in _regions(is_wrong))


def _regions(is_wrong: np.ndarray) -> Iterator[np.ndarray]:
    """Yield masks of simple places that contain all wrong elements."""
    for axes in range(is_wrong.ndim, 0, -1):  # the last axes are flattened, as positions in a plane are
        flattened = is_wrong.reshape(*is_wrong.shape[: axes - 1], -1)
        box = np.ones(flattened.shape, bool)
        for axis in range(axes):
            others = tuple(other for other in range(axes) if other != axis)
            is_affected = np.asarray(flattened.any(axis=others))
            if axis == axes - 1 and axes < is_wrong.ndim:
                is_affected = _filled_between(is_affected)
            box &= is_affected.reshape([-1 if at == axis else 1 for at in range(axes)])
        yield box.reshape(is_wrong.shape)
        indices = np.arange(flattened.shape[-1])
        for block in KERNEL_BLOCKS:
            residues = np.isin(indices % block, np.unique(np.nonzero(flattened)[-1] % block))
            yield np.broadcast_to(residues, flattened.shape).reshape(is_wrong.shape)


def _filled_between(mask: np.ndarray) -> np.ndarray:
    """Return a mask of all indices between the first and the last of a mask."""
    indices = np.flatnonzero(mask)
    is_between = np.zeros_like(mask)
    if indices.size:
        is_between[indices[0] : indices[-1] + 1] = True
    return is_between


def unbroadcast_operand(node: Node, shapes: Mapping[str, tuple[int, ...]], is_wrong: np.ndarray) -> str | None:
    """Return a clause if only those slices of a result are right that need no broadcast of an operand, or None.

    A kernel that does not broadcast computes the first slice alone, or reads beyond the operand for all others. What it
    leaves there is unknown, but most of these elements must be wrong.

    Args:
        node: The node.
        shapes: Shapes of its operands.
        is_wrong: Mask of the wrong elements of its result.
    """
    row, names = operators.of(node.op), [name for name in node.inputs[:2] if name in shapes]
    is_matrix_product = row.sums is Sums.MATRIX
    if not (is_matrix_product or row.elementwise) or len(names) != 2:
        return None
    for axis in range(is_wrong.ndim - 2 if is_matrix_product else is_wrong.ndim):
        extent = is_wrong.shape[axis]
        slices = np.moveaxis(is_wrong, axis, 0).reshape(extent, -1)
        if extent < 2 or slices[0].any() or not (slices[1:].mean(axis=1) > UNBROADCAST_MIN_WRONG_SHARE).all():
            continue
        extents = {name: (1,) * (is_wrong.ndim - len(shapes[name])) + shapes[name] for name in names}
        broadcast = [name for name in names if len(extents[name]) == is_wrong.ndim and extents[name][axis] == 1]
        if len(broadcast) == 1 and not may_be_chance(1 - 1 / extent, int(np.count_nonzero(is_wrong)), is_wrong.ndim):
            kind = "batch slice" if is_matrix_product else f"index of axis {axis}"
            return f"probably {broadcast[0]!r} is not broadcast: only the first {kind} of {extent} is right"
    return None


def _places_in_memory_order(is_wrong: np.ndarray, count: int) -> Iterator[WrongPlace]:
    """Find wrong elements at the start or end of a tensor in memory, as if a loop started late or ended early.

    Most elements of the part must be wrong.
    """
    if is_wrong.ndim < 2:
        return
    flat = np.flatnonzero(is_wrong)
    first, last = int(flat[0]), int(flat[-1])
    for pattern, size, at, text in (
        ("tail", is_wrong.size - first, first, "only from element {} on"),
        ("head", last + 1, last, "only up to element {}"),
    ):
        mostly_wrong = count > size - count
        if mostly_wrong and size < is_wrong.size and not may_be_chance(size / is_wrong.size, count, is_wrong.size):
            index = [int(part) for part in np.unravel_index(at, is_wrong.shape)]
            yield WrongPlace(
                pattern=pattern, detail=f"{text.format(index)}, in memory order", share=size / is_wrong.size
            )


def _places_in_samples(is_wrong: np.ndarray, name: str, count: int) -> list[WrongPlace]:
    affected = np.flatnonzero(is_wrong.reshape(is_wrong.shape[0], -1).any(axis=1))
    total = is_wrong.shape[0]
    share = float(affected.size / total)
    in_order = affected[-1] - affected[0] + 1 == affected.size
    side = "first" if in_order and affected[0] == 0 else "last" if in_order and affected[-1] == total - 1 else ""
    # The affected samples are reported only if they are few or form a run at one end. Otherwise the wrong elements may
    # be spread by chance.
    is_few = affected.size <= max(1, total // FEW_ARE_ONE_IN)
    period = None if in_order else _repeated_part_of_blocks(affected, total)
    if period is not None and not may_be_chance(share, count, sum(KERNEL_BLOCKS)):
        return [WrongPlace(pattern="block_tail", detail=f"only in {period} of the {name}s", share=share)]
    if (
        affected.size == total
        or not (is_few or side)
        or may_be_chance(share, count, total, total=None if is_few else is_wrong.size)
    ):
        return []
    if affected.size == 1:
        return [WrongPlace(pattern="one_sample", detail=f"only in {name} {affected[0]} of {total}", share=share)]
    if side:
        return [
            WrongPlace(
                pattern="few_samples", detail=f"only in the {side} {affected.size} {name}s of {total}", share=share
            )
        ]
    return [
        WrongPlace(pattern="few_samples", detail=f"only in {affected.size} of {total} {name}s", share=share, loose=True)
    ]


def _places_in_positions(is_wrong: np.ndarray, layout: Layout, count: int) -> list[WrongPlace]:
    axes = [axis + 1 for axis in layout.spatial]
    names = layout.spatial_names
    axis_places = [
        place
        for axis, name in zip(axes, names, strict=True)
        for place in _places_along_axis(is_wrong, axis, count, name)
    ]
    tails = [
        tail
        for tail in _find_block_tails(is_wrong, axes, count)
        if all(tail.share < place.share for place in axis_places)
    ]
    if tails:
        return tails
    borders = _find_frame(is_wrong, axes, names, count)
    return [
        *axis_places,
        *(
            place
            for place in borders
            if all(place.share < axis_place.share - FLOAT64_COMPARISON_SLACK for axis_place in axis_places)
        ),
    ]


def _places_along_axis(is_wrong: np.ndarray, axis: int, count: int, name: tuple[str, str]) -> list[WrongPlace]:
    """Find a tail, a head, a block or a few indices along one axis."""
    total = is_wrong.shape[axis]
    affected = np.flatnonzero(
        is_wrong.any(axis=tuple(dimension for dimension in range(is_wrong.ndim) if dimension != axis))
    )
    share = affected.size / total
    if affected.size == total or may_be_chance(share, count, total * total):
        return []
    first, last = int(affected[0]), int(affected[-1])
    title = name[1] if affected.size > 1 else name[0]
    is_contiguous = last - first + 1 == affected.size
    if is_contiguous and last == total - 1:
        return [
            WrongPlace(
                pattern="tail", detail=f"only in the last {_count_text(affected.size, name)} of {total}", share=share
            )
        ]
    if is_contiguous and first == 0:
        return [
            WrongPlace(
                pattern="rows", detail=f"only in the first {_count_text(affected.size, name)} of {total}", share=share
            )
        ]
    if is_contiguous:
        span = f"{first}" if affected.size == 1 else f"{first} to {last}"
        return [WrongPlace(pattern="rows", detail=f"only in {title} {span} of {total}", share=share)]
    if may_be_chance(
        share, count, math.comb(total, affected.size)
    ):  # a few random elements also touch only a few indices
        return []
    period = _repeated_part_of_blocks(affected, total)
    if period is not None:
        return [WrongPlace(pattern="block_tail", detail=f"only in {period} of the {name[1]}", share=share)]
    if share <= 0.5:
        indices_text = ", ".join(str(index) for index in affected[:6]) + (", ..." if affected.size > 6 else "")
        detail = f"only in {affected.size} of {total} {name[1]}: {indices_text}"
        return [WrongPlace(pattern="rows", detail=detail, share=share, loose=True)]
    return []


def _count_text(count: int, name: tuple[str, str]) -> str:
    return name[0] if count == 1 else f"{count} {name[1]}"


def _repeated_part_of_blocks(indices: np.ndarray, total: int) -> str | None:
    """Return a clause if the indices are the same part of every kernel block along an axis, or None.

    Args:
        indices: The affected indices, ascending.
        total: Extent of the axis.
    """
    best: tuple[float, int, np.ndarray] | None = None
    for block in KERNEL_BLOCKS:
        residues = np.unique(indices % block)
        in_order = int(residues[-1] - residues[0]) + 1 == residues.size
        log_choices = math.log(block if in_order else math.comb(block, residues.size))
        repeats = indices.size * math.log(residues.size / block) + log_choices < math.log(BLOCK_PART_MAX_PROBABILITY)
        is_small_part = residues.size <= block // (2 if in_order else FEW_ARE_ONE_IN) and total >= 2 * block
        is_small_part &= indices[0] // block < indices[-1] // block
        if repeats and is_small_part and (best is None or residues.size / block < best[0]):
            best = (residues.size / block, block, residues)
    if best is None:
        return None
    _, block, residues = best
    if residues[0] == block - residues.size:
        return f"the last{f' {residues.size}' if residues.size > 1 else ''} of every {block}"
    if residues.size > 1 and int(residues[-1] - residues[0]) + 1 == residues.size:
        return f"numbers {residues[0]} to {residues[-1]} of every {block}"
    residues_text = ", ".join(str(residue) for residue in residues[:4]) + (", ..." if residues.size > 4 else "")
    return f"number {residues_text} of every {block}"


def _find_frame(
    is_wrong: np.ndarray, axes: Sequence[int], names: Sequence[tuple[str, str]], count: int
) -> list[WrongPlace]:
    """Find a frame along the borders that contains all wrong elements."""
    for width in range(1, BORDER_MAX_WIDTH + 1):
        if any(is_wrong.shape[axis] <= 2 * width for axis in axes) or not axes:
            return []
        interior = tuple(slice(width, -width) if axis in axes else slice(None) for axis in range(is_wrong.ndim))
        if is_wrong[interior].any():
            continue
        sides = _ends_with_wrong_elements(is_wrong, axes, names, width)
        share = 1 - math.prod(
            1 - len(_ends_of_axis(sides, name)) * width / is_wrong.shape[axis]
            for axis, name in zip(axes, names, strict=True)
        )
        if may_be_chance(share, count, BORDER_MAX_WIDTH * 4 ** len(axes)):
            return []
        width_text = f"{width} " if width > 1 else ""
        detail = " and ".join(f"the {end} {width_text}{name[width > 1]}" for end, name in sides)
        return [WrongPlace(pattern="borders", detail=f"only in {detail}", share=share)]
    return []


def _ends_with_wrong_elements(
    is_wrong: np.ndarray, axes: Sequence[int], names: Sequence[tuple[str, str]], width: int
) -> list[tuple[str, tuple[str, str]]]:
    """List the ends of the axes that together contain all wrong elements, chosen greedily, largest count first.

    Args:
        is_wrong: Mask of the wrong elements.
        axes: The axes.
        names: Their roles.
        width: Number of indices at each end.

    Returns:
        "first" or "last" and the role of the axis, for each end.
    """
    uncovered = is_wrong.copy()
    rated_sides = []
    for axis, name in zip(axes, names, strict=True):
        for end, span in (("first", slice(0, width)), ("last", slice(-width, None))):
            side_index = tuple(span if dimension == axis else slice(None) for dimension in range(is_wrong.ndim))
            rated_sides.append((int(np.count_nonzero(is_wrong[side_index])), end, name, side_index))
    needed_sides = []
    for _, end, name, side_index in sorted(rated_sides, key=lambda entry: -entry[0]):
        if uncovered[side_index].any():
            needed_sides.append((end, name))
            uncovered[side_index] = False
    order = list(names)
    return sorted(needed_sides, key=lambda side: (order.index(side[1]), side[0]))


def _ends_of_axis(sides: Sequence[tuple[str, tuple[str, str]]], name: tuple[str, str]) -> list[str]:
    return [end for end, side_name in sides if side_name == name]


def _find_block_tails(is_wrong: np.ndarray, axes: Sequence[int], count: int) -> list[WrongPlace]:
    """Find wrong elements in the same part of every block of positions, numbered across spatial axes in C order."""
    if len(axes) < 2:
        return []
    positions = np.flatnonzero(is_wrong.any(axis=tuple(axis for axis in range(is_wrong.ndim) if axis not in axes)))
    total = math.prod(is_wrong.shape[axis] for axis in axes)
    period = _repeated_part_of_blocks(positions, total)
    share = positions.size / total
    if period is None or may_be_chance(share, count, sum(KERNEL_BLOCKS)):
        return []
    return [WrongPlace(pattern="block_tail", detail=f"only in {period} positions", share=share)]
