"""The main screen: what each key does. Every key changes something, or says in the status line why not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from textual.binding import Binding

from qdebug.errors import QdebugError
from qdebug.tui import exports
from qdebug.tui.arrangement import View
from qdebug.tui.asking import Asking, Question
from qdebug.tui.filter import FilterError
from qdebug.tui.help_screen import HelpScreen, ReadingScreen
from qdebug.tui.keys import KEYS
from qdebug.tui.navigator import Navigator
from qdebug.tui.pages.page import Scene
from qdebug.tui.source import AcceptRequest, Event, ExportRequest, NoteRequest
from qdebug.tui.walk import carried, inputs_of, own_share, walk_to_origin, worst_input
from qdebug.tui.widgets import RowPicked
from qdebug.view import numbers
from qdebug.view.text import safe_text

if TYPE_CHECKING:
    from qdebug.tui.application import QdebugApp

__all__ = ["MainScreen"]

_RETRACED = 20
"""Steps of a run to the origin that going back retraces one by one; of a longer one the last half as many."""


class MainScreen(Asking):
    """Shows one comparison and answers the keys of the table."""

    BINDINGS = [Binding(",".join(row.keys), row.action, row.help, show=False) for row in KEYS]  # noqa: RUF012

    def runner(self, action: str) -> Callable[[], Awaitable[None]]:
        """Give a function that does what a key does, for the command palette."""
        return partial(self.run_action, action)

    _wanted_element: tuple[tuple[object, ...], str] | None = None

    # Find

    def action_first_divergence(self) -> None:
        """Go to the first divergence."""
        if self.now.opened is None:  # names alone have none
            return self.refuse()
        return self.with_navigator(Navigator.first_divergence)

    def action_failing(self, direction: int) -> None:
        """Go to the next or previous failing node."""
        if self.now.opened is None:
            return self.refuse()
        return self.with_navigator(lambda navigator: navigator.failing(direction))

    def action_worst_input(self) -> None:
        """Go to the input that carries most error."""
        self.with_scene(_to_worst_input)

    def action_origin(self) -> None:
        """Run to the origin of the error."""
        self.with_scene(_to_origin)

    def _anchor(self, navigator: Navigator) -> Callable[[], int]:
        """Remember where the cursor is, by its tensor: more of a recording may come in while someone types."""
        tensor = navigator.table.rows[navigator.cursor].tensor if navigator.table.size else ""

        def row() -> int:
            now = self.navigator
            found = None if now is None else now.table.row_of(tensor)
            return found if found is not None else 0 if now is None else now.cursor

        return row

    def action_search(self) -> None:
        """Open the search."""
        navigator = self.navigator
        if navigator is None or self.now.opened is None:  # the names alone know no nodes, and no operators
            return self.refuse()
        if not self._arrangement.usable:
            return self.say("the terminal is too small to type a text in")
        begun = self._anchor(navigator)
        self._untouched = False

        def typed(text: str) -> str:
            now = self.navigator
            return "" if now is None else now.search(text, start=begun())

        def given(text: str) -> str:
            now = self.navigator
            if now is not None and text != now.pattern:  # enter came before the last letters were looked for
                typed(text)
            if now is None or not now.pattern:
                return "search cleared"
            many = len(now.matches)
            said = f"{numbers.grouped(many)} {'match' if many == 1 else 'matches'}"
            return f"{said}; n N walk them, esc clears" if many else "no match"

        def cancelled() -> str:
            typed("")
            return "search cancelled"

        return self.ask_for(
            Question(
                label="/",
                placeholder="part of a name, 'whole name' or ~regex",
                typed=typed,
                given=given,
                cancelled=cancelled,
            )
        )

    def action_filter(self) -> None:
        """Ask for a filter."""
        navigator = self.navigator
        if navigator is None or self.now.opened is None:  # the names alone know no nodes, and no operators
            return self.refuse()
        if not self._arrangement.usable:
            return self.say("the terminal is too small to type a text in")
        before, begun = navigator.filter, self._anchor(navigator)
        self._untouched = False

        said: list[str] = []

        def choose(text: str) -> str:
            """Show what fits as much of the text as can be read, whichever way it was typed."""
            now, problem = self.navigator, ""
            if now is None:
                return ""
            now.go(begun())
            for end in range(len(text), -1, -1):
                try:
                    fitting = now.choose_filter(text[:end])
                    break
                except FilterError as error:
                    problem = problem or f"not yet: {error}"
            said[:] = [problem or fitting]
            return said[0]

        def cancelled() -> str:
            choose(before)
            if self.navigator is not None:
                self.navigator.go(begun())
            return "the filter is as before"

        if self.view is not View.NODES:
            self.show_view(View.NODES)
        return self.ask_for(
            Question(
                label="filter",
                placeholder="rel>1e-2 & op~conv, is=failing, sat>1% | name~'layer[34]'",
                text=before,
                typed=choose,
                given=lambda text: said[0] if said else choose(text),
                cancelled=cancelled,
            )
        )

    def action_clear_filter(self) -> None:
        """Show all nodes."""

        def clear(navigator: Navigator) -> str:
            if not navigator.filter:
                return "there is no filter; f sets one"
            navigator.clear_filter()
            return "all nodes"

        self.with_navigator(clear)

    def action_mark(self) -> None:
        """Mark the node."""
        self.with_navigator(Navigator.mark)

    def action_next_mark(self) -> None:
        """Go to the next mark."""
        self.with_navigator(Navigator.next_mark)

    def action_element(self) -> None:
        """Ask for an element to jump to."""
        if self.scene is None:
            return self.without_scene("there is no tensor")
        if self.view not in {View.VALUES, View.MAP}:
            self.show_view(View.VALUES)

        self._wanted_element = None
        return self.ask_for(Question(label="@", placeholder="an index such as 0,12,3,7", given=self._to_element))

    def _to_element(self, text: str) -> str:
        """Go to an element now, or once the elements are read."""
        scene = self.scene
        if scene is None:
            return "there is no tensor"
        there = self.elements.in_part(scene) is not None
        never = scene.planned.missing is not None or (scene.ready is not None and scene.ready.problem)
        waits = not there and not never
        self._wanted_element = (self._shown_tensor(scene), text) if waits else None
        said = self.elements.jump(scene, text)
        return f"{said.rstrip(' .')}; then it goes to {safe_text(text, limit=40)}" if waits else said

    def _shown_tensor(self, scene: Scene) -> tuple[object, ...]:
        navigator = scene.navigator
        return self.backend, scene.planned.tensor, navigator.sample, navigator.step, self.view

    def take(self, event: Event) -> None:
        """Take in an event of the reader thread; go to the element that waited for it."""
        super().take(event)
        scene, wanted = self.scene, self._wanted_element
        if wanted is None or scene is None:
            return
        if wanted[0] != self._shown_tensor(scene):
            self._wanted_element = None
        elif self.elements.in_part(scene) is not None or (scene.ready is not None and scene.ready.problem):
            self.say(self._to_element(wanted[1]))

    # Do

    def action_theme(self) -> None:
        """Change the colours."""
        said = cast("QdebugApp", self.app).next_theme()
        for widget in (self._banner, self._tabs, self._footer):
            widget.redraw()
        self.say(said)

    def action_acknowledge(self) -> None:
        """Ask why the node's error is acceptable."""
        scene = self.scene
        if scene is None:
            return self.without_scene("there is no node")
        if scene.planned.missing is not None or not scene.planned.tensor:
            return self.say("this tensor is not compared: there is nothing to accept")
        node, backend, path = scene.planned.node, self.backend, cast("QdebugApp", self.app).limits_file

        def given(text: str) -> str:
            reason, expires, problem = exports.reason_and_day(text)
            if text.strip() == exports.TAKE_BACK:
                reason = ""
            if problem:
                return problem
            self._ask(AcceptRequest(backend=backend, node=node, reason=reason, expires=expires, path=path))
            return self._writing(path)

        return self.ask_for(
            Question(
                label=f"accept {safe_text(node, limit=24)} because",
                placeholder=f"reason, optionally: until 2027-01-31; {exports.TAKE_BACK} takes it back; in {path.name}",
                given=given,
            )
        )

    def action_note(self) -> None:
        """Ask what to remember of the node."""
        scene = self.scene
        if scene is None:
            return self.without_scene("there is no node")
        node, backend = scene.planned.node or scene.planned.tensor, self.backend
        path = cast("QdebugApp", self.app).limits_file
        known = scene.navigator.trail.notes.get(scene.row, "")

        def given(text: str) -> str:
            kept = "" if text.strip() == exports.TAKE_BACK else text.strip()
            if not text.strip():
                return f"nothing noted; {exports.TAKE_BACK} takes a note out"
            self._ask(NoteRequest(backend=backend, node=node, text=kept, path=path))
            return self._writing(path)

        return self.ask_for(
            Question(
                label=f"note on {safe_text(node, limit=24)}",
                placeholder=f"what to remember; {exports.TAKE_BACK} takes it out; in {path.name}",
                text=known,
                given=given,
            )
        )

    def action_copy(self) -> None:
        """Send the node's name to the terminal's clipboard."""
        scene = self.scene
        if scene is None:
            return self.without_scene("there is no node to copy")
        return self._send(safe_text(scene.planned.node or scene.planned.tensor, limit=100_000))

    def action_copy_command(self) -> None:
        """Send the command that shows this again to the terminal's clipboard."""
        scene = self.scene
        if scene is None:
            return self.without_scene("there is no node")
        files = cast("QdebugApp", self.app).command_words
        return self._send(exports.command(files, scene, self.view))

    def _send(self, text: str) -> None:
        self.app.copy_to_clipboard(text)
        self.say(f"sent to the terminal: {text}")

    def action_export(self) -> None:
        """Ask for a file to write."""
        scene = self.scene
        if scene is None:
            return self.without_scene("there is nothing to write")
        return self.ask_for(
            Question(
                label="write",
                placeholder="a new file: .svg screen, .csv or .json nodes, .npy or .npz tensor",
                text=exports.suggested_name(scene, self.view),
                given=self._export,
            )
        )

    def _export(self, text: str) -> str:
        self.call_after_refresh(self._write, text)  # a picture is of the screen without the line that asks
        return ""

    def _write(self, text: str) -> None:
        scene = self.scene
        if scene is None:
            return self.say("there is nothing to write")
        try:
            path, write = exports.prepared(text, scene, screenshot=self.app.export_screenshot)
        except QdebugError as error:
            return self.say(f"{error.message} {error.hint or ''}")
        self._ask(ExportRequest(backend=self.backend, path=path, write=write))
        return self.say(self._writing(path))

    def _writing(self, path: Path) -> str:
        """Say that a file is on its way, and what it may have to wait for."""
        scene = self.scene
        waits = "" if scene is None or not scene.table.pending else ", once the step at hand of the comparison is done"
        return f"writing {safe_text(path, limit=60)}{waits} .."

    def action_help(self) -> None:
        """Show the help."""
        self.app.push_screen(HelpScreen(self._look))

    def action_verdict(self) -> None:
        """Show all that is said of the comparison as a whole."""
        from qdebug.tui.verdict_text import verdict_text

        self.app.push_screen(ReadingScreen(self._look, lambda width: verdict_text(self.now, width, self._look.glyphs)))

    def action_palette(self) -> None:
        """Open the command palette."""
        self.app.action_command_palette()

    def action_suspend(self) -> None:
        """Suspend the program."""
        self.say("resumed")
        self.app.action_suspend_process()

    def action_leave(self) -> None:
        """Quit."""
        self.app.exit(0)

    def on_row_picked(self, event: RowPicked) -> None:
        """Go to the row that was clicked; open it if the cursor is there already."""
        if self.navigator is None:
            return
        if event.row == self.navigator.cursor and self.view is View.NODES:
            self.action_open()
        else:
            self._untouched = False
            self.navigator.go(event.row)
            self.say("")


