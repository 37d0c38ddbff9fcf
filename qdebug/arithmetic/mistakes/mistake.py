"""One mistake that a kernel may make in computing a node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from qdebug.errors import KernelError
from qdebug.model import Node

__all__ = ["MISFITS", "Mistake", "always", "applicable", "listed", "without_inputs"]


def _identity(values: np.ndarray) -> np.ndarray:
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """A mistake that a kernel may make in computing a node.

    Args:
        likely: The mistake in words.
        node: The node that computes what a kernel with the mistake computes.
        values: Inputs of that node that differ from the recorded ones.
        after: Function that is applied to the node's result.
        determined: Index of the part of the result that the mistake determines. The rest is unknown.
        opset: Version of each operator set to use, or None for the versions of the graph.
        about: The attribute or input concerned, if other mistakes involving it give nearly the same result, or "".
        kind: What it has in common with similar mistakes, in words. Named if more of them fit than can be listed.
        is_rounding: Whether it is a rounding to fewer digits, which a backend may do by design.
        unread: Masks of the elements of `values`, by name, whose values are unknown, such as memory behind an operand.
    """

    likely: str
    node: Node
    values: Mapping[str, np.ndarray]
    after: Callable[[np.ndarray], np.ndarray] = _identity
    determined: tuple[Any, ...] = ()
    opset: Mapping[str, int] | None = None
    about: str = ""
    kind: str = ""
    is_rounding: bool = False
    unread: Mapping[str, np.ndarray] = field(default_factory=lambda: MappingProxyType({}))

    def with_other_unread(self) -> Mistake | None:
        """Return the mistake with other values for the unknown elements, or None if none is unknown."""
        others = {name: _other_values(self.values[name], mask) for name, mask in self.unread.items() if mask.any()}
        return replace(self, values={**self.values, **others}) if others else None


def _other_values(array: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return an array with other values in some elements, in the range of the array."""
    if array.dtype.kind == "b":
        return np.asarray(array ^ mask)
    present = array[~mask]
    if not present.size:
        return array
    ends = present.min(), present.max()
    return np.where(mask, np.where(array == ends[0], ends[1], ends[0]), array).astype(array.dtype)


MISFITS = (ValueError, IndexError, ArithmeticError)
"""Exceptions of numpy for a mistake that does not fit the shapes of a node. Too many cases to check beforehand."""


def always(result: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function for `Mistake.after` that replaces whatever the node computes by a fixed result."""
    return partial(_replaced, result=result)


def _replaced(_: np.ndarray, *, result: np.ndarray) -> np.ndarray:
    return result


def applicable(candidates: Iterator[Mistake]) -> Iterator[Mistake]:
    """Yield mistakes up to the first that cannot be built because numpy rejects the node's shapes.

    Losing the mistakes after it only means that a cause may not be found.
    """
    with suppress(KernelError, *MISFITS):
        yield from candidates


def listed(mistakes: Sequence[Mistake], most: int) -> str | None:
    """Return mistakes in words, or their common kind if there are too many, or None.

    Args:
        mistakes: Mistakes that have the same effect.
        most: Maximum number of mistakes to list.
    """
    clauses = list(dict.fromkeys(mistake.likely for mistake in mistakes))
    if 0 < len(clauses) <= most:
        return ", or ".join(clauses)
    kinds = {mistake.kind for mistake in mistakes}
    return kinds.pop() or None if len(kinds) == 1 else None


def without_inputs(node: Node, *slots: int) -> Node:
    """Return a node without some of its inputs.

    Args:
        node: The node.
        slots: Positions of the inputs to leave out.
    """
    return replace(node, inputs=tuple("" if slot in slots else name for slot, name in enumerate(node.inputs)))
