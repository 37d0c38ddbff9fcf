"""The screen's side of what is read of a tensor around the element that is looked at."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING

from qdebug.tui.elements.slab import PLANE_MOST
from qdebug.tui.reading.events import Glimpsed
from qdebug.tui.reading.glimpse import EXTENTS, ROOM
from qdebug.tui.reading.requests import LookAway, LookedAt, LookRequest, Request

if TYPE_CHECKING:
    from qdebug.tui.elements.slab import Slab

__all__ = ["Key", "WindowDesk"]

Key = tuple[int, int, int | None, int]
"""Backend, row, sample, step."""


class WindowDesk:
    """Asks for the elements around the one looked at, and keeps the last answer.

    Args:
        ask: Sends a request to the thread that reads them.
    """

    def __init__(self, ask: Callable[[Request], None]) -> None:
        self._ask = ask
        self._id = 0
        self._asked: tuple[Key, LookedAt] | None = None
        self._seen: Glimpsed | None = None

    def want(self, key: Key, tensor: str, look: LookedAt, slab: Slab | None) -> None:
        """Ask for what is looked at, unless it is there or on its way.

        Args:
            key: Backend, row, sample and step.
            tensor: The row's backend tensor.
            look: What is looked at.
            slab: All elements of the tensor; None if they are not in memory.
        """
        if (key, look) == self._asked or not self._lacks(key, look, slab):
            return
        self._id += 1
        self._asked = key, look
        self._ask(
            LookRequest(
                id=self._id,
                backend=key[0],
                row=key[1],
                tensor=tensor,
                sample=key[2],
                step=key[3],
                element=look.element,
                plane=look.plane,
            )
        )

    def _lacks(self, key: Key, look: LookedAt, slab: Slab | None) -> bool:
        """Tell whether something that is looked at is neither known nor on its way."""
        if slab is not None and not (look.plane and prod(slab.shape[-2:]) > PLANE_MOST):
            return False
        if self._asked is None or self._asked[0] != key:
            return True
        seen, asked = self.seen_of(key), self._asked[1]
        if seen is None or seen.request.id != self._id:
            far = min(EXTENTS) // 2 - ROOM - 1 if slab is None else None
            return (look.plane and not asked.plane) or not _near(asked.element, look.element, far)
        if seen.part is None:
            return False
        element = look.element if look.element is not None else (0,) * len(seen.part.shape)
        left = slab is None and not seen.part.around(element, ROOM)
        return left or (look.plane and (seen.plane is None or seen.plane.place != element[:-2]))

    def want_nothing(self) -> None:
        """Look at nothing any more."""
        if self._asked is not None:
            self._asked = self._seen = None
            self._ask(LookAway())

    def forget(self) -> None:
        """Drop the answer: what it says has changed."""
        self._asked = self._seen = None

    def take(self, seen: Glimpsed) -> None:
        """Keep an answer, unless something else was asked for since."""
        if seen.request.id == self._id and self._asked is not None:
            self._seen = seen

    def seen_of(self, key: Key) -> Glimpsed | None:
        """Give the answer of a row, a sample and a step."""
        seen = self._seen
        asked = None if seen is None else seen.request
        fits = asked is not None and (asked.backend, asked.row, asked.sample, asked.step) == key
        return seen if fits else None


def _near(one: tuple[int, ...] | None, other: tuple[int, ...] | None, far: int | None) -> bool:
    """Tell whether two elements are in one plane, and so far apart at the most along its dimensions.

    Args:
        one: Index of an element; None for the first.
        other: Index of the other one.
        far: How far; None if that does not matter.
    """
    one = one if one is not None else (0,) * len(other or ())
    other = other if other is not None else (0,) * len(one)
    return one[:-2] == other[:-2] and (
        far is None or all(abs(a - b) <= far for a, b in zip(one[-2:], other[-2:], strict=True))
    )
