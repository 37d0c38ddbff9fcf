"""Plots as inline SVG: the error along the network, its parts, histograms, heat maps. CSS classes give the colours."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence

from qdebug.compare.result.node_result import breaks_limit, is_beyond, is_excused
from qdebug.compare.result.result import NodeResult, Status
from qdebug.numerics.channels import ChannelErrors
from qdebug.present import numbers
from qdebug.present.error_bars import Bar
from qdebug.present.rows import badness
from qdebug.present.text import safe_text, shorten

__all__ = [
    "Element",
    "channel_map",
    "count_nodes_per_column",
    "element",
    "error_profile",
    "facts",
    "histogram",
    "parts_plot",
    "sample_map",
    "table",
    "to_html",
]

Element = ET.Element
"""An element of the page."""

_TEXT_LIMIT = 4000
_ATTRIBUTE_LIMIT = 1000
_DRAWING_LIMIT = 1 << 24
"""Maximum number of characters in a plot's line, which must not be shortened in the middle."""


def element(tag: str, /, *children: Element | str | None, **attributes: object) -> Element:
    """Make an element.

    Args:
        tag: Its tag name.
        *children: Elements and texts in order. None is left out.
        **attributes: Attributes by name, with "_" for "-" and a trailing one removed (`class_`). None is left out.
    """
    attribute_texts = {
        name.rstrip("_").replace("_", "-"): safe_text(value, limit=_DRAWING_LIMIT if name == "d" else _ATTRIBUTE_LIMIT)
        for name, value in attributes.items()
        if value is not None
    }
    new_element = ET.Element(tag, attribute_texts)
    for child in children:
        if isinstance(child, str):
            _add_text(new_element, safe_text(child, limit=_TEXT_LIMIT))
        elif child is not None:
            new_element.append(child)
    return new_element


def _add_text(parent: Element, text: str) -> None:
    if len(parent):
        parent[-1].tail = (parent[-1].tail or "") + text
    else:
        parent.text = (parent.text or "") + text


def table(titles: Iterable[str], rows: Iterable[Iterable[Element | str]], **attributes: object) -> Element:
    """Make a table that scrolls sideways if it is too wide.

    Args:
        titles: Headings.
        rows: Cells of each row: texts, or elements that are cells already.
        **attributes: Attributes of the table.
    """
    head = element("thead", element("tr", *(element("th", title, scope="col") for title in titles)))
    body = element("tbody")
    for row in rows:
        body.append(element("tr", *(cell if isinstance(cell, Element) else element("td", cell) for cell in row)))
    return element("div", element("table", head, body, **attributes), class_="scroll")


def facts(labelled_values: Iterable[tuple[str, str | Element]]) -> Element:
    """Make a list of labelled facts."""
    fact_list = element("dl")
    for label, value in labelled_values:
        fact_list.append(element("dt", label))
        fact_list.append(element("dd", value))
    return fact_list


def to_html(root: Element) -> str:
    """Return an element as HTML text."""
    return ET.tostring(root, encoding="unicode", method="html")


_WIDTH, _HEIGHT = 720, 312
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 12, 68, 72
_COLUMNS = 240
"""Maximum number of columns of a plot along the network. If there are more nodes, neighbours share a column."""
_LARGE_DOTS = 60
"""Maximum number of columns for which dots are drawn large enough to click easily."""
_SHADES = 9
_MAX_CHANNEL_CELLS = 256
_MIN_BAR_HEIGHT = 2
"""Height of a bar whose value is at or below the baseline."""
_MAX_DECADES = 7
"""Number of decades that a logarithmic axis extends down from the largest value."""


