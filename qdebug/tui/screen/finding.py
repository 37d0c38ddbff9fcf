"""The prompts for search and filter, which respond while the user types."""

from __future__ import annotations

from collections.abc import Callable

from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.widgets.prompt import Question

__all__ = ["Filter", "search_question"]

_SO_FAR = "not yet: "
"""Prefix of messages about a filter that cannot be parsed completely while it is being typed."""

CurrentList = Callable[[], Navigator | None]
"""Returns the current list. While the user types, new data of a recording may replace it."""


def _remember_row(current_list: CurrentList, start_row: int | None = None) -> Callable[[], int]:
    """Remember a row by its tensor, and return a function that finds it in the current list.

    Args:
        current_list: Returns the current list.
        start_row: The row; None for the row under the cursor.
    """
    navigator = current_list()
    row_number = 0 if navigator is None else navigator.cursor if start_row is None else start_row
    plan_row = navigator.table.rows[row_number] if navigator is not None and navigator.table.size else None

    def row() -> int:
        current = current_list()
        new_row = None if current is None or plan_row is None else current.table.row_like(plan_row)
        return new_row if new_row is not None else 0 if current is None else current.cursor

    return row


def search_question(current_list: CurrentList, on_set: Callable[[str], object]) -> Question:
    """Return the prompt for a search.

    Args:
        current_list: Returns the current list.
        on_set: Called once a search is set.
    """
    start_row = _remember_row(current_list)

    def search(text: str) -> str:
        navigator = current_list()
        return "" if navigator is None else navigator.search(text, start=start_row())

    def submit(text: str) -> str:
        navigator = current_list()
        message = search(text)  # enter may arrive before the last letters were searched
        if navigator is None or not navigator.pattern:
            return "search cleared"
        on_set("search")
        return f"{message}; n N walk them, esc clears" if navigator.has_visible_match else message

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
        current_list: Returns the current list.
        on_set: Called once a filter is set.
    """

    def __init__(self, current_list: CurrentList, on_set: Callable[[str], object]) -> None:
        self._current_list, self._on_set = current_list, on_set
        self._invalid_and_active = ("", "")  # a filter that cannot be parsed, and the one applied instead

    def question(self, navigator: Navigator) -> Question:
        """Return the prompt."""
        filter_before, start_row = navigator.filter, _remember_row(self._current_list)
        origin = _remember_row(self._current_list, navigator.row_before_filter())
        messages: list[str] = []

        def choose(text: str) -> str:
            """Show the rows that match the valid prefix of the text."""
            navigator_now = self._current_list()
            if navigator_now is None:
                return ""
            navigator_now.go(start_row())
            count_text, problem = navigator_now.choose_filter_so_far(text)
            navigator_now.remember_row_before_filter(origin())
            problem = problem and f"{_SO_FAR}{problem}"
            messages[:] = [problem or count_text]
            return messages[0]

        def submit(text: str) -> str:
            """Report the active filter, which is only the longest valid prefix of an invalid text."""
            answer, navigator_now = messages[0] if messages else choose(text), self._current_list()
            self._on_set("filter")
            self._invalid_and_active = ("", "")
            if navigator_now is None or navigator_now.filter == text.strip():
                return answer
            problem_text, self._invalid_and_active = answer.removeprefix(_SO_FAR), (text.strip(), navigator_now.filter)
            return (
                f"filter is {navigator_now.filter!r} alone: {problem_text}"
                if navigator_now.filter
                else f"no filter: {problem_text}"
            )

        def cancel() -> str:
            self._invalid_and_active = ("", "")
            choose(filter_before)
            navigator_now = self._current_list()
            if navigator_now is not None:
                navigator_now.go(start_row())
                navigator_now.remember_row_before_filter(origin())
            return "the filter is as before"

        return Question(
            label="filter",
            placeholder="rel>1e-2 & op~conv   or:  is=failing   or:  clipped>1% | name~'layer[34]'",
            text=self._invalid_and_active[0]
            if self._invalid_and_active[0] and self._invalid_and_active[1] == filter_before
            else filter_before,
            on_change=choose,
            on_submit=submit,
            on_cancel=cancel,
        )

    def clear(self, navigator: Navigator) -> str:
        """Show all nodes."""
        self._invalid_and_active = ("", "")
        return navigator.take_filter_back() if navigator.filter else "there is no filter; f sets one"
