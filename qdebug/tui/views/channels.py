"""Error, range and scale of each channel, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
from textual.binding import Binding, BindingType

from qdebug.model import QuantParams
from qdebug.present import numbers
from qdebug.present.text import safe_text
from qdebug.tui.drawing.draw import bars
from qdebug.tui.drawing.look import Look
from qdebug.tui.elements.summing import MAX_CHANNELS, TensorStatistics
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.elements import (
    ElementCursor,
    ElementsView,
    one_side_note,
    sample_text,
    so_far_text,
    waiting_lines,
    waiting_text,
)
from qdebug.tui.views.view import Line, Scene, Table, Target, heading, lines_shown_text, paragraph, window

__all__ = ["ChannelsView", "weight_scales"]

_BAR_WIDTH = 10
_FIXED_COLUMNS = 2
"""Number of columns that stay when the others are scrolled: the channel and its error."""
_SHARE_WIDTH = 15
"""Cells for the share of the error: its bar and number, or its heading."""

Write = Callable[[int], str]
"""Returns the text of a fact about a channel."""


class ChannelsView(ElementsView):
    """One line per channel, sorted by error or by number."""

    view = ScreenId.CHANNELS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.open", "map", tooltip="open the map of the channel"),
        Binding("s", "sort", "sort", tooltip="sort by error, or by number"),
    ]
    is_list = True
    has_worst = False  # sorting by error shows the worst

    def __init__(self, cursor: ElementCursor, look: Look | None = None) -> None:
        super().__init__(cursor, look)
        self.by_error = True
        self._offset = self._hidden_count = 0  # numbers of columns hidden on the left and on the right
        self._channels_by_line: dict[int, int] = {}

    def draw(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Draw the list."""
        statistics = self._cursor.statistics(scene)
        extra = "" if statistics is None else f"by {'error' if self.by_error else 'number'}, s changes"
        header = heading(scene, width, extra)
        if one_side_note(scene):
            why = safe_text(f"not compared: {scene.plan_row.missing}")
            return [header, [], *paragraph(why, scene, width), [], *paragraph(one_side_note(scene), scene, width)]
        if statistics is None:
            return waiting_lines(scene, header, width)
        order = self._order(statistics)
        if not len(order):
            return [header, [], *paragraph(_no_channels_text(statistics), scene, width)]
        columns = _columns(scene, statistics)
        self._offset = min(self._offset, max(len(columns) - _FIXED_COLUMNS - 1, 0))
        del columns[_FIXED_COLUMNS : _FIXED_COLUMNS + self._offset]
        cursor_channel = self._cursor_channel(statistics)
        line = _line_of(order, cursor_channel)
        line_count = max(height - (4 if statistics.unread_count else 3), 1)
        visible_range = window(line, len(order), line_count)
        rows = order[visible_range.start : visible_range.stop]
        part_text = lines_shown_text(visible_range, len(order))
        header = heading(scene, width, f"{extra}{f', lines{part_text}' if part_text else ''}")
        texts = [[column[1](int(channel)) for channel in rows] for column in columns]
        sizes = [max(len(column[0]), *map(len, cells)) for column, cells in zip(columns, texts, strict=True)]
        fitting_count = len(columns)
        while (
            fitting_count > _FIXED_COLUMNS + 1
            and 2
            + sum(sizes[:fitting_count])
            + 2 * fitting_count
            + _SHARE_WIDTH
            + _mark_width(self._offset, columns, fitting_count)
            > width
        ):
            fitting_count -= 1
        self._hidden_count = len(columns) - fitting_count
        headings = "  ".join(
            column[0].rjust(size) for column, size in zip(columns[:fitting_count], sizes, strict=False)
        )
        scroll_marks = f" {'<' if self._offset else ''}{'>' if self._hidden_count else ''}".rstrip()
        lines = [header, [(f"  {headings}  share of error{scroll_marks}", "accent")]]
        if statistics.unread_count:
            lines.insert(1, [(scene.glyphs.fit(so_far_text(statistics.percent_read, width), width), "accent")])
        self._channels_by_line = {len(lines) + at: int(channel) for at, channel in enumerate(rows)}
        for at, channel in enumerate(rows):
            is_cursor = int(channel) == cursor_channel
            cells = "  ".join(texts[column][at].rjust(sizes[column]) for column in range(fitting_count))
            share = float(statistics.channels.share[channel])
            style = "cursor" if is_cursor else "plain"
            lines.append(
                [
                    (scene.glyphs.cursor + " " if is_cursor else "  ", "cursor"),
                    (scene.glyphs.transliterate(cells), style),
                    ("  " + _share_bar(share, scene), "fail" if share > 0.2 else "fine"),
                ]
            )
        count_text = (
            f"{len(order)}" if not statistics.unread_count else f"{len(order)} of {statistics.shape[statistics.axis]}"
        )
        noun = "channel" if count_text == "1" else "channels"
        of_sample = f" of {sample}" if (sample := sample_text(scene)) else ""
        title = f" {count_text} {noun} along dimension {statistics.axis}{of_sample}; min, max: backend"
        footer = paragraph(title.strip(), scene, width)
        fits_footer = len(lines) + len(footer) <= height
        return [*lines, *(footer if fits_footer else [[(scene.glyphs.fit_end(title, width), "muted")]])]

    def move(self, scene: Scene, lines: int) -> str:
        """Select another channel in the order shown."""
        statistics = self._cursor.statistics(scene)
        if statistics is None:
            return one_side_note(scene) or waiting_text(scene)
        order = self._order(statistics)
        if not statistics.shape or not len(order):
            return _no_channels_text(statistics)
        line = _line_of(order, self._cursor_channel(statistics))
        target = min(max(line + lines, 0), len(order) - 1)
        if target == line:
            return "this is the first channel" if lines < 0 else "this is the last channel"
        return self._cursor.move_along(scene, statistics.axis, int(order[target]) - self._cursor_channel(statistics))

    def click(self, scene: Scene, _: int, line: int) -> Target | str | None:
        """Select the channel on a line, or open its map if it is already selected."""
        statistics, channel = self._cursor.statistics(scene), self._channels_by_line.get(line)
        if statistics is None or channel is None or not statistics.shape:
            return None
        distance = channel - self._cursor_channel(statistics)
        return self._cursor.move_along(scene, statistics.axis, distance) if distance else self.enter(scene)

    def table(self, scene: Scene) -> Table | None:
        """Return the listed channels, with everything known about each."""
        statistics = self._cursor.statistics(scene)
        facts = None if statistics is None else statistics.channels
        if facts is None or statistics is None:
            return None
        names: tuple[str, ...] = ("rmse", "max_abs", "share", "min", "max")
        arrays = [facts.rmse, facts.max_abs, facts.share, facts.low, facts.high]
        if len(facts.clipped):
            names, arrays = (*names, "clipped"), [*arrays, facts.clipped]
        lines = [[int(at), *(array[at].item() for array in arrays)] for at in self._order(statistics)]
        return ("channel", *names), lines

    def channel(self, scene: Scene, direction: int) -> str:
        """Select the next or previous channel in the order shown."""
        return self.move(scene, direction)

    def side(self, scene: Scene, direction: int) -> str:
        """Show the columns further right or left."""
        if self._cursor.statistics(scene) is None:
            return one_side_note(scene) or waiting_text(scene)
        if direction > 0 and not self._hidden_count:
            return "there are no more columns on the right"
        if direction < 0 and not self._offset:
            return "there are no more columns on the left"
        self._offset += direction
        return ""

    def enter(self, _: Scene) -> Target | str:
        """Show where in the channel the error is."""
        return ScreenId.MAP

    def action_sort(self) -> None:
        """Sort by error, or by number."""
        self.stage.with_scene(self.reorder)

    def reorder(self, scene: Scene) -> str:
        """Sort by error, or by number."""
        if scene.plan_row.side:
            return one_side_note(scene)
        self.by_error = not self.by_error
        return f"channels by {'error, worst first' if self.by_error else 'number'}"

    def _cursor_channel(self, statistics: TensorStatistics) -> int:
        return self._cursor.index[statistics.axis] if statistics.shape else 0

    def _order(self, statistics: TensorStatistics) -> np.ndarray:
        """Return the channels of which at least one element was read."""
        channels_read = (
            np.flatnonzero(statistics.channels.element_counts)
            if statistics.unread_count
            else np.arange(len(statistics.channels.element_counts))
        )
        if not self.by_error:
            return channels_read
        errors = np.nan_to_num(statistics.channels.rmse[channels_read], nan=np.inf, posinf=np.inf)
        return channels_read[np.argsort(-errors, kind="stable")]


