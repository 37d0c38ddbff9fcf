"""Elements of both sides next to each other, with a shared cursor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import ClassVar

import numpy as np
from textual.binding import Binding, BindingType

from qdebug.model.dtypes import is_whole
from qdebug.present import numbers
from qdebug.present.rows import position
from qdebug.tui.drawing.look import Look
from qdebug.tui.elements.slab import Slab
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.elements import FORMS, ElementCursor, ElementsView, judged, of_sample, waiting_lines
from qdebug.tui.views.histograms import bins_of, histogram_lines
from qdebug.tui.views.recorded import recorded_bins
from qdebug.tui.views.view import Line, Scene, Target, heading, window

__all__ = ["ValuesView"]

_NUMBER = 9
"""Maximum number of characters of a number."""
_GAP = 2
"""Cells before an element: its mark, and the separator from its left neighbour."""
_LABEL = 6
_LEAST_ROWS = 3
"""Minimum number of rows of elements beside a histogram. If fewer fit, the histogram is hidden."""
_TITLE = 12
"""Cells before the histograms."""


class ValuesView(ElementsView):
    """A window into two dimensions. Each element is `reference -> backend (difference)`.

    The two dimensions are normally the last two. For a tensor that is completely in memory, such as the weight of a 1x1
    convolution, they are the last two with several elements. If there are few rows with many columns, as in a
    classifier's output, the last dimension runs down the screen.
    """

    view = ScreenId.VALUES
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("v", "screen.form", "codes, map", tooltip="form: real numbers, codes, hex, heat map of the plane"),
    ]

    def __init__(self, cursor: ElementCursor, look: Look | None = None) -> None:
        super().__init__(cursor, look)
        self._turned = False
        self._axes = (-2, -1)
        self._sizes: tuple[int, ...] = (1,)
        self._grid: tuple[int, range, range] = (0, range(0), range(0))

    def draw(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Draw the window."""
        slab = self._cursor.in_part(scene)
        form = self._cursor.form
        coded = "" if form == "real" else f", in {FORMS[form]}"
        head = heading(scene, width, "" if slab is None else f"{self._title(slab)}{coded}")
        if slab is None:
            return waiting_lines(scene, head, width)
        if not prod(slab.shape):
            return [head, [], [(" the tensor has no elements", "muted")]]
        foot = _element(scene, slab, self._cursor.index, width, self._cursor.rank(scene))
        drawn = _histograms(scene, width)
        foot = [*drawn, *foot] if height - len(drawn) - len(foot) - 4 >= _LEAST_ROWS else foot
        room = max(height - 2 - len(foot) - 2, 1)
        self._axes = _axes(slab)
        note = judged(scene) if slab.partial or scene.outcome is None else ""
        room = max(room - 1, 1) if note else room
        columns = self._fit(slab, width, room)
        where = _where(scene, slab, self._cursor.index, self._axes, turned=self._turned)
        lines: list[Line] = [head, [(scene.glyphs.fit_end(where, width), "muted")]]
        if note:
            lines.append([(scene.glyphs.fit(note, width), "accent")])
        top = len(lines)
        lines += self._window(scene, slab, columns, room)
        self._grid = (top + 1, *self._grid[1:])
        lines += [[] for _ in range(height - len(lines) - len(foot))]
        return [*lines, *foot]

    def _fit(self, slab: Slab, width: int, room: int) -> int:
        """Choose which dimension runs down, and the cells per part of an element. Return how many columns fit."""
        high, wide = _size(slab, self._axes)
        columns = 1
        for _ in range(2):  # how long the texts are depends on how many are seen
            self._turned = min(wide, room) * min(high, columns) > min(high, room) * min(wide, columns)
            _, rows, shown = self._shown(slab, columns, room)
            places = [at for row in rows for column in shown if (at := self._at(slab, row, column)) is not None]
            writers = self._writers(slab)
            self._sizes = tuple(max((len(write(at)) for at in places), default=1) for write in writers)
            heads = max(len(str(column)) for column in shown)
            self._sizes = (max(self._sizes[0], heads - sum(self._sizes[1:])), *self._sizes[1:])
            columns = max((width - _LABEL - 1) // self._cell, 1)
        lacking = _LABEL + 1 + self._cell - width  # of one column: then both sides are cut alike
        if lacking > 0:
            sides = self._sizes[:2]
            most = max((sum(sides) - lacking) // len(sides), 1)
            self._sizes = (*(min(size, most) for size in sides), *self._sizes[2:])
        return columns

    @property
    def _cell(self) -> int:
        """Cells of an element."""
        between = len(" -> ") + len(" ()") if len(self._sizes) > 1 else 0
        return _GAP + sum(self._sizes) + between

    def _writers(self, slab: Slab) -> tuple[Callable[[tuple[int, ...]], str], ...]:
        """Return a function that formats each part of an element."""
        writers = _writers(slab, self._cursor.form)
        return writers[1:2] if slab.alone else writers

    def move(self, scene: Scene, lines: int) -> str:
        """Move along the first of the two dimensions, or along the last one if that runs down."""
        return self._cursor.step(scene, self._axes[self._turned], lines)

    def side(self, scene: Scene, direction: int) -> str:
        """Move along the last of the two dimensions, or along the first one if the last runs down."""
        return self._cursor.step(scene, self._axes[not self._turned], direction)

    def next_form(self, scene: Scene) -> str | None:
        """Show the elements in the next form. The map follows the last form."""
        return self._cursor.next_form(scene)

    def click(self, _: Scene, column: int, line: int) -> Target | str | None:
        """Go to the element under the pointer."""
        top, rows, shown = self._grid
        place = line - top, (column - _LABEL) // self._cell
        if column < _LABEL or not (0 <= place[0] < len(rows) and 0 <= place[1] < len(shown)):
            return None
        row, across = rows[place[0]], shown[place[1]]
        return self._cursor.put(self._place(row, across))

    def enter(self, scene: Scene) -> Target | str:
        """Return a message that there is no deeper screen."""
        return f"this is the deepest screen on the {scene.planned.op or 'tensor'}; esc goes back"

    def _shown(self, slab: Slab, columns: int, room: int) -> tuple[tuple[int, int], range, range]:
        """Return the position of the cursor, down and across, and the rows and columns around it."""
        index = self._cursor.index
        cursor = tuple(index[axis] if -axis <= len(index) else 0 for axis in self._axes)
        size = _size(slab, self._axes)
        down, across = (cursor[::-1], size[::-1]) if self._turned else (cursor, size)
        rows, shown = window(down[0], across[0], room), window(down[1], across[1], columns)
        return (down[0], down[1]), rows, shown

    def _at(self, slab: Slab, row: int, column: int) -> tuple[int, ...] | None:
        return slab.local(self._place(row, column))

    def _place(self, row: int, column: int) -> tuple[int, ...]:
        """Return the index of the element at a line and column."""
        index = list(self._cursor.index)
        for axis, at in zip(self._axes, (column, row) if self._turned else (row, column), strict=True):
            if -axis <= len(index):
                index[axis] = at
        return tuple(index)

    def _title(self, slab: Slab) -> str:
        """Return the legend of a cell. Differences of codes are in LSB, and a side without codes shows real numbers."""
        if slab.alone:
            return slab.alone
        stepped = self._cursor.form != "real" and slab.quant is not None and slab.quant.block_size is None
        own = self._cursor.form == "codes" and slab.reference_codes is None
        return f"{'ref, real' if own else 'ref'} -> backend ({'LSB' if stepped else 'diff'})"

    def _window(self, scene: Scene, slab: Slab, columns: int, room: int) -> list[Line]:
        down, rows, shown = self._shown(slab, columns, room)
        self._grid = 0, rows, shown
        heads = "".join(str(column).rjust(self._cell) for column in shown)
        lines: list[Line] = [[(" " * _LABEL + heads, "muted")]]
        writers = self._writers(slab)
        for row in rows:
            here = row == down[0]
            line: Line = [(str(row).rjust(_LABEL), "cursor" if here else "muted")]
            for column in shown:
                at, chosen = self._at(slab, row, column), here and column == down[1]
                if at is None:  # on its way
                    line.append(("..".rjust(self._cell), "muted"))
                    continue
                texts = [_fitting(scene, write(at), size) for write, size in zip(writers, self._sizes, strict=True)]
                line += self._element(scene, slab, at, texts, chosen=chosen)
            lines.append(line)
        return lines

    def _element(self, scene: Scene, slab: Slab, at: tuple[int, ...], texts: Sequence[str], *, chosen: bool) -> Line:
        """Draw an element: its mark, both sides and their difference."""
        cut_off = _is_clipped(slab, at)
        sign = scene.glyphs.cursor if chosen else "^" if cut_off else " "
        first = "first" if chosen else "plain"
        line: Line = [(f" {sign}", "first" if chosen else "unknown"), (texts[0].rjust(self._sizes[0]), first)]
        if len(texts) == 1:
            return line
        style = "first" if chosen else "unknown" if cut_off else _style(slab, at, difference=False, chosen=chosen)
        line += [(" -> ", "muted"), (texts[1].rjust(self._sizes[1]), style)]
        difference = f" ({texts[2]})".rjust(self._sizes[2] + len(" ()"))
        return [*line, (difference, _style(slab, at, difference=True, chosen=chosen))]


def _axes(slab: Slab) -> tuple[int, int]:
    """Return the two dimensions that are shown, counted from the end."""
    several = [] if slab.partial else [axis for axis, size in enumerate(slab.shape, -len(slab.shape)) if size > 1]
    last = several[-1] if several else -1
    return (several[-2] if len(several) > 1 else last - 1), last


def _size(slab: Slab, axes: tuple[int, int]) -> tuple[int, int]:
    """Return the extents of two dimensions; 1 for a missing dimension."""
    first, last = (slab.shape[axis] if -axis <= len(slab.shape) else 1 for axis in axes)
    return first, last


def _fitting(scene: Scene, text: str, room: int) -> str:
    """Format an element for its cell, and mark it if it is cut."""
    return text if len(text) <= room else scene.glyphs.fit(text, room)


def _real(value: float, digits: int) -> str:
    """Format a number to fit an element's cell, dropping digits rather than truncating the exponent."""
    texts = (numbers.number(value, digits=some) for some in range(digits, 0, -1))
    return next((text for text in texts if len(text) < _NUMBER), numbers.number(value, digits=1))


def _is_clipped(slab: Slab, at: tuple[int, ...]) -> bool:
    return slab.clipped is not None and bool(slab.clipped[at])


def _at_an_end(slab: Slab, at: tuple[int, ...]) -> bool:
    codes, quant = slab.backend_codes, slab.quant
    return codes is not None and quant is not None and codes[at] in (quant.qmin, quant.qmax)


def _relus(scene: Scene, slab: Slab, at: tuple[int, ...]) -> bool:
    """Return whether an element at the end of the codes is a Relu's zero."""
    rails, codes, quant = None if scene.outcome is None else scene.outcome.saturation, slab.backend_codes, slab.quant
    if rails is None or not rails.floor or codes is None or quant is None:
        return False
    return bool(codes[at] == quant.qmin and not slab.backend[at])


def _rail(scene: Scene, slab: Slab, at: tuple[int, ...]) -> str:
    clipped = ", CLIPPED" if _is_clipped(slab, at) else ""
    if not _at_an_end(slab, at) or slab.backend_codes is None or slab.quant is None:
        return clipped
    if _relus(scene, slab, at):
        code = slab.code_of_reference(at)
        higher = code is not None and slab.quant.qmin is not None and code > slab.quant.qmin
        return ", AT QMIN, where the reference is not" if higher else ", at qmin: a Relu's zero"
    end = "at qmin" if slab.backend_codes[at] == slab.quant.qmin else "at qmax"
    return f"{clipped}, {end}"


def _style(slab: Slab, at: tuple[int, ...], *, difference: bool, chosen: bool) -> str:
    if chosen:
        return "first"
    ours, theirs = slab.backend[at], slab.reference[at]
    if not (np.isfinite(ours) and np.isfinite(theirs)):
        return "fail" if slab.difference(at) else "plain"  # the same on both sides is no error
    if difference:
        size = abs(float(slab.difference(at)))
        return "muted" if not size else "fail" if size > slab.largest / 2 else "plain"
    return "plain"


def _writers(slab: Slab, form: str) -> tuple[Callable[[tuple[int, ...]], str], ...]:
    """Return a function for each of the three blocks that formats an element."""

    def real(values: np.ndarray) -> Callable[[tuple[int, ...]], str]:
        if is_whole(values.dtype.name):
            return lambda at: str(int(values[at]))
        return lambda at: _real(float(values[at]), 4)

    def raw(values: np.ndarray, codes: np.ndarray | None) -> Callable[[tuple[int, ...]], str]:
        stored = values if codes is None else codes
        if form == "codes" and codes is not None:
            return lambda at: str(stored[at])
        return real(values) if form == "codes" else lambda at: hex_of(stored[at])

    def steps(at: tuple[int, ...]) -> str:
        distance = slab.steps(at)
        return difference(at, 4) if distance is None else _real(distance, 4)

    def difference(at: tuple[int, ...], digits: int = 3) -> str:
        return str(_exact(slab, at)) if _is_whole(slab) else _real(float(slab.difference(at)), digits)

    if form == "real":
        return real(slab.reference), real(slab.backend), difference
    return raw(slab.reference, slab.reference_codes), raw(slab.backend, slab.backend_codes), steps


def hex_of(value: np.generic) -> str:
    """Format the stored bits of an element, highest bit first."""
    return value.tobytes()[:: 1 if value.dtype.byteorder == ">" else -1].hex()


def _where(scene: Scene, slab: Slab, index: tuple[int, ...], axes: tuple[int, int], *, turned: bool) -> str:
    """Return the range of the shown elements, and the legend of the marks."""
    names = ["*" if at in axes else str(number) for at, number in enumerate(index, -len(index))]
    sample = of_sample(scene)
    text = f" [{','.join(names)}] of {numbers.shape(slab.shape)}{', ' if sample else ''}{sample}"
    text += "" if slab.clipped is None else "; ^: clipped"
    return text + (f"; dim {len(index) + axes[1]} down" if turned and len(index) > 1 else "")


def _element(scene: Scene, slab: Slab, index: tuple[int, ...], width: int, rank: str) -> list[Line]:
    """Return the values of the element under the cursor, and its rank among the worst."""
    place, here = index, slab.local(index)
    if here is None:
        return [[(f" @{position(place)}  is being read ..", "muted")]]
    index = here
    theirs, ours = _both(slab.reference[index], slab.backend[index])
    parts = [f" @{position(place)}"]
    if slab.alone:
        parts.append(f"{slab.alone} {ours}")
    else:
        error = _exact(slab, index) if _is_whole(slab) else format(float(slab.difference(index)), ".6g")
        parts += [f"reference {theirs}", f"backend {ours}", f"difference {error}"]
        if (steps := slab.steps(index)) is not None:
            parts.append(f"{steps:.4g} LSB")
    for side, codes in (("ref code", slab.reference_codes), ("code", slab.backend_codes)):
        if codes is not None:
            parts.append(f"{side} {codes[index]}")
    coded = slab.reference_codes is None and slab.backend_codes is not None and not slab.alone
    code = slab.code_of_reference(index) if coded else None
    if code is not None:
        parts.append(f"the reference's would be {code}")
    scale = slab.scale_at(index)
    if slab.quant is not None:
        parts.append(f"of {slab.quant.qmin}..{slab.quant.qmax}{_rail(scene, slab, index)}")
    if scale is not None:
        parts.append(f"scale {scale:.6g}")
    lines: list[Line] = []
    text = ""
    for part in (*parts, rank) if rank else parts:
        if text and len(text) + len(part) + 2 > width:
            lines.append([(text, "plain")])
            text = " " + part
        else:
            text = f"{text}  {part}" if text else part
    return [*lines, [(scene.glyphs.plain(text), "plain")]]


def _is_whole(slab: Slab) -> bool:
    """Return whether both sides hold integers or booleans that are not codes."""
    return all(is_whole(side.dtype.name) for side in (slab.reference, slab.backend))


def _exact(slab: Slab, index: tuple[int, ...]) -> int:
    """Return the exact difference of two integers, which float64 may not be able to hold."""
    return int(slab.backend[index]) - int(slab.reference[index])


def _both(theirs: np.generic, ours: np.generic) -> tuple[str, str]:
    """Format two numbers: integers in full, others with enough digits to distinguish them in float32, or more."""
    pair = theirs, ours
    if all(is_whole(value.dtype.name) for value in pair):
        return str(int(theirs)), str(int(ours))
    first, second = (f"{float(value):.9g}" for value in pair)
    if first == second and theirs != ours:
        first, second = (str(value) if value.dtype.kind in "iu" else f"{float(value):.17g}" for value in pair)
    return first, second


def _histograms(scene: Scene, width: int) -> list[Line]:
    """Draw the value distributions of both sides next to each other."""
    ready = scene.ready
    if scene.planned.side:
        bins = None if ready is None else recorded_bins(ready.recorded)
        bins = None if bins is None else replace(bins, sides=bins.sides[:1])
    else:
        bins = None if ready is None or ready.values is None else bins_of(ready.values)
    if bins is None:
        return []
    side = max((width - _TITLE - 2) // len(bins.sides), 12)
    return histogram_lines(bins, _TITLE, side, scene.glyphs, rows=2)
