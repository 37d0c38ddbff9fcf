"""Where in the tensor the error is: a heat map of one plane or of all channels, drawn in half blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import ClassVar

import numpy as np
from textual.binding import Binding, BindingType

from qdebug.present import numbers
from qdebug.present.rows import position
from qdebug.tui.drawing.draw import NOT_FINITE, heat_levels, heat_lines, legend, pool_plane, rows_in_lines
from qdebug.tui.drawing.glyphs import wrap
from qdebug.tui.drawing.look import Look
from qdebug.tui.elements.slab import Slab, plane_size
from qdebug.tui.elements.summing import TensorStatistics
from qdebug.tui.provisional import Provisional, Until
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.elements import (
    ElementCursor,
    ElementsView,
    sample_text,
    so_far_text,
    waiting_lines,
    waiting_text,
    window_note,
)
from qdebug.tui.views.view import Line, Scene, Target, heading, paragraph

__all__ = ["MapView"]

_LEGEND_WIDTH = 26
_MAX_THIN = 3
"""Maximum number of rows or columns of a thin plane."""
_MAX_ENLARGEMENT = 4
"""Maximum number of characters per side for an element of a small plane."""


@dataclass(frozen=True, slots=True)
class _MapContent:
    """The contents of a map, before they are scaled to the screen.

    Args:
        size: Rows and columns.
        error: The absolute differences, or the largest one of each tile.
        largest: The difference that is drawn with the strongest colour.
        percent_read: The percentage that was read; "" if all was.
    """

    size: tuple[int, int]
    error: np.ndarray
    largest: float
    percent_read: str = ""


@dataclass(frozen=True, slots=True)
class _Tiling:
    """A thin plane split into sections: stacked if it has few rows, side by side if it has few columns.

    Args:
        size: Rows and columns of the plane.
        section_length: Elements per section along the long side.
    """

    size: tuple[int, int]
    section_length: int

    @classmethod
    def make(cls, size: tuple[int, int], available_size: tuple[int, int]) -> _Tiling | None:
        """Return the tiling of a plane; None if it is not thin, or fits without tiling.

        Args:
            size: Its rows and columns.
            available_size: Numbers of rows and columns that fit.
        """
        thin_size, long_size = min(size), max(size)
        is_wide = size[0] <= size[1]
        available_along, available_across = (available_size[1], available_size[0]) if is_wide else available_size
        section_count = min(-(-long_size // max(available_along, 1)), max(available_across // (thin_size + 1), 1))
        return cls(size, -(-long_size // section_count)) if thin_size <= _MAX_THIN and section_count > 1 else None

    @property
    def _is_wide(self) -> bool:
        return self.size[0] <= self.size[1]

    def apply(self, error: np.ndarray) -> np.ndarray:
        """Arrange the sections of a plane next to each other, separated by blanks."""
        long_plane = error if self._is_wide else error.T
        thin_size, section_count = long_plane.shape[0], -(-long_plane.shape[1] // self.section_length)
        result = np.full((section_count * (thin_size + 1) - 1, self.section_length), -1.0)
        for section in range(section_count):
            elements = long_plane[:, section * self.section_length : (section + 1) * self.section_length]
            result[section * (thin_size + 1) : section * (thin_size + 1) + thin_size, : elements.shape[1]] = elements
        return result if self._is_wide else result.T

    def position_of(self, row: int, column: int) -> tuple[int, int]:
        """Return the row and column at which an element of the plane is drawn."""
        across, along = (row, column) if self._is_wide else (column, row)
        section, offset = divmod(along, self.section_length)
        drawn_position = section * (min(self.size) + 1) + across, offset
        return drawn_position if self._is_wide else drawn_position[::-1]

    def element_at(self, row: int, column: int) -> tuple[int, int]:
        """Return the element that is drawn at a position; an index outside the plane if there is none."""
        down, offset = (row, column) if self._is_wide else (column, row)
        section, across = divmod(down, min(self.size) + 1)
        element = across, section * self.section_length + offset
        return element if self._is_wide else element[::-1]


class MapView(ElementsView):
    """A map of abs(backend - reference) for the plane through the cursor, or for channels by position."""

    view = ScreenId.MAP
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.open", "values", tooltip="look at the values there"),
        Binding("v", "screen.form", "channels, values", tooltip="form: map of all channels, values"),
    ]

    def __init__(self, cursor: ElementCursor, look: Look | None = None) -> None:
        super().__init__(cursor, look)
        self.all_channels = False
        self._tile_size = (1.0, 1.0)
        self._tiling: _Tiling | None = None
        self._map_lines = (0, 0, 0)  # the first line, the number of rows, and the rows per line

    @property
    def shows_plane(self) -> bool:
        """Whether it shows a map of the plane through the element."""
        return not self.all_channels

    def draw(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Draw the map with its legend beside it."""
        statistics, shape = self._cursor.statistics(scene), self._cursor.shape(scene)
        self.all_channels = self.all_channels and not scene.plan_row.side
        title = "sizes of its values, one plane" if scene.plan_row.side else "map of one plane"
        header = heading(scene, width, "map of all channels" if self.all_channels else title)
        if shape is None or (self.all_channels and statistics is None):
            return waiting_lines(scene, header, width)
        if not prod(shape):
            return [header, [], [(" the tensor has no elements", "muted")]]
        lines = [header]
        content = (
            _channels_map(statistics)
            if self.all_channels and statistics is not None
            else self._plane_content(scene, shape)
        )
        if scene.outcome is None:
            lines.append([(scene.glyphs.fit(window_note(scene), width), "accent")])
        if isinstance(content, str):
            return [*lines, [], *paragraph(content, scene, width)]
        if content.percent_read:
            progress = so_far_text(content.percent_read, width, noun="tensor" if self.all_channels else "plane")
            lines.append([(scene.glyphs.fit(progress, width), "accent")])
        columns = max(width - _LEGEND_WIDTH - 2, 10)
        rows = rows_in_lines(max(height - 1 - len(lines), 1), scene.glyphs, colours=scene.colours)
        self._tiling, plane = None, content
        if not self.all_channels and content.error.shape == content.size:
            self._tiling = _Tiling.make(content.size, (rows, columns))
        if self._tiling is not None:
            tiled = self._tiling.apply(content.error)
            content = replace(content, size=(tiled.shape[0], tiled.shape[1]), error=tiled)
        levels = _levels(content, rows, columns)
        self._tile_size = (content.size[0] / levels.shape[0], content.size[1] / levels.shape[1])
        cursor_position = self._map_position(shape, 0 if statistics is None else statistics.axis)
        cursor_position = cursor_position if self._tiling is None else self._tiling.position_of(*cursor_position)
        cursor_cell = (int(cursor_position[0] / self._tile_size[0]), int(cursor_position[1] / self._tile_size[1]))
        map_lines = heat_lines(levels, scene.glyphs, colours=scene.colours, cursor=cursor_cell)
        self._map_lines = len(lines), levels.shape[0], rows_in_lines(1, scene.glyphs, colours=scene.colours)
        legend_lines = self._legend_lines(scene, plane, has_nonfinite=bool((levels == NOT_FINITE).any()))
        for at in range(min(max(len(map_lines), len(legend_lines)), height - len(lines))):
            line: Line = [
                (" ", "plain"),
                *(map_lines[at] if at < len(map_lines) else [(" " * levels.shape[1], "plain")]),
            ]
            if at < len(legend_lines):
                line += [("  ", "plain"), legend_lines[at]]
            lines.append(line)
        return lines

    def move(self, scene: Scene, lines: int) -> str:
        """Move up or down by tiles of the map."""
        statistics = self._cursor.statistics(scene)
        if statistics is not None and self.all_channels:
            return self._cursor.move_along(scene, statistics.axis, lines * max(int(self._tile_size[0]), 1))
        if self._tiling is not None and min(self._tiling.size) == self._tiling.size[0] == 1:
            return self._cursor.move_along(scene, -1, lines * self._tiling.section_length)
        return self._cursor.move_along(scene, -2, lines * max(int(self._tile_size[0]), 1))

    def side(self, scene: Scene, direction: int) -> str:
        """Move left or right by tiles of the map."""
        return self._cursor.move_along(scene, -1, direction * max(int(self._tile_size[1]), 1))

    def click(self, scene: Scene, column: int, line: int) -> Target | str | None:
        """Go to the element under the pointer, or to its values if it is already selected."""
        shape, (first, rows, rows_per_line) = self._cursor.shape(scene), self._map_lines
        row, column = (line - first) * rows_per_line, column - 1
        if shape is None or not 0 <= row < rows or column < 0:
            return None
        statistics = self._cursor.statistics(scene)
        axis = 0 if statistics is None else statistics.axis
        cursor_position = self._map_position(shape, axis)
        clicked_position = int(row * self._tile_size[0]), int(column * self._tile_size[1])
        clicked_position = clicked_position if self._tiling is None else self._tiling.element_at(*clicked_position)
        if self.all_channels:
            other_sizes = [size for at_axis, size in enumerate(shape) if at_axis != axis]
            if clicked_position[0] >= shape[axis] or clicked_position[1] >= prod(other_sizes):
                return None
            other_indices = (
                [int(at) for at in np.unravel_index(clicked_position[1], other_sizes)] if other_sizes else []
            )
            index = (*other_indices[:axis], clicked_position[0], *other_indices[axis:])
        else:
            if any(at >= size for at, size in zip(clicked_position, plane_size(shape), strict=True)):
                return None
            index = (*self._cursor.index[:-2], *clicked_position[2 - min(len(shape), 2) :])
        return self.enter(scene) if clicked_position == cursor_position else self._cursor.go_to_index(index)

    def enter(self, _: Scene) -> Target | str:
        """Open the values under the cursor."""
        return ScreenId.VALUES

    def next_form(self, scene: Scene) -> str | None:
        """Switch from one plane to all channels by position, then to the values."""
        self.all_channels = not self.all_channels and not scene.plan_row.side
        return "all channels by position in them" if self.all_channels else None

    def _plane_content(self, scene: Scene, shape: tuple[int, ...]) -> _MapContent | str:
        """Return the plane through the cursor, or why it is not available yet."""
        index, size = self._cursor.index, plane_size(shape)
        slab = self._cursor.slab(scene)
        if slab is not None and scene.glimpse is not None and scene.glimpse.part is not None and slab.has_plane(index):
            return _MapContent(size, _plane_error(scene.glimpse.part, index[:-2]), slab.largest)
        plane = None if scene.glimpse is None else scene.glimpse.plane
        if plane is None or plane.plane_index != index[:-2]:
            problem = "" if scene.glimpse is None else scene.glimpse.problem
            message = f"the plane [{','.join(map(str, index[:-2]))}] is being read .."
            return waiting_text(scene) if problem else Provisional(message, Until.ELEMENTS)
        statistics = None if scene.ready is None else scene.ready.statistics
        largest = plane.largest if statistics is None or statistics.unread_count else statistics.largest
        return _MapContent(size, plane.difference_map, largest, plane.percent_read)

    def _map_position(self, shape: tuple[int, ...], axis: int) -> tuple[int, int]:
        index = self._cursor.index
        if not self.all_channels:
            return (index[-2] if len(index) > 1 else 0, index[-1] if index else 0)
        other_indices = [extent for at, extent in enumerate(index) if at != axis]
        other_sizes = [size for at, size in enumerate(shape) if at != axis]
        flat_index = int(np.ravel_multi_index(other_indices, other_sizes)) if other_indices else 0
        return (index[axis] if index else 0, flat_index)

    def _legend_lines(self, scene: Scene, content: _MapContent, *, has_nonfinite: bool) -> list[tuple[str, str]]:
        """Return the legend of the map."""
        index, slab = self._cursor.index, self._cursor.slab(scene)
        index_in_slab = None if slab is None else slab.local_index(index)
        down_range, right_range = (f"0..{numbers.grouped(max(size - 1, 0))}" for size in content.size)
        dimension_names = ("channels", "positions") if self.all_channels else ("rows", "columns")
        facts = [
            *([] if self.all_channels else [(f"plane [{','.join(map(str, index[:-2]))}]", "accent")]),
            (f"down: {dimension_names[0]} {down_range}", "accent" if self.all_channels else "muted"),
            (f"right: {dimension_names[1]} {right_range}", "accent" if self.all_channels else "muted"),
            (_tile_text(self._tile_size), "muted"),
            *([] if self._tiling is None else [(f"in stretches of {self._tiling.section_length}", "accent")]),
            *((part, "muted") for part in wrap(sample_text(scene), _LEGEND_WIDTH)),
            (f"@{position(index)}", "cursor"),
        ]
        if slab is None or index_in_slab is None:
            facts.append(("is being read ..", "muted"))
        elif slab.only_side:
            facts.append((f"value {float(slab.backend[index_in_slab]):.6g}", "plain"))
        else:
            facts += [
                (f"ref  {float(slab.reference[index_in_slab]):.6g}", "plain"),
                (f"backend {float(slab.backend[index_in_slab]):.6g}", "plain"),
                (f"backend - ref {float(slab.difference(index_in_slab)):+.4g}", "plain"),
            ]
        facts += [("", "plain"), *_channel_facts(self._cursor.statistics(scene), index)]
        facts.append((f"{legend_text(scene)} 0..{numbers.number(content.largest)}", "muted"))
        if has_nonfinite:
            facts.append(("! NaN or infinite", "muted"))
        if content.percent_read:
            facts.append(("blank: not read yet", "muted"))
        return [(scene.glyphs.fit(text, _LEGEND_WIDTH), style) for text, style in facts]


