"""Tries edits on the nodes of a diagnosis, and measures the gain of each by replay."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from qdebug.compare.diagnosis import ErrorPart, main_part
from qdebug.compare.result.diagnosis import Diagnosis, FaultClass, OutputGain, Remedy
from qdebug.compare.result.finding import Status
from qdebug.compare.result.result import RunComparison
from qdebug.errors import QdebugError
from qdebug.model.thresholds.verdict import (
    CONTRIBUTORS_NAMED,
    OUTPUT_MIN_SQNR,
    REMEDY_MIN_GAIN,
    REMEDY_NODES,
    REMEDY_SAMPLES,
)
from qdebug.repair.edit_bench import EditBench
from qdebug.repair.edits import Edit
from qdebug.replay.run import one_thread
from qdebug.session import DiffSession

__all__ = ["with_remedies"]

_KINDS = {
    ErrorPart.WEIGHTS: ("per-channel", "equalize", "float"),
    ErrorPart.CLIPPING: ("range", "16-bit", "float"),
    ErrorPart.ROUNDING: ("range", "16-bit", "float"),
    None: ("bias-unit", "float"),
}
"""Kinds of edits to try on a node, by the main part of its own error."""
_BRIEF = {
    "bias-unit": "a bias at the scale of the accumulator",
    "per-channel": "per-channel weights",
    "equalize": "equal channel ranges in this weight and the next",
    "range": "the code range with the smallest squared error",
    "16-bit": "a result of 16 bits",
    "float": "this node in float",
}
"""Descriptions of edits in a report."""
_AS_REFERENCE = "this node in float, as in the reference"
_TRIED = (FaultClass.KERNEL, FaultClass.MODEL, FaultClass.QUANTIZATION)
_PAIR = "REF BACKEND"
_FEW = 3
"""Number of samples in which edits are chosen, including the worst."""
_TRIED_IN_FLOAT = 8
"""Number of nodes to try in float, counting a node and the quantizer of its result as one."""
_NEARLY = 0.8
"""Fraction of the best edit's gain, in dB, above which a cheaper edit counts as equally good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A remedy, and the number of the fault in the diagnosis that it addresses."""

    fault: int
    remedy: Remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class _Remedies:
    """All remedies of a diagnosis, for the cache."""

    found: tuple[_Found, ...] = ()
    first: tuple[int, ...] = ()
    """Numbers of the faults that are best fixed first, in this order."""


def with_remedies(
    session: DiffSession,
    result: RunComparison,
    *,
    pair: str = _PAIR,
    thorough: bool = False,
    on_progress: Callable[[int, int], object] | None = None,
) -> RunComparison:
    """Return a comparison with remedies added to its diagnosis.

    Args:
        session: The two runs.
        result: Their comparison.
        pair: Names of the two recordings for use in commands.
        thorough: Try edits on every named node, in all samples, rather than only on the first nodes in a few samples.
        on_progress: Progress callback. It may raise to cancel a replay.
    """
    outputs = {name for fault in result.diagnosis for name in fault.share}
    if not outputs or session.backend.steps > 1 or result.different_inputs:
        return result
    cache_key = f"remedies of {[(fault.tensor, str(fault.fault)) for fault in result.diagnosis]} {thorough}"
    make = partial(_try_edits, session, result, thorough=thorough, on_progress=on_progress)
    with one_thread(), np.errstate(all="ignore"):
        cached = session.made_once(cache_key, _Remedies, make)
    faults = [
        replace(fault, remedies=tuple(_with_pair(each.remedy, pair) for each in cached.found if each.fault == at))
        for at, fault in enumerate(result.diagnosis)
    ]
    order = [*cached.first, *(at for at in range(len(faults)) if at not in cached.first)]
    return replace(result, diagnosis=tuple(faults[at] for at in order))


def _with_pair(remedy: Remedy, pair: str) -> Remedy:
    return replace(remedy, command=remedy.command.replace(_PAIR, pair, 1))  # a node may be called so


def _try_edits(
    session: DiffSession,
    result: RunComparison,
    *,
    thorough: bool,
    on_progress: Callable[[int, int], object] | None,
) -> _Remedies:
    """Try edits, or none if the run cannot be replayed as recorded."""
    try:
        bench = EditBench(session, on_progress)
        trials = _Trials(bench, session, result, thorough=thorough)
        if result.diagnosis[0].fault is FaultClass.KERNEL:
            return _Remedies(found=tuple(_Found(fault=0, remedy=each) for each in trials.right_kernels()))
        if not abs(bench.faithful()) >= OUTPUT_MIN_SQNR:  # NaN where it cannot be replayed
            return _Remedies()
        float_remedy = trials.few_in_float() if result.status is Status.ACCUMULATED else None
        if float_remedy is None:
            return _Remedies(found=tuple(trials.found()))
        first, remedy = float_remedy
        head = _Found(fault=first[0], remedy=remedy)
        return _Remedies(found=(*trials.found(None if thorough else first[:1]), head), first=first)
    except QdebugError:  # no replay is possible; `qdebug repair` reports why
        return _Remedies()


