"""The composition of each output's error, node by node: the report of `qdebug budget`, interactively."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from qdebug.errors import UsageError
from qdebug.present import numbers
from qdebug.present.reports.document import Grid, Items, Section, Title
from qdebug.present.text import safe_text
from qdebug.tui.drawing.look import Look
from qdebug.tui.provisional import Provisional, Until
from qdebug.tui.reading.messages import BudgetWish
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.view import DrawnView, Line, Scene, Table, Target, grid_lines, paragraph, window

if TYPE_CHECKING:
    from qdebug.compare.budget import ErrorBudget, NodeShare
    from qdebug.session import DiffSession

__all__ = ["BudgetView"]

_OPTIONAL_COLUMNS = ("op", "alone dB")


class BudgetView(DrawnView):
    """The budget of each output, worst first. The cursor is shared with the node list."""

    view = ScreenId.BUDGET
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.open", "why", tooltip="open the node: why it differs"),
        Binding("v", "screen.form", "the node", tooltip="why the node differs"),
    ]
    is_list = True

    def __init__(self, look: Look | None = None) -> None:
        super().__init__(look)
        self._position = 0
        self._positions_by_line: dict[int, int] = {}

    def trial(self, scene: Scene) -> BudgetWish | None:  # noqa: ARG002  the same for every row
        """Return the request for the budget."""
        return BudgetWish()

    def _cursor_position(self, scene: Scene) -> int:
        """Return the selected share; -1 if the node under the cursor does not have one."""
        rows = _rows_of_shares(scene)
        if self._position < len(rows) and rows[self._position] == scene.row:
            return self._position
        return rows.index(scene.row) if scene.row in rows else -1

    def _choose(self, scene: Scene, position: int) -> str:
        self._position, row = position, _rows_of_shares(scene)[position]
        if row is None:
            return "this node is not in the list of nodes"
        scene.navigator.go(row)
        return ""

    def move(self, scene: Scene, lines: int) -> str:
        """Select another node."""
        last, position = len(_rows_of_shares(scene)) - 1, self._cursor_position(scene)
        if last < 0:
            return "there is no share to choose, or not yet"
        if position < 0:
            return self._choose(scene, 0)
        target = min(max(position + lines, 0), last)
        return (
            self._choose(scene, target)
            if target != position
            else f"this is the {'last' if lines > 0 else 'first'} share"
        )

    def enter(self, scene: Scene) -> Target | str:
        """Open the node."""
        return ScreenId.WHY if self._cursor_position(scene) >= 0 else self.move(scene, 1)

    def click(self, scene: Scene, _: int, line: int) -> Target | str | None:
        """Select the node on a line, or open it if it is already selected."""
        position = self._positions_by_line.get(line)
        if position is None:
            return None
        return self.enter(scene) if position == self._cursor_position(scene) else self._choose(scene, position)

    def command(self, scene: Scene, files: Sequence[str]) -> Sequence[str] | None:  # noqa: ARG002  the same for every row
        """Return the command that prints the budget of all samples."""
        return ["qdebug", "budget", *files]

    def json(self, scene: Scene, path: Path) -> Callable[[DiffSession], str] | None:  # noqa: ARG002  independent of the path
        """Return a function that writes the budget in the form of `qdebug budget --json`.

        Raises:
            UsageError: The budget does not cover all outputs and samples yet.
        """
        budget = _complete_budget(scene)
        return lambda _: budget.to_json()

    def table(self, scene: Scene) -> Table | None:
        """Return the shares with full precision.

        Raises:
            UsageError: The shares do not cover all outputs and samples yet.
        """
        from qdebug.compare.own_error import PARTS

        _complete_budget(scene)
        lines = [
            (output, node.node, node.op, node.tensor, node.share, node.sqnr_db, *map(node.parts.get, PARTS))
            for output, node in _shares(scene)
        ]
        return ("output", "node", "op", "tensor", "share", "sqnr_db", *PARTS), lines

    def draw(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Draw the progress of the budget, and below it the part of the report around the selected node."""
        budget, cursor_position = _current_budget(scene), self._cursor_position(scene)
        header = paragraph(_state_text(scene), scene, width, "accent")
        if budget is None:
            return header
        from qdebug.present.reports.budget import budget_document  # already imported by the worker

        lines: list[Line] = []
        share_lines: list[int] = []
        for block in budget_document(budget, rest="e writes all of them to a .json"):
            if isinstance(block, Title):
                lines += paragraph(block.text, scene, width, "title")
            elif isinstance(block, Section):
                lines.append([])
            elif isinstance(block, Grid):
                grid = grid_lines(
                    block, scene, width, cursor=cursor_position - len(share_lines), optional_titles=_OPTIONAL_COLUMNS
                )
                share_lines += range(len(lines) + 1, len(lines) + len(grid))
                lines += grid
            elif isinstance(block, Items):
                for item in block.items:
                    lines += paragraph(item.text, scene, width)
        line_count = max(height - len(header), 1)
        cursor_line = share_lines[cursor_position] if cursor_position >= 0 else 0
        start = window(cursor_line, len(lines), line_count).start if cursor_line >= line_count - 1 else 0
        if cursor_position == len(share_lines) - 1:  # also show the text below the last share
            start = max(min(cursor_line, len(lines) - line_count), 0)
        self._positions_by_line = {
            len(header) + line - start: number for number, line in enumerate(share_lines) if line >= start
        }
        visible_lines, hidden_count = lines[start : start + line_count], len(lines) - start - line_count
        if hidden_count > 0:
            visible_lines[-1] = [
                (scene.glyphs.fit_end(f" .. {hidden_count + 1} more lines, G shows the last", width), "accent")
            ]
            self._positions_by_line.pop(height - 1, None)
        return [*header, *visible_lines]


def _current_budget(scene: Scene) -> ErrorBudget | None:
    """Return the budget so far; None if there is none."""
    ready = scene.trial
    if ready is None or ready.budget is None or ((ready.activity or ready.problem) and not ready.budget.outputs):
        return None  # an empty budget would read as if no output was compared
    return ready.budget


def _complete_budget(scene: Scene) -> ErrorBudget:
    """Return the budget of all outputs and samples, for files, which do not show progress.

    Raises:
        UsageError: There is no budget, or it is not complete yet.
    """
    budget, ready = _current_budget(scene), scene.trial
    if budget is None or ready is None or ready.activity or ready.problem:
        raise UsageError(f"Nothing was written: {_state_text(scene)}.", hint="Wait for the budget of all samples.")
    return budget


def _shares(scene: Scene) -> Iterator[tuple[str, NodeShare]]:
    budget = _current_budget(scene)
    for output in () if budget is None else budget.outputs:
        yield from ((output.output, node) for node in output.nodes)


def _rows_of_shares(scene: Scene) -> list[int | None]:
    """Return the row of each share."""
    return [scene.table.row_of(node.tensor) for _, node in _shares(scene)]


def _state_text(scene: Scene) -> str:
    """Return the progress of the replay, or a note that it is complete."""
    ready, table = scene.trial, scene.table
    if scene.result is None:
        count_text = f"{numbers.grouped(table.compared)} of {numbers.grouped(table.comparable)}"
        return Provisional(
            f"the budget is computed once the verdict is final; {count_text} compared so far", Until.RESULTS
        )
    if ready is None:
        return "the budget is made .."
    if ready.problem:
        return f"no budget: {safe_text(ready.problem, limit=300)}"
    if ready.activity:
        done, total = ready.replay_progress
        count_text = f": {done} of {total} replays so far" if total else ""
        return f"replaying {ready.activity}{count_text}; it waits while another screen is shown"
    return "the budget of all samples"
