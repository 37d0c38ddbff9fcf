"""Where in the tensor the error is: a heat map of one plane, or of all channels, in half blocks."""

from __future__ import annotations

import numpy as np

from qdebug.tui.arrangement import View
from qdebug.tui.draw import pool_plane
from qdebug.tui.heat import heat_levels, heat_lines, height_of, legend
from qdebug.tui.pages.elements import ElementCursor, so_far, unjudged, waiting_lines
from qdebug.tui.pages.page import Line, Page, Scene, heading, paragraph
from qdebug.tui.slab import PLANE_MOST, Slab, plane
from qdebug.view import numbers
from qdebug.view.rows import position

__all__ = ["MapPage"]

_SIDE = 26
_LARGEST = 4
"""Characters a side that one element of a small plane may take."""


class MapPage(Page):
    """A map of abs(backend - reference): the plane through the cursor, or channels by position."""

    view = View.MAP
    hint = "arrows move, c C channel, v all channels, n N worst"

    def __init__(self, cursor: ElementCursor) -> None:
        self._cursor = cursor
        self.all_channels = False
        self._tiles = (1.0, 1.0)
        self._size: tuple[int, ...] = (1, 1)
        self._key: tuple[object, ...] = ()
        self._pooled = np.zeros((0, 0))

    def draw(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Draw the map, and what it is of beside it."""
        slab = self._cursor.on(scene) if self.all_channels else self._cursor.in_part(scene)
        head = heading(scene, width, "map of all channels" if self.all_channels else "map of one plane")
        if slab is None:
            return waiting_lines(scene, head, width)
        if not slab.backend.size:
            return [head, [], [(" the tensor has no elements", "muted")]]
        elements = int(np.prod(slab.backend.shape[-2:]))
        if not self.all_channels and elements > PLANE_MOST:
            said = f"the plane has {numbers.grouped(elements)} elements, too many to draw; v shows all channels, pooled"
            return [head, [], *paragraph(said, scene, width)]
        if slab.whole and slab.local(self._cursor.index) is None:
            return [head, [], [(f" @{position(self._cursor.index)}  is being read ..", "muted")]]
        lines = [head]
        if slab.whole or slab.missing:
            said = unjudged(scene) if slab.whole else so_far(slab, width)
            lines.append([(scene.glyphs.fit(said, width), "accent")])
        room = max(width - _SIDE - 2, 10)
        rows = height_of(max(height - 1 - len(lines), 1), scene.glyphs, colours=scene.colours)
        levels, size = self._drawn(scene, slab, rows, room)
        self._tiles = (size[0] / levels.shape[0], size[1] / levels.shape[1])
        here = self._place(slab)
        spot = (int(here[0] / self._tiles[0]), int(here[1] / self._tiles[1]))
        drawn = heat_lines(levels, scene.glyphs, colours=scene.colours, cursor=spot)
        beside = self._beside(scene, slab, size)
        for at in range(min(max(len(drawn), len(beside)), height - len(lines))):
            line: Line = [(" ", "plain"), *(drawn[at] if at < len(drawn) else [(" " * levels.shape[1], "plain")])]
            if at < len(beside):
                line += [("  ", "plain"), beside[at]]
            lines.append(line)
        return lines

    def move(self, scene: Scene, lines: int) -> str:
        """Go up or down by tiles of the map."""
        slab = self._cursor.on(scene)
        if slab is not None and self.all_channels:
            return self._cursor.step(scene, slab.axis, lines * max(int(self._tiles[0]), 1))
        return self._cursor.step(scene, -2, lines * max(int(self._tiles[0]), 1))

    def side(self, scene: Scene, direction: int) -> str:
        """Go left or right by tiles of the map."""
        return self._cursor.step(scene, -1, direction * max(int(self._tiles[1]), 1))

    def enter(self, _: Scene) -> View | str:
        """Look at the values there."""
        return View.VALUES

    def toggle(self) -> str:
        """Show one plane, or all channels by position."""
        self.all_channels = not self.all_channels
        return "all channels by position in them" if self.all_channels else "the plane through the cursor"

    def _drawn(self, scene: Scene, slab: Slab, rows: int, columns: int) -> tuple[np.ndarray, tuple[int, int]]:
        """Give the levels to draw and the size of what they were pooled from."""
        at = slab.local(self._cursor.index) or self._cursor.index
        place = () if self.all_channels else self._cursor.index[:-2]
        read = slab.missing if self.all_channels else slab.read_of(at)
        shown = (scene.backend, scene.row, scene.navigator.sample, scene.navigator.step, id(slab.backend), slab.start)
        key = (*shown, place, read, self.all_channels, rows, columns)
        if key != self._key:
            whole = (1, 1, *slab.backend.shape)[-2:]
            self._size = _sizes(slab) if self.all_channels else (whole[0], whole[1])
            self._pooled = (
                pool_plane(slab.by_channel, rows, columns) if self.all_channels else plane(slab, at, (rows, columns))
            )
            self._key = key
        levels = heat_levels(self._pooled, slab.largest)
        larger = [min(room // size, _LARGEST) for room, size in zip((rows, columns), levels.shape, strict=True)]
        return np.kron(levels, np.ones(larger, dtype=np.int64)), (self._size[0], self._size[1])

    def _place(self, slab: Slab) -> tuple[int, int]:
        index = self._cursor.index
        if not self.all_channels:
            index = (slab.local(index) or index) if slab.whole else index
            return (index[-2] if len(index) > 1 else 0, index[-1] if index else 0)
        rest = [one for axis, one in enumerate(index) if axis != slab.axis]
        sizes = [size for axis, size in enumerate(slab.shape) if axis != slab.axis]
        flat = int(np.ravel_multi_index(rest, sizes)) if rest else 0
        return (index[slab.axis] if index else 0, flat)

    def _beside(self, scene: Scene, slab: Slab, size: tuple[int, int]) -> list[tuple[str, str]]:
        """Say what the map is of."""
        index = self._cursor.index
        here = slab.local(index)
        facts = [
            ("channels x positions" if self.all_channels else f"plane [{','.join(map(str, index[:-2]))}]", "accent"),
            *((text, "muted") for text in _extents(slab, size)),
            (_cell(self._tiles), "muted"),
            ("", "plain"),
            (f"@{position(index)}", "cursor"),
        ]
        if here is None:
            facts.append(("is being read ..", "muted"))
        else:
            facts += [
                (f"ref  {float(slab.reference[here]):.6g}", "plain"),
                (f"be   {float(slab.backend[here]):.6g}", "plain"),
                (f"diff {float(np.abs(slab.difference(here))):.4g}", "plain"),
            ]
        facts.append(("", "plain"))
        if len(index) and not slab.whole and len(slab.channels.read) and slab.channels.read[index[slab.axis]]:
            channel = index[slab.axis]
            share = float(slab.channels.share[channel])
            facts += [
                (f"channel {channel}{', so far' if slab.missing else ''}:", "accent"),
                (f"{numbers.percent(share, 1.0)} of the error" if not np.isnan(share) else "NaN or infinite", "plain"),
                (f"RMSE {numbers.number(float(slab.channels.rmse[channel]))}", "muted"),
                ("", "plain"),
            ]
        facts.append((f"{legend_text(scene)} 0..{numbers.number(slab.largest)}", "muted"))
        facts.append(("! NaN or infinite", "muted"))
        if slab.missing:
            facts.append(("blank: not read yet", "muted"))
        return [(scene.glyphs.fit(text, _SIDE), style) for text, style in facts]


def _cell(tiles: tuple[float, float]) -> str:
    """Say how many elements a cell of the map stands for, or how many cells for an element."""
    if max(tiles) <= 1:
        return f"an element is {1 / tiles[0]:.0f} x {1 / tiles[1]:.0f}"
    high, wide = (
        numbers.grouped(round(size)) if size >= 100 else f"{size:.3g}" if size >= 1 else f"1/{1 / size:.0f}"
        for size in tiles
    )
    return f"a cell is {high} x {wide}"


def _extents(slab: Slab, size: tuple[int, int]) -> list[str]:
    """Say how much the map is of: all of a plane, or which part of it."""
    if not slab.whole:
        return [f"{numbers.grouped(size[0])} x {numbers.grouped(size[1])} elements"]
    names = ("rows", "columns")[-len(slab.whole) :]
    named = zip(names, slab.start[-2:], slab.backend.shape[-2:], slab.whole[-2:], strict=True)
    return [f"{name} {first}..{first + many - 1} of {extent}" for name, first, many, extent in named]


def legend_text(scene: Scene) -> str:
    """Name the ramp: shades where there are no colours, else words."""
    pieces = legend(scene.glyphs, colours=scene.colours)
    return "faint..strong" if scene.colours and scene.glyphs.braille else pieces[0][0]


def _sizes(slab: Slab) -> tuple[int, int]:
    """Give how many channels there are, and positions in each."""
    channels = slab.shape[slab.axis] if slab.shape else 1
    return channels, slab.backend.size // max(channels, 1)
