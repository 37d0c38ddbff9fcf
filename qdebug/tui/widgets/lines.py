"""Widgets that paint lines with Textual's Line API: fixed lines, and text that scrolls.

Textual's own widgets build a line of markup or a widget for each cell. Here, the content changes with each key, with up
to 200 x 60 cells that mostly have individual styles. So only lines that changed are painted.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

from textual.events import Click
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from qdebug.tui.drawing.draw import Piece
from qdebug.tui.drawing.look import Look

__all__ = ["FixedLines", "Lines", "TextScroll", "refresh_lines"]


def changed_lines(
    lines_before: Sequence[Sequence[Piece]], lines_after: Sequence[Sequence[Piece]], height: int
) -> list[int]:
    """Return the numbers of the lines that changed.

    Args:
        lines_before: The previous lines.
        lines_after: The new lines; missing lines at the end are empty.
        height: Number of lines that fit.
    """
    padded_before = [list(line) for line in lines_before[:height]]
    padded_after = [list(line) for line in lines_after[:height]]
    padded_before += [[] for _ in range(height - len(padded_before))]
    padded_after += [[] for _ in range(height - len(padded_after))]
    return [
        at
        for at, (before_line, after_line) in enumerate(zip(padded_before, padded_after, strict=True))
        if before_line != after_line
    ]


def refresh_lines(widget: Widget, lines: Sequence[int]) -> None:
    """Paint some lines of a widget."""
    if lines:
        widget.refresh(*(Region(0, line, widget.size.width, 1) for line in lines))


class Lines(Widget):
    """Lines that are drawn for the current width and height.

    Args:
        look: Shared look.
        id: Identifies the widget.
    """

    def __init__(self, look: Look, *, id: str) -> None:  # noqa: A002  the name that Textual gives it
        super().__init__(id=id)
        self.look = look
        self._lines_drawn: Sequence[Sequence[Piece]] | None = None
        self._look_painted: tuple[int, int, str] | None = None

    @abstractmethod
    def lines_for(self, width: int, height: int) -> Sequence[Sequence[Piece]]:
        """Return the lines."""

    def redraw(self) -> None:
        """Draw the lines, and paint the ones that changed."""
        lines_before, (width, height) = self._lines_drawn, self.size
        if not width or not height:
            self._lines_drawn = None
            return
        self._lines_drawn = self.lines_for(width, height)
        look = (width, height, self.look.palette.name)
        if lines_before is None or look != self._look_painted:
            self._look_painted = look
            self.refresh()
        else:
            refresh_lines(self, changed_lines(lines_before, self._lines_drawn, height))

    def on_resize(self) -> None:
        """Draw for the new size."""
        self.redraw()

    def render_line(self, y: int) -> Strip:
        """Paint one line."""
        width = self.size.width
        if self._lines_drawn is None:
            self._lines_drawn = self.lines_for(width, self.size.height)
        return self.look.strip(self._lines_drawn[y], width) if y < len(self._lines_drawn) else self.look.blank(width)


class FixedLines(Lines, can_focus=False):
    """Lines that a function draws.

    Args:
        look: Shared look.
        draw: Returns the lines for a width and height.
        on_clicked: Called with the column and line of a click; None ignores clicks.
        on_wheeled: Called with 1 when the wheel is turned down and -1 when it is turned up; None ignores the wheel.
        id: Identifies the widget.
    """

    def __init__(
        self,
        look: Look,
        draw: Callable[[int, int], Sequence[Sequence[Piece]]],
        *,
        on_clicked: Callable[[int, int], object] | None = None,
        on_wheeled: Callable[[int], object] | None = None,
        id: str,  # noqa: A002  the name that Textual gives it
    ) -> None:
        super().__init__(look, id=id)
        self._draw, self._on_clicked, self._on_wheeled = draw, on_clicked, on_wheeled

    def lines_for(self, width: int, height: int) -> Sequence[Sequence[Piece]]:
        """Return the lines."""
        return self._draw(width, height)

    def on_click(self, event: Click) -> None:
        """Call back with the clicked column and line."""
        offset = event.get_content_offset(self)
        if self._on_clicked is not None and offset is not None:
            self._on_clicked(offset.x, offset.y)

    def on_mouse_scroll_down(self) -> None:
        """Call back with the direction of the wheel."""
        if self._on_wheeled is not None:
            self._on_wheeled(1)

    def on_mouse_scroll_up(self) -> None:
        """Call back with the direction of the wheel."""
        if self._on_wheeled is not None:
            self._on_wheeled(-1)


class TextScroll(ScrollView, can_focus=False):
    """Styled lines that scroll.

    Args:
        look: Shared look.
        draw: Returns the lines for a width.
        id: Identifies the widget.
    """

    def __init__(
        self,
        look: Look,
        draw: Callable[[int], Sequence[Sequence[Piece]]],
        *,
        id: str,  # noqa: A002  the name that Textual gives it
    ) -> None:
        super().__init__(id=id)
        self.look, self._draw = look, draw
        self._lines: Sequence[Sequence[Piece]] = ()
        self._look_painted: tuple[int, int, str] | None = None

    def redraw(self) -> None:
        """Draw the lines. The scroll position is kept if possible."""
        width, visible_height = self.scrollable_content_region.width, self.scrollable_content_region.height
        if width > 0:
            lines_before, self._lines = self._lines, self._draw(width)
            # Each change of the virtual size makes Textual lay out the whole screen again, so the size does not depend
            # on the number of lines while all of them fit.
            height = max(len(self._lines), visible_height)
            look = (width, height, self.look.palette.name)
            if look != self._look_painted:
                self._look_painted = look
                self.virtual_size = Size(width, height)
                self.refresh()
            elif changed := changed_lines(lines_before, self._lines, height):
                top = self.scroll_offset.y
                refresh_lines(self, [line - top for line in changed])

    def on_resize(self) -> None:
        """Draw for the new size."""
        self.redraw()

    def lines_below(self, y: int) -> int:
        """Return how many lines follow the line that is drawn at `y`."""
        return len(self._lines) - 1 - y - self.scroll_offset.y

    def scroll_by(self, lines: int) -> bool:
        """Scroll by a number of lines. Return whether anything moved."""
        position_before = self.scroll_offset.y
        self.scroll_to(y=min(max(position_before + lines, 0), self.max_scroll_y), animate=False)
        return bool(self.scroll_offset.y != position_before)

    def render_line(self, y: int) -> Strip:
        """Paint one line."""
        width = self.scrollable_content_region.width
        line = y + self.scroll_offset.y
        if line >= len(self._lines):
            return self.look.blank(width)
        strip, mark = self.look.strip(self._lines[line], width), self._scroll_mark(y)
        return Strip.join([strip.crop(0, width - 1), self.look.strip([(mark, "accent")], 1)]) if mark else strip

    def _scroll_mark(self, y: int) -> str:
        """Return a mark in ASCII for the first and last visible line, if more is hidden and there is no scroll bar."""
        if self.look.glyphs.name != "ascii":
            return ""
        if y == self.scrollable_content_region.height - 1 and self.scroll_offset.y + y + 1 < len(self._lines):
            return "v"
        return "^" if not y and self.scroll_offset.y else ""