class _Trials:
    """Chooses edits in a few samples and measures them in all samples, up to a limit.

    Args:
        bench: Replays them.
        session: The two runs.
        result: Their comparison.
        thorough: Whether to try all named nodes, in all samples.
    """

    def __init__(self, bench: EditBench, session: DiffSession, result: RunComparison, *, thorough: bool) -> None:
        self._bench, self._result, self._thorough = bench, result, thorough
        places = list(session.backend.places())
        worst = next((at for at, place in enumerate(places) if place[0] == result.verdict.worst_sample), 0)
        self._places = _spread(places, len(places) if thorough else REMEDY_SAMPLES, worst)
        self._few = _spread(places, _FEW, worst)
        self._exact = bench.faithful() == math.inf
        self._plain: dict[int, dict[str, float]] = {}

    def few_in_float(self) -> tuple[tuple[int, ...], Remedy] | None:
        """Choose a few nodes to leave in float: the one with the largest share, then greedily by gain.

        Shares alone do not suffice: two errors may cancel, and one may hide another.

        Returns:
            The numbers of their faults in the order of choice, and their combined gain, or None if it is small.
        """
        at, edits, output = dict[str, int](), dict[str, Edit](), next(iter(self._result.diagnosis[0].share), "")
        for number, fault in enumerate(self._result.diagnosis):
            unit = self._bench.unit_of(fault.tensor)
            offered = [] if unit is None else [edit for edit in self._bench.edits_of(unit) if edit.kind == "float"]
            for edit in offered:
                at.setdefault(edit.name, number)
                edits[edit.name] = edit
        gains_of_sets = dict[tuple[str, ...], dict[str, float]]()

        def gain(names: Sequence[str]) -> float:
            gains_of_sets[tuple(names)] = self._gains(names, self._places)
            return gains_of_sets[tuple(names)].get(output, -math.inf)

        chosen = _greedy([*at][:_TRIED_IN_FLOAT], gain, CONTRIBUTORS_NAMED) if len(at) > 1 else []
        gains = gains_of_sets.get(tuple(chosen), {})
        if gains.get(output, 0.0) < REMEDY_MIN_GAIN:
            return None
        count = len(chosen)
        remedy = self._remedy(
            ", ".join(chosen),
            f"the first {count} nodes in float",
            gains,
            cost=_cost([edits[name] for name in chosen]),
            command=f"qdebug repair {_PAIR} --kinds float --max-edits {count}",
            nodes=count,
        )
        return tuple(at[name] for name in chosen), remedy

    def found(self, only: Collection[int] | None = None) -> Iterator[_Found]:
        """Yield the edits with a gain, for each examined fault.

        Args:
            only: Numbers of the faults to examine, or None for the first few.
        """
        fault_numbers = range(len(self._result.diagnosis) if self._thorough else REMEDY_NODES) if only is None else only
        faults = [
            (at, fault)
            for at, fault in enumerate(self._result.diagnosis)
            if fault.fault in _TRIED and at in fault_numbers
        ]
        for at, fault in faults:
            for remedy in self._of_node(fault):
                yield _Found(fault=at, remedy=remedy)
            if at == faults[0][0]:
                for remedy in self._everywhere(fault):
                    yield _Found(fault=at, remedy=remedy)

    def right_kernels(self) -> Iterator[Remedy]:
        """Yield the remedy of correct kernels, according to the graph and a known arithmetic."""
        gains = self._gains([], self._places)
        first = self._result.diagnosis[0]
        if max(gains.values(), default=0.0) >= REMEDY_MIN_GAIN:
            command = f"qdebug export repro {_PAIR} --node {shlex.quote(first.node)} -o test_node.py"
            title, cost = "with correct kernels, replayed", "a kernel fix"
            yield self._remedy("kernel", title, gains, cost=cost, command=command, nodes=None)

    def _of_node(self, fault: Diagnosis) -> Iterator[Remedy]:
        """Yield the cheapest edit of a node whose gain is about as large as that of the best one."""
        unit = self._bench.unit_of(fault.tensor)
        node = next(node for node in self._result.nodes if node.tensor == fault.tensor)
        quantized = fault.fault is FaultClass.QUANTIZATION
        kinds = _KINDS[main_part(node) if quantized else None]
        offered = [] if unit is None else [edit for edit in self._bench.edits_of(unit) if edit.kind in kinds]
        gains = [max(self._gains([edit.name], self._few).values(), default=0.0) for edit in offered]
        best = max(gains, default=0.0)
        if best < REMEDY_MIN_GAIN:
            return
        edit = next(edit for edit, gain in zip(offered, gains, strict=True) if gain >= _NEARLY * best)
        as_reference = edit.kind == "float" and not quantized
        yield from self._measured(edit.name, _AS_REFERENCE if as_reference else _BRIEF[edit.kind], [edit])

    def _everywhere(self, fault: Diagnosis) -> Iterator[Remedy]:
        """Yield the remedy of per-channel weights in the whole network, the usual first attempt."""
        node = next(node for node in self._result.nodes if node.tensor == fault.tensor)
        if fault.fault is FaultClass.QUANTIZATION and main_part(node) is ErrorPart.WEIGHTS:
            edits = list(self._bench.edits_everywhere("per-channel"))
            if len(edits) > 1:
                yield from self._measured("per-channel *", f"per-channel weights in all {len(edits)} nodes", edits)

    def _measured(self, name: str, title: str, edits: Sequence[Edit]) -> Iterator[Remedy]:
        """Yield a remedy if it has a gain in all examined samples."""
        gains = self._gains([edit.name for edit in edits], self._places)
        if max(gains.values(), default=0.0) >= REMEDY_MIN_GAIN:
            cost = "a graph fix" if title is _AS_REFERENCE else _cost(edits)
            command = f"qdebug repair {_PAIR} --kinds {edits[0].kind}"
            yield self._remedy(name, title, gains, cost=cost, command=command, nodes=len(edits))

    def _remedy(
        self, edit: str, what: str, gains: dict[str, float], *, cost: str, command: str, nodes: int | None
    ) -> Remedy:
        listed = tuple(OutputGain(output=output, db=gain) for output, gain in gains.items())
        samples = len(self._places)
        return Remedy(edit=edit, what=what, gains=listed, samples=samples, cost=cost, command=command, nodes=nodes)

    def _gains(self, names: Sequence[str], places: Sequence[tuple[int, int]]) -> dict[str, float]:
        """Return the SQNR gain of each output by the given edits, in dB, leaving out unknown gains."""
        try:
            before, after = self._levels(names, places)
        except QdebugError:
            return {}
        gains = {name: level - before[name] for name, level in after.items() if name in before}
        return {name: gain for name, gain in gains.items() if not math.isnan(gain)}  # infinite: it becomes identical

    def _levels(
        self, names: Sequence[str], places: Sequence[tuple[int, int]]
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Return the SQNR of each output without and with the given edits.

        If a replay without edits differs from the recording, that replay is the baseline.
        """
        *_, effect = self._bench.effects(names, places, whole=not self._exact)
        now = {each.output: each.now.sqnr_db for each in effect.outputs if each.now.sqnr_db is not None}
        after = {each.output: each.trial.sqnr_db for each in effect.outputs if each.trial.sqnr_db is not None}
        if self._exact or not names:
            return now, after
        before = self._plain.get(len(places)) or self._levels([], places)[1]
        self._plain[len(places)] = before
        return before, after


def _greedy(names: Sequence[str], gain: Callable[[Sequence[str]], float], most: int) -> list[str]:
    """Choose a few names greedily: the first one, then by gain on top of those chosen already.

    Each round tries the better half of the previous one, and the last name is left out if it gains little.
    """
    chosen, candidates, best = [names[0]], [*names[1:]], -math.inf
    while candidates and len(chosen) < most:
        gains = {name: gain([*chosen, name]) for name in candidates}
        ranked = sorted(candidates, key=gains.__getitem__, reverse=True)
        if len(chosen) > 1 and gains[ranked[0]] < best + REMEDY_MIN_GAIN:
            break
        chosen.append(ranked[0])
        best = gains[ranked[0]]
        candidates = ranked[1 : (len(ranked) + 1) // 2]
    return chosen


def _spread(places: Sequence[tuple[int, int]], most: int, worst: int) -> list[tuple[int, int]]:
    """Return up to a number of samples, evenly spread and including a given one."""
    count = min(most, len(places))
    return [places[at] for at in sorted((worst + at * len(places) // count) % len(places) for at in range(count))]


def _cost(edits: Sequence[Edit]) -> str:
    """Describe the cost of edits: multiply-adds in float, and additional bytes."""
    macs, size = sum(edit.macs for edit in edits), sum(edit.size for edit in edits)
    clauses = [f"{macs:.1%} of the multiply-adds in float"] if macs else []
    if size:
        clauses.append(f"{size} bytes" if size < 10_000 else f"{size / 1024:.0f} KiB")
    return ", ".join(clauses) or "no cost"
