"""Limit the size of a replay, from shapes and settings, before a kernel runs.

Shapes, attributes and settings come from a recording, which may be damaged or hostile: a Tile of a single element can
request any size. Each kernel whose output can exceed its inputs estimates its cost. A node is refused if it would
output more elements than were recorded, or if its work is out of proportion to the recorded tensors. Begin at
`refuse_excessive_cost`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import NamedTuple

from qdebug.errors import RefusedSizeError
from qdebug.model import Node, Recording
from qdebug.model.thresholds.attribution import (
    REPLAY_MAX_GROWTH,
    REPLAY_MAX_WORK,
    REPLAY_MIN_ELEMENTS,
    REPLAY_MIN_WORK,
    REPLAY_TURN_WORK,
)

__all__ = [
    "Cost",
    "Shape",
    "broadcast_shapes",
    "default_cost",
    "elementwise_cost",
    "max_elements",
    "product_cost",
    "recorded_limits",
    "recorded_sizes",
    "refuse_excessive_cost",
    "size_limits",
]

Shape = tuple[int, ...]
"""The shape of an array that need not exist."""
Recorded = Callable[[str], int | None]


class Cost(NamedTuple):
    """The cost of computing a node.

    Args:
        elements: Elements of its first output; None if unknown, or if not more than in its inputs.
        processed: Intermediate elements that are read and written.
        iterations: Loop iterations.
    """

    elements: int | None
    processed: int = 0
    iterations: int = 0


class _Limits(NamedTuple):
    element_limit: int | None = None
    recorded: Recorded | None = None


_LIMITS: ContextVar[_Limits] = ContextVar("size_limits", default=_Limits())  # noqa: B039  a tuple does not change


@contextmanager
def size_limits(*, element_limit: int | None = None, recorded: Recorded | None = None) -> Iterator[None]:
    """Set the size limits for nodes computed inside the `with` block.

    Args:
        element_limit: Maximum elements of a tensor of unknown size; None keeps the outer limit.
        recorded: Returns the recorded number of elements of a tensor by its name, or None if unknown; None keeps the
            outer function.
    """
    outer = _LIMITS.get()
    limits = _Limits(
        outer.element_limit if element_limit is None else element_limit,
        outer.recorded if recorded is None else recorded,
    )
    token = _LIMITS.set(limits)
    try:
        yield
    finally:
        _LIMITS.reset(token)


@contextmanager
def recorded_limits(recording: Recording, place: tuple[int, int], *, times: int = 1) -> Iterator[None]:
    """Limit the nodes computed inside the `with` block to the recorded sizes.

    Args:
        recording: The recorded run of the nodes.
        place: Sample and step.
        times: Number of samples and steps computed at once.
    """
    with size_limits(recorded=recorded_sizes(recording, place, times=times)):
        yield


def recorded_sizes(recording: Recording, place: tuple[int, int], *, times: int = 1) -> Recorded:
    """Return a cached function from a tensor's name to its recorded number of elements.

    Args:
        recording: The recorded run of the tensors.
        place: Sample and step.
        times: Number of samples and steps computed at once.
    """

    @cache
    def recorded(name: str) -> int | None:
        outline = recording.outline(name, *place)
        return None if outline is None else math.prod(outline.shape) * times

    return recorded


def max_elements(shapes: Sequence[Shape]) -> int:
    """Return the maximum number of elements of a tensor that is computed from tensors of these shapes."""
    return max(REPLAY_MIN_ELEMENTS, REPLAY_MAX_GROWTH * max((math.prod(shape) for shape in shapes), default=1))


def broadcast_shapes(*shapes: Shape) -> Shape | None:
    """Return the common shape that the given shapes broadcast to; None if they are incompatible."""
    out = [1] * max((len(shape) for shape in shapes), default=0)
    for shape in shapes:
        for axis, extent in enumerate(reversed(shape), 1):
            if extent != 1 and out[-axis] not in (1, extent):
                return None
            out[-axis] = extent if out[-axis] == 1 else out[-axis]
    return tuple(out)


def elementwise_cost(*shapes: Shape) -> Cost:
    """Return the cost of combining tensors element by element."""
    shape = broadcast_shapes(*shapes)
    return Cost(None) if shape is None else Cost(math.prod(shape))


def default_cost(*shapes: Shape) -> Cost:
    """Return the cost of a node whose output is no larger than its broadcast inputs."""
    shape = broadcast_shapes(*shapes)
    return Cost(None, sum(map(math.prod, shapes)) if shape is None else math.prod(shape))


def product_cost(a: Shape, b: Shape) -> Cost:
    """Return the cost of a product of matrices (..., M, K) and (..., K, N), as numpy.matmul multiplies them."""
    if not a or not b:
        return Cost(None)
    a, b = (a if len(a) > 1 else (1, *a)), (b if len(b) > 1 else (*b, 1))
    batch = broadcast_shapes(a[:-2], b[:-2])
    return Cost(None) if batch is None else Cost(math.prod(batch) * a[-2] * b[-1])


def refuse_excessive_cost(node: Node, shapes: Sequence[Shape], cost: Cost) -> None:
    """Refuse a node whose cost is out of proportion to the recorded tensors.

    Args:
        node: The node.
        shapes: Shapes of its inputs.
        cost: Its cost.

    Raises:
        RefusedSizeError: The cost exceeds the limits.
    """
    limits = _LIMITS.get()
    element_limit = max_elements(shapes) if limits.element_limit is None else limits.element_limit
    recorded_count = limits.recorded(node.outputs[0]) if limits.recorded is not None and node.outputs else None
    for shape in shapes:
        if not math.prod(shape) and math.prod(filter(None, shape)) > element_limit:
            raise _make_refusal(node, f"reads an empty tensor of shape {list(shape)}")
    if cost.elements is not None and cost.elements > (element_limit if recorded_count is None else recorded_count):
        limit_text = f"{element_limit} are allowed" if recorded_count is None else f"{recorded_count} were recorded"
        raise _make_refusal(node, f"would produce {cost.elements} elements, but only {limit_text}")
    largest = max(map(math.prod, shapes), default=1)
    allowed = max(REPLAY_MIN_WORK, REPLAY_MAX_WORK * max(largest, cost.elements or 0))
    if cost.processed + REPLAY_TURN_WORK * cost.iterations > allowed:
        raise _make_refusal(node, f"would process {cost.processed} elements in {cost.iterations} iterations")


def _make_refusal(node: Node, reason: str) -> RefusedSizeError:
    return RefusedSizeError(f"Node {node.name!r} ({node.op}) {reason}.")
