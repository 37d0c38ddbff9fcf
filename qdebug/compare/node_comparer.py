"""Compares, attributes and judges tensors one by one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
from qdebug.compare.checks.table import run_checks
from qdebug.compare.contributions import contributions, joint_share
from qdebug.compare.evidence import excess
from qdebug.compare.evidence.evidence import Evidence
from qdebug.compare.evidence.runs import Runs
from qdebug.compare.graph_checks.graph_check import GraphCheck
from qdebug.compare.growth import growth_of_errors
from qdebug.compare.measure.compare import compare_pair
from qdebug.compare.measure.joined_parts import joined_parts
from qdebug.compare.measure.recordings import RecentTensors
from qdebug.compare.outputs import lost_part
from qdebug.compare.policy import judge, judge_sample
from qdebug.compare.result.finding import Finding, FindingRole, JudgedBy, Status
from qdebug.compare.result.limits import Limits, RuleFinder
from qdebug.compare.result.node_result import is_doubt
from qdebug.compare.result.result import Contributions, Growth, NodeResult, SampleError, SampleResult
from qdebug.compare.result.result_table import ResultTable
from qdebug.compare.timing import Timing
from qdebug.model import Recording
from qdebug.numerics.stats import ErrorStats
from qdebug.replay.run import one_thread

__all__ = ["NodeComparer"]


_SEED = 0
"""Seed of the random signs with which errors are replayed, so that results are the same each time."""


class NodeComparer:
    """Compares tensors of two aligned recordings one by one.

    Args:
        reference: The reference run.
        backend: The backend run.
        pairs: All pairs of the alignment.
        limits: What counts as divergence.
        runs: Known facts about both graphs. Derived from the recordings if None.

    Attributes:
        timing: Time spent so far.
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
        """Compare, attribute and judge tensors one by one.

        Args:
            entries: The tensors.
        """
        for entry in entries:
            begin = perf_counter()
            limit = self._limits.under(self._rules.find(entry))
            with _reproducible_arithmetic():
                comparison = compare_pair(
                    self._runs.reference,
                    self._runs.backend,
                    entry.pair,
                    relu_floor=entry.relu_floor,
                    tolerance=limit.tolerance,
                )
                compared = perf_counter()
                result = _judge_tensor(Evidence(self._runs, entry, comparison, limit))
            spent = Timing(comparing=compared - begin, replaying=perf_counter() - compared, tensors=1)
            self.timing.add(spent)
            yield result

    def contributions(
        self, plan: Sequence[PlannedNode], table: ResultTable, output: NodeResult, *, replayed: int | None
    ) -> Contributions:
        """Measure each node's contribution to the error of an output, see `qdebug.compare.contributions`.

        Args:
            plan: All compared tensors.
            table: Their results.
            output: The output.
            replayed: Largest number of nodes to replay, failing ones first. None for all.
        """
        entry = next(planned_node for planned_node in plan if planned_node.tensor == output.tensor)
        lost = lost_part(output)
        parts = () if lost is None else joined_parts(self._runs.backend, output.tensor)
        part = next(
            (joined_part for joined_part in parts if lost is not None and joined_part.tensor == lost.evidence), None
        )
        with _reproducible_arithmetic():
            always = {table[row].tensor for row in np.flatnonzero(table.beyond)}
            return contributions(
                self._runs.graphs,
                plan,
                table,
                entry,
                always=always,
                replayed=replayed,
                part=part,
                stacked=self._runs.stacked,
            )

    def growth(self, plan: Sequence[PlannedNode], output: NodeResult) -> Growth | None:
        """Measure how rounding errors add up at an output, see `qdebug.compare.growth`.

        Args:
            plan: All compared tensors.
            output: The output.
        """
        entry = next(planned_node for planned_node in plan if planned_node.tensor == output.tensor)
        with _reproducible_arithmetic():
            return growth_of_errors(self._runs.graphs, plan, entry, np.random.default_rng(_SEED))

    def joint_share(self, plan: Sequence[PlannedNode], output: str, tensors: Collection[str]) -> float | None:
        """Return the share of an output's error power that the own errors of several tensors cause together.

        Args:
            plan: All compared tensors.
            output: The output, as a backend tensor.
            tensors: The backend tensors.

        Returns:
            None if they cannot be replayed.
        """
        entry = next(planned_node for planned_node in plan if planned_node.tensor == output)
        with _reproducible_arithmetic():
            return joint_share(
                self._runs.graphs, entry, [planned_node for planned_node in plan if planned_node.tensor in tensors]
            )

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
        cached_powers: KeptPowers | None = None,
    ) -> OutputBudget:
        """Return the error budget of an output, see `qdebug.compare.budget`.

        Args:
            plan: All compared tensors.
            results: Their results.
            output: The output.
            least: Smallest share for which a node gets its own entry.
            places: Samples and steps to replay, or None for all.
            parts: Whether to replay the parts of each node's error as well.
            progress: Called with the number of finished tasks and the total.
            share_out: Distributes the replays to workers, or None to run them in this process.
            cached_powers: Results of earlier replays, which are reused and extended.
        """
        compute, graphs = partial(budget_of_output, least=least, places=places, parts=parts), self._runs.graphs
        with _reproducible_arithmetic():
            return compute(
                graphs,
                plan,
                ResultTable(results),
                output,
                progress=progress,
                share_out=share_out,
                cached_powers=cached_powers,
            )

    def budget_powers(self, task: BudgetTask) -> BudgetPowers:
        """Run the replays of one budget task, see `qdebug.compare.budget.budget_powers`."""
        with _reproducible_arithmetic():
            return budget_powers(self._runs.graphs, task)

    def errors_by_input(self, tensor: str, names: Sequence[str], sample: int) -> Mapping[str, float] | None:
        """Return the error that each of the given inputs alone causes in a compared tensor in one sample.

        Args:
            tensor: The backend tensor.
            names: Compared tensors that its node reads.
            sample: The sample. Its first recorded step is used if the network has states.

        Returns:
            The error by input, or None if the node cannot be replayed.
        """
        runs = self._runs
        places = (place for place in runs.backend.places(tensor) if place[0] == sample)
        place = next((place for place in places if runs.backend.has(tensor, *place)), (sample, 0))
        with _reproducible_arithmetic():
            return errors_by_input(runs.graphs.replays, tensor, names, place)


