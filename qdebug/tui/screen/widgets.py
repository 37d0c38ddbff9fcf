"""The widgets: the node list, scrolling text, and fixed lines. They paint lines and know nothing of recordings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Self

from textual.binding import Binding
from textual.events import Click, Key
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input

from qdebug.tui.drawing.draw import Piece
from qdebug.tui.drawing.look import Look
from qdebug.tui.nodes.columns import ColumnLayout, header_cells, lay_out, mark, row_cells
from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.nodes.rows import State
from qdebug.tui.pages.page import state_style

__all__ = ["FixedLines", "HeadingPicked", "Line", "NodeList", "RowPicked", "TextScroll"]

_CACHED_STRIPS = 4096


class RowPicked(Message):
    """A row was clicked.

    Args:
        row: Its number in the table.
    """

    def __init__(self, row: int) -> None:
        super().__init__()
        self.row = row


class HeadingPicked(Message):
    """The heading of a column was clicked.

    Args:
        sort: The order that it stands for.
    """

    def __init__(self, sort: str) -> None:
        super().__init__()
        self.sort = sort


def changed_lines(before: Sequence[Sequence[Piece]], after: Sequence[Sequence[Piece]], height: int) -> list[int]:
    """Return the numbers of the lines that are no longer the same.

    Args:
        before: Lines as they were.
        after: Lines as they are; those beyond the end are empty.
        height: How many lines there is room for.
    """
    old = [list(line) for line in before[:height]]
    new = [list(line) for line in after[:height]]
    old += [[] for _ in range(height - len(old))]
    new += [[] for _ in range(height - len(new))]
    return [at for at, (one, other) in enumerate(zip(old, new, strict=True)) if one != other]


def _refresh_lines(widget: Widget, lines: Sequence[int]) -> None:
    if lines:
        widget.refresh(*(Region(0, line, widget.size.width, 1) for line in lines))


class FixedLines(Widget, can_focus=False):
    """Lines that a function draws for the width and height at hand.

    Args:
        look: Shared look.
        draw: Gives the lines for a width and a height.
        clicked: Told the column and the line of a click; None if it means nothing here.
        wheeled: Told 1 for a turn of the wheel down and -1 for one up; None if it means nothing here.
        id: Identifies the widget.
    """

    def __init__(
        self,
        look: Look,
        draw: Callable[[int, int], Sequence[Sequence[Piece]]],
        *,
        clicked: Callable[[int, int], object] | None = None,
        wheeled: Callable[[int], object] | None = None,
        id: str,  # noqa: A002  the name that Textual gives it
    ) -> None:
        super().__init__(id=id)
        self._look = look
        self._draw = draw
        self._clicked, self._wheeled = clicked, wheeled
        self._lines: Sequence[Sequence[Piece]] | None = None
        self._painted: tuple[int, int, str] | None = None

    def redraw(self) -> None:
        """Draw anew, and paint the lines that have changed."""
        before, (width, height) = self._lines, self.size
        if not width or not height:
            self._lines = None
            return
        self._lines = self._draw(width, height)
        look = (width, height, self._look.palette.name)
        if before is None or look != self._painted:
            self._painted = look
            self.refresh()
        else:
            _refresh_lines(self, changed_lines(before, self._lines, height))

    def on_resize(self) -> None:
        """Draw anew for the new size."""
        self.redraw()

    def on_click(self, event: Click) -> None:
        """Tell what was clicked."""
        at = event.get_content_offset(self)
        if self._clicked is not None and at is not None:
            self._clicked(at.x, at.y)

    def on_mouse_scroll_down(self) -> None:
        """Tell that the wheel was turned."""
        if self._wheeled is not None:
            self._wheeled(1)

    def on_mouse_scroll_up(self) -> None:
        """Tell that the wheel was turned."""
        if self._wheeled is not None:
            self._wheeled(-1)

    def render_line(self, y: int) -> Strip:
        """Paint one line."""
        width = self.size.width
        if self._lines is None:
            self._lines = self._draw(width, self.size.height)
        return self._look.strip(self._lines[y], width) if y < len(self._lines) else self._look.blank(width)


def put_in(line: Input, text: str) -> None:
    """Put text into a line in the place of what is selected in it; of several lines the first."""
    line.replace(next(iter(text.splitlines()), ""), *sorted(line.selection))


class Line(Input):
    """A line to type in that does each key at once, when it is told to: none of them waits in its queue.

    Args:
        id: Identifies the widget.
    """

    _EDITS: ClassVar = {each.key: each.action for each in Binding.make_bindings(Input.BINDINGS)}

    def __init__(self, *, id: str) -> None:  # noqa: A002  the name that Textual gives it
        super().__init__(compact=True, select_on_focus=False, id=id)

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        """Paint anew; no text changes the size of the line, so that nothing around it is laid out for a letter."""
        return super().refresh(*regions, repaint=repaint or layout, recompose=recompose)

    async def press(self, event: Key) -> bool:
        """Do what a key does to the text; tell whether it does anything to it."""
        if event.is_printable and event.character is not None:
            put_in(self, event.character)
        elif event.key in self._EDITS:
            await self.run_action(self._EDITS[event.key])
        else:
            return False
        return True


class TextScroll(ScrollView, can_focus=False):
    """Styled lines that scroll.

    Args:
        look: Shared look.
        draw: Gives the lines for a width.
        clicked: Told the line that was clicked, counted from the last one up; None if it means nothing here.
        id: Identifies the widget.
    """

    def __init__(
        self,
        look: Look,
        draw: Callable[[int], Sequence[Sequence[Piece]]],
        *,
        clicked: Callable[[int], object] | None = None,
        id: str,  # noqa: A002  the name that Textual gives it
    ) -> None:
        super().__init__(id=id)
        self._look = look
        self._draw, self._clicked = draw, clicked
        self._lines: Sequence[Sequence[Piece]] = ()
        self._painted: tuple[int, int, str] | None = None

    def redraw(self) -> None:
        """Draw anew; the scroll position stays where it is if it can."""
        width, room = self.scrollable_content_region.width, self.scrollable_content_region.height
        if width > 0:
            before, self._lines = self._lines, self._draw(width)
            # Another virtual size lays the whole screen out again: lines that all fit never ask for that.
            height = max(len(self._lines), room)
            look = (width, height, self._look.palette.name)
            if look != self._painted:
                self._painted = look
                self.virtual_size = Size(width, height)
                self.refresh()
            elif changed := changed_lines(before, self._lines, height):
                top = self.scroll_offset.y
                _refresh_lines(self, [line - top for line in changed])

    def on_resize(self) -> None:
        """Draw anew for the new size."""
        self.redraw()

    def on_click(self, event: Click) -> None:
        """Tell which line was clicked."""
        at = event.get_content_offset(self)
        if self._clicked is not None and at is not None:
            self._clicked(len(self._lines) - 1 - at.y - self.scroll_offset.y)

    def step(self, lines: int) -> bool:
        """Scroll by a number of lines; tell whether anything moved."""
        before = self.scroll_offset.y
        self.scroll_to(y=min(max(before + lines, 0), self.max_scroll_y), animate=False)
        return bool(self.scroll_offset.y != before)

    def render_line(self, y: int) -> Strip:
        """Paint one line."""
        width = self.scrollable_content_region.width
        line = y + self.scroll_offset.y
        if line >= len(self._lines):
            return self._look.blank(width)
        strip, mark = self._look.strip(self._lines[line], width), self._more(y)
        return Strip.join([strip.crop(0, width - 1), self._look.strip([(mark, "accent")], 1)]) if mark else strip

    def _more(self, y: int) -> str:
        """Mark the first and the last line shown where more is hidden and there is no scroll bar, in plain ASCII."""
        if self._look.glyphs.name != "ascii":
            return ""
        if y == self.scrollable_content_region.height - 1 and self.scroll_offset.y + y + 1 < len(self._lines):
            return "v"
        return "^" if not y and self.scroll_offset.y else ""


class NodeList(ScrollView, can_focus=False):
    """The rows of a table, painted on demand: nothing is kept for a row that is not on the screen.

    Args:
        look: Shared look.
        id: Identifies the widget.
    """

    def __init__(self, look: Look, *, id: str) -> None:  # noqa: A002  the name that Textual gives it
        super().__init__(id=id)
        self._look = look
        self._navigator: Navigator | None = None
        self._strips: dict[tuple[object, ...], Strip] = {}
        self._layout: ColumnLayout | None = None
        self._layout_key: tuple[object, ...] = ()
        self._lines_shown = 0
        self._rest_painted: tuple[object, ...] = ()
        self._line_painted = -1
        self.offset_columns = 0

    def show(self, navigator: Navigator) -> None:
        """Show a table."""
        self._navigator = navigator
        self._strips.clear()
        self._layout = None
        self._resize_virtual()
        self.follow()

    def on_resize(self) -> None:
        """Keep the cursor in view."""
        self._resize_virtual()
        self.follow()

    def follow(self) -> None:
        """Scroll as far as it takes to have the cursor in view, and paint anew."""
        if self._navigator is not None and self._navigator.lines != self._lines_shown:
            self._resize_virtual()
        if self._navigator is not None and self.rows_shown > 0:
            line, top = self._navigator.place, self.scroll_offset.y
            margin = min(2, (self.rows_shown - 1) // 2)
            if line < top + margin:
                self._scroll(max(line - margin, 0))
            elif line > top + self.rows_shown - 1 - margin:
                self._scroll(min(line - self.rows_shown + 1 + margin, self.max_scroll_y))
        self._paint_changed()

    def _scroll(self, line: int) -> None:
        """Scroll now, also where the scroll bar of a list that has just grown is still to come."""
        self.scroll_to(y=line, animate=False, force=True)

    def _paint_changed(self) -> None:
        """Paint anew: only the rows between which the cursor moved, if nothing else can have changed."""
        navigator = self._navigator
        if navigator is None:
            self.refresh()
            return
        rest = (
            *(self.layout_shown, self.scroll_offset.y, self.size, self._look.palette.name, id(navigator)),
            *(navigator.arranged, navigator.pattern, navigator.table.version, tuple(navigator.trail.marks)),
        )
        before, line = self._line_painted, navigator.place
        same, self._rest_painted, self._line_painted = rest == self._rest_painted, rest, line
        if not same:
            self.refresh()
        elif before != line:
            top = self.scroll_offset.y - 1  # the heading
            _refresh_lines(self, sorted({before - top, line - top}))

    @property
    def rows_shown(self) -> int:
        """How many rows there is room for under the header."""
        return int(self.scrollable_content_region.height) - 1

    @property
    def layout_shown(self) -> ColumnLayout | None:
        """The columns on the screen; None before there is a table."""
        navigator = self._navigator
        if navigator is None:
            return None
        width = self.scrollable_content_region.width
        key = (width, navigator.metric, navigator.sort, navigator.sample, self.offset_columns, navigator.table.size)
        if self._layout is None or key != self._layout_key:
            self._layout = lay_out(navigator, width, offset=self.offset_columns)
            self._layout_key = key
        return self._layout

    def on_click(self, event: Click) -> None:
        """Pick the row under the pointer, or the order that a heading stands for."""
        line = event.y - 1 + self.scroll_offset.y
        if self._navigator is not None and event.y >= 1 and line < self._navigator.lines:
            self.post_message(RowPicked(self._navigator.line_to_row(line)))
        elif not event.y and self.layout_shown is not None:
            end = 0
            for column in self.layout_shown.columns:
                end += column.width + 1
                if event.x < end:
                    if column.sort:
                        self.post_message(HeadingPicked(column.sort))
                    return

    def render_line(self, y: int) -> Strip:
        """Paint the header or one row."""
        width, navigator, layout = self.scrollable_content_region.width, self._navigator, self.layout_shown
        if navigator is None or layout is None:
            return self._look.strip([("  reading names and graph .." if y == 1 else "", "muted")], width)
        if y == 0:
            return self._header(navigator, layout, width)
        line = y - 1 + self.scroll_offset.y
        if not navigator.lines and y == 1:
            return self._look.strip([("  no node fits the filter; F shows all of them", "muted")], width)
        if line >= navigator.lines:
            return self._look.blank(width)
        return self._row(navigator, layout, navigator.line_to_row(line), width)

    def _header(self, navigator: Navigator, layout: ColumnLayout, width: int) -> Strip:
        text = " ".join(header_cells(navigator, layout, self._look.glyphs))
        more = f"{'<' if layout.before else ''}{'>' if layout.after else ''}"
        body = text[: width - len(more)].ljust(width - len(more))
        return self._look.strip([(body, "accent"), (more, "title")], width)

    def _row(self, navigator: Navigator, layout: ColumnLayout, row: int, width: int) -> Strip:
        table = navigator.table
        state = int(table.states(navigator.sample)[row])
        first = table.first_divergence(navigator.sample)
        selected = row == navigator.cursor
        found = navigator.is_match(row)
        marked, excused = row in navigator.trail.marks, bool(table.acknowledged[row])
        key = (
            marked,
            excused,
            row,
            state,
            row == first,
            selected,
            found,
            navigator.sample,
            layout,
            width,
            self._look.palette.name,
        )
        strip = self._strips.get(key)
        if strip is None:
            if len(self._strips) >= _CACHED_STRIPS:
                self._strips.clear()
            pieces = self._paint(navigator, row, State(state), first)
            strip = self._strips[key] = self._look.strip(pieces, width, selected=selected)
        return strip

    def _paint(self, navigator: Navigator, row: int, state: State, first: int | None) -> Sequence[Piece]:
        """Put the cells of a row together."""
        glyphs, layout = self._look.glyphs, self.layout_shown
        if layout is None:
            return []
        style, found = state_style(state), navigator.is_match(row)
        signs = mark(navigator.table, row, state, first, marked=row in navigator.trail.marks)
        pieces: list[Piece] = [
            (glyphs.cursor if row == navigator.cursor else " ", "cursor"),
            (signs[0], "first" if signs[0] == "!" else "accent"),
            (signs[1], style),
        ]
        styles = dict.fromkeys(("number", "dtype", "shape", "match"), "muted")
        styles |= {navigator.metric: style, "arithmetic": style, "introduced": style, "state_word": style}
        styles["name"] = "match" if found else style if state.failing else "plain"
        cells = row_cells(navigator, row, layout, glyphs)
        for column, cell in zip(layout.columns[1:], cells[1:], strict=True):
            pieces += [(" ", "plain"), (cell, styles.get(column.key, "plain"))]
        return pieces

    def _resize_virtual(self) -> None:
        size = 0 if self._navigator is None else self._navigator.lines
        self._lines_shown = size
        self.virtual_size = Size(self.scrollable_content_region.width, size + 1)
