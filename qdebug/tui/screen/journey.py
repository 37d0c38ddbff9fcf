"""Keys that jump to an error: first divergence, failing nodes, worst input, origin, outputs.

While recordings are opened and compared, some targets are not known yet. The jump then waits, visibly, and is performed
once its target is known. Any other key cancels it, so that the cursor does not move after the user has gone on to
something else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from qdebug.present import numbers
from qdebug.present.text import safe_text
from qdebug.tui.nodes.walk import carried, own_share, walk_to_origin
from qdebug.tui.provisional import Provisional, Until
from qdebug.tui.reading.messages import worst_first
from qdebug.tui.views.view import Scene, origin_row

__all__ = ["FIRST_DIVERGENCE", "NEXT_FAILING", "OUTPUT", "Wish", "origin_wish", "to_origin", "to_output"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A jump that may have to wait for its target.

    Args:
        where: Name of the target in the status line.
        is_settled: Returns whether results still to come cannot change the target.
        go: Performs the jump, and returns a message.
        judged: Whether it needs the verdict, which knows the shares in an output's error, even if all pairs are
            compared.
    """

    where: str
    is_settled: Callable[[Scene], bool]
    go: Callable[[Scene], str]
    judged: bool = False

    @property
    def words(self) -> str:
        """The message while the jump is waiting."""
        return f"{self.where}: still comparing; will go there (esc: no)"

    def is_answered(self, scene: Scene) -> bool:
        """Return whether the target of the jump is known."""
        pending = scene.table.pending or self.judged
        return scene.result is not None or not pending or self.is_settled(scene)


FIRST_DIVERGENCE = Wish(
    where="first divergence",
    is_settled=lambda scene: scene.table.first_divergence(scene.navigator.sample) is not None,
    go=lambda scene: scene.navigator.first_divergence(),
)
NEXT_FAILING = Wish(
    where="next failing node",
    is_settled=lambda scene: scene.navigator.failing_from_here(1) is not None,
    go=lambda scene: scene.navigator.failing(1),
)


def origin_wish(*, untouched: bool) -> Wish:
    """Return the jump to the origin.

    Args:
        untouched: Whether the cursor still follows the results, since the user has not chosen a node.
    """

    def of_this_node(scene: Scene) -> bool:
        result = scene.table.results[scene.row]
        return not untouched and result is not None and bool(carried(result) and scene.table.pending)

    return Wish(where="origin", is_settled=of_this_node, go=to_origin, judged=True)


_RETRACED = 20
"""Maximum number of steps of a path to the origin that can be retraced one by one.

Of a longer path, the last half of it.
"""


def to_output(scene: Scene) -> str:
    """Go to the worst output of the network, or from there to the next worst output."""
    table, names = scene.table, scene.opened.backend_graph.outputs
    outputs = ((row, table.results[row]) for row in map(table.row_of, dict.fromkeys(names)) if row is not None)
    levels = [(worst_first(result.metrics.sqnr_db), row) for row, result in outputs if result and result.metrics]
    rows = [row for _, row in sorted(levels)]
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


OUTPUT = Wish(where="worst output", is_settled=lambda _: False, go=to_output)


def to_origin(scene: Scene) -> str:
    """Go up the graph to the origin of the error.

    From a node without error, go to the origin that the verdict names.
    """
    so_far = " so far" if scene.table.pending or scene.table.growing else ""

    def so_far_message(text: str) -> str:
        return Provisional(text, Until.RESULTS) if so_far else text

    table, start = scene.table, scene.row
    result = table.results[start]
    if result is None or not carried(result):
        origin = origin_row(scene)
        if origin is not None:
            return f"at the origin that the verdict names{scene.navigator.jump(origin)}"
        failing = table.failing(scene.navigator.sample)
        if not len(failing) and not table.costs:
            return so_far_message(f"no node is beyond its limit{so_far}: there is no origin to run to")
        start = int(failing[-1]) if len(failing) else next(iter(table.costs))
    way = () if scene.result is None else scene.result.verdict.way
    costs = table.costs
    walk = walk_to_origin(scene.opened.backend_graph, table, start, way, list(costs))
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
    is_known_cause = walk.rows[-1] in costs  # else nothing says that it is one
    where = "the origin" if walk.failing else "the largest cause" if is_known_cause else "the end of the path"
    if not steps:
        return so_far_message(f"{where}{so_far} is here{own}: {walk.ended}{hidden}")
    return so_far_message(f"{where}{so_far}, {steps} {'edge' if steps == 1 else 'edges'} up{own}: {walk.ended}{hidden}")
