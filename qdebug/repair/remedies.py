"""Try edits on the nodes of a diagnosis, and measure the gain of each by replay."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from qdebug.byte_size import byte_size
from qdebug.compare.diagnosis import ErrorPart, main_part
from qdebug.compare.result.diagnosis import ALL_NODES, Diagnosis, FaultClass, OutputGain, Remedy
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
_EDIT_TITLES = {
    "bias-unit": "a bias at the scale of the accumulator",
    "per-channel": "per-channel weights",
    "equalize": "equal channel ranges in this weight and the next",
    "range": "the code range with the smallest squared error",
    "16-bit": "a result of 16 bits",
    "float": "this node in float",
}
"""Descriptions of edits in a report."""
_AS_REFERENCE = "this node in float, as in the reference"
_TRIED_CLASSES = (FaultClass.KERNEL, FaultClass.MODEL, FaultClass.QUANTIZATION)
_PAIR = "REF BACKEND"
_FEW_SAMPLES = 3
"""Number of samples with which edits are chosen, including the worst one."""
_MAX_TRIED_IN_FLOAT = 8
"""Maximum number of nodes to try in float. A node and the quantizer of its result count as one."""
_NEARLY_SHARE = 0.8
"""Fraction of the best edit's gain, in dB, above which a cheaper edit counts as equally good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _NumberedRemedy:
    """A remedy, and the index of its fault in the diagnosis."""

    fault: int
    remedy: Remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class _CachedRemedies:
    """All remedies of a diagnosis, for the cache."""

    remedies: tuple[_NumberedRemedy, ...] = ()
    first_faults: tuple[int, ...] = ()
    """Indices of the faults to fix first, in this order."""


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
        pair: The two recordings, as they appear in commands.
        thorough: Whether to try edits on all diagnosed nodes with all samples, rather than on the first nodes with a
            few samples.
        on_progress: Progress callback. It may raise to cancel a replay.
    """
    outputs = {name for fault in result.diagnosis for name in fault.share}
    if not outputs or session.backend.steps > 1 or result.different_inputs:
        return result
    cache_key = f"remedies of {[(fault.tensor, str(fault.fault)) for fault in result.diagnosis]} {thorough}"
    try_edits = partial(_try_edits, session, result, thorough=thorough, on_progress=on_progress)
    with one_thread(), np.errstate(all="ignore"):
        cached_remedies = session.load_or_compute(cache_key, _CachedRemedies, try_edits)
    faults = [
        replace(
            fault,
            remedies=tuple(
                _insert_pair(numbered.remedy, pair) for numbered in cached_remedies.remedies if numbered.fault == number
            ),
        )
        for number, fault in enumerate(result.diagnosis)
    ]
    order = [
        *cached_remedies.first_faults,
        *(number for number in range(len(faults)) if number not in cached_remedies.first_faults),
    ]
    return replace(result, diagnosis=tuple(faults[number] for number in order))


def _insert_pair(remedy: Remedy, pair: str) -> Remedy:
    # Replace only the first occurrence, since a node's name may contain the same text.
    return replace(remedy, command=remedy.command.replace(_PAIR, pair, 1))


def _try_edits(
    session: DiffSession,
    result: RunComparison,
    *,
    thorough: bool,
    on_progress: Callable[[int, int], object] | None,
) -> _CachedRemedies:
    """Try edits on the nodes of a diagnosis; on none if a replay is not close enough to the recording."""
    try:
        bench = EditBench(session, on_progress)
        trials = _Trials(bench, session, result, thorough=thorough)
        if result.diagnosis[0].fault is FaultClass.KERNEL:
            return _CachedRemedies(
                remedies=tuple(_NumberedRemedy(fault=0, remedy=remedy) for remedy in trials.kernel_remedies())
            )
        if not abs(bench.fidelity_db()) >= OUTPUT_MIN_SQNR:  # written so that NaN, for no replay, gives no remedies
            return _CachedRemedies()
        float_remedy = trials.try_few_in_float() if result.status is Status.ACCUMULATED else None
        if float_remedy is None:
            return _CachedRemedies(remedies=tuple(trials.find_remedies()))
        first_faults, remedy = float_remedy
        remedies = list(trials.find_remedies(None if thorough else first_faults[:1]))
        if all(numbered.remedy.edit != remedy.edit for numbered in remedies):
            remedies.append(_NumberedRemedy(fault=first_faults[0], remedy=remedy))
        return _CachedRemedies(remedies=tuple(remedies), first_faults=first_faults)
    except QdebugError:  # no replay is possible; `qdebug repair` reports why
        return _CachedRemedies()


class _Trials:
    """Chooses edits with a few samples, and measures them with all samples, up to a limit.

    Args:
        bench: Replays edits.
        session: The two runs.
        result: Their comparison.
        thorough: Whether to try all diagnosed nodes, with all samples.
    """

    def __init__(self, bench: EditBench, session: DiffSession, result: RunComparison, *, thorough: bool) -> None:
        self._bench, self._result, self._thorough = bench, result, thorough
        places = list(session.backend.places())
        worst_index = next((index for index, place in enumerate(places) if place[0] == result.verdict.worst_sample), 0)
        self._places = _spread_places(places, len(places) if thorough else REMEDY_SAMPLES, worst_index)
        self._few_places = _spread_places(places, _FEW_SAMPLES, worst_index)
        self._is_exact = bench.fidelity_db() == math.inf
        self._levels_without_edits: dict[int, dict[str, float]] = {}
        self._gains: dict[tuple[tuple[str, ...], int], dict[str, float]] = {}
        """Gains by names of edits and number of places."""

    def try_few_in_float(self) -> tuple[tuple[int, ...], Remedy] | None:
        """Choose a few nodes to leave in float: the one with the largest share, then greedily by gain.

        Shares alone do not suffice: two errors may cancel, and one may hide another.

        Returns:
            The indices of the first nodes' faults, in this order, and the remedy for those of them that are chosen;
            None if their combined gain is small. The first nodes include those that add little to the chosen ones: by
            share alone, a node could follow whose error only cancels another one's.
        """
        number_by_edit, edits, output = (
            dict[str, int](),
            dict[str, Edit](),
            next(iter(self._result.diagnosis[0].share), ""),
        )
        for number, fault in enumerate(self._result.diagnosis):
            unit = self._bench.unit_of(fault.tensor)
            for edit in () if unit is None else self._bench.edits_of(unit, ("float",)):
                number_by_edit.setdefault(edit.name, number)
                edits[edit.name] = edit

        candidates = [*number_by_edit][:_MAX_TRIED_IN_FLOAT]

        def gain_of(names: Sequence[str]) -> float:
            return self._measure_gains(names, self._places, candidates).get(output, -math.inf)

        if len(number_by_edit) < 2:
            return None
        names, count = _order_greedily(candidates, gain_of, CONTRIBUTORS_NAMED)
        chosen_names = names[:count]
        gains = self._measure_gains(chosen_names, self._places)
        if gains.get(output, 0.0) < REMEDY_MIN_GAIN:
            return None
        remedy = self._make_remedy(
            ", ".join(chosen_names),
            _EDIT_TITLES["float"] if count == 1 else f"the first {count} nodes in float",
            gains,
            cost=_cost_text([edits[name] for name in chosen_names]),
            command=f"qdebug repair {_PAIR} --kinds float" + (f" --max-edits {count}" if count > 1 else ""),
            nodes=count,
        )
        return tuple(number_by_edit[name] for name in names), remedy

    def find_remedies(self, allowed_numbers: Collection[int] | None = None) -> Iterator[_NumberedRemedy]:
        """Yield the remedies of each examined fault.

        Args:
            allowed_numbers: Indices of the faults to examine, or None for the first few.
        """
        fault_numbers = (
            range(len(self._result.diagnosis) if self._thorough else REMEDY_NODES)
            if allowed_numbers is None
            else allowed_numbers
        )
        faults = [
            (number, fault)
            for number, fault in enumerate(self._result.diagnosis)
            if fault.fault in _TRIED_CLASSES and number in fault_numbers
        ]
        for number, fault in faults:
            for remedy in self._node_remedies(fault):
                yield _NumberedRemedy(fault=number, remedy=remedy)
            if number == faults[0][0]:
                for remedy in self._network_remedies(fault):
                    yield _NumberedRemedy(fault=number, remedy=remedy)

    def kernel_remedies(self) -> Iterator[Remedy]:
        """Yield the remedy "fix the kernels", if a replay of the graph in a known arithmetic improves the outputs."""
        gains = self._measure_gains([], self._places)
        first_fault = self._result.diagnosis[0]
        if max(gains.values(), default=0.0) >= REMEDY_MIN_GAIN:
            command = f"qdebug export repro {_PAIR} --node {shlex.quote(first_fault.node)} -o test_node.py"
            title, cost = "with correct kernels, replayed", "a kernel fix"
            yield self._make_remedy("kernel", title, gains, cost=cost, command=command, nodes=None)

    def _node_remedies(self, fault: Diagnosis) -> Iterator[Remedy]:
        """Yield the cheapest edit of a node with about the gain of its best edit."""
        unit = self._bench.unit_of(fault.tensor)
        node = next(node for node in self._result.nodes if node.tensor == fault.tensor)
        is_quantization = fault.fault is FaultClass.QUANTIZATION
        kinds = _KINDS[main_part(node) if is_quantization else None]
        candidates = () if unit is None else self._bench.edits_of(unit, kinds)
        is_any_measured = any(((edit.name,), len(self._places)) in self._gains for edit in candidates)
        places = self._places if is_any_measured else self._few_places
        gains = [max(self._measure_gains([edit.name], places).values(), default=0.0) for edit in candidates]
        best_gain = max(gains, default=0.0)
        if best_gain < REMEDY_MIN_GAIN:
            return
        edit = next(edit for edit, gain in zip(candidates, gains, strict=True) if gain >= _NEARLY_SHARE * best_gain)
        is_as_reference = edit.kind == "float" and not is_quantization
        yield from self._measure(edit.name, _AS_REFERENCE if is_as_reference else _EDIT_TITLES[edit.kind], [edit])

    def _network_remedies(self, fault: Diagnosis) -> Iterator[Remedy]:
        """Yield the remedy "per-channel weights in all nodes", which users usually try first."""
        node = next(node for node in self._result.nodes if node.tensor == fault.tensor)
        if fault.fault is FaultClass.QUANTIZATION and main_part(node) is ErrorPart.WEIGHTS:
            edits = list(self._bench.edits_everywhere("per-channel"))
            if len(edits) > 1:
                yield from self._measure(
                    f"per-channel{ALL_NODES}", f"per-channel weights in all {len(edits)} nodes", edits
                )

    def _measure(self, name: str, title: str, edits: Sequence[Edit]) -> Iterator[Remedy]:
        """Yield a remedy if it has a gain over all examined samples."""
        gains = self._measure_gains([edit.name for edit in edits], self._places)
        if max(gains.values(), default=0.0) >= REMEDY_MIN_GAIN:
            cost = "a graph fix" if title is _AS_REFERENCE else _cost_text(edits)
            command = f"qdebug repair {_PAIR} --kinds {edits[0].kind}"
            yield self._make_remedy(name, title, gains, cost=cost, command=command, nodes=len(edits))

    def _make_remedy(
        self, edit: str, title: str, gains: dict[str, float], *, cost: str, command: str, nodes: int | None
    ) -> Remedy:
        output_gains = tuple(OutputGain(output=output, db=gain) for output, gain in gains.items())
        samples = len(self._places)
        return Remedy(
            edit=edit, what=title, gains=output_gains, samples=samples, cost=cost, command=command, nodes=nodes
        )

    def _measure_gains(
        self, names: Sequence[str], places: Sequence[tuple[int, int]], next_names: Sequence[str] = ()
    ) -> dict[str, float]:
        """Return the gain in SQNR of each output from the given edits, in dB, without unknown gains."""
        key = tuple(names), len(places)
        if key not in self._gains:
            try:
                levels_before, levels_after = self._measure_levels(names, places, next_names)
            except QdebugError:
                levels_before, levels_after = {}, {}
            gains = {name: level - levels_before[name] for name, level in levels_after.items() if name in levels_before}
            # inf: the output becomes identical
            self._gains[key] = {name: gain for name, gain in gains.items() if not math.isnan(gain)}
        return self._gains[key]

    def _measure_levels(
        self, names: Sequence[str], places: Sequence[tuple[int, int]], next_names: Sequence[str] = ()
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Return the SQNR of each output without and with the given edits.

        The baseline without edits is the recording, or a replay without edits if that differs from the recording.
        """
        *_, effect = self._bench.effects(names, places, whole_run=not self._is_exact, next_edits=next_names)
        levels_now = {output.output: output.now.sqnr_db for output in effect.outputs if output.now.sqnr_db is not None}
        levels_after = {
            output.output: output.trial.sqnr_db for output in effect.outputs if output.trial.sqnr_db is not None
        }
        if self._is_exact or not names:
            return levels_now, levels_after
        levels_before = self._levels_without_edits.get(len(places)) or self._measure_levels([], places)[1]
        self._levels_without_edits[len(places)] = levels_before
        return levels_before, levels_after


