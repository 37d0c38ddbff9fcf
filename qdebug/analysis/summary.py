"""Sums up the compared tensors of two runs: coverage, shortcomings, verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from qdebug.analysis.alignment import Unmatched
from qdebug.analysis.compounding import compounding_nodes
from qdebug.analysis.held import HeldNodes
from qdebug.analysis.leftover import said_unchecked
from qdebug.analysis.limits import Limits
from qdebug.analysis.origin import origin_of, worst_output
from qdebug.analysis.result import Coverage, DiffResult, NodeResult, OutputRanking, Status
from qdebug.analysis.verdict import shortcomings, verdict
from qdebug.errors import AlignmentError
from qdebug.model import Graph, RunInfo

__all__ = ["sum_up"]

_AT_ONCE = 1000
"""Outlines that are let go of at a time."""


def sum_up(
    nodes: Sequence[NodeResult],
    runs: tuple[RunInfo, RunInfo],
    graph: Graph,
    *,
    unmatched: tuple[Unmatched, ...],
    limits: Limits,
    outputs: tuple[OutputRanking, ...] = (),
) -> DiffResult:
    """Sum up compared tensors.

    Args:
        nodes: Compared tensors, in the backend's topological order.
        runs: Facts of the reference run and of the backend run.
        graph: The backend's graph.
        unmatched: Tensors that have no partner.
        limits: What may be missing from a comparison.
        outputs: For each network output that may hold scores, whether its winner is still the same.

    Raises:
        AlignmentError: Tensors were compared and none of them beyond the inputs is comparable.
    """
    if not isinstance(nodes, HeldNodes):
        return _sum_up(tuple(nodes), nodes, runs, graph, unmatched=unmatched, limits=limits, outputs=outputs)
    outlines = nodes.outlines()  # what follows goes through all of them again and again
    try:
        return _sum_up(nodes, outlines, runs, graph, unmatched=unmatched, limits=limits, outputs=outputs)
    finally:
        while outlines:  # all at once would hold up other threads
            del outlines[-_AT_ONCE:]


def _sum_up(
    held: Sequence[NodeResult],
    nodes: Sequence[NodeResult],
    runs: tuple[RunInfo, RunInfo],
    graph: Graph,
    *,
    unmatched: tuple[Unmatched, ...],
    limits: Limits,
    outputs: tuple[OutputRanking, ...],
) -> DiffResult:
    inner = [node for node in nodes if node.op != "Input"]
    if inner and all(node.status is Status.INCOMPARABLE and node.basis == "full" for node in inner):
        raise AlignmentError(
            f"None of the {len(inner)} shared tensors is comparable; the first: {inner[0].reason}.",
            hint="Check that both record the same network and inputs: qdebug info FILE --tensors.",
        )
    compared = sum(node.status is not Status.INCOMPARABLE for node in nodes)
    coverage = Coverage(compared=compared, unmatched=_as_checked(unmatched, nodes))
    missing = shortcomings(*runs, coverage, nodes, limits=limits)
    output = worst_output(nodes, graph) if nodes else None
    every = shortcomings(*runs, coverage, nodes, limits=limits.accepting_nothing())
    return DiffResult(
        reference=runs[0],
        backend=runs[1],
        verdict=verdict(
            nodes,
            missing,
            origin=origin_of(nodes, graph),
            output=None if output is None else held[next(at for at, node in enumerate(nodes) if node is output)],
            compounding=compounding_nodes(nodes, graph),
            accepted=tuple(clause for clause in every if clause not in missing),
        ),
        coverage=coverage,
        nodes=held,
        limits=limits.to_dict(),
        shortcomings=missing,
        outputs=outputs,
    )


def _as_checked(unmatched: Sequence[Unmatched], nodes: Sequence[NodeResult]) -> tuple[Unmatched, ...]:
    """Say of what lies inside a part of the network that the part was not checked, where that turned out only later."""
    why = {node.tensor: node.unchecked for node in nodes if node.unchecked is not None}
    return tuple(
        entry
        if entry.inside not in why
        else replace(entry, reason=said_unchecked(entry.reason, why[entry.inside] or ""))
        for entry in unmatched
    )
