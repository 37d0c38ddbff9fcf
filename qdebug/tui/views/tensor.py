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
from qdebug.tui.nodes.rows import PlannedRow, State, explain_status
from qdebug.tui.reading.messages import DetailReady
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.elements import has_values, sample_text
from qdebug.tui.views.histograms import bins_of, histogram_lines
from qdebug.tui.views.recorded import recorded_bins, recorded_rows
from qdebug.tui.views.samples import sample_errors
from qdebug.tui.views.view import WHEEL, Line, Scene, Target, View, acknowledgement_text, output_limit_note, sign_of
from qdebug.tui.widgets.lines import TextScroll

__all__ = ["TensorView", "detail_lines"]

_MIN_WIDTH, _FILE_WIDTH = 36, 100
_LABEL, _WIDE_LABEL = 14, 20
_WIDE_WIDTH = 81
_ERRORS = ("SQNR dB", "rel L2", "cosine", "max abs", "max LSB", "max rel", "mismatches", "non-finite", "mean abs")
_PARTS = ("SQNR dB", "rel L2", "max LSB")
_JUDGED_TITLES = {"judged", "SQNR", "non-finite"}
_FAILING_STATUSES = {Status.DIVERGED, Status.NONFINITE}
_RAIL_TITLES = {
    "clipped": "clipped",
    "reference below range": "below range",
    "reference above range": "above range",
    "codes at qmin": "at qmin",
    "of these, zeros of a Relu": "Relu's zero",
    "codes at qmax": "at qmax",
}
_CLIPPED_COUNT = 3
"""Number of the titles above that are about clipped values."""
_WORST_TITLES = ("index", "sample", "reference", "backend", "difference", "LSB", "ref code", "code")
_OPTIONAL_COLUMNS = ("sample", "ref code", "code", "LSB", "difference")
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
        self._row_key: tuple[int, int] | None = None

    def _facts(self, width: int) -> Sequence[Line]:
        scene = self.scene
        if scene is None:
            return [[(f" {self.empty_text}", "muted")]]
        if width < _MIN_WIDTH:
            return []
        if scene.row_key != self._row_key:
            self._row_key = scene.row_key
            self.scroll_to(y=0, animate=False)
        return detail_lines(scene, width)

    def redraw(self) -> None:
        """Redraw the facts."""
        TextScroll.redraw(self)

    @property
    def page_lines(self) -> int:
        """Number of lines that a page key moves by."""
        return self.size.height

    def all_lines(self, scene: Scene, width: int) -> Sequence[Line]:
        """Return all facts."""
        return detail_lines(scene, max(width, _FILE_WIDTH))

    def move(self, scene: Scene, lines: int) -> str:  # noqa: ARG002  scrolls the drawn lines
        """Scroll."""
        return "" if self.scroll_by(lines) else "the facts end here" if lines > 0 else "the facts begin here"

    def side(self, scene: Scene, direction: int) -> str:  # noqa: ARG002  the same for every tensor
        """Return a message that there is nothing to the side."""
        return "nothing to the side of the facts; enter goes to the values"

    def enter(self, scene: Scene) -> Target | str:  # noqa: ARG002  the same for every tensor
        """Open the values."""
        return ScreenId.VALUES

    def on_click(self, event: Click) -> None:
        """Go to the worst element whose line was clicked. These lines are at the end."""
        offset, scene = event.get_content_offset(self), self.scene
        worst_elements = () if scene is None or scene.ready is None else scene.ready.worst
        line = -1 if offset is None else self.lines_below(offset.y)
        if 0 <= line < len(worst_elements):
            self.stage.cancel_pending()
            index = ",".join(map(str, worst_elements[len(worst_elements) - 1 - line].index))
            self.stage.with_scene(lambda _: self.stage.to_element(index))

    def on_mouse_scroll_down(self) -> None:
        """Scroll."""
        self.scroll_by(WHEEL)

    def on_mouse_scroll_up(self) -> None:
        """Scroll."""
        self.scroll_by(-WHEEL)


