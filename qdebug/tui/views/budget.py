"""The composition of each output's error, node by node: the report of `qdebug budget`, interactively."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from qdebug.compare.budget import ErrorBudget, NodeShare
from qdebug.compare.own_error import PARTS
from qdebug.errors import UsageError
from qdebug.present import numbers
from qdebug.present.reports.budget import budget_document
from qdebug.present.reports.document import Grid, Items, Section, Title
from qdebug.present.text import safe_text
from qdebug.tui.drawing.look import Look
from qdebug.tui.provisional import Provisional, Until
from qdebug.tui.reading.messages import BudgetWish
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.view import DrawnView, Line, Scene, Table, Target, grid_lines, paragraph, window

if TYPE_CHECKING:
    from qdebug.session import DiffSession

__all__ = ["BudgetView"]

_LEAVE_FIRST = ("op", "alone dB")


class BudgetView(DrawnView):
    """The budget of each output, worst first. The cursor is shared with the node list."""

    view = ScreenId.BUDGET
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.open", "why", tooltip="open the node: why it differs"),
        Binding("v", "screen.form", "the node", tooltip="why the node differs"),
    ]
    lists = True

    def __init__(self, look: Look | None = None) -> None:
        super().__init__(look)
        self._at = 0
        self._shown: dict[int, int] = {}

    def trial(self, scene: Scene) -> BudgetWish | None:  # noqa: ARG002  it is of all rows
        """Return the request for the budget."""
        return BudgetWish()

    def _chosen(self, scene: Scene) -> int:
        """Return the selected share; -1 if the node under the cursor does not have one."""
        rows = _rows(scene)
        if self._at < len(rows) and rows[self._at] == scene.row:
            return self._at
        return rows.index(scene.row) if scene.row in rows else -1

    def _choose(self, scene: Scene, at: int) -> str:
        self._at, row = at, _rows(scene)[at]
        if row is None:
            return "this node is not in the list of nodes"
        scene.navigator.go(row)
        return ""

    def move(self, scene: Scene, lines: int) -> str:
        """Select another node."""
        last, at = len(_rows(scene)) - 1, self._chosen(scene)
        if last < 0:
            return "there is no share to choose, or not yet"
        if at < 0:
            return self._choose(scene, 0)
        target = min(max(at + lines, 0), last)
        return self._choose(scene, target) if target != at else f"this is the {'last' if lines > 0 else 'first'} share"

    def enter(self, scene: Scene) -> Target | str:
        """Open the node."""
        return ScreenId.WHY if self._chosen(scene) >= 0 else self.move(scene, 1)

    def click(self, scene: Scene, _: int, line: int) -> Target | str | None:
        """Select the node on a line, or open it if it is already selected."""
        at = self._shown.get(line)
        if at is None:
            return None
        return self.enter(scene) if at == self._chosen(scene) else self._choose(scene, at)

    def command(self, scene: Scene, files: Sequence[str]) -> Sequence[str] | None:  # noqa: ARG002  it is of all
        """Return the command that prints the budget of all samples."""
        return ["qdebug", "budget", *files]

    def json(self, scene: Scene, path: Path) -> Callable[[DiffSession], str] | None:  # noqa: ARG002  wherever it is
        """Return the writer of the budget in the form of `qdebug budget --json`.

        Raises:
            UsageError: The budget does not cover all outputs and samples yet.
        """
        budget = _whole(scene)
        return lambda _: budget.to_json()

    def table(self, scene: Scene) -> Table | None:
        """Return the shares with full precision.

        Raises:
            UsageError: The shares do not cover all outputs and samples yet.
        """
        _whole(scene)
        lines = [
            (output, node.node, node.op, node.tensor, node.share, node.sqnr_db, *map(node.parts.get, PARTS))
            for output, node in _shares(scene)
        ]
        return ("output", "node", "op", "tensor", "share", "sqnr_db", *PARTS), lines

    def draw(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Draw the progress of the budget, and below it the part of the report around the selected node."""
        budget, chosen = _budget(scene), self._chosen(scene)
        head = paragraph(_state(scene), scene, width, "accent")
        if budget is None:
            return head
        lines: list[Line] = []
        places: list[int] = []
        for block in budget_document(budget, rest="e writes all of them to a .json"):
            if isinstance(block, Title):
                lines += paragraph(block.text, scene, width, "title")
            elif isinstance(block, Section):
                lines.append([])
            elif isinstance(block, Grid):
                drawn = grid_lines(block, scene, width, cursor=chosen - len(places), leave=_LEAVE_FIRST)
                places += range(len(lines) + 1, len(lines) + len(drawn))
                lines += drawn
            elif isinstance(block, Items):
                for item in block.items:
                    lines += paragraph(item.text, scene, width)
        room = max(height - len(head), 1)
        at = places[chosen] if chosen >= 0 else 0
        start = window(at, len(lines), room).start if at >= room - 1 else 0
        if chosen == len(places) - 1:  # what is said below the last one is seen from there
            start = max(min(at, len(lines) - room), 0)
        self._shown = {len(head) + line - start: number for number, line in enumerate(places) if line >= start}
        shown, hidden = lines[start : start + room], len(lines) - start - room
        if hidden > 0:
            shown[-1] = [(scene.glyphs.fit_end(f" .. {hidden + 1} more lines, G shows the last", width), "accent")]
            self._shown.pop(height - 1, None)
        return [*head, *shown]


def _budget(scene: Scene) -> ErrorBudget | None:
    """Return the budget so far; None if there is none."""
    ready = scene.tried
    if ready is None or ready.budget is None or ((ready.doing or ready.problem) and not ready.budget.outputs):
        return None  # that no output has a budget yet does not mean that none was compared
    return ready.budget


def _whole(scene: Scene) -> ErrorBudget:
    """Return the budget of all outputs and samples, for files, which do not show progress.

    Raises:
        UsageError: There is no budget, or it is not complete yet.
    """
    budget, ready = _budget(scene), scene.tried
    if budget is None or ready is None or ready.doing or ready.problem:
        raise UsageError(f"Nothing is written: {_state(scene)}.", hint="Wait for the budget of all samples.")
    return budget


def _shares(scene: Scene) -> Iterator[tuple[str, NodeShare]]:
    budget = _budget(scene)
    for output in () if budget is None else budget.outputs:
        yield from ((output.output, node) for node in output.nodes)


def _rows(scene: Scene) -> list[int | None]:
    """Return the row of each share."""
    return [scene.table.row_of(node.tensor) for _, node in _shares(scene)]


def _state(scene: Scene) -> str:
    """Return the progress of the replay, or a note that it is complete."""
    ready, table = scene.tried, scene.table
    if scene.result is None:
        counted = f"{numbers.grouped(table.compared)} of {numbers.grouped(table.comparable)}"
        return Provisional(f"the budget is made once the verdict stands, so far {counted} are compared", Until.RESULTS)
    if ready is None:
        return "the budget is made .."
    if ready.problem:
        return f"no budget: {safe_text(ready.problem, limit=300)}"
    if ready.doing:
        done, total = ready.replayed
        counted = f": {done} of {total} replays so far" if total else ""
        return f"replaying {ready.doing}{counted}; it waits while another screen is shown"
    return "the budget of all samples"
