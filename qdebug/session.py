"""A comparison of two recordings: aligned, compared tensor by tensor, with results kept."""

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
from qdebug.compare.diagnosis import add_diagnosis
from qdebug.compare.explaining.code_cause import CodeCause, cause_of_codes
from qdebug.compare.measure.pair_values import OpenPair, PairedValues, PairReader, open_pair
from qdebug.compare.measure.recordings import OneSample, as_compared
from qdebug.compare.measure.token_rows import TokenIndex, pair_tokens
from qdebug.compare.node_comparer import NodeComparer
from qdebug.compare.result.kept import from_columns, kept_columns, kept_results, result_facts, to_columns
from qdebug.compare.result.limits import Acknowledgement, Limits, checked_limits
from qdebug.compare.result.origin import with_gain, worst_output
from qdebug.compare.result.result import (
    NUMERICS_VERSION,
    CachedGrowth,
    CachedShare,
    Contributions,
    Growth,
    NodeResult,
    OutputRanking,
    RunComparison,
)
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
from qdebug.recording.remote_url import absolute_path
from qdebug.replay.run import one_thread
from qdebug.version import __version__

__all__ = ["DiffSession", "PairedValues", "Tokens", "open_recording", "open_sample", "opened_recording"]

_PART = 4
"""Minimum number of tensors in a worker's part."""


def _ignore(stage: str) -> None:
    pass


_SWAPPED = "The reference holds codes, but the backend does not; check whether the two files were swapped."


def _is_named(limits: Limits, output: str) -> bool:
    """Return whether the user says that an output holds logits."""
    return limits.logits_rule(output) is not None


def _not_acknowledged(node: str) -> None:
    pass


_Made = TypeVar("_Made")


Tokens = tuple[TokenIndex | None, TokenIndex | None]
"""The token of each row of the reference and of the backend, where the user states them."""


def _by_tokens(reference: Recording, backend: Recording, tokens: Tokens) -> tuple[Recording, Recording, str]:
    """Return two runs with rows paired by tokens, if they state these, and a sentence about it."""
    paired = pair_tokens(reference, backend, tokens)
    return (reference, backend, "") if paired is None else (paired.reference, paired.backend, paired.sentence)


