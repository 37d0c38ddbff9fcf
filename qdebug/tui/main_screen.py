"""The main screen: verdict, error profile, node list, node detail, status line and footer, and what the keys do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import Input

from qdebug.analysis.result import DiffResult
from qdebug.errors import UsageError
from qdebug.tui import chrome
from qdebug.tui.arrangement import LEAST_HEIGHT, LEAST_WIDTH, Arrangement, Level, arrange
from qdebug.tui.detail_lines import detail_lines
from qdebug.tui.help_screen import HelpScreen
from qdebug.tui.keys import KEYS
from qdebug.tui.look import Look
from qdebug.tui.navigator import Navigator
from qdebug.tui.profile import Piece, column_to_row, profile_lines
from qdebug.tui.source import Computed, DetailReady, DetailRequest, Event, Finished, Opened
from qdebug.tui.widgets import FixedLines, NodeList, RowPicked, TextScroll
from qdebug.view.text import safe_text

if TYPE_CHECKING:
    from qdebug.tui.application import QdebugApp

__all__ = ["MainScreen"]

_DETAILS_KEPT = 64
_LEAST_DETAIL = 30

Lines = Sequence[Sequence[Piece]]


class MainScreen(Screen[None]):
    """Shows one comparison.

    Args:
        look: Shared look.
        titles: What the two recordings are called.
        node: Node or tensor to start at.
        sample: Sample to start with; None for all.
        ask: Sends a request to the reader thread.
        fail: Ends the application with an error.
    """

    BINDINGS = [Binding(",".join(row.keys), row.action, row.help, show=False) for row in KEYS]  # noqa: RUF012
    AUTO_FOCUS = ""
    DEFAULT_CSS = """
    MainScreen { overflow: hidden; background: $background; }
    #banner, #status, #footer { height: 1; }
    #body { height: 1fr; }
    #nodes, #detail { overflow-x: hidden; scrollbar-size-vertical: 1; scrollbar-gutter: stable; }
    #detail { width: 1fr; padding: 0 0 0 1; }
    #small { height: 1fr; }
    #search { height: 1; display: none; background: $background; }
    .ascii ScrollView { scrollbar-size: 0 0; }
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
        self._ask, self._fail = ask, fail
        self.navigator: Navigator | None = None
        self.level = Level.LIST
        self.zoomed = False
        self.message = ""
        self._opened: Opened | None = None
        self._result: DiffResult | None = None
        self._details: dict[tuple[int, int | None], DetailReady] = {}
        self._asked = 0
        self._wanted: tuple[int, int | None] | None = None
        self._search_start = 0
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
        self._small = FixedLines(look, lambda w, h: chrome.too_small(w, h, (LEAST_WIDTH, LEAST_HEIGHT)), id="small")
        self._search = Input(placeholder="part of a name, 'whole name' or ~regex", compact=True, id="search")
        yield self._banner
        yield self._verdict
        yield self._profile
        yield Horizontal(self._listing, self._detail, id="body")
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
            for result in event.results:
                self.navigator.table.put(result)
            self.navigator.refresh()
            self._wanted = None if self._current() not in self._details else self._wanted
            self.redraw()
        elif isinstance(event, Finished):
            self._result = event.result
            self.redraw()
        elif isinstance(event, DetailReady):
            self._take_detail(event)

    def _take_opened(self, event: Opened) -> None:
        node, sample = self._start
        navigator = Navigator(event.table, samples=event.samples)
        if sample is not None:
            if sample >= event.samples:
                last = event.samples - 1
                hint = f"Give --sample N with N at most {last}."
                return self._fail(UsageError(f"There is no sample {sample}; the last one is {last}.", hint=hint))
            navigator.choose_sample(sample)
        if node is not None:
            row = event.table.find(node)
            if row is None:
                return self._fail(_unknown(node, event))
            navigator.go(row)
        self._opened, self.navigator = event, navigator
        self._listing.show(navigator)
        self._banner.redraw()
        self.redraw()
        return None

    def _take_detail(self, event: DetailReady) -> None:
        while len(self._details) >= _DETAILS_KEPT:
            del self._details[next(iter(self._details))]
        self._details[event.request.row, event.request.sample] = event
        if (event.request.row, event.request.sample) == self._current():
            self._show_detail()

    # Drawing

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
        self._request()
        self._detail.redraw()

    def _draw_detail(self, width: int) -> Lines:
        if self.navigator is None or width < _LEAST_DETAIL:
            return []
        return detail_lines(self.navigator, self._details.get(self._current()), width, self._look.glyphs)

    def _current(self) -> tuple[int, int | None]:
        return (0, None) if self.navigator is None else (self.navigator.cursor, self.navigator.sample)

    def _request(self) -> None:
        """Ask for the row under the cursor, once, unless the answer is here or the row is never compared."""
        key = self._current()
        if self.navigator is None or not self.navigator.table.size or key == self._wanted:
            return
        known = self._details.get(key)
        planned = self.navigator.table.rows[key[0]]
        self._detail.scroll_to(y=0, animate=False)
        self._wanted = key
        if (known is not None and known.complete) or planned.missing is not None:
            return
        self._asked += 1
        self._ask(DetailRequest(id=self._asked, row=key[0], tensor=planned.tensor, sample=key[1]))

    def _arrange(self) -> None:
        """Show the panels that fit."""
        width, height = self.size
        chosen = self._arrangement = arrange(width, height, level=self.level, zoomed=self.zoomed)
        for widget in (self._banner, self._verdict, self._status, self._footer):
            widget.display = chosen.usable
        self._small.display = not chosen.usable
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

    # What the keys do

    def runner(self, action: str) -> Callable[[], None]:
        """Give a function that does what a key does, for the command palette."""

        def run() -> None:
            self.call_later(self.run_action, action)

        return run

    def _with(self, act: Callable[[Navigator], str]) -> None:
        if self.navigator is None:
            self.say("the recordings are still being opened")
        else:
            self.say(act(self.navigator))

    def _scroll(self, lines: int) -> None:
        if self._detail.step(lines):
            self.say("")
        else:
            self.say("the detail ends here" if lines > 0 else "the detail begins here")

    def action_move(self, lines: int) -> None:
        """Move the cursor, or scroll the detail."""
        if self.level is Level.DETAIL:
            self._scroll(lines)
        else:
            self._with(lambda navigator: navigator.move(lines))

    def action_page(self, direction: int) -> None:
        """Move by a page."""
        self.action_move(direction * max(self._page() - 1, 1))

    def action_half_page(self, direction: int) -> None:
        """Move by half a page."""
        self.action_move(direction * max(self._page() // 2, 1))

    def _page(self) -> int:
        return self._detail.size.height if self.level is Level.DETAIL else self._listing.rows_shown

    def action_edge(self, direction: int) -> None:
        """Move to the top or the bottom."""
        if self.level is Level.DETAIL:
            self._scroll(direction * 1_000_000)
        else:
            self._with(lambda navigator: navigator.edge(direction))

    def action_columns(self, direction: int) -> None:
        """Show the columns further right or left."""
        layout = self._listing.layout_shown
        if not self._arrangement.nodes or layout is None:
            return self.say("there are no columns here")
        if direction > 0 and not layout.after:
            return self.say("all columns are shown" if not layout.before else "these are the last columns")
        if direction < 0 and not layout.before:
            return self.say("these are the first columns")
        self._listing.offset_columns += direction
        return self.say("")

    def action_first_divergence(self) -> None:
        """Go to the first divergence."""
        self._with(Navigator.first_divergence)

    def action_failing(self, direction: int) -> None:
        """Go to the next or previous failing node."""
        self._with(lambda navigator: navigator.failing(direction))

    def action_match(self, direction: int) -> None:
        """Go to the next or previous match."""
        self._with(lambda navigator: navigator.match(direction))

    def action_search(self) -> None:
        """Open the search."""
        if self.navigator is None or not self._arrangement.usable:
            return self.say("the recordings are still being opened")
        self._search_start = self.navigator.cursor
        self._search.value = ""
        self._status.display, self._search.display = False, True
        self._search.focus()
        return None

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search as the user types."""
        if self._search.display and self.navigator is not None:
            self.say(self.navigator.search(event.value, start=self._search_start))

    def on_input_submitted(self) -> None:
        """Keep the search."""
        self._close_search()
        if self.navigator is not None and self.navigator.pattern:
            many = len(self.navigator.matches)
            self.say(f"{many} matches; n N walk them, esc clears" if many else self.message)

    def _close_search(self) -> None:
        self._search.display, self._status.display = False, True
        self.set_focus(None)

    def action_open(self) -> None:
        """Open the detail."""
        if self.navigator is None or not self.navigator.table.size:
            return self.say("there is no node to open yet")
        if self.level is Level.DETAIL:
            return self.say("this is the detail; ] [ go to the next and previous failing node")
        self.level = Level.DETAIL
        self._arrange()
        return self.say("detail: j k scroll, esc goes back")

    def action_back(self) -> None:
        """Go back one step: the open search, the detail, the zoom, the kept search."""
        if self._search.display:
            self._close_search()
            if self.navigator is not None:
                self.navigator.search("", start=self._search_start)
            return self.say("search cancelled")
        if self.level is Level.DETAIL:
            self.level = Level.LIST
            self._arrange()
            return self.say("back in the list")
        if self.zoomed:
            return self.action_zoom()
        if self.navigator is not None and self.navigator.pattern:
            self.navigator.search("", start=self.navigator.cursor)
            return self.say("search cleared")
        return self.say("nothing to go back to; q quits")

    def action_sort(self) -> None:
        """Sort by the next column."""
        self._with(Navigator.next_sort)

    def action_reverse(self) -> None:
        """Turn the order around."""
        self._with(Navigator.reverse)

    def action_metric(self) -> None:
        """Show the next metric."""
        self._with(Navigator.next_metric)

    def action_sample(self, direction: int) -> None:
        """Look at the next or previous sample."""
        self._with(lambda navigator: navigator.step_sample(direction))

    def action_zoom(self) -> None:
        """Show one panel alone, or all again."""
        if self._arrangement.zoom_refusal:
            return self.say(self._arrangement.zoom_refusal)
        self.zoomed = not self.zoomed
        self._arrange()
        return self.say("one panel alone; z shows the others again" if self.zoomed else "all panels")

    def action_theme(self) -> None:
        """Change the colours."""
        said = cast("QdebugApp", self.app).next_theme()
        for widget in (self._banner, self._footer):
            widget.redraw()
        self.say(said)

    def action_copy(self) -> None:
        """Send the node's name to the terminal's clipboard."""
        if self.navigator is None or not self.navigator.table.size:
            return self.say("there is no node to copy yet")
        planned = self.navigator.table.rows[self.navigator.cursor]
        name = safe_text(planned.node or planned.tensor, limit=100_000)
        self.app.copy_to_clipboard(name)
        return self.say(f"sent to the terminal: {name}")

    def action_help(self) -> None:
        """Show the help."""
        self.app.push_screen(HelpScreen(self._look))

    def action_palette(self) -> None:
        """Open the command palette."""
        self.app.action_command_palette()

    def action_leave(self) -> None:
        """Quit."""
        self.app.exit(0)

    def on_row_picked(self, event: RowPicked) -> None:
        """Go to the row that was clicked; open it if the cursor is there already."""
        if self.navigator is None:
            return
        if event.row == self.navigator.cursor and self.level is Level.LIST:
            self.action_open()
        else:
            self.navigator.go(event.row)
            self.say("")


def _unknown(node: str, event: Opened) -> UsageError:
    names = [name for row in event.table.rows for name in (row.node, row.tensor)]
    near = get_close_matches(node, names, n=3)
    also = f" Near names: {', '.join(repr(name) for name in near)}." if near else ""
    return UsageError(f"No node and no tensor is called {node!r}.{also}", hint="List them: qdebug info FILE --tensors.")
