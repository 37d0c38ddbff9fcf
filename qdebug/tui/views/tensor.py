"""The node details as lines of styled text: both sides next to each other, then error, clipping, samples, elements."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from rich.cells import cell_len
from textual.binding import Binding, BindingType
from textual.events import Click

from qdebug.compare.result.result import NodeResult, Status
from qdebug.model import TensorInfo
from qdebug.numerics.stats import ErrorStats
from qdebug.present import numbers
from qdebug.present.detail import (
    NodeDetail,
    finding_facts,
    holds_integers,
    metric_facts,
    precision_sentence,
    quant_summary,
    rail_facts,
    side_facts,
    worst_rows,
)
from qdebug.present.rows import judged_words, row_cell
from qdebug.present.text import safe_text
from qdebug.tui.drawing.draw import bars, pool
from qdebug.tui.drawing.glyphs import UNICODE, GlyphSet, wrap
from qdebug.tui.drawing.look import Look
from qdebug.tui.elements.values import SideValues, ValueFacts
from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.nodes.rows import PlannedRow, State, why
from qdebug.tui.reading.messages import DetailReady
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.elements import has_values, of_sample
from qdebug.tui.views.histograms import bins_of, histogram_lines
from qdebug.tui.views.recorded import recorded_bins, recorded_rows
from qdebug.tui.views.samples import sample_errors
from qdebug.tui.views.view import WHEEL, Line, Scene, Target, View, accepted, short_of_limit, sign_of
from qdebug.tui.widgets.lines import TextScroll

__all__ = ["TensorView", "detail_lines"]

_LEAST_WIDTH, _FILE_WIDTH = 36, 100
_LABEL, _WIDE_LABEL = 14, 20
_WIDE = 81
_ERRORS = ("SQNR dB", "rel L2", "cosine", "max abs", "max LSB", "max rel", "mismatches", "non-finite", "mean abs")
_PARTS = ("SQNR dB", "rel L2", "max LSB")
_JUDGED = {"judged", "SQNR", "non-finite"}
_FAILING = {Status.DIVERGED, Status.NONFINITE}
_RAILS = {
    "clipped": "clipped",
    "reference below range": "below range",
    "reference above range": "above range",
    "codes at qmin": "at qmin",
    "of these, zeros of a Relu": "Relu's zero",
    "codes at qmax": "at qmax",
}
_NOTHING = "nothing of the reference"
_CLIPPED = tuple(_RAILS)[:3]
_WORST_TITLES = ("index", "sample", "reference", "backend", "difference", "LSB", "ref code", "code")
_LEAVE_FIRST = ("sample", "ref code", "code", "LSB", "difference")
"""Columns of the worst elements that are left out if there is not enough room, in this order."""


class TensorView(TextScroll, View, can_focus=True, inherit_bindings=False):
    """The facts, which scroll. They can also be shown beside another view.

    Args:
        look: Shared look.
        id: Identifies the widget.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.open", "values", tooltip="open the values"),
    ]
    DEFAULT_CSS = """
    TensorView { padding: 0 0 0 1; overflow-x: hidden; scrollbar-size-vertical: 1; scrollbar-gutter: stable; }
    """
    view = ScreenId.TENSOR

    def __init__(self, look: Look | None = None, *, id: str = "tensor") -> None:  # noqa: A002  as Textual names it
        super().__init__(look or Look(UNICODE), self._facts, id=id)
        self._row: tuple[int, int] | None = None

    def _facts(self, width: int) -> Sequence[Line]:
        scene = self.scene
        if scene is None:
            return [[(f" {self.nothing}", "muted")]]
        if width < _LEAST_WIDTH:
            return []
        if scene.place != self._row:
            self._row = scene.place
            self.scroll_to(y=0, animate=False)
        return detail_lines(scene, width)

    def redraw(self) -> None:
        """Redraw the facts."""
        TextScroll.redraw(self)

    @property
    def page_lines(self) -> int:
        """Lines of a page."""
        return self.size.height

    def words(self, scene: Scene, width: int) -> Sequence[Line]:
        """Return all facts."""
        return detail_lines(scene, max(width, _FILE_WIDTH))

    def move(self, scene: Scene, lines: int) -> str:  # noqa: ARG002  of what is drawn
        """Scroll."""
        return "" if self.step(lines) else "the facts end here" if lines > 0 else "the facts begin here"

    def side(self, scene: Scene, direction: int) -> str:  # noqa: ARG002  there is nothing
        """Return a message that there is nothing to the side."""
        return "nothing to the side of the facts; enter goes to the values"

    def enter(self, scene: Scene) -> Target | str:  # noqa: ARG002  whatever the tensor
        """Open the values."""
        return ScreenId.VALUES

    def on_click(self, event: Click) -> None:
        """Go to the worst element whose line was clicked. These lines are at the end."""
        at, scene = event.get_content_offset(self), self.scene
        worst = () if scene is None or scene.ready is None else scene.ready.worst
        line = -1 if at is None else self.lines_below(at.y)
        if 0 <= line < len(worst):
            self.stage.touch()
            index = ",".join(map(str, worst[len(worst) - 1 - line].index))
            self.stage.with_scene(lambda _: self.stage.to_element(index))

    def on_mouse_scroll_down(self) -> None:
        """Scroll."""
        self.step(WHEEL)

    def on_mouse_scroll_up(self) -> None:
        """Scroll."""
        self.step(-WHEEL)