def _no_channels_text(statistics: TensorStatistics) -> str:
    """Return why there are no channels to list."""
    channel_count = statistics.shape[statistics.axis] if statistics.shape else 1
    if channel_count <= MAX_CHANNELS:
        return "the tensor has no channels"
    return (
        f"the tensor has {numbers.grouped(channel_count)} channels, too many to list; the map (5, v) shows them pooled"
    )


def _line_of(order: np.ndarray, channel: int) -> int:
    """Return the line of a channel; the first line until the channel is read."""
    places = np.flatnonzero(order == channel)
    return int(places[0]) if len(places) else 0


def _share_bar(share: float, scene: Scene) -> str:
    if np.isnan(share):
        return "not finite"
    full_cells = int(share * _BAR_WIDTH)
    last_cell = (
        bars(np.array([share * _BAR_WIDTH - full_cells]), scene.glyphs, top=1.0) if full_cells < _BAR_WIDTH else ""
    )
    is_tiny, is_nearly_all = 0 < share < 0.005, 0.995 <= share < 1  # must not be rounded to 0% and 100%
    text = "<1%" if is_tiny else ">99%" if is_nearly_all else f"{share:.0%}"
    return (scene.glyphs.eighths[-1] * full_cells + last_cell).ljust(_BAR_WIDTH) + f" {text:>4}"


