"""The overview: strips below the error profile, and the culprits, worst first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from textual.binding import Binding, BindingType

from qdebug.present import numbers
from qdebug.present.answer import share_of, share_text
from qdebug.present.text import safe_text
from qdebug.tui.drawing.draw import bars, pool
from qdebug.tui.drawing.glyphs import GlyphSet
from qdebug.tui.drawing.look import Look
from qdebug.tui.nodes.columns import mark, metric_text
from qdebug.tui.nodes.error_profile import LABEL
from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.nodes.rows import NodeTable, State
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.view import (
    DrawnView,
    Line,
    Scene,
    Target,
    in_part,
    origin_row,
    state_style,
    window,
)

if TYPE_CHECKING:
    from qdebug.compare.result.diagnosis import Diagnosis

__all__ = ["VERDICT", "AnswerView", "culprits", "strip_lines"]

VERDICT = "the whole verdict, its limits, outputs and runs"
"""Description of the verdict key in the command palette of every screen."""

_MOST = 200
_EXPLAINED = 14
_COLUMNS = (
    *(("worst dB", 9), ("rel L2", 8), ("introduced", 10), ("in LSB", 7)),
    *(("clipped", 8), ("propagated", 10), ("explained", _EXPLAINED)),
)
_LEAVE_FIRST = ("explained", "propagated", "in LSB", "rel L2")
"""Columns that are left out if there is not enough room, in this order."""
_OP = 12
_LEAST_NAME, _LEAST_WHY = 24, 12
_FIGURES = 4 + 6 + 1 + 8 + 2
"""Cells before a name: marks, share, SQNR."""


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
    own = np.nan_to_num(_added(table), nan=-1.0, posinf=np.inf)
    whole = np.nan_to_num(table.values("rel_l2"), nan=0.0, posinf=np.inf)
    failing = np.isin(table.state, (State.DIVERGED, State.NONFINITE)) & ~table.acknowledged
    candidates = np.flatnonzero(failing | (own > 0) | ((own < 0) & (whole > 0)))
    if len(candidates) > 4 * _MOST:  # only the best are ever sorted
        beyond = np.flatnonzero(failing)
        pooled = beyond if len(beyond) > 4 * _MOST else candidates
        unknown = -1 / (1 + whole[pooled])  # below all that is known, the largest error first
        score = np.where(own[pooled] < 0, unknown, own[pooled])
        score[table.state[pooled] == State.NONFINITE] = np.inf
        score = score if pooled is beyond else np.where(failing[pooled], np.inf, score)
        best = pooled[np.argpartition(-score, 4 * _MOST - 1)[: 4 * _MOST]]
        first = (origin, *beyond[:1], *table.diagnosis, *costs[:_MOST])
        origins = [row for row in first if row is not None and row in candidates]
        candidates = np.union1d(best, origins).astype(np.int64)
    nonfinite = table.state[candidates] == State.NONFINITE
    diagnosed = np.full(table.size, len(table.diagnosis))
    diagnosed[list(table.diagnosis)] = np.arange(len(table.diagnosis))
    first = candidates == (-1 if origin is None else origin)
    earliest = np.isin(candidates, np.flatnonzero(failing)[:1])  # often of an operator that nobody can replay
    unknown_whole = np.where(own < 0, whole, 0.0)[candidates]
    place = np.full(table.size, len(costs))
    place[list(costs)] = np.arange(len(costs))
    keys = candidates, -unknown_whole, -own[candidates], place[candidates]
    order = np.lexsort((*keys, ~nonfinite, ~failing[candidates], ~earliest, ~first, diagnosed[candidates]))
    ranked: np.ndarray = candidates[order][:_MOST]
    return ranked


def _added(table: NodeTable) -> np.ndarray:
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
    for title, values in (("introduced", _added(table)), ("clipped", table.values("clipped"))):
        if title == navigator.metric:  # the profile above shows it
            continue
        finite = np.nan_to_num(values[: table.ordered], nan=0.0, posinf=0.0)
        top = None if title == "introduced" else 1.0  # clipping is a share: a full bar is all of a tensor
        drawn = bars(np.sqrt(np.maximum(pool(finite, cells), 0.0)), glyphs, top=top)
        lines.append([(title.rjust(LABEL) + " ", "muted"), (drawn, "fine")])
    return lines


class AnswerView(DrawnView):
    """The ranked culprits. The cursor is shared with the node list."""

    view = ScreenId.ANSWER
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.open", "why", tooltip="open the node: why it differs"),
        Binding("v", "screen.verdict", "verdict", tooltip=VERDICT),
    ]
    lists = True

    def __init__(self, look: Look | None = None) -> None:
        super().__init__(look)
        self._ranked: np.ndarray = np.zeros(0, dtype=np.int64)
        self._key: tuple[object, ...] = ()
        self._places = range(0)

    def ranked(self, scene: Scene) -> np.ndarray:
        """Return the rows, worst first."""
        origin, costs = origin_row(scene), scene.table.costs
        key = (id(scene.table), scene.table.version, origin, len(costs), tuple(scene.table.diagnosis))
        if key != self._key:
            self._ranked, self._key = culprits(scene.table, origin, list(costs)), key
        return self._ranked

    def draw(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Draw the list."""
        ranked, glyphs = self.ranked(scene), scene.glyphs
        if not len(ranked):
            return [_nothing(scene), [(glyphs.fit_end(_coverage(scene), width), "muted")]]
        if scene.table.diagnosis:
            return self._diagnosed(scene, ranked, width, height)
        shown = list(_COLUMNS)
        if all(_explained(scene, int(row)) is None for row in ranked[:height]):
            shown.pop()
        costs = scene.table.costs
        shown = shown if costs else shown[1:]
        for leaving in _LEAVE_FIRST:
            if _room(width, shown) >= _LEAST_NAME:
                break
            shown = [column for column in shown if column[0] != leaving]
        name_width = max(_room(width, shown), 8)
        places = np.flatnonzero(ranked == scene.row)
        at = int(places[0]) if len(places) else -1
        apart = _apart(scene, shown, name_width, costs) if at < 0 else []
        room = max(height - 2 - len(apart), 1)
        self._places = window(max(at, 0), len(ranked), room)
        part = in_part(self._places, len(ranked))
        worst = f"{part.strip()} worst" if part else ""
        node = f"node {worst}".rstrip() if len(f"node {worst}") <= name_width else worst
        head = f"    {node.ljust(name_width)} {'op'.ljust(_OP)}"
        head += "".join(f" {_heading(title).rjust(size)}" for title, size in shown)
        lines: list[Line] = [[(head[:width], "accent")]]
        lines += [
            _culprit(scene, int(ranked[place]), shown, name_width, costs, here=place == at) for place in self._places
        ]
        lines += apart
        lines.append([(glyphs.fit_end(_coverage(scene), width), "muted")])
        return lines

    def _diagnosed(self, scene: Scene, ranked: np.ndarray, width: int, height: int) -> list[Line]:
        """Draw the faults of the diagnosis: share of the output's error, node and reason."""
        places = np.flatnonzero(ranked == scene.row)
        at = int(places[0]) if len(places) else -1
        rest = width - _FIGURES
        tries = max((len(_tried(fault)) for fault in scene.table.diagnosis.values()), default=-1) + 1
        tries = tries if rest - tries >= _LEAST_NAME + _LEAST_WHY else 0
        name = min(max((rest - tries) * 2 // 5, _LEAST_NAME), rest)
        widths = name, rest - name - tries, tries
        apart: list[Line] = []
        if at < 0:
            hint = " not one of these; enter opens it, j goes to the first:"
            apart = [[(hint, "muted")], _fault(scene, scene.row, widths, here=True)]
        self._places = window(max(at, 0), len(ranked), max(height - 2 - len(apart), 1))
        part = in_part(self._places, len(ranked))
        node = f"node {part.strip()} worst" if part else "node"
        head = f"    {'share'.rjust(6)} {'SQNR dB'.rjust(8)}  {node.ljust(name)} "
        head += "why".ljust(widths[1]) + ("try" if tries else "")
        lines: list[Line] = [[(head[:width], "accent")]]
        lines += [_fault(scene, int(ranked[place]), widths, here=place == at) for place in self._places]
        return [*lines, *apart, [(scene.glyphs.fit_end(_coverage(scene), width), "muted")]]

    def move(self, scene: Scene, lines: int) -> str:
        """Go to another culprit."""
        ranked = self.ranked(scene)
        if not len(ranked):
            return "there are no culprits to move in; 2 shows all nodes"
        places = np.flatnonzero(ranked == scene.row)
        if not len(places):
            return f"the worst culprit{scene.navigator.jump(int(ranked[0]))}"
        target = min(max(int(places[0]) + lines, 0), len(ranked) - 1)
        if target == places[0]:
            return "this is the worst culprit" if lines < 0 else "this is the last culprit; 2 shows all nodes"
        scene.navigator.go(int(ranked[target]))
        return ""

    def click(self, scene: Scene, _: int, line: int) -> Target | str | None:
        """Select the culprit on a line, or open it if it is already selected."""
        ranked, at = self.ranked(scene), self._places.start + line - 1
        if line < 1 or at not in self._places or at >= len(ranked):
            return None
        if int(ranked[at]) == scene.row:
            return self.enter(scene)
        scene.navigator.go(int(ranked[at]))
        return ""

    def enter(self, scene: Scene) -> Target | str:  # noqa: ARG002  wherever the cursor is
        """Show why the node differs."""
        return ScreenId.WHY

    def rows(self, scene: Scene) -> Sequence[int]:
        """Return the culprits, worst first."""
        return [int(row) for row in self.ranked(scene)]

    def side(self, scene: Scene, direction: int) -> str:
        """Move along the profile, to the worst row of the next or previous section."""
        table = scene.table
        step = max(table.ordered // 60, 1)
        start = scene.row + direction * step
        if not 0 <= start < table.ordered:
            return f"the profile {'begins' if direction < 0 else 'ends'} here"
        scene.navigator.go(start)
        return f"{safe_text(table.title(start), limit=60)}, along the profile"


def _heading(title: str) -> str:
    """Return the heading of a column."""
    return title if title != "worst dB" else "alone dB"


def _room(width: int, shown: Sequence[tuple[str, int]]) -> int:
    """Return the cells that the given columns leave for the name."""
    return width - 4 - sum(size + 1 for _, size in shown) - _OP - 1


def _nothing(scene: Scene) -> Line:
    table = scene.table
    if table.pending:
        progress = f"{numbers.grouped(table.compared)} of {numbers.grouped(table.comparable)}"
        return [(f" no error found so far, {progress} compared", "muted")]
    if int((table.state == State.INCOMPARABLE).sum()) > table.size - table.comparable:
        return [(" no error where there was something to compare; f is=missing lists the rest", "unknown")]
    return [(" no node adds any error; 2 shows all nodes", "fine")]


def _culprit(
    scene: Scene, row: int, shown: Sequence[tuple[str, int]], name_width: int, costs: Mapping[int, float], *, here: bool
) -> Line:
    table, glyphs = scene.table, scene.glyphs
    state = State(int(table.state[row]))
    signs = mark(table, row, state, table.first_divergence(), marked=row in scene.navigator.trail.marks)
    texts = {
        "worst dB": numbers.number(costs.get(row)),
        "rel L2": metric_text(table, row, "rel_l2"),
        "introduced": numbers.number(_finite_or_none(table.values("introduced")[row])),
        "in LSB": _steps(table, row),
        "propagated": numbers.number(_finite_or_none(table.values("propagated")[row])),
        "clipped": metric_text(table, row, "clipped"),
        "explained": _explained(scene, row) or numbers.MISSING,
    }
    line: Line = [
        (glyphs.cursor if here else " ", "cursor"),
        (signs[0], "first" if signs[0] == "!" else "accent"),
        (signs[1], state_style(state)),
        (" ", "plain"),
        (
            glyphs.fit_name(table.title(row, short=True), table.rows[row].op, name_width),
            "cursor" if here else state_style(state),
        ),
        (" " + glyphs.fit(safe_text(table.rows[row].op), _OP), "muted"),
    ]
    for title, size in shown:
        line.append((" " + glyphs.right(texts[title], size), "plain"))
    return line


def _tried(fault: Diagnosis) -> str:
    """Return the edit of only this node with the largest gain, and that gain; "" if none was tried."""
    alone = [remedy for remedy in fault.remedies if remedy.nodes == 1]
    gains = [(next(iter(remedy.gain_db.values()), 0.0), remedy.edit.partition(" ")[0]) for remedy in alone]
    if not gains:
        return ""
    gain, kind = max(gains)
    return f"{kind} exact" if gain == math.inf else f"{kind} {gain:+.1f} dB"


def _fault(scene: Scene, row: int, widths: tuple[int, int, int], *, here: bool) -> Line:
    """Draw a row: share of the output's error, SQNR, name, reason and remedy."""
    table, glyphs, (name, rest, tries) = scene.table, scene.glyphs, widths
    state = State(int(table.state[row]))
    signs = mark(table, row, state, table.first_divergence(), marked=row in scene.navigator.trail.marks)
    fault = table.diagnosis.get(row)
    share = numbers.MISSING if fault is None else share_text(share_of(fault))
    why = "" if fault is None else safe_text(fault.why, limit=4 * rest + _LEAST_NAME)
    line: Line = [
        (glyphs.cursor if here else " ", "cursor"),
        (signs[0], "first" if signs[0] == "!" else "accent"),
        (signs[1], state_style(state)),
        (f" {glyphs.right(share, 6)} {glyphs.right(metric_text(table, row, 'sqnr_db'), 8)}  ", "plain"),
        (
            glyphs.fit_name(table.title(row, short=True), table.rows[row].op, name),
            "cursor" if here else state_style(state),
        ),
    ]
    if rest > 1:
        line.append((" " + glyphs.fit(glyphs.fit_end(why, rest - 1), rest - 1), "muted"))
    return [*line, (" " + glyphs.fit_end(_tried(fault), tries - 1), "fine")] if tries and fault is not None else line


def _apart(scene: Scene, shown: Sequence[tuple[str, int]], name_width: int, costs: Mapping[int, float]) -> list[Line]:
    """Draw the row under the cursor below a list that does not contain it, since the keys apply to it."""
    hint = " not one of these; enter opens it, j goes to the first:"
    return [[(hint, "muted")], _culprit(scene, scene.row, shown, name_width, costs, here=True)]


def _steps(table: NodeTable, row: int) -> str:
    """Return the largest introduced error in steps of the node's output."""
    result = table.results[row]
    own = None if result is None else result.introduced
    return numbers.MISSING if own is None else numbers.number(own.max_lsb)


def _explained(scene: Scene, row: int) -> str | None:
    """Return the arithmetic that reproduces a row, if known and if its name is short; else None."""
    result = scene.table.results[row]
    if result is None or result.explained is None:
        return None
    return safe_text(result.explained) if len(result.explained) <= _EXPLAINED else "bit for bit"


def _finite_or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _coverage(scene: Scene) -> str:
    table = scene.table
    missing = table.size - table.comparable
    many = numbers.grouped(scene.navigator.samples)
    sample = scene.navigator.sample
    extent = "" if sample is None else f" list, strips of all {many} samples, profile of sample {sample};"
    extent += f" compared {numbers.grouped(table.compared)} of {numbers.grouped(table.comparable)}"
    extent += ", what each costs is not known yet" if scene.result is None else ""
    unlike = int((table.state == State.INCOMPARABLE).sum()) - missing
    if missing:
        extent += f", {numbers.grouped(missing)} more {'has' if missing == 1 else 'have'} no partner"
    if unlike:
        extent += f", {numbers.grouped(unlike)} cannot be compared"
    if missing or unlike:
        extent += " (f is=missing)"
    excused = int(table.acknowledged.sum())
    if excused:
        extent += f", {numbers.grouped(excused)} acknowledged"
    failed = 0 if scene.result is None else scene.result.coverage.judged.failed_replays
    if failed:
        extent += f", {numbers.grouped(failed)} {'replay' if failed == 1 else 'replays'} failed"
    bad = int((table.state == State.NONFINITE).sum())
    return extent + (f", NaN or infinite in {numbers.grouped(bad)}" if bad else "")