def _to_worst_input(scene: Scene) -> str:
    edge = worst_input(scene.opened.backend_graph, scene.table, scene.row)
    if edge is None or edge.row is None:
        return _without_worst(scene)
    hidden = scene.navigator.jump(edge.row)
    return f"at the worst input, rel {numbers.number(edge.error)}{hidden}; H goes back"


def _without_worst(scene: Scene) -> str:
    """Say why there is no worst input: none carries any error, or it is not known what they carry."""
    graph, table = scene.opened.backend_graph, scene.table
    inputs = [edge for edge in inputs_of(graph, table, scene.row) if not edge.constant and edge.node]
    unknown = [edge.tensor for edge in inputs if edge.row is None or table.rows[edge.row].missing is not None]
    if unknown:
        return f"not known: its input {safe_text(unknown[0], limit=60)} is not compared; in the graph (3) h goes there"
    pending = " so far" if table.pending else ""
    result = scene.outcome
    if result is not None and not carried(result):
        return f"no input carries any error{pending}, and this node adds none"
    return f"no input carries any error{pending}: what there is, this node adds itself"


def _to_origin(scene: Scene) -> str:
    """Run along the worst inputs; from a node without error, start where the error is largest."""
    table, begun = scene.table, scene.row
    result = table.results[begun]
    so_far = " so far" if table.pending else ""
    if result is None or not carried(result):
        origin = None if scene.result is None or scene.result.origin is None else table.find(scene.result.origin)
        if origin is not None:
            return f"at the origin that the verdict names{scene.navigator.jump(origin)}"
        failing = table.failing(scene.navigator.sample)
        if not len(failing):
            return f"no node is beyond its limit{so_far}: there is no origin to run to"
        begun = int(failing[-1])
    walk = walk_to_origin(scene.opened.backend_graph, table, begun)
    retraced = walk.rows if len(walk.rows) <= _RETRACED else (walk.rows[0], *walk.rows[-_RETRACED // 2 :])
    for row in retraced:
        hidden = scene.navigator.jump(row)
    at = table.results[walk.rows[-1]]
    share = None if at is None or at.declared else own_share(at)
    own = "" if share is None else f" ({numbers.percent(share, 1.0)} its own)"
    steps = len(walk.rows) - 1
    if not walk.failing:
        return f"{steps} {'edge' if steps == 1 else 'edges'} back{so_far}: {walk.ended}{own}{hidden}"
    if not steps and begun == scene.row and walk.rows[-1] == scene.row:
        return f"the origin{so_far} is here{own}: {walk.ended}{hidden}"
    return f"{steps} {'edge' if steps == 1 else 'edges'} to the origin{so_far}{own}: {walk.ended}{hidden}"