def _mark_width(offset: int, columns: Sequence[object], fitting_count: int) -> int:
    """Return the width of the marks for hidden columns."""
    return (offset > 0) + (fitting_count < len(columns))


def _columns(scene: Scene, statistics: TensorStatistics) -> list[tuple[str, Write]]:
    """Return the heading of each column and a function that formats a channel's value, most important first."""
    facts = statistics.channels

    def real_writer(values: np.ndarray, digits: int = 3) -> Write:
        return lambda channel: numbers.number(float(values[channel]), digits=digits)

    columns: list[tuple[str, Write]] = [
        ("channel", str),
        ("RMSE", real_writer(facts.rmse)),
        ("max abs", real_writer(facts.max_abs)),
        ("min", real_writer(facts.low)),
        ("max", real_writer(facts.high)),
    ]
    if len(facts.clipped):
        columns.append(("clipped", lambda channel: numbers.grouped(int(facts.clipped[channel]))))
    columns += _scale_columns("scale", statistics.quant)
    columns += _scale_columns("ref scale", statistics.reference_quant)
    for name, quant in weight_scales(scene, len(facts.rmse)):
        columns.append((f"{name} scale", real_writer(quant.scale.ravel(), 4)))
        if np.any(quant.zero_point):
            columns.append((f"{name} zp", _integer_writer(quant.zero_point.ravel())))
    return columns


def _integer_writer(values: np.ndarray) -> Write:
    return lambda channel: str(int(values[channel]))


def _scale_columns(title: str, quant: QuantParams | None) -> list[tuple[str, Write]]:
    if quant is None or quant.block_size is not None:
        return []
    scales, zeros = quant.scale.ravel(), quant.zero_point.ravel()
    is_per_channel = len(scales) > 1 and quant.axis is not None

    def scale_text(channel: int) -> str:
        return numbers.number(float(scales[channel if is_per_channel and channel < len(scales) else 0]), digits=4)

    def zero_point_text(channel: int) -> str:
        return str(int(zeros[channel if is_per_channel and channel < len(zeros) else 0]))

    return [(title, scale_text), (title.replace("scale", "zp"), zero_point_text)]


def weight_scales(scene: Scene, channels: int) -> list[tuple[str, QuantParams]]:
    """Return the node's constants that have one scale per output channel, on either side.

    Args:
        scene: The node under the cursor.
        channels: Number of channels of its output.

    Returns:
        A short title and the quantization for each.
    """
    scales = []
    sides = (
        ("w", scene.opened.backend_graph, scene.plan_row.tensor),
        ("ref w", scene.opened.reference_graph, scene.plan_row.reference_tensor),
    )
    for title, graph, tensor in sides:
        node = graph.producer(tensor)
        for name in () if node is None else node.inputs:
            info = graph.tensors.get(name)
            if (
                info is not None
                and graph.is_constant(name)
                and info.quant is not None
                and info.quant.scale.size == channels > 1
            ):
                scales.append((title, info.quant))
    return scales