def detail_lines(scene: Scene, width: int) -> list[Line]:
    """Return the facts about the row under the cursor.

    Args:
        scene: The row and its facts.
        width: Cells per line.
    """
    navigator, ready, result, glyphs = scene.navigator, scene.ready, scene.outcome, scene.glyphs
    lines = _head(scene, width)
    if result is None:
        return [*lines, [], *_without_result(scene, width)]
    planned, sample = scene.planned, navigator.sample
    detail = NodeDetail(
        result=result,
        reference=scene.opened.reference_graph.tensors.get(planned.reference_tensor),
        backend=scene.opened.backend_graph.tensors.get(planned.tensor),
        sample=sample,
    )
    values = None if ready is None else ready.values
    lines += _sides(detail, ready, planned, width, glyphs, whose="" if ready is None else of_sample(scene))
    if values is None and result.metrics is not None and (ready is None or not ready.complete):
        lines.append([("reading values ..", "muted")])
    if ready is not None and ready.problem:
        lines += _wrapped(ready.problem, width, "fail", glyphs)
    measured = [*_clipping(result, width, glyphs), *_errors(result, width, glyphs)]
    samples = _samples(result, sample, width, glyphs)
    lines += samples if sample is not None else []  # what is asked for comes before what all samples give
    if measured and navigator.samples > 1:
        lines.append([(f"all {navigator.samples} samples", "accent")])
    lines += measured
    lines += [] if _doubtful(navigator, result) else _paired(result, width, glyphs)
    lines += samples if sample is None else []
    if ready is not None and result.metrics is not None:
        lines += [[], *_worst(ready, width, glyphs, steps=navigator.steps, constant=bool(navigator.table.first))]
    return lines


def _head(scene: Scene, width: int) -> list[Line]:
    navigator, row, result, glyphs, planned = scene.navigator, scene.row, scene.outcome, scene.glyphs, scene.planned
    state = State(int(navigator.table.states(None)[row]))
    op = safe_text(planned.op, limit=24)
    title = glyphs.fit(navigator.table.title(row), max(width - cell_len(op) - 2, 8)).rstrip()
    lines: list[Line] = [[(title, "title"), (f"  {glyphs.plain(op)}", "muted")]]
    style = "fail" if state.failing else "unknown" if state is State.INCOMPARABLE else "fine"
    reason = planned.missing if result is None else why(result)
    first = navigator.table.first_divergence() == row
    status = f"{'! first divergence, ' if first else sign_of(navigator.table, row)}{state.word}{short_of_limit(scene)}"
    style = "muted" if state is State.PENDING else style
    lines += _wrapped(f"{status}: {reason}" if reason else status, width, style, glyphs)
    if result is not None and result.acknowledged is not None:
        lines += _wrapped(f"acknowledged: {accepted(result.acknowledged)}", width, "accent", glyphs)
    if row in navigator.trail.notes:
        lines += _wrapped(f"note: {navigator.trail.notes[row]}", width, "accent", glyphs)
    if result is not None:
        if _doubtful(navigator, result):
            lines += _paired(result, width, glyphs)
        for kind, text in finding_facts(result):
            status = "" if text == safe_text(reason or "", limit=400) else f"{kind}: {text}"
            lines += _wrapped(status, width, "accent", glyphs) if status else []
        if result.note:
            lines += _wrapped(result.note, width, "muted", glyphs)
        if result.precision:
            lines += _wrapped(precision_sentence(result.precision), width, "accent", glyphs)
        if result.attribution_note:
            lines += _wrapped(f"introduced error not known: {result.attribution_note}", width, "muted", glyphs)
    return lines


