"""Jumps to an error: first divergence, failing nodes, origin, outputs.

While recordings are opened and compared, some targets are not known yet. The jump then waits, visibly, and is performed
once its target is known. Any other key cancels it, so that the cursor does not move after the user has gone on to
something else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from qdebug.present import numbers
from qdebug.present.text import safe_text
from qdebug.tui.nodes.walk import own_share, relative_error, walk_to_origin
from qdebug.tui.provisional import Provisional, Until
from qdebug.tui.reading.messages import worst_first_key
from qdebug.tui.views.view import Scene, origin_row

__all__ = [
    "FIRST_DIVERGENCE",
    "NEXT_FAILING",
    "OUTPUT",
    "Jump",
    "go_to_failing",
    "go_to_origin",
    "go_to_output",
    "origin_jump",
    "verdict_output_row",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Jump:
    """A jump that may have to wait for its target.

    Args:
        target_name: Name of the target in the status line.
        is_settled: Returns whether results still to come cannot change the target.
        go: Performs the jump, and returns a message.
        needs_verdict: Whether it needs the verdict, which knows the shares in an output's error, even if all pairs are
            compared.
    """

    target_name: str
    is_settled: Callable[[Scene], bool]
    go: Callable[[Scene], str]
    needs_verdict: bool = False

    @property
    def waiting_text(self) -> str:
        """The message while the jump is waiting."""
        return f"{self.target_name}: still comparing; will go there (esc: no)"

    def is_target_known(self, scene: Scene) -> bool:
        """Return whether the target of the jump is known."""
        pending = scene.table.pending or self.needs_verdict
        return scene.result is not None or not pending or self.is_settled(scene)


def go_to_failing(scene: Scene, direction: int) -> str:
    """Go to the next or previous failing node in topological order; if no node fails, to a node of the diagnosis.

    Args:
        scene: The state of the screen.
        direction: 1 for the next one, -1 for the previous one.
    """
    navigator, diagnosed_rows = scene.navigator, sorted(scene.table.diagnosis)
    if len(scene.table.failing(navigator.sample)) or navigator.sample is not None or not diagnosed_rows:
        return navigator.failing(direction)
    rows = [row for row in diagnosed_rows if (row - scene.row) * direction > 0]
    if not rows:
        return f"{_NONE_FAILS}, and no node of the diagnosis {'follows' if direction > 0 else 'comes before'} this one"
    row = rows[0 if direction > 0 else -1]
    filter_note = navigator.jump(row)
    position = f"{diagnosed_rows.index(row) + 1} of {len(diagnosed_rows)}"
    return f"{_NONE_FAILS}; node {position} of the diagnosis, in topological order{filter_note}"


def _go_to_first_divergence(scene: Scene) -> str:
    """Go to the first divergence; if no node fails, to the first node of the diagnosis."""
    navigator, row = scene.navigator, next(iter(scene.table.diagnosis), None)
    if row is None or navigator.sample is not None or scene.table.first_divergence() is not None:
        return navigator.first_divergence()
    return f"{_NONE_FAILS}; at the first node of the diagnosis{navigator.jump(row)}"


_NONE_FAILS = "no node is beyond its limit"

FIRST_DIVERGENCE = Jump(
    target_name="first divergence",
    is_settled=lambda scene: scene.table.first_divergence(scene.navigator.sample) is not None,
    go=_go_to_first_divergence,
)
NEXT_FAILING = Jump(
    target_name="next failing node",
    is_settled=lambda scene: scene.navigator.failing_from_here(1) is not None,
    go=lambda scene: go_to_failing(scene, 1),
)


def origin_jump(*, is_untouched: bool) -> Jump:
    """Return the jump to the origin.

    Args:
        is_untouched: Whether the cursor still follows the results, since the user has not chosen a node.
    """

    def is_settled(scene: Scene) -> bool:
        result = scene.table.results[scene.row]
        return not is_untouched and result is not None and bool(relative_error(result) and scene.table.pending)

    return Jump(target_name="origin", is_settled=is_settled, go=go_to_origin, needs_verdict=True)


_MAX_RETRACED = 20
"""Maximum number of rows on a path to the origin that the history keeps, to go back one by one.