@lru_cache(maxsize=1)
def _plane_error(slab: Slab, plane_index: tuple[int, ...]) -> np.ndarray:
    """Return the absolute differences in a plane, cached while the cursor moves in it."""
    return slab.plane((*plane_index, *slab.start[-2:]))


def _levels(content: _MapContent, rows: int, columns: int) -> np.ndarray:
    """Return the levels to draw in at most the given rows and columns. Small maps are enlarged."""
    levels = heat_levels(pool_plane(content.error, rows, columns), content.largest)
    enlargement = [
        min(limit // size, _MAX_ENLARGEMENT) for limit, size in zip((rows, columns), levels.shape, strict=True)
    ]
    return np.kron(levels, np.ones(enlargement, dtype=np.int64))


def _channels_map(statistics: TensorStatistics) -> _MapContent:
    """Return the map of all channels."""
    channel_count = statistics.shape[statistics.axis] if statistics.shape else 1
    size = channel_count, statistics.size // max(channel_count, 1)
    return _MapContent(size, statistics.difference_map, statistics.largest, statistics.percent_read)


def _channel_facts(statistics: TensorStatistics | None, index: tuple[int, ...]) -> list[tuple[str, str]]:
    """Return the share of the error in an element's channel, if known."""
    if (
        statistics is None
        or not index
        or not len(statistics.channels.element_counts)
        or not statistics.channels.element_counts[index[statistics.axis]]
    ):
        return []
    channel = index[statistics.axis]
    share = float(statistics.channels.share[channel])
    return [
        (f"channel {channel}{', so far' if statistics.unread_count else ''}:", "accent"),
        (f"{numbers.percent(share, 1.0)} of the error" if not np.isnan(share) else "NaN or infinite", "plain"),
        (f"RMSE {numbers.number(float(statistics.channels.rmse[channel]))}", "muted"),
        ("", "plain"),
    ]


def _tile_text(tiles: tuple[float, float]) -> str:
    """Return how many elements a tile of the map covers, or how many tiles an element takes."""
    if max(tiles) <= 1:
        return f"an element: {1 / tiles[0]:.0f} x {1 / tiles[1]:.0f} tiles"
    height_text, width_text = (
        numbers.grouped(round(size)) if size >= 100 else f"{size:.3g}" if size >= 1 else f"1/{1 / size:.0f}"
        for size in tiles
    )
    return f"tile: {height_text} x {width_text} elements"


def legend_text(scene: Scene) -> str:
    """Return a description of the ramp: shades if there are no colours, else words."""
    pieces = legend(scene.glyphs, colours=scene.colours)
    return "faint..strong" if scene.colours and scene.glyphs.braille else pieces[0][0]
