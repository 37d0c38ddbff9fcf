"""Summarizes the compared tensors of two runs: coverage, shortcomings, verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from qdebug.compare.align.leftover import as_unchecked
from qdebug.compare.align.pairs import Unmatched
from qdebug.compare.growth import fails_by_growth
from qdebug.compare.outputs import (
    costs_that_count,
    judge_logits,
    mark_ruinous_arithmetic,
    outputs_below_limit,
    unjudged_logits,
)
from qdebug.compare.policy import shortcomings, verdict, verdict_on_different_inputs
from qdebug.compare.result.finding import FindingKind
from qdebug.compare.result.inputs import different_inputs, different_inputs_clause
from qdebug.compare.result.limits import Limits
from qdebug.compare.result.nonfinite import find_nonfinite_origin
from qdebug.compare.result.origin import (
    ErrorsByInput,
    find_compounding_nodes,
    find_sole_contributor,
    path_to_origin,
    worst_output,
)
from qdebug.compare.result.result import (
    Contributions,
    Coverage,
    Growth,
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
    growing: Callable[[NodeResult], Growth | None] | None = None,
    errors: ErrorsByInput | None = None,
    remark: str = "",
    cause: Callable[[NodeResult], str | None] | None = None,
) -> RunComparison:
    """Summarize a comparison.

    Args:
        nodes: Results of the compared tensors, in the backend's topological order.
        runs: Facts of the reference run and of the backend run.
        graph: The backend's graph.
        unmatched: Tensors without a partner.
        limits: What counts as divergence, and what may be missing.
        outputs: For each network output that may hold scores, whether its winner is still the same.
        contributing: Measures the contributions of nodes to an output that fails although no node does, or None to skip
            it.
        growing: Measures how rounding errors add up at an output, or None to skip it.
        errors: Returns the error that each of several inputs causes in a tensor, or None to skip this.
        remark: An introductory sentence on the two runs, or "".
        cause: Searches for the reason why the codes of the first diverging node may be wrong, or None to skip the
            search.

    Raises:
        AlignmentError: Tensors were compared and none of them beyond the inputs is comparable.
    """
    table = judge_logits(ResultTable(tuple(nodes)), outputs, limits)
    _check_comparable(table)
    coverage = _coverage(table, unmatched)
    missing = (*shortcomings(*runs, coverage, table, limits=limits), *unjudged_logits(graph, outputs, limits))
    all_shortcomings = shortcomings(*runs, coverage, table, limits=limits.accepting_nothing())
    accepted = [clause for clause in all_shortcomings if clause not in missing]
    different = different_inputs(table)
    if different and limits.allow_different_inputs:
        accepted, different = [different_inputs_clause(different), *accepted], []
    if different:
        outcome = verdict_on_different_inputs(different, missing, accepted)
    else:
        scores = {output.tensor for output in outputs}
        # Outputs with scores come first, because people read those.
        short = sorted(outputs_below_limit(table, graph, limits), key=lambda node: node.tensor not in scores)
        worst = table[worst_output(table, graph)] if len(table) else None
        growth = None if worst is None or growing is None else growing(worst)
        if worst is not None and not (short or limits.given or table.breaking.any()) and fails_by_growth(growth):
            short = [worst]
        contributions = contributing(table, short[0]) if short and contributing is not None else None
        sole = find_sole_contributor(table, short[0], contributions, limits.output_sqnr_in_force) if short else None
        diverging = None if sole is None else mark_ruinous_arithmetic(sole, short[0])
        if diverging is not None:
            table, short = table.replacing(diverging), []
        nonfinite = find_nonfinite_origin(table, graph)
        outcome = verdict(
            table,
            missing,
            way=path_to_origin(table, graph, errors=errors, born=nonfinite),
            output=worst,
            outputs=graph.outputs,
            compounding=find_compounding_nodes(table, graph),
            accepted=accepted,
            graph=graph,
            short=short,
            sole=sole,
            costs=costs_that_count(table, graph, limits, short),
            floor=limits.output_sqnr_in_force,
            nonfinite=nonfinite,
            remark=remark,
            contributing=contributions,
            growth=growth,
            cause=cause,
        )
    return RunComparison(
        reference=runs[0],
        backend=runs[1],
        verdict=outcome,
        coverage=coverage,
        nodes=table.nodes,
        limits=limits.to_dict(),
        shortcomings=(different_inputs_clause(different), *missing) if different else missing,
        outputs=outputs,
        network_outputs=tuple(name for name in graph.outputs if name in table.rows),
    )


def _coverage(table: ResultTable, unmatched: Sequence[Unmatched]) -> Coverage:
    """Return how much was compared."""
    return Coverage(
        compared=len(table) - int(np.count_nonzero(table.has_status(Status.INCOMPARABLE))),
        samples=len({sample.sample for node in table.nodes for sample in node.samples}),
        unmatched=_with_unchecked_parts(unmatched, table),
        judged=Judgements.of(table.nodes),
    )


def _check_comparable(table: ResultTable) -> None:
    """Raise an error if no tensor beyond the inputs can be compared."""
    is_incomparable = table.has_status(Status.INCOMPARABLE) & table.has_basis("full")
    if not is_incomparable.any():
        return
    is_inner = table.test_rows(lambda node: node.op != "Input")
    if any(finding.kind is FindingKind.SCALE for node in table.nodes for finding in node.findings):
        return  # missing scales may make all pairs incomparable although the network is the same
    if is_inner.any() and is_incomparable[is_inner].all():
        raise AlignmentError(
            f"None of the {is_inner.sum()} shared tensors can be compared (the first: "
            f"{table[is_inner.argmax()].reason}).",
            hint="Check that both record the same network and inputs: qdebug info FILE --tensors.",
        )


def _with_unchecked_parts(unmatched: Sequence[Unmatched], table: ResultTable) -> Sequence[Unmatched]:
    """Mark the tensors inside a region of the network that turned out to be unchecked."""
    reasons = {node.tensor: node.unchecked for node in table.nodes if node.unchecked is not None}
    if not reasons:
        return unmatched
    return tuple(
        entry if entry.inside not in reasons else as_unchecked(entry, reasons[entry.inside]) for entry in unmatched
    )
