"""The screen: its panels and what they show. The keys are answered by controllers that have it as a collaborator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from time import monotonic
from typing import cast

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.events import Key, Paste
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets.input import Selection

from qdebug.errors import UsageError
from qdebug.tui.drawing.draw import Piece
from qdebug.tui.drawing.look import Look
from qdebug.tui.keys import ROW_OF, KeyRow, key_label
from qdebug.tui.nodes.error_profile import ErrorProfile
from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.pages.elements import ElementCursor
from qdebug.tui.pages.overview_page import OverviewPage, strip_lines
from qdebug.tui.pages.page import Page, Scene, in_room
from qdebug.tui.pages.table import Pages
from qdebug.tui.provisional import Provisional, Until
from qdebug.tui.reading.messages import (
    AlignmentProgress,
    Computed,
    ConstantsReady,
    DetailReady,
    Event,
    Failed,
    Finished,
    Glimpsed,
    NamesLoaded,
    NoteKept,
    Opened,
    Request,
    StatusMessage,
    TrialReady,
)
from qdebug.tui.screen import chrome
from qdebug.tui.screen.chrome import Compared
from qdebug.tui.screen.constants import Constants
from qdebug.tui.screen.desk import DetailDesk, StartPlace, TrialDesk, start
from qdebug.tui.screen.finding import Finder
from qdebug.tui.screen.host import ScreenHost
from qdebug.tui.screen.journey import Journey
from qdebug.tui.screen.moving import Moving
from qdebug.tui.screen.other_screens import ReadingScreen
from qdebug.tui.screen.pointing import Pointing
from qdebug.tui.screen.prompt import Prompt
from qdebug.tui.screen.trying import Trying
from qdebug.tui.screen.views import Views
from qdebug.tui.screen.widgets import FixedLines, HeadingPicked, Line, NodeList, RowPicked, TextScroll
from qdebug.tui.screen.writing import Writing
from qdebug.tui.screens import LEAST_HEIGHT, LEAST_WIDTH, Arrangement, ScreenId, arrange

__all__ = ["MainScreen"]

_LEAST_DETAIL = 36
_ALL_LINES = 5000
"""Lines of a list that is written to a file."""
_NOT_OPEN = Provisional("the recordings are still being opened", Until.OPENED)
"""Said where a key needs what has not been read yet."""
_READING = "reading the graphs .. 2 lists the names"
_REDRAW_SECONDS = 0.05
"""While results come in, the screen is drawn at most this often."""
_TAKES_NO_WISH_BACK = {"views.help", "views.verdict"}
"""What only reads takes no wish back."""

Lines = Sequence[Sequence[Piece]]


class MainScreen(Screen[None]):
    """Shows a comparison. Every key changes something, or says in the status line why not.

    Args:
        look: Shared look.
        titles: What the two recordings of each comparison are called.
        begin: Where to start.
        ask: Sends a request to the reader thread.
        fail: Ends the application with an error.
    """

    AUTO_FOCUS = ""
    DEFAULT_CSS = """
    MainScreen { overflow: hidden; background: $background; }
    #banner, #tabs, #status, #footer { height: 1; }
    #body { height: 1fr; }
    #nodes, #detail { overflow-x: hidden; scrollbar-size-vertical: 1; scrollbar-gutter: stable; }
    #page, #detail { width: 1fr; padding: 0 0 0 1; }
    #small { height: 1fr; }
    #asking { height: 1; display: none; }
    #label { width: auto; height: 1; }
    #input { height: 1; width: 1fr; background: $background; }
    MainScreen.ascii #nodes, MainScreen.ascii #detail { scrollbar-size: 0 0; }
    """

    def __init__(
        self,
        look: Look,
        *,
        titles: Sequence[tuple[str, str]],
        begin: StartPlace,
        ask: Callable[[Request], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        super().__init__(classes=look.glyphs.name)
        self.look, self.ask = look, ask
        self._begin, self._fail = begin, fail
        self.compared = [Compared(each) for each in titles]
        self.backend = 0
        self.view = begin.view
        self.zoomed = False
        self.message = ""
        self.hint = ""
        self.elements = ElementCursor()
        self.pages = Pages(self.elements)
        self._desk, self._trials = DetailDesk(ask), TrialDesk(ask)
        self.untouched = begin.node is None
        self._redraw_due = False
        self.arrangement = Arrangement()
        self._error_profile = ErrorProfile()
        self.prompt, self.moving, self.views = Prompt(self), Moving(self), Views(self)
        self.finding, self.journey, self.writing = Finder(self), Journey(self), Writing(self)
        self.trying, self.constants, self.pointing = Trying(self), Constants(self), Pointing(self)

    def compose(self) -> ComposeResult:
        """Make the widgets."""
        look = self.look
        self.banner = FixedLines(look, self._draw_banner, id="banner")
        point = self.pointing
        self.tabs = FixedLines(
            look,
            lambda w, _: chrome.screen_tabs(self.view, w, many=len(self.compared) > 1),
            clicked=point.tab,
            wheeled=self.views.turn,
            id="tabs",
        )
        self._verdict = FixedLines(look, self._draw_verdict, clicked=point.verdict, id="verdict")
        self._profile = FixedLines(
            look, self._draw_profile, clicked=point.profile, wheeled=point.wheel_profile, id="profile"
        )
        self.listing = NodeList(look, id="nodes")
        self.page_panel = FixedLines(look, self._draw_page, clicked=point.page, wheeled=point.wheel, id="page")
        self.detail = TextScroll(look, self._draw_detail, clicked=point.element, id="detail")
        self._status = FixedLines(
            look,
            lambda w, h: chrome.status(
                *(self.navigator, self.message, w, look.glyphs),
                height=h,
                reasons=not self.arrangement.detail,
                values=self.view.of_tensor or self.view is ScreenId.TENSOR,
                listed=self.arrangement.nodes or self.view is ScreenId.BACKENDS,
            ),
            id="status",
        )
        self.footer = FixedLines(look, lambda w, _: chrome.footer(w), clicked=point.footer, id="footer")
        self._small = FixedLines(look, lambda *_: chrome.too_small(*self.size, (LEAST_WIDTH, LEAST_HEIGHT)), id="small")
        self._label = FixedLines(look, lambda *_: [[(self.prompt.label, "title")]], id="label")
        self.line = Line(id="input")
        self._asking = Horizontal(self._label, self.line, id="asking")
        yield self.banner
        yield self.tabs
        yield self._verdict
        yield self._profile
        self._body = Horizontal(self.listing, self.page_panel, self.detail, id="body")
        yield self._body
        yield self._small
        yield self._status
        yield self._asking
        yield self.footer

    def on_mount(self) -> None:
        """Lay the panels out; no widget has the focus but the line that asks for text."""
        self.set_focus(None)
        self.lay_out()

    def on_resize(self) -> None:
        """Choose the panels anew."""
        self.lay_out()

    # What is shown

    @property
    def now(self) -> Compared:
        """The comparison that is shown."""
        return self.compared[self.backend]

    @property
    def navigator(self) -> Navigator | None:
        """Its table and cursor, or those of the constants that are open; None while it is being opened."""
        return self.now.constants or self.now.navigator

    @property
    def scene(self) -> Scene | None:
        """Everything a page draws; None while names are being read, or if there are none."""
        now, navigator = self.now, self.navigator
        if navigator is None or now.opened is None or not navigator.table.size:
            return None
        return Scene(
            navigator=navigator,
            opened=now.opened,
            result=now.result,
            ready=self.detail_ready,
            glimpse=self._desk.glimpse(navigator, backend=self.backend),
            tried=self._trials.ready(self.backend, navigator.number),
            glyphs=self.look.glyphs,
            colours=not self.app.no_color,
            backends=[(each.titles[1], None if each.opened is None else each.opened.table) for each in self.compared],
            backend=self.backend,
        )

    @property
    def finished(self) -> bool:
        """Whether every pair is compared."""
        return self.now.result is not None

    @property
    def detail_shown(self) -> bool:
        """Whether something on the screen needs the values of the row under the cursor."""
        return self.arrangement.detail or self.view.of_tensor or self.view is ScreenId.EXPLAIN

    @property
    def detail_ready(self) -> DetailReady | None:
        """What the reader has told of the row under the cursor."""
        return None if self.navigator is None else self._desk.ready(self.navigator, backend=self.backend)

    def others_left(self, backend: int) -> bool:
        """Tell whether a backend other than this one can be shown."""
        return any(each.failure is None for at, each in enumerate(self.compared) if at != backend)

    @property
    def page(self) -> Page | None:
        """The page of the screen; None where it is a panel that scrolls."""
        return self.pages[self.view] if self.view.page else None

    @property
    def asking(self) -> bool:
        """Whether the line asks for text."""
        return self.prompt.asking

    @property
    def qdebug(self) -> ScreenHost:
        """The application."""
        return cast("ScreenHost", self.app)

    # What keys do

    async def do(self, event: Key | Paste) -> None:
        """Do what a key does, to the end; put what is pasted where text is asked for, or say where that is."""
        if self.prompt.asking:
            await self.prompt.take(event)
        elif isinstance(event, Key):
            self.press(event)
        else:  # letters are keys everywhere else
            self.say("nothing asks for text: paste after / f @ i a or e")

    def press(self, event: Key) -> None:
        """Do what a key of the table does; most take back what waits, and escape does no more than that."""
        row = ROW_OF.get(event.key)
        if row is not None:
            if row.action not in _TAKES_NO_WISH_BACK and self.journey.stay() and row.action == "views.back":
                self.say("nothing is waited for any more")
            else:
                self.perform(row)
        elif not self.asking and (event.is_printable or event.key.startswith("ctrl+")):  # others may be no keys
            name = (event.character or "").strip() if event.is_printable else ""
            self.say(f"{name or key_label(event.key)} does nothing here; ? lists the keys")

    def perform(self, row: KeyRow) -> None:
        """Do what a row of the key table says."""
        self.constants.heed(row.action, row.argument if isinstance(row.argument, ScreenId) else None)
        act: Callable[..., None] = attrgetter(row.action)(self)
        act() if row.argument is None else act(row.argument)

    def on_row_picked(self, event: RowPicked) -> None:
        """Go to the row that was clicked; open it if the cursor is there already."""
        self.pointing.row(event.row)

    def on_heading_picked(self, event: HeadingPicked) -> None:
        """Sort by the column whose heading was clicked."""
        self.pointing.heading(event.sort)

    def refuse(self) -> None:
        """Say why something cannot be done before the recordings are open."""
        failure = self.now.failure
        self.say(_NOT_OPEN if failure is None else f"{self.now.titles[1]} cannot be compared: {failure}")

    def without_scene(self, why: str) -> None:
        """Say why something cannot be done: there is nothing of that kind, or not yet."""
        if self.now.opened is None:
            self.refuse()
        else:
            self.say(why)

    def with_navigator(self, act: Callable[[Navigator], str]) -> None:
        """Do something with the node list, and say what came of it."""
        self.untouched = False
        if self.navigator is None:
            self.refuse()
        elif not self.navigator.table.size:
            self.say("the recordings share no tensor")
        else:
            self.say(act(self.navigator))

    def with_scene(self, act: Callable[[Scene], str]) -> None:
        """Do something with what is shown, and say what came of it."""
        self.untouched = False
        scene = self.scene
        if scene is None:
            self.without_scene("the recordings share no tensor")
        else:
            self.say(act(scene))

    def open_line(self, label: str, text: str, placeholder: str) -> None:
        """Show the line that asks for text, in the place of the footer.

        Args:
            label: Stands before it.
            text: What is in it, selected, so that what is typed takes its place.
            placeholder: Shown while nothing is.
        """
        self._label.styles.width = cell_len(label)
        self._label.redraw()
        self.line.placeholder, self.line.value, self.line.selection = placeholder, text, Selection(0, len(text))
        self.footer.display, self._asking.display = False, True
        self.set_focus(self.line)

    def close_line(self) -> None:
        """Show the footer again."""
        self._asking.display, self.footer.display = False, self.arrangement.usable
        self.set_focus(None)

    # What the reader tells

    def take(self, event: Event) -> None:
        """Take in an event of the reader thread."""
        if isinstance(event, NamesLoaded):
            self._take_named(event)
        elif isinstance(event, Opened):
            self._take_opened(event)
        elif isinstance(event, AlignmentProgress):
            self.compared[event.backend_at].stage = event.stage
            self._verdict.redraw()
        elif isinstance(event, Computed):
            self._redraw_soon()
        elif isinstance(event, Finished):
            self._take_finished(event)
        elif isinstance(event, DetailReady | Glimpsed | TrialReady | ConstantsReady):
            self._take_answer(event)
        elif isinstance(event, NoteKept):
            for each in self.compared:
                if each.navigator is not None:
                    each.navigator.note(event.node, event.text)
        elif isinstance(event, StatusMessage):
            self.say(event.message)
        elif isinstance(event, Failed):
            self.compared[event.backend_at].failure = event.error
            self.say(f"{self.compared[event.backend_at].titles[1]} cannot be compared: {event.error}")
        self.finding.take()
        self.journey.take(event)

    def _take_finished(self, event: Finished) -> None:
        now = self.compared[event.backend_at]
        now.result = event.result
        if now.navigator is not None:
            now.navigator.table.conclude(event.result)
        self._take_back(Until.RESULTS)
        self._redraw_results()

    def _take_answer(self, event: DetailReady | Glimpsed | TrialReady | ConstantsReady) -> None:
        if isinstance(event, ConstantsReady):
            self.constants.take(event)
        elif isinstance(event, TrialReady):
            self._trials.take(event)
        else:
            self._desk.take(event)
            self._take_back(Until.ELEMENTS)
        self._show_detail()

    def _take_back(self, known: Until) -> None:
        """Take back a message that no longer holds.

        Args:
            known: What is known now.
        """
        if isinstance(self.message, Provisional) and self.message.until & known:
            self.say("")

    def _take_named(self, event: NamesLoaded) -> None:
        now = self.compared[event.backend_at]
        now.navigator = Navigator(event.table)
        now.named_at = monotonic()
        self.set_timer(1.0, self._show_waiting)
        if event.backend_at == self.backend:
            self.listing.show(now.navigator)
        self.redraw()

    def _show_waiting(self) -> None:
        """Count the seconds while graphs are aligned."""
        if any(each.navigator and each.opened is None and each.failure is None for each in self.compared):
            self._verdict.redraw()
            self._redraw_over()
            self.set_timer(1.0, self._show_waiting)

    def _take_opened(self, event: Opened) -> None:
        now = self.compared[event.backend_at]
        try:
            now.navigator = start(event, self._begin, before=now.navigator, again=now.opened is not None)
        except UsageError as error:
            self._fail(error)
            return
        now.opened, now.result, now.constants = event, None, None
        self._take_back(Until.OPENED)
        self._desk.forget()
        self._trials.forget()
        if event.backend_at == self.backend:
            self.listing.show(now.navigator)
            self.banner.redraw()
        self.redraw()

    def _redraw_soon(self) -> None:
        if not self._redraw_due:
            self._redraw_due = True
            self.set_timer(_REDRAW_SECONDS, self._redraw_results)

    def _redraw_results(self) -> None:
        self._redraw_due = False
        for each in self.compared:
            if each.navigator is not None:
                each.navigator.table.announced = False  # first: what comes from here on is told
                each.navigator.refresh()
        self._follow_culprit()
        self.redraw()

    def _follow_culprit(self) -> None:
        """Until the user moves, the overview's cursor is on the worst culprit."""
        scene, page = self.scene, self.page
        if self.untouched and scene is not None and isinstance(page, OverviewPage):
            ranked = page.ranked(scene)
            if len(ranked):
                scene.navigator.go(int(ranked[0]))

    # Drawing

    def redraw(self) -> None:
        """Draw everything that depends on results, cursor or message."""
        self._fit_status()
        self._fit_verdict()
        for widget in (self._verdict, self._profile, self._status):
            if widget.display:
                widget.redraw()
        if self.listing.display:
            self.listing.follow()
        self._show_detail()
        self._redraw_over()

    def _redraw_over(self) -> None:
        """Draw the verdict anew that lies over this screen."""
        for over in self.qdebug.screen_stack[-1:]:  # none is left where the program ends
            if isinstance(over, ReadingScreen):
                over.redraw()

    def _fit_status(self) -> None:
        """Let a message that is too long for a line have the line of the footer as well."""
        if not self.arrangement.usable:
            return
        asking = bool(self._asking.display)
        long = not asking and self.message != self.hint and cell_len(self.message) >= self.size.width
        self.footer.display = not (long or asking)
        self._status.styles.height = 2 if long else 1

    def _fit_verdict(self) -> None:
        """Let the verdict have the lines that it takes, up to those it may have."""
        width, most = self.size.width, self.arrangement.verdict
        lines = 1 if most == 1 else len(chrome.verdict_lines(self.now, width, most, self.look.glyphs))
        least = min(most, 2)  # so that nothing moves while results come in
        if self._verdict.styles.height is None or self._verdict.styles.height.value != max(lines, least):
            self._verdict.styles.height = max(lines, least)

    def _draw_banner(self, width: int, _: int) -> Lines:
        which = f"{self.backend + 1}/{len(self.compared)}" if len(self.compared) > 1 else ""
        place = "qdebug" if self.arrangement.tabs else f"{key_label(self.view.key)} {self.view}, tab next"
        return chrome.banner(self.now.titles, self.now.opened, width, self.look.glyphs, which=which, place=place)

    def _draw_verdict(self, width: int, height: int) -> Lines:
        navigator, here = self.now.navigator, False
        if self.arrangement.detail and self.arrangement.verdict == 1 and navigator is not None:
            here = self.now.constants is None and navigator.cursor == navigator.table.first_divergence()
        return chrome.verdict_lines(self.now, width, height, self.look.glyphs, here=here)

    def _draw_profile(self, width: int, height: int) -> Lines:
        navigator, opened, strips = self.navigator, self.now.opened, self.arrangement.strips
        if navigator is None or height - strips < 3 or width < LEAST_WIDTH:  # a size on its way to another one
            return []
        limit = None if opened is None else opened.limits.get("min_sqnr")
        lines = self._error_profile.lines(navigator, width, height - strips, self.look.glyphs, limit=limit)
        return [*lines, *(strip_lines(navigator, width, self.look.glyphs) if strips else [])]

    def _draw_page(self, width: int, height: int) -> Lines:
        scene, page = self.scene, self.page
        return self._nothing() if scene is None or page is None else in_room(page.draw(scene, width, height), height)

    def words(self) -> list[str]:
        """Return what the screen shows as lines of text: facts and lists to their end, all else as it is drawn."""
        scene, page = self.scene, self.page
        if scene is None:
            return []
        above = [*self._draw_banner(self.size.width, 1), *chrome.verdict_lines(self.now, 120, 100, self.look.glyphs)]
        if page is None:
            lines = self._draw_detail(max(self.detail.size.width, 100))
        else:
            height = _ALL_LINES if page.lists else self.page_panel.size.height
            plain = replace(scene, colours=False)  # a file has none, and what only colours say would be lost
            lines = page.draw(plain, max(self.page_panel.size.width, LEAST_WIDTH), height)
        profile = self._draw_profile(self.size.width, self.arrangement.profile) if self.arrangement.profile else []
        return ["".join(text for text, _ in line) for line in (*above, [], *profile, *lines)]

    def _show_detail(self) -> None:
        if self.navigator is not None and self.now.opened is not None and self.detail_shown:
            moved = self._desk.want(
                self.navigator,
                backend=self.backend,
                elements=self.view.of_tensor,
                explain=self.view is ScreenId.EXPLAIN and self._is_computed(),
                look=self.elements.look(self.scene, self.page),
            )
            if moved:
                self.detail.scroll_to(y=0, animate=False)
        else:
            self._desk.want_nothing()
        scene, page = self.scene, self.page
        wish = None if scene is None or page is None else page.trial(scene)
        if scene is not None:
            self._trials.want(*scene.place, scene.planned.tensor, wish)
        if self.arrangement.detail:
            self.detail.redraw()
        if self.arrangement.page:
            self.page_panel.redraw()

    def _is_computed(self) -> bool:
        """Tell whether a node computes the tensor under the cursor; there is nothing to explain of an input."""
        scene = self.scene
        return scene is not None and scene.opened.backend_graph.producer(scene.planned.tensor) is not None

    def _draw_detail(self, width: int) -> Lines:
        scene = self.scene
        if scene is None:
            return self._nothing()
        if width < _LEAST_DETAIL:
            return []
        from qdebug.tui.pages.detail_lines import detail_lines  # nothing of it is on the first screen

        return detail_lines(scene, width)

    def _nothing(self) -> Lines:
        """Say why there is no row."""
        return [[(f" {_READING if self.now.opened is None else chrome.NOTHING}", "muted")]]

    def lay_out(self) -> None:
        """Show the panels that fit."""
        width, height = self.size
        chosen = self.arrangement = arrange(width, height, view=self.view, zoomed=self.zoomed)
        for widget in (self.banner, self._verdict, self._status, self.footer):
            widget.display = chosen.usable
        self.tabs.display = chosen.usable and chosen.tabs
        self._small.display = not chosen.usable
        self._body.display = chosen.usable
        self._profile.display = chosen.usable and chosen.profile > 0
        self._profile.styles.height = chosen.profile
        self.listing.display = chosen.nodes
        self.listing.styles.width = chosen.list_width or "1fr"
        self.page_panel.display, self.detail.display = chosen.page, chosen.detail
        self.detail.styles.width = chosen.detail_width or "1fr"
        framed: tuple[tuple[Widget, bool], ...] = (
            (self.detail, chosen.nodes or chosen.page),
            (self.page_panel, chosen.nodes),
        )
        for framed_widget, beside in framed:
            if beside:
                framed_widget.styles.border_left = ("ascii" if self.look.glyphs.name == "ascii" else "vkey", "gray")
            else:
                framed_widget.styles.border_left = None
        self.tabs.redraw()
        self.banner.redraw()
        self.call_after_refresh(self.redraw)

    def say(self, message: str) -> None:
        """Put a message into the status line and draw what may have changed."""
        self.message = message
        self.redraw()
