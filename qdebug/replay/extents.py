"""How large a replay may become: known from shapes and settings before a kernel runs.

The shapes, attributes and settings of a node come from a recording, which may be damaged or hostile: a Tile of one
element can ask for any size. Each kernel that can make more than it reads says beforehand how much that is. A node
that would give more elements than were recorded of its output is refused, and so is one whose work is out of all
proportion to the recorded tensors.
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
    "Amount",
    "Shape",
    "broadcast",
    "elementwise",
    "most_elements",
    "plain",
    "product",
    "recorded_room",
    "recorded_sizes",
    "refuse_beyond",
    "room",
]

Shape = tuple[int, ...]
"""The shape of an array, whether there is one or not."""
Recorded = Callable[[str], int | None]


class Amount(NamedTuple):
    """What computing a node comes to.

    Args:
        elements: Elements of its first output; None if they are no more than it reads, or not known beforehand.
        passed: Elements that are gone through on the way.
        turns: Turns of loops.
    """

    elements: int | None
    passed: int = 0
    turns: int = 0


class _Room(NamedTuple):
    most: int | None = None
    recorded: Recorded | None = None


_ROOM: ContextVar[_Room] = ContextVar("room", default=_Room())  # noqa: B039  a tuple does not change


@contextmanager
def room(*, most: int | None = None, recorded: Recorded | None = None) -> Iterator[None]:
    """Say how much the nodes that are computed inside the block may give.

    Args:
        most: Elements of a tensor of which nothing says how large it was; None leaves what was said outside.
        recorded: Gives the number of elements that were recorded of a tensor by its name, None where that is not
            known; None leaves what was said outside.
    """
    outside = _ROOM.get()
    said = _Room(outside.most if most is None else most, outside.recorded if recorded is None else recorded)
    token = _ROOM.set(said)
    try:
        yield
    finally:
        _ROOM.reset(token)


@contextmanager
def recorded_room(recording: Recording, place: tuple[int, int], *, times: int = 1) -> Iterator[None]:
    """Hold the nodes that are computed inside the block to the sizes that were recorded.

    Args:
        recording: The run that the nodes are of.
        place: Sample and step.
        times: How many samples and steps of the same sizes are computed as one.
    """
    with room(recorded=recorded_sizes(recording, place, times=times)):
        yield


def recorded_sizes(recording: Recording, place: tuple[int, int], *, times: int = 1) -> Recorded:
    """Return what tells how many elements were recorded of a tensor, for nodes that are computed again and again.

    Args:
        recording: The run that the tensors are of.
        place: Sample and step.
        times: How many samples and steps of the same sizes are computed as one.
    """

    @cache
    def recorded(name: str) -> int | None:
        known = recording.outline(name, *place)
        return None if known is None else math.prod(known.shape) * times

    return recorded


def most_elements(shapes: Sequence[Shape]) -> int:
    """Return the elements that a tensor may have which is made of tensors of these shapes."""
    return max(REPLAY_MIN_ELEMENTS, REPLAY_MAX_GROWTH * max((math.prod(shape) for shape in shapes), default=1))


def broadcast(*shapes: Shape) -> Shape | None:
    """Return the shape that shapes broadcast to, without making any array; None if they do not."""
    out = [1] * max((len(shape) for shape in shapes), default=0)
    for shape in shapes:
        for axis, extent in enumerate(reversed(shape), 1):
            if extent != 1 and out[-axis] not in (1, extent):
                return None
            out[-axis] = extent if out[-axis] == 1 else out[-axis]
    return tuple(out)


def elementwise(*shapes: Shape) -> Amount:
    """Return the extent of a node that combines tensors element by element."""
    whole = broadcast(*shapes)
    return Amount(None) if whole is None else Amount(math.prod(whole))


def plain(*shapes: Shape) -> Amount:
    """Return the extent of a node that gives no more than it reads, or than what it reads broadcasts to."""
    whole = broadcast(*shapes)
    return Amount(None, sum(map(math.prod, shapes)) if whole is None else math.prod(whole))


def product(a: Shape, b: Shape) -> Amount:
    """Return the extent of a product of matrices (..., M, K) and (..., K, N), as numpy.matmul multiplies them."""
    if not a or not b:
        return Amount(None)
    a, b = (a if len(a) > 1 else (1, *a)), (b if len(b) > 1 else (*b, 1))
    batch = broadcast(a[:-2], b[:-2])
    return Amount(None) if batch is None else Amount(math.prod(batch) * a[-2] * b[-1])


def refuse_beyond(node: Node, shapes: Sequence[Shape], extent: Amount) -> None:
    """Refuse a node that comes to more than the recorded tensors account for.

    Args:
        node: The node.
        shapes: Shapes of its inputs.
        extent: What computing it comes to.

    Raises:
        RefusedSizeError: It does.
    """
    said = _ROOM.get()
    most = most_elements(shapes) if said.most is None else said.most
    known = said.recorded(node.outputs[0]) if said.recorded is not None and node.outputs else None
    for shape in shapes:
        if not math.prod(shape) and math.prod(filter(None, shape)) > most:
            raise _refused(node, f"reads an empty tensor of shape {list(shape)}")
    if extent.elements is not None and extent.elements > (most if known is None else known):
        wanted = f"{most} are allowed" if known is None else f"{known} were recorded"
        raise _refused(node, f"would give {extent.elements} elements, and {wanted}")
    largest = max(map(math.prod, shapes), default=1)
    allowed = max(REPLAY_MIN_WORK, REPLAY_MAX_WORK * max(largest, extent.elements or 0))
    if extent.passed + REPLAY_TURN_WORK * extent.turns > allowed:
        raise _refused(node, f"would go through {extent.passed} elements in {extent.turns} turns")


def _refused(node: Node, why: str) -> RefusedSizeError:
    return RefusedSizeError(f"Node {node.name!r} ({node.op}) {why}.")
