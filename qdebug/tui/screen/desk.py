"""The place where the screen starts, and its requests to the reader thread with their answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from qdebug.compare.attribute.graph_walk import part_of
from qdebug.errors import UsageError
from qdebug.model.names import fitting_names, listed_names, near_names
from qdebug.tui.nodes.filter import FilterError
from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.nodes.rows import NodeTable, shown_sample
from qdebug.tui.reading.glimpse import ROOM
from qdebug.tui.reading.messages import (
    BudgetWish,
    DetailReady,
    DetailRequest,
    Glimpsed,
    Key,
    LookAway,
    LookedAt,
    LookRequest,
    Opened,
    Request,
    TrialAway,
    TrialReady,
    TrialRequest,
    TrialWish,
    Withdraw,
)
from qdebug.tui.screens import VIEWS, ScreenId

__all__ = ["DetailDesk", "StartPlace", "TrialDesk", "WindowDesk", "start"]


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

    def want(self, key: Key, tensor: str, look: LookedAt, *, side: str = "") -> None:
        """Request the window at the cursor, unless it is loaded or requested.

        Args:
            key: Backend, row, sample and step.
            tensor: The row's backend tensor; the reference's, if that alone has it.
            look: What is looked at.
            side: The side that alone has it; "" if both have.
        """
        if (key, look) == self._asked or not self._lacks(key, look):
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
                side=side,
            )
        )

    def _lacks(self, key: Key, look: LookedAt) -> bool:
        """Tell whether something that is looked at is not known."""
        seen = self.seen_of(key)
        if seen is None or seen.request.id != self._id:
            return True
        part = seen.part
        if part is None:
            return False
        element = look.element if look.element is not None else (0,) * len(part.shape)
        there = part.has_plane(element) or (seen.plane is not None and seen.plane.place == element[:-2])
        return not part.around(element, ROOM) or (look.plane and not there)

    def want_nothing(self) -> None:
        """Look at nothing any more."""
        if self._asked is not None:
            self._asked = self._seen = None
            self._ask(LookAway())

    def forget(self) -> None:
        """Drop the answer: it is outdated."""
        self._asked = self._seen = None

    def take(self, seen: Glimpsed) -> None:
        """Keep an answer, unless something else was asked for since."""
        if seen.request.id == self._id and self._asked is not None:
            self._seen = seen

    def seen_of(self, key: Key) -> Glimpsed | None:
        """Return the answer of a row, a sample and a step."""
        return self._seen if self._seen is not None and self._seen.request.key == key else None


class TrialDesk:
    """Requests replays, and keeps the last answer.

    Args:
        ask: Sends a request to the reader thread.
    """

    def __init__(self, ask: Callable[[Request], None]) -> None:
        self._ask = ask
        self._id = 0
        self._wanted: tuple[tuple[int, int | None], TrialWish] | None = None
        self._seen: TrialReady | None = None

    def want(self, backend: int, row: int, tensor: str, wish: TrialWish | None) -> None:
        """Request a replay for a page, unless that is done; None cancels the last request.

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
        place = backend, None if isinstance(wish, BudgetWish) else row
        if self._wanted == (place, wish):
            return
        if self._wanted is None or self._wanted[0] != place or type(self._wanted[1]) is not type(wish):
            self._seen = None
        self._id += 1
        self._wanted = place, wish
        self._ask(TrialRequest(id=self._id, backend=backend, row=row, tensor=tensor, wish=wish))

    def take(self, ready: TrialReady) -> None:
        """Keep an answer, unless something else was asked for since."""
        if ready.request.id == self._id and self._wanted is not None:
            self._seen = ready

    def forget(self) -> None:
        """Drop the outdated answer, and request it again."""
        self._wanted = self._seen = None

    def ready(self, backend: int, row: int) -> TrialReady | None:
        """Return the last answer on a row or on all of them, be it of others than those that are tried now."""
        known = self._wanted is not None and self._wanted[0] in {(backend, row), (backend, None)}
        return self._seen if known else None


_KEPT = 64
_MOST_BYTES = 64 << 20
"""Memory that what elements come to may take, of all answers that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPlace:
    """Where to begin.

    Args:
        node: Node or tensor to start at: its name, a part of it, or a pattern; None for the first.
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
            return ScreenId.ANSWER if self.node is None else ScreenId.TENSOR
        if self.screen not in VIEWS:
            raise UsageError(f"There is no screen {self.screen!r}.", hint=f"Give one of: {', '.join(VIEWS)}.")
        return next(view for view in VIEWS if view == self.screen)


