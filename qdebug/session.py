"""Takes two recordings, aligns them, compares tensor after tensor and keeps the results."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from qdebug.compare.align.align import align_runs
from qdebug.compare.align.bare_run import in_order_of, is_bare
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.pairs import Pair, PairList
from qdebug.compare.align.undeclared_quantization import computes_with_codes
from qdebug.compare.attribute.graph_walk import part_of
from qdebug.compare.attribute.plan import NamedEntries, PlannedNode, plan, recorded_places
from qdebug.compare.budget import LEAST_SHARE, BudgetPowers, BudgetTask, ErrorBudget, KeptPowers, ShareOut
from qdebug.compare.constant_pairs import ConstantPairs
from qdebug.compare.diagnosis import diagnosed
from qdebug.compare.explaining.code_cause import CodeCause, cause_of_codes
from qdebug.compare.measure.pair_values import OpenPair, PairedValues, PairReader, open_pair
from qdebug.compare.measure.recordings import OneSample, as_compared
from qdebug.compare.node_comparer import NodeComparer
from qdebug.compare.result.kept import from_columns, kept_columns, kept_results, result_facts, to_columns
from qdebug.compare.result.limits import Acknowledgement, Limits, checked_limits
from qdebug.compare.result.origin import with_gain, worst_output
from qdebug.compare.result.result import NUMERICS_VERSION, Contributions, NodeResult, OutputRanking, RunComparison
from qdebug.compare.result.result_table import ResultTable
from qdebug.compare.result.scores import rank_outputs
from qdebug.compare.summary import sum_up
from qdebug.compare.timing import Timing
from qdebug.compare.weight_channels import WeightReason, reason_of_weights
from qdebug.compare.workers import check_version, in_parts, in_workers
from qdebug.model import Graph, Recording
from qdebug.model.thresholds.verdict import CONTRIBUTORS_REPLAYED
from qdebug.numerics.profile import TensorProfile
from qdebug.numerics.stats import ErrorStats, WorstElement
from qdebug.recording.cache import ColumnCache
from qdebug.recording.reading.opening import open_recording, opened_recording
from qdebug.replay.run import one_thread
from qdebug.version import __version__

__all__ = ["DiffSession", "PairedValues", "open_recording", "open_sample", "opened_recording"]

_PART = 4
"""Tensors that a worker is given at least."""


def _nobody(stage: str) -> None:
    """Hear nothing."""


_SWAPPED = "The reference holds codes and the backend none: were the two files swapped?"


def _nobody_said(node: str) -> None:
    """Return None: nothing is acknowledged."""


_Made = TypeVar("_Made")


class DiffSession:
    """A reference and a backend recording, aligned, and what has been computed of their comparison.

    Args:
        reference: The reference run.
        backend: The backend run.
        limits: What counts as divergence and what may be missing; a stated default if None.
        cache: Take results from the cache of `qdebug.recording.cache`, and keep them there when all are computed; holds
            for recordings in files alone.
        told: Called with what is being done while both are aligned; what it raises gives that up.
        given: What a person says of the pairs; it goes before all that is found.

    Raises:
        AlignmentError: The two record different networks.
        UsageError: What is given names a tensor of which there are no values.

    Attributes:
        timing: Where the time of what was computed so far went; results from the cache took none.
        workers: Whoever shares the work, the files of both runs, and the only sample to look at; None if nobody does.
        outdated: Whether the cache had results of another version of qdebug alone, so that all is computed again.
    """

    def __init__(
        self,
        reference: Recording,
        backend: Recording,
        *,
        limits: Limits | None = None,
        cache: bool = False,
        told: Callable[[str], object] | None = None,
        given: PairList | None = None,
    ) -> None:
        files = reference, backend
        self.reference = reference = as_compared(reference)
        self.backend = backend = as_compared(backend)
        self.limits = checked_limits(limits)
        told = told or _nobody
        told("reading both graphs")
        runs = IndexedRecording.of(reference), IndexedRecording.of(backend)
        with one_thread(), np.errstate(all="ignore"):  # as where pairs are compared
            alignment = align_runs(*runs, told=told, given=given)
        self.backend, self.alignment = in_order_of(reference, backend, alignment)
        if self.backend is not backend:
            backend = self.backend
            runs = runs[0], IndexedRecording.of(backend)
        told("planning what to compare")
        facts, versions = tuple(result_facts(self.alignment.pairs, self.limits)), (f"numerics {NUMERICS_VERSION}",)
        self._cache = ColumnCache.of(*files, facts=facts, versions=versions) if cache else None

        def further_cache(what: str) -> ColumnCache | None:
            return ColumnCache.of(*files, facts=(*facts, what), versions=versions) if cache else None

        self._further_cache = further_cache
        self._plan = plan(reference, backend, self.alignment, said=None if is_bare(backend) else files[1].graph)
        self._by_tensor = {entry.tensor: entry for entry in self._plan}
        self._examiner = NodeComparer(reference, backend, self.alignment.pairs, self.limits, runs=runs)
        self._runs = runs
        self.timing = self._examiner.timing
        self._constants: dict[str, Pair] = {}
        self._results: list[NodeResult] = []
        self._outputs: tuple[OutputRanking, ...] | None = None
        self._causes: dict[str, str | None] = {}
        self._contributing: tuple[str, Contributions] | None = None
        self._shared: Callable[[Sequence[PlannedNode]], Iterator[NodeResult]] | None = None
        self._replays_shared: ShareOut | None = None
        self.workers: tuple[Executor, Path, Path, int | None] | None = None
        self.outdated = False

    @property
    def total(self) -> int:
        """Number of tensors to compare."""
        return len(self._plan)

    def entries(self) -> Sequence[PlannedNode]:
        """List what is compared, in the backend's topological order. Reads no values."""
        return self._plan

    @property
    def compared(self) -> list[NodeResult]:
        """The results so far, by the index of their entry; grows while `results` is walked."""
        return self._results

    def results(self) -> Iterator[NodeResult]:
        """Compare tensor after tensor, in topological order; what was compared before is not compared again."""
        for count in self._compared():
            yield self._results[count - 1]

    def _compared(self) -> Iterator[int]:
        """Compare tensor after tensor, and tell after each how many are."""
        self._recall()
        fresh = (self._shared or self._examiner.examine)(self._plan[len(self._results) :])
        for count in range(1, self.total + 1):
            while count > len(self._results):
                self._keep(next(fresh))
            yield count
        self._remember()

    def _recall(self) -> None:
        """Take over results from the cache, if it has them."""
        if self._cache is None or self._results:
            return
        columns = self._cache.read()
        if columns is None:
            self.outdated = self._cache.outdated()
            return
        with suppress(ValueError):  # not what we wrote: computed anew
            found, self._outputs = kept_results(columns, self._plan)
            self._results = self._acknowledged(found)
            self._cache = None

    def _remember(self) -> None:
        """Return the results to the cache, once."""
        cache, self._cache = self._cache, None
        if cache is not None:
            with suppress(ValueError):  # a value that would not come back the same
                cache.write(kept_columns(self._results, self.outputs()))

    def outputs(self) -> tuple[OutputRanking, ...]:
        """Tell of each network output that may hold scores whether its winner is still the same.

        Outputs that were not compared yet are left out.
        """
        if self._outputs is not None:
            return self._outputs
        entries = {self._by_tensor[name].index for name in self.backend.graph.outputs if name in self._by_tensor}
        known = [self._plan[at] for at in sorted(entries) if at < len(self._results)]
        compared = [entry for entry in known if self._results[entry.index].metrics is not None]

        def load(tensor: str, sample: int, step: int) -> tuple[np.ndarray, np.ndarray]:
            values = self.values(tensor, sample=sample, step=step)
            return values.reference, values.backend

        found = rank_outputs(self.backend.graph, compared, partial(recorded_places, self.reference, self.backend), load)
        if len(self._results) == self.total:
            self._outputs = found
        return found

    def _keep(self, node: NodeResult) -> None:
        """Keep a result, with the gain that the results of its inputs make known."""
        if node.index < len(self._results):  # somebody else asked for it meanwhile
            return
        self._results += self._acknowledged([with_gain(node, self.backend.graph, self._error_of)])

    def _error_of(self, tensor: str) -> ErrorStats | None:
        entry = self._by_tensor.get(tensor)
        known = None if entry is None else self._result_of(entry)
        return None if known is None else known.metrics

    def _acknowledged(self, nodes: Sequence[NodeResult]) -> list[NodeResult]:
        """Return results with the acknowledgements of the limits in force."""
        said = self.limits.acknowledgement if self.limits.acknowledged else _nobody_said
        pairs = ((node, said(node.node)) for node in nodes)
        return [node if node.acknowledged == why else replace(node, acknowledged=why) for node, why in pairs]

    def acknowledge(self, entries: tuple[Acknowledgement, ...]) -> None:
        """Accept these nodes from now on, instead of those that the limits named; nothing is compared again.

        Args:
            entries: As `qdebug.limits.limits_file.acknowledge` gives them.
        """
        self.limits = replace(self.limits, acknowledged=entries)
        self._results = self._acknowledged(self._results)

    def result(
        self,
        *,
        progress: Callable[[int, int], None] | None = None,
        contributors: bool = True,
        thorough: bool = False,
    ) -> RunComparison:
        """Compare everything that is left and sum up.

        Args:
            progress: Called with the number of tensors compared and their total.
            contributors: Whether to look for the nodes that contribute most to the error of the worst output; that
                takes about a third of the time of the comparison.
            thorough: Whether to replay all of them, rather than those with the largest estimates.

        Raises:
            AlignmentError: No pair has comparable values.
        """
        for count in self._compared():
            if progress is not None:
                progress(count, self.total)
        found = sum_up(
            self._results,
            (self.reference.info, self.backend.info),
            self.backend.graph,
            unmatched=self.alignment.unmatched,
            limits=self.limits,
            outputs=self.outputs(),
            contributing=partial(self._contributions, thorough=thorough)
            if contributors and not self._seems_swapped
            else None,
            errors=self._examiner.errors_by_input,
            remark=_SWAPPED if self._seems_swapped else "",
            cause=self._cause if self.limits.explain else None,
        )
        return self._diagnosed(found, contributors=contributors, thorough=thorough)

    def _diagnosed(self, result: RunComparison, *, contributors: bool, thorough: bool) -> RunComparison:
        """Return a comparison with its diagnosis: every fault, and its share of the worst output's error."""
        of, graph, contributing = ResultTable(result.nodes), self.backend.graph, None
        if (
            contributors
            and not self._seems_swapped
            and (self.limits.allow_different_inputs or not result.different_inputs)
        ):
            names = result.verdict.short or ((_main_output(result, of, graph),) if of.beyond.any() else ())
            output = of[of.rows[names[0]]] if names else None
            if output is not None and output.metrics is not None and output.tensor in graph.outputs:
                contributing = self._contributions(of, output, thorough=thorough)

        def weights(node: NodeResult) -> WeightReason | None:
            with one_thread(), np.errstate(all="ignore"):
                return reason_of_weights(self._constant_pairs, self.reference, self.backend, node.tensor)

        def model_name(node: NodeResult) -> str | None:
            return self._constant_pairs.main_name(node.tensor)

        theirs = self.reference.graph
        cause = self._cause if self.limits.explain and contributors else None
        made = partial(diagnosed, contributing=contributing, weights=weights, model_name=model_name, cause=cause)
        return made(result, graph, theirs, inputs_allowed=self.limits.allow_different_inputs)

    @cached_property
    def _seems_swapped(self) -> bool:
        """Whether a node of the reference gives codes of a stated scale, and nothing in the backend is in codes."""
        graph = self.reference.graph
        coded = any(graph.tensors[name].quant is not None for node in graph.nodes for name in node.outputs if name)
        return coded and not computes_with_codes(self.backend)

    def _cause(self, node: NodeResult) -> str | None:
        """Look for the cause of codes that no known arithmetic reproduces."""
        if node.tensor not in self._causes:  # the verdict asks for it, and the diagnosis
            make = partial(cause_of_codes, self.backend, node.tensor)
            with one_thread(), np.errstate(all="ignore"):
                self._causes[node.tensor] = self.made_once(f"cause of {node.tensor}", CodeCause, make).sentence
        return self._causes[node.tensor]

    def made_once(self, what: str, kind: type[_Made], make: Callable[[], _Made]) -> _Made:
        """Take a result from the cache, or make it and keep it there.

        Args:
            what: Tells it from others of the same two runs.
            kind: Its dataclass, see `qdebug.compare.result.kept.to_columns`.
            make: Makes it.
        """
        cache = self._further_cache(what)
        columns = None if cache is None else cache.read()
        with suppress(ValueError):  # not what we wrote: made anew
            if columns is not None:
                kept: _Made = from_columns(columns, kind, 1)[0]
                return kept
        made = make()
        if cache is not None:
            with suppress(ValueError):  # a value that would not come back the same
                cache.write(to_columns([made], kind))
        return made

    def _contributions(self, of: ResultTable, output: NodeResult, *, thorough: bool) -> Contributions:
        most = None if thorough else CONTRIBUTORS_REPLAYED
        what = f"shares of {output.tensor}, {most}"
        if self._contributing is None or self._contributing[0] != what:
            make = partial(self._examiner.contributions, self._plan, of, output, replayed=most)
            self._contributing = what, self.made_once(what, Contributions, make)
        return self._contributing[1]

    def budget(
        self,
        *,
        least: float = LEAST_SHARE,
        places: Sequence[tuple[int, int]] | None = None,
        parts: bool = True,
        only: Sequence[str] | None = None,
        progress: Callable[[int, int], None] | None = None,
        kept: KeptPowers | None = None,
    ) -> ErrorBudget:
        """Tell how much of each output's error every node's own error makes; compares what is left first.

        Args:
            least: Smallest share of an output's error that a node has an entry of its own for.
            places: Samples and steps that are looked at; None for all.
            parts: Whether the parts of each node's error are replayed, too.
            only: The backend's outputs that are looked at; None for all.
            progress: Called with the number of tasks done and their total, output by output.
            kept: Replays that were made before and need not be made again; those that are made now come to it, so
                that a budget that was given up goes on where it was.
        """
        for _ in self._compared():
            pass
        made = partial(
            self._examiner.budget,
            self._plan,
            self._results,
            least=least,
            places=places,
            parts=parts,
            progress=progress,
            share_out=self._replays_shared,
            kept=kept,
        )
        names = [name for name in self.backend.graph.outputs if only is None or name in only]
        outputs = [self._by_tensor[name] for name in names if name in self._by_tensor]
        found = tuple(made(entry) for entry in outputs if self._results[entry.index].metrics is not None)
        remark = _SWAPPED if self._seems_swapped else ""
        return ErrorBudget(reference=self.reference.info, backend=self.backend.info, outputs=found, remark=remark)

    def compare_in(self, executor: Executor, reference: Path, backend: Path, *, sample: int | None = None) -> None:
        """Have what is left compared in the workers of an executor, each of which opens the files itself.

        Args:
            executor: The workers.
            reference: The file of the reference run.
            backend: The file of the backend run.
            sample: The only sample that this session looks at; None for all.
        """
        paths = reference.absolute(), backend.absolute()
        given = pickle.dumps((paths, sample, self.alignment.pairs, self.limits))  # once, not for each part
        self.workers = executor, *paths, sample
        shared = _Shared(os.urandom(16).hex(), __version__, given)
        self._shared = partial(self._by_workers, executor, partial(_examine_part, shared))
        self._replays_shared = partial(in_workers, executor, partial(_replay_part, shared))

    def _by_workers(
        self, executor: Executor, work: Callable[[Sequence[PlannedNode]], _Part], entries: Sequence[PlannedNode]
    ) -> Iterator[NodeResult]:
        """Compare tensors in workers."""
        for found, timing in in_workers(executor, work, in_parts(entries, least=_PART)):
            self.timing.add(timing)
            yield from found

    def entry(self, name: str) -> PlannedNode:
        """Find what is compared by the name of a backend node, a backend tensor or a reference tensor.

        Args:
            name: A whole name; else a part of a name or a pattern that fits those of one node alone.

        Raises:
            UsageError: Nothing that is compared has this name, or the pattern fits several nodes.
        """
        return self._named.find(name)

    @cached_property
    def _named(self) -> NamedEntries[PlannedNode]:
        return NamedEntries(self._plan)

    def part(self, name: str) -> PlannedNode:
        """Find what is compared by a name, as `entry` does, or the part of the network that a node lies in.

        A node or tensor of the backend that is not compared itself is judged with the first compared tensor below it.

        Raises:
            UsageError: Nothing that is compared has this name, or is computed of what has.
        """
        if self._named.exact(name) is None:
            found = part_of(self.backend.graph, name, self._by_tensor)
            if found is not None:
                return self._by_tensor[found]
        return self.entry(name)

    def values(self, tensor: str, *, sample: int = 0, step: int = 0) -> PairedValues:
        """Load both sides of a compared tensor as real values.

        Raises:
            UsageError: The tensor is not compared.
            RecordingError: There are no values for this sample and step.
        """
        return self._reader(tensor).values(sample, step)

    def pair(self, tensor: str, *, sample: int = 0, step: int = 0) -> OpenPair:
        """Open both sides of a tensor, whether it was compared yet or not, to read parts of it without the rest.

        It keeps nothing, so that another thread may call it while this one compares.

        Args:
            tensor: Backend tensor.
            sample: Which sample.
            step: Which step.

        Raises:
            UsageError: The tensor is not compared, or its sides have different numbers of elements.
            RecordingError: There are no values for this sample and step.
        """
        return open_pair(self._reader(tensor), sample=sample, step=step)

    def constants(self, tensor: str) -> tuple[list[NodeResult], list[str]]:
        """Compare the weights, biases and other constants that a compared tensor is computed of.

        From then on `pair` and `profile` take their names too, and give the values that are compared here: the
        reference's with what the backend has folded into its own.

        Args:
            tensor: Backend tensor.

        Returns:
            The results of those that the reference has too, and the names of the backend's others.

        Raises:
            RecordingError: Values cannot be read.
        """
        pairs, alone = self._constant_pairs.of(tensor)
        entry = self._by_tensor.get(tensor)
        of = None if entry is None else self._result_of(entry)
        self._constants |= {pair.backend: pair for pair in pairs}
        with np.errstate(all="ignore"):
            found = [
                self._constant_pairs.compare(pair, of, index=self.total + number) for number, pair in enumerate(pairs)
            ]
        return found, alone

    def folded_in(self, tensor: str) -> str:
        """Return the operators that are folded into the reference's values of a pair of constants; "" for none.

        Args:
            tensor: The backend's constant, of a result that `constants` returned.
        """
        return self._constant_pairs.folded_in(tensor)

    @cached_property
    def _constant_pairs(self) -> ConstantPairs:
        return ConstantPairs(*self._runs, {pair.backend: pair for pair in self.alignment.pairs})

    def worst(self, tensor: str, *, k: int = 20, sample: int | None = None, step: int = 0) -> tuple[WorstElement, ...]:
        """Return the elements of a compared tensor that differ most, the worst first.

        Args:
            tensor: Backend tensor, node or reference tensor.
            k: How many.
            sample: Of one sample; None for the sample with the largest difference.
            step: Of one step of a stateful net.
        """
        entry = self.entry(tensor)
        if sample is None:
            done = self._result_of(entry)
            known = None if done is None or done.metrics is None else done.metrics.worst_sample
            sample = known or 0
        return self._reader(entry.tensor).worst(k, sample, step)

    def profile(
        self,
        tensor: str,
        *,
        sample: int | None = None,
        axis: int | None = None,
        bins: int = 64,
        k: int = 20,
        cancelled: Callable[[], bool] | None = None,
    ) -> TensorProfile | None:
        """Compare one tensor in full detail: what the metrics of `results` sum up, seen element by element.

        One pass over the values, one array of each side in memory at a time and 4 MB besides; two passes where the
        tensor was not compared before, or one sample is asked for.

        Args:
            tensor: Backend tensor, node or reference tensor.
            sample: One sample, with all its steps; None for all.
            axis: Channel axis in the reference's order of dimensions; None to guess it (`channel_axis`).
            bins: Bins of the histograms of values.
            k: How many of the worst elements.
            cancelled: Asked after every block of 32768 elements (well under a millisecond), so that a thread that
                reads can be stopped; once it says yes, the rest is left.

        Returns:
            What was found; None if it was cancelled.

        Raises:
            UsageError: The tensor is not compared, cannot be, or has no such sample or axis.
            RecordingError: Values cannot be read.
        """
        entry = None if tensor in self._constants else self.entry(tensor)
        done = self._result_of(entry) if entry is not None and sample is None else None
        return self._reader(tensor if entry is None else entry.tensor).profile(
            sample=sample,
            stats=None if done is None else done.metrics,
            axis=axis,
            bins=bins,
            k=k,
            cancelled=cancelled,
        )

    def _result_of(self, entry: PlannedNode) -> NodeResult | None:
        return self._results[entry.index] if entry.index < len(self._results) else None

    def _reader(self, tensor: str) -> PairReader:
        constant = self._constants.get(tensor)
        if constant is None:
            return PairReader(self.reference, self.backend, self.entry(tensor).pair)
        return PairReader(self._constant_pairs.reference(constant), self.backend, constant)


