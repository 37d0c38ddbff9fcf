"""Sums up the compared tensors of two runs: coverage, shortcomings, verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from qdebug.compare.align.leftover import as_unchecked
from qdebug.compare.align.pairs import Unmatched
from qdebug.compare.outputs import beyond_by_its_arithmetic, costs_that_count, short_outputs
from qdebug.compare.policy import shortcomings, verdict, verdict_on_different_inputs
from qdebug.compare.result.finding import FindingKind
from qdebug.compare.result.inputs import different_inputs, different_inputs_clause
from qdebug.compare.result.limits import Limits
from qdebug.compare.result.nonfinite import nonfinite_of
from qdebug.compare.result.origin import (
    ErrorsByInput,
    compounding_nodes,
    sole_contributor,
    way_to_origin,
    worst_output,
)
from qdebug.compare.result.result import (
    Contributions,
    Coverage,
    Judgements,
    NodeResult,
    OutputRanking,
    RunComparison,
    Status,
)
from qdebug.compare.result.result_table import ResultTable
from qdebug.errors import AlignmentError
from qdebug.model import Graph, RunInfo

__all__ = ["sum_up"]


def sum_up(
    nodes: Sequence[NodeResult],
    runs: tuple[RunInfo, RunInfo],
    graph: Graph,
    *,
    unmatched: Sequence[Unmatched],
    limits: Limits,
    outputs: tuple[OutputRanking, ...] = (),
    contributing: Callable[[ResultTable, NodeResult], Contributions] | None = None,
    errors: ErrorsByInput | None = None,
    remark: str = "",
    cause: Callable[[NodeResult], str | None] | None = None,
) -> RunComparison:
    """Sum up compared tensors.

    Args:
        nodes: Their results, in the backend's topological order.
        runs: Facts of the reference run and of the backend run.
        graph: The backend's graph.
        unmatched: Tensors that have no partner.
        limits: What may be missing from a comparison.
        outputs: For each network output that may hold scores, whether its winner is still the same.
        contributing: Finds what nodes contribute to an output that is beyond its limit while no node is; None to leave
            that out.
        errors: Tells what each of several inputs brings to the error of a node; None to leave that out.
        remark: A sentence on the two runs, to be said first; "" for none.
        cause: Tells of a node that diverges first why its codes may be wrong; None to leave it out.

    Raises:
        AlignmentError: Tensors were compared and none of them beyond the inputs is comparable.
    """
    of = ResultTable(tuple(nodes))
    _check_comparable(of)
    coverage = _coverage(of, unmatched)
    missing = shortcomings(*runs, coverage, of, limits=limits)
    every = shortcomings(*runs, coverage, of, limits=limits.accepting_nothing())
    accepted = [clause for clause in every if clause not in missing]
    different = different_inputs(of)
    if different and limits.allow_different_inputs:
        accepted, different = [different_inputs_clause(different), *accepted], []
    if different:
        found = verdict_on_different_inputs(different, missing, accepted)
    else:
        scores = {output.tensor for output in outputs}
        short = sorted(short_outputs(of, graph, limits), key=lambda node: node.tensor not in scores)  # what people read
        contributions = contributing(of, short[0]) if short and contributing is not None else None
        sole = sole_contributor(of, short[0], contributions, limits.output_sqnr_in_force) if short else None
        guilty = None if sole is None else beyond_by_its_arithmetic(sole, short[0])
        if guilty is not None:
            of, short = of.replacing(guilty), []
        born = nonfinite_of(of, graph)
        found = verdict(
            of,
            missing,
            way=way_to_origin(of, graph, errors=errors, born=born),
            output=of[worst_output(of, graph)] if len(of) else None,
            outputs=graph.outputs,
            compounding=compounding_nodes(of, graph),
            accepted=accepted,
            graph=graph,
            short=short,
            sole=sole,
            costs=costs_that_count(of, graph, limits, short),
            floor=limits.output_sqnr_in_force,
            nonfinite=born,
            remark=remark,
            contributing=contributions,
            cause=cause,
        )
    return RunComparison(
        reference=runs[0],
        backend=runs[1],
        verdict=found,
        coverage=coverage,
        nodes=of.nodes,
        limits=limits.to_dict(),
        shortcomings=(different_inputs_clause(different), *missing) if different else missing,
        outputs=outputs,
        network_outputs=tuple(name for name in graph.outputs if name in of.rows),
    )


def _coverage(of: ResultTable, unmatched: Sequence[Unmatched]) -> Coverage:
    """Return how much was compared."""
    return Coverage(
        compared=len(of) - int(np.count_nonzero(of.having(Status.INCOMPARABLE))),
        samples=len({sample.sample for node in of.nodes for sample in node.samples}),
        unmatched=_as_checked(unmatched, of),
        judged=Judgements.of(of.nodes),
    )


def _check_comparable(of: ResultTable) -> None:
    """Raise if tensors beyond the inputs were to be compared and none of them can be."""
    apart = of.having(Status.INCOMPARABLE) & of.on("full")
    if not apart.any():
        return
    inner = of.which(lambda node: node.op != "Input")
    if any(found.kind is FindingKind.SCALE for node in of.nodes for found in node.findings):
        return  # the network may well be the same
    if inner.any() and apart[inner].all():
        raise AlignmentError(
            f"None of the {inner.sum()} shared tensors is comparable; the first: {of[inner.argmax()].reason}.",
            hint="Check that both record the same network and inputs: qdebug info FILE --tensors.",
        )


def _as_checked(unmatched: Sequence[Unmatched], of: ResultTable) -> Sequence[Unmatched]:
    """Say of what lies inside a part of the network that the part was not checked, where that turned out only later."""
    why = {node.tensor: node.unchecked for node in of.nodes if node.unchecked is not None}
    if not why:
        return unmatched
    return tuple(entry if entry.inside not in why else as_unchecked(entry, why[entry.inside]) for entry in unmatched)