def _doubtful(navigator: Navigator, result: NodeResult) -> bool:
    """Return whether the pairing should be shown first, since it is uncertain or pairs constants."""
    return result.confidence < 1 or bool(navigator.table.first)


def _paired(result: NodeResult, width: int, glyphs: GlyphSet) -> list[Line]:
    sure = "" if result.confidence == 1 else f", confidence {result.confidence:.2f}"
    return _wrapped(f"paired ({result.match}{sure}): {result.match_reason}", width, "muted", glyphs)


def _without_result(scene: Scene, width: int) -> list[Line]:
    planned, ready, glyphs = scene.planned, scene.ready, scene.glyphs
    facts = [
        ("tensor", planned.tensor or planned.reference_tensor),
        ("type", f"{planned.dtype or numbers.MISSING} {numbers.shape(planned.shape)}"),
    ]
    label = _LABEL
    if planned.missing is not None:
        label = max(_label_width(width), len("at qmin, qmax "))
        if planned.quant is not None:
            facts.append(("scale / zp", quant_summary(planned.quant)))
        if ready is not None and ready.recorded is not None:
            facts += [(name, text) for name, text, _ in recorded_rows(ready.recorded)]
    lines: list[Line] = [
        [(name.ljust(label), "muted"), (glyphs.fit(text, width - label), "plain")] for name, text in facts
    ]
    if planned.missing is not None:
        of = "backend" if planned.tensor else "reference"
        source = f"as the {of} recorded it" + (f" in sample {ready.values_sample}" if ready is not None else "")
        lines.insert(0, [(source, "accent")])
        bins = None if ready is None else recorded_bins(ready.recorded)
        if bins is not None:
            alone = replace(bins, sides=bins.sides[:1])
            lines += histogram_lines(alone, label, max(width - label - 1, 8), glyphs, rows=_rows(width))
        if ready is None or ready.problem:
            lines += _wrapped("reading values .." if ready is None else ready.problem, width, "muted", glyphs)
        elif has_values(scene):
            lines += [[], *_wrapped("enter shows its values (5), v there a map of their sizes", width, "muted", glyphs)]
    if planned.missing is None:
        source = "Its turn comes: nodes are compared in topological order. 5 shows its elements meanwhile."
        lines += [[], *_wrapped(source, width, "muted", glyphs)]
    return lines


def _rows(width: int) -> int:
    """Return the number of lines for a histogram. A wide terminal is usually tall, too."""
    return 4 if width >= _WIDE else 2


def _label_width(width: int) -> int:
    return _WIDE_LABEL if width >= 62 else _LABEL


def _type(dtype: str, shape: str) -> str:
    return dtype if shape == numbers.MISSING else f"{dtype} {shape}"