class DiffSession:
    """A comparison of a reference and a backend recording, and its results so far.

    Args:
        reference: The reference run.
        backend: The backend run.
        limits: The limits, and what may be missing; None for derived limits.
        cache: Whether to read results from the cache of `qdebug.recording.cache`, and write them to it once all are
            computed; only for recordings in files.
        told: Called with the current stage while the runs are aligned; an exception from it ends the work.
        given: Pairs that the user stated, which take precedence over all others.
        tokens: The token of each row of the reference and of the backend; None for what the recordings state.

    Raises:
        AlignmentError: The recordings are of different networks.
        UsageError: A stated pair names a tensor without values, or the tokens of the two runs do not fit.

    Attributes:
        token_sentence: How many tokens were paired; "" if rows are not paired by tokens.
        timing: Where time was spent so far; results from the cache do not count.
        workers: The executor that shares the work, the files of both runs, and the only sample to compare; None without
            workers.
        outdated: Whether the cache only had results from a different version of qdebug, so that everything is computed
            again.
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
        tokens: Tokens = (None, None),
    ) -> None:
        files = reference, backend
        cache = cache and tokens == (None, None)
        reference, backend, self.token_sentence = _by_tokens(reference, backend, tokens)
        self._tokens = tokens
        self.reference = reference = as_compared(reference)
        self.backend = backend = as_compared(backend)
        self.limits = checked_limits(limits)
        told = told or _ignore
        told("reading both graphs")
        runs = IndexedRecording.of(reference), IndexedRecording.of(backend)
        with one_thread(), np.errstate(all="ignore"):  # the same settings as when pairs are compared
            alignment = align_runs(*runs, report_progress=told, given=given)
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
        self._plan = plan(
            reference, backend, self.alignment, declared_graph=None if is_bare(backend) else files[1].graph
        )
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
        """Return the tensors to compare, in the backend's topological order, without reading values."""
        return self._plan

    @property
    def compared(self) -> list[NodeResult]:
        """The results so far, by the index of their entry. It grows while `results` is iterated."""
        return self._results

    def results(self) -> Iterator[NodeResult]:
        """Yield the result of each tensor in topological order. Each tensor is compared only once."""
        for count in self._counted():
            yield self._results[count - 1]

    def _counted(self) -> Iterator[int]:
        """Compare one tensor after another. After each, yield the number of finished tensors."""
        self._load_cached()
        fresh = (self._shared or self._examiner.examine)(self._plan[len(self._results) :])
        for count in range(1, self.total + 1):
            while count > len(self._results):
                self._keep(next(fresh))
            yield count
        self._write_cache()

    def _load_cached(self) -> None:
        """Load results from the cache, if it has any."""
        if self._cache is None or self._results:
            return
        columns = self._cache.read()
        if columns is None:
            self.outdated = self._cache.has_outdated_columns()
            return
        with suppress(ValueError):  # the cache is damaged: compute again
            results, self._outputs = kept_results(columns, self._plan)
            self._results = self._acknowledged(results)
            self._cache = None

    def _write_cache(self) -> None:
        """Write the results to the cache, once."""
        cache, self._cache = self._cache, None
        if cache is not None:
            with suppress(ValueError):  # a value that would not come back the same
                cache.write(kept_columns(self._results, self.outputs()))

    def outputs(self) -> tuple[OutputRanking, ...]:
        """Return, for each network output that may hold scores, whether its winner is still the same.

        Outputs that were not compared yet are left out.
        """
        if self._outputs is not None:
            return self._outputs
        entries = {self._by_tensor[name].index for name in self.backend.graph.outputs if name in self._by_tensor}
        done = [self._plan[at] for at in sorted(entries) if at < len(self._results)]
        compared = [entry for entry in done if self._results[entry.index].metrics is not None]

        def load(tensor: str, sample: int, step: int) -> tuple[np.ndarray, np.ndarray]:
            values = self.values(tensor, sample=sample, step=step)
            return values.reference, values.backend

        places = partial(recorded_places, self.reference, self.backend)
        is_named = partial(_is_named, self.limits)
        rankings = rank_outputs(self.backend.graph, compared, places, load, named=is_named)
        if len(self._results) == self.total:
            self._outputs = rankings
        return rankings

    def _keep(self, node: NodeResult) -> None:
        """Add a result, with its gain if its inputs' results are known."""
        if node.index < len(self._results):  # another caller has compared it meanwhile
            return
        self._results += self._acknowledged([with_gain(node, self.backend.graph, self._error_of)])

    def _error_of(self, tensor: str) -> ErrorStats | None:
        entry = self._by_tensor.get(tensor)
        result = None if entry is None else self._result_of(entry)
        return None if result is None else result.metrics

    def _acknowledged(self, nodes: Sequence[NodeResult]) -> list[NodeResult]:
        """Return results with the acknowledgements of the limits in effect."""
        reason_of = self.limits.acknowledgement if self.limits.acknowledged else _not_acknowledged
        pairs = ((node, reason_of(node.node)) for node in nodes)
        return [node if node.acknowledged == reason else replace(node, acknowledged=reason) for node, reason in pairs]

    def acknowledge(self, entries: tuple[Acknowledgement, ...]) -> None:
        """Replace the acknowledged nodes of the limits, without comparing again.

        Args:
            entries: As `qdebug.limits.limits_file.acknowledge` returns them.
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
        """Compare all remaining tensors and return the result.

        Args:
            progress: Called with the number of compared tensors and their total.
            contributors: Measure which nodes contribute most to the worst output; takes about a third of the time.
            thorough: Replay all contributions instead of only those with the largest estimates.

        Raises:
            AlignmentError: No pair has comparable values.
        """
        for count in self._counted():
            if progress is not None:
                progress(count, self.total)
        summary = sum_up(
            self._results,
            (self.reference.info, self.backend.info),
            self.backend.graph,
            unmatched=self.alignment.unmatched,
            limits=self.limits,
            outputs=self.outputs(),
            contributing=partial(self._contributions, thorough=thorough)
            if contributors and not self._seems_swapped
            else None,
            growing=self._growth if contributors and not self._seems_swapped else None,
            errors=self._examiner.errors_by_input,
            remark=_SWAPPED if self._seems_swapped else self._token_remark,
            cause=self._cause if self.limits.explain else None,
        )
        return self._diagnosed(summary, contributors=contributors, thorough=thorough)

    def _diagnosed(self, result: RunComparison, *, contributors: bool, thorough: bool) -> RunComparison:
        """Return a comparison with its diagnosis."""
        table, graph, contributing = ResultTable(result.nodes), self.backend.graph, None
        if (
            contributors
            and not self._seems_swapped
            and (self.limits.allow_different_inputs or not result.different_inputs)
        ):
            names = result.verdict.short or ((_main_output(result, table, graph),) if table.beyond.any() else ())
            output = table[table.rows[names[0]]] if names else None
            if output is not None and output.metrics is not None and output.tensor in graph.outputs:
                contributing = self._contributions(table, output, thorough=thorough)

        def weights(node: NodeResult) -> WeightReason | None:
            with one_thread(), np.errstate(all="ignore"):
                return reason_of_weights(self._constant_pairs, self.reference, self.backend, node.tensor)

        def model_name(node: NodeResult) -> str | None:
            return self._constant_pairs.main_name(node.tensor)

        reference_graph = self.reference.graph
        cause = self._cause if self.limits.explain and contributors else None
        joint_share = self._joint_share if contributors else None
        diagnose = partial(add_diagnosis, contributing=contributing, weights=weights, model_name=model_name)
        diagnose = partial(diagnose, cause=cause, joint_share=joint_share)
        return diagnose(result, graph, reference_graph, inputs_allowed=self.limits.allow_different_inputs)

    @property
    def _token_remark(self) -> str:
        return f"Rows are paired by tokens: {self.token_sentence}." if self.token_sentence else ""

    @cached_property
    def _seems_swapped(self) -> bool:
        """Whether the reference holds codes with scales and the backend holds none."""
        graph = self.reference.graph
        coded = any(graph.tensors[name].quant is not None for node in graph.nodes for name in node.outputs if name)
        return coded and not computes_with_codes(self.backend)

    def _cause(self, node: NodeResult) -> str | None:
        """Search for the reason why no known arithmetic reproduces a node's codes."""
        if node.tensor not in self._causes:  # verdict and diagnosis both need it
            make = partial(cause_of_codes, self.backend, node.tensor)
            with one_thread(), np.errstate(all="ignore"):
                self._causes[node.tensor] = self.made_once(f"cause of {node.tensor}", CodeCause, make).sentence
        return self._causes[node.tensor]

    def made_once(self, what: str, kind: type[_Made], make: Callable[[], _Made]) -> _Made:
        """Return a result from the cache, or compute it and write it to the cache.

        Args:
            what: Identifies it among the results of the same two runs.
            kind: Its dataclass, see `qdebug.compare.result.kept.to_columns`.
            make: Computes it.
        """
        cache = self._further_cache(what)
        columns = None if cache is None else cache.read()
        with suppress(ValueError):  # the cache is damaged: compute again
            if columns is not None:
                cached: _Made = from_columns(columns, kind, 1)[0]
                return cached
        computed = make()
        if cache is not None:
            with suppress(ValueError):  # a value that would not come back the same
                cache.write(to_columns([computed], kind))
        return computed

    def _contributions(self, table: ResultTable, output: NodeResult, *, thorough: bool) -> Contributions:
        most = None if thorough else CONTRIBUTORS_REPLAYED
        what = f"shares of {output.tensor}, {most}"
        if self._contributing is None or self._contributing[0] != what:
            make = partial(self._examiner.contributions, self._plan, table, output, replayed=most)
            self._contributing = what, self.made_once(what, Contributions, make)
        return self._contributing[1]

    def _joint_share(self, output: str, tensors: Sequence[str]) -> float | None:
        """Replay the own errors of several tensors to an output together, once."""
        compute = partial(self._examiner.joint_share, self._plan, output, tensors)
        what = f"joint share of {output}: {[*tensors]}"
        return self.made_once(what, CachedShare, lambda: CachedShare(share=compute())).share

    def _growth(self, output: NodeResult) -> Growth | None:
        """Measure how rounding errors add up at an output, once."""
        compute = partial(self._examiner.growth, self._plan, output)
        return self.made_once(f"growth at {output.tensor}", CachedGrowth, lambda: CachedGrowth(growth=compute())).growth

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
        """Return the error budget of each output, after comparing all remaining tensors.

        Args:
            least: Minimum share of an output's error for which a node gets its own entry.
            places: Samples and steps to use; None for all.
            parts: Whether to also replay the parts of each node's error.
            only: The backend's outputs to use; None for all.
            progress: Called with the number of finished tasks and their total, output by output.
            kept: Earlier replays, which are reused and extended, so that an interrupted budget can be continued.
        """
        for _ in self._counted():
            pass
        compute = partial(
            self._examiner.budget,
            self._plan,
            self._results,
            least=least,
            places=places,
            parts=parts,
            progress=progress,
            share_out=self._replays_shared,
            cached_powers=kept,
        )
        names = [name for name in self.backend.graph.outputs if only is None or name in only]
        outputs = [self._by_tensor[name] for name in names if name in self._by_tensor]
        budgets = tuple(compute(entry) for entry in outputs if self._results[entry.index].metrics is not None)
        remark = _SWAPPED if self._seems_swapped else ""
        return ErrorBudget(reference=self.reference.info, backend=self.backend.info, outputs=budgets, remark=remark)

    def compare_in(self, executor: Executor, reference: Path, backend: Path, *, sample: int | None = None) -> None:
        """Compare the remaining tensors in the workers of an executor, which open the files themselves.

        Args:
            executor: The workers.
            reference: The file of the reference run.
            backend: The file of the backend run.
            sample: The only sample that this session compares; None for all.
        """
        paths = absolute_path(reference), absolute_path(backend)
        # Pickled once, not once per worker.
        given = pickle.dumps((paths, sample, self._tokens, self.alignment.pairs, self.limits))
        self.workers = executor, *paths, sample
        shared = _Shared(os.urandom(16).hex(), __version__, given)
        self._shared = partial(self._examine_in_workers, executor, partial(_examine_part, shared))
        self._replays_shared = partial(in_workers, executor, partial(_replay_part, shared))

    def _examine_in_workers(
        self, executor: Executor, work: Callable[[Sequence[PlannedNode]], _Part], entries: Sequence[PlannedNode]
    ) -> Iterator[NodeResult]:
        """Compare tensors in workers."""
        for results, timing in in_workers(executor, work, in_parts(entries, least=_PART)):
            self.timing.add(timing)
            yield from results

    def entry(self, name: str) -> PlannedNode:
        """Return a compared tensor by the name of its backend node, backend tensor or reference tensor.

        Args:
            name: A whole name, or a part of a name or a pattern that matches only one node.

        Raises:
            UsageError: No compared tensor has this name, or the pattern matches several nodes.
        """
        return self._named.find(name)

    @cached_property
    def _named(self) -> NamedEntries[PlannedNode]:
        return NamedEntries(self._plan)

    def part(self, name: str) -> PlannedNode:
        """Return a compared tensor by name, like `entry`, or the part of the network that contains a node.

        A node or tensor of the backend that is not compared itself is judged with the first compared tensor below it.

        Raises:
            UsageError: No compared tensor has this name or depends on it.
        """
        if self._named.exact(name) is None:
            part_name = part_of(self.backend.graph, name, self._by_tensor)
            if part_name is not None:
                return self._by_tensor[part_name]
        return self.entry(name)

    def values(self, tensor: str, *, sample: int = 0, step: int = 0) -> PairedValues:
        """Load both sides of a compared tensor as real values.

        Raises:
            UsageError: The tensor is not compared.
            RecordingError: There are no values for this sample and step.
        """
        return self._reader(tensor).values(sample, step)

    def pair(self, tensor: str, *, sample: int = 0, step: int = 0) -> OpenPair:
        """Open both sides of a tensor, whether or not it is compared yet, to read parts of it.

        The session keeps no state for it, so another thread may call it during a comparison.

        Args:
            tensor: Backend tensor.
            sample: The sample.
            step: The step.

        Raises:
            UsageError: The tensor is not compared, or its sides have different numbers of elements.
            RecordingError: There are no values for this sample and step.
        """
        return open_pair(self._reader(tensor), sample=sample, step=step)

    def constants(self, tensor: str) -> tuple[list[NodeResult], list[str]]:
        """Compare the weights, biases and other constants that a tensor is computed from.

        From then on, `pair` and `profile` accept their names too, and return the values that are compared here. The
        reference's values include the operators that the backend folded into its constants.

        Args:
            tensor: Backend tensor.

        Returns:
            The results of the constants that the reference has too, and the names of the backend's other constants.

        Raises:
            RecordingError: Values cannot be read.
        """
        pairs, alone = self._constant_pairs.of(tensor)
        entry = self._by_tensor.get(tensor)
        result = None if entry is None else self._result_of(entry)
        self._constants |= {pair.backend: pair for pair in pairs}
        with np.errstate(all="ignore"):
            results = [
                self._constant_pairs.compare(pair, result, index=self.total + number)
                for number, pair in enumerate(pairs)
            ]
        return results, alone

    def folded_in(self, tensor: str) -> str:
        """Return the operators folded into the reference's values for a pair of constants; "" if there are none.

        Args:
            tensor: The backend's constant, of a result that `constants` returned.
        """
        return self._constant_pairs.folded_in(tensor)

    @cached_property
    def _constant_pairs(self) -> ConstantPairs:
        return ConstantPairs(*self._runs, {pair.backend: pair for pair in self.alignment.pairs})

    def worst(self, tensor: str, *, k: int = 20, sample: int | None = None, step: int = 0) -> tuple[WorstElement, ...]:
        """Return the elements of a compared tensor that differ most, worst first.

        Args:
            tensor: Backend tensor, node or reference tensor.
            k: Maximum number of elements.
            sample: Of one sample; None for the sample with the largest difference.
            step: Of one step of a stateful net.
        """
        entry = self.entry(tensor)
        if sample is None:
            result = self._result_of(entry)
            worst_sample = None if result is None or result.metrics is None else result.metrics.worst_sample
            sample = worst_sample or 0
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
        """Compare one tensor in full detail, element by element. `results` has only a summary.

        It takes one pass over the values, with one array of each side in memory at a time plus 4 MB. It takes two
        passes if the tensor was not compared before, or if a single sample is requested.

        Args:
            tensor: Backend tensor, node or reference tensor.
            sample: The sample, with all its steps; None for all samples.
            axis: Channel axis in the reference's order of dimensions; None to guess it (`channel_axis`).
            bins: Number of bins of the value histograms.
            k: Number of worst elements to keep.
            cancelled: Called after every block of 32768 elements (well under a millisecond), so that a reading thread
                can be stopped; once it returns True, the rest is skipped.

        Returns:
            The profile; None if it was cancelled.

        Raises:
            UsageError: The tensor is not compared, cannot be compared, or does not have that sample or axis.
            RecordingError: Values cannot be read.
        """
        entry = None if tensor in self._constants else self.entry(tensor)
        result = self._result_of(entry) if entry is not None and sample is None else None
        return self._reader(tensor if entry is None else entry.tensor).profile(
            sample=sample,
            stats=None if result is None else result.metrics,
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


def _main_output(result: RunComparison, table: ResultTable, graph: Graph) -> str:
    """Return the output whose shares are shown: the worst one that holds scores, else the worst of all."""
    scores = [row for row in table.rows_of(each.tensor for each in result.outputs) if table.carried[row] > 0]
    row = max(scores, key=table.carried.__getitem__) if scores else worst_output(table, graph)
    return table[row].tensor


_Part = tuple[list[NodeResult], Timing]
"""Results from a worker, and the time that they took."""


def open_sample(path: Path, sample: int | None) -> Recording:
    """Open a recording, or one sample of it.

    Args:
        path: The file.
        sample: The only sample to open; None for all.
    """
    recording = open_recording(path)
    return recording if sample is None else OneSample(recording, sample)


class _Worker(threading.local):
    """Caches the open recordings of a comparison in a worker, since opening a large network takes seconds."""

    comparison: str = ""
    examiner: NodeComparer | None = None


_worker = _Worker()


@dataclass(frozen=True, slots=True)
class _Shared:
    """A comparison that workers share.

    Args:
        comparison: Identifies it.
        version: Version of qdebug that requests it.
        given: The two paths, the only sample to compare, stated tokens, all pairs and the limits, pickled.
    """

    comparison: str
    version: str
    given: bytes

    def examiner(self) -> NodeComparer:
        """Return the comparer of this comparison, in a worker."""
        check_version(self.version)
        examiner = _worker.examiner
        if examiner is None or _worker.comparison != self.comparison:
            _worker.examiner = None  # free the previous one first
            paths, sample, tokens, pairs, limits = pickle.loads(self.given)  # noqa: S301  made above, by this program
            reference, backend = (open_sample(path, sample) for path in paths)
            reference, backend, _ = _by_tokens(reference, backend, tokens)
            reference, backend = as_compared(reference), as_compared(backend)
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
    """Run replays of a budget in a worker."""
    return shared.examiner().budget_powers(task)
