"""Whether the rounding errors of a network's nodes add up at an output, or cancel as independent errors do.

N independent errors of equal size give sqrt(N) times one of them, and errors of one sign give N times one. Whatever the
network does with them, the same errors with a random sign for each tensor are independent. So the own errors of all
nodes are replayed to the output together, once as they are and a few times with random signs, and the two results are
compared. A third replay shows the error of an ideal backend: every result rounded once to nearest in its own format.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from qdebug.compare.attribute.backend_replay import real_values
from qdebug.compare.attribute.band import difference, finite_norm, norm
from qdebug.compare.attribute.plan import PlannedNode, recorded_places
from qdebug.compare.budget import list_tensors_upstream
from qdebug.compare.explaining.float_node import output_format
from qdebug.compare.graph_checks.graph_check import GraphCheck
from qdebug.compare.own_error import ErrorReplay, Errors
from qdebug.compare.result.result import Growth
from qdebug.errors import KernelError, NotRecordedError
from qdebug.model import operators
from qdebug.model.thresholds.verdict import GROWTH_MIN_EXCESS, GROWTH_MIN_NODES, GROWTH_MIN_RATIO
from qdebug.numerics.checkpoint import checkpoint
from qdebug.numerics.float_rounding import unit_in_last_place
from qdebug.numerics.short_formats import ShortFormat
from qdebug.replay.real_form import real_form

__all__ = ["fails_by_growth", "growth_of_errors", "growth_sentence"]

_MAX_SAMPLES = 2
"""Maximum number of samples that are replayed."""
_SIGN_REPLAYS = 6
"""Number of replays with random signs."""
_MAX_ELEMENTS = 1 << 24
"""Largest number of elements of all errors of a sample, which are in memory at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _RoundedTensor:
    """A tensor whose results are rounded to a short format.

    Args:
        entry: The compared tensor.
        short: The format.
        error: Its own error.
        ideal_error: A random error such as a single rounding to nearest causes.
    """

    entry: PlannedNode
    short: ShortFormat
    error: np.ndarray
    ideal_error: np.ndarray


@dataclass(slots=True)
class _Powers:
    """Powers at the output, over all samples.

    Args:
        signal: Power of the reference's output.
        error: Power of the backend's error.
        ideal: Power of the error of an ideal backend.
        combined: Power of the error that the given errors cause together.
        independent: Power of the error that they would cause if they were independent.
    """

    signal: float = 0.0
    error: float = 0.0
    ideal: float = 0.0
    combined: float = 0.0
    independent: float = 0.0

    @property
    def ratio(self) -> float:
        """How many times larger the error is than that of independent errors."""
        return math.sqrt(self.combined / self.independent) if self.independent else 1.0

    def sqnr_db(self, power: float) -> float:
        """Return the SQNR in dB that an error power leaves."""
        if not power:
            return math.inf
        return 10 * math.log10(self.signal / power) if self.signal else -math.inf


