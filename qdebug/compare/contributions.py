"""What each node's own error makes of a network's output: how a net goes wrong without a node that is wrong.

The error that a node makes itself is added to what the reference recorded of its tensor, and the reference's nodes
below are replayed with it: what the output then loses is that node's contribution. Contributions to an output need not
add up, since errors of one sign do and others do not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from qdebug.compare.align.layouts import in_one_order
from qdebug.compare.attribute.backend_replay import real_values
from qdebug.compare.attribute.band import difference, finite_norm, norm
from qdebug.compare.attribute.graph_walk import upstream
from qdebug.compare.attribute.plan import PlannedNode, recorded_places
from qdebug.compare.graph_checks.graph_check import GraphCheck
from qdebug.compare.measure.joined_parts import JoinedPart
from qdebug.compare.output_path import OutputPath
from qdebug.compare.result.result import Contributions, Contributor, Together
from qdebug.compare.result.result_table import ResultTable
from qdebug.model.thresholds.verdict import CONTRIBUTORS_NAMED
from qdebug.numerics.checkpoint import checkpoint

__all__ = ["contributions"]


def contributions(
    graphs: GraphCheck,
    plan: Sequence[PlannedNode],
    of: ResultTable,
    output: PlannedNode,
    *,
    most: float | None = None,
    part: JoinedPart | None = None,
) -> Contributions:
    """Replay the own error of each node above an output to that output, in the sample that comes out worst there.

    Those with the largest bound come first. Where that is too much work, or there is no replay, the bound stands: the
    node's own error relative to its signal, times the growth of the whole relative error from there to the output.

    Args:
        graphs: Holds the two graphs against each other.
        plan: What was compared.
        of: How it came out.
        output: The output.
        most: Work after which no more is replayed, in multiplications; if None, as much as the thresholds say.
        part: The part of the output that is looked at; None for all of it.
    """
    place = _worst_place(graphs, of, output)
    path = OutputPath(graphs, output, place, part)
    above = upstream(graphs.replays.be.recording.graph, (output.tensor,))
    at_output = float(of.carried[of.rows[output.tensor]]) if part is None else path.whole()
    bounds: list[tuple[float, PlannedNode]] = []
    unknown = 0
    for entry in (each for each in plan if each.tensor in above and each.op != "Input"):
        checkpoint()
        own, carried = path.own_error(entry), float(of.carried[of.rows[entry.tensor]])
        if own is None or not math.isfinite(carried) or not np.isfinite(own).all():
            unknown += 1
            if own is not None:
                path.why[f"the error of {entry.node!r} is not finite"] = None
        elif norm(own) and carried:
            bounds.append((path.relative(own, entry.reference_tensor) * at_output / carried, entry))
    found: list[Contributor] = []
    left = path.allowed if most is None else most
    for bound, entry in sorted(bounds, key=lambda item: -item[0]):
        checkpoint()
        exact = None
        left -= path.work(entry) if left >= 0 else 0
        if left >= 0:
            exact = path.replayed(entry)
        else:
            path.why["replaying all would take too long"] = None
        share = bound if exact is None else exact
        found.append(
            Contributor(
                node=entry.node,
                tensor=entry.tensor,
                output=output.tensor,
                sqnr_db=_decibels(share),
                how="bounded" if exact is None else "exact",
            )
        )
    ordered = tuple(sorted(found, key=lambda each: (each.how != "exact", each.sqnr_db)))
    together = _together(path, ordered, {entry.tensor: entry for _, entry in bounds}, complete=not unknown)
    sample = place[0] if len(of[of.rows[output.tensor]].samples) > 1 else None
    return Contributions(nodes=ordered, unknown=unknown, why=tuple(path.why), together=together, sample=sample)


def _together(
    path: OutputPath, ordered: Sequence[Contributor], entries: Mapping[str, PlannedNode], *, complete: bool
) -> Together | None:
    """Replay the errors of the nodes that contribute most at once, and those of all others.

    Args:
        path: What leads to the output.
        ordered: The contributions, the most first.
        entries: All tensors whose own error is known, by name.
        complete: Whether these are all that have one.
    """
    first = [each for each in ordered if each.how == "exact"][:CONTRIBUTORS_NAMED]
    if len(first) < 2:
        return None  # of one node its contribution says it
    named = {each.tensor for each in first}
    share = path.with_errors([entries[tensor] for tensor in named])
    if share is None:
        return None
    others = [entry for tensor, entry in entries.items() if tensor not in named]
    rest = path.with_errors(others) if complete and others else None
    return Together(
        nodes=tuple(each.node for each in first),
        sqnr_db=_decibels(share),
        without_db=None if rest is None else _decibels(rest),
    )


def _decibels(share: float) -> float:
    """Return the SQNR of an error relative to its signal."""
    return -20 * math.log10(share) if share else math.inf


def _worst_place(graphs: GraphCheck, of: ResultTable, output: PlannedNode) -> tuple[int, int]:
    """Return the sample and step in which an output is worst, relative to its signal."""
    reference, backend = graphs.replays.ref.recording, graphs.replays.be.recording
    samples = of[of.rows[output.tensor]].samples
    worst = min(samples, key=lambda each: math.inf if each.sqnr_db is None else each.sqnr_db, default=None)
    places = [each for each in recorded_places(reference, backend, output) if worst is None or each[0] == worst.sample]

    def off(place: tuple[int, int]) -> float:
        theirs = real_values(reference, output.reference_tensor, place)
        ours = real_values(backend, output.tensor, place)
        theirs, ours = in_one_order(theirs, output.pair.reference_view, ours, output.pair.backend_view)
        off = norm(difference(theirs, ours.reshape(theirs.shape)))
        return math.inf if math.isnan(off) else off / (finite_norm(theirs) or 1.0)

    return max(places, key=off) if len(places) > 1 else next(iter(places), (0, 0))
