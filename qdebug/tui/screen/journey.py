"""The keys that go where an error is: first divergence, failing nodes, worst input, origin.

Some have no answer yet while recordings are opened and compared. Then the wish waits in sight, and is done once the
answer is known. Any other key takes the wish back: the cursor moves for nobody who has gone on to something else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qdebug.present import numbers
from qdebug.present.text import safe_text
from qdebug.tui.nodes.walk import carried, inputs_of, own_share, walk_to_origin, worst_input
from qdebug.tui.pages.page import Scene, origin_row
from qdebug.tui.provisional import Provisional, Until
from qdebug.tui.reading.messages import Computed, Event, Failed, Finished, StatusMessage, worst_first

if TYPE_CHECKING:
    from qdebug.tui.screen.main_screen import MainScreen

__all__ = ["Journey", "to_origin", "to_output", "to_worst_input"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """Somewhere to go.

    Args:
        where: What is said of it while it waits.
        known: Tells whether the answer will stay as it is, however much is still to be compared.
        go: Goes there, and says what came of it.
        judged: Whether the verdict has to stand once all is compared, as it knows what an output is made of.
    """

    where: str
    known: Callable[[Scene], bool]
    go: Callable[[Scene], str]
    judged: bool = False

    @property
    def words(self) -> str:
        """What is said while it waits."""
        return f"{self.where}: still comparing; will go there (esc: no)"


class Journey:
    """Goes to nodes that are in error, at once or as soon as they are known.

    Args:
        screen: Shows where the journey goes.
    """

    def __init__(self, screen: MainScreen) -> None:
        self._screen = screen
        self._wish: _Wish | None = None

    def first_divergence(self) -> None:
        """Go to the first divergence."""
        self._go(
            _Wish(
                where="first divergence",
                known=lambda scene: scene.table.first_divergence(scene.navigator.sample) is not None,
                go=lambda scene: scene.navigator.first_divergence(),
            )
        )

    def failing(self, direction: int) -> None:
        """Go to the next or previous failing node; of the previous ones no more are to come."""
        if direction < 0:
            return self._screen.with_scene(lambda scene: scene.navigator.failing(direction))
        return self._go(
            _Wish(
                where="next failing node",
                known=lambda scene: scene.navigator.failing_from_here(direction) is not None,
                go=lambda scene: scene.navigator.failing(direction),
            )
        )

    def match(self, direction: int) -> None:
        """Go to the next match of the search; without one to the next of what the screen shows the worst of."""
        screen, page = self._screen, self._screen.page
        if page is not None and page.has_worst:
            screen.with_scene(lambda scene: page.worst(scene, direction))
        elif screen.navigator is not None and screen.navigator.pattern:
            screen.with_navigator(lambda navigator: navigator.match(direction))
        else:
            self.failing(direction)

    def worst_input(self) -> None:
        """Go to the input that carries most error."""
        self._screen.with_scene(to_worst_input)

    def origin(self) -> None:
        """Run to the origin of the error; with some failing nodes known, to the one so far."""
        untouched = self._screen.untouched  # then the cursor follows the results, and stands on no node of choice

        def of_this_node(scene: Scene) -> bool:
            result = scene.table.results[scene.row]
            return not untouched and result is not None and bool(carried(result) and scene.table.pending)

        scene = self._screen.scene
        if scene is not None and len(scene.table.failing(scene.navigator.sample)):
            return self._screen.with_scene(to_origin)
        return self._go(_Wish(where="origin", known=of_this_node, go=to_origin, judged=True), follow=untouched)

    def output(self) -> None:
        """Go to the worst output, from there to the next one."""
        self._go(_Wish(where="worst output", known=lambda _: False, go=to_output))

    def _go(self, wish: _Wish, *, follow: bool = False) -> None:
        """Go somewhere now, or once it is known where that is."""
        scene = self._screen.scene
        if scene is not None and (self._all_known(scene, wish) or wish.known(scene)):
            return self._screen.with_scene(wish.go)
        if scene is None and (self._screen.now.opened is not None or self._screen.now.failure is not None):
            return self._screen.with_scene(wish.go)  # which says why it cannot
        self._screen.untouched = self._screen.untouched and follow
        self._wish = wish
        return self._screen.say(wish.words)

    def _all_known(self, scene: Scene, wish: _Wish) -> bool:
        return self._screen.finished or not (scene.table.pending or wish.judged)

    def take(self, event: Event) -> None:
        """Take in an event of the reader thread; go where it was waited to go to."""
        wish, scene = self._wish, self._screen.scene
        if wish is None:
            return
        if isinstance(event, StatusMessage):
            self._screen.say(Provisional(f"{event.message}; {wish.words}", Until.RESULTS))
        elif isinstance(event, Failed) and event.backend_at == self._screen.backend:
            self._wish = None
        elif isinstance(event, Computed | Finished) and scene and (self._all_known(scene, wish) or wish.known(scene)):
            self._wish = None
            self._screen.with_scene(wish.go)

    def stay(self) -> bool:
        """Go nowhere any more; tell whether somewhere was to be gone to."""
        wish, self._wish = self._wish, None
        return wish is not None


_RETRACED = 20
"""Steps of a run to the origin that going back retraces one by one; of a longer one the last half as many."""


def to_output(scene: Scene) -> str:
    """Go to the worst output of the network, or from an output to the next worst one."""
    table, names = scene.table, scene.opened.backend_graph.outputs
    found = ((row, table.results[row]) for row in map(table.row_of, dict.fromkeys(names)) if row is not None)
    known = [(worst_first(result.metrics.sqnr_db), row) for row, result in found if result and result.metrics]
    rows = [row for _, row in sorted(known)]
    if not rows:
        return "no output of the network was compared"
    at = (rows.index(scene.row) + 1) % len(rows) if scene.row in rows else 0
    hidden = scene.navigator.jump(rows[at])
    result = table.results[rows[at]]
    level = "" if result is None or result.metrics is None else f", SQNR {numbers.number(result.metrics.sqnr_db)} dB"
    which = "the output" if len(rows) == 1 else f"output {at + 1} of {len(rows)}, the worst first"
    name = safe_text(table.rows[rows[at]].tensor, limit=40)
    then = "; W runs to what makes its error" if result is not None and carried(result) else ""
    return f"{which}, {name}{level}{hidden}{then}"


def to_worst_input(scene: Scene) -> str:
    """Go to the input that carries most error; say so, or why there is none."""
    edge = worst_input(scene.opened.backend_graph, scene.table, scene.row)
    if edge is None or edge.row is None:
        return _without_worst(scene)
    hidden = scene.navigator.jump(edge.row)
    result = scene.table.results[edge.row]
    if result is None or result.metrics is None:
        return f"at an input that could not be compared{hidden}; H goes back"
    return f"at the worst input, rel {numbers.number(result.metrics.rel_l2)}{hidden}; H goes back"


def _without_worst(scene: Scene) -> str:
    """Say why there is no worst input: none carries any error, or it is not known what they carry."""
    graph, table = scene.opened.backend_graph, scene.table
    if not scene.planned.tensor:
        return "not known: the reference alone has this node, so nothing of it is compared"
    inputs = [edge for edge in inputs_of(graph, table, scene.planned.tensor) if not edge.constant and edge.node]
    unknown = [edge.tensor for edge in inputs if edge.row is None or table.rows[edge.row].missing is not None]
    if unknown:
        return f"not known: its input {safe_text(unknown[0], limit=60)} is not compared; in the graph (3) h goes there"
    adds = ": what there is, this node adds itself"
    if scene.outcome is not None and not carried(scene.outcome):
        adds = ", and this node adds none"
    if table.pending:
        return Provisional(f"no input carries any error so far{adds}", Until.RESULTS)
    return f"no input carries any error{adds}"


def to_origin(scene: Scene) -> str:
    """Run up the graph to the origin; from a node without error, to the one that the verdict names."""
    so_far = " so far" if scene.table.pending or scene.table.growing else ""

    def said(text: str) -> str:
        return Provisional(text, Until.RESULTS) if so_far else text

    table, begun = scene.table, scene.row
    result = table.results[begun]
    if result is None or not carried(result):
        origin = origin_row(scene)
        if origin is not None:
            return f"at the origin that the verdict names{scene.navigator.jump(origin)}"
        failing = table.failing(scene.navigator.sample)
        if not len(failing) and not table.costs:
            return said(f"no node is beyond its limit{so_far}: there is no origin to run to")
        begun = int(failing[-1]) if len(failing) else next(iter(table.costs))
    way = () if scene.result is None else scene.result.verdict.way
    costs = table.costs
    walk = walk_to_origin(scene.opened.backend_graph, table, begun, way, list(costs))
    retraced = walk.rows if len(walk.rows) <= _RETRACED else (walk.rows[0], *walk.rows[-_RETRACED // 2 :])
    for row in retraced:
        hidden = scene.navigator.jump(row)
    at = table.results[walk.rows[-1]]
    share = None if at is None or at.declared else own_share(at)
    own = "" if share is None else f" ({numbers.percent(share, 1.0)} its own)"
    if not walk.failing:
        alone = costs.get(walk.rows[-1])
        own = own if alone is None else f" (its error alone leaves the output {numbers.number(alone)} dB)"
    steps = len(walk.rows) - 1
    named = walk.rows[-1] in costs  # else nothing says that it is one
    where = "the origin" if walk.failing else "the largest cause" if named else "the end of the path"
    if not steps:
        return said(f"{where}{so_far} is here{own}: {walk.ended}{hidden}")
    return said(f"{where}{so_far}, {steps} {'edge' if steps == 1 else 'edges'} up{own}: {walk.ended}{hidden}")
