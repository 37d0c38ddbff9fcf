"""The start position on the screen: the node, sample, screen and filter of the command line."""

from __future__ import annotations

from dataclasses import dataclass

from qdebug.compare.attribute.graph_walk import part_of
from qdebug.errors import UsageError
from qdebug.model.names import format_names, matching_names, near_names
from qdebug.tui.nodes.filter import FilterError
from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.nodes.rows import NodeTable
from qdebug.tui.reading.messages import Opened
from qdebug.tui.screens import VIEWS, ScreenId

__all__ = ["StartPlace", "make_navigator"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPlace:
    """The start position.

    Args:
        node: Node or tensor to start at: its name, part of its name, or a pattern; None for the first.
        sample: Sample to start with; None for all.
        screen: Screen to show first; None for the overview, or the tensor if a node is given.
        filter: Filter of the node list; "" for none.
    """

    node: str | None = None
    sample: int | None = None
    screen: str | None = None
    filter: str = ""

    @property
    def view(self) -> ScreenId:
        """The screen to show first.

        Raises:
            UsageError: The screen does not exist.
        """
        if self.screen is None:
            return ScreenId.ANSWER if self.node is None else ScreenId.TENSOR
        if self.screen not in VIEWS:
            raise UsageError(f"There is no screen {self.screen!r}.", hint=f"Give one of: {', '.join(VIEWS)}.")
        return next(view for view in VIEWS if view == self.screen)


def make_navigator(
    opened: Opened, place: StartPlace, *, navigator_before: Navigator | None = None, was_compared: bool = False
) -> Navigator:
    """Put the cursor on the requested start position, or where the user has since moved it.

    Args:
        opened: The table, and the number of shared samples and steps.
        place: The requested start position.
        navigator_before: The table so far; None without one.
        was_compared: Whether the table so far was of the same comparison and not only of names. If so, the start
            position was already applied.

    Raises:
        UsageError: The node or sample does not exist, or the filter cannot be parsed.
    """
    table, samples = opened.table, opened.samples
    navigator = Navigator(table, samples=samples, steps=opened.steps)
    if place.sample is not None:
        if not 0 <= place.sample < samples:
            raise UsageError(
                f"There is no sample {place.sample}: the recordings share the samples 0 to {samples - 1}.",
                hint=f"Give --sample N with N at most {samples - 1}.",
            )
        navigator.choose_sample(place.sample)
    if place.filter:
        try:
            navigator.choose_filter(place.filter)
        except FilterError as error:
            raise UsageError(
                f"The filter {place.filter!r} cannot be read: {error}.",
                hint="Write it like this: --filter 'rel>1e-2 & op~conv'.",
            ) from error
    if place.node is not None:
        row = table.find(place.node)
        if row is None or not table.rows[row].tensor:  # go to the compared tensor that is judged instead
            compared_names = {planned.tensor for planned in table.rows if planned.missing is None}
            containing_tensor = part_of(opened.backend_graph, place.node, compared_names)
            row = row if containing_tensor is None else table.row_of(containing_tensor)
        navigator.go(_row_by_part(table, place.node) if row is None else row)
    if navigator_before is not None:
        requested = navigator.cursor, navigator.sample, navigator.filter
        navigator.take_over(navigator_before)
        if not was_compared:  # the command line applies, unless the user has moved or filtered meanwhile
            navigator.go(navigator.cursor if navigator_before.cursor else requested[0])
            navigator.choose_sample(requested[1])
            navigator.choose_filter(navigator_before.filter or requested[2])
    for node, text in opened.notes.items():
        navigator.note(node, text)
    return navigator


def _row_by_part(table: NodeTable, name: str) -> int:
    """Find a row by part of a name or by a pattern, as `qdebug diff --node` does.

    Raises:
        UsageError: It matches no nodes, or several.
    """
    rows = {
        name_of_row: at
        for at, row in reversed(list(enumerate(table.rows)))
        for name_of_row in (row.reference_tensor, row.tensor, row.node)
        if name_of_row
    }
    matching_rows = sorted({rows[name_of_row] for name_of_row in matching_names(name, rows)})
    nodes = dict.fromkeys(table.rows[at].node for at in matching_rows)
    if len(nodes) > 1:
        raise UsageError(
            f"{name!r} matches {len(nodes)} nodes: {format_names(nodes)}.",
            hint="Give one of these names, or a longer part of one.",
        )
    if not matching_rows:
        raise UsageError(
            f"No node and no tensor is called {name!r}.{near_names(name, rows)}",
            hint="List them: qdebug info FILE --tensors.",
        )
    return matching_rows[0]
