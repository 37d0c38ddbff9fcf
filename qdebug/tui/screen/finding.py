"""The prompts for search and filter, which respond while the user types."""

from __future__ import annotations

from collections.abc import Callable

from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.widgets.prompt import Question

__all__ = ["Filter", "search_question"]

_SO_FAR = "not yet: "
"""Prefix of messages about a filter that cannot be parsed completely while it is being typed."""

Current = Callable[[], Navigator | None]
"""Returns the current list. While the user types, new data of a recording may replace it."""


def _anchor(now: Current, at: int | None = None) -> Callable[[], int]:
    """Remember the row of the cursor by its tensor, and return a function that finds it."""
    navigator = now()
    here = 0 if navigator is None else navigator.cursor if at is None else at
    planned = navigator.table.rows[here] if navigator is not None and navigator.table.size else None

    def row() -> int:
        current = now()
        same = None if current is None or planned is None else current.table.row_like(planned)
        return same if same is not None else 0 if current is None else current.cursor

    return row


def search_question(now: Current, did: Callable[[str], object]) -> Question:
    """Return the prompt for a search.

    Args:
        now: Returns the current list.
        did: Called once a search is set.
    """
    start_row = _anchor(now)

    def search(text: str) -> str:
        navigator = now()
        return "" if navigator is None else navigator.search(text, start=start_row())

    def submit(text: str) -> str:
        navigator = now()
        message = search(text)  # again: enter may come before the last letters were looked for
        if navigator is None or not navigator.pattern:
            return "search cleared"
        did("search")
        return f"{message}; n N walk them, esc clears" if navigator.finds else message

    def cancel() -> str:
        search("")
        return "search cancelled"

    return Question(
        label="/",
        placeholder="part of a name, 'whole name', #number or ~regex",
        on_change=search,
        on_submit=submit,
        on_cancel=cancel,
    )


class Filter:
    """Asks for a filter, and keeps a filter that cannot be parsed completely, so that the user can correct it.

    Args:
        now: Returns the current list.
        did: Called once a filter is set.
    """

    def __init__(self, now: Current, did: Callable[[str], object]) -> None:
        self._now, self._did = now, did
        self._refused = ("", "")  # the one that cannot be read, and the one in force with it

    def question(self, navigator: Navigator) -> Question:
        """Return the prompt."""
        before, start_row = navigator.filter, _anchor(self._now)
        origin = _anchor(self._now, navigator.before_filter())
        messages: list[str] = []

        def choose(text: str) -> str:
            """Show the rows that match the valid prefix of the text."""
            now = self._now()
            if now is None:
                return ""
            now.go(start_row())
            fitting, problem = now.choose_filter_so_far(text)
            now.came_from(origin())
            problem = problem and f"{_SO_FAR}{problem}"
            messages[:] = [problem or fitting]
            return messages[0]

        def submit(text: str) -> str:
            """Return a message about the active filter, which is only the valid prefix of an invalid text."""
            answer, now = messages[0] if messages else choose(text), self._now()
            self._did("filter")
            self._refused = ("", "")
            if now is None or now.filter == text.strip():
                return answer
            wrong, self._refused = answer.removeprefix(_SO_FAR), (text.strip(), now.filter)
            return f"filter is {now.filter!r} alone: {wrong}" if now.filter else f"no filter: {wrong}"

        def cancel() -> str:
            self._refused = ("", "")
            choose(before)
            now = self._now()
            if now is not None:
                now.go(start_row())
                now.came_from(origin())
            return "the filter is as before"

        return Question(
            label="filter",
            placeholder="rel>1e-2 & op~conv   or:  is=failing   or:  clipped>1% | name~'layer[34]'",
            text=self._refused[0] if self._refused[0] and self._refused[1] == before else before,
            on_change=choose,
            on_submit=submit,
            on_cancel=cancel,
        )

    def clear(self, navigator: Navigator) -> str:
        """Show all nodes."""
        self._refused = ("", "")
        return navigator.take_filter_back() if navigator.filter else "there is no filter; f sets one"
