"""Entries that are repeated along an axis in the wrong order, such as key heads that several query heads share.

The entry at index i is that at i // count where each entry is repeated, and that at i % entries where all are tiled
(https://github.com/ggml-org/llama.cpp/pull/23997). Which one a kernel must compute is seen in the values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from qdebug.arithmetic.mistakes.mistake import Mistake, always
from qdebug.model import Node

__all__ = ["OtherRepeat", "other_repeats", "read_in_other_order", "written_in_other_order"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OtherRepeat:
    """The other order of entries that are repeated along an axis.

    Args:
        axis: The axis.
        order: The index that is read for each index.
        clause: The mistake, with `{}` for the name of the array.
    """

    axis: int
    order: np.ndarray
    clause: str


def other_repeats(array: np.ndarray) -> Iterator[OtherRepeat]:
    """Yield the other orders of the repeated entries of an array.

    Args:
        array: The array, in the right order.
    """
    for axis, extent in enumerate(array.shape):
        entries_along = np.moveaxis(array, axis, 0)
        for entries in (each for each in range(2, extent // 2 + 1) if extent % each == 0):
            count = extent // entries
            tiled, repeated = np.arange(extent) % entries, np.arange(extent) // count
            in_a_row = entries_along.reshape(entries, count, *entries_along.shape[1:])
            in_turn = entries_along.reshape(count, entries, *entries_along.shape[1:])
            are_tiled, are_repeated = _are_equal(in_turn.swapaxes(0, 1)), _are_equal(in_a_row)
            if are_tiled is are_repeated:
                continue
            order = repeated if are_tiled else tiled * count
            what, times = f"{entries} entries of {{}} along axis {axis}", f"{count} times"
            clause = f"each of the {what} is repeated {times} in a row, not all in turn"
            if are_repeated:
                indices = f"(index i reads i % {entries}, not i // {count})"
                clause = f"the {what} are repeated {times} in turn, not each in a row {indices}"
            yield OtherRepeat(axis=axis, order=order, clause=clause)


def _are_equal(groups: np.ndarray) -> bool:
    """Return whether all arrays in each group, (groups, arrays, ...), are equal."""
    first = groups[:1]
    return np.array_equal(first[:, :1], first[:, 1:2]) and bool((groups[:, :1] == groups[:, 1:]).all())


def read_in_other_order(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield the mistakes of reading the repeated entries of an operand in the other order.

    Args:
        node: The node.
        values: Its inputs.
    """
    for name in dict.fromkeys(filter(None, node.inputs)):
        for repeat in other_repeats(values[name]):
            likely = repeat.clause.format(repr(name))
            yield Mistake(
                likely=likely, node=node, values={name: values[name].take(repeat.order, repeat.axis)}, about=name
            )


def written_in_other_order(node: Node, result: np.ndarray) -> Iterator[Mistake]:
    """Yield the mistakes of writing the repeated entries of a result in the other order.

    Args:
        node: The node.
        result: Its right result.
    """
    for repeat in other_repeats(result):
        after = always(result.take(repeat.order, repeat.axis))
        yield Mistake(likely=repeat.clause.format("the result"), node=node, values={}, after=after, about="result")
