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
from qdebug.tui.elements.summing import MOST_CHANNELS, Whole
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.elements import ElementCursor, ElementsView, alone, of_sample, so_far, waiting, waiting_lines
from qdebug.tui.views.view import Line, Scene, Table, Target, heading, in_part, paragraph, window

__all__ = ["ChannelsView", "weight_scales"]

_BAR = 10
_FIXED = 2
"""Number of columns that stay when the others are scrolled: the channel and its error."""
_SHARE = 15
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
    lists = True
    has_worst = False  # the order of the lines says it

    def __init__(self, cursor: ElementCursor, look: Look | None = None) -> None:
        super().__init__(cursor, look)
        self.by_error = True
        self._offset = self._hidden = 0  # columns left out on the left, and on the right
        self._shown: dict[int, int] = {}

    def draw(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Draw the list."""
        whole = self._cursor.whole(scene)
        extra = "" if whole is None else f"by {'error' if self.by_error else 'number'}, s changes"
        head = heading(scene, width, extra)
        if alone(scene):
            why = safe_text(f"not compared: {scene.planned.missing}")
            return [head, [], *paragraph(why, scene, width), [], *paragraph(alone(scene), scene, width)]
        if whole is None:
            return waiting_lines(scene, head, width)
        order = self._order(whole)
        if not len(order):
            return [head, [], *paragraph(_none(whole), scene, width)]
        columns = _columns(scene, whole)
        self._offset = min(self._offset, max(len(columns) - _FIXED - 1, 0))
        del columns[_FIXED : _FIXED + self._offset]
        here = self._channel(whole)
        place = _place(order, here)
        room = max(height - (4 if whole.missing else 3), 1)
        shown = window(place, len(order), room)
        rows = order[shown.start : shown.stop]
        part = in_part(shown, len(order))
        head = heading(scene, width, f"{extra}{f', lines{part}' if part else ''}")
        texts = [[column[1](int(channel)) for channel in rows] for column in columns]
        sizes = [max(len(column[0]), *map(len, cells)) for column, cells in zip(columns, texts, strict=True)]
        fit = len(columns)
        while fit > _FIXED + 1 and 2 + sum(sizes[:fit]) + 2 * fit + _SHARE + _mark(self._offset, columns, fit) > width:
            fit -= 1
        self._hidden = len(columns) - fit
        heads = "  ".join(column[0].rjust(size) for column, size in zip(columns[:fit], sizes, strict=False))
        more = f" {'<' if self._offset else ''}{'>' if self._hidden else ''}".rstrip()
        lines = [head, [(f"  {heads}  share of error{more}", "accent")]]
        if whole.missing:
            lines.insert(1, [(scene.glyphs.fit(so_far(whole.so_far, width), width), "accent")])
        self._shown = {len(lines) + at: int(channel) for at, channel in enumerate(rows)}
        for at, channel in enumerate(rows):
            chosen = int(channel) == here
            cells = "  ".join(texts[column][at].rjust(sizes[column]) for column in range(fit))
            share = float(whole.channels.share[channel])
            style = "cursor" if chosen else "plain"
            lines.append(
                [
                    (scene.glyphs.cursor + " " if chosen else "  ", "cursor"),
                    (scene.glyphs.plain(cells), style),
                    ("  " + _bar(share, scene), "fail" if share > 0.2 else "fine"),
                ]
            )
        many = f"{len(order)}" if not whole.missing else f"{len(order)} of {whole.shape[whole.axis]}"
        noun = "channel" if many == "1" else "channels"
        sample = of_sample(scene)
        title = f" {many} {noun} along dimension {whole.axis}{' of ' if sample else ''}{sample}; min, max: backend"
        foot = paragraph(title.strip(), scene, width)
        fits = len(lines) + len(foot) <= height
        return [*lines, *(foot if fits else [[(scene.glyphs.fit_end(title, width), "muted")]])]

    def move(self, scene: Scene, lines: int) -> str:
        """Select another channel in the order shown."""
        whole = self._cursor.whole(scene)
        if whole is None:
            return alone(scene) or waiting(scene)
        order = self._order(whole)
        if not whole.shape or not len(order):
            return _none(whole)
        place = _place(order, self._channel(whole))
        target = min(max(place + lines, 0), len(order) - 1)
        if target == place:
            return "this is the first channel" if lines < 0 else "this is the last channel"
        return self._cursor.step(scene, whole.axis, int(order[target]) - self._channel(whole))

    def click(self, scene: Scene, _: int, line: int) -> Target | str | None:
        """Select the channel on a line, or open its map if it is already selected."""
        whole, channel = self._cursor.whole(scene), self._shown.get(line)
        if whole is None or channel is None or not whole.shape:
            return None
        by = channel - self._channel(whole)
        return self._cursor.step(scene, whole.axis, by) if by else self.enter(scene)

    def table(self, scene: Scene) -> Table | None:
        """Return the listed channels, with everything known about each."""
        whole = self._cursor.whole(scene)
        facts = None if whole is None else whole.channels
        if facts is None or whole is None:
            return None
        names: tuple[str, ...] = ("rmse", "max_abs", "share", "min", "max")
        arrays = [facts.rmse, facts.max_abs, facts.share, facts.low, facts.high]
        if len(facts.clipped):
            names, arrays = (*names, "clipped"), [*arrays, facts.clipped]
        lines = [[int(at), *(array[at].item() for array in arrays)] for at in self._order(whole)]
        return ("channel", *names), lines

    def channel(self, scene: Scene, direction: int) -> str:
        """Select the next or previous channel in the order shown."""
        return self.move(scene, direction)

    def side(self, scene: Scene, direction: int) -> str:
        """Show the columns further right or left."""
        if self._cursor.whole(scene) is None:
            return alone(scene) or waiting(scene)
        if direction > 0 and not self._hidden:
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
        if scene.planned.side:
            return alone(scene)
        self.by_error = not self.by_error
        return f"channels by {'error, worst first' if self.by_error else 'number'}"

    def _channel(self, whole: Whole) -> int:
        return self._cursor.index[whole.axis] if whole.shape else 0

    def _order(self, whole: Whole) -> np.ndarray:
        """Return the channels of which at least one element was read."""
        read = np.flatnonzero(whole.channels.read) if whole.missing else np.arange(len(whole.channels.read))
        if not self.by_error:
            return read
        worst = np.nan_to_num(whole.channels.rmse[read], nan=np.inf, posinf=np.inf)
        return read[np.argsort(-worst, kind="stable")]


def _none(whole: Whole) -> str:
    """Return why there are no channels to list."""
    many = whole.shape[whole.axis] if whole.shape else 1
    if many <= MOST_CHANNELS:
        return "the tensor has no channels"
    return f"the tensor has {numbers.grouped(many)} channels, too many to list; the map (5, v) shows them pooled"


def _place(order: np.ndarray, channel: int) -> int:
    """Return the line of a channel; the first line until the channel is read."""
    places = np.flatnonzero(order == channel)
    return int(places[0]) if len(places) else 0


def _bar(share: float, scene: Scene) -> str:
    if np.isnan(share):
        return "not finite"
    full = int(share * _BAR)
    rest = bars(np.array([share * _BAR - full]), scene.glyphs, top=1.0) if full < _BAR else ""
    some, most = 0 < share < 0.005, 0.995 <= share < 1  # none and all are said only of none and all
    text = "<1%" if some else ">99%" if most else f"{share:.0%}"
    return (scene.glyphs.eighths[-1] * full + rest).ljust(_BAR) + f" {text:>4}"


def _mark(offset: int, columns: Sequence[object], fit: int) -> int:
    """Return the cells of the mark for columns that are left out."""
    return (offset > 0) + (fit < len(columns))


def _columns(scene: Scene, whole: Whole) -> list[tuple[str, Write]]:
    """Return the headings and the function that writes a channel under each, important ones first."""
    facts = whole.channels

    def real(values: np.ndarray, digits: int = 3) -> Write:
        return lambda channel: numbers.number(float(values[channel]), digits=digits)

    columns: list[tuple[str, Write]] = [
        ("channel", str),
        ("RMSE", real(facts.rmse)),
        ("max abs", real(facts.max_abs)),
        ("min", real(facts.low)),
        ("max", real(facts.high)),
    ]
    if len(facts.clipped):
        columns.append(("clipped", lambda channel: numbers.grouped(int(facts.clipped[channel]))))
    columns += _scales("scale", whole.quant)
    columns += _scales("ref scale", whole.reference_quant)
    for name, quant in weight_scales(scene, len(facts.rmse)):
        columns.append((f"{name} scale", real(quant.scale.ravel(), 4)))
        if np.any(quant.zero_point):
            columns.append((f"{name} zp", _whole(quant.zero_point.ravel())))
    return columns


def _whole(values: np.ndarray) -> Write:
    return lambda channel: str(int(values[channel]))


def _scales(title: str, quant: QuantParams | None) -> list[tuple[str, Write]]:
    if quant is None or quant.block_size is not None:
        return []
    scales, zeros = quant.scale.ravel(), quant.zero_point.ravel()
    own = len(scales) > 1 and quant.axis is not None

    def scale(channel: int) -> str:
        return numbers.number(float(scales[channel if own and channel < len(scales) else 0]), digits=4)

    def zero(channel: int) -> str:
        return str(int(zeros[channel if own and channel < len(zeros) else 0]))

    return [(title, scale), (title.replace("scale", "zp"), zero)]


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
        ("w", scene.opened.backend_graph, scene.planned.tensor),
        ("ref w", scene.opened.reference_graph, scene.planned.reference_tensor),
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