def count_nodes_per_column(nodes: Sequence[NodeResult]) -> int:
    """Return how many neighbouring nodes share each column of a plot along the network."""
    return -(-len(nodes) // _COLUMNS) or 1


class _Frame:
    """The area of a plot, with nodes or groups of neighbouring nodes as columns and values as heights."""

    def __init__(self, nodes: Sequence[NodeResult], low: float, high: float, *, title: str) -> None:
        self._low, self._span = low, (high - low) or 1.0
        nodes_per_column = count_nodes_per_column(nodes)
        self.columns = [
            range(at, min(at + nodes_per_column, len(nodes))) for at in range(0, len(nodes), nodes_per_column)
        ]
        self.nodes_per_column = nodes_per_column
        self.column_width = (_WIDTH - _LEFT - _RIGHT) / max(len(self.columns), 1)
        self.bottom = _HEIGHT - _BOTTOM
        self.root = element("svg", element("title", title), viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img")
        last = len(nodes) - 1
        for position in sorted({round(share * last) for share in (0, 0.25, 0.5, 0.75, 1)}):
            at = self.x(position // nodes_per_column)
            anchor = "end" if position == last > 0 else "middle"
            self.root.append(
                element("text", f"#{nodes[position].index}", x=f"{at:.1f}", y=self.bottom + 40, text_anchor=anchor)
            )

    def x(self, column: float) -> float:
        """Return the centre of a column."""
        return _LEFT + (column + 0.5) * self.column_width

    def y(self, value: float) -> float:
        """Return the vertical position of a value."""
        share = (value - self._low) / self._span
        return self.bottom - min(1.0, max(0.0, share)) * (self.bottom - _TOP)

    def axis(self, ticks: Iterable[tuple[float, str]]) -> None:
        """Draw horizontal lines at the given values."""
        for value, label in ticks:
            at = f"{self.y(value):.1f}"
            self.root.append(element("path", class_="axis", d=f"M{_LEFT} {at}H{_WIDTH - _RIGHT}"))
            self.root.append(element("text", label, x=_LEFT - 6, y=f"{self.y(value) + 5:.1f}", text_anchor="end"))

    def known_values(self, values: Sequence[float | None]) -> list[tuple[int, list[float]]]:
        """Return the known values of each column that has any."""
        values_by_column = [
            (column, [value for at in positions if (value := values[at]) is not None])
            for column, positions in enumerate(self.columns)
        ]
        return [(column, inside) for column, inside in values_by_column if inside]

    def line(self, values: Iterable[tuple[int, float]], class_: str) -> None:
        """Draw one value per column as a line, with gaps for missing values."""
        steps, previous_column = [], None
        for column, value in values:
            # A value between two gaps is drawn as a dot: a line of length 0 with round caps.
            is_joined = previous_column == column - 1
            steps.append(
                f"{'L' if is_joined else 'M'}{self.x(column):.1f} {self.y(value):.1f}{'' if is_joined else 'h0'}"
            )
            previous_column = column
        if steps:
            self.root.append(element("path", class_=class_, d="".join(steps)))

    def bars(self, spans: Iterable[tuple[int, float, float]], class_: str, *, share: float = 1.0) -> None:
        """Draw a bar per column, from one value to another, as wide as a share of the column."""
        steps = [
            f"M{self.x(column):.1f} {self.y(low):.1f}V{min(self.y(high), self.y(low) - _MIN_BAR_HEIGHT):.1f}"
            for column, low, high in spans
        ]
        if steps:
            width = f"{max(1.0, self.column_width * share):.2f}"
            self.root.append(element("path", class_=class_, d="".join(steps), stroke_width=width))


def error_profile(
    nodes: Sequence[NodeResult],
    *,
    prefix: str,
    shown: frozenset[int] | None = None,
    floor: float | None = None,
    marked: frozenset[int] = frozenset(),
) -> Element:
    """Draw the SQNR of every node along the network. If nodes share a column, draw a band from the worst to the best.

    Args:
        nodes: All nodes, in topological order.
        prefix: Prefix of the ids of their rows, for links.
        shown: Numbers of the nodes that have a row, or None for all.
        floor: An SQNR limit to draw, or None.
        marked: Numbers of nodes to mark.
    """
    sqnr = [None if node.metrics is None else node.metrics.sqnr_db for node in nodes]
    finite = [value if value is not None and math.isfinite(value) else None for value in sqnr]
    low = max(min([0.0, *(math.floor(value / 10) * 10 for value in finite if value is not None)]), -60.0)
    high = max([20.0, *(math.ceil(value / 10) * 10 for value in finite if value is not None)])
    frame = _Frame(nodes, low, high, title="SQNR in dB along the net, higher is better")
    step = 10 * max(1, math.ceil((high - low) / 60))
    frame.axis((value, f"{value:g}") for value in range(int(low), int(high) + 1, step))
    if floor is not None:
        frame.root.append(element("path", class_="limit", d=f"M{_LEFT} {frame.y(floor):.1f}H{_WIDTH - _RIGHT}"))
    known_values = frame.known_values(finite)
    if frame.nodes_per_column > 1:
        frame.bars(((column, min(inside), max(inside)) for column, inside in known_values), "band")
    frame.line(((column, min(inside)) for column, inside in known_values), "trace")
    if math.inf in sqnr:
        frame.root.append(element("text", "equal", x=_LEFT - 6, y=_TOP - 20, text_anchor="end"))
        if frame.nodes_per_column > 1:
            equal_columns = [
                column for column, inside in enumerate(frame.columns) if any(sqnr[at] == math.inf for at in inside)
            ]
            marks = "".join(f"M{frame.x(column):.1f} {_TOP - 31}v8" for column in equal_columns)
            frame.root.append(
                element("path", class_="same", d=marks, stroke_width=f"{max(1.0, frame.column_width):.2f}")
            )
    if any(value is None or math.isnan(value) for value in sqnr):
        frame.root.append(element("text", "no SQNR: not finite, or not compared", x=_LEFT, y=_HEIGHT - 4))
    for column, positions in enumerate(frame.columns):
        worst = positions if frame.nodes_per_column == 1 else _worst_of(nodes, positions)
        for position in dict.fromkeys([*worst, *(at for at in positions if nodes[at].index in marked)]):
            node, value = nodes[position], sqnr[position]
            if value == math.inf:
                at = _TOP - 26.0
            else:
                at = frame.bottom + 18.0 if value is None or math.isnan(value) else frame.y(max(value, low))
            size = 1.6 if len(frame.columns) <= _LARGE_DOTS else 1.0
            frame.root.append(
                _draw_dot(
                    node,
                    frame.x(column),
                    at,
                    prefix,
                    size=size,
                    linked=shown is None or node.index in shown,
                    marked=node.index in marked,
                )
            )
    first = next((position for position, node in enumerate(nodes) if is_beyond(node)), None)
    if first is not None:
        frame.root.append(_draw_flag(nodes[first], frame.x(first // frame.nodes_per_column)))
    return frame.root


def _worst_of(nodes: Sequence[NodeResult], positions: Iterable[int]) -> list[int]:
    """Return the worst of the given nodes that break a limit or could not be compared, or nothing."""
    failing_positions = [at for at in positions if breaks_limit(nodes[at]) or nodes[at].status is Status.INCOMPARABLE]
    return sorted(failing_positions, key=lambda at: badness(nodes[at]))[:1]


def _draw_flag(node: NodeResult, x: float) -> Element:
    """Draw a line at the first divergence, with its name at the top."""
    name = f"first: #{node.index} {shorten(safe_text(node.node), 24)}"
    end = x > _WIDTH / 2
    at = {"x": f"{x - 6 if end else x + 6:.1f}", "y": 18, "text_anchor": "end" if end else "start"}
    line = element("path", class_="flag", d=f"M{x:.1f} 4V{_HEIGHT - _BOTTOM}")
    return element("g", line, element("text", name, class_="diverged", **at))


def _draw_dot(
    node: NodeResult, x: float, y: float, prefix: str, *, size: float, linked: bool, marked: bool = False
) -> Element:
    is_excused_failure = is_excused(node) and breaks_limit(node)
    classes = f"dot {node.status}{' acknowledged' if is_excused_failure else ''}{' marked' if marked else ''}"
    sqnr = None if node.metrics is None else node.metrics.sqnr_db
    status = f"{node.status}{', acknowledged' if is_excused_failure else ''}"
    tooltip = f"#{node.index} {node.node}: {status}, SQNR {numbers.number(sqnr)} dB"
    is_large = marked or breaks_limit(node) or node.status is Status.INCOMPARABLE
    radius = f"{(3.5 if is_large else 2.2) * size:.1f}"
    circle = element("circle", element("title", tooltip), class_=classes, cx=f"{x:.1f}", cy=f"{y:.1f}", r=radius)
    # Dots are skipped by the Tab key: the table has the same links, and there may be hundreds of dots.
    return element("a", circle, href=f"#{prefix}{node.index}", tabindex=-1) if linked else circle


def parts_plot(nodes: Sequence[NodeResult]) -> Element | None:
    """Draw the introduced and the propagated error of each node relative to the signal. Return None if none is known.

    If nodes share a column, the largest error of either kind is drawn.

    Args:
        nodes: All nodes, in topological order.
    """
    introduced = [None if node.introduced is None else _log10(node.introduced.rel_l2) for node in nodes]
    propagated = [None if node.propagated is None else _log10(node.propagated.rel_l2) for node in nodes]
    finite = [value for value in (*introduced, *propagated) if value is not None]
    if not finite:
        return None
    high = math.ceil(max(finite))
    lowest = math.floor(min(finite))
    low = min(max(lowest, high - _MAX_DECADES), high - 1)
    frame = _Frame(nodes, low, high, title="relative error, introduced and propagated, along the net; lower is better")
    step = max(1, math.ceil((high - low) / 6))
    ticks = range(low, high + 1, step)
    frame.axis((power, f"{'<' if power == low > lowest else ''}1e{power}") for power in ticks)
    frame.bars(((column, low, max(inside)) for column, inside in frame.known_values(propagated)), "passed")
    frame.bars(((column, low, max(inside)) for column, inside in frame.known_values(introduced)), "own", share=0.45)
    for at, (label, class_) in enumerate((("introduced", "ownfill"), ("propagated", "passedfill"))):
        x = _LEFT + at * 190
        frame.root.append(element("rect", class_=class_, x=x, y=10, width=14, height=14))
        frame.root.append(element("text", label, x=x + 22, y=23))
    frame.root.append(element("text", "gap: no error, or unknown", x=_LEFT, y=_HEIGHT - 4))
    return frame.root


def _log10(value: float | None) -> float | None:
    return math.log10(value) if value is not None and math.isfinite(value) and value > 0 else None


def sample_map(nodes: Sequence[NodeResult], samples: Sequence[int]) -> Element:
    """Draw the SQNR of nodes by sample: one row per node, one column per sample, in a stronger colour for worse.

    Args:
        nodes: The nodes of the rows.
        samples: Numbers of the samples of the columns.
    """
    width, label, side = 480, 190, 17
    cell_width = max(4.0, min(28.0, (width - label) / max(1, len(samples))))
    root = element("svg", viewBox=f"0 0 {width} {side * len(nodes) + 28}", role="img", class_="narrow")
    root.append(element("title", "SQNR by node and sample, stronger is worse"))
    for row, node in enumerate(nodes):
        y = row * side
        name = shorten(f"#{node.index} {safe_text(node.node)}", 25)
        root.append(element("text", name, x=label - 6, y=y + 13, text_anchor="end", class_="code"))
        by_sample = {entry.sample: entry for entry in node.samples}
        for column, sample in enumerate(samples):
            entry = by_sample.get(sample)
            value = None if entry is None else entry.sqnr_db
            cell = element(
                "rect",
                element("title", f"{node.node}, sample {sample}: SQNR {numbers.number(value)} dB"),
                class_=_shade_class(value),
                x=f"{label + column * cell_width:.1f}",
                y=y,
                width=f"{cell_width - 1:.1f}",
                height=side - 1,
            )
            root.append(cell)
    ends = f"sample {samples[0]}" if len(samples) == 1 else f"samples {samples[0]} to {samples[-1]}"
    root.append(element("text", ends, x=label, y=side * len(nodes) + 22))
    return root


def _shade_class(sqnr: float | None) -> str:
    """Return the class of a cell: faintest for at least 60 dB, strongest for at most 0 dB."""
    if sqnr is None:
        return "hnone"
    if math.isnan(sqnr):
        return "hbad"
    return f"h{round((1 - min(1.0, max(0.0, sqnr / 60))) * (_SHADES - 1))}"


def channel_map(channels: ChannelErrors) -> Element:
    """Draw the SQNR of each channel, in a stronger colour for worse. A cell for several channels shows the worst.

    Args:
        channels: The error of each channel.
    """
    values = channels.sqnr_db.tolist()
    is_nonfinite = channels.nonfinite.tolist()
    nodes_per_column = -(-len(values) // _MAX_CHANNEL_CELLS) or 1
    groups = [
        range(first, min(first + nodes_per_column, len(values))) for first in range(0, len(values), nodes_per_column)
    ]
    columns_per_row = 64 if len(groups) > 32 else max(1, len(groups))
    side = 15
    rows = -(-len(groups) // columns_per_row)
    root = element("svg", viewBox=f"0 0 {_WIDTH} {rows * side + 4}", role="img")
    root.append(element("title", f"SQNR by channel along axis {channels.axis}, stronger is worse"))
    for column, group in enumerate(groups):
        has_bad_channel = any(is_nonfinite[channel] or math.isnan(values[channel]) for channel in group)
        value = math.nan if has_bad_channel else min(values[channel] for channel in group)
        name = f"channel {group[0]}" if len(group) == 1 else f"the worst of channels {group[0]} to {group[-1]}"
        root.append(
            element(
                "rect",
                element("title", f"{name}: SQNR {numbers.number(value)} dB"),
                class_=_shade_class(value),
                x=column % columns_per_row * side,
                y=column // columns_per_row * side,
                width=side - 1,
                height=side - 1,
            )
        )
    return root


def histogram(bars: Sequence[Bar], over: Sequence[Bar] = (), *, title: str) -> Element:
    """Draw bars side by side, and a second histogram over the same bins as an outline.

    Args:
        bars: The bars.
        over: The second histogram, or empty.
        title: What is counted.
    """
    width, height, foot, head = 640, 220, 30, 22
    root = element("svg", viewBox=f"0 0 {width} {height}", role="img")
    root.append(element("title", title))
    bar_width = width / max(1, len(bars))
    plot_height = height - foot - head
    for column, bar in enumerate(bars):
        # A nonzero count stays visible, however small it is.
        bar_height = max(bar.length * plot_height, 1.0) if bar.count else 0.0
        tooltip = f"{bar.label}: {numbers.grouped(bar.count)}"
        if over:
            tooltip += f" and {numbers.grouped(over[column].count)}"
        shape = element(
            "rect",
            class_="bar",
            x=f"{column * bar_width:.1f}",
            y=f"{head + plot_height - bar_height:.1f}",
            height=f"{bar_height:.1f}",
        )
        shape.set("width", f"{max(1.0, bar_width - 1):.1f}")
        shape.append(element("title", tooltip))
        root.append(shape)
    if over:
        steps = [f"M0 {head + plot_height}"]
        for column, bar in enumerate(over):
            bar_height = max(bar.length * plot_height, 1.0) if bar.count else 0.0
            steps.append(f"V{head + plot_height - bar_height:.1f}H{(column + 1) * bar_width:.1f}")
        root.append(element("path", class_="over", d="".join([*steps, f"V{head + plot_height}"])))
    if bars:
        root.append(element("text", bars[0].label, x=0, y=height - 6))
        root.append(element("text", bars[-1].label, x=width, y=height - 6, text_anchor="end"))
        highest_count = max(bar.count for bar in (*bars, *over))
        root.append(
            element("text", f"highest: {numbers.grouped(highest_count)} elements", x=width, y=16, text_anchor="end")
        )
    return root
