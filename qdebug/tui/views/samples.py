"""The samples of the node under the cursor, and the node on each backend."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import ClassVar

import numpy as np
from rich.cells import cell_len
from textual.binding import Binding, BindingType
from textual.message import Message

from qdebug.compare.result.result import SampleResult, Status
from qdebug.plural import agreeing
from qdebug.present import numbers
from qdebug.present.rows import metric_title, part_cell
from qdebug.present.text import safe_text
from qdebug.tui.drawing.draw import bars
from qdebug.tui.drawing.look import Look
from qdebug.tui.nodes.columns import metric_text
from qdebug.tui.nodes.rows import NodeTable, State, shown_sample
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.view import (
    DrawnView,
    Line,
    Scene,
    Table,
    Target,
    heading,
    in_part,
    paragraph,
    sign_of,
    state_style,
    window,
)

__all__ = ["BackendStep", "BackendsView", "SamplesView", "sample_errors"]

_LEAST_BAR = 5
"""Minimum cells of a bar. A shorter bar is not informative."""
_WORST = "worst SQNR "
_OWN = 14
_OWN_FROM = 90
"""Minimum page width for showing the error that the node adds in each sample."""
_TITLE, _WIDEST, _PAIR = 14, 34, 24
"""Cells of a backend's column: minimum, maximum, and the width from which it also shows the introduced error."""
_FAILING = frozenset({Status.DIVERGED, Status.NONFINITE})


class BackendStep(Message):
    """A request to show the next or previous backend.

    Args:
        direction: 1 or -1.
    """

    def __init__(self, direction: int) -> None:
        super().__init__()
        self.direction = direction


