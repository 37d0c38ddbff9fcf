"""Compare two recordings tensor by tensor, and cache the results."""

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
from qdebug.compare.align.bare_run import borrow_order, is_bare
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

_MIN_PART = 4
"""Minimum number of tensors that a worker gets at a time."""


def _ignore(stage: str) -> None:
    pass


_SWAPPED = "The reference contains codes, but the backend does not; check whether the two files were swapped."


def _has_logits_rule(limits: Limits, output: str) -> bool:
    """Return whether a [[logits]] rule of the user matches an output."""
    return limits.logits_rule(output) is not None


def _no_acknowledgement(node: str) -> None:
    pass


_Result = TypeVar("_Result")


Tokens = tuple[TokenIndex | None, TokenIndex | None]
"""The token of each row of the reference and of the backend; None for a side without tokens from the user."""


def _pair_rows_by_tokens(reference: Recording, backend: Recording, tokens: Tokens) -> tuple[Recording, Recording, str]:
    """Return two runs with their rows paired by tokens, and a sentence about the pairs; unchanged without tokens."""
    paired = pair_tokens(reference, backend, tokens)
    return (reference, backend, "") if paired is None else (paired.reference, paired.backend, paired.sentence)


class DiffSession:
    """A comparison of a reference and a backend recording, and its results so far.

    Args:
        reference: The reference run.
        backend: The backend run.
        limits: Limits on errors, and the data that may be missing; None for derived limits.
        cache: Whether to read results from the cache of `qdebug.recording.cache`, and write them to it once all are
            computed; only for recordings in files.
        on_stage: Called with the name of each stage of the alignment; an exception that it raises ends the alignment.
        user_pairs: Pairs of tensors from the user, which take precedence over all others.
        tokens: The token of each row of the reference and of the backend; None for the tokens in the recording, if any.

    Raises:
        AlignmentError: The recordings are of different networks.
        UsageError: A pair from the user names a tensor without values, or the tokens of the two runs do not match.

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
        on_stage: Callable[[str], object] | None = None,
        user_pairs: PairList | None = None,
        tokens: Tokens = (None, None),
    ) -> None:
        files = reference, backend
        cache = cache and tokens == (None, None)
        reference, backend, self.token_sentence = _pair_rows_by_tokens(reference, backend, tokens)
        self._tokens = tokens
        self.reference = reference = as_compared(reference)
        self.backend = backend = as_compared(backend)
        self.limits = checked_limits(limits)
        on_stage = on_stage or _ignore
        on_stage("reading both graphs")
        runs = IndexedRecording.of(reference), IndexedRecording.of(backend)
        with one_thread(), np.errstate(all="ignore"):  # the same settings as when pairs are compared
            alignment = align_runs(*runs, report_progress=on_stage, given=user_pairs)
        self.backend, self.alignment = borrow_order(reference, backend, alignment)
        if self.backend is not backend:
            backend = self.backend
            runs = runs[0], IndexedRecording.of(backend)
        on_stage("planning what to compare")
        facts, versions = tuple(result_facts(self.alignment.pairs, self.limits)), (f"numerics {NUMERICS_VERSION}",)
        self._cache = ColumnCache.of(*files, facts=facts, versions=versions) if cache else None

        def open_result_cache(what: str) -> ColumnCache | None:
            return ColumnCache.of(*files, facts=(*facts, what), versions=versions) if cache else None

        self._open_result_cache = open_result_cache
        self._plan = plan(
            reference, backend, self.alignment, declared_graph=None if is_bare(backend) else files[1].graph
        )
        self._by_tensor = {entry.tensor: entry for entry in self._plan}
        self._comparer = NodeComparer(reference, backend, self.alignment.pairs, self.limits, runs=runs)
        self._runs = runs
        self.timing = self._comparer.timing
        self._constants: dict[str, Pair] = {}
        self._results: list[NodeResult] = []
        self._outputs: tuple[OutputRanking, ...] | None = None
        self._causes: dict[str, str | None] = {}
        self._contributing: tuple[str, Contributions] | None = None
        self._compare_in_workers: Callable[[Sequence[PlannedNode]], Iterator[NodeResult]] | None = None
        self._replay_in_workers: ShareOut | None = None
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
        """The results so far, in the order of `entries`. The list grows while `results` is iterated."""
        return self._results

    def results(self) -> Iterator[NodeResult]:
        """Yield the result of each tensor in topological order. Each tensor is compared only once."""
        for count in self._compare_remaining():
            yield self._results[count - 1]

    def _compare_remaining(self) -> Iterator[int]:
        """Compare the remaining tensors in order. After each, yield the number of finished tensors."""
        self._load_cached()
        fresh = (self._compare_in_workers or self._comparer.examine)(self._plan[len(self._results) :])
        for count in range(1, self.total + 1):
            while count > len(self._results):
                self._add_result(next(fresh))
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
            self._results = self._with_acknowledgements(results)
            self._cache = None

    def _write_cache(self) -> None:
        """Write the results to the cache, once."""
        cache, self._cache = self._cache, None
        if cache is not None:
            with suppress(ValueError):  # a result has a value that the cache could not restore exactly
                cache.write(kept_columns(self._results, self.outputs()))

    def outputs(self) -> tuple[OutputRanking, ...]:
        """Return where the reference's winners rank in the backend, for each compared output that may hold scores."""
        if self._outputs is not None:
            return self._outputs
        entries = {self._by_tensor[name].index for name in self.backend.graph.outputs if name in self._by_tensor}
        done = [self._plan[index] for index in sorted(entries) if index < len(self._results)]
        compared = [entry for entry in done if self._results[entry.index].metrics is not None]

        def load(tensor: str, sample: int, step: int) -> tuple[np.ndarray, np.ndarray]:
            values = self.values(tensor, sample=sample, step=step)
            return values.reference, values.backend

        places = partial(recorded_places, self.reference, self.backend)
        has_logits_rule = partial(_has_logits_rule, self.limits)
        rankings = rank_outputs(self.backend.graph, compared, places, load, named=has_logits_rule)
        if len(self._results) == self.total:
            self._outputs = rankings
        return rankings

    def _add_result(self, node: NodeResult) -> None:
        """Add a result, with its gain if the results of its inputs are known."""
        if node.index < len(self._results):  # another iterator over the results has compared the tensor meanwhile
            return
        self._results += self._with_acknowledgements([with_gain(node, self.backend.graph, self._error_of)])

    def _error_of(self, tensor: str) -> ErrorStats | None:
        entry = self._by_tensor.get(tensor)
        result = None if entry is None else self._result_of(entry)
        return None if result is None else result.metrics

    def _with_acknowledgements(self, nodes: Sequence[NodeResult]) -> list[NodeResult]:
        """Return results with the acknowledgements of the limits in effect."""
        reason_of = self.limits.acknowledgement if self.limits.acknowledged else _no_acknowledgement
        pairs = ((node, reason_of(node.node)) for node in nodes)
        return [node if node.acknowledged == reason else replace(node, acknowledged=reason) for node, reason in pairs]

    def acknowledge(self, entries: tuple[Acknowledgement, ...]) -> None:
        """Replace the acknowledged nodes of the limits, without comparing again.

        Args:
            entries: The new entries, `acknowledged` of the limits that `qdebug.limits.limits_file.acknowledge` returns.
        """
        self.limits = replace(self.limits, acknowledged=entries)
        self._results = self._with_acknowledgements(self._results)

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
        for count in self._compare_remaining():
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
            errors=self._comparer.errors_by_input,
            remark=_SWAPPED if self._seems_swapped else self._token_remark,
            cause=self._cause if self.limits.explain else None,
        )
        return self._add_diagnosis(summary, contributors=contributors, thorough=thorough)

    def _add_diagnosis(self, result: RunComparison, *, contributors: bool, thorough: bool) -> RunComparison:
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
        """Whether the reference computes with codes and the backend does not."""
        graph = self.reference.graph
        coded = any(graph.tensors[name].quant is not None for node in graph.nodes for name in node.outputs if name)
        return coded and not computes_with_codes(self.backend)

    def _cause(self, node: NodeResult) -> str | None:
        """Return why no known arithmetic reproduces a node's codes; None if the search finds no reason."""
        if node.tensor not in self._causes:  # the search is slow, and verdict and diagnosis both need its result
            make = partial(cause_of_codes, self.backend, node.tensor)
            with one_thread(), np.errstate(all="ignore"):
                self._causes[node.tensor] = self.load_or_compute(f"cause of {node.tensor}", CodeCause, make).sentence
        return self._causes[node.tensor]

    def load_or_compute(self, what: str, kind: type[_Result], make: Callable[[], _Result]) -> _Result:
        """Return a result from the cache, or else compute it and write it to the cache.

        Args:
            what: Key of the result among all results of the same two runs.
            kind: Dataclass of the result, see `qdebug.compare.result.kept.to_columns`.
            make: Computes the result.
        """
        cache = self._open_result_cache(what)
        columns = None if cache is None else cache.read()
        with suppress(ValueError):  # the cache is damaged: compute again
            if columns is not None:
                cached: _Result = from_columns(columns, kind, 1)[0]
                return cached
        computed = make()
        if cache is not None:
            with suppress(ValueError):  # the result has a value that the cache could not restore exactly
                cache.write(to_columns([computed], kind))
        return computed

    def _contributions(self, table: ResultTable, output: NodeResult, *, thorough: bool) -> Contributions:
        max_replays = None if thorough else CONTRIBUTORS_REPLAYED
        what = f"shares of {output.tensor}, {max_replays}"
        if self._contributing is None or self._contributing[0] != what:
            make = partial(self._comparer.contributions, self._plan, table, output, replayed=max_replays)
            self._contributing = what, self.load_or_compute(what, Contributions, make)
        return self._contributing[1]

    def _joint_share(self, output: str, tensors: Sequence[str]) -> float | None:
        """Return the share of an output's error that the own errors of several tensors cause together, cached."""
        compute = partial(self._comparer.joint_share, self._plan, output, tensors)
        what = f"joint share of {output}: {[*tensors]}"
        return self.load_or_compute(what, CachedShare, lambda: CachedShare(share=compute())).share

    def _growth(self, output: NodeResult) -> Growth | None:
        """Return whether rounding errors add up on their way to an output, cached."""
        compute = partial(self._comparer.growth, self._plan, output)
        return self.load_or_compute(
            f"growth at {output.tensor}", CachedGrowth, lambda: CachedGrowth(growth=compute())
        ).growth

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
            parts: Whether to also replay the parts of each node's error separately.
            only: The backend's outputs to use; None for all.
            progress: Called with the number of finished tasks and their total, output by output.
            kept: Earlier replays, which are reused and extended, so that an interrupted budget can be continued.
        """
        for _ in self._compare_remaining():
            pass
        compute = partial(
            self._comparer.budget,
            self._plan,
            self._results,
            least=least,
            places=places,
            parts=parts,
            progress=progress,
            share_out=self._replay_in_workers,
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
        # Pickle these once here, because the executor pickles its function again for every task.
        arguments = pickle.dumps((paths, sample, self._tokens, self.alignment.pairs, self.limits))
        self.workers = executor, *paths, sample
        shared = _SharedComparison(os.urandom(16).hex(), __version__, arguments)
        self._compare_in_workers = partial(self._examine_in_workers, executor, partial(_examine_part, shared))
        self._replay_in_workers = partial(in_workers, executor, partial(_replay_part, shared))

    def _examine_in_workers(
        self, executor: Executor, work: Callable[[Sequence[PlannedNode]], _PartResult], entries: Sequence[PlannedNode]
    ) -> Iterator[NodeResult]:
        """Compare tensors in workers."""
        for results, timing in in_workers(executor, work, in_parts(entries, least=_MIN_PART)):
            self.timing.add(timing)
            yield from results

    def entry(self, name: str) -> PlannedNode:
        """Return a compared tensor by the name of its backend node, backend tensor or reference tensor.

        Args:
            name: A whole name, or a part of a name or a pattern that matches only one node.

        Raises:
            UsageError: No compared tensor has this name, or the pattern matches several nodes.
        """
        return self._entries_by_name.find(name)

    @cached_property
    def _entries_by_name(self) -> NamedEntries[PlannedNode]:
        return NamedEntries(self._plan)

    def part(self, name: str) -> PlannedNode:
        """Return the compared tensor with a name, like `entry`, or the one with which a node is judged.

        A node or tensor of the backend that is not compared itself is judged with the next compared tensor downstream.

        Raises:
            UsageError: No compared tensor has this name, or is downstream of the node or tensor with this name.
        """
        if self._entries_by_name.exact(name) is None:
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
        """Open both sides of a tensor, to read parts of it. The tensor need not be compared yet.

        This does not change the session, so another thread may call it during a comparison.

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

        Afterwards, `pair` and `profile` accept the names of these constants too, and return the values compared here.
        If the backend folded operators into a constant, they are applied to the reference's values first.

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
        """Return the operators that are applied to the reference's side of a pair of constants; "" if there are none.

        Args:
            tensor: The backend's constant, from a result that `constants` returned.
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
            sample: The sample; None for the sample with the largest difference.
            step: The step of a stateful net.
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
            cancelled: Called after every block of 32768 elements (well under a millisecond), so that a thread that
                reads a profile can be stopped; once it returns True, the rest is skipped.

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
    """Return the output whose contributions are shown: the worst output with scores, else the worst of all."""
    scores = [row for row in table.rows_of(each.tensor for each in result.outputs) if table.carried[row] > 0]
    row = max(scores, key=table.carried.__getitem__) if scores else worst_output(table, graph)
    return table[row].tensor


_PartResult = tuple[list[NodeResult], Timing]
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
    comparer: NodeComparer | None = None


_worker = _Worker()


@dataclass(frozen=True, slots=True)
class _SharedComparison:
    """A comparison that workers share.

    Args:
        comparison: Unique id of the comparison.
        version: Version of qdebug of the process that shares it.
        arguments: The two paths, the only sample to compare, the user's tokens, all pairs and the limits, pickled.
    """

    comparison: str
    version: str
    arguments: bytes

    def open_comparer(self) -> NodeComparer:
        """Return the comparer of this comparison in a worker, which opens the recordings on first use."""
        check_version(self.version)
        comparer = _worker.comparer
        if comparer is None or _worker.comparison != self.comparison:
            _worker.comparer = None  # free the previous one first
            paths, sample, tokens, pairs, limits = pickle.loads(self.arguments)  # noqa: S301  pickled by `compare_in`
            reference, backend = (open_sample(path, sample) for path in paths)
            reference, backend, _ = _pair_rows_by_tokens(reference, backend, tokens)
            reference, backend = as_compared(reference), as_compared(backend)
            runs = IndexedRecording.of(reference), IndexedRecording.of(backend)
            comparer = NodeComparer(reference, backend, pairs, limits, runs=runs)
            _worker.comparison, _worker.comparer = self.comparison, comparer
        return comparer


def _examine_part(shared: _SharedComparison, part: Sequence[PlannedNode]) -> _PartResult:
    """Compare a part of the tensors in a worker."""
    comparer = shared.open_comparer()
    comparer.timing = Timing()
    return list(comparer.examine(part)), comparer.timing


def _replay_part(shared: _SharedComparison, task: BudgetTask) -> BudgetPowers:
    """Run replays of a budget in a worker."""
    return shared.open_comparer().budget_powers(task)
