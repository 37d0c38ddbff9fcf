"""The main screen: the frame around the current view, the shared keys, and the handling of worker events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.binding import ActiveBinding
from textual.events import Key, Paste, Resize
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Input

from qdebug.errors import UsageError
from qdebug.present import shell
from qdebug.present.text import safe_text
from qdebug.tui.drawing.look import Look
from qdebug.tui.keys import key_label
from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.provisional import Provisional, Until
from qdebug.tui.reading.messages import (
    AlignmentProgress,
    BudgetWish,
    Computed,
    ConstantsReady,
    ConstantsRequest,
    DetailReady,
    Failed,
    Finished,
    Glimpsed,
    NamesLoaded,
    NoteSaved,
    Opened,
    Opening,
    StatusMessage,
    TrialReady,
)
from qdebug.tui.screen import chrome, exports, writing
from qdebug.tui.screen.back_stack import BackStack
from qdebug.tui.screen.bindings import BINDINGS, CONSTANT_ACTIONS, READING_ACTIONS, listed_key_rows, view_key_rows
from qdebug.tui.screen.chrome import BackendState
from qdebug.tui.screen.files import Files
from qdebug.tui.screen.finding import Filter, search_question
from qdebug.tui.screen.frame import Frame, FrameState
from qdebug.tui.screen.jumps import (
    FIRST_DIVERGENCE,
    NEXT_FAILING,
    OUTPUT,
    Jump,
    go_to_failing,
    go_to_origin,
    origin_jump,
    verdict_output_row,
)
from qdebug.tui.screen.loader import Loader
from qdebug.tui.screen.other_screens import HelpScreen, ReadingScreen, help_lines
from qdebug.tui.screen.start_place import StartPlace, make_navigator
from qdebug.tui.screens import MIN_WIDTH, TABS, VIEWS, ScreenId
from qdebug.tui.views.answer import AnswerView
from qdebug.tui.views.elements import ElementCursor
from qdebug.tui.views.nodes import NodesView
from qdebug.tui.views.samples import BackendStep
from qdebug.tui.views.table import Views, load_views
from qdebug.tui.views.view import Constant, Scene, Stage, Target, View
from qdebug.tui.widgets.current_size import has_terminal_size
from qdebug.tui.widgets.prompt import Prompt, Question
from qdebug.tui.widgets.tab_line import TabLine

__all__ = ["MainScreen"]

_NOT_OPEN = Provisional("the recordings are still being opened", Until.OPENED)
"""Shown if a key needs something that has not been read yet."""
_READING = "reading the graphs .. 2 lists the names"
_TOO_SMALL = "the terminal is too small to type text"
_CONSTANT_VIEWS = frozenset({ScreenId.TENSOR, ScreenId.VALUES, ScreenId.CHANNELS, ScreenId.MAP})
"""Screens that can show constants. Any other screen shows the node again."""
_REDRAW_SECONDS = 0.05
"""Minimum interval between two redraws while results arrive."""
_PROFILE_STEPS = 60
"""Wheel steps from one end of the profile to the other, in a large network."""


class CursorPlace(NamedTuple):
    """The position of the cursor, and how the list is shown."""

    backend: int
    row: int
    sample: int | None
    step: int
    metric: str
    filter: str


class MainScreen(Stage):
    """Shows a comparison. Every key changes something, or explains in the status line why it does not.

    Args:
        look: Shared look.
        titles: Names of the two recordings of each comparison.
        start_place: The node, sample, screen and filter to start with.
        files: Files that belong to the comparison.
        openings: For each backend, how it and the reference are opened and aligned on a worker thread.
        fail: Ends the application with an error.
    """

    AUTO_FOCUS = ""
    BINDINGS = BINDINGS
    DEFAULT_CSS = """
    MainScreen { overflow: hidden; background: $background; }
    """

    # Watchers paint the lines that changed. With repaint=True, each key would paint the whole screen.
    view: reactive[ScreenId] = reactive(ScreenId.ANSWER, init=False, repaint=False)
    backend: reactive[int] = reactive(0, init=False, repaint=False)
    cursor_place: reactive[CursorPlace | None] = reactive(None, init=False, repaint=False)
    message: reactive[str] = reactive("", init=False, repaint=False, always_update=True)

    def __init__(
        self,
        look: Look,
        *,
        titles: Sequence[tuple[str, str]],
        start_place: StartPlace,
        files: Files,
        openings: Sequence[Opening],
        fail: Callable[[BaseException], None],
    ) -> None:
        super().__init__(classes=look.glyphs.name)
        self.look, self.files = look, files
        self.loader = Loader(openings, load=load_views)
        self._fail, self._start_place = fail, start_place
        self.backend_states = [BackendState(pair) for pair in titles]
        self.elements = ElementCursor()
        self.views = Views(self.elements, look)
        self._back_stack = BackStack()
        self._waiting_jump: Jump | None = None
        self._filter, self._exporting = (
            Filter(lambda: self.navigator, self._back_stack.add_state),
            writing.Exporting(self.loader.submit),
        )
        self._constants: tuple[ConstantsRequest, str] | None = None
        self._constants_depth = 0
        self._output_visit: tuple[Navigator, int, int] | None = None
        """List, node and output, after the samples of the output were opened from the first screen."""
        self.is_untouched = start_place.node is None
        self._is_redraw_due = False
        self.set_reactive(MainScreen.view, start_place.view)

    def compose(self) -> ComposeResult:
        """Create the widgets."""
        self.prompt = Prompt(self.look, say=self.say, on_closed=self._prompt_closed)
        self.frame = Frame(self.look, state=self._frame_state(), page=self.page, prompt=self.prompt)
        yield self.loader
        yield self.frame

    def _frame_state(self) -> FrameState:
        backend_count = len(self.backend_states)
        return FrameState(
            backend_state=self.current,
            navigator=self.navigator,
            view=self.view,
            message=self.message,
            position_text=f"{self.backend + 1}/{backend_count}" if backend_count > 1 else "",
        )

    def on_mount(self) -> None:
        """Arrange the panels."""
        self.set_focus(self.page)
        self.watch(self, "focused", self._keep_focus, init=False)
        self.lay_out()
        self.loader.compare()

    def _keep_focus(self, focused: Widget | None) -> None:
        """Return the focus to the page. Textual takes it from a widget that does not fit in the terminal."""
        if focused is None and not self.is_asking:
            self.set_focus(self.page)
        self.frame.show_footer()

    def on_resize(self, event: Resize) -> None:
        """Arrange the panels for the new size."""
        if has_terminal_size(event, self):
            self.lay_out()

    # What is shown

    @property
    def current(self) -> BackendState:
        """The comparison on the screen."""
        return self.backend_states[self.backend]

    @property
    def navigator(self) -> Navigator | None:
        """The table and cursor of the comparison, or of the open constants; None before names are read."""
        return self.current.constants or self.current.navigator

    @property
    def scene(self) -> Scene | None:
        """Everything that a view draws; None while names are being read, or if there are no tensors."""
        current, navigator = self.current, self.navigator
        if navigator is None or current.opened is None or not navigator.table.size:
            return None
        return Scene(
            navigator=navigator,
            opened=current.opened,
            result=current.result,
            ready=self.detail_ready,
            glimpse=self.loader.glimpse(navigator, backend=self.backend),
            trial=self.loader.latest_trial(self.backend, navigator.number),
            glyphs=self.look.glyphs,
            colours=not self.app.no_color,
            backends=[
                (backend_state.titles[1], None if backend_state.opened is None else backend_state.opened.table)
                for backend_state in self.backend_states
            ],
            backend=self.backend,
        )

    @property
    def is_finished(self) -> bool:
        """Whether all pairs are compared."""
        return self.current.result is not None

    @property
    def shows_detail(self) -> bool:
        """Whether something on the screen needs the values of the row under the cursor."""
        shows_node_values = self.view in {ScreenId.TENSOR, ScreenId.WHY} or self.view.shows_elements
        return shows_node_values or self.side is not None

    @property
    def detail_ready(self) -> DetailReady | None:
        """The facts known about the row under the cursor; None if there are none."""
        return None if self.navigator is None else self.loader.detail_of(self.navigator, backend=self.backend)

    @property
    def page(self) -> View:
        """The view that is shown."""
        return self.views[self.view]

    @property
    def side(self) -> View | None:
        """The panel of facts beside the view; None if it is hidden."""
        return self.frame.side

    @property
    def is_asking(self) -> bool:
        """Whether the prompt is open."""
        return self.prompt.is_asking

    @property
    def line(self) -> Input:
        """The input line of the prompt."""
        return self.prompt.line

    def has_other_backend(self, backend: int) -> bool:
        """Return whether any other backend can be shown."""
        return any(
            backend_state.failure is None for at, backend_state in enumerate(self.backend_states) if at != backend
        )

    # Keys

    async def press(self, event: Key | Paste) -> None:
        """Run a key's action to the end. Insert pasted text into an open prompt, or report where text can be pasted."""
        prompt = self.prompt
        if isinstance(event, Paste):
            if prompt.is_asking:
                prompt.insert(event.text)
            else:  # without a prompt, letters are keys
                self.say("nothing asks for text: paste after / f @ i or e")
        elif not prompt.insert_key(event):
            active_binding = self.active_bindings.get(event.key)
            if active_binding is not None:
                await self.perform(active_binding.binding.action, active_binding)
            # Other events without a binding are not reported, since they may not come from a key.
            elif not prompt.is_asking and (event.is_printable or event.key.startswith("ctrl+")):
                name = (event.character or "").strip() if event.is_printable else ""
                self.say(f"{name or key_label(event.key)} does nothing here; ? lists the keys")
        prompt.respond()  # before painting, so that the text and its effect appear together

    async def perform(self, action: str, active_binding: ActiveBinding | None = None) -> None:
        """Run an action. Most actions cancel a waiting jump; `back` then does nothing else."""
        name = action.rpartition("screen.")[2].partition("(")[0].rpartition(".")[2]
        if name not in READING_ACTIONS and not self.is_asking and self._cancel_jump() and name == "back":
            return self.say("no longer waiting")
        self._leave_constants_for(name)
        await self.app.run_action(action, self if active_binding is None else active_binding.node)
        return None

    def cancel_pending(self) -> None:
        """Close the prompt and cancel a waiting jump, as nearly every key and click does."""
        self.prompt.cancel()
        self._cancel_jump()

    def say(self, message: str) -> None:
        """Show a message in the status line, and redraw."""
        self.message = message

    def watch_message(self) -> None:
        """Redraw after a key, since every key sets the message, if only to ""."""
        self.redraw()

    def watch_cursor_place(self, place_before: CursorPlace | None, place: CursorPlace | None) -> None:
        """Stop waiting for an element once the cursor is on a different row."""
        if place_before is not None and place is not None and place_before[:2] != place[:2]:
            self.elements.stop_waiting()

    def ask(self, question: Question) -> None:
        """Open the prompt with a question."""
        self.prompt.ask(question)
        self.frame.show_footer()

    def _prompt_closed(self) -> None:
        self.set_focus(self.page)
        self.frame.show_footer()

    def say_not_open(self) -> None:
        """Explain why something cannot be done before the recordings are open."""
        failure = self.current.failure
        self.say(_NOT_OPEN if failure is None else f"{self.current.titles[1]} cannot be compared: {failure}")

    def with_navigator(self, act: Callable[[Navigator], str]) -> None:
        """Apply a function to the node list, and show its message."""
        self.is_untouched = False
        if self.navigator is None:
            self.say_not_open()
        elif not self.navigator.table.size:
            self.say("the recordings share no tensor")
        else:
            self.say(act(self.navigator))

    def with_scene(self, act: Callable[[Scene], Target | str | None]) -> None:
        """Apply a function to the scene. Go to the target that it returns, or show its message."""
        self.is_untouched = False
        scene = self.scene
        if scene is not None:
            target = act(scene)
            if target is not None:
                self.say(self.go_to(target))
        elif self.current.opened is None:
            self.say_not_open()
        else:
            self.say("the recordings share no tensor")

    # Moving

    def action_move(self, lines: int) -> None:
        """Move the cursor, or scroll."""
        if self.scene is None:
            self.with_navigator(lambda navigator: navigator.move(lines))
        else:
            self.with_scene(lambda scene: self.page.move(scene, lines))

    def action_page(self, direction: int) -> None:
        """Move by a page."""
        self.action_move(direction * max(self.page.page_lines - 1, 1))

    def action_edge(self, direction: int) -> None:
        """Move to the top or the bottom."""
        if self.scene is None:
            self.with_navigator(lambda navigator: navigator.edge(direction))
        else:
            self.with_scene(lambda scene: self.page.edge(scene, direction))

    def action_side(self, direction: int) -> None:
        """Move left or right: columns, edges of the graph, elements of a tensor, backends."""
        self.with_scene(lambda scene: self.page.side(scene, direction))

    def action_block(self, direction: int) -> None:
        """Go to the next or previous block."""
        self.with_navigator(lambda navigator: navigator.block(direction))

    def action_history(self, direction: int) -> None:
        """Go back or forward in the history."""
        self.with_navigator(lambda navigator: navigator.back(direction))

    # Where an error is

    def action_first_divergence(self) -> None:
        """Go to the first divergence."""
        self._jump_to(FIRST_DIVERGENCE)

    def action_failing(self, direction: int) -> None:
        """Go to the next or previous failing node. Jumps backwards never need to wait."""
        if direction < 0:
            self.with_scene(lambda scene: go_to_failing(scene, direction))
        else:
            self._jump_to(NEXT_FAILING)

    def action_match(self, direction: int) -> None:
        """Go to the next match of the search or, without a search, to the view's next worst position."""
        if self.page.has_worst:
            self.with_scene(lambda scene: self.page.worst(scene, direction))
        elif self.navigator is not None and self.navigator.pattern:
            self.with_navigator(lambda navigator: navigator.match(direction))
        else:
            self.action_failing(direction)

    def action_origin(self) -> None:
        """Go to the origin of the error. While results are incomplete, go to the origin so far if any node fails."""
        scene = self.scene
        if scene is not None and len(scene.table.failing(scene.navigator.sample)):
            return self.with_scene(go_to_origin)
        return self._jump_to(origin_jump(is_untouched=self.is_untouched), keep_following=self.is_untouched)

    def action_output(self) -> None:
        """Go to the worst output, or from there to the next worst."""
        self._jump_to(OUTPUT)

    def _jump_to(self, jump: Jump, *, keep_following: bool = False) -> None:
        """Perform a jump now, or once its target is known."""
        scene = self.scene
        if scene is None and self.current.opened is None and self.current.failure is None:
            is_target_known = False
        else:
            is_target_known = scene is None or jump.is_target_known(scene)  # without a scene, `with_scene` says why
        if is_target_known:
            return self.with_scene(jump.go)
        self.is_untouched = self.is_untouched and keep_following
        self._waiting_jump = jump
        return self.say(jump.waiting_text)

    def _cancel_jump(self) -> bool:
        """Cancel a waiting jump. Return whether there was one."""
        jump, self._waiting_jump = self._waiting_jump, None
        return jump is not None

    # Finding

    def action_search(self) -> None:
        """Search for a part of a name."""
        if self.navigator is None or self.current.opened is None:  # nodes and operators are not known yet
            self.say_not_open()
        elif not self.frame.arrangement.is_usable:
            self.say(_TOO_SMALL)
        else:
            self.is_untouched = False
            self.ask(search_question(lambda: self.navigator, self._back_stack.add_state))

    def action_filter(self) -> None:
        """Ask for a filter."""
        navigator = self.navigator
        if navigator is None or self.current.opened is None:
            self.say_not_open()
        elif not self.frame.arrangement.is_usable:
            self.say(_TOO_SMALL)
        else:
            self.is_untouched = False
            if self.view is not ScreenId.NODES:
                self.show(ScreenId.NODES)
            self.ask(self._filter.question(navigator))

    def action_clear_filter(self) -> None:
        """Show all nodes."""
        self.with_navigator(self._filter.clear)

    def action_mark(self) -> None:
        """Mark the node."""
        self.with_navigator(Navigator.mark)

    def action_next_mark(self) -> None:
        """Go to the next mark."""
        self.with_navigator(Navigator.next_mark)

    def action_element(self) -> None:
        """Ask for an element to jump to."""
        self.elements.stop_waiting()
        question = Question(label="@", placeholder="an index such as 0,12,3,7", on_submit=self.to_element)
        self.with_scene(lambda _: self._ask_on_elements(question))

    def _ask_on_elements(self, question: Question) -> None:
        if self.view not in {ScreenId.VALUES, ScreenId.MAP}:
            self.show(ScreenId.VALUES)
        self.ask(question)

    def action_clipped(self) -> None:
        """Go to the next clipped element."""
        self.with_scene(lambda _: self.to_element(""))

    def to_element(self, text: str) -> str:
        """Show an element, or with "" the next clipped one, now or once it is read. Return a message."""
        if self.scene is None:
            return "there is no tensor"
        if self.view not in {ScreenId.VALUES, ScreenId.MAP}:
            self.show(ScreenId.VALUES)
        scene = self.scene
        if text:
            return self.elements.go_to_element(scene, self.view, text)
        return self.elements.go_to_clipped(scene, self.view)

    # What is shown, and how

    def show(self, view: ScreenId) -> str:
        """Go to a screen. If it cannot show anything, return why."""
        self.is_untouched = False
        if view is self.view:
            return f"this is the screen {view}"
        if view is ScreenId.SAMPLES and self.current.opened is not None and self.current.opened.samples == 1:
            return "there is only one sample"
        if view is ScreenId.BACKENDS and len(self.backend_states) == 1:
            return "only one backend is open; for several: qdebug tui REF A B C"
        first = 0 if self.current.constants is None else self._constants_depth + 1
        self._back_stack.add_view(self.view, view, first=first)
        if view is ScreenId.SAMPLES and self.view is ScreenId.ANSWER:
            self._visit_output()
        self.view = view
        return ""

    def _visit_output(self) -> None:
        """Go to the verdict's output, whose samples the first screen leads to."""
        scene = self.scene
        row = None if scene is None else verdict_output_row(scene)
        if scene is not None and row is not None and row != scene.row:
            self._output_visit = scene.navigator, scene.row, row
            scene.navigator.go(row)

    def _leave_output(self) -> None:
        """Return to the node from which the first screen was left for the samples of the output."""
        visit, self._output_visit = self._output_visit, None
        if visit is not None and visit[0] is self.navigator and visit[0].cursor == visit[2]:
            visit[0].go(visit[1])

    def watch_view(self, _: ScreenId, view: ScreenId) -> None:
        """Show a view and give it the keyboard focus. Show the node again after leaving its constants or the output."""
        if view is ScreenId.ANSWER:
            self._leave_output()
        page = self.page
        self.frame.show_page(view, page)
        if view not in _CONSTANT_VIEWS or (
            self.current.constants is not None and self._back_stack.depth <= self._constants_depth
        ):
            self._leave_constants()
        self.set_focus(self.line if self.is_asking else page)
        self.lay_out()

    def go_to(self, target: Target | str) -> str:
        """Go to the target of a view. Return a message."""
        if isinstance(target, Constant):
            self._open_constants(target.name)
            return self.message
        if not isinstance(target, ScreenId):
            return target
        self.is_untouched = False
        if target is self.view:
            return self.show(target)
        self._back_stack.add_deeper(self.view)
        self.view = target
        return ""

    def action_screen(self, name: str) -> None:
        """Go to a screen. A screen that is already shown in another form returns to its first form."""
        self.say(self.show(_view_by_name(name)))

    @on(TabLine.Picked)
    def _pick_tab(self, event: TabLine.Picked) -> None:
        self.cancel_pending()
        self._leave_constants_for("screen")
        self.action_screen(event.view)

    @on(TabLine.Turned)
    def _turn_tabs(self, event: TabLine.Turned) -> None:
        self.cancel_pending()
        self._leave_constants_for("turn")
        self.action_turn(event.direction)

    @on(BackendStep)
    def _step_backend(self, event: BackendStep) -> None:
        self.action_backend(event.direction)

    def action_turn(self, direction: int) -> None:
        """Go to the next or previous screen that can show something."""
        position = TABS.index(self.view.tab)
        for step in range(1, len(TABS)):
            view = TABS[(position + direction * step) % len(TABS)]
            if not (view is ScreenId.SAMPLES and self.current.opened is not None and self.current.opened.samples == 1):
                return self.say(self.show(view))
        return None

    def action_open(self) -> None:
        """Go deeper."""
        self.with_scene(self.page.enter)

    @property
    def _forms(self) -> Sequence[ScreenId]:
        """The forms of the screen that can be shown. Backends side by side need several backends."""
        has_one_backend = len(self.backend_states) == 1
        hidden = {ScreenId.BACKENDS} - {self.view} if has_one_backend else set()
        return [form for form in self.view.tab.forms if form not in hidden]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the key for the next form only if the screen has several."""
        if action == "form" and len(self._forms) == 1:
            return False
        return super().check_action(action, parameters)

    def action_form(self) -> None:
        """Show the next form: of the view itself, or else the next view of the screen."""
        forms = self._forms

        def show_next(scene: Scene) -> str:
            message = self.page.next_form(scene)
            if message is not None:
                return message
            next_view = forms[(forms.index(self.view) + 1) % len(forms)]
            self.view = next_view
            return next_view.about

        self.with_scene(show_next)

    def action_back(self) -> None:
        """Undo the last step: the open prompt, a screen, the search or the filter."""
        navigator = self.navigator
        if self.prompt.cancel():
            return None
        while (last_step := self._back_stack.pop()) is not None:
            if isinstance(last_step, ScreenId):
                if last_step is self.view:
                    self.watch_view(last_step, last_step)
                self.view = last_step
                return self.say(f"back on the screen {last_step}")
            if message := _clear_state(navigator, last_step):
                return self.say(message)
        # All backends share the stack, but each has a search and a filter of its own.
        message = _clear_state(navigator, "search") or _clear_state(navigator, "filter")
        return self.say(message or "nothing to go back to; q quits")

    def action_reverse(self) -> None:
        """Reverse the order of the nodes."""
        self.with_navigator(Navigator.reverse)

    def action_metric(self, name: str = "") -> None:
        """Show a metric, or the next one."""
        self.with_navigator(lambda navigator: navigator.choose_metric(name) if name else navigator.next_metric())

    def action_sample(self, direction: int) -> None:
        """Select the next or previous sample."""
        self.with_navigator(lambda navigator: navigator.step_sample(direction))

    def action_step(self, direction: int) -> None:
        """Select the next or previous step of a stateful network."""
        self.with_navigator(lambda navigator: navigator.next_step(direction))

    def action_backend(self, direction: int) -> None:
        """Show the next or previous backend."""
        backend_count = len(self.backend_states)
        if backend_count == 1:
            return self.say("only one backend is open; for several: qdebug tui REF A B C")
        self.backend = (self.backend + direction) % backend_count
        failure_text = f": {self.current.failure}" if self.current.failure is not None else ""
        return self.say(f"backend {self.backend + 1} of {backend_count}, {self.current.titles[1]}{failure_text}")

    def watch_backend(self, backend_before: int, backend: int) -> None:
        """Show a backend at the node that was shown for the previous one."""
        previous_state = self.backend_states[backend_before]
        previous_navigator = previous_state.constants or previous_state.navigator
        self.loader.reader.preferred_backend = backend
        navigator = self.current.navigator
        if navigator is not None and previous_navigator is not None:
            navigator.metric = previous_navigator.metric
            reference = (
                previous_navigator.table.rows[previous_navigator.cursor].reference_tensor
                if previous_navigator.table.size
                else ""
            )
            row = navigator.table.row_of_reference(reference)
            if row is not None:
                navigator.jump(row)
            if navigator.sample != previous_navigator.sample and (previous_navigator.sample or 0) < navigator.samples:
                navigator.choose_sample(previous_navigator.sample)
        self._show_list()

    def action_help_keys(self) -> None:
        """Show the help."""
        view, own_rows = self.view, view_key_rows(type(self.page))
        own_keys = {key for row in own_rows for key in row.keys}
        shared_rows = [row for row in listed_key_rows() if not own_keys & {*row.keys}]
        self.app.push_screen(HelpScreen(self.look, lambda width: help_lines(view, own_rows, shared_rows, width)))

    def action_verdict(self) -> None:
        """Show the whole verdict."""
        self.app.push_screen(
            ReadingScreen(self.look, lambda width: chrome.verdict_text(self.current, width, self.look.glyphs))
        )

    def action_edit(self) -> None:
        """Try the edits of the node that the line try shows; without any, its edit with the best gain."""
        if self.view is not ScreenId.MEND:
            self.with_scene(lambda _: ScreenId.MEND)
        if self.view is ScreenId.MEND:
            self.with_scene(self.page.try_best)

    # Writing

    def action_acknowledge(self) -> None:
        """Ask why the node's error is acceptable."""
        self._ask_of(lambda scene: writing.ask_acknowledgement(scene, self.files.limits, self.loader.submit))

    def action_note(self) -> None:
        """Ask for a note on the node."""
        self._ask_of(lambda scene: writing.ask_note(scene, self.files.limits, self.loader.submit))

    def action_pair(self) -> None:
        """Ask which reference tensor corresponds to the tensor."""
        self._ask_of(lambda scene: writing.ask_pair(scene, self.files.map, self.loader.submit))

    def action_export(self) -> None:
        """Ask for a file to write."""
        self._ask_of(lambda scene: self._exporting.question(scene, self.page, self._export))

    def _ask_of(self, question_of: Callable[[Scene], Question | str]) -> None:
        scene = self.scene
        if scene is None:
            return self.with_scene(lambda _: None)
        question = question_of(scene)
        return self.say(question) if isinstance(question, str) else self.ask(question)

    def _export(self, text: str) -> str:
        self.call_after_refresh(self._write, text)  # so that a picture does not show the prompt
        return ""

    def _write(self, text: str) -> None:
        self.with_scene(
            lambda scene: self._exporting.write(
                text, scene, self.page, picture=self.app.export_screenshot, text_lines=self.text_lines
            )
        )

    def action_copy(self) -> None:
        """Copy the node's name to the terminal's clipboard."""
        self.with_scene(
            lambda scene: self._send(safe_text(scene.plan_row.node or scene.plan_row.tensor, limit=100_000))
        )

    def action_copy_command(self) -> None:
        """Copy the command that shows this screen again to the terminal's clipboard."""

        def command(scene: Scene) -> str:
            view_command = self.page.command(scene, self.files.pair(self.backend))
            if view_command is not None:
                return self._send(shell.command(*view_command))
            words = self.files.command_words(
                has_acknowledged=bool(scene.table.acknowledged.any()), backend=self.backend
            )
            return self._send(exports.command(words, scene, self.view))

        self.with_scene(command)

    def _send(self, text: str) -> str:
        self.app.copy_to_clipboard(text)
        return f"sent to the terminal: {text}"

    # Constants of a node, opened like tensors on the screens of a tensor

    def action_constants(self) -> None:
        """Open the first constant of the node, or the next one if a constant is open."""
        constants = self.current.constants
        if constants is None:
            return self._open_constants("")
        constants.go((constants.cursor + 1) % constants.table.size)
        return self.say("this is its only constant" if constants.table.size == 1 else _constant_text(constants))

    def _open_constants(self, name: str) -> None:
        """Request the constants of the node, in order to open the named one, or the first for ""."""
        scene = self.scene
        if scene is None:
            return self.with_scene(lambda _: None)
        side, tensor = scene.plan_row.side, scene.plan_row.tensor or scene.plan_row.reference_tensor
        graph = scene.opened.reference_graph if side == "reference" else scene.opened.backend_graph
        if graph.producer(tensor) is None:
            return self.say("no node computes this tensor, so it has no constants")
        self._constants = ConstantsRequest(backend=self.backend, tensor=tensor, side=side), name
        self.loader.submit(self._constants[0])
        return self.say(f"reading the constants of {safe_text(scene.plan_row.node, limit=50)} ..")

    @on(ConstantsReady)
    def _take_constants(self, event: ConstantsReady) -> None:
        """Show the requested constants."""
        request_and_name = self._constants
        if request_and_name is None or request_and_name[0] is not event.request:
            return None
        self._constants = None
        if not event.table.size:
            return self.say("its node reads no constants that were recorded")
        constants = self.current.constants = Navigator(event.table)
        constants.go(event.table.row_of(request_and_name[1]) or 0)
        self._constants_depth = self._back_stack.depth
        self._back_stack.add_deeper(self.view)
        self.view = ScreenId.TENSOR
        self._show_list()
        return self.say(_constant_text(constants))

    def _leave_constants_for(self, action: str) -> None:
        """Cancel a request for constants, and show the node again if an action applies to the node."""
        self._constants = None
        if action not in CONSTANT_ACTIONS:
            self._leave_constants()

    def _leave_constants(self) -> None:
        """Show the node again."""
        if self.current.constants is not None:
            self.current.constants = None
            self._show_list()

    # Events from workers

    @on(NamesLoaded)
    def _take_names(self, event: NamesLoaded) -> None:
        backend_state = self.backend_states[event.backend_at]
        backend_state.navigator = Navigator(event.table)
        backend_state.names_shown_at = monotonic()
        self.set_timer(1.0, self._update_waiting_time)
        self._show_list()
        self.redraw()
        self.call_after_refresh(self.loader.reader.names_shown.set)

    @on(AlignmentProgress)
    def _take_progress(self, event: AlignmentProgress) -> None:
        self.backend_states[event.backend_at].stage = event.stage
        self._redraw_frame()

    @on(Opened)
    def _take_opened(self, event: Opened) -> None:
        backend_state = self.backend_states[event.backend_at]
        try:
            backend_state.navigator = make_navigator(
                event,
                self._start_place,
                navigator_before=backend_state.navigator,
                was_compared=backend_state.opened is not None,
            )
        except UsageError as error:
            self._fail(error)
            return
        backend_state.opened, backend_state.result, backend_state.constants = event, None, None
        self._expire_message(Until.OPENED)
        self.loader.forget()
        if event.backend_at == self.backend:
            self._show_list()
            self.frame.tabs.hidden = frozenset({ScreenId.SAMPLES} if event.samples == 1 else ())
        self.redraw()

    @on(Computed)
    def _take_computed(self) -> None:
        self._redraw_soon()

    @on(Finished)
    def _take_finished(self, event: Finished) -> None:
        backend_state = self.backend_states[event.backend_at]
        backend_state.result = event.result
        if backend_state.navigator is not None:
            backend_state.navigator.table.conclude(event.result)
        self._expire_message(Until.RESULTS)
        self._redraw_results()

    @on(DetailReady)
    @on(Glimpsed)
    def _take_detail(self) -> None:
        self._expire_message(Until.ELEMENTS)
        self._show_view()
        scene = self.scene
        message = None if scene is None else self.elements.resume_wait(scene, self.view)
        if message is not None:
            self.say(message)

    @on(TrialReady)
    def _take_trial(self) -> None:
        self._show_view()

    @on(NoteSaved)
    def _take_note(self, event: NoteSaved) -> None:
        for backend_state in self.backend_states:
            if backend_state.navigator is not None:
                backend_state.navigator.note(event.node, event.text)

    @on(StatusMessage)
    def _take_message(self, event: StatusMessage) -> None:
        jump = self._waiting_jump
        self.say(event.message if jump is None else Provisional(f"{event.message}; {jump.waiting_text}", Until.RESULTS))

    @on(Failed)
    def _take_failure(self, event: Failed) -> None:
        """Continue with the other backends, or end the program if there are none."""
        if event.fatal or not self.has_other_backend(event.backend_at):
            self._fail(event.error)
            return
        self.backend_states[event.backend_at].failure = event.error
        if event.backend_at == self.backend:
            self._waiting_jump = None
        self.say(f"{self.backend_states[event.backend_at].titles[1]} cannot be compared: {event.error}")

    def _perform_waiting_jump(self) -> None:
        """Perform the waiting jump if its target is now known."""
        jump, scene = self._waiting_jump, self.scene
        if jump is not None and scene is not None and jump.is_target_known(scene):
            self._waiting_jump = None
            self.with_scene(jump.go)

    def _expire_message(self, events: Until) -> None:
        """Remove the message if one of the events makes it expire.

        Args:
            events: The events that have happened.
        """
        if isinstance(self.message, Provisional) and self.message.until & events:
            self.say("")

    def _update_waiting_time(self) -> None:
        """Update the number of seconds while graphs are aligned."""
        if any(
            backend_state.navigator and backend_state.opened is None and backend_state.failure is None
            for backend_state in self.backend_states
        ):
            self._redraw_frame()
            self.set_timer(1.0, self._update_waiting_time)

    def _redraw_soon(self) -> None:
        if not self._is_redraw_due:
            self._is_redraw_due = True
            self.set_timer(_REDRAW_SECONDS, self._redraw_results)

    def _redraw_results(self) -> None:
        self._is_redraw_due = False
        for backend_state in self.backend_states:
            if backend_state.navigator is not None:
                backend_state.navigator.table.is_announced = False  # first, so that later results are announced again
                backend_state.navigator.refresh()
        self._follow_culprit()
        self._perform_waiting_jump()
        self.redraw()

    def _follow_culprit(self) -> None:
        """Keep the cursor of the answer on the worst culprit until the user moves it.

        On a screen of a single node, the cursor follows only the diagnosis, which is known at the end.
        """
        scene, page = self.scene, self.page
        if not self.is_untouched or scene is None:
            return
        culprit_rows = page.culprit_rows(scene) if isinstance(page, AnswerView) else list(scene.table.diagnosis)
        if len(culprit_rows) and (page.view is ScreenId.ANSWER or "whole" not in page.view.traits):
            scene.navigator.go(int(culprit_rows[0]))

    # Drawing

    def redraw(self) -> None:
        """Draw everything that depends on results, cursor or message."""
        self._redraw_frame()
        self._show_view()

    def _redraw_frame(self) -> None:
        self.frame.show(self._frame_state())
        self._redraw_reading_screen()

    def _redraw_reading_screen(self) -> None:
        """Redraw the verdict screen on top of this screen."""
        for screen in self.app.screen_stack[-1:]:  # the stack is empty while the program exits
            if isinstance(screen, ReadingScreen):
                screen.redraw()

    def _show_list(self) -> None:
        """Give the node list the current table."""
        navigator, nodes_view = self.navigator, self.views.get(ScreenId.NODES)
        if navigator is not None and isinstance(nodes_view, NodesView):
            nodes_view.show(navigator)

    def _show_view(self) -> None:
        """Request the data of the view, and draw it."""
        navigator, page = self.navigator, self.page
        if navigator is not None and navigator.table.size:
            self.cursor_place = CursorPlace(
                self.backend, navigator.number, navigator.sample, navigator.step, navigator.metric, navigator.filter
            )
        if navigator is not None and self.current.opened is not None and self.shows_detail:
            self.loader.request_facts(
                navigator,
                backend=self.backend,
                wants_elements=self.view.shows_elements,
                wants_explanation=self.view is ScreenId.WHY and self._is_computed(),
                shown_element=self.elements.shown_element(self.scene, page),
            )
        else:
            self.loader.cancel_requests()
        scene = self.scene
        if scene is not None:
            trial_wish = page.trial(scene)
            # A budget would delay the verdict.
            must_wait = isinstance(trial_wish, BudgetWish) and scene.result is None
            self.loader.request_trial(*scene.row_key, scene.plan_row.tensor, None if must_wait else trial_wish)
        if isinstance(page, NodesView):
            self._show_list()
        page.empty_text = _READING if self.current.opened is None else chrome.NO_TENSORS
        page.scene = scene
        if self.side is not None:
            self.side.scene = scene

    def _is_computed(self) -> bool:
        """Return whether the tensor under the cursor is computed by a node. An input needs no explanation."""
        scene = self.scene
        return scene is not None and scene.opened.backend_graph.producer(scene.plan_row.tensor) is not None

    @on(Frame.VerdictClicked)
    def _click_verdict(self) -> None:
        self.action_verdict()

    @on(Frame.ProfileClicked)
    def _click_profile(self, event: Frame.ProfileClicked) -> None:
        self._go_to_row(event.row)

    @on(Frame.ProfileWheeled)
    def _wheel_profile(self, event: Frame.ProfileWheeled) -> None:
        navigator = self.current.navigator
        if navigator is None or not navigator.table.ordered:
            return
        step = max(navigator.table.ordered // _PROFILE_STEPS, 1)
        row = min(max(navigator.cursor + event.direction * step, 0), navigator.table.ordered - 1)
        if row != navigator.cursor:
            self._go_to_row(row)

    def _go_to_row(self, row: int) -> None:
        self.cancel_pending()
        self.with_navigator(lambda navigator: navigator.put(row))

    def text_lines(self) -> list[str]:
        """Return the screen as lines of text, with facts and lists in full and everything else as drawn."""
        scene = self.scene
        if scene is None:
            return []
        lines = self.page.all_lines(scene, max(self.page.size.width, MIN_WIDTH))
        return ["".join(text for text, _ in line) for line in (*self.frame.text_lines(self.size.width), *lines)]

    def lay_out(self) -> None:
        """Show the panels that fit."""
        self.frame.lay_out(self.view, self.views.make_side)
        self.call_after_refresh(self.redraw)


def _view_by_name(name: str) -> ScreenId:
    return next(view for view in VIEWS if view == name)


def _clear_state(navigator: Navigator | None, state: str) -> str:
    """Clear the search or the filter of a list, and report it; "" if there is none."""
    if navigator is not None and state == "search" and navigator.pattern:
        navigator.search("", start=navigator.cursor)
        return "search cleared"
    return navigator.take_filter_back() if navigator is not None and state == "filter" and navigator.filter else ""


def _constant_text(constants: Navigator) -> str:
    plan_row, count = constants.table.rows[constants.cursor], constants.table.size
    next_hint = f", o the next of {count}" if count > 1 else ""
    screen_hint = ", 5 its values" if plan_row.side else ", 5 6 its elements"
    return f"constant {safe_text(plan_row.tensor, limit=40)}{next_hint}{screen_hint}, esc back"