def _sides(
    detail: NodeDetail, ready: DetailReady | None, planned: PlannedRow, width: int, glyphs: GlyphSet, *, whose: str
) -> list[Line]:
    """Arrange both sides in two columns, reference first."""
    values = None if ready is None else ready.values
    label = _label_width(width)
    side = max((width - label - 1) // 2, 4)
    facts = {fact.label: (fact.reference, fact.backend) for fact in side_facts(detail)}
    dtypes = facts.pop("dtype", (numbers.MISSING, numbers.MISSING))
    shapes = facts.pop("shape", (numbers.MISSING, numbers.MISSING))
    if dtypes[1] == numbers.MISSING and planned.dtype is not None:
        dtypes = (dtypes[0], planned.dtype)
    if shapes[1] == numbers.MISSING and planned.shape is not None:
        shapes = (shapes[0], numbers.shape(planned.shape))
    if values is not None:
        shapes = (shapes[0], numbers.shape(values.shape))
    span = facts.pop("values", None)
    rows: list[tuple[str, str, str]] = []
    for name, (left, right) in facts.items():
        rows.append((name if len(name) <= label - 1 else "scale / zp", left, right))
        if name == "tensor":
            rows.append(("type", _type(dtypes[0], shapes[0]), _type(dtypes[1], shapes[1])))
    if values is not None:
        rows += _value_rows(detail, values)
    elif ready is not None and ready.recorded is not None:
        rows += recorded_rows(ready.recorded)
    elif span is not None:
        rows.append(("min .. max", span[0].replace("..", " .. "), span[1].replace("..", " .. ")))
    is_read = ready is not None and (values is not None or ready.recorded is not None)
    above = whose if is_read and len(whose) >= label else ""  # its own line where the column is too narrow for it
    beside = whose if is_read and not above else ""
    head: Line = [(beside.ljust(label), "accent"), ("reference".ljust(side + 1), "accent"), ("backend", "accent")]
    lines: list[Line] = [[(glyphs.fit(above, width), "accent")], head] if above else [head]
    for row in rows:
        lines += _two_cells(row, label, side, glyphs)
    bins = bins_of(values) if values is not None else None if ready is None else recorded_bins(ready.recorded)
    return lines if bins is None else [*lines, *histogram_lines(bins, label, side, glyphs, rows=_rows(width))]


def _two_cells(row: tuple[str, str, str], label: int, side: int, glyphs: GlyphSet) -> list[Line]:
    """Arrange both sides of a fact next to each other. Sentences are wrapped, and names are cut in the middle."""
    name, left, right = row
    cells = [
        textwrap.wrap(text, side, break_long_words=False, break_on_hyphens=False) if cell_len(text) > side else [text]
        for text in (left, right)
    ]
    style = "plain" if left != right or name == "tensor" else "muted"
    return [
        [
            ((name if not at else "").ljust(label), "muted"),
            (glyphs.fit(cells[0][at] if at < len(cells[0]) else "", side) + " ", "plain"),
            (glyphs.fit(cells[1][at] if at < len(cells[1]) else "", side), style),
        ]
        for at in range(max(map(len, cells)))
    ]


def _value_rows(detail: NodeDetail, values: ValueFacts) -> list[tuple[str, str, str]]:
    def both(show: Callable[[SideValues], str]) -> tuple[str, str]:
        return show(values.reference), show(values.backend)

    def two(first: float | None, second: float | None, between: str) -> str:
        return f"{numbers.number(first, digits=4)}{between}{numbers.number(second, digits=4)}"

    def ends(side: SideValues, info: TensorInfo | None) -> str:
        if holds_integers(info):
            return f"{numbers.whole(side.low)} .. {numbers.whole(side.high)}"
        return two(side.low, side.high, " .. ")

    rows = [
        ("min .. max", ends(values.reference, detail.reference), ends(values.backend, detail.backend)),
        ("mean, std", *both(lambda side: two(side.mean, side.std, ", "))),
    ]
    if any(side.nan or side.infinite for side in (values.reference, values.backend)):
        rows.append(("NaN, inf", *both(lambda side: f"{numbers.grouped(side.nan)}, {numbers.grouped(side.infinite)}")))
    return rows


def _errors(result: NodeResult, width: int, glyphs: GlyphSet) -> list[Line]:
    """Return the size of the error over all samples, and how much of it the node adds itself."""
    beyond = result.status in _FAILING
    lines = _packed("error", _metrics(result.metrics, _ERRORS), width, glyphs, failing=beyond)
    own = () if result.constants is None else ("arithmetic", "constants")
    for name in ("introduced", *own, "propagated"):
        part = getattr(result, name)
        if part is None:
            continue
        judges = name == (own or ("introduced",))[0]
        judged = judged_words(result) if judges else None
        items = _metrics(part, _PARTS if judged is None else _PARTS[:1])
        items = items if judged is None else [("judged", judged), *items]
        if name == "propagated" and result.relative_gain is not None:
            items.append(("gain", numbers.number(result.relative_gain)))
        failing = beyond and judges and result.declared is None
        lines += _packed(f"  {name}" if name in own else name, items, width, glyphs, failing=failing)
    return lines


def _metrics(stats: ErrorStats | None, titles: Sequence[str]) -> list[tuple[str, str]]:
    facts = {fact.title: fact.value for fact in metric_facts(stats)}
    if stats is not None:
        facts["mismatches"] += f" of {numbers.grouped(stats.count)}"
    items = []
    for title in titles:
        value = facts.get(title, numbers.MISSING)
        if value != numbers.MISSING and (title, value) != ("non-finite", "0"):
            items.append((title.removesuffix(" dB"), value.removesuffix(" LSB")))
    return items


def _clipping(result: NodeResult, width: int, glyphs: GlyphSet) -> list[Line]:
    """Return the number of clipped values, and of codes at the ends, over all samples."""
    facts = dict(rail_facts(result.saturation))
    items = [(short, facts[label]) for label, short in _RAILS.items() if label in facts]
    items = [(short, text) for short, text in items if short != "Relu's zero" or text != "0"]
    if items and {facts[label] for label in _CLIPPED} == {"0"}:  # one fact, and the one that is asked for
        items = [("clipped", _NOTHING), *items[len(_CLIPPED) :]]
    lost = row_cell(result, "clipping").text  # of what the backend's own inputs give, which the reference may not reach
    if items and lost != numbers.MISSING:
        items.append(("cuts off at most", lost.removeprefix("+")))
    return _packed("codes", items, width, glyphs) if items else []


def _packed(
    label: str, items: Sequence[tuple[str, str]], width: int, glyphs: GlyphSet, *, failing: bool = False
) -> list[Line]:
    """Arrange "title value" items one after another, on as many lines as they need."""
    indent = _label_width(width)
    lines: list[Line] = []
    line: Line = [(label.ljust(indent), "muted")]
    used = indent
    for title, value in items:
        room = max(width - indent - len(title) - 1, 1)
        value = glyphs.plain(value) if len(value) <= room else glyphs.fit(value, room)  # noqa: PLW2901  it must fit
        size = len(title) + len(value) + 1
        if used + size > width and len(line) > 1:
            lines.append(line)
            line, used = [(" " * indent, "muted")], indent
        line += [
            (f"{glyphs.plain(title)} ", "muted"),
            (f"{value}   ", "fail" if failing and title in _JUDGED else "plain"),
        ]
        used += size + 3
    return [*lines, line] if len(line) > 1 else lines


def _samples(result: NodeResult, sample: int | None, width: int, glyphs: GlyphSet) -> list[Line]:
    """Draw the error of each sample relative to its signal, and name the worst sample."""
    many = len(result.samples)
    if many < 2:
        return []
    errors = sample_errors(result.samples)
    finite = np.isfinite(errors)
    top = float(np.max(errors, initial=0.0, where=finite)) or 1.0
    heights = np.where(finite, errors, top)  # what is not finite is as high as any
    indent, room = _label_width(width), max(width // 3, 8)
    drawn = bars(pool(heights, room) if many > room else heights, glyphs) if errors.any() else "no error"
    chosen = next((at for at, measured in enumerate(result.samples) if measured.sample == sample), int(errors.argmax()))
    measured = result.samples[chosen]
    judged = any(judged_sample.status in _FAILING for judged_sample in result.samples) or result.status not in _FAILING
    label = f"{'shown' if measured.sample == sample else 'worst SQNR'}: sample {measured.sample} of 0..{many - 1}: "
    label += f"{measured.status}, " if judged else ""  # where none is beyond the limit alone, the whole is
    label += f"{numbers.number(measured.sqnr_db)} dB, max abs {numbers.number(measured.max_abs)}"
    head: Line = [("samples".ljust(indent), "muted"), (drawn + "  ", "fine")]
    if indent + len(drawn) + 2 + len(label) <= width:
        return [[*head, (label, "plain")]]
    rest = wrap(glyphs.plain(label), max(width - indent, 10))
    return [head, *([(" " * indent, "muted"), (line, "plain")] for line in rest)]


def _worst(ready: DetailReady, width: int, glyphs: GlyphSet, *, steps: int, constant: bool) -> list[Line]:
    rows = worst_rows(ready.worst)
    if not rows:
        return [] if ready.complete else [[("looking for the worst elements ..", "muted")]]
    columns = [list(column) for column in zip(_WORST_TITLES, *rows, strict=True)]
    if constant:  # which has no samples
        del columns[1]
    elif steps > 1:  # an index says which element only with its step; the sample stands above
        columns[1] = ["step", *(str(element.step) for element in ready.worst)]
    columns = [column for column in columns if set(column[1:]) != {numbers.MISSING}]
    widths = [max(map(len, column)) for column in columns]
    for leaving in _LEAVE_FIRST:
        at = next((at for at, column in enumerate(columns) if column[0] == leaving), None)
        if at is not None and sum(widths) + 2 * len(widths) > width:
            del widths[at], columns[at]
    of = f" of sample {ready.values_sample}, all {steps} steps" if steps > 1 else f" of sample {ready.values_sample}"
    of = "" if constant else of
    lines: list[Line] = [[(f"worst elements{of}", "accent")]]
    for number, cells in enumerate(zip(*columns, strict=True)):
        text = "  ".join(cell.rjust(size) for cell, size in zip(cells, widths, strict=True))
        lines.append([(glyphs.plain(text), "muted" if number == 0 else "plain")])
    return lines


def _wrapped(text: str, width: int, style: str, glyphs: GlyphSet) -> list[Line]:
    """Break safe text into lines at spaces."""
    return [[(line, style)] for line in wrap(glyphs.plain(safe_text(text)), max(width, 10))]