class DetailDesk:
    """Requests missing facts of the row under the cursor, and keeps recent answers.

    Args:
        ask: Sends a request to the reader thread.
    """

    def __init__(self, ask: Callable[[Request], None]) -> None:
        self._ask = ask
        self._answers: dict[Key, DetailReady] = {}
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
        if not navigator.table.size:
            return False
        key = _key(navigator, backend)
        planned, known = navigator.table.rows[navigator.cursor], self._answers.get(key)
        side, tensor = planned.side, planned.tensor or planned.reference_tensor
        if elements:
            self._window.want(key, tensor, look or LookedAt(), side=side)
        else:
            self._window.want_nothing()
        if (key, elements, explain) == self._wanted:
            return False
        moved = self._wanted is None or self._wanted[0] != key
        self._wanted = (key, elements, explain)
        if not _enough(known, elements and not side, explain and not side):
            self._asked += 1
            self._newest[key] = self._asked
            backend, row, sample, step = key
            request = DetailRequest(
                id=self._asked,
                backend=backend,
                row=row,
                tensor=tensor,
                sample=sample,
                step=step,
                elements=elements and not side,
                explain=explain and not side,
                side=side,
                known=known,
            )
            self._ask(request)
            self._waiting = True
        else:
            self._give_up()
        return moved

    def want_nothing(self) -> None:
        """Cancel unanswered requests: the screen needs none of them."""
        self._wanted = None
        self._window.want_nothing()
        self._give_up()

    def _give_up(self) -> None:
        if self._waiting:
            self._waiting = False
            self._ask(Withdraw())

    def forget(self) -> None:
        """Drop all answers: they are of another recording."""
        self._answers.clear()
        self._newest.clear()
        self._wanted = None
        self._window.forget()

    def take(self, answer: DetailReady | Glimpsed) -> None:
        """Keep an answer; one to an older request for the same row is dropped. Of glimpses the newest is kept."""
        if isinstance(answer, Glimpsed):
            self._window.take(answer)
            return
        request = answer.request
        if request.id != self._newest.get(request.key):
            return
        self._waiting = self._waiting and not (answer.complete and request.id == self._asked)
        self._answers.pop(request.key, None)
        self._answers[request.key] = answer
        while len(self._answers) > _KEPT:
            del self._answers[next(iter(self._answers))]
        held = 0
        for key, kept in reversed(self._answers.items()):
            held += 0 if kept.whole is None else kept.whole.nbytes
            if held > _MOST_BYTES and kept is not answer:
                self._answers[key] = replace(kept, whole=None)

    def glimpse(self, navigator: Navigator, *, backend: int = 0) -> Glimpsed | None:
        """Return the glimpse of the row under the cursor."""
        return self._window.seen_of(_key(navigator, backend))

    def ready(self, navigator: Navigator, *, backend: int = 0) -> DetailReady | None:
        """Return the facts of the row under the cursor."""
        return self._answers.get(_key(navigator, backend))


def _key(navigator: Navigator, backend: int) -> Key:
    """Return the key of an answer: for all samples, elements are those of the worst one."""
    row, sample, table = navigator.cursor, navigator.sample, navigator.table
    alone = not table.size or table.rows[row].missing is not None  # then nothing says which sample is the worst
    shown = sample if alone else shown_sample(table.results[row], sample)
    return backend, navigator.number, shown, navigator.step


def _enough(known: DetailReady | None, elements: bool, explain: bool) -> bool:  # noqa: FBT001  of one request
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
        navigator.go(_row_of_part(table, where.node) if row is None else row)
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


def _row_of_part(table: NodeTable, name: str) -> int:
    """Find a row by a part of a name or a pattern, as `qdebug diff --node` does.

    Raises:
        UsageError: It fits no node, or several.
    """
    rows = {
        each: at
        for at, row in reversed(list(enumerate(table.rows)))
        for each in (row.reference_tensor, row.tensor, row.node)
        if each
    }
    hits = sorted({rows[each] for each in fitting_names(name, rows)})
    nodes = dict.fromkeys(table.rows[at].node for at in hits)
    if len(nodes) > 1:
        raise UsageError(
            f"{name!r} fits {len(nodes)} nodes: {listed_names(nodes)}.",
            hint="Give one of these names, or a longer part of one.",
        )
    if not hits:
        raise UsageError(
            f"No node and no tensor is called {name!r}.{near_names(name, rows)}",
            hint="List them: qdebug info FILE --tensors.",
        )
    return hits[0]
