"""The overview: strips below the error profile, and the culprits, worst first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from textual.binding import Binding, BindingType

from qdebug.present import numbers
from qdebug.present.answer import gain_of, left_in_float, share_of, share_text, shared_output
from qdebug.present.text import safe_text
from qdebug.tui.drawing.draw import bars, pool
from qdebug.tui.drawing.glyphs import GlyphSet
from qdebug.tui.drawing.look import Look
from qdebug.tui.nodes.columns import metric_text, row_signs
from qdebug.tui.nodes.error_profile import LABEL
from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.nodes.rows import NodeTable, State
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.view import (
    DrawnView,
    Line,
    Scene,
    Target,
    lines_shown_text,
    origin_row,
    state_style,
    window,
)

if TYPE_CHECKING:
    from qdebug.compare.result.diagnosis import Diagnosis

__all__ = ["VERDICT", "AnswerView", "culprits", "strip_lines"]

VERDICT = "the whole verdict, its limits, outputs and runs"
"""Description of the verdict key in the command palette of every screen."""

_MAX_CULPRITS = 200
_EXPLANATION_WIDTH = 14
_COLUMNS = (
    *(("worst dB", 9), ("rel L2", 8), ("introduced", 10), ("in LSB", 7)),
    *(("clipped", 8), ("propagated", 10), ("explained", _EXPLANATION_WIDTH)),
)
_OPTIONAL_COLUMNS = ("explained", "propagated", "in LSB", "rel L2")
"""Columns that are left out if there is not enough room, in this order."""
_OP_WIDTH = 12
_MIN_NAME_WIDTH, _MIN_REASON_WIDTH, _MAX_REASON_LENGTH = 24, 12, 400
_CELLS_BEFORE_NAME = 4 + 8 + 1 + 6 + 2
"""Cells before a name: marks, SQNR, share."""
_MIN_HEIGHT_WITH_LEFT = 6
"""Minimum height at which a line states the share that is left."""


def culprits(table: NodeTable, origin: int | None, costs: Sequence[int] = ()) -> np.ndarray:
    """Return the rows that someone looking for a bug would check, most suspicious first.

    These are the nodes of the diagnosis, the origin, the first divergence, failing nodes, nodes that cost an output
    most, and nodes that add the most error. If the error that a node adds is unknown, its whole error is used, and it
    ranks after nodes for which it is known.

    Args:
        table: The rows.
        origin: Row of the origin; None if unknown.
        costs: Rows of the nodes that cost an output most according to the verdict, in its order.
    """
    introduced = np.nan_to_num(_introduced_errors(table), nan=-1.0, posinf=np.inf)
    total_error = np.nan_to_num(table.values("rel_l2"), nan=0.0, posinf=np.inf)
    is_failing = np.isin(table.state, (State.DIVERGED, State.NONFINITE)) & ~table.acknowledged
    candidates = np.flatnonzero(is_failing | (introduced > 0) | ((introduced < 0) & (total_error > 0)))
    if len(candidates) > 4 * _MAX_CULPRITS:  # keep only the best, so that sorting stays fast
        failing_rows = np.flatnonzero(is_failing)
        rows_considered = failing_rows if len(failing_rows) > 4 * _MAX_CULPRITS else candidates
        replacement_score = -1 / (1 + total_error[rows_considered])  # negative: ranks below every known error
        score = np.where(introduced[rows_considered] < 0, replacement_score, introduced[rows_considered])
        score[table.state[rows_considered] == State.NONFINITE] = np.inf
        score = score if rows_considered is failing_rows else np.where(is_failing[rows_considered], np.inf, score)
        best_rows = rows_considered[np.argpartition(-score, 4 * _MAX_CULPRITS - 1)[: 4 * _MAX_CULPRITS]]
        forced_rows = (origin, *failing_rows[:1], *table.diagnosis, *costs[:_MAX_CULPRITS])
        forced_candidates = [row for row in forced_rows if row is not None and row in candidates]
        candidates = np.union1d(best_rows, forced_candidates).astype(np.int64)
    is_nonfinite = table.state[candidates] == State.NONFINITE
    diagnosis_rank = np.full(table.size, len(table.diagnosis))
    diagnosis_rank[list(table.diagnosis)] = np.arange(len(table.diagnosis))
    is_origin = candidates == (-1 if origin is None else origin)
    # The operator of the first failing node often has no replay, so that its introduced error is unknown.
    is_first_failing = np.isin(candidates, np.flatnonzero(is_failing)[:1])
    unknown_whole = np.where(introduced < 0, total_error, 0.0)[candidates]
    cost_rank = np.full(table.size, len(costs))
    cost_rank[list(costs)] = np.arange(len(costs))
    keys = candidates, -unknown_whole, -introduced[candidates], cost_rank[candidates]
    order = np.lexsort(
        (*keys, ~is_nonfinite, ~is_failing[candidates], ~is_first_failing, ~is_origin, diagnosis_rank[candidates])
    )
    culprit_rows: np.ndarray = candidates[order][:_MAX_CULPRITS]
    return culprit_rows


def _introduced_errors(table: NodeTable) -> np.ndarray:
    """Return the error that each node adds; 0 for identical tensors, whatever a replay on other inputs gives."""
    return np.where(table.state == State.IDENTICAL, 0.0, table.values("introduced"))


def strip_lines(navigator: Navigator, width: int, glyphs: GlyphSet) -> list[Line]:
    """Draw the introduced error and clipping in topological order, below the profile.

    Args:
        navigator: The navigator of the table.
        width: Cells per line.
        glyphs: Characters for drawing.
    """
    cells, table = width - LABEL - 1, navigator.table
    if not table.ordered or cells < 1:
        return []
    lines: list[Line] = []
    for title, values in (("introduced", _introduced_errors(table)), ("clipped", table.values("clipped"))):
        if title == navigator.metric:  # the profile above shows it
            continue
        finite_values = np.nan_to_num(values[: table.ordered], nan=0.0, posinf=0.0)
        top = None if title == "introduced" else 1.0  # a full bar: all of a tensor is clipped
        bar_text = bars(np.sqrt(np.maximum(pool(finite_values, cells), 0.0)), glyphs, top=top)
        lines.append([(title.rjust(LABEL) + " ", "muted"), (bar_text, "fine")])
    return lines


class AnswerView(DrawnView):
    """The ranked culprits. The cursor is shared with the node list."""

    view = ScreenId.ANSWER
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.open", "why", tooltip="open the node: why it differs"),
        Binding("v", "screen.verdict", "verdict", tooltip=VERDICT),
    ]
    is_list = True

    def __init__(self, look: Look | None = None) -> None:
        super().__init__(look)
        self._culprit_rows: np.ndarray = np.zeros(0, dtype=np.int64)
        self._key: tuple[object, ...] = ()
        self._visible_positions = range(0)
        self._left_line_at = -1

    def culprit_rows(self, scene: Scene) -> np.ndarray:
        """Return the rows of the culprits, worst first."""
        origin, costs = origin_row(scene), scene.table.costs
        key = (id(scene.table), scene.table.version, origin, len(costs), tuple(scene.table.diagnosis))
        if key != self._key:
            self._culprit_rows, self._key = culprits(scene.table, origin, list(costs)), key
        return self._culprit_rows

    def draw(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Draw the list."""
        culprit_rows, glyphs = self.culprit_rows(scene), scene.glyphs
        self._left_line_at = -1
        if not len(culprit_rows):
            return [_empty_line(scene), [(glyphs.fit_end(_coverage_text(scene), width), "muted")]]
        if scene.table.diagnosis:
            return self._draw_diagnosis(scene, culprit_rows, width, height)
        columns = list(_COLUMNS)
        if all(_short_explanation(scene, int(row)) is None for row in culprit_rows[:height]):
            columns.pop()
        costs = scene.table.costs
        columns = columns if costs else columns[1:]
        for column_name in _OPTIONAL_COLUMNS:
            if _name_width(width, columns) >= _MIN_NAME_WIDTH:
                break
            columns = [column for column in columns if column[0] != column_name]
        name_width = max(_name_width(width, columns), 8)
        positions = np.flatnonzero(culprit_rows == scene.row)
        position = int(positions[0]) if len(positions) else -1
        cursor_lines = _cursor_lines(scene, columns, name_width, costs) if position < 0 else []
        line_count = max(height - 2 - len(cursor_lines), 1)
        self._visible_positions = window(max(position, 0), len(culprit_rows), line_count)
        part_text = lines_shown_text(self._visible_positions, len(culprit_rows))
        worst_text = f"{part_text.strip()} worst" if part_text else ""
        node = f"node {worst_text}".rstrip() if len(f"node {worst_text}") <= name_width else worst_text
        header = f"    {node.ljust(name_width)} {'op'.ljust(_OP_WIDTH)}"
        header += "".join(f" {_column_heading(title).rjust(size)}" for title, size in columns)
        lines: list[Line] = [[(header[:width], "accent")]]
        lines += [
            _culprit_line(scene, int(culprit_rows[at]), columns, name_width, costs, is_cursor=at == position)
            for at in self._visible_positions
        ]
        lines += cursor_lines
        lines.append([(glyphs.fit_end(_coverage_text(scene), width), "muted")])
        return lines

    def _draw_diagnosis(self, scene: Scene, culprit_rows: np.ndarray, width: int, height: int) -> list[Line]:
        """Draw the faults of the diagnosis: share of the output's error, node and reason.

        If edits of the first nodes were tried together, a line below these nodes says which share is left.
        """
        positions = np.flatnonzero(culprit_rows == scene.row)
        position = int(positions[0]) if len(positions) else -1
        text_width = width - _CELLS_BEFORE_NAME
        remedy_width = max((len(_best_remedy(fault)) for fault in scene.table.diagnosis.values()), default=-1) + 1
        remedy_width = remedy_width if text_width - remedy_width >= _MIN_NAME_WIDTH + _MIN_REASON_WIDTH else 0
        name_width = min(max((text_width - remedy_width) * 2 // 5, _MIN_NAME_WIDTH), text_width)
        widths = name_width, text_width - name_width - remedy_width, remedy_width
        cursor_lines: list[Line] = []
        if position < 0:
            hint = " not one of these; enter opens it, j goes to the first:"
            cursor_lines = [[(hint, "muted")], _fault_line(scene, scene.row, widths, is_cursor=True)]
        left_line = _left_line(scene) if height >= _MIN_HEIGHT_WITH_LEFT else None
        row_count = max(height - 2 - len(cursor_lines) - (left_line is not None), 1)
        self._visible_positions = window(max(position, 0), len(culprit_rows), row_count)
        part_text = lines_shown_text(self._visible_positions, len(culprit_rows)).strip()
        title = _share_title(scene, 8 + name_width, part_text)
        header = f"    {'SQNR dB'.rjust(8)} {title.ljust(8 + name_width)} "
        header += "why".ljust(widths[1]) + ("try" if remedy_width else "")
        lines: list[Line] = [[(header[:width], "accent")]]
        lines += [
            _fault_line(scene, int(culprit_rows[at]), widths, is_cursor=at == position)
            for at in self._visible_positions
        ]
        if left_line is not None:
            count, text = left_line
            if count in range(self._visible_positions.start, self._visible_positions.stop + 1):
                self._left_line_at = 1 + count - self._visible_positions.start
                lines.insert(self._left_line_at, [(scene.glyphs.fit_end(text, width), "muted")])
        return [*lines, *cursor_lines, [(scene.glyphs.fit_end(_coverage_text(scene), width), "muted")]]

    def move(self, scene: Scene, lines: int) -> str:
        """Go to another culprit."""
        culprit_rows = self.culprit_rows(scene)
        if not len(culprit_rows):
            return "there are no culprits to move through; 2 shows all nodes"
        positions = np.flatnonzero(culprit_rows == scene.row)
        if not len(positions):
            return f"the worst culprit{scene.navigator.jump(int(culprit_rows[0]))}"
        target = min(max(int(positions[0]) + lines, 0), len(culprit_rows) - 1)
        if target == positions[0]:
            return "this is the worst culprit" if lines < 0 else "this is the last culprit; 2 shows all nodes"
        scene.navigator.go(int(culprit_rows[target]))
        return ""

    def click(self, scene: Scene, _: int, line: int) -> Target | str | None:
        """Select the culprit on a line, or open it if it is already selected."""
        if line == self._left_line_at:
            return None
        line -= 0 < self._left_line_at < line
        culprit_rows, position = self.culprit_rows(scene), self._visible_positions.start + line - 1
        if line < 1 or position not in self._visible_positions or position >= len(culprit_rows):
            return None
        if int(culprit_rows[position]) == scene.row:
            return self.enter(scene)
        scene.navigator.go(int(culprit_rows[position]))
        return ""

    def enter(self, scene: Scene) -> Target | str:  # noqa: ARG002  the same for every node
        """Show why the node differs."""
        return ScreenId.WHY

    def rows(self, scene: Scene) -> Sequence[int]:
        """Return the culprits, worst first."""
        return [int(row) for row in self.culprit_rows(scene)]

    def side(self, scene: Scene, direction: int) -> str:
        """Move along the profile by a 60th of the rows in topological order."""
        table = scene.table
        step = max(table.ordered // 60, 1)
        start = scene.row + direction * step
        if not 0 <= start < table.ordered:
            return f"the profile {'begins' if direction < 0 else 'ends'} here"
        scene.navigator.go(start)
        return f"{safe_text(table.title(start), limit=60)}, along the profile"


def _column_heading(title: str) -> str:
    """Return the heading of a column."""
    return title if title != "worst dB" else "alone dB"


def _name_width(width: int, columns: Sequence[tuple[str, int]]) -> int:
    """Return the cells that the given columns leave for the name."""
    return width - 4 - sum(size + 1 for _, size in columns) - _OP_WIDTH - 1


def _empty_line(scene: Scene) -> Line:
    table = scene.table
    if table.pending:
        progress = f"{numbers.grouped(table.compared)} of {numbers.grouped(table.comparable)}"
        return [(f" no error found so far, {progress} compared", "muted")]
    if int((table.state == State.INCOMPARABLE).sum()) > table.size - table.comparable:
        return [(" no error where there was something to compare; f is=missing lists the rest", "unknown")]
    return [(" no node adds any error; 2 shows all nodes", "fine")]


def _culprit_line(
    scene: Scene,
    row: int,
    columns: Sequence[tuple[str, int]],
    name_width: int,
    costs: Mapping[int, float],
    *,
    is_cursor: bool,
) -> Line:
    table, glyphs = scene.table, scene.glyphs
    state = State(int(table.state[row]))
    signs = row_signs(table, row, state, table.first_divergence(), is_marked=row in scene.navigator.trail.marks)
    texts = {
        "worst dB": numbers.number(costs.get(row)),
        "rel L2": metric_text(table, row, "rel_l2"),
        "introduced": numbers.number(_finite_or_none(table.values("introduced")[row])),
        "in LSB": _introduced_lsb_text(table, row),
        "propagated": numbers.number(_finite_or_none(table.values("propagated")[row])),
        "clipped": metric_text(table, row, "clipped"),
        "explained": _short_explanation(scene, row) or numbers.MISSING,
    }
    line: Line = [
        (glyphs.cursor if is_cursor else " ", "cursor"),
        (signs[0], "first" if signs[0] == "!" else "accent"),
        (signs[1], state_style(state)),
        (" ", "plain"),
        (
            glyphs.fit_name(table.title(row, is_short=True), table.rows[row].op, name_width),
            "cursor" if is_cursor else state_style(state),
        ),
        (" " + glyphs.fit(safe_text(table.rows[row].op), _OP_WIDTH), "muted"),
    ]
    for title, size in columns:
        line.append((" " + glyphs.align_right(texts[title], size), "plain"))
    return line


def _share_title(scene: Scene, width: int, part_text: str) -> str:
    """Return the heading of the shares and nodes: the output, and which of the nodes are shown."""
    output = "" if scene.result is None else safe_text(shared_output(scene.result))
    part_text = f" {part_text}" if part_text else ""
    output_width = max(width - len("share of ") - len(part_text), 4)
    return (
        f"share of {scene.glyphs.fit_name(output, '', output_width).rstrip()}" if output else " share  node"
    ) + part_text


def _left_line(scene: Scene) -> tuple[int, str] | None:
    """Return the number of the first nodes that were tried in float, and a line on the share that is left."""
    left = None if scene.result is None else left_in_float(scene.result)
    if left is None:
        return None
    share, count, label = left
    return count, f"{'':{_CELLS_BEFORE_NAME - 8}}{share_text(share).rjust(6)}  {label}"


def _best_remedy(fault: Diagnosis) -> str:
    """Return the edit of only this node with the largest gain, and that gain; "" if none was tried."""
    remedies = [remedy for remedy in fault.remedies if remedy.nodes == 1]
    gains = [(gain_of(remedy, fault), remedy.edit.partition(" ")[0]) for remedy in remedies]
    if not gains:
        return ""
    gain, kind = max(gains)
    return f"{kind} exact" if gain == math.inf else f"{kind} {gain:+.1f} dB"


def _fault_line(scene: Scene, row: int, widths: tuple[int, int, int], *, is_cursor: bool) -> Line:
    """Draw a row: share of the output's error, SQNR, name, reason and remedy."""
    table, glyphs, (name_width, text_width, remedy_width) = scene.table, scene.glyphs, widths
    state = State(int(table.state[row]))
    signs = row_signs(table, row, state, table.first_divergence(), is_marked=row in scene.navigator.trail.marks)
    fault = table.diagnosis.get(row)
    share = numbers.MISSING if fault is None else share_text(share_of(fault))
    reason = "" if fault is None else safe_text(fault.why, limit=_MAX_REASON_LENGTH).removeprefix("its ")
    remedy = "" if fault is None else _best_remedy(fault)
    if not remedy:  # the reason takes its width
        text_width, remedy_width = text_width + remedy_width, 0
    line: Line = [
        (glyphs.cursor if is_cursor else " ", "cursor"),
        (signs[0], "first" if signs[0] == "!" else "accent"),
        (signs[1], state_style(state)),
        (f" {glyphs.align_right(metric_text(table, row, 'sqnr_db'), 8)} {glyphs.align_right(share, 6)}  ", "plain"),
        (
            glyphs.fit_name(table.title(row, is_short=True), table.rows[row].op, name_width),
            "cursor" if is_cursor else state_style(state),
        ),
    ]
    if text_width > 1:
        reason = glyphs.fit_end(glyphs.transliterate(reason), text_width - 1)
        line.append((" " + glyphs.fit(reason, text_width - 1), "muted"))
    return [*line, (" " + glyphs.fit_end(remedy, remedy_width - 1), "fine")] if remedy_width else line


def _cursor_lines(
    scene: Scene, columns: Sequence[tuple[str, int]], name_width: int, costs: Mapping[int, float]
) -> list[Line]:
    """Draw the row under the cursor below a list that does not contain it, since the keys apply to it."""
    hint = " not one of these; enter opens it, j goes to the first:"
    return [[(hint, "muted")], _culprit_line(scene, scene.row, columns, name_width, costs, is_cursor=True)]


def _introduced_lsb_text(table: NodeTable, row: int) -> str:
    """Return the largest introduced error in LSB of the node's output."""
    result = table.results[row]
    introduced = None if result is None else result.introduced
    return numbers.MISSING if introduced is None else numbers.number(introduced.max_lsb)


def _short_explanation(scene: Scene, row: int) -> str | None:
    """Return the arithmetic that reproduces a row, if known and if its name is short; else None."""
    result = scene.table.results[row]
    if result is None or result.explained is None:
        return None
    return safe_text(result.explained) if len(result.explained) <= _EXPLANATION_WIDTH else "bit for bit"


def _finite_or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _coverage_text(scene: Scene) -> str:
    table = scene.table
    unmatched_count = table.size - table.comparable
    sample_count_text = numbers.grouped(scene.navigator.samples)
    sample = scene.navigator.sample
    text = "" if sample is None else f" list, strips of all {sample_count_text} samples, profile of sample {sample};"
    text += f" compared {numbers.grouped(table.compared)} of {numbers.grouped(table.comparable)}"
    text += ", what each costs is not known yet" if scene.result is None else ""
    incomparable_count = int((table.state == State.INCOMPARABLE).sum()) - unmatched_count
    if unmatched_count:
        text += f", {numbers.grouped(unmatched_count)} more {'has' if unmatched_count == 1 else 'have'} no partner"
    if incomparable_count:
        text += f", {numbers.grouped(incomparable_count)} cannot be compared"
    if unmatched_count or incomparable_count:
        text += " (f is=missing)"
    acknowledged_count = int(table.acknowledged.sum())
    if acknowledged_count:
        text += f", {numbers.grouped(acknowledged_count)} acknowledged"
    failed_replays = 0 if scene.result is None else scene.result.coverage.judged.failed_replays
    if failed_replays:
        text += f", {numbers.grouped(failed_replays)} {'replay' if failed_replays == 1 else 'replays'} failed"
    nonfinite_count = int((table.state == State.NONFINITE).sum())
    return text + (f", NaN or infinite in {numbers.grouped(nonfinite_count)}" if nonfinite_count else "")
