"""Operands that a kernel reads otherwise than they are: in another order, from other places, or in a part.

Any node may have any of these mistakes, so that nothing here asks for its operator. Each costs a replay.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations, permutations

import numpy as np

from qdebug.arithmetic.layer_mistakes import Mistake
from qdebug.model import Node, operators

__all__ = ["readings"]


def readings(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield the ways in which a kernel could read what a node reads otherwise, the likely first.

    Args:
        node: The node on real numbers.
        values: Its inputs.
    """
    names = [name for name in dict.fromkeys(node.inputs) if name and values[name].size > 1]
    yield from _ignored(node, values)
    for name in names:
        yield from _orders(node, name, values[name])
    yield from _exchanged(node, values, names)
    for name in names:
        yield from _pitches(node, name, values[name])
    for name in names:
        yield from _broadcasts(node, name, values)
    for name in names:
        yield from _places(node, name, values[name])
    for name in names:
        yield from _parts(node, name, values[name])


def _ignored(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield inputs that are left out, as far as the operator does without."""
    for place, name in enumerate(node.inputs):
        if place and name and np.any(values[name]):
            rest = tuple("" if at == place else each for at, each in enumerate(node.inputs))
            yield Mistake(likely=f"its input {name!r} is ignored", node=replace(node, inputs=rest), values={})


def _orders(node: Node, name: str, array: np.ndarray) -> Iterator[Mistake]:
    """Yield axes that are exchanged or reversed, and memory that is taken for that of axes in another order."""
    axes = [axis for axis in range(array.ndim) if array.shape[axis] > 1]
    if not 1 <= len(axes) <= _MOST_AXES:
        return
    for first, second in combinations(axes, 2):
        if array.shape[first] == array.shape[second]:
            said = f"axes {first} and {second} of {name!r} are exchanged"
            yield Mistake(likely=said, node=node, values={name: array.swapaxes(first, second)}, about=name)
    for turned in permutations(axes):
        moved = iter(turned)
        order = [next(moved) if axis in axes else axis for axis in range(array.ndim)]
        if list(turned) == axes:
            continue
        stored = array.reshape([array.shape[axis] for axis in order]).transpose(np.argsort(order))
        said = f"{name!r} is read as if its axes were stored in the order {', '.join(map(str, order))}"
        yield Mistake(likely=said, node=node, values={name: stored}, about=name)
    for axis in axes:
        said = f"{name!r} is read in reverse along axis {axis}"
        yield Mistake(likely=said, node=node, values={name: np.flip(array, axis)}, about=name)


def _exchanged(node: Node, values: Mapping[str, np.ndarray], names: list[str]) -> Iterator[Mistake]:
    """Yield two operands that are taken for one another."""
    for one, other in combinations(names, 2):
        if values[one].shape == values[other].shape and values[one].dtype == values[other].dtype:
            said = f"{one!r} and {other!r} are exchanged"
            yield Mistake(likely=said, node=node, values={one: values[other], other: values[one]})


def _pitches(node: Node, name: str, array: np.ndarray) -> Iterator[Mistake]:
    """Yield rows, or larger parts, that are read as if each began at the next multiple of so many elements."""
    for axis in range(1, array.ndim):
        length, count = math.prod(array.shape[axis:]), math.prod(array.shape[:axis])
        seen = {length}
        for tile in _TILES if min(length, count) > 1 else ():
            pitch = -(-length // tile) * tile
            if pitch in seen:
                continue
            seen.add(pitch)
            memory = np.zeros(count * pitch, array.dtype)
            memory[: array.size] = array.reshape(-1)
            read = np.stack([memory[at * pitch : at * pitch + length] for at in range(count)]).reshape(array.shape)
            said = f"every {length} elements of {name!r} are read {pitch} apart, as if they were padded to {tile}"
            yield Mistake(likely=said, node=node, values={name: read}, about=name)


def _broadcasts(node: Node, name: str, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield one number for each index of an axis that goes along another axis of as many."""
    array, large = values[name], max(values.values(), key=lambda each: each.size)
    if max(array.shape) != array.size or array.size == large.size or not operators.of(node.op).elementwise:
        return
    own = large.ndim - array.ndim + int(np.argmax(array.shape))
    for axis, extent in enumerate(large.shape):
        if extent == array.size and axis != own:
            turned = array.reshape([-1 if at == axis else 1 for at in range(large.ndim)])
            said = f"{name!r} goes along axis {axis}, not {own}"
            yield Mistake(likely=said, node=node, values={name: turned}, about=name)


def _places(node: Node, name: str, array: np.ndarray) -> Iterator[Mistake]:
    """Yield places that are one off, and the first one for all."""
    for axis in range(array.ndim):
        if array.shape[axis] < _LEAST_EXTENT:
            continue
        for step, way in ((1, "before"), (-1, "after")):
            said = f"{name!r} is read one place {way} the right one along axis {axis}"
            yield Mistake(likely=said, node=node, values={name: np.roll(array, step, axis)}, about=name)
        first = np.broadcast_to(array.take([0], axis), array.shape)
        said = f"the first place of {name!r} along axis {axis} is read for all"
        yield Mistake(likely=said, node=node, values={name: np.ascontiguousarray(first)}, about=name)


def _parts(node: Node, name: str, array: np.ndarray) -> Iterator[Mistake]:
    """Yield operands that count as 0 from a multiple of a tile on, or before it, and those that do throughout."""
    yield Mistake(likely=f"{name!r} counts as 0", node=node, values={name: np.zeros_like(array)}, about=name)
    for axis, extent in enumerate(array.shape):
        ends = {extent - extent % tile for tile in _TILES} | {tile for tile in _TILES if tile < extent}
        ends |= {extent // part for part in (2, 4) if extent % part == 0}
        for end in sorted(ends - {0, extent}, reverse=True):
            cut = array.copy()
            np.moveaxis(cut, axis, 0)[end:] = 0
            said = f"{name!r} counts as 0 from place {end} on along axis {axis}"
            if not np.array_equal(cut, array):
                yield Mistake(likely=said, node=node, values={name: cut}, about=name)


_TILES = (4, 8, 16, 32, 64, 128, 256, 512)
"""Elements that kernels read at once."""
_MOST_AXES = 4
"""Axes of which all orders are tried."""
_LEAST_EXTENT = 3