def detail_lines(scene: Scene, width: int) -> list[Line]:
    """Return the facts about the row under the cursor.

    Args:
        scene: The row and its facts.
        width: Cells per line.
    """
    navigator, ready, result, glyphs = scene.navigator, scene.ready, scene.outcome, scene.glyphs
    lines = _header_lines(scene, width)
    if result is None:
        return [*lines, [], *_lines_without_result(scene, width)]
    plan_row, sample = scene.plan_row, navigator.sample
    detail = NodeDetail(
        result=result,
        reference=scene.opened.reference_graph.tensors.get(plan_row.reference_tensor),
        backend=scene.opened.backend_graph.tensors.get(plan_row.tensor),
        sample=sample,
    )
    values = None if ready is None else ready.values
    lines += _side_lines(detail, ready, plan_row, width, glyphs, place_text="" if ready is None else sample_text(scene))
    if values is None and result.metrics is not None and (ready is None or not ready.is_complete):
        lines.append([("reading values ..", "muted")])
    if ready is not None and ready.problem:
        lines += _wrap_lines(ready.problem, width, "fail", glyphs)
    error_lines = [*_clipping_lines(result, width, glyphs), *_error_lines(result, width, glyphs)]
    samples = _sample_lines(result, sample, width, glyphs)
    lines += samples if sample is not None else []  # the selected sample comes before all samples
    if error_lines and navigator.samples > 1:
        lines.append([(f"all {navigator.samples} samples", "accent")])
    lines += error_lines
    lines += [] if _is_doubtful(navigator, result) else _pairing_lines(result, width, glyphs)
    lines += samples if sample is None else []
    if ready is not None and result.metrics is not None:
        lines += [
            [],
            *_worst_lines(ready, width, glyphs, steps=navigator.steps, is_constant=bool(navigator.table.first_number)),
        ]
    return lines


def _header_lines(scene: Scene, width: int) -> list[Line]:
    navigator, row, result, glyphs, plan_row = scene.navigator, scene.row, scene.outcome, scene.glyphs, scene.plan_row
    state = State(int(navigator.table.states(None)[row]))
    op = safe_text(plan_row.op, limit=24)
    title = glyphs.fit(navigator.table.title(row), max(width - cell_len(op) - 2, 8)).rstrip()
    lines: list[Line] = [[(title, "title"), (f"  {glyphs.transliterate(op)}", "muted")]]
    style = "fail" if state.is_failing else "unknown" if state is State.INCOMPARABLE else "fine"
    reason = plan_row.missing if result is None else explain_status(result)
    is_first = navigator.table.first_divergence() == row
    sign_text = "! first divergence, " if is_first else sign_of(navigator.table, row)
    status = f"{sign_text}{navigator.table.status_word(row)}{output_limit_note(scene)}"
    style = "muted" if state is State.PENDING else style
    lines += _wrap_lines(f"{status}: {reason}" if reason else status, width, style, glyphs)
    if result is not None and result.acknowledged is not None:
        lines += _wrap_lines(f"acknowledged: {acknowledgement_text(result.acknowledged)}", width, "accent", glyphs)
    if row in navigator.trail.notes:
        lines += _wrap_lines(f"note: {navigator.trail.notes[row]}", width, "accent", glyphs)
    if result is not None:
        if _is_doubtful(navigator, result):
            lines += _pairing_lines(result, width, glyphs)
        for kind, text in finding_facts(result):
            status = "" if text == safe_text(reason or "", limit=400) else f"{kind}: {text}"
            lines += _wrap_lines(status, width, "accent", glyphs) if status else []
        if result.note:
            lines += _wrap_lines(result.note, width, "muted", glyphs)
        if result.precision:
            lines += _wrap_lines(precision_sentence(result.precision), width, "accent", glyphs)
        if result.attribution_note:
            lines += _wrap_lines(f"introduced error not known: {result.attribution_note}", width, "muted", glyphs)
    return lines


def _is_doubtful(navigator: Navigator, result: NodeResult) -> bool:
    """Return whether the pairing should be shown first, since it is uncertain or pairs constants."""
    return result.confidence < 1 or bool(navigator.table.first_number)


def _pairing_lines(result: NodeResult, width: int, glyphs: GlyphSet) -> list[Line]:
    confidence_text = "" if result.confidence == 1 else f", confidence {result.confidence:.2f}"
    return _wrap_lines(f"paired ({result.match}{confidence_text}): {result.match_reason}", width, "muted", glyphs)


