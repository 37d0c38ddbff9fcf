"""One mistake that a kernel may make in computing a node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from qdebug.model import Node

__all__ = ["MISFITS", "Mistake", "always", "applicable", "without_inputs"]


def _identity(values: np.ndarray) -> np.ndarray:
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """A mistake that a kernel may make in computing a node.

    Args:
        likely: The mistake in words.
        node: The node with the mistake.
        values: Inputs that differ from the recorded ones.
        after: Applied to the node's result.
        told: Index of the part of the result that the mistake determines. The rest is undetermined.
        opset: Operator set version that computes it, or None for the version of the graph.
        about: The attribute or input concerned, if other mistakes involving it give nearly the same result, or "".
        is_rounding: Whether it is numbers of fewer digits, which a backend may have chosen.
    """

    likely: str
    node: Node
    values: Mapping[str, np.ndarray]
    after: Callable[[np.ndarray], np.ndarray] = _identity
    told: tuple[Any, ...] = ()
    opset: Mapping[str, int] | None = None
    about: str = ""
    is_rounding: bool = False


MISFITS = (ValueError, IndexError)
"""Errors of numpy where a mistake does not fit the shapes of a node, which a list of all cases would miss."""


def always(result: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return an `after` of a mistake that gives this result, whatever the node computes."""
    return partial(_replaced, result=result)


def _replaced(_: np.ndarray, *, result: np.ndarray) -> np.ndarray:
    return result


def applicable(candidates: Iterator[Mistake]) -> Iterator[Mistake]:
    """Yield mistakes until one does not fit the node. A cause is then missing, but nothing else depends on it."""
    with suppress(*MISFITS):
        yield from candidates


def without_inputs(node: Node, *places: int) -> Node:
    """Return a node without some of its inputs.

    Args:
        node: The node.
        places: Positions of the inputs to leave out.
    """
    return replace(node, inputs=tuple("" if place in places else name for place, name in enumerate(node.inputs)))
