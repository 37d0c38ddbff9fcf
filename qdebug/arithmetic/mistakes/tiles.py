"""Mistakes of kernels that compute a result, or read their operand, in tiles. Begin at `tile_mistakes`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from math import prod

import numpy as np

from qdebug.arithmetic.mistakes.lanes import empty_lanes, ends_of_tiles
from qdebug.arithmetic.mistakes.mistake import Mistake
from qdebug.model import AttrValue, Node, operators
from qdebug.model.thresholds.patterns import KERNEL_BLOCKS

__all__ = ["repeated_tiles", "tile_mistakes"]

_SELECTING = ("ArgMax", "ArgMin", "TopK", "Hardmax")
_MEANS = ("ReduceMean", "GlobalAveragePool")
_TILE_SIDES = (2, 4, 6, 8)
"""Sides of the tiles of results that Winograd's and other convolutions compute at once."""
_MIN_TILES = 2
"""Number of tiles that must lie in the known part of a result to show the step between tiles."""


def tile_mistakes(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which a reduction covers some tiles alone, or tiles of a convolution have a wrong distance.

    Args:
        node: The node's real form.
        values: Its inputs.
    """
    name = node.inputs[0] if node.inputs else ""
    if name not in values or not values[name].size:
        return
    yield from _parts_of_reductions(node, values, name)
    yield from _padded_counts(node, values, name)
    yield from _indices_within_tiles(node, values, name)
    yield from _steps_of_tiles(node, values)


def _reduced_axes(node: Node, values: Mapping[str, np.ndarray], data: np.ndarray) -> tuple[int, ...]:
    """Return the axes that a reduction or selection works along, or () if they are unknown or there are none."""
    if node.op in _SELECTING:
        axis = node.attrs.get("axis", 0 if node.op.startswith("Arg") else -1)
        return (axis % data.ndim,) if isinstance(axis, int) and data.ndim else ()
    if node.op in ("GlobalAveragePool", "GlobalMaxPool"):
        return tuple(range(2, data.ndim))
    if not operators.of(node.op).reduces:
        return ()
    listed: AttrValue | list[int] | None = node.attrs.get("axes")
    if len(node.inputs) > 1 and node.inputs[1] in values:
        listed = values[node.inputs[1]].reshape(-1).tolist()
    if not listed:
        return () if node.attrs.get("noop_with_empty_axes") else tuple(range(data.ndim))
    return tuple(int(str(axis)) % data.ndim for axis in listed) if isinstance(listed, tuple | list) else ()


def _parts_of_reductions(node: Node, values: Mapping[str, np.ndarray], name: str) -> Iterator[Mistake]:
    """Yield reductions and selections that see only the first or last elements, as many as whole tiles hold."""
    data = values[name]
    for axis in _reduced_axes(node, values, data):
        count = data.shape[axis]
        for end in ends_of_tiles(count):
            first = data.take(range(end), axis)
            likely = f"only the first {end} of {count} elements along axis {axis} are reduced"
            yield Mistake(likely=likely, node=node, values={name: first}, about=_FIRST_ELEMENTS)
        last_tile = next((tile for tile in KERNEL_BLOCKS if tile < count), 0)
        for start in (
            sorted({count % tile for tile in KERNEL_BLOCKS if tile < count} | {last_tile}) if last_tile else ()
        ):
            if start:
                likely = f"the first {start} of {count} elements along axis {axis} are skipped"
                rest = data.take(range(start, count), axis)
                if node.op not in _SELECTING:
                    yield Mistake(likely=likely, node=node, values={name: rest}, about=_FIRST_ELEMENTS)


_FIRST_ELEMENTS = "first elements"


def _padded_counts(node: Node, values: Mapping[str, np.ndarray], name: str) -> Iterator[Mistake]:
    """Yield means divided by the number of elements with the padding to whole tiles."""
    if node.op not in _MEANS:
        return
    data = values[name]
    axes = _reduced_axes(node, values, data)
    count = prod(data.shape[axis] for axis in axes)
    for lanes in empty_lanes(count) if count else ():
        likely = f"the sums are divided by {count + lanes}, the {count} elements and the padding of the last tile"
        scaled = partial(_times, factor=count / (count + lanes))
        yield Mistake(likely=likely, node=node, values={}, after=scaled)


def _times(result: np.ndarray, *, factor: float) -> np.ndarray:
    return np.asarray(result * result.dtype.type(factor))


def _indices_within_tiles(node: Node, values: Mapping[str, np.ndarray], name: str) -> Iterator[Mistake]:
    """Yield indices of a selection that count within each tile."""
    for axis in _reduced_axes(node, values, values[name]) if node.op in _SELECTING else ():
        for tile in (each for each in KERNEL_BLOCKS if each < values[name].shape[axis]):
            likely = f"its indices count within each tile of {tile} elements"
            yield Mistake(likely=likely, node=node, values={}, after=partial(_modulo, tile=tile))


def _modulo(result: np.ndarray, *, tile: int) -> np.ndarray:
    return np.asarray(result % tile) if result.dtype.kind in "iu" else result


def _steps_of_tiles(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield convolutions whose tiles of results lie further apart in the input than in the result.

    What a kernel returns for tiles beyond the input is unknown.
    """
    weight = values.get(node.inputs[1]) if len(node.inputs) > 1 else None
    row = operators.of(node.op)
    if weight is None or weight.ndim < 3 or not (row.windowed and row.product) or node.attrs.get("channels_last"):
        return
    for axis in range(2, weight.ndim):
        extent, taps = values[node.inputs[0]].shape[axis], weight.shape[axis]
        for tile in _TILE_SIDES:
            places = np.arange(extent)
            steps = {
                f"the tiles of {tile} elements of the result along axis {axis} begin at every element {step} n, not "
                f"{tile} n": places // tile * step + places % tile
                for step in sorted({2 * tile, tile + taps - 1, tile + 1} - {tile})
            }
            is_first = places // tile % 2 == 0
            steps[
                f"each first of two tiles of {tile} elements of the result along axis {axis} is the tile after it"
            ] = np.where(is_first, places + tile, places)
            for likely, read in steps.items():
                known = int(np.argmax(read >= extent))
                if known >= _MIN_TILES * tile:
                    yield Mistake(
                        likely=f"{likely}; beyond index {known - 1}, the input determines no result",
                        node=node,
                        values={},
                        after=partial(_taken, read=read, axis=axis),
                        determined=(slice(None),) * axis + (slice(0, known),),
                        about=_STEPS,
                    )


_STEPS = "steps of tiles"


def _taken(result: np.ndarray, *, read: np.ndarray, axis: int) -> np.ndarray:
    """Return a result with other indices along an axis. Indices beyond it, which nothing determines, are clipped."""
    extent = result.shape[axis]
    return np.asarray(result.take(np.minimum(read[:extent], extent - 1), axis))


def repeated_tiles(array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield results of which each second tile, or the last one, repeats another tile, as clauses with `{}` for a name.

    Args:
        array: The right result.
    """
    for axis, extent in enumerate(array.shape):
        places = np.arange(extent)
        for tile in (each for each in (*_TILE_SIDES, 16, 32) if each <= extent // 2):
            number = places // tile
            is_odd = number % 2 == 1
            before = places - tile
            yield (
                f"each second tile of {tile} indices of {{}} along axis {axis} repeats the tile before it",
                array.take(np.where(is_odd, before, places), axis),
            )
            if extent % tile:
                is_rest = places >= extent - extent % tile
                yield (
                    f"the incomplete last tile of {{}} along axis {axis} repeats the {extent % tile} indices before it",
                    array.take(np.where(is_rest, places - extent % tile, places), axis),
                )
                read = np.where(is_rest, before, places)
                text = f"the incomplete last tile of {{}} along axis {axis} is that of the tile of {tile} before it"
                yield text, array.take(read, axis)
