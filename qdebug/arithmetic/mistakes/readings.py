"""Mistakes in reading operands: in a different order, from different places, or only in part.

They are possible for any operator. Testing each costs a replay.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, permutations

import numpy as np

from qdebug.arithmetic.mistakes.mistake import Mistake
from qdebug.model import Node

__all__ = ["readings"]

Reading = tuple[str, np.ndarray]
"""A sentence with `{}` for the operand's name, and the values that the kernel reads by mistake."""


def readings(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield the mistakes that a kernel could make in reading a node's operands, likely ones first.

    Args:
        node: The node's real-valued form.
        values: Its inputs.
    """
    names = [name for name in dict.fromkeys(node.inputs) if name and values[name].size > 1]
    yield from _with_ignored_inputs(node, values)
    yield from _with_swapped_operands(node, values, names)
    for name in names:
        yield from _with_interleaved_operand(node, name, values[name])
    for name in names:
        for text, array in _misreadings(values[name]):
            yield Mistake(likely=text.format(repr(name)), node=node, values={name: array}, about=name)


def _misreadings(array: np.ndarray) -> Iterator[Reading]:
    """Yield the mistakes in reading one operand, likely ones first."""
    axes = [axis for axis in range(array.ndim) if array.shape[axis] > 1]
    yield from _orders(array, axes)
    yield from _pitches(array)
    yield from _places(array, axes)
    yield from _blocks(array, axes)
    yield from _parts(array, axes)


def _with_ignored_inputs(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield inputs that are omitted, if the operator allows it."""
    for place, name in enumerate(node.inputs):
        if place and name and np.any(values[name]):
            remaining_inputs = tuple("" if at == place else each for at, each in enumerate(node.inputs))
            yield Mistake(
                likely=f"its input {name!r} is ignored", node=replace(node, inputs=remaining_inputs), values={}
            )


def _with_swapped_operands(node: Node, values: Mapping[str, np.ndarray], names: Sequence[str]) -> Iterator[Mistake]:
    """Yield two operands that are swapped."""
    for first, second in combinations(names, 2):
        if values[first].shape == values[second].shape and values[first].dtype == values[second].dtype:
            text = f"{first!r} and {second!r} are swapped"
            yield Mistake(likely=text, node=node, values={first: values[second], second: values[first]})


def _with_interleaved_operand(node: Node, name: str, array: np.ndarray) -> Iterator[Mistake]:
    """Yield an operand with elements interleaved in blocks, and its result de-interleaved, as for heads or groups."""
    for axis, extent in enumerate(array.shape):
        for count in (each for each in range(2, min(extent, _MOST_BLOCKS + 1)) if extent % each == 0):
            size = extent // count
            for inner in (each for each in range(1, size) if size % each == 0):
                order = np.arange(extent).reshape(count, size // inner, inner).swapaxes(0, 1).reshape(-1)
                blocks = f"{count} blocks" if inner == 1 else f"{count} blocks by {inner}"
                yield Mistake(
                    likely=f"{name!r} along axis {axis}, and the result, are treated as if they were interleaved "
                    f"in {blocks}",
                    node=node,
                    values={name: array.take(order, axis)},
                    after=partial(_undo_interleaving, order=order),
                    about=name,
                )


def _undo_interleaving(result: np.ndarray, *, order: np.ndarray) -> np.ndarray:
    """Return a result with the interleaving undone along its last axis of that extent."""
    axes = [axis for axis, extent in enumerate(result.shape) if extent == order.size]
    return np.asarray(result.take(np.argsort(order), axes[-1])) if axes else result


def _orders(array: np.ndarray, axes: Sequence[int]) -> Iterator[Reading]:
    """Yield axes that are swapped or reversed, and memory read in a different order of the axes than its own."""
    if not 1 <= len(axes) <= _MOST_AXES:
        return
    for first, second in combinations(axes, 2):
        if array.shape[first] == array.shape[second]:
            yield f"axes {first} and {second} of {{}} are swapped", array.swapaxes(first, second)
    for axis_order in permutations(axes):
        reordered_axes = iter(axis_order)
        order = [next(reordered_axes) if axis in axes else axis for axis in range(array.ndim)]
        if list(axis_order) != list(axes):
            rearranged = array.reshape([array.shape[axis] for axis in order]).transpose(np.argsort(order))
            yield f"{{}} is read as if its axes were stored in the order {', '.join(map(str, order))}", rearranged
            unturned = array.transpose(order).reshape(array.shape)
            text = f"{{}} is stored with its axes in the order {', '.join(map(str, order))}, which the kernel ignores"
            yield text, unturned
    for axis in axes:
        yield f"{{}} is read in reverse along axis {axis}", np.flip(array, axis)


def _pitches(array: np.ndarray) -> Iterator[Reading]:
    """Yield rows, or larger parts, that are read as if each began at the next multiple of a pitch."""
    for axis in range(1, array.ndim):
        length, count = math.prod(array.shape[axis:]), math.prod(array.shape[:axis])
        used_pitches = {length}
        for tile in _TILES if min(length, count) > 1 else ():
            pitch = -(-length // tile) * tile
            if pitch in used_pitches:
                continue
            used_pitches.add(pitch)
            memory = np.zeros(count * pitch, array.dtype)
            memory[: array.size] = array.reshape(-1)
            strided = np.stack([memory[at * pitch : at * pitch + length] for at in range(count)]).reshape(array.shape)
            yield f"every {length} elements of {{}} are read {pitch} apart, as if they were padded to {tile}", strided


def _places(array: np.ndarray, axes: Sequence[int]) -> Iterator[Reading]:
    """Yield positions that are off by one, and the first or last one in place of all."""
    for axis in axes:
        if array.shape[axis] < _LEAST_EXTENT:
            continue
        for step, way in ((1, "before"), (-1, "after")):
            yield f"{{}} is read one position {way} the right one along axis {axis}", np.roll(array, step, axis)
        for place, end_name in ((0, "first"), (-1, "last")):
            repeated = np.broadcast_to(array.take([place], axis), array.shape)
            yield (
                f"the {end_name} element of {{}} along axis {axis} is read for all positions",
                np.ascontiguousarray(repeated),
            )


def _blocks(array: np.ndarray, axes: Sequence[int]) -> Iterator[Reading]:
    """Yield blocks of positions that are swapped, repeated, or interleaved."""
    for axis in axes:
        extent = array.shape[axis]
        for count in (each for each in range(2, min(extent, _MOST_BLOCKS + 1)) if extent % each == 0):
            size = extent // count
            places = np.arange(extent).reshape(count, size)
            if count == _HALVES:
                yield f"the halves of {{}} along axis {axis} are swapped", array.take(places[::-1].reshape(-1), axis)
            if size > 1:
                for block, end_name in ((0, "first"), (-1, "last")):
                    repeated = array.take(np.tile(places[block], count), axis)
                    yield f"the {end_name} {size} elements of {{}} along axis {axis} are read repeatedly", repeated
            for parts, order in ((count, places.T), (size, places.reshape(size, count).T)):
                if 1 < parts < extent and (parts == count or count * count != extent):
                    text = f"the elements of {{}} along axis {axis} are interleaved in {parts} blocks"
                    yield text, array.take(np.ascontiguousarray(order).reshape(-1), axis)


def _parts(array: np.ndarray, axes: Sequence[int]) -> Iterator[Reading]:
    """Yield operands treated as 0 throughout, or before or after a multiple of a tile or a fraction."""
    yield "{} counts as 0", np.zeros_like(array)
    for axis in axes:
        extent = array.shape[axis]
        ends = {extent - extent % tile for tile in _TILES} | {tile for tile in _TILES if tile < extent}
        ends |= {extent // span for span in _FRACTIONS if extent % span == 0}
        ends |= {extent - end for end in ends}
        for end in sorted(ends - {0, extent}, reverse=True):
            for span, place_text in ((slice(end, None), f"from index {end} on"), (slice(end), f"before index {end}")):
                zeroed = array.copy()
                np.moveaxis(zeroed, axis, 0)[span] = 0
                if not np.array_equal(zeroed, array):
                    yield f"{{}} counts as 0 {place_text} along axis {axis}", zeroed


_TILES = (4, 8, 16, 32, 64, 128, 256, 512)
"""Number of elements that kernels read at once."""
_FRACTIONS = (2, 4)
_HALVES = 2
_MOST_BLOCKS = 16
"""Maximum number of blocks that an axis is divided into."""
_MOST_AXES = 4
"""Maximum number of axes for which all orders are tried."""
_LEAST_EXTENT = 3
"""Smallest extent of an axis for which a shift differs from a swap."""
