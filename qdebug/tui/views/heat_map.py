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
from qdebug.tui.drawing.draw import NOT_FINITE, heat_levels, heat_lines, height_of, legend, pool_plane
from qdebug.tui.drawing.glyphs import wrap
from qdebug.tui.drawing.look import Look
from qdebug.tui.elements.slab import Slab, plane_size
from qdebug.tui.elements.summing import Whole
from qdebug.tui.provisional import Provisional, Until
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.elements import ElementCursor, ElementsView, judged, of_sample, so_far, waiting, waiting_lines
from qdebug.tui.views.view import Line, Scene, Target, heading, paragraph

__all__ = ["MapView"]

_SIDE = 26
_THIN = 3
"""Maximum number of rows or columns of a thin plane."""
_LARGEST = 4
"""Maximum number of characters per side for an element of a small plane."""


@dataclass(frozen=True, slots=True)
class _Drawn:
    """The parts of a map.

    Args:
        size: Rows and columns.
        error: The absolute differences, or the largest one of each tile.
        largest: The difference that is drawn with the strongest colour.
        so_far: How much of it is read; "" if all.
    """

    size: tuple[int, int]
    error: np.ndarray
    largest: float
    so_far: str = ""


@dataclass(frozen=True, slots=True)
class _Tiling:
    """A thin plane split into sections: stacked if it has few rows, side by side if it has few columns.

    Args:
        size: Rows and columns of the plane.
        stretch: Elements per section along the long side.
    """

    size: tuple[int, int]
    stretch: int

    @classmethod
    def of(cls, size: tuple[int, int], room: tuple[int, int]) -> _Tiling | None:
        """Return the tiling of a plane; None if it is not thin, or fits without tiling.

        Args:
            size: Its rows and columns.
            room: Number of elements that fit, down and across.
        """
        thin, long = min(size), max(size)
        wide = size[0] <= size[1]
        along, beside = (room[1], room[0]) if wide else room
        stretches = min(-(-long // max(along, 1)), max(beside // (thin + 1), 1))
        return cls(size, -(-long // stretches)) if thin <= _THIN and stretches > 1 else None

    @property
    def _is_wide(self) -> bool:
        return self.size[0] <= self.size[1]

    def apply(self, error: np.ndarray) -> np.ndarray:
        """Arrange the sections of a plane next to each other, separated by blanks."""
        long = error if self._is_wide else error.T
        thin, many = long.shape[0], -(-long.shape[1] // self.stretch)
        tiled = np.full((many * (thin + 1) - 1, self.stretch), -1.0)
        for at in range(many):
            part = long[:, at * self.stretch : (at + 1) * self.stretch]
            tiled[at * (thin + 1) : at * (thin + 1) + thin, : part.shape[1]] = part
        return tiled if self._is_wide else tiled.T

    def place(self, row: int, column: int) -> tuple[int, int]:
        """Return the position at which an element of the plane is drawn."""
        across, along = (row, column) if self._is_wide else (column, row)
        stretch, rest = divmod(along, self.stretch)
        at = stretch * (min(self.size) + 1) + across, rest
        return at if self._is_wide else at[::-1]

    def element(self, row: int, column: int) -> tuple[int, int]:
        """Return the element that is drawn at a position; an index outside the plane if there is none."""
        down, rest = (row, column) if self._is_wide else (column, row)
        stretch, across = divmod(down, min(self.size) + 1)
        at = across, stretch * self.stretch + rest
        return at if self._is_wide else at[::-1]


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
        self._tiles = (1.0, 1.0)
        self._tiling: _Tiling | None = None
        self._map = (0, 0, 0)  # its first line, its rows, and how many rows are in a line

    @property
    def plane(self) -> bool:
        """Whether it shows a map of the plane through the element."""
        return not self.all_channels

    def draw(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Draw the map with its legend beside it."""
        whole, shape = self._cursor.whole(scene), self._cursor.shape(scene)
        self.all_channels = self.all_channels and not scene.planned.side
        content = "sizes of its values, one plane" if scene.planned.side else "map of one plane"
        head = heading(scene, width, "map of all channels" if self.all_channels else content)
        if shape is None or (self.all_channels and whole is None):
            return waiting_lines(scene, head, width)
        if not prod(shape):
            return [head, [], [(" the tensor has no elements", "muted")]]
        lines = [head]
        drawn = _of_channels(whole) if self.all_channels and whole is not None else self._plane(scene, shape)
        if scene.outcome is None:
            lines.append([(scene.glyphs.fit(judged(scene), width), "accent")])
        if isinstance(drawn, str):
            return [*lines, [], *paragraph(drawn, scene, width)]
        if drawn.so_far:
            progress = so_far(drawn.so_far, width, of="tensor" if self.all_channels else "plane")
            lines.append([(scene.glyphs.fit(progress, width), "accent")])
        room = max(width - _SIDE - 2, 10)
        rows = height_of(max(height - 1 - len(lines), 1), scene.glyphs, colours=scene.colours)
        self._tiling, plane = None, drawn
        if not self.all_channels and drawn.error.shape == drawn.size:
            self._tiling = _Tiling.of(drawn.size, (rows, room))
        if self._tiling is not None:
            tiled = self._tiling.apply(drawn.error)
            drawn = replace(drawn, size=(tiled.shape[0], tiled.shape[1]), error=tiled)
        levels = _levels(drawn, rows, room)
        self._tiles = (drawn.size[0] / levels.shape[0], drawn.size[1] / levels.shape[1])
        here = self._place(shape, 0 if whole is None else whole.axis)
        here = here if self._tiling is None else self._tiling.place(*here)
        spot = (int(here[0] / self._tiles[0]), int(here[1] / self._tiles[1]))
        map_lines = heat_lines(levels, scene.glyphs, colours=scene.colours, cursor=spot)
        self._map = len(lines), levels.shape[0], height_of(1, scene.glyphs, colours=scene.colours)
        beside = self._beside(scene, plane, broken=bool((levels == NOT_FINITE).any()))
        for at in range(min(max(len(map_lines), len(beside)), height - len(lines))):
            line: Line = [
                (" ", "plain"),
                *(map_lines[at] if at < len(map_lines) else [(" " * levels.shape[1], "plain")]),
            ]
            if at < len(beside):
                line += [("  ", "plain"), beside[at]]
            lines.append(line)
        return lines

    def move(self, scene: Scene, lines: int) -> str:
        """Move up or down by tiles of the map."""
        whole = self._cursor.whole(scene)
        if whole is not None and self.all_channels:
            return self._cursor.step(scene, whole.axis, lines * max(int(self._tiles[0]), 1))
        if self._tiling is not None and min(self._tiling.size) == self._tiling.size[0] == 1:
            return self._cursor.step(scene, -1, lines * self._tiling.stretch)
        return self._cursor.step(scene, -2, lines * max(int(self._tiles[0]), 1))

    def side(self, scene: Scene, direction: int) -> str:
        """Move left or right by tiles of the map."""
        return self._cursor.step(scene, -1, direction * max(int(self._tiles[1]), 1))

    def click(self, scene: Scene, column: int, line: int) -> Target | str | None:
        """Go to the element under the pointer, or to its values if it is already selected."""
        shape, (first, rows, deep) = self._cursor.shape(scene), self._map
        row, column = (line - first) * deep, column - 1
        if shape is None or not 0 <= row < rows or column < 0:
            return None
        whole = self._cursor.whole(scene)
        axis = 0 if whole is None else whole.axis
        here = self._place(shape, axis)
        at = int(row * self._tiles[0]), int(column * self._tiles[1])
        at = at if self._tiling is None else self._tiling.element(*at)
        if self.all_channels:
            rest = [size for at_axis, size in enumerate(shape) if at_axis != axis]
            if at[0] >= shape[axis] or at[1] >= prod(rest):
                return None
            flat = [int(one) for one in np.unravel_index(at[1], rest)] if rest else []
            index = (*flat[:axis], at[0], *flat[axis:])
        else:
            if any(one >= size for one, size in zip(at, plane_size(shape), strict=True)):
                return None
            index = (*self._cursor.index[:-2], *at[2 - min(len(shape), 2) :])
        return self.enter(scene) if at == here else self._cursor.put(index)

    def enter(self, _: Scene) -> Target | str:
        """Open the values under the cursor."""
        return ScreenId.VALUES

    def next_form(self, scene: Scene) -> str | None:
        """Switch from one plane to all channels by position, then to the values."""
        self.all_channels = not self.all_channels and not scene.planned.side
        return "all channels by position in them" if self.all_channels else None

    def _plane(self, scene: Scene, shape: tuple[int, ...]) -> _Drawn | str:
        """Return the plane through the cursor, or why it is not available yet."""
        index, size = self._cursor.index, plane_size(shape)
        slab = self._cursor.in_part(scene)
        if slab is not None and scene.glimpse is not None and scene.glimpse.part is not None and slab.has_plane(index):
            return _Drawn(size, _error(scene.glimpse.part, index[:-2]), slab.largest)
        plane = None if scene.glimpse is None else scene.glimpse.plane
        if plane is None or plane.place != index[:-2]:
            problem = "" if scene.glimpse is None else scene.glimpse.problem
            reads = f"the plane [{','.join(map(str, index[:-2]))}] is being read .."
            return waiting(scene) if problem else Provisional(reads, Until.ELEMENTS)
        whole = None if scene.ready is None else scene.ready.whole
        largest = plane.largest if whole is None or whole.missing else whole.largest
        return _Drawn(size, plane.pooled, largest, plane.so_far)

    def _place(self, shape: tuple[int, ...], axis: int) -> tuple[int, int]:
        index = self._cursor.index
        if not self.all_channels:
            return (index[-2] if len(index) > 1 else 0, index[-1] if index else 0)
        rest = [extent for at, extent in enumerate(index) if at != axis]
        sizes = [size for at, size in enumerate(shape) if at != axis]
        flat = int(np.ravel_multi_index(rest, sizes)) if rest else 0
        return (index[axis] if index else 0, flat)

    def _beside(self, scene: Scene, drawn: _Drawn, *, broken: bool) -> list[tuple[str, str]]:
        """Return the legend of the map."""
        index, slab = self._cursor.index, self._cursor.in_part(scene)
        here = None if slab is None else slab.local(index)
        down, right = (f"0..{numbers.grouped(max(size - 1, 0))}" for size in drawn.size)
        flat = ("channels", "positions") if self.all_channels else ("rows", "columns")
        facts = [
            *([] if self.all_channels else [(f"plane [{','.join(map(str, index[:-2]))}]", "accent")]),
            (f"down: {flat[0]} {down}", "accent" if self.all_channels else "muted"),
            (f"right: {flat[1]} {right}", "accent" if self.all_channels else "muted"),
            (_cell(self._tiles), "muted"),
            *([] if self._tiling is None else [(f"in stretches of {self._tiling.stretch}", "accent")]),
            *((part, "muted") for part in wrap(of_sample(scene), _SIDE)),
            (f"@{position(index)}", "cursor"),
        ]
        if slab is None or here is None:
            facts.append(("is being read ..", "muted"))
        elif slab.alone:
            facts.append((f"value {float(slab.backend[here]):.6g}", "plain"))
        else:
            facts += [
                (f"ref  {float(slab.reference[here]):.6g}", "plain"),
                (f"backend {float(slab.backend[here]):.6g}", "plain"),
                (f"backend - ref {float(slab.difference(here)):+.4g}", "plain"),
            ]
        facts += [("", "plain"), *_of_channel(self._cursor.whole(scene), index)]
        facts.append((f"{legend_text(scene)} 0..{numbers.number(drawn.largest)}", "muted"))
        if broken:
            facts.append(("! NaN or infinite", "muted"))
        if drawn.so_far:
            facts.append(("blank: not read yet", "muted"))
        return [(scene.glyphs.fit(text, _SIDE), style) for text, style in facts]


@lru_cache(maxsize=1)
def _error(part: Slab, place: tuple[int, ...]) -> np.ndarray:
    """Return the absolute differences in a plane, cached while the cursor moves in it."""
    return part.plane((*place, *part.start[-2:]))


def _levels(drawn: _Drawn, rows: int, columns: int) -> np.ndarray:
    """Return the levels to draw in at most the given rows and columns. Small maps are enlarged."""
    levels = heat_levels(pool_plane(drawn.error, rows, columns), drawn.largest)
    larger = [min(room // size, _LARGEST) for room, size in zip((rows, columns), levels.shape, strict=True)]
    return np.kron(levels, np.ones(larger, dtype=np.int64))


def _of_channels(whole: Whole) -> _Drawn:
    """Return the map of all channels."""
    channels = whole.shape[whole.axis] if whole.shape else 1
    size = channels, whole.size // max(channels, 1)
    return _Drawn(size, whole.pooled, whole.largest, whole.so_far)


def _of_channel(whole: Whole | None, index: tuple[int, ...]) -> list[tuple[str, str]]:
    """Return the share of the error in an element's channel, if known."""
    if whole is None or not index or not len(whole.channels.read) or not whole.channels.read[index[whole.axis]]:
        return []
    channel = index[whole.axis]
    share = float(whole.channels.share[channel])
    return [
        (f"channel {channel}{', so far' if whole.missing else ''}:", "accent"),
        (f"{numbers.percent(share, 1.0)} of the error" if not np.isnan(share) else "NaN or infinite", "plain"),
        (f"RMSE {numbers.number(float(whole.channels.rmse[channel]))}", "muted"),
        ("", "plain"),
    ]


def _cell(tiles: tuple[float, float]) -> str:
    """Return how many elements a tile of the map covers, or how many tiles an element takes."""
    if max(tiles) <= 1:
        return f"an element: {1 / tiles[0]:.0f} x {1 / tiles[1]:.0f} tiles"
    high, wide = (
        numbers.grouped(round(size)) if size >= 100 else f"{size:.3g}" if size >= 1 else f"1/{1 / size:.0f}"
        for size in tiles
    )
    return f"tile: {high} x {wide} elements"


def legend_text(scene: Scene) -> str:
    """Return a description of the ramp: shades if there are no colours, else words."""
    pieces = legend(scene.glyphs, colours=scene.colours)
    return "faint..strong" if scene.colours and scene.glyphs.braille else pieces[0][0]
