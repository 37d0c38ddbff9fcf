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
from qdebug.tui.nodes.rows import NodeTable, State, sample_reason, shown_sample
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.view import (
    DrawnView,
    Line,
    Scene,
    Table,
    Target,
    heading,
    lines_shown_text,
    paragraph,
    sign_of,
    state_style,
    window,
)

__all__ = ["BackendStep", "BackendsView", "SamplesView", "sample_errors"]

_MIN_BAR = 5
"""Minimum cells of a bar. A shorter bar is not informative."""
_WORST_TEXT = "worst SQNR "
_INTRODUCED_WIDTH = 14
_MIN_INTRODUCED_PAGE_WIDTH = 90
"""Minimum page width for showing the error that the node adds in each sample."""
_MIN_BACKEND_WIDTH, _MAX_BACKEND_WIDTH, _TWO_NUMBERS_WIDTH = 14, 34, 24
"""Cells of a backend's column: minimum, maximum, and the width from which it also shows the introduced error."""
_FAILING_STATUSES = frozenset({Status.DIVERGED, Status.NONFINITE})


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
    is_list = True
    has_worst = True

    def __init__(self, look: Look | None = None) -> None:
        super().__init__(look)
        self._positions_by_line: dict[int, int] = {}

    def click(self, scene: Scene, _: int, line: int) -> Target | str | None:
        """Select the sample on a line, or open the tensor if it is already selected."""
        result, position = scene.outcome, self._positions_by_line.get(line)
        if result is None or position is None or position > len(result.samples):
            return None
        sample = None if not position else result.samples[position - 1].sample
        return self.enter(scene) if sample == scene.navigator.sample else scene.navigator.choose_sample(sample)

    def table(self, scene: Scene) -> Table | None:
        """Return the samples under the names of the diff JSON."""
        samples = () if scene.outcome is None else scene.outcome.samples
        introduced_names = tuple(f"introduced_{name}" for name in ("sqnr_db", "max_lsb", "max_abs"))
        lines: list[Sequence[object]] = []
        for sample_result in samples:
            stats = sample_result.introduced
            values = (None,) * 3 if stats is None else (stats.sqnr_db, stats.max_lsb, stats.max_abs)
            facts = scene.plan_row.node, scene.plan_row.tensor, sample_result.sample, str(sample_result.status)
            lines.append((*facts, sample_result.sqnr_db, sample_result.max_abs, *values))
        return ("node", "tensor", "sample", "status", "sqnr_db", "max_abs", *introduced_names), lines

    def draw(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Draw the list."""
        header, result = heading(scene, width), scene.outcome
        if result is None:
            return [header, [], [(" not compared yet" if scene.plan_row.missing is None else " not compared", "muted")]]
        samples = result.samples
        if not samples:
            return [header, [], [(" there are no results of single samples", "muted")]]
        error = sample_errors(samples)
        worst = int(np.argmax(error))
        cursor_position = (
            0 if scene.navigator.sample is None else _position_of_sample(samples, scene.navigator.sample) + 1
        )
        lines: list[Line] = [header, *paragraph(_spread_text(samples), scene, width)]
        if scene.result is not None and scene.plan_row.tensor in scene.result.verdict.short:
            lines += paragraph(
                _below_floor_text(samples, scene.opened.limits.get("min_output_sqnr")), scene, width, "fail"
            )
        if result.status in _FAILING_STATUSES and not any(
            sample_result.status in _FAILING_STATUSES for sample_result in samples
        ):
            reason_text = (
                f"beyond the limit as a whole, not in a single sample: {safe_text(result.reason or result.status)}"
            )
            lines += paragraph(reason_text, scene, width, "fail")
        elif result.status in _FAILING_STATUSES and result.declared is not None:
            lines += paragraph(f"the graphs differ in every sample: {safe_text(result.declared)}", scene, width)
        line_count = max(height - len(lines) - 1, 1)
        shows_introduced = width >= _MIN_INTRODUCED_PAGE_WIDTH and any(
            sample_result.introduced is not None for sample_result in samples
        )
        bar_width = max(width - 51 - len(_WORST_TEXT) - shows_introduced * _INTRODUCED_WIDTH, 0)
        visible_range = window(cursor_position, len(samples) + 1, line_count)
        lines[0] = heading(
            scene, width, f"lines{part}" if (part := lines_shown_text(visible_range, len(samples) + 1)) else ""
        )
        self._positions_by_line = {len(lines) + 1 + at - visible_range.start: at for at in visible_range}
        shows_bars = bar_width >= _MIN_BAR
        introduced_heading = "introduced".rjust(_INTRODUCED_WIDTH) if shows_introduced else ""
        lines.append(
            [
                (
                    f"    sample  status          SQNR dB     max abs{introduced_heading}"
                    + f"{'':{len(_WORST_TEXT)}} rel L2" * shows_bars,
                    "accent",
                )
            ]
        )
        top = float(np.max(error, initial=0.0, where=np.isfinite(error)))
        for at in visible_range:
            is_cursor = at == cursor_position
            mark = scene.glyphs.cursor if is_cursor else " "
            if at == 0:
                sample_shown = shown_sample(result, None, scene.table.worst_sample)
                reason = sample_reason(result, sample_shown, scene.table.worst_sample)
                note = f"screens 4 to 7 show sample {sample_shown}, {reason}" if len(samples) > 1 else ""
                pieces = [(f" {mark}  all    ", "cursor"), (f"{result.status:<12}", _style(result.status))]
                fits_note = sum(len(text) for text, _ in pieces) + len(note) <= width
                lines.append([*pieces, (note, "muted")] if fits_note else pieces)
                continue
            sample_result = samples[at - 1]
            bar = bars(np.full(1, error[at - 1]), scene.glyphs, top=top) if top else ""
            full_cells = 0 if not top else int(min(error[at - 1] / top, 1.0) * (bar_width - 1))
            worst_text = _WORST_TEXT if at - 1 == worst and error[worst] else " " * len(_WORST_TEXT)
            lines.append(
                [
                    (f" {mark}{sample_result.sample:>6}   ", "cursor" if is_cursor else "plain"),
                    (f"{sample_result.status:<12}", _style(sample_result.status)),
                    (
                        f"{numbers.number(sample_result.sqnr_db):>10}  {numbers.number(sample_result.max_abs):>10}",
                        "plain",
                    ),
                    (
                        _introduced_text(sample_result).rjust(_INTRODUCED_WIDTH) + "  " if shows_introduced else "  ",
                        "plain",
                    ),
                    (worst_text, "fail"),
                    (scene.glyphs.eighths[-1] * full_cells + bar if shows_bars else "", "fine"),
                ]
            )
        return lines

    def move(self, scene: Scene, lines: int) -> str:
        """Select another sample."""
        sample_count = scene.navigator.samples
        position = 0 if scene.navigator.sample is None else scene.navigator.sample + 1
        target = min(max(position + lines, 0), sample_count)
        if target == position or sample_count == 1:
            return "there is only one sample" if sample_count == 1 else "no sample beyond this one"
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
    is_nonfinite = np.array([measured.status is Status.NONFINITE for measured in samples])
    return np.where(is_nonfinite, np.inf, errors)


def _below_floor_text(samples: Sequence[SampleResult], floor: float | None) -> str:
    """Return how many samples of an output are below the outputs' limit, which applies to all samples as a whole."""
    if floor is None:
        return "as an output it is beyond its limit"
    count_below = sum(measured.sqnr_db is not None and measured.sqnr_db < floor for measured in samples)
    return (
        f"{count_below} of {len(samples)} samples are below the output limit of {floor:g} dB, which judges all together"
    )


def _introduced_text(sample: SampleResult) -> str:
    """Return the error that the node adds in one sample, in LSB if its output is quantized."""
    stats = sample.introduced
    if stats is None:
        return numbers.MISSING
    return numbers.number(stats.max_abs) if stats.max_lsb is None else f"{numbers.number(stats.max_lsb)} LSB"


def _position_of_sample(samples: tuple[SampleResult, ...], sample: int) -> int:
    return next((at for at, measured in enumerate(samples) if measured.sample == sample), -1)


def _spread_text(samples: tuple[SampleResult, ...]) -> str:
    levels = sorted(
        measured.sqnr_db for measured in samples if measured.sqnr_db is not None and not np.isnan(measured.sqnr_db)
    )
    if not levels:
        return "SQNR not known"
    low, middle, high = levels[0], median(levels), levels[-1]
    if len(samples) == 1:
        return f"one sample, SQNR {numbers.number(low)} dB"
    words = [f"{name} {numbers.number(value)}" for name, value in (("worst", low), ("median", middle), ("best", high))]
    count_beyond = sum(measured.status in _FAILING_STATUSES for measured in samples)
    return f"{len(samples)} samples, {count_beyond or 'none'} beyond the node limit; SQNR {', '.join(words)} dB"


def _style(status: Status) -> str:
    return "fail" if status in _FAILING_STATUSES else "fine"


class BackendsView(DrawnView):
    """Nodes by backend, to see whether a single backend is at fault or all agree against the reference."""

    view = ScreenId.BACKENDS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.open", "tensor", tooltip="open the tensor of the node"),
        Binding("v", "screen.form", "one backend", tooltip="the nodes of one backend with all columns"),
    ]
    is_list = True

    def __init__(self, look: Look | None = None) -> None:
        super().__init__(look)
        self._lines = range(0)

    def click(self, scene: Scene, _: int, line: int) -> Target | str | None:
        """Select the node on a line, or open it if it is already selected."""
        line_number = self._lines.start + line - 1
        if line < 1 or line_number not in self._lines or len(scene.backends) < 2:
            return None
        if line_number == scene.navigator.line:
            return self.enter(scene)
        scene.navigator.go(scene.navigator.line_to_row(line_number))
        return ""

    def table(self, scene: Scene) -> Table | None:
        """Return the nodes of the list, with each backend's metric and state."""
        navigator, lines = scene.navigator, []
        names = [f"{name}:{title}" for title, _ in scene.backends for name in (navigator.metric, "status")]
        for line in range(navigator.lines):
            row = navigator.line_to_row(line)
            cells: list[object] = [scene.table.rows[row].node, scene.table.rows[row].tensor]
            for _, table in scene.backends:
                other_row = None if table is None else _corresponding_row(scene, table, row)
                if table is None or other_row is None or table.results[other_row] is None:
                    cells += [None, None]
                else:
                    cells += [float(table.values(navigator.metric)[other_row]), State(int(table.state[other_row])).word]
            lines.append(cells)
        return ("node", "tensor", *names), lines

    def draw(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Draw the table, with rows in the order of the node list."""
        if len(scene.backends) < 2:
            return [
                heading(scene, width),
                [],
                *paragraph("only one backend is open; for several side by side: qdebug tui REF A B C", scene, width),
            ]
        navigator, glyphs = scene.navigator, scene.glyphs
        backend_count, heading_text = len(scene.backends), f"node, {metric_title(navigator.metric)}"
        name_width = max(width - 4 - backend_count * (_MIN_BACKEND_WIDTH + 1), 12)
        name_width = min(name_width, max(scene.table.longest_name, len(heading_text) + len(_INTRODUCED)))
        column_count = max(min((width - 4 - name_width) // (_MIN_BACKEND_WIDTH + 1), backend_count), 1)
        column_width = min(max((width - 4 - name_width) // column_count - 1, _MIN_BACKEND_WIDTH), _MAX_BACKEND_WIDTH)
        # If the metric is the introduced error, each column shows it already.
        shows_introduced = column_width >= _TWO_NUMBERS_WIDTH and navigator.metric != "introduced"
        heading_text += _INTRODUCED if shows_introduced else ""
        first = window(scene.backend, backend_count, column_count).start
        titles: Line = [(f"   {glyphs.fit_end(heading_text, name_width):<{name_width}}", "accent")]
        for at in range(first, first + column_count):
            is_current = at == scene.backend
            mark = glyphs.cursor if is_current else " "
            title = mark + glyphs.fit(scene.backends[at][0], column_width - 1).rstrip()
            titles.append((f" {' ' * (column_width - cell_len(title))}{title}", "title" if is_current else "accent"))
        lines = [titles]
        hidden_note: list[Line] = []
        if column_count < backend_count:
            range_text = f"{first + 1}" if column_count == 1 else f"{first + 1} to {first + column_count}"
            note = f"backend {range_text} of {backend_count}; h and l show the others, as does a wider terminal"
            hidden_note = [[(f" {glyphs.fit_end(note, width - 1)}", "accent")]]
        line_count = max(height - 2 - len(hidden_note), 1)
        self._lines = window(max(navigator.line, 0), navigator.lines, line_count)
        lines += [
            self._row_line(
                scene, navigator.line_to_row(line), name_width, range(first, first + column_count), column_width
            )
            for line in self._lines
        ]
        lines.append([(f" {glyphs.fit_end(_agreement_text(scene), width - 1)}", "muted")])
        return [*lines, *hidden_note]

    def move(self, scene: Scene, lines: int) -> str:
        """Select another node."""
        return scene.navigator.move(lines)

    def edge(self, scene: Scene, direction: int) -> str:
        """Select the first or the last node."""
        return scene.navigator.edge(direction)

    def side(self, scene: Scene, direction: int) -> str:  # noqa: ARG002  the main screen switches backends
        """Show the next or previous backend."""
        self.post_message(BackendStep(direction))
        return ""

    def _row_line(self, scene: Scene, row: int, name_width: int, backend_range: range, size: int) -> Line:
        is_cursor = row == scene.row
        line: Line = [
            (f" {scene.glyphs.cursor if is_cursor else ' '} ", "cursor"),
            (scene.glyphs.fit(scene.table.short_name(row), name_width), "cursor" if is_cursor else "plain"),
        ]
        for at in backend_range:
            table = scene.backends[at][1]
            text, style = ("opening ..", "muted") if table is None else _backend_cell(scene, table, row, size)
            line.append((" " + scene.glyphs.align_right(text, size), style))
        return line


_INTRODUCED = " and introduced"
"""Suffix of the heading of the names if each backend has two numbers."""


def _backend_cell(scene: Scene, table: NodeTable, row: int, size: int) -> tuple[str, str]:
    other_row = _corresponding_row(scene, table, row)
    if other_row is None or table.rows[other_row].missing is not None:
        return "no partner", "unknown"
    state = State(int(table.state[other_row]))
    if state is State.PENDING:
        return "..", "muted"
    text = metric_text(table, other_row, scene.navigator.metric)
    result = table.results[other_row]
    shows_one_number = size < _TWO_NUMBERS_WIDTH or scene.navigator.metric == "introduced"
    introduced_text = (
        ""
        if shows_one_number or result is None
        else part_cell(result, result.introduced).text.rjust(_MIN_BACKEND_WIDTH)
    )
    return f"{sign_of(table, other_row)}{text}{introduced_text}", state_style(state)


def _corresponding_row(scene: Scene, table: NodeTable, row: int) -> int | None:
    """Return the corresponding row of another backend: with the same name, else with the same reference tensor."""
    if table is scene.table:
        return row
    planned = scene.table.rows[row]
    by_name = table.row_of(planned.tensor)
    if by_name is not None and table.rows[by_name].reference_tensor == planned.reference_tensor:
        return by_name
    return table.row_of_reference(planned.reference_tensor)


def _agreement_text(scene: Scene) -> str:
    """Return whether the backends fail together at the node under the cursor."""
    failing_count = compared_count = 0
    for _, table in scene.backends:
        other_row = None if table is None else _corresponding_row(scene, table, scene.row)
        if table is None or other_row is None or table.results[other_row] is None:
            continue
        compared_count += 1
        failing_count += State(int(table.state[other_row])).is_failing
    if failing_count and failing_count == compared_count == len(scene.backends):
        return f"all {compared_count} are beyond the limit here: look at reference, weights, calibration"
    if failing_count:
        return f"{failing_count} of {compared_count} backends {agreeing(failing_count, 'is')} beyond the limit here"
    if not compared_count:
        return "not compared on any backend, or not yet"
    if compared_count < len(scene.backends):
        return f"within the limit on {compared_count} of {len(scene.backends)} backends, not compared on the others"
    return f"within the limit on all {compared_count} backends"
