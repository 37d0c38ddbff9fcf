"""Which rows of a long net are shown: the first divergence, what surrounds it, the worst ones, both ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qdebug.compare.result.node_result import is_beyond
from qdebug.compare.result.result import NodeResult, Status
from qdebug.view.rows import badness

__all__ = ["Gap", "select"]

_ALWAYS_SHOWN = 48
_NEIGHBOURS = 4
_ENDS = 2
_WORST = 15
_SMALLEST_GAP = 3


@dataclass(frozen=True, slots=True)
class Gap:
    """Rows left out at one place.

    Args:
        hidden: How many.
    """

    hidden: int


def select(nodes: Sequence[NodeResult], *, everything: bool = False, worst: int = _WORST) -> list[int | Gap]:
    """Choose the rows to show, in topological order.

    A net of up to 48 rows is shown whole. Of a longer one: its first and last two rows, the
    first divergence with four rows on either side, and the worst rows.

    Args:
        nodes: All results, in topological order.
        everything: Show every row, however many.
        worst: How many of the worst rows to show.

    Returns:
        Positions in `nodes`, with a `Gap` wherever rows are left out.
    """
    if everything or len(nodes) <= _ALWAYS_SHOWN:
        return list(range(len(nodes)))
    chosen = {*range(_ENDS), *range(len(nodes) - _ENDS, len(nodes))}
    first = next((position for position, node in enumerate(nodes) if is_beyond(node)), None)
    if first is not None:
        chosen.update(range(max(0, first - _NEIGHBOURS), min(len(nodes), first + _NEIGHBOURS + 1)))
    wrong = [position for position, node in enumerate(nodes) if node.status is not Status.IDENTICAL]
    chosen.update(sorted(wrong, key=lambda position: badness(nodes[position]))[:worst])
    return _with_gaps(sorted(chosen), len(nodes))


def _with_gaps(chosen: Sequence[int], total: int) -> list[int | Gap]:
    shown: list[int | Gap] = []
    expected = 0
    for position in chosen:
        shown.extend(_between(expected, position))
        shown.append(position)
        expected = position + 1
    shown.extend(_between(expected, total))
    return shown


def _between(start: int, stop: int) -> list[int | Gap]:
    """Fill the room between two rows: a gap that hides next to nothing would only take their place."""
    return [Gap(stop - start)] if stop - start >= _SMALLEST_GAP else list(range(start, stop))
