"""Mistakes in the width or the extent of an operand in memory: elements that are read too far apart, or read on.

What lies behind the operand in memory is unknown. Begin at `width_mistakes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from types import MappingProxyType

import numpy as np

from qdebug.arithmetic.mistakes.mistake import Mistake
from qdebug.model import Node, operators

__all__ = ["width_mistakes"]


def width_mistakes(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield the mistakes of reading an operand with another element width, or without its broadcast.

    Args:
        node: The node's real form.
        values: Its inputs.
    """
    for name in dict.fromkeys(filter(None, node.inputs)):
        yield from _wider_elements(node, name, values[name])
        yield from _narrower_elements(node, name, values[name])
    yield from _operands_read_on(node, values)


def _wider_elements(node: Node, name: str, array: np.ndarray) -> Iterator[Mistake]:
    """Yield operands whose elements are read as if they were 2, 4 or 8 times as wide."""
    for factor in _FACTORS:
        if array.ndim == 0 or array.size <= factor:
            continue
        every = array.reshape(-1)[::factor]
        text = f"only every {_ORDINALS[factor]} element of {name!r} is read, as if elements were {factor} times as wide"
        yield _short(text, node, name, every, array)
        width = factor * array.dtype.itemsize
        if array.dtype.kind == "b" and width <= _MAX_WIDTH:
            groups = array.reshape(-1)[: array.size // factor * factor].reshape(-1, factor)
            text = f"{name!r} is read as {8 * width}-bit integers: an element is true if any of {factor} is"
            yield _short(text, node, name, np.asarray(groups.any(1)), array)
        if array.dtype.kind in "iu" and width <= _MAX_WIDTH:
            wide = array.reshape(-1)[: array.size // factor * factor].view(f"{array.dtype.kind}{width}")
            text = f"{name!r} is read as {wide.dtype.name}, not {array.dtype.name}: {factor} elements as one"
            yield _short(text, node, name, wide, array)


def _short(text: str, node: Node, name: str, read: np.ndarray, array: np.ndarray) -> Mistake:
    """Return the mistake of reading few elements in place of all. The rest lies behind the operand in memory."""
    memory = np.zeros(array.size, read.dtype)
    memory[: read.size] = read
    is_behind = np.arange(array.size).reshape(array.shape) >= read.size
    return Mistake(
        likely=text, node=node, values={name: memory.reshape(array.shape)}, unread={name: is_behind}, about=name
    )


def _narrower_elements(node: Node, name: str, array: np.ndarray) -> Iterator[Mistake]:
    """Yield integers whose memory is read as narrower integers, of which each is a half or a quarter of an element."""
    if array.dtype.kind not in "iu" or array.ndim == 0 or array.size < _MIN_ELEMENTS:
        return
    for width in (each for each in (1, 2, 4) if each < array.dtype.itemsize):
        parts = np.ascontiguousarray(array).reshape(-1).view(f"{array.dtype.kind}{width}")[: array.size]
        text = f"{name!r} is read as {parts.dtype.name}, not {array.dtype.name}: parts of its elements"
        yield Mistake(likely=text, node=node, values={name: parts.astype(array.dtype).reshape(array.shape)}, about=name)


_FACTORS = (2, 4, 8)
_ORDINALS = MappingProxyType({2: "second", 4: "fourth", 8: "eighth"})
_MAX_WIDTH = 8
"""Number of bytes of the widest integers."""
_MIN_ELEMENTS = 2


def _operands_read_on(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield smaller operands that are read on in memory, with or without an end, where they should be broadcast."""
    row, names = operators.of(node.op), list(dict.fromkeys(filter(None, node.inputs)))
    if not (row.elementwise or row.unit == "where") or len(names) < _MIN_ELEMENTS:
        return
    shape = np.broadcast_shapes(*(values[name].shape for name in names))
    for name in names:
        array = values[name]
        if not 1 < array.size < prod(shape) or array.shape == shape[len(shape) - array.ndim :]:
            continue
        flat = array.reshape(-1)
        likely = f"{name!r} is read on in memory, not broadcast"
        memory = np.resize(flat, prod(shape)).reshape(shape)
        is_behind = np.arange(prod(shape)).reshape(shape) >= flat.size
        zeros = np.where(is_behind, array.dtype.type(0), memory).astype(array.dtype)
        yield Mistake(likely=likely, node=node, values={name: zeros}, unread={name: is_behind}, about=name)
        if row.unit == "where":  # of other operators, `known` repeats operands
            likely = f"{name!r} is repeated over all elements in memory order, not broadcast"
            yield Mistake(likely=likely, node=node, values={name: memory}, about=name)
