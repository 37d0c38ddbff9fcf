"""Edits of a quantized net: what the node under the cursor offers, what is marked, and the outputs with that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qdebug.errors import UsageError
from qdebug.present import numbers
from qdebug.present.reports.document import Grid
from qdebug.present.reports.repair import EDIT_TITLES, cost_words, edit_cells, faithful_words
from qdebug.present.reports.scales import output_rows
from qdebug.present.text import safe_text
from qdebug.tui.pages.page import Constant, Line, Page, Scene, Table, grid_lines, heading, paragraph, window
from qdebug.tui.reading.messages import EditWish
from qdebug.tui.screens import ScreenId
from qdebug.workflow.repair import RepairOptions, find_repair
from qdebug.workflow.repair_edits import KINDS, Edit

if TYPE_CHECKING:
    from qdebug.session import DiffSession
    from qdebug.tui.reading.trials import EditFacts

__all__ = ["EditsPage"]

_LEAST_LIST = 5
"""Lines that the list of edits has at least, its heading with it."""
_LEAVE_FIRST = ("op",)


class EditsPage(Page):
    """Edits that can be marked; all marks together are replayed, those of other nodes too."""

    view = ScreenId.EDITS
    hint = "space marks, r unmarks all, e writes them for qdebug repair"
    lists = True
    written = "; Y copies the command that goes on with them"

    def __init__(self) -> None:
        self._marks: dict[int, list[Edit]] = {}
        self._of: tuple[int, int] | None = None
        self._at = 0
        self._shown: dict[int, int] = {}
        self._written: tuple[tuple[str, ...], Path] | None = None

    def _marked(self, scene: Scene) -> list[Edit]:
        return self._marks.setdefault(scene.backend, [])

    def _listed(self, scene: Scene) -> list[Edit]:
        """Return the edits of the node, and after them those that are marked of others."""
        if self._of != (scene.backend, scene.row):
            self._of, self._at = (scene.backend, scene.row), 0
        facts = _facts(scene)
        own = [] if facts is None else list(facts.edits)
        names = {edit.name for edit in own}
        return [*own, *(edit for edit in self._marked(scene) if edit.name not in names)]

    def _wish(self, scene: Scene) -> EditWish:
        names = tuple(sorted(edit.name for edit in self._marked(scene)))
        return EditWish(edits=names, sample=scene.navigator.sample)

    def trial(self, scene: Scene) -> EditWish | None:
        """Return what is to be found out."""
        return self._wish(scene)

    # Keys

    def move(self, scene: Scene, lines: int) -> str:
        """Choose another edit."""
        last = len(self._listed(scene)) - 1
        target = max(min(self._at + lines, last), 0)
        if target == self._at:
            return _nothing(scene) if last < 0 else f"this is the {'last' if lines > 0 else 'first'} edit"
        self._at = target
        return ""

    def mark(self, scene: Scene) -> str:
        """Mark the chosen edit, or take its mark away; marks that it undoes, or that undo it, are taken away."""
        listed, marks = self._listed(scene), self._marked(scene)
        if not listed:
            return _nothing(scene)
        self._at = min(self._at, len(listed) - 1)
        edit = listed[self._at]
        if any(each.name == edit.name for each in marks):
            marks[:] = [each for each in marks if each.name != edit.name]
            return f"the mark of {edit.kind} is taken away"
        gone = [each for each in marks if edit.replaces(each) or each.replaces(edit)]
        marks[:] = [*(each for each in marks if each not in gone), edit]
        instead = f", in the place of {', '.join(safe_text(each.name, limit=40) for each in gone)}" if gone else ""
        return f"{edit.kind}: {KINDS[edit.kind]}{instead}"

    def reset(self, scene: Scene) -> str:
        """Take all marks away."""
        many = len(self._marked(scene))
        self._marked(scene).clear()
        return f"{_count(many, 'mark')} taken away" if many else "no edit is marked"

    def enter(self, scene: Scene) -> ScreenId | Constant | str:
        """Open the node; go to that of an edit that is marked elsewhere."""
        listed, facts = self._listed(scene), _facts(scene)
        if self._at < len(listed) and (facts is None or listed[self._at] not in facts.edits):
            unit = listed[self._at].unit
            rows = [scene.table.row_of(name) for name in (unit.node.outputs[0], unit.tensor)]
            row = next((row for row in rows if row is not None), None)
            return "its node is not in the list of nodes" if row is None else scene.navigator.jump(row)
        return ScreenId.TENSOR

    def click(self, scene: Scene, _: int, line: int) -> ScreenId | Constant | str | None:
        """Choose the edit on a line, or mark it if it is chosen."""
        at = self._shown.get(line)
        if at is None:
            return None
        if at == self._at:
            return self.mark(scene)
        self._at = at
        return ""

    def json(self, scene: Scene, path: Path) -> Callable[[DiffSession], str] | None:
        """Return what writes the marks as a result of `qdebug repair` that looked for no more, measured on all samples.

        Raises:
            UsageError: Nothing is marked.
        """
        names = self._wish(scene).edits
        if not names:
            raise UsageError("No edit is marked.", hint="Mark one: space.")
        self._written = names, path
        options = RepairOptions(minutes=0.0, start=names)
        return lambda session: find_repair(session, options).to_json()

    def command(self, scene: Scene, files: Sequence[str]) -> Sequence[str] | None:
        """Return the command that goes on with the marks; None where they are not written yet."""
        if self._written is None or self._written[0] != self._wish(scene).edits:
            return None
        return ["qdebug", "repair", *files, "--resume", str(self._written[1])]

    def table(self, scene: Scene) -> Table | None:
        """Return the edits with what they cost."""
        marked = {edit.name for edit in self._marked(scene)}
        lines = [(edit.name in marked, *edit.to_dict().values()) for edit in self._listed(scene)]
        return ("marked", "kind", "node", "op", "tensor", "reference_node", "macs", "bytes"), lines

    # Drawing

    def draw(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Draw the outputs with the marks, and the edits."""
        listed, marks = self._listed(scene), self._marked(scene)
        self._at = max(min(self._at, len(listed) - 1), 0)
        marked = {edit.name for edit in marks}
        above, below = [heading(scene, width), *self._outputs(scene, width)], self._words(scene, width)
        grid = Grid(
            titles=("", *EDIT_TITLES),
            rows=[("[x]" if edit.name in marked else "[ ]", *edit_cells(edit)) for edit in listed],
            right=frozenset({4, 5}),
            names=frozenset({2}),
        )
        head, *rows = grid_lines(grid, scene, width, cursor=self._at, leave=_LEAVE_FIRST)
        if not rows:
            head = paragraph(_nothing(scene), scene, width)[0]
        least = min(len(rows) + 1, _LEAST_LIST)
        below = below[: max(height - len(above) - least, 0)]
        room = max(height - len(above) - len(below) - 1, 1)
        shown = window(self._at, len(rows), room)
        self._shown = {len(above) + 1 + line: at for line, at in enumerate(shown)}
        return [*above, head, *rows[shown.start : shown.stop], *below][:height]

    def _outputs(self, scene: Scene, width: int) -> list[Line]:
        """Draw what becomes of the outputs, and how far the replay is."""
        ready, facts, wish = scene.tried, _facts(scene), self._wish(scene)
        if not wish.edits:
            return paragraph("nothing is marked: the outputs are as recorded", scene, width)
        known = ready is not None and ready.request.wish == wish
        if ready is None or facts is None or not known:
            return paragraph("replaying ..", scene, width, "accent")
        if ready.problem:
            return paragraph(f"no replay: {safe_text(ready.problem, limit=300)}", scene, width, "fail")
        lines, (done, total) = list[Line](), ready.replayed
        if facts.effect is not None:
            of = f"sample {wish.sample}" if wish.sample is not None else _count(facts.effect.samples, "sample")
            grid = Grid(
                titles=(of, "recorded", f"with {_count(len(wish.edits), 'edit')}"),
                rows=output_rows(facts.effect.outputs),
                right=frozenset({1, 2}),
                names=frozenset({0}),
            )
            lines += grid_lines(grid, scene, width)
        said = ""
        if facts.effect is None and not ready.doing:
            said = f"nothing of sample {wish.sample} was recorded"
        if ready.doing:
            said = f"replaying {ready.doing}" + (f": {done} of {total} nodes" if total else " ..")
        elif facts.effect is not None and facts.faithful is not None:
            said = f"replayed in {numbers.number(facts.effect.seconds)} s a sample; {faithful_words(facts.faithful)}"
        return [*lines, *paragraph(said, scene, width, "accent" if ready.doing else "muted")]

    def _words(self, scene: Scene, width: int) -> list[Line]:
        """Say what the chosen edit does, what all marks cost and how to go on."""
        listed, marks = self._listed(scene), self._marked(scene)
        words = [f"{listed[self._at].kind}: {KINDS[listed[self._at].kind]}"] if listed else []
        if marks:
            words += [
                f"marked: {cost_words(marks)}",
                "e writes the marks; then Y copies the command that goes on with them",
            ]
        return [line for text in words for line in paragraph(text, scene, width)]


def _facts(scene: Scene) -> EditFacts | None:
    return None if scene.tried is None else scene.tried.edits


def _count(many: int, what: str) -> str:
    return f"{many} {what}{'' if many == 1 else 's'}"


def _nothing(scene: Scene) -> str:
    """Say why no edit is listed."""
    if scene.tried is not None and scene.tried.problem:
        return f"no edits: {safe_text(scene.tried.problem, limit=300)}"
    if _facts(scene) is None:
        return "its edits are being looked for .."
    return "no edit changes this tensor: it has no codes of its own and no weights"