def _lines_without_result(scene: Scene, width: int) -> list[Line]:
    plan_row, ready, glyphs = scene.plan_row, scene.ready, scene.glyphs
    facts = [
        ("tensor", plan_row.tensor or plan_row.reference_tensor),
        ("type", f"{plan_row.dtype or numbers.MISSING} {numbers.shape(plan_row.shape)}"),
    ]
    label_width = _LABEL
    if plan_row.missing is not None:
        label_width = max(_label_width(width), len("at qmin, qmax "))
        if plan_row.quant is not None:
            facts.append(("scale / zp", quant_summary(plan_row.quant)))
        if ready is not None and ready.recorded is not None:
            facts += [(name, text) for name, text, _ in recorded_rows(ready.recorded)]
    lines: list[Line] = [
        [(name.ljust(label_width), "muted"), (glyphs.fit(text, width - label_width), "plain")] for name, text in facts
    ]
    if plan_row.missing is not None:
        side = "backend" if plan_row.tensor else "reference"
        source = f"as the {side} recorded it" + (f" in sample {ready.values_sample}" if ready is not None else "")
        lines.insert(0, [(source, "accent")])
        bins = None if ready is None else recorded_bins(ready.recorded)
        if bins is not None:
            one_side_bins = replace(bins, sides=bins.sides[:1])
            lines += histogram_lines(
                one_side_bins, label_width, max(width - label_width - 1, 8), glyphs, rows=_histogram_height(width)
            )
        if ready is None or ready.problem:
            lines += _wrap_lines("reading values .." if ready is None else ready.problem, width, "muted", glyphs)
        elif has_values(scene):
            lines += [
                [],
                *_wrap_lines("enter shows its values (5), v there a map of their sizes", width, "muted", glyphs),
            ]
    if plan_row.missing is None:
        source = "Nodes are compared in topological order. 5 shows its elements meanwhile."
        lines += [[], *_wrap_lines(source, width, "muted", glyphs)]
    return lines


def _histogram_height(width: int) -> int:
    """Return the number of lines for a histogram. A wide terminal is usually tall, too."""
    return 4 if width >= _WIDE_WIDTH else 2


def _label_width(width: int) -> int:
    return _WIDE_LABEL if width >= 62 else _LABEL


def _type_text(dtype: str, shape: str) -> str:
    return dtype if shape == numbers.MISSING else f"{dtype} {shape}"