class SamplesView(DrawnView):
    """One line per sample. The selected sample is shown on every screen."""

    view = ScreenId.SAMPLES
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.open", "tensor", tooltip="open the tensor, of the sample that is chosen"),
    ]
    lists = True
    has_worst = True

    def __init__(self, look: Look | None = None) -> None:
        super().__init__(look)
        self._shown: dict[int, int] = {}

    def click(self, scene: Scene, _: int, line: int) -> Target | str | None:
        """Select the sample on a line, or open the tensor if it is already selected."""
        result, at = scene.outcome, self._shown.get(line)
        if result is None or at is None or at > len(result.samples):
            return None
        sample = None if not at else result.samples[at - 1].sample
        return self.enter(scene) if sample == scene.navigator.sample else scene.navigator.choose_sample(sample)

    def table(self, scene: Scene) -> Table | None:
        """Return the samples under the names of the diff JSON."""
        samples = () if scene.outcome is None else scene.outcome.samples
        own = tuple(f"introduced_{name}" for name in ("sqnr_db", "max_lsb", "max_abs"))
        lines: list[Sequence[object]] = []
        for measured in samples:
            added = measured.introduced
            introduced = (None,) * 3 if added is None else (added.sqnr_db, added.max_lsb, added.max_abs)
            here = scene.planned.node, scene.planned.tensor, measured.sample, str(measured.status)
            lines.append((*here, measured.sqnr_db, measured.max_abs, *introduced))
        return ("node", "tensor", "sample", "status", "sqnr_db", "max_abs", *own), lines

    def draw(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Draw the list."""
        head, result = heading(scene, width), scene.outcome
        if result is None:
            return [head, [], [(" not compared yet" if scene.planned.missing is None else " not compared", "muted")]]
        samples = result.samples
        if not samples:
            return [head, [], [(" there are no results of single samples", "muted")]]
        error = sample_errors(samples)
        worst = int(np.argmax(error))
        chosen = 0 if scene.navigator.sample is None else _at(samples, scene.navigator.sample) + 1
        lines: list[Line] = [head, *paragraph(_spread(samples), scene, width)]
        if scene.result is not None and scene.planned.tensor in scene.result.verdict.short:
            lines += paragraph(_below(samples, scene.opened.limits.get("min_output_sqnr")), scene, width, "fail")
        if result.status in _FAILING and not any(measured.status in _FAILING for measured in samples):
            why = f"beyond the limit as a whole, not in a single sample: {safe_text(result.reason or result.status)}"
            lines += paragraph(why, scene, width, "fail")
        elif result.status in _FAILING and result.declared is not None:
            lines += paragraph(f"whichever the sample, the graphs differ: {safe_text(result.declared)}", scene, width)
        room = max(height - len(lines) - 1, 1)
        own = width >= _OWN_FROM and any(measured.introduced is not None for measured in samples)
        bar_width = max(width - 51 - len(_WORST) - own * _OWN, 0)
        shown = window(chosen, len(samples) + 1, room)
        lines[0] = heading(scene, width, f"lines{part}" if (part := in_part(shown, len(samples) + 1)) else "")
        self._shown = {len(lines) + 1 + at - shown.start: at for at in shown}
        wide = bar_width >= _LEAST_BAR
        added = "introduced".rjust(_OWN) if own else ""
        lines.append(
            [
                (
                    f"    sample  status          SQNR dB     max abs{added}" + f"{'':{len(_WORST)}} rel L2" * wide,
                    "accent",
                )
            ]
        )
        top = float(np.max(error, initial=0.0, where=np.isfinite(error)))
        for at in shown:
            here = at == chosen
            mark = scene.glyphs.cursor if here else " "
            if at == 0:
                most = shown_sample(result, None)
                note = f"screens 4 to 7 show sample {most}, of the largest max abs" if len(samples) > 1 else ""
                all_of_them = [(f" {mark}  all    ", "cursor"), (f"{result.status:<12}", _style(result.status))]
                fits = sum(len(text) for text, _ in all_of_them) + len(note) <= width
                lines.append([*all_of_them, (note, "muted")] if fits else all_of_them)
                continue
            measured = samples[at - 1]
            bar = bars(np.full(1, error[at - 1]), scene.glyphs, top=top) if top else ""
            filled = 0 if not top else int(min(error[at - 1] / top, 1.0) * (bar_width - 1))
            least = _WORST if at - 1 == worst and error[worst] else " " * len(_WORST)
            lines.append(
                [
                    (f" {mark}{measured.sample:>6}   ", "cursor" if here else "plain"),
                    (f"{measured.status:<12}", _style(measured.status)),
                    (f"{numbers.number(measured.sqnr_db):>10}  {numbers.number(measured.max_abs):>10}", "plain"),
                    (_own(measured).rjust(_OWN) + "  " if own else "  ", "plain"),
                    (least, "fail"),
                    (scene.glyphs.eighths[-1] * filled + bar if wide else "", "fine"),
                ]
            )
        return lines

    def move(self, scene: Scene, lines: int) -> str:
        """Select another sample."""
        many = scene.navigator.samples
        at = 0 if scene.navigator.sample is None else scene.navigator.sample + 1
        target = min(max(at + lines, 0), many)
        if target == at or many == 1:
            return "there is one sample only" if many == 1 else "no sample beyond this one"
        return scene.navigator.choose_sample(None if target == 0 else target - 1)

    def worst(self, scene: Scene, _: int) -> str:
        """Select the sample with the largest error relative to its signal."""
        result = scene.outcome
        if result is None or not result.samples:
            return "there are no results of single samples yet"
        error = sample_errors(result.samples)
        if not error.any():
            return "no sample of this node has an error"
        return "the worst: " + scene.navigator.choose_sample(result.samples[int(np.argmax(error))].sample)


def sample_errors(samples: Sequence[SampleResult]) -> np.ndarray:
    """Return the error of each sample relative to its signal. Values that are not finite rank worst."""
    levels = np.array([np.nan if measured.sqnr_db is None else measured.sqnr_db for measured in samples])
    errors = np.where(np.isnan(levels), 0.0, 10 ** (-levels / 20))
    broken = np.array([measured.status is Status.NONFINITE for measured in samples])
    return np.where(broken, np.inf, errors)


def _below(samples: Sequence[SampleResult], floor: float | None) -> str:
    """Return how many samples of an output are below the outputs' limit, which applies to all samples together."""
    if floor is None:
        return "as an output it is beyond its limit"
    few = sum(measured.sqnr_db is not None and measured.sqnr_db < floor for measured in samples)
    return f"{few} of {len(samples)} samples are below the output limit of {floor:g} dB, which judges all together"


def _own(sample: SampleResult) -> str:
    """Return the error that the node adds in one sample, in LSB if its output is quantized."""
    own = sample.introduced
    if own is None:
        return numbers.MISSING
    return numbers.number(own.max_abs) if own.max_lsb is None else f"{numbers.number(own.max_lsb)} LSB"


def _at(samples: tuple[SampleResult, ...], sample: int) -> int:
    return next((at for at, measured in enumerate(samples) if measured.sample == sample), -1)


def _spread(samples: tuple[SampleResult, ...]) -> str:
    levels = sorted(
        measured.sqnr_db for measured in samples if measured.sqnr_db is not None and not np.isnan(measured.sqnr_db)
    )
    if not levels:
        return "SQNR not known"
    low, middle, high = levels[0], median(levels), levels[-1]
    if len(samples) == 1:
        return f"one sample, SQNR {numbers.number(low)} dB"
    words = [f"{name} {numbers.number(value)}" for name, value in (("worst", low), ("median", middle), ("best", high))]
    beyond = sum(measured.status in _FAILING for measured in samples)
    return f"{len(samples)} samples, {beyond or 'none'} beyond the node limit; SQNR {', '.join(words)} dB"


def _style(status: Status) -> str:
    return "fail" if status in _FAILING else "fine"


class BackendsView(DrawnView):
    """Nodes by backend, to see whether a single backend is at fault or all agree against the reference."""

    view = ScreenId.BACKENDS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.open", "tensor", tooltip="open the tensor of the node"),
        Binding("v", "screen.form", "one backend", tooltip="the nodes of one backend with all columns"),
    ]
    lists = True

    def __init__(self, look: Look | None = None) -> None:
        super().__init__(look)
        self._lines = range(0)

    def click(self, scene: Scene, _: int, line: int) -> Target | str | None:
        """Select the node on a line, or open it if it is already selected."""
        at = self._lines.start + line - 1
        if line < 1 or at not in self._lines or len(scene.backends) < 2:
            return None
        if at == scene.navigator.place:
            return self.enter(scene)
        scene.navigator.go(scene.navigator.line_to_row(at))
        return ""

    def table(self, scene: Scene) -> Table | None:
        """Return the nodes of the list, with each backend's metric and state."""
        navigator, lines = scene.navigator, []
        names = [f"{name}:{title}" for title, _ in scene.backends for name in (navigator.metric, "status")]
        for line in range(navigator.lines):
            row = navigator.line_to_row(line)
            cells: list[object] = [scene.table.rows[row].node, scene.table.rows[row].tensor]
            for _, table in scene.backends:
                at = None if table is None else _same(scene, table, row)
                if table is None or at is None or table.results[at] is None:
                    cells += [None, None]
                else:
                    cells += [float(table.values(navigator.metric)[at]), State(int(table.state[at])).word]
            lines.append(cells)
        return ("node", "tensor", *names), lines

    def draw(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Draw the table, with rows in the order of the node list."""
        if len(scene.backends) < 2:
            return [
                heading(scene, width),
                [],
                *paragraph("one backend is given; several stand beside each other: qdebug tui REF A B C", scene, width),
            ]
        navigator, glyphs = scene.navigator, scene.glyphs
        many, head = len(scene.backends), f"node, {metric_title(navigator.metric)}"
        name_width = max(width - 4 - many * (_TITLE + 1), 12)
        name_width = min(name_width, max(scene.table.longest_name, len(head) + len(_INTRODUCED)))
        shown = max(min((width - 4 - name_width) // (_TITLE + 1), many), 1)
        size = min(max((width - 4 - name_width) // shown - 1, _TITLE), _WIDEST)
        twice = size >= _PAIR and navigator.metric != "introduced"  # once is enough of that
        head += _INTRODUCED if twice else ""
        first = window(scene.backend, many, shown).start
        titles: Line = [(f"   {glyphs.fit_end(head, name_width):<{name_width}}", "accent")]
        for at in range(first, first + shown):
            here = at == scene.backend
            mark = glyphs.cursor if here else " "
            title = mark + glyphs.fit(scene.backends[at][0], size - 1).rstrip()
            titles.append((f" {' ' * (size - cell_len(title))}{title}", "title" if here else "accent"))
        lines = [titles]
        hidden: list[Line] = []
        if shown < many:
            which = f"{first + 1}" if shown == 1 else f"{first + 1} to {first + shown}"
            note = f"backend {which} of {many}; h and l show the others, as does a wider terminal"
            hidden = [[(f" {glyphs.fit_end(note, width - 1)}", "accent")]]
        room = max(height - 2 - len(hidden), 1)
        self._lines = window(max(navigator.place, 0), navigator.lines, room)
        lines += [
            self._row(scene, navigator.line_to_row(line), name_width, range(first, first + shown), size)
            for line in self._lines
        ]
        lines.append([(f" {glyphs.fit_end(_agreement(scene), width - 1)}", "muted")])
        return [*lines, *hidden]

    def move(self, scene: Scene, lines: int) -> str:
        """Select another node."""
        return scene.navigator.move(lines)

    def edge(self, scene: Scene, direction: int) -> str:
        """Select the first or the last node."""
        return scene.navigator.edge(direction)

    def side(self, scene: Scene, direction: int) -> str:  # noqa: ARG002  the screen knows the backends
        """Show the next or previous backend."""
        self.post_message(BackendStep(direction))
        return ""

    def _row(self, scene: Scene, row: int, name_width: int, shown: range, size: int) -> Line:
        here = row == scene.row
        line: Line = [
            (f" {scene.glyphs.cursor if here else ' '} ", "cursor"),
            (scene.glyphs.fit(scene.table.short_name(row), name_width), "cursor" if here else "plain"),
        ]
        for at in shown:
            table = scene.backends[at][1]
            text, style = ("opening ..", "muted") if table is None else _cell(scene, table, row, size)
            line.append((" " + scene.glyphs.right(text, size), style))
        return line


_INTRODUCED = " and introduced"
"""Suffix of the heading of the names if each backend has two numbers."""


def _cell(scene: Scene, table: NodeTable, row: int, size: int) -> tuple[str, str]:
    at = _same(scene, table, row)
    if at is None or table.rows[at].missing is not None:
        return "no partner", "unknown"
    state = State(int(table.state[at]))
    if state is State.PENDING:
        return "..", "muted"
    text = metric_text(table, at, scene.navigator.metric)
    result = table.results[at]
    alone = size < _PAIR or scene.navigator.metric == "introduced"
    own = "" if alone or result is None else part_cell(result, result.introduced).text.rjust(_TITLE)
    return f"{sign_of(table, at)}{text}{own}", state_style(state)


def _same(scene: Scene, table: NodeTable, row: int) -> int | None:
    """Return the corresponding row of another backend: with the same name, else with the same reference tensor."""
    if table is scene.table:
        return row
    planned = scene.table.rows[row]
    by_name = table.row_of(planned.tensor)
    if by_name is not None and table.rows[by_name].reference_tensor == planned.reference_tensor:
        return by_name
    return table.row_of_reference(planned.reference_tensor)


def _agreement(scene: Scene) -> str:
    """Return whether the backends fail together at the node under the cursor."""
    failing = compared = 0
    for _, table in scene.backends:
        at = None if table is None else _same(scene, table, scene.row)
        if table is None or at is None or table.results[at] is None:
            continue
        compared += 1
        failing += State(int(table.state[at])).failing
    if failing and failing == compared == len(scene.backends):
        return f"all {compared} are beyond the limit here: look at reference, weights, calibration"
    if failing:
        return f"{failing} of {compared} backends {agreeing(failing, 'is')} beyond the limit here"
    if not compared:
        return "not compared on any backend, or not yet"
    if compared < len(scene.backends):
        return f"within the limit on {compared} of {len(scene.backends)} backends, not compared on the others"
    return f"within the limit on all {compared} backends"
