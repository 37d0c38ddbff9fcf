"""Moving: in a list, in a tensor, along the graph, and between the screens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from qdebug.tui.drawing.arrangement import VIEWS, ScreenId
from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.pages.page import Page, Scene
from qdebug.tui.panels.panels import NOT_OPEN, Panels

if TYPE_CHECKING:
    from qdebug.tui.pages.channels_page import ChannelsPage
    from qdebug.tui.pages.map_page import MapPage
    from qdebug.tui.pages.samples_page import SamplesPage

__all__ = ["Moving"]


class Moving(Panels):
    """Answers the keys that move."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._came_from: list[ScreenId] = []
        self.too_early = False

    @property
    def frame(self) -> tuple[object, ...]:
        """What decides how the screen is laid out: while it is new, nobody knows yet how many lines a page has."""
        heights = self._status.styles.height, self._verdict.styles.height
        return self.view, self._arrangement, self._asking.display, self._footer.display, *heights

    def refuse(self) -> None:
        """Say why something cannot be done before the recordings are open; as long as they may come, it waits."""
        failure = self.now.failure
        self.too_early = failure is None
        self.say(NOT_OPEN if failure is None else f"{self.now.titles[1]} cannot be compared: {failure}")

    def without_scene(self, why: str) -> None:
        """Say why something cannot be done: there is nothing of that kind, or not yet."""
        if self.now.opened is None:
            self.refuse()
        else:
            self.say(why)

    def with_navigator(self, act: Callable[[Navigator], str]) -> None:
        """Do something with the node list, and say what came of it."""
        self._untouched = False
        if self.navigator is None:
            self.refuse()
        elif not self.navigator.table.size:
            self.say("the recordings share no tensor")
        else:
            self.say(act(self.navigator))

    def with_scene(self, act: Callable[[Scene], str]) -> None:
        """Do something with what is shown, and say what came of it."""
        self._untouched = False
        scene = self.scene
        if scene is None:
            self.without_scene("the recordings share no tensor")
        else:
            self.say(act(scene))

    @property
    def page_now(self) -> Page | None:
        """The page of the screen; None where it is a widget that scrolls."""
        return self.pages.get(self.view)

    def show_view(self, view: ScreenId) -> str:
        """Go to a screen; give its hint."""
        self._untouched = False
        if view is self.view:
            return f"this is the screen {view}"
        if view in self._came_from:
            del self._came_from[self._came_from.index(view) :]
        else:
            self._came_from.append(self.view)
        return self._change(view)

    def _change(self, view: ScreenId) -> str:
        self.view = view
        self._arrange()
        page = self.pages.get(view)
        if page is not None:
            self.hint = f"{view}: {page.hint}" if page.hint else str(view)
        else:
            self.hint = (
                "tensor: j k scroll, enter goes to the values" if view is ScreenId.TENSOR else "nodes: all of them"
            )
        return self.hint

    def action_move(self, lines: int) -> None:
        """Move the cursor, or scroll."""
        page = self.page_now
        if page is not None:
            self.with_scene(lambda scene: page.move(scene, lines))
        elif self.view is ScreenId.TENSOR:
            self._scroll(lines)
        else:
            self.with_navigator(lambda navigator: navigator.move(lines))

    def _scroll(self, lines: int) -> None:
        if self._detail.step(lines):
            self.say("")
        else:
            self.say("the facts end here" if lines > 0 else "the facts begin here")

    def action_page(self, direction: int) -> None:
        """Move by a page."""
        self.action_move(direction * max(self._rows() - 1, 1))

    def action_half_page(self, direction: int) -> None:
        """Move by half a page."""
        self.action_move(direction * max(self._rows() // 2, 1))

    def _rows(self) -> int:
        if self.page_now is not None:
            return max(self._page.size.height - 3, 1)
        return self._detail.size.height if self.view is ScreenId.TENSOR else self._listing.rows_shown

    def action_edge(self, direction: int) -> None:
        """Move to the top or the bottom."""
        if self.page_now is None and self.view is not ScreenId.TENSOR:
            self.with_navigator(lambda navigator: navigator.edge(direction))
        else:
            self.action_move(direction * 1_000_000_000)

    def action_side(self, direction: int) -> None:
        """Move left or right: columns, edges of the graph, elements of a tensor, backends."""
        page = self.page_now
        if self.view is ScreenId.BACKENDS:
            self.action_backend(direction)
        elif page is not None:
            self.with_scene(lambda scene: page.side(scene, direction))
        elif self.view is ScreenId.NODES:
            self._columns(direction)
        else:
            self.say("nothing to the side of the facts; enter goes to the values")

    def _columns(self, direction: int) -> None:
        layout = self._listing.layout_shown
        if layout is None:
            return self.refuse()
        if direction > 0 and not layout.after:
            return self.say("all columns are shown" if not layout.before else "these are the last columns")
        if direction < 0 and not layout.before:
            return self.say("these are the first columns")
        self._listing.offset_columns += direction
        return self.say("")

    def action_block(self, direction: int) -> None:
        """Go to the next or previous block."""
        self.with_navigator(lambda navigator: navigator.block(direction))

    def action_history(self, direction: int) -> None:
        """Go back or forward in the history."""
        self.with_navigator(lambda navigator: navigator.back(direction))

    def action_channel(self, direction: int) -> None:
        """Go to the next or previous channel."""
        if not self.view.of_tensor:
            return self.say("channels are on the screens values (5), channels (6) and map (7)")
        if self.view is ScreenId.CHANNELS:
            return self.with_scene(lambda scene: self.pages[ScreenId.CHANNELS].move(scene, direction))

        def step(scene: Scene) -> str:
            return self.elements.step(scene, self.elements.channel_axis(scene), direction)

        return self.with_scene(step)

    def action_form(self) -> None:
        """Write elements otherwise, or draw the map otherwise."""
        if self.view is ScreenId.MAP:
            self.say(cast("MapPage", self.page_now).toggle())
        elif self.view is ScreenId.VALUES:
            self.with_scene(self.elements.next_form)
        else:
            self.say("v changes how values (5) are written and what the map (7) shows")

    def action_sample(self, direction: int) -> None:
        """Look at the next or previous sample."""
        self.with_navigator(lambda navigator: navigator.step_sample(direction))

    def action_step(self, direction: int) -> None:
        """Look at the next or previous step of a stateful net."""
        self.with_navigator(lambda navigator: navigator.next_step(direction))

    def action_backend(self, direction: int = 1) -> None:
        """Show the next or previous backend."""
        many = len(self.compared)
        if many == 1:
            return self.say("one backend is given; several: qdebug tui REF A B C")
        here, scene = self.navigator, self.scene
        reference = "" if scene is None else scene.planned.reference_tensor
        self.backend = (self.backend + direction) % many
        self._prefer(self.backend)
        now = self.now
        if now.navigator is not None and here is not None:
            now.navigator.metric = here.metric
            row = now.navigator.table.row_of_reference(reference)
            if row is not None:
                now.navigator.jump(row)
            if now.navigator.sample != here.sample and (here.sample or 0) < now.navigator.samples:
                now.navigator.choose_sample(here.sample)
            self._listing.show(now.navigator)
        self._banner.redraw()
        why = f": {now.failure}" if now.failure is not None else ""
        return self.say(f"backend {self.backend + 1} of {many}, {now.titles[1]}{why}")

    def _prefer(self, backend: int) -> None:
        cast("Any", self.app).prefer(backend)

    def action_screen(self, name: str) -> None:
        """Go to a screen by its name."""
        self.say(self.show_view(ScreenId(name)))

    def action_turn(self, direction: int) -> None:
        """Go to the next or previous screen; a click on what is hidden needs none of them."""
        self.say(self.show_view(VIEWS[(VIEWS.index(self.view) + direction) % len(VIEWS)]))

    def action_open(self) -> None:
        """Go deeper."""
        page = self.page_now

        def deeper(scene: Scene) -> str:
            target: ScreenId | str = ScreenId.TENSOR
            if page is not None:
                target = page.enter(scene)
            elif self.view is ScreenId.TENSOR:
                target = ScreenId.VALUES
            return self.show_view(target) if isinstance(target, ScreenId) else target

        self.with_scene(deeper)

    def action_back(self) -> None:
        """Go back one step: the line that asks, the screen, the zoom, the search, the filter."""
        navigator = self.navigator
        if self._came_from:
            self._change(self._came_from.pop())
            return self.say(f"back on the screen {self.view}")
        if self.zoomed:
            return self.action_zoom()
        if navigator is not None and navigator.pattern:
            navigator.search("", start=navigator.cursor)
            return self.say("search cleared")
        if navigator is not None and navigator.filter:
            navigator.clear_filter()
            return self.say("filter cleared")
        return self.say("nothing to go back to; q quits")

    def action_zoom(self) -> None:
        """Show one panel alone, or all again."""
        if self._arrangement.zoom_refusal:
            return self.say(self._arrangement.zoom_refusal)
        self.zoomed = not self.zoomed
        self._arrange()
        return self.say("one panel alone; z shows the others again" if self.zoomed else "all panels")

    def action_sort(self, direction: int) -> None:
        """Sort by the next or previous column."""
        if self.view is ScreenId.CHANNELS:
            return self.say(cast("ChannelsPage", self.page_now).toggle_order())
        if self.view is not ScreenId.NODES and not self._arrangement.nodes:
            return self.say("sorting is for the nodes (2) and the channels (6)")
        return self.with_navigator(lambda navigator: navigator.next_sort(direction))

    def action_reverse(self) -> None:
        """Turn the order around."""
        if self.view is not ScreenId.NODES and not self._arrangement.nodes:
            return self.say("the order of the nodes (2) can be turned around, here is none")
        return self.with_navigator(Navigator.reverse)

    def action_metric(self) -> None:
        """Show the next metric."""
        self.with_navigator(Navigator.next_metric)

    @property
    def failing_are_matches(self) -> bool:
        """Whether the keys of matches go to failing nodes: nothing is searched for, and no elements are walked."""
        searched = self.navigator is not None and self.navigator.pattern
        return not searched and self.view not in {ScreenId.SAMPLES, ScreenId.VALUES, ScreenId.MAP}

    def action_match(self, direction: int) -> None:
        """Go to the next match: of the search, or of what the screen shows the worst of."""
        if self.view is ScreenId.SAMPLES:
            return self.with_scene(cast("SamplesPage", self.page_now).worst)
        if self.view in {ScreenId.VALUES, ScreenId.MAP}:
            return self.with_scene(lambda scene: self.elements.worst(scene, direction))
        return self.with_navigator(lambda navigator: navigator.match(direction))