def _order_greedily(
    names: Sequence[str], gain_of: Callable[[Sequence[str]], float], max_names: int
) -> tuple[list[str], int]:
    """Order a few names: the first one, then repeatedly the one that gains most in addition to those before it.

    Returns:
        The names, and how many of them to choose. Two names may gain only together, so names that add little are left
        out at the end, and none before.
    """
    first_name, *candidates = names
    ordered_names, prefix_gains = [first_name], [gain_of([first_name])]
    while candidates and len(ordered_names) < max_names:
        gains = {name: gain_of([*ordered_names, name]) for name in candidates}
        ranked = sorted(candidates, key=gains.__getitem__, reverse=True)
        ordered_names.append(ranked[0])
        prefix_gains.append(gains[ranked[0]])
        candidates = ranked[1:]
    best = max(prefix_gains)
    return ordered_names, next(count for count, gain in enumerate(prefix_gains, 1) if gain > best - REMEDY_MIN_GAIN)


def _spread_places(places: Sequence[tuple[int, int]], max_places: int, worst_index: int) -> list[tuple[int, int]]:
    """Return at most `max_places` places, evenly spread, including the worst one."""
    count = min(max_places, len(places))
    return [
        places[index]
        for index in sorted((worst_index + index * len(places) // count) % len(places) for index in range(count))
    ]


def _cost_text(edits: Sequence[Edit]) -> str:
    """Describe the cost of edits: multiply-adds in float, and additional bytes."""
    macs, size = sum(edit.macs for edit in edits), sum(edit.size for edit in edits)
    clauses = [f"{100 * macs:.{2 + (macs >= 0.1)}g} % of the multiply-adds in float"] if macs else []
    if size:
        clauses.append(byte_size(size))
    return ", ".join(clauses) or "no cost"
