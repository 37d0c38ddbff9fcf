"""The questions for a search and a filter, answered while they are typed."""

from __future__ import annotations

from collections.abc import Callable

from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.widgets.prompt import Question

__all__ = ["Filter", "search_question"]

_SO_FAR = "not yet: "
"""Begins what is said of a filter that cannot be read to its end while someone types it."""

Current = Callable[[], Navigator | None]
"""Gives the list that is shown: more of a recording may come in while someone types, which makes it another one."""


def _anchor(now: Current, at: int | None = None) -> Callable[[], int]:
    """Remember a row, that of the cursor, by its tensor."""
    navigator = now()
    here = 0 if navigator is None else navigator.cursor if at is None else at
    planned = navigator.table.rows[here] if navigator is not None and navigator.table.size else None

    def row() -> int:
        current = now()
        found = None if current is None or planned is None else current.table.row_like(planned)
        return found if found is not None else 0 if current is None else current.cursor

    return row


def search_question(now: Current, did: Callable[[str], object]) -> Question:
    """Return the question for a part of a name.

    Args:
        now: Gives the list.
        did: Told that a search was set.
    """
    begun = _anchor(now)

    def typed(text: str) -> str:
        navigator = now()
        return "" if navigator is None else navigator.search(text, start=begun())

    def given(text: str) -> str:
        navigator = now()
        said = typed(text)  # again: enter may come before the last letters were looked for
        if navigator is None or not navigator.pattern:
            return "search cleared"
        did("search")
        return f"{said}; n N walk them, esc clears" if navigator.finds else said

    def cancelled() -> str:
        typed("")
        return "search cancelled"

    return Question(
        label="/",
        placeholder="part of a name, 'whole name', #number or ~regex",
        typed=typed,
        given=given,
        cancelled=cancelled,
    )


class Filter:
    """Asks for a filter, and keeps one that cannot be read to its end, to be mended.

    Args:
        now: Gives the list.
        did: Told that a filter was set.
    """

    def __init__(self, now: Current, did: Callable[[str], object]) -> None:
        self._now, self._did = now, did
        self._refused = ("", "")  # the one that cannot be read, and the one in force with it

    def question(self, navigator: Navigator) -> Question:
        """Return the question."""
        before, begun = navigator.filter, _anchor(self._now)
        origin = _anchor(self._now, navigator.before_filter())
        said: list[str] = []

        def choose(text: str) -> str:
            """Show the rows that match the valid beginning of the text."""
            now = self._now()
            if now is None:
                return ""
            now.go(begun())
            fitting, problem = now.choose_filter_so_far(text)
            now.came_from(origin())
            problem = problem and f"{_SO_FAR}{problem}"
            said[:] = [problem or fitting]
            return said[0]

        def given(text: str) -> str:
            """Return a message about the filter in force: of an invalid text only its valid beginning."""
            answer, now = said[0] if said else choose(text), self._now()
            self._did("filter")
            self._refused = ("", "")
            if now is None or now.filter == text.strip():
                return answer
            wrong, self._refused = answer.removeprefix(_SO_FAR), (text.strip(), now.filter)
            return f"filter is {now.filter!r} alone: {wrong}" if now.filter else f"no filter: {wrong}"

        def cancelled() -> str:
            self._refused = ("", "")
            choose(before)
            now = self._now()
            if now is not None:
                now.go(begun())
                now.came_from(origin())
            return "the filter is as before"

        return Question(
            label="filter",
            placeholder="rel>1e-2 & op~conv   or:  is=failing   or:  clipped>1% | name~'layer[34]'",
            text=self._refused[0] if self._refused[0] and self._refused[1] == before else before,
            typed=choose,
            given=given,
            cancelled=cancelled,
        )

    def clear(self, navigator: Navigator) -> str:
        """Show all nodes."""
        self._refused = ("", "")
        return navigator.take_filter_back() if navigator.filter else "there is no filter; f sets one"
