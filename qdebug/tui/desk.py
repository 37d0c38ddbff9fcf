"""Where the screen starts, and its side of the talk with the reader thread: what was asked and what has come back."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches

from qdebug.errors import UsageError
from qdebug.tui.navigator import Navigator
from qdebug.tui.rows import NodeTable
from qdebug.tui.source import DetailReady, DetailRequest

__all__ = ["DetailDesk", "start"]

_KEPT = 64

Key = tuple[int, int | None]


class DetailDesk:
    """Asks for details and keeps the last answers.

    Args:
        ask: Sends a request to the reader thread.
    """

    def __init__(self, ask: Callable[[DetailRequest], None]) -> None:
        self._ask = ask
        self._answers: dict[Key, DetailReady] = {}
        self._newest: dict[Key, int] = {}
        self._asked = 0
        self._wanted: Key | None = None

    def want(self, navigator: Navigator) -> bool:
        """Ask for the row under the cursor unless that is done; tell whether it is another row than before."""
        key = (navigator.cursor, navigator.sample)
        if key == self._wanted or not navigator.table.size:
            return False
        self._wanted = key
        known = self._answers.get(key)
        planned = navigator.table.rows[key[0]]
        if planned.missing is None and (known is None or not known.complete):
            self._asked += 1
            self._newest[key] = self._asked
            self._ask(DetailRequest(id=self._asked, row=key[0], tensor=planned.tensor, sample=key[1]))
        return True

    def take(self, answer: DetailReady) -> None:
        """Keep an answer; one to an older request for the same row is dropped."""
        key = (answer.request.row, answer.request.sample)
        if answer.request.id != self._newest.get(key):
            return
        self._answers.pop(key, None)
        self._answers[key] = answer
        while len(self._answers) > _KEPT:
            del self._answers[next(iter(self._answers))]

    def ready(self, navigator: Navigator) -> DetailReady | None:
        """Give what is known of the row under the cursor."""
        return self._answers.get((navigator.cursor, navigator.sample))


def start(table: NodeTable, samples: int, node: str | None, sample: int | None) -> Navigator:
    """Put the cursor where the user wants to start.

    Args:
        table: The rows.
        samples: Number of samples of the recordings.
        node: Node or tensor to start at; None for the first.
        sample: Sample to start with; None for all.

    Raises:
        UsageError: There is no such node or sample.
    """
    navigator = Navigator(table, samples=samples)
    if sample is not None:
        if not 0 <= sample < samples:
            raise UsageError(
                f"There is no sample {sample}: the recordings share the samples 0 to {samples - 1}.",
                hint=f"Give --sample N with N at most {samples - 1}.",
            )
        navigator.choose_sample(sample)
    if node is not None:
        row = table.find(node)
        if row is None:
            near = get_close_matches(node, [name for row in table.rows for name in (row.node, row.tensor)], n=3)
            also = f" Near names: {', '.join(repr(name) for name in dict.fromkeys(near))}." if near else ""
            raise UsageError(
                f"No node and no tensor is called {node!r}.{also}", hint="List them: qdebug info FILE --tensors."
            )
        navigator.go(row)
    return navigator
