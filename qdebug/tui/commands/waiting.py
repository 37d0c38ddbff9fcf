"""Keys whose answer is not known yet: what they ask for waits in sight, and is done once it is.

Any other key takes the wish back: the cursor moves for nobody who has gone on to something else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from textual.events import Key

from qdebug.tui.commands.way_back import to_origin
from qdebug.tui.commands.writing import Writing
from qdebug.tui.keys import ROW_OF
from qdebug.tui.nodes.walk import carried
from qdebug.tui.pages.page import Scene
from qdebug.tui.reading.messages import Computed, Event, Failed, Finished, StatusMessage

__all__ = ["Waiting"]

_LEAVES_IT = {"help", "verdict"}
"""What only reads takes no wish back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """Somewhere to go.

    Args:
        where: What is said of it while it waits.
        known: Tells whether the answer will stay as it is, however much is still to be compared.
        go: Goes there, and says what came of it.
    """

    where: str
    known: Callable[[Scene], bool]
    go: Callable[[Scene], str]

    @property
    def words(self) -> str:
        """What is said while it waits."""
        return f"{self.where}: still comparing; will go there (esc: no)"


class Waiting(Writing):
    """Goes where it can only be gone to once enough is compared."""

    _wish: _Wish | None = None

    def action_first_divergence(self) -> None:
        """Go to the first divergence."""
        self._go(
            _Wish(
                where="first divergence",
                known=lambda scene: scene.table.first_divergence(scene.navigator.sample) is not None,
                go=lambda scene: scene.navigator.first_divergence(),
            )
        )

    def action_failing(self, direction: int) -> None:
        """Go to the next or previous failing node; of the previous ones no more are to come."""
        if direction < 0:
            return self.with_scene(lambda scene: scene.navigator.failing(direction))
        return self._go(
            _Wish(
                where="next failing node",
                known=lambda scene: scene.navigator.failing_from_here(direction) is not None,
                go=lambda scene: scene.navigator.failing(direction),
            )
        )

    def action_match(self, direction: int) -> None:
        """Go to the next match; to the next failing node where nothing is searched for."""
        if self.failing_are_matches:
            self.action_failing(direction)
        else:
            super().action_match(direction)

    def action_origin(self) -> None:
        """Run to the origin of the error; with some failing nodes known, to the one so far."""
        untouched = self._untouched  # then the cursor follows the results, and stands on no node of anybody's choice

        def of_this_node(scene: Scene) -> bool:
            result = scene.table.results[scene.row]
            return not untouched and result is not None and bool(carried(result))

        scene = self.scene
        if scene is not None and len(scene.table.failing(scene.navigator.sample)):
            return self.with_scene(to_origin)
        return self._go(_Wish(where="origin", known=of_this_node, go=to_origin), follow=untouched)

    def _go(self, wish: _Wish, *, follow: bool = False) -> None:
        """Go somewhere now, or once it is known where that is."""
        scene = self.scene
        if scene is None or self._all_known(scene) or wish.known(scene):
            return self.with_scene(wish.go)
        self._untouched = self._untouched and follow
        self._wish = wish
        return self.say(wish.words)

    def _all_known(self, scene: Scene) -> bool:
        return self.finished or not scene.table.pending

    def take(self, event: Event) -> None:
        """Take in an event of the reader thread; go where it was waited to go to."""
        super().take(event)
        wish, scene = self._wish, self.scene
        if wish is None:
            return
        if isinstance(event, StatusMessage):
            self.say(f"{event.message}; {wish.words}")
        elif isinstance(event, Failed) and event.backend_at == self.backend:
            self._wish = None
        elif isinstance(event, Computed | Finished) and scene and (self._all_known(scene) or wish.known(scene)):
            self._wish = None
            self.with_scene(wish.go)

    def stay(self) -> bool:
        """Go nowhere any more; tell whether somewhere was to be gone to."""
        wish, self._wish = self._wish, None
        return wish is not None

    async def do_key(self, event: Key) -> None:
        """Do what a key of the table does; most take back what waits, and escape does no more than that."""
        row = ROW_OF.get(event.key)
        if row is not None and row.action not in _LEAVES_IT and self.stay() and row.action == "back":
            self.say("nothing is waited for any more")
        else:
            await super().do_key(event)