def _side_lines(
    detail: NodeDetail,
    ready: DetailReady | None,
    plan_row: PlannedRow,
    width: int,
    glyphs: GlyphSet,
    *,
    place_text: str,
) -> list[Line]:
    """Arrange both sides in two columns, reference first."""
    values = None if ready is None else ready.values
    label_width = _label_width(width)
    column_width = max((width - label_width - 1) // 2, 4)
    facts = {fact.label: (fact.reference, fact.backend) for fact in side_facts(detail)}
    dtypes = facts.pop("dtype", (numbers.MISSING, numbers.MISSING))
    shapes = facts.pop("shape", (numbers.MISSING, numbers.MISSING))
    if dtypes[1] == numbers.MISSING and plan_row.dtype is not None:
        dtypes = (dtypes[0], plan_row.dtype)
    if shapes[1] == numbers.MISSING and plan_row.shape is not None:
        shapes = (shapes[0], numbers.shape(plan_row.shape))
    if values is not None:
        shapes = (shapes[0], numbers.shape(values.shape))
    value_range = facts.pop("values", None)
    rows: list[tuple[str, str, str]] = []
    for name, (left, right) in facts.items():
        rows.append((name if len(name) <= label_width - 1 else "scale / zp", left, right))
        if name == "tensor":
            rows.append(("type", _type_text(dtypes[0], shapes[0]), _type_text(dtypes[1], shapes[1])))
    if values is not None:
        rows += _value_rows(detail, values)
    elif ready is not None and ready.recorded is not None:
        rows += recorded_rows(ready.recorded)
    elif value_range is not None:
        rows.append(("min .. max", value_range[0].replace("..", " .. "), value_range[1].replace("..", " .. ")))
    is_read = ready is not None and (values is not None or ready.recorded is not None)
    # The sample has a line of its own if the column of labels is too narrow for it.
    line_above = place_text if is_read and len(place_text) >= label_width else ""
    text_beside = place_text if is_read and not line_above else ""
    header: Line = [
        (text_beside.ljust(label_width), "accent"),
        ("reference".ljust(column_width + 1), "accent"),
        ("backend", "accent"),
    ]
    lines: list[Line] = [[(glyphs.fit(line_above, width), "accent")], header] if line_above else [header]
    for row in rows:
        lines += _two_column_lines(row, label_width, column_width, glyphs)
    bins = bins_of(values) if values is not None else None if ready is None else recorded_bins(ready.recorded)
    return (
        lines
        if bins is None
        else [*lines, *histogram_lines(bins, label_width, column_width, glyphs, rows=_histogram_height(width))]
    )


def _two_column_lines(row: tuple[str, str, str], label_width: int, column_width: int, glyphs: GlyphSet) -> list[Line]:
    """Arrange both sides of a fact next to each other. Sentences are wrapped, and names are cut in the middle."""
    name, left, right = row
    cells = [
        textwrap.wrap(text, column_width, break_long_words=False, break_on_hyphens=False)
        if cell_len(text) > column_width
        else [text]
        for text in (left, right)
    ]
    style = "plain" if left != right or name == "tensor" else "muted"
    return [
        [
            ((name if not at else "").ljust(label_width), "muted"),
            (glyphs.fit(cells[0][at] if at < len(cells[0]) else "", column_width) + " ", "plain"),
            (glyphs.fit(cells[1][at] if at < len(cells[1]) else "", column_width), style),
        ]
        for at in range(max(map(len, cells)))
    ]


def _value_rows(detail: NodeDetail, values: ValueFacts) -> list[tuple[str, str, str]]:
    def both_sides(show: Callable[[SideValues], str]) -> tuple[str, str]:
        return show(values.reference), show(values.backend)

    def pair_text(first: float | None, second: float | None, between: str) -> str:
        return f"{numbers.number(first, digits=4)}{between}{numbers.number(second, digits=4)}"

    def range_text(side: SideValues, info: TensorInfo | None) -> str:
        if holds_integers(info):
            return f"{numbers.whole(side.low)} .. {numbers.whole(side.high)}"
        return pair_text(side.low, side.high, " .. ")

    rows = [
        ("min .. max", range_text(values.reference, detail.reference), range_text(values.backend, detail.backend)),
        ("mean, std", *both_sides(lambda side: pair_text(side.mean, side.std, ", "))),
    ]
    if any(side.nan or side.infinite for side in (values.reference, values.backend)):
        rows.append(
            ("NaN, inf", *both_sides(lambda side: f"{numbers.grouped(side.nan)}, {numbers.grouped(side.infinite)}"))
        )
    return rows


def _error_lines(result: NodeResult, width: int, glyphs: GlyphSet) -> list[Line]:
    """Return the size of the error over all samples, and how much of it the node adds itself."""
    is_beyond = result.status in _FAILING_STATUSES
    lines = _pack_items("error", _metric_items(result.metrics, _ERRORS), width, glyphs, is_failing=is_beyond)
    own_parts = () if result.constants is None else ("arithmetic", "constants")
    for name in ("introduced", *own_parts, "propagated"):
        part = getattr(result, name)
        if part is None:
            continue
        is_judged_part = name == (own_parts or ("introduced",))[0]
        judged_text = judged_words(result) if is_judged_part else None
        items = _metric_items(part, _PARTS if judged_text is None else _PARTS[:1])
        items = items if judged_text is None else [("judged", judged_text), *items]
        if name == "propagated" and result.relative_gain is not None:
            items.append(("gain", numbers.number(result.relative_gain)))
        is_failing = is_beyond and is_judged_part and result.declared is None
        lines += _pack_items(f"  {name}" if name in own_parts else name, items, width, glyphs, is_failing=is_failing)
    return lines


def _metric_items(stats: ErrorStats | None, titles: Sequence[str]) -> list[tuple[str, str]]:
    facts = {fact.title: fact.value for fact in metric_facts(stats)}
    if stats is not None:
        facts["mismatches"] += f" of {numbers.grouped(stats.count)}"
    items = []
    for title in titles:
        value = facts.get(title, numbers.MISSING)
        if value != numbers.MISSING and (title, value) != ("non-finite", "0"):
            items.append((title.removesuffix(" dB"), value.removesuffix(" LSB")))
    return items


def _clipping_lines(result: NodeResult, width: int, glyphs: GlyphSet) -> list[Line]:
    """Return the number of clipped values, and of codes at the ends, over all samples."""
    facts = dict(rail_facts(result.saturation))
    if not facts:
        return []
    items = [(short, facts[label]) for label, short in _RAIL_TITLES.items()]
    clipped_items, end_items = items[:_CLIPPED_COUNT], items[_CLIPPED_COUNT:]
    if all(text == "0" for _, text in clipped_items):  # one item instead of three zeros
        clipped_items = [("clipped", "nothing of the reference")]
    # The backend's own results, on its own inputs, may be out of range although the reference's values are not.
    own_text = row_cell(result, "clipping").text.removeprefix("+")
    if own_text != numbers.MISSING:
        title = "cut off the backend's own results" if _label_width(width) == _WIDE_LABEL else "of its own"
        clipped_items.append((title, f"up to {own_text}"))
    end_items = [(short, text) for short, text in end_items if short != "Relu's zero" or text != "0"]
    return _pack_items("codes", [*clipped_items, *end_items], width, glyphs)


def _pack_items(
    label: str, items: Sequence[tuple[str, str]], width: int, glyphs: GlyphSet, *, is_failing: bool = False
) -> list[Line]:
    """Arrange "title value" items one after another, on as many lines as they need."""
    indent = _label_width(width)
    lines: list[Line] = []
    line: Line = [(label.ljust(indent), "muted")]
    used_width = indent
    for title, value in items:
        value_width = max(width - indent - len(title) - 1, 1)
        value = glyphs.transliterate(value) if len(value) <= value_width else glyphs.fit(value, value_width)  # noqa: PLW2901  cut to fit
        size = len(title) + len(value) + 1
        if used_width + size > width and len(line) > 1:
            lines.append(line)
            line, used_width = [(" " * indent, "muted")], indent
        line += [
            (f"{glyphs.transliterate(title)} ", "muted"),
            (f"{value}   ", "fail" if is_failing and title in _JUDGED_TITLES else "plain"),
        ]
        used_width += size + 3
    return [*lines, line] if len(line) > 1 else lines


def _sample_lines(result: NodeResult, sample: int | None, width: int, glyphs: GlyphSet) -> list[Line]:
    """Draw the error of each sample relative to its signal, and name the worst sample."""
    sample_count = len(result.samples)
    if sample_count < 2:
        return []
    errors = sample_errors(result.samples)
    is_finite = np.isfinite(errors)
    top = float(np.max(errors, initial=0.0, where=is_finite)) or 1.0
    heights = np.where(is_finite, errors, top)  # a full bar if not finite
    indent, bar_width = _label_width(width), max(width // 3, 8)
    bar_text = (
        bars(pool(heights, bar_width) if sample_count > bar_width else heights, glyphs) if errors.any() else "no error"
    )
    position = next(
        (at for at, sample_result in enumerate(result.samples) if sample_result.sample == sample), int(errors.argmax())
    )
    sample_result = result.samples[position]
    shows_status = (
        any(judged_sample.status in _FAILING_STATUSES for judged_sample in result.samples)
        or result.status not in _FAILING_STATUSES
    )
    label = "shown" if sample_result.sample == sample else "worst SQNR"
    label += f": sample {sample_result.sample} of 0..{sample_count - 1}: "
    label += f"{sample_result.status}, " if shows_status else ""  # each sample may be within while all together fail
    label += f"{numbers.number(sample_result.sqnr_db)} dB, max abs {numbers.number(sample_result.max_abs)}"
    header: Line = [("samples".ljust(indent), "muted"), (bar_text + "  ", "fine")]
    if indent + len(bar_text) + 2 + len(label) <= width:
        return [[*header, (label, "plain")]]
    lines = wrap(glyphs.transliterate(label), max(width - indent, 10))
    return [header, *([(" " * indent, "muted"), (line, "plain")] for line in lines)]


def _worst_lines(ready: DetailReady, width: int, glyphs: GlyphSet, *, steps: int, is_constant: bool) -> list[Line]:
    rows = worst_rows(ready.worst)
    if not rows:
        return [] if ready.is_complete else [[("looking for the worst elements ..", "muted")]]
    columns = [list(column) for column in zip(_WORST_TITLES, *rows, strict=True)]
    if is_constant:  # constants have no samples
        del columns[1]
    elif steps > 1:  # with several steps, the heading names the sample, and each line its step
        columns[1] = ["step", *(str(element.step) for element in ready.worst)]
    columns = [column for column in columns if set(column[1:]) != {numbers.MISSING}]
    widths = [max(map(len, column)) for column in columns]
    for title in _OPTIONAL_COLUMNS:
        position = next((position for position, column in enumerate(columns) if column[0] == title), None)
        if position is not None and sum(widths) + 2 * len(widths) > width:
            del widths[position], columns[position]
    scope_text = (
        f" of sample {ready.values_sample}, all {steps} steps" if steps > 1 else f" of sample {ready.values_sample}"
    )
    scope_text = "" if is_constant else scope_text
    lines: list[Line] = [[(f"worst elements{scope_text}", "accent")]]
    for number, cells in enumerate(zip(*columns, strict=True)):
        text = "  ".join(cell.rjust(size) for cell, size in zip(cells, widths, strict=True))
        lines.append([(glyphs.transliterate(text), "muted" if number == 0 else "plain")])
    return lines


def _wrap_lines(text: str, width: int, style: str, glyphs: GlyphSet) -> list[Line]:
    """Break safe text into lines at spaces."""
    return [[(line, style)] for line in wrap(glyphs.transliterate(safe_text(text)), max(width, 10))]
