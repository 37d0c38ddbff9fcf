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
from qdebug.tui.views.elements import FORMS, ElementCursor, ElementsView, sample_text, waiting_lines, window_note
from qdebug.tui.views.histograms import bins_of, histogram_lines
from qdebug.tui.views.recorded import recorded_bins
from qdebug.tui.views.view import Line, Scene, Target, heading, window

__all__ = ["ValuesView"]

_MAX_NUMBER = 9
"""Maximum number of characters of a number."""
_MARK_WIDTH = 2
"""Cells before an element: its mark, and the separator from its left neighbour."""
_LABEL = 6
_MIN_ROWS = 3
"""Minimum number of rows of elements beside a histogram. If fewer fit, the histogram is hidden."""
_HISTOGRAM_LABEL = 12
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
        self._is_transposed = False
        self._axes = (-2, -1)
        self._part_widths: tuple[int, ...] = (1,)
        self._grid: tuple[int, range, range] = (0, range(0), range(0))

    def draw(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Draw the window."""
        slab = self._cursor.slab(scene)
        form = self._cursor.form
        form_text = "" if form == "real" else f", in {FORMS[form]}"
        header = heading(scene, width, "" if slab is None else f"{self._legend(slab)}{form_text}")
        if slab is None:
            return waiting_lines(scene, header, width)
        if not prod(slab.shape):
            return [header, [], [(" the tensor has no elements", "muted")]]
        footer = _element_lines(scene, slab, self._cursor.index, width, self._cursor.rank(scene))
        histograms = _histogram_lines(scene, width)
        footer = [*histograms, *footer] if height - len(histograms) - len(footer) - 4 >= _MIN_ROWS else footer
        row_count = max(height - 2 - len(footer) - 2, 1)
        self._axes = _plane_axes(slab)
        note = window_note(scene) if slab.is_partial or scene.outcome is None else ""
        row_count = max(row_count - 1, 1) if note else row_count
        columns = self._fit_columns(slab, width, row_count)
        range_text = _range_text(scene, slab, self._cursor.index, self._axes, is_transposed=self._is_transposed)
        lines: list[Line] = [header, [(scene.glyphs.fit_end(range_text, width), "muted")]]
        if note:
            lines.append([(scene.glyphs.fit(note, width), "accent")])
        top = len(lines)
        lines += self._window_lines(scene, slab, columns, row_count)
        self._grid = (top + 1, *self._grid[1:])
        lines += [[] for _ in range(height - len(lines) - len(footer))]
        return [*lines, *footer]

    def _fit_columns(self, slab: Slab, width: int, row_count: int) -> int:
        """Choose which dimension runs down, and the cells per part of an element. Return how many columns fit."""
        row_extent, column_extent = _plane_extents(slab, self._axes)
        columns = 1
        # The number of columns depends on their width, which depends on the visible elements: the second pass corrects
        # the first.
        for _ in range(2):
            self._is_transposed = min(column_extent, row_count) * min(row_extent, columns) > min(
                row_extent, row_count
            ) * min(column_extent, columns)
            _, rows, visible_columns = self._visible_ranges(slab, columns, row_count)
            indices = [
                at
                for row in rows
                for column in visible_columns
                if (at := self._index_in_slab(slab, row, column)) is not None
            ]
            writers = self._writers(slab)
            self._part_widths = tuple(max((len(write(at)) for at in indices), default=1) for write in writers)
            heading_width = max(len(str(column)) for column in visible_columns)
            self._part_widths = (
                max(self._part_widths[0], heading_width - sum(self._part_widths[1:])),
                *self._part_widths[1:],
            )
            columns = max((width - _LABEL - 1) // self._cell_width, 1)
        missing_width = _LABEL + 1 + self._cell_width - width  # not even one column fits: cut both sides equally
        if missing_width > 0:
            sides = self._part_widths[:2]
            max_width = max((sum(sides) - missing_width) // len(sides), 1)
            self._part_widths = (*(min(size, max_width) for size in sides), *self._part_widths[2:])
        return columns

    @property
    def _cell_width(self) -> int:
        """Cells of an element."""
        between = len(" -> ") + len(" ()") if len(self._part_widths) > 1 else 0
        return _MARK_WIDTH + sum(self._part_widths) + between

    def _writers(self, slab: Slab) -> tuple[Callable[[tuple[int, ...]], str], ...]:
        """Return a function for each displayed part of an element, which formats it."""
        writers = _make_writers(slab, self._cursor.form)
        return writers[1:2] if slab.only_side else writers

    def move(self, scene: Scene, lines: int) -> str:
        """Move along the first of the two dimensions, or along the last one if that runs down."""
        return self._cursor.move_along(scene, self._axes[self._is_transposed], lines)

    def side(self, scene: Scene, direction: int) -> str:
        """Move along the last of the two dimensions, or along the first one if the last runs down."""
        return self._cursor.move_along(scene, self._axes[not self._is_transposed], direction)

    def next_form(self, scene: Scene) -> str | None:
        """Show the elements in the next form. The map follows the last form."""
        return self._cursor.next_form(scene)

    def click(self, _: Scene, column: int, line: int) -> Target | str | None:
        """Go to the element under the pointer."""
        top, rows, columns = self._grid
        cell = line - top, (column - _LABEL) // self._cell_width
        if column < _LABEL or not (0 <= cell[0] < len(rows) and 0 <= cell[1] < len(columns)):
            return None
        row, column_number = rows[cell[0]], columns[cell[1]]
        return self._cursor.go_to_index(self._index_at(row, column_number))

    def enter(self, scene: Scene) -> Target | str:
        """Return a message that there is no deeper screen."""
        return f"this is the deepest screen on the {scene.plan_row.op or 'tensor'}; esc goes back"

    def _visible_ranges(self, slab: Slab, max_columns: int, max_rows: int) -> tuple[tuple[int, int], range, range]:
        """Return the position of the cursor, down and across, and the rows and columns around it."""
        index = self._cursor.index
        cursor = tuple(index[axis] if -axis <= len(index) else 0 for axis in self._axes)
        size = _plane_extents(slab, self._axes)
        down, across = (cursor[::-1], size[::-1]) if self._is_transposed else (cursor, size)
        rows, columns = window(down[0], across[0], max_rows), window(down[1], across[1], max_columns)
        return (down[0], down[1]), rows, columns

    def _index_in_slab(self, slab: Slab, row: int, column: int) -> tuple[int, ...] | None:
        return slab.local_index(self._index_at(row, column))

    def _index_at(self, row: int, column: int) -> tuple[int, ...]:
        """Return the index of the element at a line and column."""
        index = list(self._cursor.index)
        for axis, at in zip(self._axes, (column, row) if self._is_transposed else (row, column), strict=True):
            if -axis <= len(index):
                index[axis] = at
        return tuple(index)

    def _legend(self, slab: Slab) -> str:
        """Return the legend of a cell. Differences of codes are in LSB, and a side without codes shows real numbers."""
        if slab.only_side:
            return slab.only_side
        is_in_lsb = self._cursor.form != "real" and slab.quant is not None and slab.quant.block_size is None
        is_reference_real = self._cursor.form == "codes" and slab.reference_codes is None
        return f"{'ref, real' if is_reference_real else 'ref'} -> backend ({'LSB' if is_in_lsb else 'diff'})"

    def _window_lines(self, scene: Scene, slab: Slab, columns: int, max_rows: int) -> list[Line]:
        down, rows, visible_columns = self._visible_ranges(slab, columns, max_rows)
        self._grid = 0, rows, visible_columns
        headings = "".join(str(column).rjust(self._cell_width) for column in visible_columns)
        lines: list[Line] = [[(" " * _LABEL + headings, "muted")]]
        writers = self._writers(slab)
        for row in rows:
            is_cursor_row = row == down[0]
            line: Line = [(str(row).rjust(_LABEL), "cursor" if is_cursor_row else "muted")]
            for column in visible_columns:
                index, is_chosen = self._index_in_slab(slab, row, column), is_cursor_row and column == down[1]
                if index is None:  # not read yet
                    line.append(("..".rjust(self._cell_width), "muted"))
                    continue
                texts = [
                    _fit_text(scene, write(index), size) for write, size in zip(writers, self._part_widths, strict=True)
                ]
                line += self._element_pieces(scene, slab, index, texts, is_chosen=is_chosen)
            lines.append(line)
        return lines

    def _element_pieces(
        self, scene: Scene, slab: Slab, index: tuple[int, ...], texts: Sequence[str], *, is_chosen: bool
    ) -> Line:
        """Draw an element: its mark, both sides and their difference."""
        is_clipped = _is_clipped(slab, index)
        sign = scene.glyphs.cursor if is_chosen else "^" if is_clipped else " "
        reference_style = "first" if is_chosen else "plain"
        line: Line = [
            (f" {sign}", "first" if is_chosen else "unknown"),
            (texts[0].rjust(self._part_widths[0]), reference_style),
        ]
        if len(texts) == 1:
            return line
        style = (
            "first"
            if is_chosen
            else "unknown"
            if is_clipped
            else _style(slab, index, is_difference=False, is_chosen=is_chosen)
        )
        line += [(" -> ", "muted"), (texts[1].rjust(self._part_widths[1]), style)]
        difference = f" ({texts[2]})".rjust(self._part_widths[2] + len(" ()"))
        return [*line, (difference, _style(slab, index, is_difference=True, is_chosen=is_chosen))]


def _plane_axes(slab: Slab) -> tuple[int, int]:
    """Return the two dimensions that are shown, counted from the end."""
    long_axes = [] if slab.is_partial else [axis for axis, size in enumerate(slab.shape, -len(slab.shape)) if size > 1]
    last = long_axes[-1] if long_axes else -1
    return (long_axes[-2] if len(long_axes) > 1 else last - 1), last


def _plane_extents(slab: Slab, axes: tuple[int, int]) -> tuple[int, int]:
    """Return the extents of two dimensions; 1 for a missing dimension."""
    first, last = (slab.shape[axis] if -axis <= len(slab.shape) else 1 for axis in axes)
    return first, last


def _fit_text(scene: Scene, text: str, width: int) -> str:
    """Format an element for its cell, and mark it if it is cut."""
    return text if len(text) <= width else scene.glyphs.fit(text, width)


def _real_text(value: float, digits: int) -> str:
    """Format a number to fit an element's cell, dropping digits rather than truncating the exponent."""
    texts = (numbers.number(value, digits=count) for count in range(digits, 0, -1))
    return next((text for text in texts if len(text) < _MAX_NUMBER), numbers.number(value, digits=1))


def _is_clipped(slab: Slab, index: tuple[int, ...]) -> bool:
    return slab.clipped is not None and bool(slab.clipped[index])


def _is_at_end(slab: Slab, index: tuple[int, ...]) -> bool:
    codes, quant = slab.backend_codes, slab.quant
    return codes is not None and quant is not None and codes[index] in (quant.qmin, quant.qmax)


def _is_relu_zero(scene: Scene, slab: Slab, index: tuple[int, ...]) -> bool:
    """Return whether an element at the end of the codes is a Relu's zero."""
    rails, codes, quant = None if scene.outcome is None else scene.outcome.saturation, slab.backend_codes, slab.quant
    if rails is None or not rails.floor or codes is None or quant is None:
        return False
    return bool(codes[index] == quant.qmin and not slab.backend[index])


def _rail_text(scene: Scene, slab: Slab, index: tuple[int, ...]) -> str:
    clipped_text = ", CLIPPED" if _is_clipped(slab, index) else ""
    if not _is_at_end(slab, index) or slab.backend_codes is None or slab.quant is None:
        return clipped_text
    if _is_relu_zero(scene, slab, index):
        code = slab.code_of_reference(index)
        is_reference_higher = code is not None and slab.quant.qmin is not None and code > slab.quant.qmin
        return ", AT QMIN, where the reference is not" if is_reference_higher else ", at qmin: a Relu's zero"
    end = "at qmin" if slab.backend_codes[index] == slab.quant.qmin else "at qmax"
    return f"{clipped_text}, {end}"


def _style(slab: Slab, index: tuple[int, ...], *, is_difference: bool, is_chosen: bool) -> str:
    if is_chosen:
        return "first"
    backend_value, reference_value = slab.backend[index], slab.reference[index]
    if not (np.isfinite(backend_value) and np.isfinite(reference_value)):
        return "fail" if slab.difference(index) else "plain"  # equal values that are not finite are no error
    if is_difference:
        size = abs(float(slab.difference(index)))
        return "muted" if not size else "fail" if size > slab.largest / 2 else "plain"
    return "plain"


def _make_writers(slab: Slab, form: str) -> tuple[Callable[[tuple[int, ...]], str], ...]:
    """Return functions that format the reference, the backend and the difference of an element."""

    def real_writer(values: np.ndarray) -> Callable[[tuple[int, ...]], str]:
        if is_whole(values.dtype.name):
            return lambda at: str(int(values[at]))
        return lambda at: _real_text(float(values[at]), 4)

    def raw_writer(values: np.ndarray, codes: np.ndarray | None) -> Callable[[tuple[int, ...]], str]:
        stored = values if codes is None else codes
        if form == "codes" and codes is not None:
            return lambda at: str(stored[at])
        return real_writer(values) if form == "codes" else lambda at: hex_of(stored[at])

    def lsb_text(at: tuple[int, ...]) -> str:
        distance = slab.difference_in_lsb(at)
        return difference_text(at, 4) if distance is None else _real_text(distance, 4)

    def difference_text(at: tuple[int, ...], digits: int = 3) -> str:
        return (
            str(_exact_difference(slab, at)) if _are_integers(slab) else _real_text(float(slab.difference(at)), digits)
        )

    if form == "real":
        return real_writer(slab.reference), real_writer(slab.backend), difference_text
    return raw_writer(slab.reference, slab.reference_codes), raw_writer(slab.backend, slab.backend_codes), lsb_text


def hex_of(value: np.generic) -> str:
    """Format the stored bits of an element, highest bit first."""
    return value.tobytes()[:: 1 if value.dtype.byteorder == ">" else -1].hex()


def _range_text(scene: Scene, slab: Slab, index: tuple[int, ...], axes: tuple[int, int], *, is_transposed: bool) -> str:
    """Return the range of the shown elements, and the legend of the marks."""
    names = ["*" if at in axes else str(number) for at, number in enumerate(index, -len(index))]
    sample = sample_text(scene)
    text = f" [{','.join(names)}] of {numbers.shape(slab.shape)}{', ' if sample else ''}{sample}"
    text += "" if slab.clipped is None else "; ^: clipped"
    return text + (f"; dim {len(index) + axes[1]} down" if is_transposed and len(index) > 1 else "")


def _element_lines(scene: Scene, slab: Slab, index: tuple[int, ...], width: int, rank: str) -> list[Line]:
    """Return the values of the element under the cursor, and its rank among the worst."""
    full_index, index_in_slab = index, slab.local_index(index)
    if index_in_slab is None:
        return [[(f" @{position(full_index)}  is being read ..", "muted")]]
    index = index_in_slab
    reference_text, backend_text = _distinct_texts(slab.reference[index], slab.backend[index])
    parts = [f" @{position(full_index)}"]
    if slab.only_side:
        parts.append(f"{slab.only_side} {backend_text}")
    else:
        error = _exact_difference(slab, index) if _are_integers(slab) else format(float(slab.difference(index)), ".6g")
        parts += [f"reference {reference_text}", f"backend {backend_text}", f"difference {error}"]
        if (lsb := slab.difference_in_lsb(index)) is not None:
            parts.append(f"{lsb:.4g} LSB")
    for side, codes in (("ref code", slab.reference_codes), ("code", slab.backend_codes)):
        if codes is not None:
            parts.append(f"{side} {codes[index]}")
    is_code_missing = slab.reference_codes is None and slab.backend_codes is not None and not slab.only_side
    code = slab.code_of_reference(index) if is_code_missing else None
    if code is not None:
        parts.append(f"the reference's would be {code}")
    scale = slab.scale_at(index)
    if slab.quant is not None:
        parts.append(f"of {slab.quant.qmin}..{slab.quant.qmax}{_rail_text(scene, slab, index)}")
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
    return [*lines, [(scene.glyphs.transliterate(text), "plain")]]


def _are_integers(slab: Slab) -> bool:
    """Return whether both sides hold integers or booleans that are not codes."""
    return all(is_whole(side.dtype.name) for side in (slab.reference, slab.backend))


def _exact_difference(slab: Slab, index: tuple[int, ...]) -> int:
    """Return the exact difference of two integers, which float64 may not be able to hold."""
    return int(slab.backend[index]) - int(slab.reference[index])


def _distinct_texts(reference_value: np.generic, backend_value: np.generic) -> tuple[str, str]:
    """Format two numbers: integers in full, others with enough digits to distinguish them in float32, or more."""
    pair = reference_value, backend_value
    if all(is_whole(value.dtype.name) for value in pair):
        return str(int(reference_value)), str(int(backend_value))
    first, second = (f"{float(value):.9g}" for value in pair)
    if first == second and reference_value != backend_value:
        first, second = (str(value) if value.dtype.kind in "iu" else f"{float(value):.17g}" for value in pair)
    return first, second


def _histogram_lines(scene: Scene, width: int) -> list[Line]:
    """Draw the value distributions of both sides next to each other."""
    ready = scene.ready
    if scene.plan_row.side:
        bins = None if ready is None else recorded_bins(ready.recorded)
        bins = None if bins is None else replace(bins, sides=bins.sides[:1])
    else:
        bins = None if ready is None or ready.values is None else bins_of(ready.values)
    if bins is None:
        return []
    side = max((width - _HISTOGRAM_LABEL - 2) // len(bins.sides), 12)
    return histogram_lines(bins, _HISTOGRAM_LABEL, side, scene.glyphs, rows=2)
