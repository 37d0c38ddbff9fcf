"""The node list: the rows of a table, painted on demand.

A `DataTable` of 100,000 rows takes 8 s to fill and 41 s to its first paint, an `OptionList` 18 s; a `ScrollView` that
paints only the visible lines takes 0.14 s, and 2 ms for a key (Textual 8.2.8, 140 x 40).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.events import Click
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from qdebug.tui.drawing.draw import Piece, merge_pieces
from qdebug.tui.drawing.glyphs import UNICODE
from qdebug.tui.drawing.look import Look
from qdebug.tui.nodes.columns import ColumnLayout, header_cells, lay_out, row_cells, row_signs
from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.nodes.rows import State
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.view import Scene, Target, View, state_style
from qdebug.tui.widgets.lines import refresh_lines

__all__ = ["NodesView"]

_CACHED_STRIPS = 4096


class NodesView(ScrollView, View, can_focus=True, inherit_bindings=False):
    """The node list. Nothing is kept for rows that are not on the screen.

    Args:
        look: Shared look.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.open", "tensor", tooltip="open the tensor of the node"),
        Binding("s", "sort(1)", "sort", tooltip="sort by the next column"),
        Binding("S", "reverse", show=False, tooltip="reverse the order"),
        Binding("v", "screen.form", "backends", tooltip="all backends side by side, if there are several"),
    ]
    DEFAULT_CSS = """
    NodesView { overflow-x: hidden; scrollbar-size-vertical: 1; scrollbar-gutter: stable; }
    """
    view = ScreenId.NODES

    def __init__(self, look: Look | None = None) -> None:
        super().__init__(id=str(self.view))
        self.look = look or Look(UNICODE)
        self._navigator: Navigator | None = None
        self._strips: dict[tuple[object, ...], Strip] = {}
        self._diagnosis_painted: object = None
        self._layout: ColumnLayout | None = None
        self._layout_key: tuple[object, ...] = ()
        self._lines_shown = 0
        self._state_painted: tuple[object, ...] = ()
        self._line_painted = -1
        self.offset_columns = 0

    def show(self, navigator: Navigator) -> None:
        """Show a table, even one with only names."""
        if navigator is not self._navigator:
            self._navigator = navigator
            self._strips.clear()
            self._layout = None
            self._resize_virtual()

    def redraw(self) -> None:
        """Redraw the list, with the cursor in view."""
        self.follow()

    # Keys

    @property
    def page_lines(self) -> int:
        """Number of lines that a page key moves by."""
        return self.rows_shown

    def action_sort(self, direction: int) -> None:
        """Sort by the next or previous column."""
        self.stage.with_scene(lambda scene: scene.navigator.next_sort(direction))

    def action_reverse(self) -> None:
        """Reverse the order."""
        self.stage.with_scene(lambda scene: scene.navigator.reverse())

    def move(self, scene: Scene, lines: int) -> str:
        """Go to another node."""
        return scene.navigator.move(lines)

    def edge(self, scene: Scene, direction: int) -> str:
        """Go to the first or the last node."""
        return scene.navigator.edge(direction)

    def side(self, scene: Scene, direction: int) -> str:  # noqa: ARG002  only the columns matter
        """Show the columns further right or left."""
        layout = self.layout_shown
        if layout is None or (direction > 0 and not layout.after):
            return "these are the last columns" if layout is not None and layout.before else "all columns are shown"
        if direction < 0 and not layout.before:
            return "these are the first columns"
        self.offset_columns += direction
        return ""

    def enter(self, scene: Scene) -> Target | str:  # noqa: ARG002  the same for every node
        """Open the tensor."""
        return ScreenId.TENSOR

    def rows(self, scene: Scene) -> Sequence[int]:
        """Return the rows of the list, sorted and filtered."""
        return [scene.navigator.line_to_row(line) for line in range(scene.navigator.lines)]

    def on_resize(self) -> None:
        """Keep the cursor in view."""
        self._resize_virtual()
        self.follow()

    def follow(self) -> None:
        """Scroll just enough to bring the cursor into view, and repaint."""
        if self._navigator is not None and self._navigator.lines != self._lines_shown:
            self._resize_virtual()
        if self._navigator is not None and self._navigator.table.diagnosis is not self._diagnosis_painted:
            self._diagnosis_painted = self._navigator.table.diagnosis
            self._strips.clear()
        if self._navigator is not None and self.rows_shown > 0:
            line, top = self._navigator.line, self.scroll_offset.y
            margin = min(2, (self.rows_shown - 1) // 2)
            if line < top + margin:
                self._scroll(max(line - margin, 0))
            elif line > top + self.rows_shown - 1 - margin:
                self._scroll(min(line - self.rows_shown + 1 + margin, self.max_scroll_y))
        self._paint_changed()

    def _scroll(self, line: int) -> None:
        """Scroll immediately, even if the scroll bar of a list that has just grown is not there yet."""
        self.scroll_to(y=line, animate=False, force=True)

    def _paint_changed(self) -> None:
        """Repaint only the rows that the cursor moved between, if nothing else can have changed."""
        navigator = self._navigator
        if navigator is None:
            self.refresh()
            return
        state = (
            *(self.layout_shown, self.scroll_offset.y, self.size, self.look.palette.name, id(navigator)),
            *(navigator.arrangement_count, navigator.pattern, navigator.table.version, tuple(navigator.trail.marks)),
        )
        previous_line, line = self._line_painted, navigator.line
        is_same, self._state_painted, self._line_painted = state == self._state_painted, state, line
        if not is_same:
            self.refresh()
        elif previous_line != line:
            top = self.scroll_offset.y - 1  # the header takes the first line
            refresh_lines(self, sorted({previous_line - top, line - top}))

    @property
    def rows_shown(self) -> int:
        """Number of rows that fit below the header."""
        return int(self.scrollable_content_region.height) - 1

    @property
    def layout_shown(self) -> ColumnLayout | None:
        """The columns on the screen; None before a table is shown."""
        return self._layout_for(self.scrollable_content_region.width)

    def _layout_for(self, width: int) -> ColumnLayout | None:
        navigator = self._navigator
        if navigator is None:
            return None
        key = (width, navigator.metric, navigator.sort, navigator.sample, self.offset_columns, navigator.table.size)
        if self._layout is None or key != self._layout_key:
            self._layout = lay_out(navigator, width, offset=self.offset_columns)
            self._layout_key = key
        return self._layout

    def on_click(self, event: Click) -> None:
        """Select the row under the pointer, or open it if it is already selected. A click on a heading sorts by it."""
        line, layout = event.y - 1 + self.scroll_offset.y, self.layout_shown
        if self._navigator is None or layout is None:
            return
        self.stage.cancel_pending()
        if event.y >= 1 and line < self._navigator.lines:
            row = self._navigator.line_to_row(line)
            self.stage.with_scene(lambda scene: ScreenId.TENSOR if scene.row == row else scene.navigator.put(row))
        elif not event.y:
            end = 0
            for column in layout.columns:
                end += column.width + 1
                if event.x < end:
                    if column.sort:
                        self.stage.with_scene(partial(_sort_by, column.sort))
                    return

    def render_line(self, y: int) -> Strip:
        """Paint the header or one row."""
        width, navigator = self.scrollable_content_region.width, self._navigator
        layout = self._layout_for(width)
        if navigator is None or layout is None:
            return self.look.strip([("  reading names and graph .." if y == 1 else "", "muted")], width)
        if y == 0:
            return self._header_strip(navigator, layout, width)
        line = y - 1 + self.scroll_offset.y
        if not navigator.lines and y == 1:
            return self.look.strip([("  no node fits the filter; esc shows all of them", "muted")], width)
        if line >= navigator.lines:
            return self.look.blank(width)
        return self._row_strip(navigator, layout, navigator.line_to_row(line), width)

    def _header_strip(self, navigator: Navigator, layout: ColumnLayout, width: int) -> Strip:
        text = " ".join(header_cells(navigator, layout, self.look.glyphs))
        scroll_marks = f"{'<' if layout.before else ''}{'>' if layout.after else ''}"
        body = text[: width - len(scroll_marks)].ljust(width - len(scroll_marks))
        return self.look.strip([(body, "accent"), (scroll_marks, "title")], width)

    def _row_strip(self, navigator: Navigator, layout: ColumnLayout, row: int, width: int) -> Strip:
        table = navigator.table
        state = int(table.states(navigator.sample)[row])
        first = table.first_divergence(navigator.sample)
        is_selected = row == navigator.cursor
        is_match = navigator.is_match(row)
        is_marked, is_acknowledged = row in navigator.trail.marks, bool(table.acknowledged[row])
        key = (
            is_marked,
            is_acknowledged,
            row,
            state,
            row == first,
            is_selected,
            is_match,
            navigator.sample,
            layout,
            width,
            self.look.palette.name,
        )
        strip = self._strips.get(key)
        if strip is None:
            if len(self._strips) >= _CACHED_STRIPS:
                self._strips.clear()
            pieces = self._row_pieces(navigator, layout, row, State(state), first)
            strip = self._strips[key] = self.look.strip(pieces, width, selected=is_selected)
        return strip

    def _row_pieces(
        self, navigator: Navigator, layout: ColumnLayout, row: int, state: State, first: int | None
    ) -> Sequence[Piece]:
        """Return the cells of a row."""
        glyphs = self.look.glyphs
        style, is_match = state_style(state), navigator.is_match(row)
        signs = row_signs(navigator.table, row, state, first, is_marked=row in navigator.trail.marks)
        pieces: list[Piece] = [
            (glyphs.cursor if row == navigator.cursor else " ", "cursor"),
            (signs[0], "first" if signs[0] == "!" else "accent"),
            (signs[1], style),
        ]
        styles = dict.fromkeys(("number", "dtype", "shape", "match"), "muted")
        styles |= {navigator.metric: style, "arithmetic": style, "introduced": style, "state_word": style}
        styles["name"] = "match" if is_match else style if state.is_failing else "plain"
        cells = row_cells(navigator, row, layout, glyphs)
        for column, cell in zip(layout.columns[1:], cells[1:], strict=True):
            cell_style = styles.get(column.key, "plain")
            pieces += [(" ", "plain"), (cell, cell_style)] if cell_style == "match" else [(f" {cell}", cell_style)]
        return merge_pieces(pieces)

    def _resize_virtual(self) -> None:
        size = 0 if self._navigator is None else self._navigator.lines
        self._lines_shown = size
        self.virtual_size = Size(self.scrollable_content_region.width, size + 1)


def _sort_by(sort: str, scene: Scene) -> str:
    return scene.navigator.sort_by(sort)
