"""The panels of the main screen: verdict, error profile, node list, node detail, status line and footer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import Input

from qdebug.analysis.result import DiffResult
from qdebug.errors import UsageError
from qdebug.tui import chrome
from qdebug.tui.arrangement import LEAST_HEIGHT, LEAST_WIDTH, Arrangement, Level, arrange
from qdebug.tui.desk import DetailDesk, start
from qdebug.tui.detail_lines import detail_lines
from qdebug.tui.look import Look
from qdebug.tui.navigator import Navigator
from qdebug.tui.profile import Piece, column_to_row, profile_lines
from qdebug.tui.source import Computed, DetailReady, DetailRequest, Event, Finished, Opened
from qdebug.tui.widgets import FixedLines, NodeList, TextScroll

__all__ = ["Panels"]

_LEAST_DETAIL = 36
_REDRAW_SECONDS = 0.05
"""While results come in, the screen is drawn at most this often."""

Lines = Sequence[Sequence[Piece]]


class Panels(Screen[None]):
    """Shows one comparison; what the keys do is added by `MainScreen`.

    Args:
        look: Shared look.
        titles: What the two recordings are called.
        node: Node or tensor to start at.
        sample: Sample to start with; None for all.
        ask: Sends a request to the reader thread.
        fail: Ends the application with an error.
    """

    AUTO_FOCUS = ""
    DEFAULT_CSS = """
    Panels { overflow: hidden; background: $background; }
    #banner, #status, #footer { height: 1; }
    #body { height: 1fr; }
    #nodes, #detail { overflow-x: hidden; scrollbar-size-vertical: 1; scrollbar-gutter: stable; }
    #detail { width: 1fr; padding: 0 0 0 1; }
    #small { height: 1fr; }
    #search { height: 1; display: none; background: $background; }
    Panels.ascii #nodes, Panels.ascii #detail { scrollbar-size: 0 0; }
    """

    def __init__(
        self,
        look: Look,
        *,
        titles: tuple[str, str],
        node: str | None,
        sample: int | None,
        ask: Callable[[DetailRequest], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        super().__init__(classes=look.glyphs.name)
        self._look, self._titles = look, titles
        self._start = (node, sample)
        self._fail = fail
        self.navigator: Navigator | None = None
        self.level = Level.LIST
        self.zoomed = False
        self.message = ""
        self._opened: Opened | None = None
        self._result: DiffResult | None = None
        self._desk = DetailDesk(ask)
        self._redraw_due = False
        self._arrangement = Arrangement()

    def compose(self) -> ComposeResult:
        """Make the widgets."""
        look = self._look
        self._banner = FixedLines(
            look, lambda w, _: chrome.banner(self._titles, self._opened, w, look.glyphs), id="banner"
        )
        self._verdict = FixedLines(look, self._draw_verdict, id="verdict")
        self._profile = FixedLines(look, self._draw_profile, picked=self._profile_row, id="profile")
        self._listing = NodeList(look, id="nodes")
        self._detail = TextScroll(look, self._draw_detail, id="detail")
        self._status = FixedLines(
            look, lambda w, _: chrome.status(self.navigator, self.message, w, look.glyphs), id="status"
        )
        self._footer = FixedLines(look, lambda w, _: chrome.footer(w), id="footer")
        self._small = FixedLines(look, lambda *_: chrome.too_small(*self.size, (LEAST_WIDTH, LEAST_HEIGHT)), id="small")
        self._search = Input(placeholder="part of a name, 'whole name' or ~regex", compact=True, id="search")
        yield self._banner
        yield self._verdict
        yield self._profile
        self._body = Horizontal(self._listing, self._detail, id="body")
        yield self._body
        yield self._small
        yield self._status
        yield self._search
        yield self._footer

    def on_mount(self) -> None:
        """Lay the panels out; no widget has the focus but the search."""
        self.set_focus(None)
        self._arrange()

    def on_resize(self) -> None:
        """Choose the panels anew."""
        self._arrange()

    # What the reader tells

    def take(self, event: Event) -> None:
        """Take in an event of the reader thread."""
        if isinstance(event, Opened):
            self._take_opened(event)
        elif isinstance(event, Computed) and self.navigator is not None:
            for result in event.take():
                self.navigator.table.put(result)
            if not self._redraw_due:
                self._redraw_due = True
                self.set_timer(_REDRAW_SECONDS, self._redraw_results)
        elif isinstance(event, Finished):
            self._result = event.result
            self.redraw()
        elif isinstance(event, DetailReady):
            self._desk.take(event)
            self._show_detail()

    def _take_opened(self, event: Opened) -> None:
        try:
            self.navigator = start(event.table, event.samples, *self._start)
        except UsageError as error:
            self._fail(error)
            return
        self._opened = event
        self._listing.show(self.navigator)
        self._banner.redraw()
        self.redraw()

    def _redraw_results(self) -> None:
        self._redraw_due = False
        if self.navigator is not None:
            self.navigator.refresh()
        self.redraw()

    # Drawing

    @property
    def finished(self) -> bool:
        """Whether every pair is compared."""
        return self._result is not None

    @property
    def detail_shown(self) -> bool:
        """Whether the detail is on the screen."""
        return self._arrangement.detail

    @property
    def detail_ready(self) -> DetailReady | None:
        """What the reader has told of the row under the cursor."""
        return None if self.navigator is None else self._desk.ready(self.navigator)

    def redraw(self) -> None:
        """Draw everything that depends on results, cursor or message."""
        for widget in (self._verdict, self._profile, self._status):
            widget.redraw()
        self._listing.follow()
        self._show_detail()

    def _draw_verdict(self, width: int, height: int) -> Lines:
        return chrome.verdict_lines(self.navigator, self._result, width, height, self._look.glyphs)

    def _draw_profile(self, width: int, height: int) -> Lines:
        if self.navigator is None or height < 3:
            return []
        limit = None if self._opened is None else self._opened.limits.get("min_sqnr")
        return profile_lines(self.navigator, width, height, self._look.glyphs, limit=limit)

    def _profile_row(self, column: int, width: int) -> int | None:
        return None if self.navigator is None else column_to_row(column, width, self.navigator.table.ordered)

    def _show_detail(self) -> None:
        if self.navigator is None or not self._arrangement.detail:
            return
        if self._desk.want(self.navigator):
            self._detail.scroll_to(y=0, animate=False)
        self._detail.redraw()

    def _draw_detail(self, width: int) -> Lines:
        if self.navigator is None or width < _LEAST_DETAIL:
            return []
        return detail_lines(self.navigator, self.detail_ready, width, self._look.glyphs)

    def _arrange(self) -> None:
        """Show the panels that fit."""
        width, height = self.size
        chosen = self._arrangement = arrange(width, height, level=self.level, zoomed=self.zoomed)
        for widget in (self._banner, self._verdict, self._status, self._footer):
            widget.display = chosen.usable
        self._small.display = not chosen.usable
        self._body.display = chosen.usable
        self._verdict.styles.height = chosen.verdict
        self._profile.display = chosen.usable and chosen.profile > 0
        self._profile.styles.height = chosen.profile
        self._listing.display = chosen.nodes
        self._listing.styles.width = chosen.list_width or "1fr"
        self._detail.display = chosen.detail
        self._detail.styles.border_left = ("ascii" if self._look.glyphs.name == "ascii" else "vkey", "gray")
        if not chosen.nodes:
            self._detail.styles.border_left = None
        self.call_after_refresh(self.redraw)

    def say(self, message: str) -> None:
        """Put a message into the status line and draw what may have changed."""
        self.message = message
        self.redraw()
