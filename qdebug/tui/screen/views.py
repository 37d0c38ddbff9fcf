"""The keys that change what is shown: screen, zoom, order, metric, sample, backend, colours, help."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.pages.elements import alone, has_values
from qdebug.tui.pages.page import Constant, Scene
from qdebug.tui.screen.chrome import verdict_text
from qdebug.tui.screen.other_screens import HelpScreen, ReadingScreen
from qdebug.tui.screens import VIEWS, ScreenId

if TYPE_CHECKING:
    from qdebug.tui.screen.main_screen import MainScreen

__all__ = ["Views"]


class Views:
    """Chooses what is shown.

    Args:
        screen: Shows it.
    """

    def __init__(self, screen: MainScreen) -> None:
        self._screen = screen
        self._done: list[ScreenId | str] = ["filter"]  # that of the command line
        """Screens to go back to, and what was set on them: "zoom", "search", "filter"; the last one last."""

    def show(self, view: ScreenId) -> str:
        """Go to a screen; give its hint."""
        self._screen.untouched = False
        if view is self._screen.view:
            return f"this is the screen {view}"
        first = self._screen.constants.depth  # what was shown of the node is not what is shown of its constants
        if view in self._done[first:]:
            at = self._done.index(view, first)
            self._done[at:] = [each for each in self._done[at:] if not isinstance(each, ScreenId)]
        else:
            self._done.append(self._screen.view)
        return self._change(view)

    @property
    def depth(self) -> int:
        """How many steps lead back."""
        return len(self._done)

    def deepen(self, view: ScreenId) -> str:
        """Go to a screen, from which the way back leads here, be it the same screen; give its hint."""
        self._done.append(self._screen.view)
        return self._change(view)

    def did(self, what: str) -> None:
        """Remember that a search or a filter was set, or the zoom: the way back takes the last thing back first."""
        self._done = [*(each for each in self._done if each != what), what]

    def _change(self, view: ScreenId) -> str:
        self._screen.view = view
        self._screen.constants.settle()
        self._screen.lay_out()
        self._screen.hint = self._hint(view)
        return self._screen.hint

    def _hint(self, view: ScreenId) -> str:
        """Name a screen, and say what can be done on it."""
        keys = self._keys_on(view)
        return f"{view}: {keys}" if keys else str(view)

    def _keys_on(self, view: ScreenId) -> str:
        """Say what can be done on a screen with what is under the cursor, and nothing that cannot; "" for nothing."""
        page, scene = self._screen.page, self._screen.scene
        side = "" if scene is None else scene.planned.side
        if view is ScreenId.CHANNELS and scene is not None and side:
            return alone(scene)
        if page is not None:
            return (page.hint_alone if side else "") or page.hint
        if view is not ScreenId.TENSOR:
            return "s sorts, f filters, / searches, l more columns"
        values = scene is not None and (not side or scene.ready is not None) and has_values(scene)
        inside = self._screen.now.constants is not None
        weights = "o its next constant" if inside else "o its weights"
        return f"j k scroll{', enter its values' if values else ''}, {weights}"

    def screen(self, view: ScreenId) -> None:
        """Go to a screen."""
        self._screen.say(self.show(view))

    def turn(self, direction: int) -> None:
        """Go to the next or previous screen; a click on what is hidden needs none of them."""
        self._screen.say(self.show(VIEWS[(VIEWS.index(self._screen.view) + direction) % len(VIEWS)]))

    def open(self) -> None:
        """Go deeper."""
        page = self._screen.page

        def deeper(scene: Scene) -> str:
            target: ScreenId | Constant | str = ScreenId.TENSOR
            if page is not None:
                target = page.enter(scene)
            elif self._screen.view is ScreenId.TENSOR:
                target = ScreenId.VALUES
            return self.go_to(target)

        self._screen.with_scene(deeper)

    def go_to(self, target: ScreenId | Constant | str) -> str:
        """Go where a page leads; say what there is to say."""
        if isinstance(target, Constant):
            self._screen.constants.open(target.name)
            return self._screen.message
        if not isinstance(target, ScreenId):
            return target
        self._screen.untouched = False
        return self.show(target) if target is self._screen.view else self.deepen(target)

    def back(self) -> None:
        """Take back the last thing done: the line that asks, a screen, the zoom, the search, the filter."""
        navigator = self._screen.navigator
        if self._screen.prompt.cancel():
            return None
        while self._done:
            last = self._done.pop()
            if isinstance(last, ScreenId):
                self._change(last)
                return self._screen.say(f"back on the screen {last}")
            if last == "zoom" and self._screen.zoomed:
                return self.zoom()
            if last in {"search", "filter"} and (said := _cleared(navigator, last)):
                return self._screen.say(said)
        # one list of what was done leads back, and each backend has a search and a filter of its own
        said = _cleared(navigator, "search") or _cleared(navigator, "filter")
        return self._screen.say(said or "nothing to go back to; q quits")

    def zoom(self) -> None:
        """Show one panel alone, or all again."""
        if self._screen.arrangement.zoom_refusal:
            return self._screen.say(self._screen.arrangement.zoom_refusal)
        self._screen.zoomed = not self._screen.zoomed
        if self._screen.zoomed:
            self.did("zoom")
        self._screen.lay_out()
        return self._screen.say("one panel alone; z shows the others again" if self._screen.zoomed else "all panels")

    def sort(self, direction: int) -> None:
        """Sort by the next or previous column."""
        scene = self._screen.scene
        if self._screen.view is ScreenId.CHANNELS and scene is not None and scene.planned.side:
            return self._screen.say(alone(scene))
        said = None if self._screen.page is None else self._screen.page.reorder()
        if said is not None:
            return self._screen.say(said)
        if self._screen.view is not ScreenId.NODES and not self._screen.arrangement.nodes:
            return self._screen.say("sorting is for the nodes (2) and the channels (6)")
        return self._screen.with_navigator(lambda navigator: navigator.next_sort(direction))

    def reverse(self) -> None:
        """Turn the order around."""
        if self._screen.view is not ScreenId.NODES and not self._screen.arrangement.nodes:
            return self._screen.say("the order of the nodes (2) can be turned around, here is none")
        return self._screen.with_navigator(Navigator.reverse)

    def metric(self, name: str | None = None) -> None:
        """Show a metric, or the next one."""
        self._screen.with_navigator(
            lambda navigator: navigator.next_metric() if name is None else navigator.choose_metric(name)
        )

    def sample(self, direction: int) -> None:
        """Look at the next or previous sample."""
        self._screen.with_navigator(lambda navigator: navigator.step_sample(direction))

    def step(self, direction: int) -> None:
        """Look at the next or previous step of a stateful net."""
        self._screen.with_navigator(lambda navigator: navigator.next_step(direction))

    def backend(self, direction: int = 1) -> None:
        """Show the next or previous backend."""
        many = len(self._screen.compared)
        if many == 1:
            return self._screen.say("one backend is given; several: qdebug tui REF A B C")
        here, scene = self._screen.navigator, self._screen.scene
        reference = "" if scene is None else scene.planned.reference_tensor
        self._screen.backend = (self._screen.backend + direction) % many
        self._screen.qdebug.prefer(self._screen.backend)
        now = self._screen.now
        if now.navigator is not None and here is not None:
            now.navigator.metric = here.metric
            row = now.navigator.table.row_of_reference(reference)
            if row is not None:
                now.navigator.jump(row)
            if now.navigator.sample != here.sample and (here.sample or 0) < now.navigator.samples:
                now.navigator.choose_sample(here.sample)
            self._screen.listing.show(now.navigator)
        self._screen.banner.redraw()
        why = f": {now.failure}" if now.failure is not None else ""
        return self._screen.say(f"backend {self._screen.backend + 1} of {many}, {now.titles[1]}{why}")

    def form(self) -> None:
        """Write elements otherwise, or draw the map otherwise."""
        page = self._screen.page
        if page is None or not page.has_forms:
            self._screen.say("v changes how values (5) are written and what the map (7) shows")
        else:
            self._screen.with_scene(page.next_form)

    def theme(self) -> None:
        """Change the colours."""
        said = self._screen.qdebug.next_theme()
        for widget in (self._screen.banner, self._screen.tabs, self._screen.footer):
            widget.redraw()
        self._screen.say(said)

    def help(self) -> None:
        """Show the help."""
        view = self._screen.view
        self._screen.qdebug.push_screen(HelpScreen(self._screen.look, view, self._keys_on(view)))

    def verdict(self) -> None:
        """Show all that is said of the comparison as a whole."""
        screen = self._screen
        screen.qdebug.push_screen(
            ReadingScreen(screen.look, lambda width: verdict_text(screen.now, width, screen.look.glyphs))
        )

    def palette(self) -> None:
        """Open the command palette."""
        self._screen.qdebug.action_command_palette()

    def suspend(self) -> None:
        """Suspend the program."""
        self._screen.say("resumed")
        self._screen.qdebug.action_suspend_process()

    def leave(self) -> None:
        """Quit."""
        self._screen.qdebug.exit(0)


def _cleared(navigator: Navigator | None, what: str) -> str:
    """Take the search or the filter of a list back, and say so; "" if there is none."""
    if navigator is not None and what == "search" and navigator.pattern:
        navigator.search("", start=navigator.cursor)
        return "search cleared"
    return navigator.take_filter_back() if navigator is not None and what == "filter" and navigator.filter else ""
