"""The main screen: what each key does. Every key changes something, or says in the status line why not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from textual.binding import Binding
from textual.widgets import Input

from qdebug.tui.arrangement import Level
from qdebug.tui.help_screen import HelpScreen
from qdebug.tui.keys import KEYS
from qdebug.tui.navigator import Navigator
from qdebug.tui.panels import Panels
from qdebug.tui.widgets import RowPicked
from qdebug.view.text import safe_text

if TYPE_CHECKING:
    from qdebug.tui.application import QdebugApp

__all__ = ["MainScreen"]


class MainScreen(Panels):
    """Shows one comparison and answers the keys of the table."""

    BINDINGS = [Binding(",".join(row.keys), row.action, row.help, show=False) for row in KEYS]  # noqa: RUF012

    _search_start = 0

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
