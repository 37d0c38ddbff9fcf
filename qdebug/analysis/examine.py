"""Everything that is found out about one compared tensor: its error, where it comes from, and what to think of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np

from qdebug.analysis.alignment.columns import by_backend
from qdebug.analysis.alignment.pairs import Pair
from qdebug.analysis.alignment.value_classes import Run
from qdebug.analysis.attribution.attribute import Attribution
from qdebug.analysis.attribution.plan import PlannedNode, recorded_places
from qdebug.analysis.attribution.reference_alone import reference_alone
from qdebug.analysis.attribution.segment import Segment
from qdebug.analysis.attribution.whole_numbers import rounds_nothing
from qdebug.analysis.comparison.beyond_single import beyond_single
from qdebug.analysis.comparison.compare import Comparison, Request, compare_pair, compare_small
from qdebug.analysis.comparison.recent import RecentTensors
from qdebug.analysis.comparison.short_values import short_values
from qdebug.analysis.declarations.declaration_check import DeclarationCheck, rounded_first
from qdebug.analysis.declarations.misread import contradicted, misread
from qdebug.analysis.explaining.float_band import rounded_inputs
from qdebug.analysis.explaining.reproduce import Reproduced, Reproducer
from qdebug.analysis.results.limit_rules import RuleFinder
from qdebug.analysis.results.limits import Limits
from qdebug.analysis.results.result import NodeResult, SampleError, SampleResult, Status
from qdebug.analysis.timing import Timing
from qdebug.model import Node, Recording
from qdebug.numerics.stats import ErrorStats

__all__ = ["Examiner"]

_AHEAD = 32
"""Tensors that are looked at ahead: the small ones among them are compared together."""
_FAR_LESS = 0.1
"""Share of the error against the replay of its own node that a tensor has at most where the reference's accounts for
it."""
_ALIKE = 0.8
"""Ratio of the errors of both runs against their own replays, one way or the other, where not all was said of both."""
_Judged = tuple[Attribution, tuple[Status, str | None]]
_SAID_WRONGLY = (
    "what its node is said to do does not give its values; what the reference's nodes make of the same inputs does"
)
_HALF_KNOWN = "it was replayed with the reference's constants, which are not rounded to codes"
_PASSED_ON = 2.0
"""Times the relative error of what it reads that a node may pass on, where nothing tells what it adds."""


class Examiner:
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
        runs: tuple[Run, Run] | None = None,
    ) -> None:
        reference, backend = RecentTensors(reference), RecentTensors(backend)
        self._reference, self._backend = reference, backend
        self._limits, self._rules = limits, RuleFinder(limits.rules)
        self._pairs = by_backend(pairs)
        self._declared = DeclarationCheck(reference, backend, pairs, runs=runs)
        self._reproducer = Reproducer(backend)
        self.timing = Timing()

    def examine(self, entries: Sequence[PlannedNode], *, first: int = 0) -> Iterator[NodeResult]:
        """Compare tensor after tensor, split their errors and judge them; a few small tensors are read ahead.

        Args:
            entries: What is compared.
            first: The first of them that is looked at.
        """
        for start in range(first, len(entries), _AHEAD):
            begin = perf_counter()
            chunk = entries[start : start + _AHEAD]
            limits = [self._limits.under(self._rules.find(entry)) for entry in chunk]
            requests = [
                Request(pair=entry.pair, relu_floor=entry.relu_floor, tolerance=limit.tolerance)
                for entry, limit in zip(chunk, limits, strict=True)
            ]
            with _quiet():
                known = compare_small(self._reference, self._backend, requests)
            self.timing.add(Timing(comparing=perf_counter() - begin))
            for entry, request, small, limit in zip(chunk, requests, known, limits, strict=True):
                begin = perf_counter()
                with _quiet():
                    comparison = small or compare_pair(
                        self._reference,
                        self._backend,
                        request.pair,
                        relu_floor=request.relu_floor,
                        tolerance=request.tolerance,
                    )
                    compared = perf_counter()
                    result = self._judged(entry, comparison, limit)
                spent = Timing(comparing=compared - begin, replaying=perf_counter() - compared, tensors=1)
                self.timing.add(spent)
                yield result

    def _judged(self, entry: PlannedNode, comparison: Comparison, limits: Limits) -> NodeResult:
        """Split the error of a compared tensor and judge it."""
        node = self._backend.graph.producer(entry.tensor)
        segment = None if node is None else self._declared.segment(entry.pair)
        if comparison.stats is None:
            return self._unmeasured(entry, comparison, limits, node, segment)
        attribution = self._attribution(entry, comparison, segment)
        whole = entry.whole and attribution.in_range is None and (node is None or self._reads_the_same(segment))
        judged = self._first_judged(comparison, limits, attribution, whole=whole)
        reproduced = self._reproduced(entry, node, comparison, limits)
        why = None
        if judged[0] is Status.DIVERGED and node is not None:
            why = misread(self._backend, node) or self._by_rounded_inputs(entry, node, attribution, segment)
            if why is None and reproduced is not None and reproduced.firm:
                judged = limits.judge(comparison.stats, attribution, reproduced=True)
        declared = None
        unchecked = None
        excused = self._as_reference(entry, comparison, limits, segment, (attribution, judged))
        if excused is not None:
            attribution, judged = excused
            reason = f"{entry.pair.reason}; {_SAID_WRONGLY}"
            segment, entry = None, replace(entry, pair=replace(entry.pair, reason=reason))
        else:
            attribution, judged = self._as_unsaid(entry, comparison, limits, (attribution, judged))
        if node is not None and segment is not None and comparison.stats.mismatches:
            declared = self._declared.difference(entry, node, segment, attribution, comparison)
            declared = declared or self._contradicted(node, segment, judged[0])
            unchecked = self._declared.unchecked(entry.tensor)
        if attribution.in_range is None:
            judged = self._without_replay(
                entry, comparison, limits, judged, why=attribution.reason or _HALF_KNOWN, segment=segment, whole=whole
            )
        if declared is not None and not limits.given and judged[0] in (Status.WITHIN, Status.DIVERGED):
            judged = Status.DIVERGED, declared
        elif judged[0] is Status.DIVERGED and why is not None:
            judged = judged[0], f"{judged[1]}: {why}"
        if declared is None and node is not None and segment is not None and comparison.stats.mismatches:
            declared = self._declared.unheld(node, segment)
        if judged[0] is Status.NONFINITE and (cause := declared or self._beyond_single(entry, comparison.stats)):
            judged = judged[0], f"{judged[1]}: {cause}"
        if judged[0] is Status.WITHIN and (saturated := limits.saturated(comparison.rails)):
            judged = Status.DIVERGED, saturated
        return _node_result(
            entry,
            comparison,
            attribution,
            judged,
            limits,
            declared=declared,
            unchecked=unchecked,
            reproduced=reproduced,
            precision=self._precision(entry, comparison, attribution),
            whole=whole,
        )

    def _precision(self, entry: PlannedNode, comparison: Comparison, attribution: Attribution) -> str | None:
        """Give the format of few digits that the values were rounded to in this run alone; None if in none."""
        replayed = attribution.in_range is not None
        if comparison.stats is None or not comparison.stats.mismatches or comparison.basis != "full":
            return None
        coded = entry.quant is not None or self._reference.graph.tensors[entry.reference_tensor].quant is not None
        if coded or entry.whole or (replayed and attribution.short is None):
            return None
        places = recorded_places(self._reference, self._backend, entry)
        sides, names = (self._reference, self._backend), (entry.reference_tensor, entry.tensor)
        return short_values(sides, names, places, known=attribution.short)

    def _contradicted(self, node: Node, segment: Segment, status: Status) -> str | None:
        """Say which codes a node reads by other numbers than they were made with, unless the reference does so too.

        Where the node diverges, what it is off by is said, and this as the reason.
        """
        said = contradicted(self._backend, node) if status is Status.WITHIN else None
        if said is None or any(contradicted(self._reference, each) for each in segment.nodes):
            return None
        return said

    def _by_rounded_inputs(
        self, entry: PlannedNode, node: Node, attribution: Attribution, segment: Segment | None
    ) -> str | None:
        """Say to which formats a product has rounded what it multiplies, if that accounts for what it introduces."""
        stats = attribution.in_range
        if entry.quant is not None or attribution.allowed is None or stats is None:
            return None
        formats = rounded_inputs(self._backend, node, entry.tensor, (stats.worst_sample or 0, 0))
        formats = formats or self._declared.rounded_factors(entry, segment)
        return rounded_first(formats) if formats else None

    def _as_reference(
        self, entry: PlannedNode, comparison: Comparison, limits: Limits, segment: Segment | None, own: _Judged
    ) -> _Judged | None:
        """Judge a tensor by what the reference's nodes make of its node's inputs, if that accounts for its values.

        A replay of what the backend's node is said to do tells nothing of the backend where not all of that was said:
        attributes, or another framework's words for them. None where the node's own replay holds, or neither does.
        """
        failed = own[1][0] is Status.DIVERGED and own[0].in_range is not None and not limits.given
        if not failed or segment is None or not segment.nodes or entry.quant is not None or comparison.stats is None:
            return None
        other = self._declared.by_reference(entry, segment, rounding=False)
        errors = [None if found.in_range is None else found.in_range.rmse for found in (other, own[0])]
        if errors[0] is None or errors[1] is None or not errors[0] < _FAR_LESS * errors[1]:
            return None  # where both replays are off alike, it is the backend
        other = self._declared.by_reference(entry, segment, rounding=True)
        again = limits.judge(comparison.stats, other)
        return None if again[0] is Status.DIVERGED else (other, again)

    def _as_unsaid(self, entry: PlannedNode, comparison: Comparison, limits: Limits, own: _Judged) -> _Judged:
        """Judge a tensor by its whole error where the reference's own values are as far from its own node's replay.

        Whoever recorded both runs has then not said all that the node does, such as the slope of a LeakyRelu, and the
        replay tells nothing of either. What differs in what the two graphs say is another matter.
        """
        attribution, (status, _) = own
        if status is not Status.DIVERGED or attribution.in_range is None or limits.given or comparison.stats is None:
            return own
        if self._reference.graph.tensors[entry.reference_tensor].quant is not None:
            return own  # rounding to codes is an error of its own
        alone = reference_alone(self._reference, entry)
        theirs, ours = (None if found.in_range is None else found.in_range.rel_l2 for found in (alone, attribution))
        if not theirs or not ours or not _ALIKE <= theirs / ours <= 1 / _ALIKE:
            return own
        if limits.judge(comparison.stats, alone)[0] is not Status.DIVERGED:
            return own  # it rounds as coarsely, and no more
        node = self._reference.graph.producer(entry.reference_tensor)
        op = "its node" if node is None else node.op
        unsaid = Attribution(reason=f"the reference's own values are not what {op} makes of its inputs either")
        return unsaid, limits.judge(comparison.stats, unsaid)

    def _without_replay(
        self,
        entry: PlannedNode,
        comparison: Comparison,
        limits: Limits,
        judged: tuple[Status, str | None],
        *,
        why: str,
        segment: Segment | None,
        whole: bool,
    ) -> tuple[Status, str | None]:
        """Say of a tensor whose node was not replayed what that means for how it came out."""
        stats, said = comparison.stats, judged[1]
        if judged[0] is Status.DIVERGED and not limits.given:
            if not whole and self._passes_on(comparison, segment):
                judged = Status.WITHIN, None
            else:
                return judged[0], f"{said}; judged by its whole error, since {why}"
        if judged == (Status.WITHIN, None) and entry.whole and stats is not None and stats.mismatches:
            differ = "differs" if stats.mismatches == 1 else "differ"
            said = f"{stats.mismatches} of {stats.count} elements {differ}, for which what it reads may account"
            return Status.WITHIN, said
        return judged

    def _passes_on(self, comparison: Comparison, segment: Segment | None) -> bool:
        """Tell whether a tensor is hardly more off than what its node reads.

        Of a node that cannot be replayed the whole error is all that is known. Where most of it may have come with the
        inputs, it shows nothing of the node.
        """
        own = None if comparison.stats is None else comparison.stats.rel_l2
        if own is None or segment is None:
            return False
        read = (comparison.stats for comparison in self._read(segment))
        errors = [stats.rel_l2 for stats in read if stats is not None and stats.rel_l2 is not None]
        return any(own <= _PASSED_ON * error for error in errors)

    def _beyond_single(self, entry: PlannedNode, stats: ErrorStats) -> str | None:
        """Say which code of either side stands for more than float32 holds; None if there is none."""
        sample = stats.worst_sample or 0
        for recording, tensor, side in (
            (self._backend, entry.tensor, ""),
            (self._reference, entry.reference_tensor, " of the reference"),
        ):
            said = beyond_single(recording, recording.graph.producer(tensor), tensor, sample)
            if said is not None:
                return said + side
        return None

    def _reads_the_same(self, segment: Segment | None) -> bool:
        """Tell whether all that a node reads is known to be equal, up to what arranges it and rounds nothing."""
        if segment is None or segment.elsewhere or not all(node.inputs for node in segment.own):
            return False
        if not all(map(rounds_nothing, (*segment.own[:-1], *segment.nodes[:-1]))):
            return False
        return all(
            read.stats is not None and not read.stats.mismatches and not read.nonfinite and read.known_equal
            for read in self._read(segment)
        )

    def _read(self, segment: Segment) -> Iterator[Comparison]:
        """Compare what a node reads."""
        pairs = [self._pairs[name] for name in segment.feeds.values() if name in self._pairs]
        return (compare_pair(self._reference, self._backend, pair) for pair in pairs)

    def _unmeasured(
        self, entry: PlannedNode, comparison: Comparison, limits: Limits, node: Node | None, segment: Segment | None
    ) -> NodeResult:
        """Give the result of a tensor whose error is not known; statistics can prove it too large all the same."""
        declared = self._declared.shape(entry, node, segment)
        reason = f"{comparison.reason}; {declared}" if declared else comparison.reason
        floor, most = limits.sqnr_in_force, comparison.sqnr_at_most
        proved = Status.DIVERGED if floor is not None and most is not None and most < floor else Status.INCOMPARABLE
        if comparison.nonfinite:
            proved, reason = Status.NONFINITE, _by_statistics(comparison)
        return _node_result(entry, comparison, None, (proved, reason), limits, declared=declared)

    def _attribution(self, entry: PlannedNode, comparison: Comparison, segment: Segment | None) -> Attribution:
        """Split a tensor's error where all of it is known."""
        if comparison.basis != "full":
            return Attribution(reason="not all of its values were kept")
        return self._declared.attribution(entry, segment)

    def _first_judged(
        self, comparison: Comparison, limits: Limits, attribution: Attribution, *, whole: bool
    ) -> tuple[Status, str | None]:
        """Judge a tensor's error by the numbers."""
        judged: tuple[Status, str | None] = Status.WITHIN, None
        if comparison.stats is not None:
            judged = limits.judge(comparison.stats, attribution, whole=whole)
        if judged[0] is Status.IDENTICAL and not comparison.known_equal:
            judged = Status.WITHIN, None
        if comparison.nonfinite and judged[0] is not Status.NONFINITE:
            judged = Status.NONFINITE, _by_statistics(comparison)
        return judged

    def _reproduced(
        self, entry: PlannedNode, node: Node | None, comparison: Comparison, limits: Limits
    ) -> Reproduced | None:
        """Look for the arithmetic of a node whose codes stand for other values than the reference has."""
        if not limits.explain or node is None or comparison.stats is None or not comparison.stats.mismatches:
            return None
        return self._reproducer.reproduce(node, entry.tensor)


