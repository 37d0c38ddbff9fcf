"""The panels around a view: names of the runs, tabs, verdict, error profile, status line, prompt and footer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.widgets import ContentSwitcher

from qdebug.tui.drawing.look import Look
from qdebug.tui.nodes.error_profile import ErrorProfile, column_to_row
from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.screen import chrome
from qdebug.tui.screen.chrome import BackendState
from qdebug.tui.screens import MIN_HEIGHT, MIN_WIDTH, Arrangement, ScreenId, arrange
from qdebug.tui.views.answer import strip_lines
from qdebug.tui.views.view import Line, View
from qdebug.tui.widgets.key_line import KeyLine
from qdebug.tui.widgets.lines import FixedLines
from qdebug.tui.widgets.prompt import Prompt
from qdebug.tui.widgets.tab_line import TabLine

__all__ = ["Frame", "FrameState"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameState:
    """Contents of the panels.

    Args:
        backend_state: The comparison on the screen.
        navigator: Its list, or the list of the open constants; None while it is being opened.
        view: The screen.
        message: The status line; "" shows the node under the cursor.
        position_text: Position among several backends, such as "1/2"; "" if there is only one.
    """

    backend_state: BackendState
    navigator: Navigator | None
    view: ScreenId
    message: str
    position_text: str


class Frame(Vertical):
    """Lays out the panels for the terminal's size and draws them.

    Args:
        look: Shared look.
        state: Initial contents.
        page: The first view.
        prompt: Asks for text in place of the footer.
    """

    DEFAULT_CSS = """
    #banner, #status { height: 1; }
    #body { height: 1fr; }
    #views { width: 1fr; height: 100%; }
    #views > * { width: 100%; height: 100%; }
    #side { height: 100%; border-left: vkey gray; }
    Frame.ascii #side { border-left: ascii gray; }
    Frame.ascii NodesView, Frame.ascii TensorView { scrollbar-size: 0 0; }
    #small { height: 1fr; }
    """

    class VerdictClicked(Message):
        """The verdict was clicked."""

    class ProfileClicked(Message):
        """The profile was clicked.

        Args:
            row: The row that is drawn at the clicked position.
        """

        def __init__(self, row: int) -> None:
            super().__init__()
            self.row = row

    class ProfileWheeled(Message):
        """The wheel was turned on the profile.

        Args:
            direction: 1 for down, -1 for up.
        """

        def __init__(self, direction: int) -> None:
            super().__init__()
            self.direction = direction

    def __init__(self, look: Look, *, state: FrameState, page: View, prompt: Prompt) -> None:
        super().__init__(classes=look.glyphs.name)
        self.look, self.prompt = look, prompt
        self.arrangement = Arrangement()
        self._state = state
        self._error_profile = ErrorProfile()
        self._banner = FixedLines(look, self._draw_banner, id="banner")
        self.tabs = TabLine(look)
        self.tabs.set_reactive(TabLine.active, state.view.tab)
        self._verdict = FixedLines(
            look, self._draw_verdict, on_clicked=lambda *_: self.post_message(self.VerdictClicked()), id="verdict"
        )
        self._profile = FixedLines(
            look,
            self._draw_profile,
            on_clicked=self._click_profile,
            on_wheeled=lambda direction: self.post_message(self.ProfileWheeled(direction)),
            id="profile",
        )
        self._switcher = ContentSwitcher(page, initial=str(state.view), id="views")
        self._body = Horizontal(self._switcher, id="body")
        self._small = FixedLines(
            look, lambda *_: chrome.too_small(*self.screen.size, (MIN_WIDTH, MIN_HEIGHT)), id="small"
        )
        self._status = FixedLines(look, self._draw_status, id="status")
        self._footer = KeyLine(look)
        self._side: View | None = None

    def compose(self) -> ComposeResult:
        """Yield the panels from top to bottom."""
        yield self._banner
        yield self.tabs
        yield self._verdict
        yield self._profile
        yield self._body
        yield self._small
        yield self._status
        yield self.prompt
        yield self._footer

    def lay_out(self, view: ScreenId, make_side: Callable[[], View]) -> None:
        """Show the panels that fit in the terminal.

        Args:
            view: The screen.
            make_side: Creates the panel of facts beside the view; called if there is room for it.
        """
        width, height = self.screen.size
        arrangement = self.arrangement = arrange(width, height, view=view)
        for panel in (self._banner, self._verdict, self._status, self._body):
            panel.display = arrangement.is_usable
        self.show_footer()
        self.tabs.display = arrangement.is_usable and arrangement.shows_tabs
        self._small.display = not arrangement.is_usable
        self._profile.display = arrangement.is_usable and arrangement.profile > 0
        self._profile.styles.height = arrangement.profile
        if arrangement.side and self._side is None:
            self._side = make_side()
            self._body.mount(self._side)
        if self._side is not None:
            self._side.display = bool(arrangement.side)
            self._side.styles.width = arrangement.side

    @property
    def side(self) -> View | None:
        """The panel of facts beside the view; None if it is hidden."""
        return self._side if self.arrangement.side else None

    def show_page(self, view: ScreenId, page: View) -> None:
        """Show a view in the center, and select its tab."""
        if not page.is_attached:
            self._switcher.mount(page)
        self._switcher.current = str(view)
        self.tabs.active = view.tab
        self._footer.redraw()

    def show_footer(self) -> None:
        """Show the footer, or the prompt in its place."""
        self._footer.display = self.arrangement.is_usable and not self.prompt.is_asking
        self._footer.redraw()

    def show(self, state: FrameState) -> None:
        """Show new contents: arrange the panels, and draw the lines that changed."""
        self._state = state
        self._fit_status()
        self._fit_verdict()
        for panel in (self._banner, self._verdict, self._profile, self._status):
            if panel.display:
                panel.redraw()

    def text_lines(self, width: int) -> list[Line]:
        """Return the banner, the whole verdict and the profile as lines of text for a file."""
        verdict = chrome.verdict_lines(self._state.backend_state, 120, 100, self.look.glyphs)
        profile = self._draw_profile(width, self.arrangement.profile) if self.arrangement.profile else []
        return [*self._draw_banner(width, 1), *verdict, [], *profile]

    def _fit_status(self) -> None:
        """Let a message that is longer than one line use the footer's line too."""
        if not self.arrangement.is_usable:
            return
        asking = self.prompt.is_asking
        is_long = not asking and cell_len(self._state.message) >= self.size.width
        self._footer.display = not (is_long or asking)
        self._set_height(self._status, 2 if is_long else 1)

    def _fit_verdict(self) -> None:
        """Give the verdict as many lines as it needs, up to its maximum."""
        max_lines = self.arrangement.verdict
        lines = (
            chrome.verdict_lines(self._state.backend_state, self.size.width, max_lines, self.look.glyphs)
            if max_lines > 1
            else [[]]
        )
        # At least two lines, so that the panels below do not move while results arrive.
        self._set_height(self._verdict, max(len(lines), min(max_lines, 2)))

    def _set_height(self, panel: FixedLines, lines: int) -> None:
        height = panel.styles.height
        if height is None or height.value != lines:  # even an equal height would lay out the screen again
            panel.styles.height = lines

    def _draw_banner(self, width: int, _: int) -> list[Line]:
        state = self._state
        place = "qdebug" if self.arrangement.shows_tabs else f"{state.view.key} {state.view}, tab next"
        backend_state = state.backend_state
        return chrome.banner(
            backend_state.titles,
            backend_state.opened,
            width,
            self.look.glyphs,
            position_text=state.position_text,
            place=place,
        )

    def _draw_verdict(self, width: int, height: int) -> list[Line]:
        backend_state, is_reason_shown = self._state.backend_state, False
        navigator = backend_state.navigator
        if self._state.view is ScreenId.TENSOR and navigator is not None:
            is_reason_shown = backend_state.constants is None and navigator.cursor == navigator.table.first_divergence()
        return chrome.verdict_lines(backend_state, width, height, self.look.glyphs, is_reason_shown=is_reason_shown)

    def _draw_profile(self, width: int, height: int) -> Sequence[Line]:
        navigator, opened, strips = self._state.navigator, self._state.backend_state.opened, self.arrangement.strips
        has_room = height - strips >= 3 and width >= MIN_WIDTH  # not while the terminal is being resized
        if navigator is None or not has_room:
            return []
        limit = None if opened is None else opened.limits.get("min_sqnr", opened.limits.get("min_output_sqnr"))
        lines = self._error_profile.lines(navigator, width, height - strips, self.look.glyphs, limit=limit)
        return [*lines, *(strip_lines(navigator, width, self.look.glyphs) if strips else [])]

    def _draw_status(self, width: int, height: int) -> list[Line]:
        state = self._state
        return chrome.status(
            *(state.navigator, state.message, width, self.look.glyphs),
            height=height,
            with_reason=state.view is not ScreenId.TENSOR and not self.arrangement.side,
            shows_elements=state.view.shows_elements or state.view is ScreenId.TENSOR,
            shows_list=state.view.tab is ScreenId.NODES,
        )

    def _click_profile(self, column: int, _: int) -> None:
        navigator = self._state.backend_state.navigator
        row = None if navigator is None else column_to_row(column, self.size.width, navigator.table.ordered)
        if row is not None:
            self.post_message(self.ProfileClicked(row))
