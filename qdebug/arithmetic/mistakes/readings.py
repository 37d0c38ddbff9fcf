"""Mistakes in reading operands: in a different order, from other positions, only in part, or as other numbers.

Any operator can have them. Testing one costs a replay, except for a result that is written in another order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, combinations, permutations

import numpy as np

from qdebug.arithmetic.mistakes.mistake import Mistake, always
from qdebug.arithmetic.mistakes.repeats import written_in_other_order
from qdebug.arithmetic.mistakes.tiles import repeated_tiles
from qdebug.arithmetic.mistakes.widths import width_mistakes
from qdebug.model import Node, operators
from qdebug.numerics.short_formats import SHORT_FORMATS

__all__ = ["misreadings", "readings", "rewritings"]

Reading = tuple[str, np.ndarray]
"""A clause with `{}` for the operand's name, and the values that a kernel reads by mistake."""


def readings(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield the mistakes that a kernel could make in reading a node's operands, likely ones first.

    Args:
        node: The node's real form.
        values: Its inputs.
    """
    names = [name for name in dict.fromkeys(node.inputs) if name]
    large_names = [name for name in names if values[name].size > 1]
    yield from _ignored_inputs(node, values)
    yield from _swapped_operands(node, values, large_names)
    for name in large_names:
        yield from _interleaved_operand(node, name, values[name])
    for name in names:
        other_numbers = _changed_numbers(values[name])
        other_positions = misreadings(values[name]) if name in large_names else ()
        ignored = _ignored_parts(node, values[name]) if name == node.inputs[0] else ()
        for text, array in chain(other_positions, ignored, _wrong_broadcasts(values[name]), other_numbers):
            yield Mistake(likely=text.format(repr(name)), node=node, values={name: array}, about=name)
        for text, array in _fewer_digits(values[name]):
            likely = text.format(repr(name))
            yield Mistake(likely=likely, node=node, values={name: array}, about=name, is_rounding=True)
    yield from _quantized_factors(node, values)
    yield from width_mistakes(node, values)


def rewritings(node: Node, result: np.ndarray) -> Iterator[Mistake]:
    """Yield the mistakes that a kernel could make in writing a result. None needs a replay.

    Parts that are never written are left out, because their position reveals more about the cause.

    Args:
        node: The node's real form.
        result: Its right result.
    """
    yield from written_in_other_order(node, result)
    if result.size <= 1:
        return
    for text, array in chain(_reorderings(result), repeated_tiles(result), _accumulated_tiles(result)):
        yield Mistake(
            likely=text.format("the result"),
            node=node,
            values={},
            after=always(array),
            about="result",
        )


def _accumulated_tiles(array: np.ndarray) -> Iterator[Reading]:
    """Yield results to which the results of all tiles before are added, as if the accumulator were not cleared."""
    for axis in _wide_axes(array) if array.dtype.kind == "f" else ():
        for tile in (each for each in _TILES if each < array.shape[axis]):
            tiles = np.split(array, range(tile, array.shape[axis], tile), axis)
            total = [np.zeros_like(tiles[0])]
            for part in tiles:
                total.append(total[-1].take(range(part.shape[axis]), axis) + part)
            text = f"{{}} of each {tile} indices along axis {axis} is added to that of the previous ones (not cleared)"
            yield text, np.concatenate(total[1:], axis)


def misreadings(array: np.ndarray) -> Iterator[Reading]:
    """Yield the mistakes in reading one operand, likely ones first, as clauses with `{}` for its name."""
    yield from _reorderings(array)
    yield from _zeroed_parts(array, _wide_axes(array))
    yield from _other_mask_bands(array)
    yield from _strides_of_other_axes(array)


def _other_mask_bands(array: np.ndarray) -> Iterator[Reading]:
    """Yield a band mask with its band shifted, widened or narrowed.

    A band mask has two values. Row i marks a range of columns that has the same offset from column i in all rows, as in
    a causal mask or a sliding window.
    """
    if array.ndim < _MATRIX_RANK or min(array.shape[-2:]) < _MATRIX_RANK or np.unique(array).size != _MATRIX_RANK:
        return
    rows, columns = array.shape[-2:]
    distance = np.arange(columns) - np.arange(rows)[:, None]
    marked = array == array.max()
    own_distances = distance[marked.reshape(-1, rows, columns)[0]]
    if not own_distances.size:
        return
    first, last = int(own_distances.min()), int(own_distances.max())
    if not np.array_equal(marked, np.broadcast_to((first <= distance) & (distance <= last), array.shape)):
        return
    ends = 1 - rows, columns - 1
    others = [(first, other) for other in (0, columns - rows, -first, last - 1, last + 1, ends[1]) if last != ends[1]]
    others += [(other, last) for other in (0, -last, first - 1, first + 1, ends[0]) if first != ends[0]]
    for other in dict.fromkeys(others):
        if other != (first, last) and other[0] <= other[1]:
            is_marked = np.broadcast_to((other[0] <= distance) & (distance <= other[1]), array.shape)
            text = f"row i of {{}} marks columns {_columns_text(other, ends)}, not {_columns_text((first, last), ends)}"
            yield text, np.where(is_marked, array.max(), array.min()).astype(array.dtype)


def _columns_text(band: tuple[int, int], ends: tuple[int, int]) -> str:
    """Return the columns that row i of a band mask marks, in words.

    Args:
        band: Offsets of the first and last column from column i.
        ends: Smallest and largest offset in the mask.
    """
    low, high = (f"i{shift:+d}" if shift else "i" for shift in band)
    if band[0] <= ends[0]:
        return f"up to {high}" if band[1] < ends[1] else "of all"
    return f"{low} to {high}" if band[1] < ends[1] else f"from {low} on"


def _wide_axes(array: np.ndarray) -> list[int]:
    return [axis for axis in range(array.ndim) if array.shape[axis] > 1]


def _reorderings(array: np.ndarray) -> Iterator[Reading]:
    """Yield an array with its elements in another order, or with some elements replaced by others of it."""
    axes = _wide_axes(array)
    yield from _axis_orders(array, axes)
    yield from _row_pitches(array)
    yield from _shifts_and_repeats(array, axes)
    yield from _blocked_axes(array)
    yield from _reordered_blocks(array, axes)
    yield from _reversed_groups(array, axes)
    yield from _transposed_tiles_and_sparse_groups(array)


def _wrong_broadcasts(array: np.ndarray) -> Iterator[Reading]:
    """Yield a vector along another axis, as a wrong broadcast reads it."""
    if array.size in (0, 1) or array.size != max(array.shape):
        return
    own_axis = int(np.argmax(array.shape)) - array.ndim
    for axes in range(array.ndim, max(array.ndim, _MAX_AXES) + 1):
        for axis in range(-axes, 0):
            shape = [1] * axes
            shape[axis] = array.size
            if tuple(shape) != array.shape and (axes == array.ndim or axis == -axes):
                yield f"{{}} is broadcast along axis {axis}, not {own_axis}", array.reshape(shape)


def _changed_numbers(array: np.ndarray) -> Iterator[Reading]:
    """Yield an operand with its numbers negated, truncated, clamped or replaced by a function of them."""
    if array.dtype.kind in "iu":  # `attributes.other_integers` tries other values of scalar integers
        yield from _changed_integers(array) if array.size > 1 else ()
        return
    if array.dtype.kind == "b":
        yield "{} is inverted", ~array
    if array.dtype.kind != "f":
        return
    yield "the sign of {} is flipped", -array
    yield "{} is truncated to integers", np.trunc(array)
    yield "{} is read without its sign", np.abs(array)
    yield "negative numbers of {} are read as 0", np.maximum(array, 0)
    yield "the square of {} is read", np.square(array)
    yield "the root of {} is read", np.sqrt(np.abs(array)).astype(array.dtype)


def _fewer_digits(array: np.ndarray) -> Iterator[Reading]:
    """Yield an operand rounded to a shorter float format, or to 8-bit codes."""
    if array.dtype.kind != "f":
        return
    for short in SHORT_FORMATS:
        if array.dtype == np.float32 and short.bits >= _MIN_FORMAT_BITS:
            yield f"{{}} is rounded to {short.name} first", short.rounded(array)
    for axis in (None, *(axis for axis in range(array.ndim) if 1 < array.shape[axis] < array.size)):
        place = "one scale" if axis is None else f"a scale for each index of axis {axis}"
        yield f"{{}} is quantized to 8 bits first, with {place}", _quantize_to_8_bits(array, axis)


def _changed_integers(array: np.ndarray) -> Iterator[Reading]:
    """Yield integers that are off by one, narrowed, of the other signedness, all equal, or replaced by positions."""
    ends = np.iinfo(array.dtype)
    for step, word in ((1, "one too large"), (-1, "one too small")):
        if ends.min < array.min(initial=0) and array.max(initial=0) < ends.max:
            yield f"{{}} is {word}", array + array.dtype.type(step)
    other_sign = np.dtype(f"{'i' if array.dtype.kind == 'u' else 'u'}{array.dtype.itemsize}")
    if array.ndim and np.any(array.view(other_sign) != array):
        yield f"{{}} is read as {other_sign.name}", array.view(other_sign)
    for dtype in map(np.dtype, ("int8", "uint8", "int16", "int32")):
        narrowed = array.astype(dtype).astype(array.dtype)
        if dtype.itemsize < array.dtype.itemsize and not np.array_equal(narrowed, array):
            yield f"{{}} is kept in {dtype.name} and wraps around", narrowed
    yield "the largest number of {} is used for all elements", np.full_like(array, array.max())
    yield "the smallest number of {} is used for all elements", np.full_like(array, array.min())
    for axis in _wide_axes(array) if array.min(initial=0) >= 0 else ():
        shape = [-1 if at == axis else 1 for at in range(array.ndim)]
        positions = np.arange(array.shape[axis], dtype=array.dtype).reshape(shape)
        yield (
            f"{{}} is ignored, and the positions along axis {axis} are used",
            np.array(np.broadcast_to(positions, array.shape)),
        )


_MIN_FORMAT_BITS = 8
"""Number of bits of the shortest float format that operands are rounded to."""


def _quantize_to_8_bits(array: np.ndarray, axis: int | None) -> np.ndarray:
    """Round numbers to symmetric 8-bit codes, with one scale or one for each index of an axis, and dequantize them."""
    others = None if axis is None else tuple(each for each in range(array.ndim) if each != axis)
    with np.errstate(all="ignore"):
        scale = np.max(np.abs(array), axis=others, keepdims=True) / _LARGEST_CODE
        return np.where(scale > 0, np.rint(array / scale) * scale, array).astype(array.dtype)


_LARGEST_CODE = 127


def _quantized_factors(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield the mistake of quantizing both factors of a product to 8 bits first."""
    names = [name for name in node.inputs[:2] if name and values[name].dtype.kind == "f"]
    if operators.of(node.op).product and len(names) == len({*node.inputs[:2]}):
        likely = "both factors are quantized to 8 bits first, with one scale each"
        quantized = {name: _quantize_to_8_bits(values[name], None) for name in names}
        yield Mistake(likely=likely, node=node, values=quantized, is_rounding=True)


def _ignored_inputs(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which an input after the first is ignored, or added to the result instead."""
    for place, name in enumerate(node.inputs):
        if place and name and np.any(values[name]):
            remaining_inputs = tuple("" if at == place else each for at, each in enumerate(node.inputs))
            without = replace(node, inputs=remaining_inputs)
            yield Mistake(likely=f"its input {name!r} is ignored", node=without, values={})
            if values[name].dtype.kind == "f" and operators.of(node.op).elementwise:
                late = Mistake(
                    likely=f"{name!r} is added to the result instead",
                    node=node,
                    values={name: np.zeros_like(values[name])},
                    after=partial(_plus, array=values[name]),
                )
                yield late
            if values[name].dtype.kind == "f":
                likely = f"its input {name!r} is ignored, and added to the result"
                yield Mistake(likely=likely, node=without, values={}, after=partial(_plus, array=values[name]))


def _plus(result: np.ndarray, *, array: np.ndarray) -> np.ndarray:
    """Return the result plus the array, or the result unchanged if the array does not broadcast to it."""
    try:
        total = np.asarray(result + array)
    except ValueError:
        return result
    return total if total.shape == result.shape else result


def _swapped_operands(node: Node, values: Mapping[str, np.ndarray], names: Sequence[str]) -> Iterator[Mistake]:
    """Yield mistakes in which two operands are swapped, or one is read in place of another."""
    for first, second in combinations(names, 2):
        if values[first].shape == values[second].shape and values[first].dtype == values[second].dtype:
            text = f"{first!r} and {second!r} are swapped"
            yield Mistake(likely=text, node=node, values={first: values[second], second: values[first]})
            for name, other in ((first, second), (second, first)):
                yield Mistake(likely=f"{other!r} is read instead of {name!r}", node=node, values={name: values[other]})


def _interleaved_operand(node: Node, name: str, array: np.ndarray) -> Iterator[Mistake]:
    """Yield mistakes in which the heads or groups of an operand, and of the result, are taken to be interleaved."""
    for axis, extent in enumerate(array.shape):
        for count in (each for each in range(2, min(extent, _MAX_BLOCKS + 1)) if extent % each == 0):
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
    """Undo an interleaving along the last axis of a result with the same extent as the order, if it has one."""
    axes = [axis for axis, extent in enumerate(result.shape) if extent == order.size]
    return np.asarray(result.take(np.argsort(order), axes[-1])) if axes else result


def _axis_orders(array: np.ndarray, axes: Sequence[int]) -> Iterator[Reading]:
    """Yield an array with axes swapped or reversed, or with its memory read in another order of the axes."""
    if not 1 <= len(axes) <= _MAX_AXES:
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


def _row_pitches(array: np.ndarray) -> Iterator[Reading]:
    """Yield an array read as if each row, or each larger part, were padded to a multiple of a tile."""
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


def _shifts_and_repeats(array: np.ndarray, axes: Sequence[int]) -> Iterator[Reading]:
    """Yield an array shifted along an axis by one element or a tile, or with single elements repeated along it."""
    for axis in axes:
        for step, way in ((1, "before"), (-1, "after")) if array.shape[axis] >= _MIN_EXTENT else ():
            yield f"{{}} is read one position {way} the right one along axis {axis}", np.roll(array, step, axis)
        for tile in (each for each in _TILES if each < array.shape[axis]):
            text = f"{{}} is read {tile} positions before the right one along axis {axis}, a tile late"
            yield text, np.roll(array, tile, axis)
        parts = (each for each in range(_MIN_EXTENT, _MAX_BLOCKS + 1) if array.shape[axis] % each == 0)
        for size in (array.shape[axis] // each for each in parts):
            for step, way in ((size, "before"), (-size, "after")) if size > 1 and size not in _TILES else ():
                text = f"{{}} is read {size} positions {way} the right ones along axis {axis}, as from another group"
                yield text, np.roll(array, step, axis)
        for place, end_name in ((0, "first"), (-1, "last")):
            repeated = np.broadcast_to(array.take([place], axis), array.shape)
            yield (
                f"the {end_name} element of {{}} along axis {axis} is read for all positions",
                np.ascontiguousarray(repeated),
            )
        indices = np.arange(array.shape[axis])
        for count in (each for each in _REPEATS if each < array.shape[axis]):
            text = f"each element of {{}} along axis {axis} is read {count} times in a row"
            yield text, array.take(indices // count, axis)
        for tile in (each for each in _TILES if each < array.shape[axis]):
            text = f"the element of {{}} before index {tile} along axis {axis} is read for all later ones"
            yield text, array.take(np.minimum(indices, tile - 1), axis)
            yield (
                f"only the first {tile} elements of {{}} along axis {axis} are read, cyclically",
                array.take(indices % tile, axis),
            )


def _strides_of_other_axes(array: np.ndarray) -> Iterator[Reading]:
    """Yield an array read with the stride of one axis along another one, and 0 beyond its end in memory.

    Its two middle axes may be in the other order in memory, as those of heads and tokens are.
    """
    orders = [tuple(range(array.ndim))] + [(0, 2, 1, 3)] * (array.ndim == _AXES_OF_HEADS)
    for order in orders if 1 < array.ndim <= _AXES_OF_HEADS else ():
        memory = np.ascontiguousarray(array.transpose(order))
        own = [memory.strides[order.index(axis)] // array.itemsize for axis in range(array.ndim)]
        stored = "" if order == orders[0] else f", as stored with its axes in the order {str(order)[1:-1]}"
        wide_axes = [axis for axis, extent in enumerate(array.shape) if extent > 1]
        for axis, other in ((axis, other) for axis in wide_axes for other in wide_axes if axis != other):
            strides = [own[other] if at == axis else own[at] for at in range(array.ndim)]
            places = sum(
                np.arange(extent).reshape([-1 if at == along else 1 for at in range(array.ndim)]) * strides[along]
                for along, extent in enumerate(array.shape)
            )
            flat = np.append(memory.reshape(-1), array.dtype.type(0))
            text = f"{{}} is read with the stride of axis {other} along axis {axis}{stored}"
            yield text, flat[np.minimum(places, array.size)]


_AXES_OF_HEADS = 4


def _blocked_axes(array: np.ndarray) -> Iterator[Reading]:
    """Yield an array in a layout that keeps blocks of an axis together, such as NCHW8c, confused with the plain one.

    If the last block is incomplete, memory holds a padded block, and the array ends before the end of the memory.
    """
    for axis in range(array.ndim - 1):
        extent = array.shape[axis]
        for size in (each for each in _BLOCKS_OF_LAYOUTS if each <= extent and extent > 1):
            count = -(-extent // size)
            rest = array.shape[axis + 1 :]
            widths = [(0, count * size - extent) if at == axis else (0, 0) for at in range(array.ndim)]
            memory = np.pad(array, widths)
            outer = memory.shape[:axis]
            blocked = np.moveaxis(memory.reshape(*outer, count, size, *rest), axis + 1, -1)
            text = (
                f"{{}} is stored in blocks of {size} along axis {axis} (blocks innermost), and read as if it were not"
            )
            yield text, blocked.reshape(-1)[: array.size].reshape(array.shape)
            plain = np.zeros(memory.size, array.dtype)
            plain[: array.size] = array.reshape(-1)
            unblocked = np.moveaxis(plain.reshape(*outer, count, *rest, size), -1, axis + 1).reshape(memory.shape)
            text = f"{{}} is read as if it were stored in blocks of {size} along axis {axis} (blocks innermost)"
            yield text, np.ascontiguousarray(unblocked.take(range(extent), axis))


_BLOCKS_OF_LAYOUTS = (2, 4, 8, 16, 32)
"""Numbers of channels that blocked layouts, such as NC4HW4 or NCHW16c, keep together."""


def _reordered_blocks(array: np.ndarray, axes: Sequence[int]) -> Iterator[Reading]:
    """Yield an array with blocks of elements along an axis swapped, reversed, repeated or interleaved."""
    for axis in axes:
        extent = array.shape[axis]
        for count in (each for each in range(2, min(extent, _MAX_BLOCKS + 1)) if extent % each == 0):
            size = extent // count
            indices = np.arange(extent).reshape(count, size)
            if count == _HALVES:
                yield f"the halves of {{}} along axis {axis} are swapped", array.take(indices[::-1].reshape(-1), axis)
            if size > 1:
                yield (
                    f"each {size} elements of {{}} along axis {axis} are read in reverse",
                    array.take(indices[:, ::-1].reshape(-1), axis),
                )
                for block, end_name in ((0, "first"), (-1, "last")):
                    repeated = array.take(np.tile(indices[block], count), axis)
                    yield f"the {end_name} {size} elements of {{}} along axis {axis} are read repeatedly", repeated
            for parts, order in ((count, indices.T), (size, indices.reshape(size, count).T)):
                if 1 < parts < extent and (parts == count or count * count != extent):
                    text = f"the elements of {{}} along axis {axis} are interleaved in {parts} blocks"
                    yield text, array.take(np.ascontiguousarray(order).reshape(-1), axis)


def _reversed_groups(array: np.ndarray, axes: Sequence[int]) -> Iterator[Reading]:
    """Yield an array with many small groups of elements along an axis, each reversed."""
    for axis in axes:
        extent = array.shape[axis]
        for size in (each for each in _GROUP_SIZES if extent % each == 0 and extent // each > _MAX_BLOCKS):
            indices = np.arange(extent).reshape(-1, size)[:, ::-1].reshape(-1)
            yield f"each {size} elements of {{}} along axis {axis} are read in reverse", array.take(indices, axis)


_GROUP_SIZES = (2, 4, 8)
"""Numbers of elements that vector instructions move at once."""


def _transposed_tiles_and_sparse_groups(array: np.ndarray) -> Iterator[Reading]:
    """Yield an array with square tiles transposed, or with the smaller half of each sparse group set to 0."""
    if array.ndim < _MATRIX_RANK:
        return
    rows, columns = array.shape[-2:]
    for size in (each for each in _TILE_SIDES if each <= min(rows, columns) and each < max(rows, columns)):
        height, width = rows - rows % size, columns - columns % size
        tiles = array[..., :height, :width].reshape(*array.shape[:-2], height // size, size, width // size, size)
        transposed = array.copy()
        transposed[..., :height, :width] = tiles.swapaxes(-1, -3).reshape(*array.shape[:-2], height, width)
        yield f"each tile of {size} x {size} elements of {{}} is transposed", transposed
    for axis in (-2, -1):
        if array.dtype.kind != "f" or array.shape[axis] % _SPARSE_GROUP:
            continue
        groups = np.moveaxis(array, axis, -1).reshape(-1, _SPARSE_GROUP).copy()
        smallest = np.argsort(np.abs(groups), axis=-1)[:, : _SPARSE_GROUP // 2]
        np.put_along_axis(groups, smallest, 0, -1)
        sparse = np.moveaxis(groups.reshape(np.moveaxis(array, axis, -1).shape), -1, axis)
        text = (
            f"the smaller half of every {_SPARSE_GROUP} elements of {{}} along axis {axis} counts as 0 (sparse format)"
        )
        yield text, np.ascontiguousarray(sparse)


_MATRIX_RANK = 2
_TILE_SIDES = (2, 4, 8, 16)
"""Sides of the square tiles of matrices that kernels move at once."""
_SPARSE_GROUP = 4
"""Number of elements in a group of which hardware for structured sparsity keeps half."""


def _zeroed_parts(array: np.ndarray, axes: Sequence[int]) -> Iterator[Reading]:
    """Yield an array set to 0 altogether, or along an axis from a multiple of a tile or a fraction on, or before it."""
    yield "{} counts as 0", np.zeros_like(array)
    for place_text, filled in _filled_parts(array, axes, 0):
        yield f"{{}} counts as 0 {place_text}", filled


def _ignored_parts(node: Node, array: np.ndarray) -> Iterator[Reading]:
    """Yield the operand of a maximum or minimum with a part that is never selected."""
    row = operators.of(node.op)
    picks = row.extreme or (row.selects and row.windowed) or (row.reduces and not row.sums)
    if not picks or array.size <= 1:
        return
    if array.dtype.kind in "fiu" and np.isfinite(array).all():
        for extreme in (array.min(), array.max()):
            for place_text, filled in _filled_parts(array, _wide_axes(array), extreme, has_single_ends=True):
                yield f"{{}} is ignored {place_text}", filled


def _filled_parts(
    array: np.ndarray, axes: Sequence[int], fill: float, *, has_single_ends: bool = False
) -> Iterator[Reading]:
    """Yield an array with a number in place of its elements on one side of an index that ends a tile or a fraction.

    Args:
        array: The array.
        axes: The axes along which it is cut.
        fill: The number.
        has_single_ends: Whether the first and the last element of an axis are also cut off alone.
    """
    for axis in axes:
        extent = array.shape[axis]
        ends = {extent - extent % tile for tile in _TILES} | {tile for tile in _TILES if tile < extent}
        ends |= {extent // span for span in _FRACTIONS if extent % span == 0}
        ends |= {extent - end for end in ends} | ({1, extent - 1} if has_single_ends else set())
        for end in sorted(ends - {0, extent}, reverse=True):
            for span, place_text in ((slice(end, None), f"from index {end} on"), (slice(end), f"before index {end}")):
                filled = array.copy()
                np.moveaxis(filled, axis, 0)[span] = fill
                if not np.array_equal(filled, array):
                    yield f"{place_text} along axis {axis}", filled


_TILES = (4, 8, 16, 32, 64, 128, 256, 512)
"""Number of elements that kernels read at once."""
_FRACTIONS = (2, 4)
_REPEATS = (2, 4)
"""Number of times that an element is read in place of its successors."""
_HALVES = 2
_MAX_BLOCKS = 16
"""Maximum number of blocks that an axis is divided into."""
_MAX_AXES = 4
"""Maximum number of axes for which all orders are tried."""
_MIN_EXTENT = 3
"""Smallest extent of an axis for which a shift differs from a swap."""