def _quiet() -> np.errstate:
    """Compute what overflows to its defined result without a warning, which would land in the middle of a screen."""
    return np.errstate(all="ignore")


def _by_statistics(comparison: Comparison) -> str:
    count = comparison.nonfinite
    what = "element is" if count == 1 else "elements are"
    return f"by the statistics of all values at least {count} {what} NaN or infinite on one side only"


def _node_result(
    entry: PlannedNode,
    comparison: Comparison,
    attribution: Attribution | None,
    judged: tuple[Status, str | None],
    limits: Limits,
    *,
    declared: str | None = None,
    unchecked: str | None = None,
    reproduced: Reproduced | None = None,
    precision: str | None = None,
    whole: bool = False,
) -> NodeResult:
    parts = {} if attribution is None else attribution.samples
    firm = reproduced is not None and reproduced.firm
    unknown = attribution is not None and attribution.in_range is None
    lenient = judged[0] is Status.WITHIN and (firm or unknown)
    differs = declared is not None and judged == (Status.DIVERGED, declared)

    def status_of(stats: ErrorStats, part: Attribution | None) -> Status:
        """Judge a sample; a graph that differs does so in all of them, and shows wherever anything is unequal."""
        status = limits.judge(stats, part, reproduced=lenient, whole=whole)[0]
        return Status.DIVERGED if differs and status is Status.WITHIN else status

    return NodeResult(
        index=entry.index,
        node=entry.node,
        op=entry.op,
        tensor=entry.tensor,
        reference_tensor=entry.reference_tensor,
        match=entry.match,
        match_reason=entry.match_reason,
        status=judged[0],
        reason=judged[1],
        note=comparison.note,
        basis=comparison.basis,
        lacking=comparison.lacking,
        metrics=comparison.stats,
        introduced=None if attribution is None else attribution.introduced,
        propagated=None if attribution is None else attribution.propagated,
        declared=declared,
        attribution_note=None if attribution is None else attribution.reason,
        explained=None if reproduced is None else reproduced.by,
        unchecked=unchecked,
        reproduced=None if reproduced is None else reproduced.by is not None,
        precision=precision,
        saturation=comparison.rails,
        quant=entry.quant,
        samples=tuple(
            SampleResult(
                sample=sample.sample,
                max_abs=sample.max_abs,
                sqnr_db=sample.sqnr_db,
                status=status_of(sample.stats, part),
                introduced=None if part is None else SampleError.of(part.introduced),
                propagated=None if part is None else SampleError.of(part.propagated),
            )
            for sample, part in ((sample, parts.get(sample.sample)) for sample in comparison.samples)
        ),
    )
