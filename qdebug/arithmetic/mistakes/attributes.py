"""A node with another value of one of its attributes, or with another operator in its place.

These are not tied to an operator: every attribute that a kernel reads is tried with values that are near it or usual.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from qdebug.arithmetic.mistakes.mistake import Mistake
from qdebug.errors import KernelError
from qdebug.model import AttrValue, Node, operators
from qdebug.replay.registry import has_kernel, run_node

__all__ = ["other_attributes", "other_operators"]


def other_attributes(node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int]) -> Iterator[Mistake]:
    """Yield a node with another value of one attribute, including those left at their default.

    A window that moves by smaller steps, or is smaller, gives a larger result, of which a kernel writes the beginning.

    Args:
        node: The node's real-valued form.
        values: Its inputs.
        opset: Version of each operator set of its graph.
    """
    if operators.of(node.op).casts:  # its types are numbers without an order
        return
    defaults: dict[str, AttrValue | None] = {}
    try:
        shape = run_node(node, values, opset, asked=defaults)[node.outputs[0]].shape
    except KernelError:
        return
    extents = {extent for array in values.values() for extent in array.shape}
    crop = partial(_cropped, shape=shape)
    for name, value in {**defaults, **node.attrs}.items():
        for other_value in _other_values(value, extents):
            other = replace(node, attrs={**node.attrs, name: other_value})
            text = f"it uses {name} = {_text(other_value)}, not {_text(value)}"
            yield Mistake(likely=text, node=other, values={}, after=crop, about=name)


def _other_values(value: AttrValue | None, extents: set[int]) -> Iterator[AttrValue]:
    """Yield values that a kernel might use in place of an attribute's."""
    if isinstance(value, int):
        near = [each for each in (0, 1, value - 1, value + 1, 2 * value, value // 2) if each >= min(value, 0)]
        small = sorted(extent for extent in extents if extent <= _MOST_COUNT)
        yield from (int(each) for each in dict.fromkeys((*near, *(small if value > 1 else ()))) if each != value)
    if not isinstance(value, tuple) or not value:
        return
    numbers = [each for each in value if isinstance(each, int)]
    if len(numbers) == len(value):
        count = len(numbers)
        lists = ((1,) * count, (0,) * count, tuple(numbers[::-1]), (numbers[0],) * count, (numbers[-1],) * count)
        yield from (each for each in dict.fromkeys(lists) if each != value)


_MOST_COUNT = 64
"""Largest extent that is tried as a number of groups, heads, or elements of a window."""


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else f"{list(value) if isinstance(value, tuple) else value}"


def _cropped(result: np.ndarray, *, shape: tuple[int, ...]) -> np.ndarray:
    """Return the beginning of a result along each axis."""
    if result.ndim != len(shape):
        return result
    return np.ascontiguousarray(result[tuple(slice(extent) for extent in shape)])


def other_operators(node: Node) -> Iterator[Mistake]:
    """Yield an operator of the same kind in a node's place: of one element, of two, over a window or over axes.

    Args:
        node: The node's real-valued form.
    """
    own = operators.of(node.op)
    count = len(node.inputs)

    def is_alike(row: operators.Operator) -> bool:
        """Return whether an operator takes the same inputs and gives a result of the same shape."""
        if own.elementwise and count <= _PAIR:
            return row.elementwise and row.counts is own.counts
        if own.picks_index:
            return row.picks_index
        return (own.reduces and row.reduces and not row.picks_index) or (
            own.windowed and row.windowed and not own.product and not row.product
        )

    if not (own.elementwise or own.reduces or own.windowed):
        return
    for name in sorted(operators.names_where(is_alike) - {node.op}):
        if has_kernel(name):
            likely = f"it computes {name}, not {node.op}"
            yield Mistake(likely=likely, node=replace(node, op=name, domain=""), values={}, about="operator")
    if own.counts is operators.Count.COMPARISON:
        yield Mistake(likely="its result is negated", node=node, values={}, after=np.logical_not)


_PAIR = 2
"""Inputs of an element-wise operator of two operands."""