For a longer path, it keeps the first row, and half as many rows at the end.
"""


def _output_rows(scene: Scene) -> list[int]:
    """Return the rows of the compared outputs, worst first."""
    table, names = scene.table, scene.opened.backend_graph.outputs
    outputs = ((row, table.results[row]) for row in map(table.row_of, dict.fromkeys(names)) if row is not None)
    levels = [(worst_first_key(result.metrics.sqnr_db), row) for row, result in outputs if result and result.metrics]
    return [row for _, row in sorted(levels)]


def verdict_output_row(scene: Scene) -> int | None:
    """Return the row of the output that the verdict is about, else of the worst one; None if none was compared."""
    from qdebug.present.answer import shared_output

    names = () if scene.result is None else (shared_output(scene.result), *scene.result.verdict.short)
    rows = [row for name in names if (row := scene.table.row_of(name)) is not None]
    return next(iter([*rows, *_output_rows(scene)]), None)


def go_to_output(scene: Scene) -> str:
    """Go to the worst output of the network, or from there to the next worst output."""
    table, rows = scene.table, _output_rows(scene)
    if not rows:
        return "no output of the network was compared"
    position = (rows.index(scene.row) + 1) % len(rows) if scene.row in rows else 0
    filter_note = scene.navigator.jump(rows[position])
    result = table.results[rows[position]]
    level = "" if result is None or result.metrics is None else f", SQNR {numbers.number(result.metrics.sqnr_db)} dB"
    position_text = "the output" if len(rows) == 1 else f"output {position + 1} of {len(rows)}, the worst first"
    name = safe_text(table.rows[rows[position]].tensor, limit=40)
    next_step_text = "; W runs to what causes its error" if result is not None and relative_error(result) else ""
    return f"{position_text}, {name}{level}{filter_note}{next_step_text}"


OUTPUT = Jump(target_name="worst output", is_settled=lambda _: False, go=go_to_output)


def go_to_origin(scene: Scene) -> str:
    """Go up the graph to the origin of the error.

    From a node without error, go to the origin that the verdict names.
    """
    so_far = " so far" if scene.table.pending or scene.table.is_growing else ""

    def so_far_message(text: str) -> str:
        return Provisional(text, Until.RESULTS) if so_far else text

    table, start = scene.table, scene.row
    result = table.results[start]
    if result is None or not relative_error(result):
        origin = origin_row(scene)
        if origin is not None:
            return f"at the origin that the verdict names{scene.navigator.jump(origin)}"
        failing = table.failing(scene.navigator.sample)
        if not len(failing) and not table.costs:
            return so_far_message(f"no node is beyond its limit{so_far}: there is no origin to run to")
        start = int(failing[-1]) if len(failing) else next(iter(table.costs))
    verdict_path = () if scene.result is None else scene.result.verdict.way
    costs = table.costs
    walk = walk_to_origin(scene.opened.backend_graph, table, start, verdict_path, list(costs))
    retraced_rows = walk.rows if len(walk.rows) <= _MAX_RETRACED else (walk.rows[0], *walk.rows[-_MAX_RETRACED // 2 :])
    for row in retraced_rows:
        filter_note = scene.navigator.jump(row)
    end_result = table.results[walk.rows[-1]]
    share = None if end_result is None or end_result.declared else own_share(end_result)
    share_text = "" if share is None else f" ({numbers.percent(share, 1.0)} its own)"
    if not walk.is_failing:
        cost_alone = costs.get(walk.rows[-1])
        share_text = (
            share_text
            if cost_alone is None
            else f" (its error alone leaves the output {numbers.number(cost_alone)} dB)"
        )
    edge_count = len(walk.rows) - 1
    is_known_cause = walk.rows[-1] in costs  # otherwise nothing shows that it is a cause
    target_text = "the origin" if walk.is_failing else "the largest cause" if is_known_cause else "the end of the path"
    if not edge_count:
        return so_far_message(f"{target_text}{so_far} is here{share_text}: {walk.end_reason}{filter_note}")
    distance = f"{edge_count} {'edge' if edge_count == 1 else 'edges'}"
    return so_far_message(f"{target_text}{so_far}, {distance} up{share_text}: {walk.end_reason}{filter_note}")
