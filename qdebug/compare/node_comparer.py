"""Everything that is found out about one compared tensor: its error, where it comes from, and what to think of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from time import perf_counter

import numpy as np

from qdebug.arithmetic.reproduce import ReproductionCheck
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.pairs import Pair
from qdebug.compare.attribute.attribute import Attribution
from qdebug.compare.attribute.error_parts import ErrorParts
from qdebug.compare.attribute.input_errors import errors_by_input
from qdebug.compare.attribute.plan import PlannedNode
from qdebug.compare.budget import (
    BudgetPowers,
    BudgetTask,
    KeptPowers,
    OutputBudget,
    ShareOut,
    budget_of_output,
    budget_powers,
)
from qdebug.compare.checks import arithmetic
from qdebug.compare.checks.context import NodeContext, Runs
from qdebug.compare.checks.table import findings_of
from qdebug.compare.contributions import contributions
from qdebug.compare.graph_checks.graph_check import GraphCheck
from qdebug.compare.measure.compare import compare_pair
from qdebug.compare.measure.joined_parts import joined_parts
from qdebug.compare.measure.recordings import RecentTensors
from qdebug.compare.outputs import lost_part
from qdebug.compare.policy import judge, judge_sample
from qdebug.compare.result.finding import Finding, FindingRole, JudgedBy, Status
from qdebug.compare.result.limits import Limits, RuleFinder
from qdebug.compare.result.node_result import is_doubt
from qdebug.compare.result.result import Contributions, NodeResult, SampleError, SampleResult
from qdebug.compare.result.result_table import ResultTable
from qdebug.compare.timing import Timing
from qdebug.model import Recording
from qdebug.numerics.stats import ErrorStats
from qdebug.replay.run import one_thread

__all__ = ["NodeComparer"]


class NodeComparer:
    """Compares tensors of two aligned recordings one by one.

    Args:
        reference: The reference run.
        backend: The backend run.
        pairs: All pairs of the alignment.
        limits: What counts as divergence.
        runs: What is known of both graphs; derived from the recordings if None.

    Attributes:
        timing: Where the time went so far.
    """

    def __init__(
        self,
        reference: Recording,
        backend: Recording,
        pairs: Sequence[Pair],
        limits: Limits,
        *,
        runs: tuple[IndexedRecording, IndexedRecording] | None = None,
    ) -> None:
        reference, backend = RecentTensors(reference), RecentTensors(backend)
        self._limits, self._rules = limits, RuleFinder(limits.rules)
        reproducer = ReproductionCheck(backend)
        self._runs = Runs(
            reference=reference,
            backend=backend,
            pairs={pair.backend: pair for pair in pairs},
            graphs=GraphCheck(reference, backend, pairs, runs=runs, reproducer=reproducer),
            reproducer=reproducer,
            reference_reproducer=ReproductionCheck(reference),
        )
        self.timing = Timing()

    def examine(self, entries: Sequence[PlannedNode]) -> Iterator[NodeResult]:
        """Compare tensor after tensor, split their errors and judge them.

        Args:
            entries: What is compared.
        """
        for entry in entries:
            begin = perf_counter()
            limit = self._limits.under(self._rules.find(entry))
            with _alike():
                comparison = compare_pair(
                    self._runs.reference,
                    self._runs.backend,
                    entry.pair,
                    relu_floor=entry.relu_floor,
                    tolerance=limit.tolerance,
                )
                compared = perf_counter()
                result = _judged(NodeContext(self._runs, entry, comparison, limit))
            spent = Timing(comparing=compared - begin, replaying=perf_counter() - compared, tensors=1)
            self.timing.add(spent)
            yield result

    def contributions(
        self, plan: Sequence[PlannedNode], of: ResultTable, output: NodeResult, *, replayed: int | None
    ) -> Contributions:
        """Find what nodes' own errors contribute to an output, see `qdebug.compare.contributions`.

        Args:
            plan: What was compared.
            of: How it came out.
            output: The output.
            replayed: Nodes that are replayed at most, those beyond their limit first; None for all.
        """
        entry = next(each for each in plan if each.tensor == output.tensor)
        lost = lost_part(output)
        parts = () if lost is None else joined_parts(self._runs.backend, output.tensor)
        part = next((each for each in parts if lost is not None and each.tensor == lost.evidence), None)
        with _alike():
            always = {of[row].tensor for row in np.flatnonzero(of.beyond)}
            return contributions(self._runs.graphs, plan, of, entry, always=always, replayed=replayed, part=part)

    def budget(
        self,
        plan: Sequence[PlannedNode],
        results: Sequence[NodeResult],
        output: PlannedNode,
        *,
        least: float,
        places: Sequence[tuple[int, int]] | None,
        parts: bool,
        progress: Callable[[int, int], None] | None,
        share_out: ShareOut | None = None,
        kept: KeptPowers | None = None,
    ) -> OutputBudget:
        """Tell what the error of an output is made of, see `qdebug.compare.budget`.

        Args:
            plan: What was compared.
            results: How it came out.
            output: The output.
            least: Smallest share of a node that has an entry of its own.
            places: Samples and steps that are looked at; None for all.
            parts: Whether the parts of each node's error are replayed, too.
            progress: Called with the number of tasks done and their total.
            share_out: Has the replays made by others; None makes them here.
            kept: What was found before, which is not replayed again; what is found now comes to it.
        """
        made, graphs = partial(budget_of_output, least=least, places=places, parts=parts), self._runs.graphs
        with _alike():
            return made(graphs, plan, ResultTable(results), output, progress=progress, share_out=share_out, kept=kept)

    def budget_powers(self, task: BudgetTask) -> BudgetPowers:
        """Make the replays of a part of a budget, see `qdebug.compare.budget.budget_powers`."""
        with _alike():
            return budget_powers(self._runs.graphs, task)

    def errors_by_input(self, tensor: str, names: Sequence[str], sample: int) -> Mapping[str, float] | None:
        """Return the error that each of some inputs alone makes of a compared tensor in one sample.

        Args:
            tensor: The backend tensor.
            names: Compared tensors that its node reads.
            sample: The sample; of a stateful net its first recorded step.

        Returns:
            None where the node cannot be replayed.
        """
        runs = self._runs
        held = (place for place in runs.backend.places(tensor) if place[0] == sample)
        place = next((place for place in held if runs.backend.has(tensor, *place)), (sample, 0))
        with _alike():
            return errors_by_input(runs.graphs.replays, tensor, names, place)


@contextmanager
def _alike() -> Iterator[None]:
    """Compute the same wherever it runs: on one thread of BLAS, and without a warning of what overflows.

    What overflows has a defined result, and a warning would land in the middle of a screen.
    """
    with one_thread(), np.errstate(all="ignore"):
        yield


def _judged(context: NodeContext) -> NodeResult:
    """Return the result of a compared tensor: what the checks find, and what follows from it."""
    entry, comparison = context.entry, context.comparison
    attribution = _settled(_by_arithmetics(context), comparison.stats)
    findings = findings_of(context)
    status, reason = judge(context, findings)
    parts = {} if attribution is None else attribution.samples
    declared = context.difference[0] or context.unholdable
    if declared is not None and declared.role is FindingRole.COST:
        declared = None  # the graphs say the same, codes alone are coarse
    return NodeResult(
        index=entry.index,
        node=entry.node,
        op=entry.op,
        tensor=entry.tensor,
        reference_tensor=entry.reference_tensor,
        match=entry.match,
        match_reason=entry.match_reason,
        confidence=entry.confidence,
        status=status,
        reason=reason,
        note=comparison.note,
        basis=comparison.basis,
        lacking=comparison.lacking,
        metrics=comparison.stats,
        **(attribution or ErrorParts()).parts(),
        judged=arithmetic.judged(context),
        findings=findings,
        born=context.birth,
        declared=None if declared is None else declared.sentence,
        attribution_note=None if attribution is None else attribution.reason,
        judged_by=_evidence(context, status, findings),
        failed_replay=context.failed and status is not Status.IDENTICAL,
        explained=None if context.reproduced is None else context.reproduced.by,
        unchecked=context.difference[1],
        reproduced=None if context.reproduced is None else context.reproduced.by is not None,
        precision=context.short_format,
        saturation=comparison.rails,
        quant=entry.quant,
        placement=None if context.node is None else context.node.placement or None,
        samples=tuple(
            SampleResult(
                sample=sample.sample,
                max_abs=sample.max_abs,
                sqnr_db=sample.sqnr_db,
                status=judge_sample(context, sample.sample, sample.stats, status, findings),
                introduced=None if part is None else SampleError.of(part.introduced),
                propagated=None if part is None else SampleError.of(part.propagated),
            )
            for sample, part in (
                (sample, _settled(parts.get(sample.sample), sample.stats)) for sample in comparison.samples
            )
        ),
    )


def _evidence(context: NodeContext, status: Status, findings: Sequence[Finding]) -> JudgedBy:
    """Return by what a tensor was judged."""
    if status is Status.INCOMPARABLE or (status is Status.WITHIN and any(map(is_doubt, findings))):
        return JudgedBy.NONE
    attribution = context.attribution
    replayed = attribution is not None and attribution.arithmetic_unsaturated is not None
    known = replayed or (context.reproduced is not None and context.reproduced.firm)
    return JudgedBy.REPLAY if known and status is not Status.IDENTICAL else JudgedBy.WHOLE_ERROR


def _by_arithmetics(context: NodeContext) -> Attribution | None:
    """Return how an error splits up: by the reference's arithmetic where both runs are in the same codes."""
    attribution, pair = context.attribution, context.arithmetics
    if attribution is None or attribution.introduced is None or pair is None:
        return attribution
    return replace(attribution, introduced=pair.introduced, propagated=pair.propagated, arithmetic=pair.introduced)


def _settled(attribution: Attribution | None, stats: ErrorStats | None) -> Attribution | None:
    """Return how an error splits up; where there is none, no part makes any, whatever a replay rounds otherwise."""
    if attribution is None or attribution.introduced is None or stats is None or stats.mismatches:
        return attribution
    constants = None if attribution.constants is None else stats
    return replace(attribution, introduced=stats, propagated=stats, constants=constants, arithmetic=stats)
