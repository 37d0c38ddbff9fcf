"""Edits of a quantized network: for the node under the cursor, the marked ones, and their effect on the outputs.

An edit that is chosen is called marked here, to tell it from the one under the cursor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from qdebug.errors import UsageError
from qdebug.plural import agreeing, plural
from qdebug.present import numbers
from qdebug.present.reports.document import Grid
from qdebug.present.reports.repair import EDIT_TITLES, cost_words, edit_cells, faithful_words
from qdebug.present.reports.scales import output_error, output_rows
from qdebug.present.text import safe_text
from qdebug.repair.edits import KINDS, Edit
from qdebug.repair.find import RepairOptions, find_repair
from qdebug.tui.drawing.look import Look
from qdebug.tui.reading.messages import EditWish, worst_first
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.view import (
    DrawnView,
    Line,
    Scene,
    Table,
    Target,
    grid_lines,
    heading,
    in_room,
    paragraph,
    window,
)

if TYPE_CHECKING:
    from qdebug.session import DiffSession
    from qdebug.tui.reading.facts import EditFacts

__all__ = ["MendView"]

_LEAST_LIST = 5
"""Minimum number of lines for the list of edits, including its heading."""
_LEAVE_FIRST = ("op", "bytes")
_BY_HAND = "the edits were chosen in the terminal, and no others were looked for"
"""The reason that is written to the file for ending the search for a repair."""


class MendView(DrawnView):
    """Edits that can be marked. All marked edits are replayed together, including those of other nodes."""

    view = ScreenId.MEND
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "mark", "choose", tooltip="choose the edit, which replays the net with all chosen"),
        Binding("r", "reset", "none", tooltip="reset: choose no edit, and back"),
        Binding("v", "screen.form", "another scale", tooltip="try another scale for the tensor"),
        Binding("enter", "screen.open", "tensor", tooltip="open the tensor of the node, or the node of the edit"),
    ]
    lists = True
    written = "the edits; Y copies the command that goes on with them"

    def __init__(self, look: Look | None = None) -> None:
        super().__init__(look)
        self._marks: dict[int, list[str]] = {}
        self._gone: dict[int, list[str]] = {}
        self._of: tuple[int, int] | None = None
        self._here = ""
        self._best_of: tuple[int, int] | None = None  # the node whose best edit is to be chosen once it is known
        self._gained: dict[tuple[int, int | None, str], tuple[float, frozenset[str]]] = {}
        """For each marked edit, by backend and sample: its gain when it was marked, and the edits that were marked
        before."""
        self._gained_of: object = None  # the recordings that this is of
        self._shown: dict[int, str] = {}
        self._written: tuple[tuple[str, ...], Path, str] | None = None

    def _marked(self, scene: Scene) -> list[str]:
        """Return the names of the marked edits. Their details are in the last answer."""
        return self._marks.setdefault(scene.backend, [])

    def _listed(self, scene: Scene) -> list[Edit]:
        """Return the edits of the node, followed by the marked edits of other nodes; empty until they are known."""
        if self._of != (scene.backend, scene.row):
            self._of, self._here = (scene.backend, scene.row), ""
        facts, edits = _facts(scene), _edits_of(scene)
        if facts is None or not edits.keys() >= {*self._marked(scene)}:
            return []
        own = {edit.name for edit in facts.edits}
        return [*facts.edits, *(edits[name] for name in self._marked(scene) if name not in own)]

    def _at(self, listed: Sequence[Edit]) -> int:
        """Return the index of the edit under the cursor; the first one if it is not in the list."""
        return next((at for at, edit in enumerate(listed) if edit.name == self._here), 0)

    def _wish(self, scene: Scene) -> EditWish:
        return EditWish(edits=tuple(sorted(self._marked(scene))), sample=scene.navigator.sample)

    def trial(self, scene: Scene) -> EditWish | None:
        """Return the request for the effect of the marked edits."""
        return self._wish(scene)

    # Keys

    def action_mark(self) -> None:
        """Mark or unmark an edit."""
        self.stage.with_scene(self.mark)

    def action_reset(self) -> None:
        """Unmark all edits, or mark them again."""
        self.stage.with_scene(self.reset)

    def move(self, scene: Scene, lines: int) -> str:
        """Go to another edit."""
        listed = self._listed(scene)
        if not listed:
            return _nothing(scene)
        at, last = self._at(listed), len(listed) - 1
        target = max(min(at + lines, last), 0)
        if target == at:
            return f"this is the {'last' if lines > 0 else 'first'} edit"
        self._here = listed[target].name
        return ""

    def mark(self, scene: Scene) -> str:
        """Mark or unmark the edit under the cursor. Marked edits that conflict with it are unmarked too."""
        listed, marks = self._listed(scene), self._marked(scene)
        if not listed:
            return _nothing(scene)
        self._gone.pop(scene.backend, None)
        at = self._at(listed)
        edit = listed[at]
        self._here, name = edit.name, f"{edit.kind} of {safe_text(edit.unit.node.name, limit=40)}"
        facts, ready = _facts(scene), scene.tried
        if self._gained_of is not scene.opened:
            self._gained, self._gained_of = {}, scene.opened
        self._gained.pop(self._gain_key(scene, edit), None)
        measured = facts is not None and ready is not None and ready.request.wish == self._wish(scene)
        if edit.name in marks:
            marks.remove(edit.name)
            remaining = self._listed(scene)
            if (
                remaining and edit not in remaining
            ):  # that of another node is not listed any more: the next one takes its line
                self._here = remaining[min(at, len(remaining) - 1)].name
            return f"{name} is no longer chosen"
        gone = [rival for rival in listed if rival.name in marks and (edit.replaces(rival) or rival.replaces(edit))]
        undone = {rival.name for rival in gone}
        marks[:] = [*(rival for rival in marks if rival not in undone), edit.name]
        rest = frozenset(marks) - {edit.name}
        before = [self._gained.get(self._gain_key(scene, rival)) for rival in gone]
        added = [entry[0] for entry in before if entry is not None and entry[1] == rest]
        if facts is not None and measured and edit.name in facts.gains and len(added) == len(gone) <= 1:
            # measured over the one it replaces: with what that added to the same others, what it adds to them
            self._gained[self._gain_key(scene, edit)] = facts.gains[edit.name] + sum(added), rest
        if gone:
            return f"{name}, in the place of {', '.join(safe_text(rival.name, limit=40) for rival in gone)}"
        return f"{name}: {KINDS[edit.kind]}"

    def try_best(self, scene: Scene) -> str:
        """Mark the edit that helps most, now or once it is known."""
        self._best_of = scene.place
        return self._choose_best(scene) or "the edits of this node are looked for; then the best of them is chosen .."

    def watch_scene(self) -> None:
        """Mark the waiting edit if its gain is now known, and redraw."""
        scene = self.scene
        if self._best_of is not None and scene is not None:
            message = self._choose_best(scene)
            if message:
                self.stage.say(message)
        super().watch_scene()

    def _choose_best(self, scene: Scene) -> str:
        """Mark the edit that the diagnosis has tried, else the one with the largest gain; "" while that is unknown."""
        facts = _facts(scene)
        if self._best_of != scene.place:
            self._best_of = None
            return ""
        if facts is None or scene.tried is None:
            return ""
        fault = scene.table.diagnosis.get(scene.row)
        tried = [remedy.edit for remedy in (() if fault is None else fault.remedies)]
        own = [edit.name for edit in facts.edits]
        best = next((name for name in tried if name in own), "")
        if not best and facts.gains and not scene.tried.doing:
            best = max(facts.gains, key=lambda name: worst_first(facts.gains[name]))
        settled = not scene.tried.doing or scene.tried.problem
        if not best:
            self._best_of = None if settled else self._best_of
            return _nothing(scene) if settled and not own else ""
        self._best_of = None
        if best in self._marked(scene):
            return "the edit that helps most is chosen already; space takes it back"
        self._here = best
        return self.mark(scene)

    def reset(self, scene: Scene) -> str:
        """Unmark all edits. A second call marks them again."""
        marks, gone = self._marked(scene), self._gone.pop(scene.backend, [])
        if not marks:
            marks[:] = gone
            return f"{plural(len(gone), 'edit')} chosen again" if gone else "no edit is chosen"
        self._gone[scene.backend] = list(marks)
        marks.clear()
        many = len(self._gone[scene.backend])
        return f"{plural(many, 'edit')} {agreeing(many, 'is')} no longer chosen; r brings them back"

    def enter(self, scene: Scene) -> Target | str:
        """Open the node, or go to the node of a marked edit that belongs elsewhere."""
        listed, facts = self._listed(scene), _facts(scene)
        if listed and facts is not None and listed[self._at(listed)] not in facts.edits:
            unit = listed[self._at(listed)].unit
            rows = [scene.table.row_of(name) for name in (unit.node.outputs[0], unit.tensor)]
            row = next((row for row in rows if row is not None), None)
            return "its node is not in the list of nodes" if row is None else scene.navigator.jump(row)
        return ScreenId.TENSOR

    def click(self, scene: Scene, _: int, line: int) -> Target | str | None:
        """Go to the edit on a line, or mark it if the cursor is already there."""
        name, listed = self._shown.get(line), self._listed(scene)
        if name is None or not listed:
            return None
        if name == listed[self._at(listed)].name:
            return self.mark(scene)
        self._here = name
        return ""

    def json(self, scene: Scene, path: Path) -> Callable[[DiffSession], str] | None:
        """Return a function that writes the marked edits in the form of `qdebug repair`, measured on all samples.

        Raises:
            UsageError: No edits are marked.
        """
        names = self._wish(scene).edits
        if not names:
            raise UsageError("No edit is chosen.", hint="Choose one: space.")
        options = RepairOptions(minutes=0.0, start=names)

        def write(session: DiffSession) -> str:
            text = replace(find_repair(session, options), stopped=_BY_HAND).to_json()
            self._written = names, path, text
            return text

        return write

    def command(self, scene: Scene, files: Sequence[str]) -> Sequence[str] | None:
        """Return the command that continues with the marked edits; None if they are not written yet."""
        if self._written is None or self._written[0] != self._wish(scene).edits:
            return None
        _, path, text = self._written
        try:
            there = path.read_text(encoding="utf-8").rstrip()
        except (OSError, UnicodeDecodeError):
            return None
        return ["qdebug", "repair", *files, "--resume", str(path)] if there == text.rstrip() else None

    def table(self, scene: Scene) -> Table | None:
        """Return the edits with their costs."""
        marked = {*self._marked(scene)}
        lines = [
            (edit.name in marked, *edit.to_dict().values(), self._gain(scene, edit)) for edit in self._listed(scene)
        ]
        return ("chosen", "kind", "node", "op", "tensor", "reference_node", "macs", "bytes", "gain_db"), lines

    # Drawing

    def draw(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Draw the outputs with the marked edits, and the list of edits."""
        listed, marked = self._listed(scene), {*self._marked(scene)}
        at = self._at(listed)
        least = min(len(listed) + 1, _LEAST_LIST)
        below = self._words(scene, width)
        facts = _facts(scene)
        node = "" if facts is None else facts.node
        elsewhere = f"edits of {safe_text(node, limit=40)}" if node not in {"", scene.planned.node} else ""
        above = [heading(scene, width, elsewhere), *self._outputs(scene, width, height - 1 - least - len(below))]
        grid = Grid(
            titles=("", *EDIT_TITLES, "gain dB"),
            rows=[
                ("[x]" if edit.name in marked else "[ ]", *edit_cells(edit), self._gain_cell(scene, edit))
                for edit in listed
            ],
            right=frozenset({4, 5, 6}),
            names=frozenset({2}),
        )
        head, *rows = grid_lines(grid, scene, width, cursor=at, leave=_LEAVE_FIRST)
        if not rows:
            return [*above, *paragraph(_nothing(scene), scene, width), *below]
        below = in_room(below, max(height - len(above) - least, 0))
        room = max(height - len(above) - len(below) - 1, 1)
        shown = window(at, len(rows), room)
        self._shown = {len(above) + 1 + line: listed[number].name for line, number in enumerate(shown)}
        return [*above, head, *rows[shown.start : shown.stop], *below]

    def _outputs(self, scene: Scene, width: int, room: int) -> list[Line]:
        """Draw the effect on the outputs (the worst ones if not all fit), and the progress of the replay."""
        ready, facts, wish = scene.tried, _facts(scene), self._wish(scene)
        if not wish.edits:
            doing = f"; replaying {ready.doing} .." if ready is not None and ready.doing else ""
            message = _far_off(facts) or "no edit is chosen: the outputs are as recorded"
            return paragraph(f"{message}{doing}", scene, width, "fail" if _far_off(facts) else "plain")
        is_current = ready is not None and ready.request.wish == wish
        if ready is None or facts is None or not is_current:
            return paragraph("replaying ..", scene, width, "accent")
        if ready.problem:
            return paragraph(f"no replay: {safe_text(ready.problem, limit=300)}", scene, width, "fail")
        (done, total), effect = ready.replayed, facts.effect
        message = ""
        if effect is None and not ready.doing:
            message = f"nothing of sample {wish.sample} was recorded"
        if ready.doing:
            message = f"replaying {ready.doing}" + (f": {done} of {total} nodes" if total else " ..")
        elif effect is not None and facts.faithful is not None:
            replay = _far_off(facts) or faithful_words(facts.faithful)
            message = f"replayed in {numbers.number(effect.seconds)} s a sample; {replay}"
        below = paragraph(message, scene, width, "accent" if ready.doing else "muted")
        if effect is None:
            return below
        most, outputs, more = max(room - len(below) - 1, 1), effect.outputs, list[Line]()
        if len(outputs) > most:
            outputs = tuple(sorted(outputs, key=lambda output: worst_first(output.trial.sqnr_db))[: max(most - 1, 1)])
            more = paragraph(f"{plural(len(effect.outputs) - len(outputs), 'more output')}", scene, width)
        of = f"sample {wish.sample}" if wish.sample is not None else plural(effect.samples, "sample")
        plain = (
            {}
            if facts.plain is None or not _far_off(facts)
            else {output.output: output for output in facts.plain.outputs}
        )
        replayed = [[output_error(plain[output.output].trial)] if output.output in plain else [] for output in outputs]
        grid = Grid(
            titles=(of, "recorded", *(["replay"] if plain else []), f"with {plural(len(wish.edits), 'edit')}"),
            rows=[(*row[:2], *alone, row[2]) for row, alone in zip(output_rows(outputs), replayed, strict=True)],
            right=frozenset({1, 2, 3}),
            names=frozenset({0}),
        )
        return [*grid_lines(grid, scene, width), *more, *below]

    def _gain_key(self, scene: Scene, edit: Edit) -> tuple[int, int | None, str]:
        return scene.backend, scene.navigator.sample, edit.name

    def _gain(self, scene: Scene, edit: Edit) -> float | None:
        """Return the gain of an edit on top of the marked ones, or its gain when it was marked; None if unknown."""
        if edit.name in self._marked(scene):
            gained = self._gained.get(self._gain_key(scene, edit)) if self._gained_of is scene.opened else None
            return None if gained is None else gained[0]
        facts = _facts(scene)
        return None if facts is None else facts.gains.get(edit.name)

    def _gain_cell(self, scene: Scene, edit: Edit) -> str:
        gain = self._gain(scene, edit)
        if gain is None:
            return ""
        return numbers.MISSING if math.isnan(gain) else f"{gain:+.2f}"

    def _words(self, scene: Scene, width: int) -> list[Line]:
        """Return the description of the selected edit, the total cost of the marked edits, and the next step."""
        listed, marked = self._listed(scene), {*self._marked(scene)}
        words = [f"{listed[self._at(listed)].kind}: {KINDS[listed[self._at(listed)].kind]}"] if listed else []
        facts = _facts(scene)
        if facts is not None and facts.gains:
            more = " now, over any that it replaces; of a chosen one: what it added" if marked else ""
            over = ", over a replay without edits" if _far_off(facts) and not marked else ""
            words.append(f"gain, in the SQNR of the worst output: what the edit adds{more}{over}")
        if marked and listed:
            words += [
                f"chosen: {cost_words([edit for edit in listed if edit.name in marked])}",
                "e writes these edits; then Y copies the command that goes on with them",
            ]
        return [line for text in words for line in paragraph(text, scene, width)]