def _main_output(result: RunComparison, of: ResultTable, graph: Graph) -> str:
    """Return the output that shares are told of: the worst of those that hold scores, else the worst of all."""
    scores = [row for row in of.rows_of(each.tensor for each in result.outputs) if of.carried[row] > 0]
    row = max(scores, key=of.carried.__getitem__) if scores else worst_output(of, graph)
    return of[row].tensor


_Part = tuple[list[NodeResult], Timing]
"""What a worker gives: results, and the time they took."""


def open_sample(path: Path, sample: int | None) -> Recording:
    """Open a recording, or one sample of it.

    Args:
        path: The file.
        sample: The only sample to look at; None for all.
    """
    recording = open_recording(path)
    return recording if sample is None else OneSample(recording, sample)


class _Worker(threading.local):
    """What a worker keeps from part to part of one comparison: to open and look through a large net takes seconds."""

    comparison: str = ""
    examiner: NodeComparer | None = None


_worker = _Worker()


@dataclass(frozen=True, slots=True)
class _Shared:
    """A comparison that workers share.

    Args:
        comparison: Tells it from others.
        version: Version of the qdebug that asks for it.
        given: The two paths, the only sample to look at, all pairs and the limits, pickled.
    """

    comparison: str
    version: str
    given: bytes

    def examiner(self) -> NodeComparer:
        """Return what compares, in a worker."""
        check_version(self.version)
        examiner = _worker.examiner
        if examiner is None or _worker.comparison != self.comparison:
            _worker.examiner = None  # let go of the one before first
            paths, sample, pairs, limits = pickle.loads(self.given)  # noqa: S301  made above, by this program
            reference, backend = (as_compared(open_sample(path, sample)) for path in paths)
            runs = IndexedRecording.of(reference), IndexedRecording.of(backend)
            examiner = NodeComparer(reference, backend, pairs, limits, runs=runs)
            _worker.comparison, _worker.examiner = self.comparison, examiner
        return examiner


def _examine_part(shared: _Shared, part: Sequence[PlannedNode]) -> _Part:
    """Compare some pairs in a worker."""
    examiner = shared.examiner()
    examiner.timing = Timing()
    return list(examiner.examine(part)), examiner.timing


def _replay_part(shared: _Shared, task: BudgetTask) -> BudgetPowers:
    """Make replays of a budget in a worker."""
    return shared.examiner().budget_powers(task)