@contextmanager
def _reproducible_arithmetic() -> Iterator[None]:
    """Make results independent of where they are computed: one BLAS thread, no warnings about overflow.

    An overflow has a defined result, and a warning would appear in the middle of a screen.
    """
    with one_thread(), np.errstate(all="ignore"):
        yield


def _judge_tensor(evidence: Evidence) -> NodeResult:
    """Return the result of a compared tensor."""
    entry, comparison = evidence.entry, evidence.comparison
    attribution = _with_zero_parts_if_equal(_attribution_by_arithmetic(evidence), comparison.stats)
    findings = run_checks(evidence)
    status, reason = judge(evidence, findings)
    parts = {} if attribution is None else attribution.samples
    declared = evidence.difference[0] or evidence.unrepresentable_constant
    if declared is not None and declared.role is FindingRole.COST:
        declared = None  # a cost means coarser codes, not a difference of the graphs
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
        judged=excess.judged(evidence),
        findings=findings,
        born=evidence.birth,
        declared=None if declared is None else declared.sentence,
        attribution_note=None if attribution is None else attribution.reason,
        judged_by=_judged_by(evidence, status, findings),
        failed_replay=evidence.failed and status is not Status.IDENTICAL,
        explained=None if evidence.reproduced is None else evidence.reproduced.by,
        unchecked=evidence.difference[1],
        reproduced=None if evidence.reproduced is None else evidence.reproduced.by is not None,
        precision=evidence.short_format,
        saturation=comparison.rails,
        quant=entry.quant,
        placement=None if evidence.node is None else evidence.node.placement or None,
        samples=tuple(
            SampleResult(
                sample=sample.sample,
                max_abs=sample.max_abs,
                sqnr_db=sample.sqnr_db,
                status=judge_sample(evidence, sample.sample, sample.stats, status, findings),
                introduced=None if part is None else SampleError.of(part.introduced),
                propagated=None if part is None else SampleError.of(part.propagated),
            )
            for sample, part in (
                (sample, _with_zero_parts_if_equal(parts.get(sample.sample), sample.stats))
                for sample in comparison.samples
            )
        ),
    )


def _judged_by(evidence: Evidence, status: Status, findings: Sequence[Finding]) -> JudgedBy:
    """Return the evidence by which a tensor was judged."""
    if status is Status.INCOMPARABLE or (status is Status.WITHIN and any(map(is_doubt, findings))):
        return JudgedBy.NONE
    attribution = evidence.attribution
    is_replayed = attribution is not None and attribution.arithmetic_unsaturated is not None
    has_replay = is_replayed or (evidence.reproduced is not None and evidence.reproduced.firm)
    return JudgedBy.REPLAY if has_replay and status is not Status.IDENTICAL else JudgedBy.WHOLE_ERROR


def _attribution_by_arithmetic(evidence: Evidence) -> Attribution | None:
    """Return the attribution, using the reference's arithmetic if both runs use the same codes."""
    attribution, pair = evidence.attribution, evidence.arithmetics
    if attribution is None or attribution.introduced is None or pair is None:
        return attribution
    return replace(attribution, introduced=pair.introduced, propagated=pair.propagated, arithmetic=pair.introduced)


def _with_zero_parts_if_equal(attribution: Attribution | None, stats: ErrorStats | None) -> Attribution | None:
    """Return the attribution, with zero parts if there is no error, however a replay rounds."""
    if attribution is None or attribution.introduced is None or stats is None or stats.mismatches:
        return attribution
    constants = None if attribution.constants is None else stats
    return replace(attribution, introduced=stats, propagated=stats, constants=constants, arithmetic=stats)
