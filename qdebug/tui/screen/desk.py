"""Where the screen starts, and its side of the talk with the reader thread: what was asked and what has come back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from math import prod
from typing import TYPE_CHECKING

from qdebug.compare.attribute.graph_walk import part_of
from qdebug.errors import UsageError
from qdebug.tui.elements.slab import PLANE_MOST
from qdebug.tui.nodes.filter import FilterError
from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.pages.page import TrialWish
from qdebug.tui.reading.glimpse import EXTENTS, ROOM
from qdebug.tui.reading.messages import (
    AloneReady,
    DetailReady,
    DetailRequest,
    Glimpsed,
    LookAway,
    LookedAt,
    LookRequest,
    Opened,
    Request,
    TrialAway,
    TrialReady,
    TrialRequest,
    Withdraw,
)
from qdebug.tui.screens import VIEWS, ScreenId

if TYPE_CHECKING:
    from qdebug.tui.elements.slab import Slab

__all__ = ["DetailDesk", "Key", "StartPlace", "TrialDesk", "WindowDesk", "start"]

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
        """Return the answer of a row, a sample and a step."""
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


class TrialDesk:
    """Asks what a scale would do, and keeps the last answer.

    Args:
        ask: Sends a request to the reader thread.
    """

    def __init__(self, ask: Callable[[Request], None]) -> None:
        self._ask = ask
        self._id = 0
        self._wanted: tuple[tuple[int, int], TrialWish] | None = None
        self._seen: TrialReady | None = None

    def want(self, backend: int, row: int, tensor: str, wish: TrialWish | None) -> None:
        """Ask for what a page wants to be told, unless it is asked for already; of nothing take that back.

        Args:
            backend: Which comparison.
            row: The row of the list.
            tensor: Its backend tensor.
            wish: What is to be found out; None for nothing.
        """
        if wish is None:
            if self._wanted is not None:
                self._wanted = self._seen = None
                self._ask(TrialAway())
            return
        if self._wanted == ((backend, row), wish):
            return
        if self._wanted is None or self._wanted[0] != (backend, row):
            self._seen = None
        self._id += 1
        self._wanted = (backend, row), wish
        self._ask(
            TrialRequest(id=self._id, backend=backend, row=row, tensor=tensor, quant=wish.quant, replay=wish.replay)
        )

    def take(self, ready: TrialReady) -> None:
        """Keep an answer, unless something else was asked for since."""
        if ready.request.id == self._id and self._wanted is not None:
            self._seen = ready

    def forget(self) -> None:
        """Drop the answer, and ask again: what it says has changed."""
        self._wanted = self._seen = None

    def ready(self, backend: int, row: int) -> TrialReady | None:
        """Return the last answer on a row, be it of other parameters than those that are tried now."""
        return self._seen if self._wanted is not None and self._wanted[0] == (backend, row) else None


_KEPT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPlace:
    """Where to begin.

    Args:
        node: Node or tensor to start at; None for the first.
        sample: Sample to start with; None for all.
        screen: Screen to show first; None for the overview, or the tensor if a node is given.
        filter: Filter of the node list; "" for none.
    """

    node: str | None = None
    sample: int | None = None
    screen: str | None = None
    filter: str = ""

    @property
    def view(self) -> ScreenId:
        """The screen to show first.

        Raises:
            UsageError: There is no such screen.
        """
        if self.screen is None:
            return ScreenId.OVERVIEW if self.node is None else ScreenId.TENSOR
        if self.screen not in VIEWS:
            raise UsageError(f"There is no screen {self.screen!r}.", hint=f"Give one of: {', '.join(VIEWS)}.")
        return next(view for view in VIEWS if view == self.screen)


class DetailDesk:
    """Asks for details and keeps the last answers; what the elements come to, and they, are kept of the last one alone.

    Args:
        ask: Sends a request to the reader thread.
    """

    def __init__(self, ask: Callable[[Request], None]) -> None:
        self._ask = ask
        self._answers: dict[Key, DetailReady] = {}
        self._alone: dict[Key, AloneReady] = {}
        self._newest: dict[Key, int] = {}
        self._asked = 0
        self._wanted: tuple[Key, bool, bool] | None = None
        self._waiting = False
        self._window = WindowDesk(ask)

    def want(
        self,
        navigator: Navigator,
        *,
        backend: int = 0,
        elements: bool = False,
        explain: bool = False,
        look: LookedAt | None = None,
    ) -> bool:
        """Ask for the row under the cursor unless that is done; tell whether it is another row than before.

        Args:
            navigator: The row, the sample and the step.
            backend: Which comparison.
            elements: Whether its elements are wanted too.
            explain: Whether an arithmetic is to be looked for.
            look: What of the elements is looked at; None for the first ones.
        """
        key = (backend, navigator.cursor, navigator.sample, navigator.step)
        if not navigator.table.size:
            return False
        planned = navigator.table.rows[key[1]]
        if elements and planned.missing is None:
            known = self._answers.get(key)
            self._window.want(key, planned.tensor, look or LookedAt(), None if known is None else known.slab)
        else:
            self._window.want_nothing()
        if (key, elements, explain) == self._wanted:
            return False
        moved = self._wanted is None or self._wanted[0] != key
        self._wanted = (key, elements, explain)
        side = "" if planned.missing is None else "backend" if planned.tensor else "reference"
        if not (key in self._alone if side else self._enough(self._answers.get(key), elements, explain)):
            self._asked += 1
            self._newest[key] = self._asked
            request = DetailRequest(
                id=self._asked,
                backend=backend,
                row=key[1],
                tensor=planned.tensor or planned.reference_tensor,
                sample=key[2],
                step=key[3],
                elements=elements and not side,
                explain=explain and not side,
                side=side,
            )
            self._ask(request)
            self._waiting = True
        else:
            self._give_up()
        return moved

    def want_nothing(self) -> None:
        """Withdraw what was asked and not answered: nothing on the screen needs it."""
        self._wanted = None
        self._window.want_nothing()
        self._give_up()

    def _give_up(self) -> None:
        if self._waiting:
            self._waiting = False
            self._ask(Withdraw())

    def forget(self) -> None:
        """Drop all answers: what they say has changed."""
        self._answers.clear()
        self._alone.clear()
        self._newest.clear()
        self._wanted = None
        self._window.forget()

    def take(self, answer: DetailReady | AloneReady | Glimpsed) -> None:
        """Keep an answer; one to an older request for the same row is dropped. Of glimpses the newest is kept."""
        if isinstance(answer, Glimpsed):
            self._window.take(answer)
            return
        request = answer.request
        key = (request.backend, request.row, request.sample, request.step)
        if request.id != self._newest.get(key):
            return
        if isinstance(answer, AloneReady):
            self._waiting = self._waiting and request.id != self._asked
            self._alone[key] = answer
            while len(self._alone) > _KEPT:
                del self._alone[next(iter(self._alone))]
            return
        self._waiting = self._waiting and not (answer.complete and request.id == self._asked)
        self._answers.pop(key, None)
        if answer.whole is not None:
            for other, kept in self._answers.items():
                self._answers[other] = replace(kept, slab=None, whole=None)
        self._answers[key] = answer
        while len(self._answers) > _KEPT:
            del self._answers[next(iter(self._answers))]

    def glimpse(self, navigator: Navigator, *, backend: int = 0) -> Glimpsed | None:
        """Return the glimpse of the row under the cursor."""
        return self._window.seen_of((backend, navigator.cursor, navigator.sample, navigator.step))

    def alone(self, navigator: Navigator, *, backend: int = 0) -> AloneReady | None:
        """Return what was recorded of the row under the cursor, which one side alone has."""
        return self._alone.get((backend, navigator.cursor, navigator.sample, navigator.step))

    def ready(self, navigator: Navigator, *, backend: int = 0) -> DetailReady | None:
        """Return what is known of the row under the cursor."""
        return self._answers.get((backend, navigator.cursor, navigator.sample, navigator.step))

    def _enough(self, known: DetailReady | None, elements: bool, explain: bool) -> bool:  # noqa: FBT001  of one request
        if known is None or not known.complete:
            return False
        has_elements = known.whole is not None or bool(known.problem and known.request.elements)
        return (has_elements or not elements) and (known.explained is not None or not explain)


def start(opened: Opened, where: StartPlace, *, before: Navigator | None = None, again: bool = False) -> Navigator:
    """Put the cursor where the user wants to start, or has gone meanwhile.

    Args:
        opened: The table, and what the recordings share.
        where: The wish.
        before: The table so far; None if there was none.
        again: Whether that was a table of the same comparison, and not of names alone: then the wish has been granted.

    Raises:
        UsageError: There is no such node or sample, or the filter cannot be read.
    """
    table, samples = opened.table, opened.samples
    navigator = Navigator(table, samples=samples, steps=opened.steps)
    if where.sample is not None:
        if not 0 <= where.sample < samples:
            raise UsageError(
                f"There is no sample {where.sample}: the recordings share the samples 0 to {samples - 1}.",
                hint=f"Give --sample N with N at most {samples - 1}.",
            )
        navigator.choose_sample(where.sample)
    if where.filter:
        try:
            navigator.choose_filter(where.filter)
        except FilterError as error:
            raise UsageError(
                f"The filter {where.filter!r} cannot be read: {error}.",
                hint="Write it like this: --filter 'rel>1e-2 & op~conv'.",
            ) from error
    if where.node is not None:
        row = table.find(where.node)
        if row is None or not table.rows[row].tensor:  # the backend may have it inside a compared part
            compared = {each.tensor for each in table.rows if each.missing is None}
            part = part_of(opened.backend_graph, where.node, compared)
            row = row if part is None else table.row_of(part)
        if row is None:
            near = get_close_matches(where.node, [name for row in table.rows for name in (row.node, row.tensor)], n=3)
            also = f" Near names: {', '.join(repr(name) for name in dict.fromkeys(near))}." if near else ""
            raise UsageError(
                f"No node and no tensor is called {where.node!r}.{also}", hint="List them: qdebug info FILE --tensors."
            )
        navigator.go(row)
    if before is not None:
        wish = navigator.cursor, navigator.sample, navigator.filter
        navigator.take_over(before)
        if not again:  # what was asked for on the command line holds, unless a key said otherwise
            navigator.go(navigator.cursor if before.cursor else wish[0])
            navigator.choose_sample(wish[1])
            navigator.choose_filter(before.filter or wish[2])
    for node, text in opened.notes.items():
        navigator.note(node, text)
    return navigator