def growth_of_errors(
    graphs: GraphCheck, plan: Sequence[PlannedNode], output: PlannedNode, rng: np.random.Generator
) -> Growth | None:
    """Measure how rounding errors add up at an output.

    Args:
        graphs: Compares the two graphs.
        plan: All compared tensors.
        output: The output, of real numbers.
        rng: Draws the signs, and the ideal errors.

    Returns:
        None if too few nodes have results in a short float format, if their errors cannot be replayed, or if that would
        take too long.
    """
    places = list(recorded_places(graphs.replays.ref.recording, graphs.replays.be.recording, output))[:_MAX_SAMPLES]
    entries = _rounding_entries(graphs, plan, output)
    if len(entries) < GROWTH_MIN_NODES or not places:
        return None
    probe = ErrorReplay(graphs, output, places[0])
    replays = len({entry.op for entry, _ in entries}) + 2 * _SIGN_REPLAYS + 2
    samples = min(len(places), int(probe.allowed // max(replays * probe.work(entries[0][0]), 1.0)))
    main: _OperatorGroup | None = None
    all_powers, main_powers = _Powers(), _Powers()
    for place in places[:samples]:
        checkpoint()
        replay = ErrorReplay(graphs, output, place)
        tensors = list(_rounded_tensors(graphs, entries, replay, place, rng))
        try:
            main = main or _find_main_group(replay, tensors)
            _add_replays(all_powers, replay, tensors, rng)
            if main.is_most and not main.is_only:
                _add_replays(main_powers, replay, [tensor for tensor in tensors if tensor.entry.op == main.op], rng)
        except _NoReplayError:
            return None
    if main is None:
        return None
    main_powers = all_powers if main.is_only else main_powers
    adds_up = _is_majority(main_powers.combined, main_powers.error) and main_powers.ratio >= GROWTH_MIN_RATIO
    return Growth(
        output=output.tensor,
        op=main.op if adds_up else None,
        nodes=main.nodes if adds_up else tuple(entry.node for entry, _ in entries),
        ratio=main_powers.ratio if adds_up else all_powers.ratio,
        sqnr_db=all_powers.sqnr_db(all_powers.error),
        ideal_db=all_powers.sqnr_db(all_powers.ideal),
        formats=tuple(sorted({short.name for _, short in entries})),
        samples=samples,
    )


def fails_by_growth(growth: Growth | None) -> bool:
    """Return whether errors add up so much that an output is far worse than with every result rounded once."""
    return growth is not None and growth.op is not None and growth.sqnr_db < growth.ideal_db - GROWTH_MIN_EXCESS


def growth_sentence(growth: Growth) -> str:
    """State in one sentence whether errors add up, and by how much."""
    formats = " and ".join(growth.formats)
    if growth.op is None:
        return (
            f"The rounding errors of {len(growth.nodes)} nodes in {formats} do not add up: together they are "
            f"{growth.ratio:.2g} times as large as independent errors would be."
        )
    return (
        f"The errors of {len(growth.nodes)} {growth.op} nodes add up: at {growth.output!r} they are together "
        f"{growth.ratio:.2g} times as large as independent errors would be. If every result were "
        f"rounded once, to nearest, in {formats}, its SQNR would be {growth.ideal_db:.1f} dB."
    )


def _is_majority(power: float, error: float) -> bool:
    """Return whether a power is at least half of an output's error power."""
    return power >= max(error - power, 0.0)


class _NoReplayError(Exception):
    """Errors cannot be replayed to the output, or make it infinite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OperatorGroup:
    """The operator whose nodes together cause the largest error at the output.

    Args:
        op: The operator.
        nodes: These nodes.
        is_most: Whether they cause most of the output's error in the first sample.
        is_only: Whether there are no other nodes.
    """

    op: str
    nodes: tuple[str, ...]
    is_most: bool
    is_only: bool


def _find_main_group(replay: ErrorReplay, tensors: Sequence[_RoundedTensor]) -> _OperatorGroup:
    """Return the operator with the largest error at the output, among operators with enough nodes.

    Raises:
        _NoReplayError: There is none, or no replay is possible.
    """
    by_op: dict[str, list[_RoundedTensor]] = {}
    for tensor in tensors:
        by_op.setdefault(tensor.entry.op, []).append(tensor)
    kinds = [op for op, group in by_op.items() if len(group) >= GROWTH_MIN_NODES]
    if not kinds:
        raise _NoReplayError
    powers = _replayed_powers(replay, [[(tensor.entry, tensor.error) for tensor in by_op[op]] for op in kinds])
    largest = int(np.argmax(powers))
    op = kinds[largest]
    error = norm(difference(replay.signal, replay.recorded)) ** 2
    nodes = tuple(tensor.entry.node for tensor in by_op[op])
    is_only = len(nodes) == len(tensors)
    return _OperatorGroup(op=op, nodes=nodes, is_most=_is_majority(powers[largest], error), is_only=is_only)


def _rounding_entries(
    graphs: GraphCheck, plan: Sequence[PlannedNode], output: PlannedNode
) -> list[tuple[PlannedNode, ShortFormat]]:
    """Return the tensors upstream of an output that have a short float format, judging by the first sample."""
    backend, entries, element_count = graphs.replays.be.recording, list[tuple[PlannedNode, ShortFormat]](), 0
    for entry in list_tensors_upstream(graphs, plan, output):
        checkpoint()
        producer = backend.graph.producer(entry.tensor)
        if producer is None or entry.quant is not None or entry.whole:
            continue
        form, _ = real_form(producer, backend.graph.opset)
        places = [*recorded_places(graphs.replays.ref.recording, backend, entry)][:1]
        if operators.of(form.op).rounds_nothing or not places:
            continue
        short = output_format(backend, form, entry.tensor, places)
        if short is not None:
            element_count += backend.load(entry.tensor, *places[0]).size
            entries.append((entry, short))
    return entries if element_count <= _MAX_ELEMENTS else []


def _rounded_tensors(
    graphs: GraphCheck,
    entries: Sequence[tuple[PlannedNode, ShortFormat]],
    replay: ErrorReplay,
    place: tuple[int, int],
    rng: np.random.Generator,
) -> Iterator[_RoundedTensor]:
    """Yield the tensors whose own errors are known and finite."""
    for entry, short in entries:
        try:
            error = replay.own_error(entry)
            values = real_values(graphs.replays.ref.recording, entry.reference_tensor, place).astype(np.float64)
        except (KernelError, NotRecordedError):
            continue
        if np.isfinite(error).all() and np.isfinite(values).all():
            ideal_error = unit_in_last_place(values, short) * rng.uniform(-0.5, 0.5, values.shape)
            yield _RoundedTensor(entry=entry, short=short, error=error, ideal_error=ideal_error)


def _add_replays(
    powers: _Powers, replay: ErrorReplay, tensors: Sequence[_RoundedTensor], rng: np.random.Generator
) -> None:
    """Replay the errors of one sample to the output: as they are, ideal ones, and with random signs.

    Raises:
        _NoReplayError: No replay is possible.
    """
    cases: list[Errors] = [
        [(tensor.entry, tensor.error) for tensor in tensors],
        [(tensor.entry, tensor.ideal_error) for tensor in tensors],
    ]
    for _ in range(_SIGN_REPLAYS):
        signs = rng.choice((-1.0, 1.0), len(tensors))
        cases.append([(tensor.entry, tensor.error * sign) for tensor, sign in zip(tensors, signs, strict=True)])
    combined, ideal, *independent = _replayed_powers(replay, cases)
    powers.signal += finite_norm(replay.signal) ** 2
    powers.error += norm(difference(replay.signal, replay.recorded)) ** 2
    powers.combined += combined
    powers.ideal += ideal
    powers.independent += sum(independent) / _SIGN_REPLAYS


def _replayed_powers(replay: ErrorReplay, cases: Sequence[Errors]) -> list[float]:
    """Return the power of the output's error for each set of errors.

    Raises:
        _NoReplayError: A replay fails, or its output is not finite.
    """
    signal, powers = replay.signal, list[float]()
    for replayed in replay.outputs(cases):
        if replayed.values is None and replayed.reason:
            raise _NoReplayError
        error = 0.0 if replayed.values is None else norm(difference(signal, replayed.values.reshape(signal.shape)))
        powers.append(error**2)
    if not all(map(math.isfinite, powers)):
        raise _NoReplayError
    return powers