def _far_off(facts: EditFacts | None) -> str:
    """Return by how much a replay without edits differs from the recorded outputs; "" if it does not.

    This difference is not part of any edit's gain, but it is part of the outputs shown with edits.
    """
    if facts is None or facts.plain is None or not facts.plain.outputs:
        return ""
    first = min(facts.plain.outputs, key=lambda output: worst_first(output.trial.sqnr_db))
    then, now = (numbers.number(output.sqnr_db) for output in (first.trial, first.now))
    if then == now:
        return ""
    message = f"a replay without edits gives the worst output {then} dB, and {now} dB as recorded"
    return f"{message}: the difference is what the replay does not know of the backend, and in no gain"


def _facts(scene: Scene) -> EditFacts | None:
    return None if scene.tried is None else scene.tried.edits


def _edits_of(scene: Scene) -> dict[str, Edit]:
    """Return the edits of the last answer by name: the node's edits and the marked ones."""
    facts = _facts(scene)
    return {} if facts is None else {edit.name: edit for edit in (*facts.marked, *facts.edits)}


def _nothing(scene: Scene) -> str:
    """Return why no edits are listed."""
    if scene.tried is not None and scene.tried.problem:
        return f"no edits: {safe_text(scene.tried.problem, limit=300)}"
    facts = _facts(scene)
    if facts is None:
        return "its edits are not known yet"
    if not scene.planned.tensor:
        return "only the reference has this tensor: edits are made to the backend's net"
    if facts.node:
        node = safe_text(facts.node, limit=40)
        return f"no edit of {node} can be made: the reference has no weight that is known to answer to its own"
    return "no edit changes this tensor: it has no codes of its own and no weights"
