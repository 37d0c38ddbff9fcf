"""Edits of a quantized network: for the node under the cursor, the marked ones, and their effect on the outputs.

Edits that the user has chosen are called marked here, to distinguish them from the one under the cursor. The worker
that lists the first edits imports their modules, which takes a second and 27 MB.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from qdebug.compare.result.diagnosis import ALL_NODES
from qdebug.errors import UsageError
from qdebug.model.thresholds.verdict import REMEDY_MIN_GAIN
from qdebug.plural import agreeing, plural
from qdebug.present import numbers
from qdebug.present.reports.document import Grid
from qdebug.present.text import safe_text, shorten
from qdebug.tui.drawing.look import Look
from qdebug.tui.reading.messages import EditWish, worst_first_key
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.view import (
    DrawnView,
    Line,
    Scene,
    Table,
    Target,
    fit_lines,
    grid_lines,
    heading,
    paragraph,
    window,
)

if TYPE_CHECKING:
    from qdebug.repair.edits import Edit
    from qdebug.session import DiffSession
    from qdebug.tui.reading.facts import EditFacts

__all__ = ["MendView"]

_MIN_LIST_LINES = 5
"""Minimum number of lines for the list of edits, including its heading."""
_MIN_LINES_ABOVE = 3
"""Number of lines above the list that are always shown: the node, and the worst output with its titles."""
_MIN_ROOMY_WIDTH = 60
"""Width from which the table of edits has all columns."""
_OPTIONAL_COLUMNS = ("op", "bytes")
_OUTPUT_WIDTH = 12
"""Cells for the name of the output in the heading of the gains."""
_INSTEAD = "instead"
"""Word before the gain of an edit that would replace a chosen one: the gain is the difference between the two."""
_EDIT_START = re.compile(r", (?=float )")
"""Separator between the names of a set of edits: a node's name may contain a comma."""
_STOP_REASON = "the edits were chosen in the terminal, without a search for others"
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
    is_list = True
    json_title = "the edits; Y copies the command that goes on with them"

    def __init__(self, look: Look | None = None) -> None:
        super().__init__(look)
        self._marks: dict[int, list[str]] = {}
        self._unmarked_before: dict[int, list[str]] = {}
        self._node_key: tuple[int, int] | None = None
        self._current_name = ""
        self._waiting_row_key: tuple[int, int] | None = None  # row whose best edit is marked once it is known
        self._names_by_line: dict[int, str] = {}
        self._latest_written: tuple[tuple[str, ...], Path, str] | None = None

    def _marked_names(self, scene: Scene) -> list[str]:
        """Return the names of the marked edits. Their details are in the last answer."""
        return self._marks.setdefault(scene.backend, [])

    def _listed_edits(self, scene: Scene) -> list[Edit]:
        """Return the edits of the node, followed by the marked edits of other nodes; empty until they are known."""
        if self._node_key != (scene.backend, scene.row):
            self._node_key, self._current_name = (scene.backend, scene.row), ""
        facts, edits = _facts(scene), _edits_of(scene)
        if facts is None or not edits.keys() >= {*self._marked_names(scene)}:
            return []
        own_names = {edit.name for edit in facts.edits}
        return [*facts.edits, *(edits[name] for name in self._marked_names(scene) if name not in own_names)]

    def _current_index(self, edits: Sequence[Edit]) -> int:
        """Return the index of the edit under the cursor; the first one if it is not in the list."""
        return next((at for at, edit in enumerate(edits) if edit.name == self._current_name), 0)

    def _edit_wish(self, scene: Scene) -> EditWish:
        names = tuple(sorted(self._marked_names(scene)))
        return EditWish(edits=names, sample=scene.navigator.sample, output=_measured_output(scene))

    def trial(self, scene: Scene) -> EditWish | None:
        """Return the request for the effect of the marked edits."""
        return self._edit_wish(scene)

    # Keys

    def action_mark(self) -> None:
        """Mark or unmark an edit."""
        self.stage.with_scene(self.mark)

    def action_reset(self) -> None:
        """Unmark all edits, or mark them again."""
        self.stage.with_scene(self.reset)

    def move(self, scene: Scene, lines: int) -> str:
        """Go to another edit."""
        edits = self._listed_edits(scene)
        if not edits:
            return _no_edits_text(scene)
        index, last_index = self._current_index(edits), len(edits) - 1
        target = max(min(index + lines, last_index), 0)
        if target == index:
            return f"this is the {'last' if lines > 0 else 'first'} edit"
        self._current_name = edits[target].name
        return ""

    def mark(self, scene: Scene) -> str:
        """Mark or unmark the edit under the cursor. Marked edits that conflict with it are unmarked too."""
        edits, marks = self._listed_edits(scene), self._marked_names(scene)
        if not edits:
            return _no_edits_text(scene)
        self._unmarked_before.pop(scene.backend, None)
        index = self._current_index(edits)
        edit = edits[index]
        self._current_name, name = edit.name, f"{edit.kind} of {safe_text(edit.unit.node.name, limit=40)}"
        if edit.name in marks:
            marks.remove(edit.name)
            remaining = self._listed_edits(scene)
            # An edit of another node is listed only while it is marked: go to the edit that takes its line.
            if remaining and edit not in remaining:
                self._current_name = remaining[min(index, len(remaining) - 1)].name
            return f"{name} is no longer chosen"
        replaced_edits = self._replaced_edits(scene, edit)
        replaced_names = {rival.name for rival in replaced_edits}
        marks[:] = [*(rival for rival in marks if rival not in replaced_names), edit.name]
        if replaced_edits:
            return f"{name}, in the place of {', '.join(safe_text(rival.name, limit=40) for rival in replaced_edits)}"
        return f"{name}: {_kind_text(edit)}"

    def _replaced_edits(self, scene: Scene, edit: Edit) -> list[Edit]:
        """Return the marked edits that an unmarked edit would replace."""
        marked_names = {*self._marked_names(scene)}
        return [
            rival
            for rival in self._listed_edits(scene)
            if rival.name in marked_names - {edit.name} and (edit.replaces(rival) or rival.replaces(edit))
        ]

    def try_best(self, scene: Scene) -> str:
        """Mark the suggested edits or the one that helps most, now or once they are known."""
        self._waiting_row_key = scene.row_key
        return self._choose_best(scene) or "the best edits of this node are chosen once they are known .."

    def watch_scene(self) -> None:
        """Name the edits of a set that was marked as a whole, mark a waiting edit once it is known, and redraw."""
        scene = self.scene
        if scene is not None:
            self._name_marks(scene)
        if self._waiting_row_key is not None and scene is not None:
            message = self._choose_best(scene)
            if message:
                self.stage.say(message)
        super().watch_scene()

    def _name_marks(self, scene: Scene) -> None:
        """Replace a mark such as "per-channel *", which means all nodes, by the edits that it stands for."""
        facts, marked_names = _facts(scene), self._marked_names(scene)
        is_current = scene.trial is not None and scene.trial.request.wish == self._edit_wish(scene)
        if facts is not None and is_current and any(name.endswith(ALL_NODES) for name in marked_names):
            marked_names[:] = [edit.name for edit in facts.marked_edits]

    def _choose_best(self, scene: Scene) -> str:
        """Mark the edits that the first screen suggests for the node, else its edit with the largest gain.

        Returns "" while these are unknown.
        """
        facts = _facts(scene)
        if self._waiting_row_key != scene.row_key:
            self._waiting_row_key = None
            return ""
        if facts is None or scene.trial is None or scene.trial.request.wish != self._edit_wish(scene):
            return ""
        if scene.result is None:  # the verdict may suggest other edits
            return ""
        self._listed_edits(scene)  # notes the node, before an edit of it becomes the current one
        suggested_names = _suggested_names(scene)
        if suggested_names:
            self._waiting_row_key = None
            return self._mark_suggested(scene, suggested_names)
        if scene.trial.activity and not scene.trial.problem:
            return ""
        self._waiting_row_key = None
        marked_names = self._marked_names(scene)
        gains = {edit: facts.gains.get(edit.name, math.nan) for edit in facts.edits if edit.name not in marked_names}
        best_gain = max((gain for gain in gains.values() if not math.isnan(gain)), default=None)
        if best_gain is None:
            return _no_edits_text(scene) if not facts.edits else "the gain of its edits is not known; space chooses one"
        best = next(edit for edit, gain in gains.items() if round(gain, 2) >= round(best_gain, 2))  # cheapest first
        if best_gain < REMEDY_MIN_GAIN:
            more = "more " if any(edit.name in marked_names for edit in facts.edits) else ""
            node = safe_text(facts.node, limit=40)
            return f"no {more}edit of {node} helps: the best is {best.kind}, {_gain_text(best_gain)} dB"
        self._current_name = best.name
        return self.mark(scene)

    def _mark_suggested(self, scene: Scene, names: Sequence[str]) -> str:
        """Mark an edit of this node, or instead of all others a set of edits, so that the outputs are as suggested."""
        marked_names = self._marked_names(scene)
        if marked_names and {*marked_names} >= {*names}:
            return "the edit that helps most is chosen already; space takes it back"
        if len(names) == 1 and names[0] in _edits_of(scene):
            self._current_name = names[0]
            return self.mark(scene)
        self._unmarked_before.pop(scene.backend, None)
        marked_names[:] = names
        self._current_name = ""
        return f"{plural(len(names), 'edit')} chosen, as the first screen suggests; r takes them back"

    def reset(self, scene: Scene) -> str:
        """Unmark all edits. A second call marks them again."""
        marks, unmarked = self._marked_names(scene), self._unmarked_before.pop(scene.backend, [])
        if not marks:
            marks[:] = unmarked
            return f"{plural(len(unmarked), 'edit')} chosen again" if unmarked else "no edit is chosen"
        self._unmarked_before[scene.backend] = list(marks)
        marks.clear()
        count = len(self._unmarked_before[scene.backend])
        return f"{plural(count, 'edit')} {agreeing(count, 'is')} no longer chosen; r brings them back"

    def enter(self, scene: Scene) -> Target | str:
        """Open the node, or go to the node of a marked edit that belongs elsewhere."""
        edits, facts = self._listed_edits(scene), _facts(scene)
        if edits and facts is not None and edits[self._current_index(edits)] not in facts.edits:
            unit = edits[self._current_index(edits)].unit
            rows = [scene.table.row_of(name) for name in (unit.node.outputs[0], unit.tensor)]
            row = next((row for row in rows if row is not None), None)
            return "its node is not in the list of nodes" if row is None else scene.navigator.jump(row)
        return ScreenId.TENSOR

    def click(self, scene: Scene, _: int, line: int) -> Target | str | None:
        """Go to the edit on a line, or mark it if the cursor is already there."""
        name, edits = self._names_by_line.get(line), self._listed_edits(scene)
        if name is None or not edits:
            return None
        if name == edits[self._current_index(edits)].name:
            return self.mark(scene)
        self._current_name = name
        return ""

    def json(self, scene: Scene, path: Path) -> Callable[[DiffSession], str] | None:
        """Return a function that writes the marked edits in the form of `qdebug repair`, measured on all samples.

        Raises:
            UsageError: No edits are marked.
        """
        names = self._edit_wish(scene).edits
        if not names:
            raise UsageError("No edit is chosen.", hint="Choose one: space.")
        from qdebug.repair.find import RepairOptions, find_repair

        options = RepairOptions(minutes=0.0, start=names)

        def write(session: DiffSession) -> str:
            text = replace(find_repair(session, options), stopped=_STOP_REASON).to_json()
            self._latest_written = names, path, text
            return text

        return write

    def command(self, scene: Scene, files: Sequence[str]) -> Sequence[str] | None:
        """Return the command that continues with the marked edits; None if they are not written yet."""
        if self._latest_written is None or self._latest_written[0] != self._edit_wish(scene).edits:
            return None
        _, path, text = self._latest_written
        try:
            text_in_file = path.read_text(encoding="utf-8").rstrip()
        except (OSError, UnicodeDecodeError):
            return None
        return ["qdebug", "repair", *files, "--resume", str(path)] if text_in_file == text.rstrip() else None

    def table(self, scene: Scene) -> Table | None:
        """Return the edits with their costs, and the chosen edits that each would replace."""
        marked_names = {*self._marked_names(scene)}
        lines = []
        for edit in self._listed_edits(scene):
            rivals = [] if edit.name in marked_names else self._replaced_edits(scene, edit)
            replaced_text = ", ".join(rival.name for rival in rivals)
            gain = self._gain(scene, edit)
            lines.append((edit.name in marked_names, *edit.to_dict().values(), replaced_text, gain))
        titles = ("chosen", "kind", "node", "op", "tensor", "reference_node", "macs", "bytes", "instead_of", "gain_db")
        return titles, lines

    # Drawing

    def draw(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Draw the outputs with the marked edits, and the list of edits."""
        edits = self._listed_edits(scene)
        index = self._current_index(edits)
        min_lines = min(len(edits) + 1, _MIN_LIST_LINES)
        lines_below = self._description_lines(scene, width)
        facts = _facts(scene)
        node = "" if facts is None else facts.node
        title = f"edits of {safe_text(node, limit=40)}" if node not in {"", scene.plan_row.node} else ""
        lines_above = [
            heading(scene, width, title),
            *self._output_lines(scene, width, height - 1 - min_lines - len(lines_below)),
        ][: max(height - min_lines, _MIN_LINES_ABOVE)]
        grid = self._edit_grid(scene, edits, width)
        header, *rows = grid_lines(grid, scene, width, cursor=index, optional_titles=_OPTIONAL_COLUMNS)
        if not rows:
            return [*lines_above, *paragraph(_no_edits_text(scene), scene, width), *lines_below]
        lines_below = fit_lines(lines_below, max(height - len(lines_above) - min_lines, 0))
        row_count = max(height - len(lines_above) - len(lines_below) - 1, 1)
        visible_range = window(index, len(rows), row_count)
        self._names_by_line = {
            len(lines_above) + 1 + line: edits[number].name for line, number in enumerate(visible_range)
        }
        return [*lines_above, header, *rows[visible_range.start : visible_range.stop], *lines_below]

    def _edit_grid(self, scene: Scene, edits: Sequence[Edit], width: int) -> Grid:
        """Return the table of edits; in a narrow terminal, only their gains."""
        from qdebug.present.reports.repair import EDIT_TITLES, edit_cells

        facts, marked_names = _facts(scene), self._marked_names(scene)
        boxes = ["[x]" if edit.name in marked_names else "[ ]" for edit in edits]
        if width >= _MIN_ROOMY_WIDTH:
            rows = [
                (box, *edit_cells(edit), self._gain_cell(scene, edit)) for box, edit in zip(boxes, edits, strict=True)
            ]
            titles = ("", *EDIT_TITLES, _gain_title(scene))
            return Grid(titles=titles, rows=rows, right=frozenset({4, 5, 6}), names=frozenset({2}))
        names = [
            edit.kind if facts is not None and edit in facts.edits else f"{edit.kind} of {edit_cells(edit)[1]}"
            for edit in edits
        ]
        gains = [self._gain_cell(scene, edit) for edit in edits]
        rows = list(zip(boxes, gains, names, strict=True))
        return Grid(titles=("", "gain dB", "edit"), rows=rows, right=frozenset({1}), names=frozenset({2}))

    def _output_lines(self, scene: Scene, width: int, max_lines: int) -> list[Line]:
        """Draw the effect on the outputs (the worst ones if not all fit), and the progress of the replay."""
        ready, facts, wish = scene.trial, _facts(scene), self._edit_wish(scene)
        if not wish.edits:
            activity_text = f"; replaying {ready.activity} .." if ready is not None and ready.activity else ""
            message = _replay_difference(scene) or "no edit is chosen: the outputs are as recorded"
            return paragraph(
                f"{message}{activity_text}", scene, width, "fail" if _replay_difference(scene) else "plain"
            )
        is_current = ready is not None and ready.request.wish == wish
        if ready is None or facts is None or not is_current:
            return paragraph("replaying ..", scene, width, "accent")
        if ready.problem:
            return paragraph(f"no replay: {safe_text(ready.problem, limit=300)}", scene, width, "fail")
        (done, total), effect = ready.replay_progress, facts.effect
        message = ""
        if effect is None and not ready.activity:
            message = f"nothing of sample {wish.sample} was recorded"
        if ready.activity:
            message = f"replaying {ready.activity}" + (f": {done} of {total} nodes" if total else " ..")
        elif effect is not None and facts.fidelity_db is not None:
            from qdebug.present.reports.repair import faithful_words

            # Unlike those of `qdebug repair`, the gains of this screen do not include the replay's own difference.
            fidelity_text = _replay_difference(scene) or faithful_words(facts.fidelity_db).partition("; ")[0]
            message = f"replayed in {numbers.number(effect.seconds)} s a sample; {fidelity_text}"
        progress_lines = paragraph(message, scene, width, "accent" if ready.activity else "muted")
        if effect is None:
            return progress_lines
        from qdebug.present.reports.scales import output_error, output_rows

        max_outputs, outputs, more_lines = max(max_lines - len(progress_lines) - 1, 1), effect.outputs, list[Line]()
        if len(outputs) > max_outputs:
            ranked = sorted(
                outputs, key=lambda output: (output.output != wish.output, worst_first_key(output.trial.sqnr_db))
            )
            outputs = tuple(ranked[: max(max_outputs - 1, 1)])
            more_lines = paragraph(f"{plural(len(effect.outputs) - len(outputs), 'more output')}", scene, width)
        samples_text = f"sample {wish.sample}" if wish.sample is not None else plural(effect.samples, "sample")
        unedited = (
            {}
            if facts.unedited_effect is None or not _replay_difference(scene)
            else {output.output: output for output in facts.unedited_effect.outputs}
        )
        unedited_cells = [
            [output_error(unedited[output.output].trial)] if output.output in unedited else [] for output in outputs
        ]
        grid = Grid(
            titles=(
                samples_text,
                "recorded",
                *(["replay"] if unedited else []),
                f"with {plural(len(wish.edits), 'edit')}",
            ),
            rows=[(*row[:2], *alone, row[2]) for row, alone in zip(output_rows(outputs), unedited_cells, strict=True)],
            right=frozenset({1, 2, 3}),
            names=frozenset({0}),
        )
        # Without room for both, the outputs with the edits are shown.
        return [*grid_lines(grid, scene, width, optional_titles=("recorded",)), *more_lines, *progress_lines]

    def _gain(self, scene: Scene, edit: Edit) -> float | None:
        """Return the gain of an edit on top of the marked ones, or on top of the others; None if unknown."""
        facts = _facts(scene)
        return None if facts is None else facts.gains.get(edit.name)

    def _gain_cell(self, scene: Scene, edit: Edit) -> str:
        gain = self._gain(scene, edit)
        if gain is None:
            return ""
        is_instead = edit.name not in self._marked_names(scene) and self._replaced_edits(scene, edit)
        return f"{_INSTEAD} {_gain_text(gain)}" if is_instead else _gain_text(gain)

    def _description_lines(self, scene: Scene, width: int) -> list[Line]:
        """Return the description of the selected edit, the total cost of the marked edits, and the next step."""
        edits, marked_names = self._listed_edits(scene), {*self._marked_names(scene)}
        edit = edits[self._current_index(edits)] if edits else None
        sentences = [] if edit is None else [f"{edit.kind}: {_kind_text(edit)}"]
        facts = _facts(scene)
        if facts is not None and facts.gains:
            scope_text = f"gain: dB that the edit adds to {_output_text(scene)}, {_samples_text(scene)}"
            now_text = "; of a chosen edit: that it adds to the others" if marked_names else ""
            if any(self._replaced_edits(scene, other) for other in edits if other.name not in marked_names):
                now_text += f"; {_INSTEAD}: in place of the chosen edit that it replaces"
            base_text = ", over a replay without edits" if _replay_difference(scene) and not marked_names else ""
            sentences.append(f"{scope_text}{now_text}{base_text}")
        if marked_names and edits:
            from qdebug.present.reports.repair import cost_words

            sentences += [
                f"chosen: {cost_words([edit for edit in edits if edit.name in marked_names])}",
                "e writes these edits; then Y copies the command that goes on with them",
            ]
        return [line for text in sentences for line in paragraph(text, scene, width)]


def _suggested_names(scene: Scene) -> list[str]:
    """Return the names of the edits that the first screen suggests for the node; empty if it suggests none."""
    fault = scene.table.diagnosis.get(scene.row)
    if fault is None or scene.result is None:
        return []
    from qdebug.present.answer import remedy_to_try

    remedy = remedy_to_try(scene.result, fault)
    return [] if remedy is None else _EDIT_START.split(remedy.edit)


def _measured_output(scene: Scene) -> str:
    """Return the output whose gains are shown, which is that of the shares on the first screen; "" for the worst."""
    if scene.result is None or not scene.result.diagnosis:
        return ""
    from qdebug.present.answer import shared_output

    return shared_output(scene.result)


def _gain_text(gain: float) -> str:
    """Return a gain in dB with its sign; NaN is unknown."""
    if math.isnan(gain):
        return numbers.MISSING
    return f"{gain:+.2f}" if round(gain, 2) else "0.00"


def _samples_text(scene: Scene) -> str:
    """Return the samples over which gains are measured."""
    sample, count = scene.navigator.sample, scene.navigator.samples
    if sample is not None:
        return f"in sample {sample} alone"
    return f"over all {numbers.grouped(count)} samples" if count > 1 else "in the one sample"


def _gain_title(scene: Scene) -> str:
    if scene.navigator.sample is not None:
        return f"gain in sample {scene.navigator.sample}"
    output = _measured_output(scene) if len(scene.opened.backend_graph.outputs) != 1 else ""
    return f"gain of {shorten(safe_text(output), _OUTPUT_WIDTH)}" if output else "gain dB"


def _output_text(scene: Scene) -> str:
    """Name the output whose gains are shown."""
    output = _measured_output(scene)
    if len(scene.opened.backend_graph.outputs) == 1:
        return "the output"
    return safe_text(output, limit=40) if output else "the worst output"


def _replay_difference(scene: Scene) -> str:
    """Describe how far a replay without edits is from the recorded output; "" if it equals it.

    This difference is not part of any edit's gain, but it is part of the outputs shown with edits.
    """
    facts, name = _facts(scene), _measured_output(scene)
    if facts is None or facts.unedited_effect is None:
        return ""
    outputs = [output for output in facts.unedited_effect.outputs if name in {"", output.output}]
    if not outputs:
        return ""
    first = min(outputs, key=lambda output: worst_first_key(output.trial.sqnr_db))
    replayed_text, recorded_text = (numbers.number(output.sqnr_db) for output in (first.trial, first.now))
    if replayed_text == recorded_text:
        return ""
    levels = f"{replayed_text} dB in a replay without edits, and {recorded_text} dB as recorded"
    return f"{_output_text(scene)} has {levels}: the replay does not model the backend fully, and no gain includes this"


def _facts(scene: Scene) -> EditFacts | None:
    return None if scene.trial is None else scene.trial.edits


def _kind_text(edit: Edit) -> str:
    """Describe what an edit does."""
    from qdebug.repair.edits import KINDS

    return KINDS[edit.kind]


def _edits_of(scene: Scene) -> dict[str, Edit]:
    """Return the edits of the last answer by name: the node's edits and the marked ones."""
    facts = _facts(scene)
    return {} if facts is None else {edit.name: edit for edit in (*facts.marked_edits, *facts.edits)}


def _no_edits_text(scene: Scene) -> str:
    """Return why no edits are listed."""
    if scene.trial is not None and scene.trial.problem:
        return f"no edits: {safe_text(scene.trial.problem, limit=300)}"
    facts = _facts(scene)
    if facts is None:
        return "its edits are not known yet"
    if not scene.plan_row.tensor:
        return "only the reference has this tensor: edits are made to the backend's net"
    if facts.node:
        node = safe_text(facts.node, limit=40)
        return f"no edit of {node} can be made: no weight of the reference is known to correspond to its own"
    return "no edit changes this tensor: it has no codes of its own and no weights"
