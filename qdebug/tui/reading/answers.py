"""Answers to what the screen asks of one tensor, loaded in parts on the reader thread, the last ones kept in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from qdebug.compare.result.result import NodeResult, Status
from qdebug.errors import QdebugError, RecordingError
from qdebug.model.dtypes import is_whole
from qdebug.model.kept import LOWEST_EXPONENT, Statistics, kept_of
from qdebug.model.recording import places_of, quant_of
from qdebug.numerics.summary import take_statistics
from qdebug.present import numbers
from qdebug.present.detail import NodeDetail
from qdebug.tui.drawing.draw import bars, resample
from qdebug.tui.drawing.glyphs import GlyphSet
from qdebug.tui.elements.slab import Slab
from qdebug.tui.elements.summing import Cancelled, Summing, Whole
from qdebug.tui.elements.values import ValueFacts, value_facts
from qdebug.tui.reading.glimpse import OpenPairs
from qdebug.tui.reading.messages import AloneReady, DetailReady, DetailRequest

if TYPE_CHECKING:
    from qdebug.compare.explaining.explanation import NodeExplanation
    from qdebug.compare.measure.pair_values import OpenPair
    from qdebug.compare.result.result import NodeResult
    from qdebug.model import QuantParams, Recording
    from qdebug.numerics.profile import TensorProfile
    from qdebug.session import DiffSession
    from qdebug.tui.reading.messages import DetailRequest

__all__ = [
    "AnswerCache",
    "RecordedFacts",
    "RecordedSide",
    "answer",
    "answer_alone",
    "check_unchanged",
    "recorded_facts",
    "recorded_rows",
    "recorded_side",
    "shown_sample",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSide:
    """What is known of one side.

    Args:
        statistics: Of all its elements; None if nothing of it was kept.
        quant: How its stored elements stand for real numbers.
        elements: How many of the elements were kept.
        whole: Whether it holds integers or booleans.
    """

    statistics: Statistics | None
    quant: QuantParams | None
    elements: int = 0
    whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedFacts:
    """What is known of both sides.

    Args:
        reference: The reference's tensor, as it was recorded.
        backend: The backend's tensor, as it was recorded.
    """

    reference: RecordedSide
    backend: RecordedSide


def recorded_facts(source: DiffSession, result: NodeResult, *, sample: int, step: int) -> RecordedFacts | None:
    """Read the statistics of a pair; called on the reader thread.

    Args:
        source: The comparison.
        result: The pair.
        sample: Which sample.
        step: Which step.

    Returns:
        What was recorded; None where both sides have all their values, or cannot be read.
    """
    sides = ((source.reference, result.reference_tensor), (source.backend, result.tensor))
    try:
        if all(kept_of(side, tensor, sample, step) is None for side, tensor in sides):
            return None
        theirs, ours = (recorded_side(side, tensor, sample, step) for side, tensor in sides)
    except (QdebugError, ValueError):  # what is wrong has been said by who wanted the values
        return None
    return RecordedFacts(reference=theirs, backend=ours)


def recorded_side(recording: Recording, tensor: str, sample: int, step: int) -> RecordedSide:
    """Read the statistics of one side, or take them of its values; called on the reader thread.

    Args:
        recording: The side.
        tensor: The tensor.
        sample: Which sample.
        step: Which step.

    Raises:
        QdebugError: Its values cannot be read.
    """
    quant = quant_of(recording, tensor, sample, step)
    info = recording.graph.tensors.get(tensor)
    whole = info is not None and is_whole(info.dtype or "")
    if recording.has(tensor, sample, step):
        array = recording.load(tensor, sample, step)
        return RecordedSide(statistics=take_statistics(array, quant), quant=quant, elements=array.size, whole=whole)
    kept = kept_of(recording, tensor, sample, step)
    if kept is None:
        return RecordedSide(statistics=None, quant=quant)
    many = 0 if kept.positions is None else len(kept.positions)
    return RecordedSide(statistics=kept.statistics, quant=quant, elements=many, whole=whole)


def recorded_rows(facts: RecordedFacts, width: int, glyphs: GlyphSet) -> list[tuple[str, str, str]]:
    """Return label, reference and backend of each fact.

    Args:
        facts: What was recorded.
        width: Cells of a side.
        glyphs: Characters to draw with.
    """
    sides = (facts.reference, facts.backend)

    def both(label: str, show: Callable[[RecordedSide, Statistics], str]) -> tuple[str, str, str]:
        left, right = ("nothing kept" if side.statistics is None else show(side, side.statistics) for side in sides)
        return label, left, right

    known = [side.statistics for side in sides if side.statistics is not None]
    rows = [
        both("values kept", lambda side, known: f"{_count(side.elements)} of {_count(known.count)}"),
        both("min .. max", _extremes),
        both("mean, std", lambda _, known: f"{_real(known.mean)}, {_real(known.std)}"),
    ]
    if any(side.nan or side.inf for side in known):
        rows.append(both("NaN, inf", lambda _, known: f"{_count(known.nan)}, {_count(known.inf)}"))
    if any(side.quant is not None for side in sides):
        rows.append(both("at qmin, qmax", _rails))
    first, last = _exponents(known)
    if last >= first:
        signed = any(side.negative.any() for side in known)
        rows.append(both("histogram", lambda _, known: _histogram(known, (first, last), width, glyphs, signed=signed)))
        low, high = f"2^{first + LOWEST_EXPONENT}", f"2^{last + 1 + LOWEST_EXPONENT}"
        span = f"-{high} .. 0 .. {high}" if signed else f"0, {low} .. {high}"
        rows.append(("powers of 2", span, span))
    return rows


def _count(many: int) -> str:
    return numbers.grouped(many)


def _real(value: float) -> str:
    return numbers.MISSING if np.isnan(value) else numbers.number(value, digits=4)


def _extremes(side: RecordedSide, known: Statistics) -> str:
    """Return the real extremes; the codes' where there is a scale for each channel."""
    quant, ends = side.quant, (known.low, known.high)
    if quant is None and side.whole and not any(map(np.isnan, ends)):
        return f"{numbers.whole(ends[0])} .. {numbers.whole(ends[1])}"
    if quant is None:
        return f"{_real(ends[0])} .. {_real(ends[1])}"
    if quant.scale.size != 1:
        return f"codes {ends[0]:.0f} .. {ends[1]:.0f}"
    scale, zero = float(quant.scale.ravel()[0]), float(quant.zero_point.ravel()[0])
    low, high = (scale * (end - zero) for end in ends)
    return f"{_real(low)} .. {_real(high)}"


def _rails(side: RecordedSide, known: Statistics) -> str:
    return numbers.MISSING if side.quant is None else f"{_count(known.at_qmin)}, {_count(known.at_qmax)}"


def _exponents(sides: list[Statistics]) -> tuple[int, int]:
    """Return the first and last bin that any side has something in; the last before the first if there is none."""
    used = [np.flatnonzero(side.negative + side.positive) for side in sides]
    some = np.concatenate(used) if used else np.zeros(0, dtype=np.int64)
    return (int(some.min()), int(some.max())) if len(some) else (0, -1)


def _histogram(known: Statistics, bins: tuple[int, int], width: int, glyphs: GlyphSet, *, signed: bool) -> str:
    """Draw magnitudes by powers of 2, zero in the middle, or at the left if nothing is negative."""
    chosen = slice(bins[0], bins[1] + 1)
    negative, positive = (side[chosen].astype(np.float64) for side in (known.negative, known.positive))
    zeros = known.count - known.nan - known.inf - float(known.negative.sum()) - float(known.positive.sum())
    parts = [np.array([max(zeros, 0.0)]), positive]
    counts = np.concatenate([negative[::-1], *parts] if signed else parts)
    return bars(np.sqrt(resample(counts, max(width - 1, 1))), glyphs)  # the root keeps thin tails visible


_WORST = 20
_OFTEN = 0.2
"""Seconds after which is shown what is read so far."""

Key = tuple[int, str, int, int]
"""Backend, tensor, the sample that is shown, step."""


@dataclass(slots=True)
class _Known:
    values: ValueFacts | None = None
    recorded: RecordedFacts | None = None
    profile: TensorProfile | None = None
    summing: Summing | None = None
    whole: Whole | None = None
    slab: Slab | None = None
    explained: Sequence[NodeExplanation] | None = None

    @property
    def nbytes(self) -> int:
        return 4096 + sum(0 if held is None else held.nbytes for held in (self.summing, self.whole, self.slab))


class AnswerCache:
    """What was loaded last, up to a number of bytes.

    Args:
        most_bytes: The cap. The elements of one tensor may take a third of it; of a larger one only what they come to
            is kept, and the screen reads windows of it.
    """

    def __init__(self, most_bytes: int = 192 << 20) -> None:
        self._most = most_bytes
        self.most_of_one = most_bytes // 3
        self._kept: dict[Key, _Known] = {}

    @property
    def nbytes(self) -> int:
        """Memory that the answers take."""
        return sum(known.nbytes for known in self._kept.values())

    def known(self, key: Key) -> _Known:
        """Return what is kept, as the newest entry."""
        known = self._kept.pop(key, None) or _Known()
        self._kept[key] = known
        return known

    def trim(self) -> None:
        """Forget the oldest answers beyond the cap."""
        while self.nbytes > self._most and len(self._kept) > 1:
            del self._kept[next(iter(self._kept))]


def answer(
    source: DiffSession,
    request: DetailRequest,
    results: Mapping[str, NodeResult],
    *,
    cache: AnswerCache,
    pairs: OpenPairs,
    outdated: Callable[[], bool],
    changed: Callable[[], str] | None = None,
) -> Iterator[DetailReady]:
    """Answer in parts, the quick ones first; end early if nobody waits for it any more.

    Args:
        source: The comparison.
        request: What was asked; its tensor has been compared.
        results: Results by backend tensor.
        cache: What was loaded before.
        pairs: Opens pairs of tensors.
        outdated: Tells whether something newer was asked.
        changed: Says which file is no longer what was opened; "" if all are. None if they may change.
    """
    result = results[request.tensor]
    sample = shown_sample(result, request.sample)
    known = cache.known((request.backend, request.tensor, sample, request.step))
    cache.trim()

    def reply(problem: str = "", *, complete: bool) -> DetailReady:
        return DetailReady(
            request=request,
            detail=_node_detail(source, result, results, known.profile, request.sample),
            values=known.values,
            values_sample=sample,
            recorded=known.recorded,
            profile=known.profile,
            whole=known.whole,
            slab=known.slab,
            explained=known.explained,
            complete=complete,
            problem=problem,
        )

    try:
        check_unchanged(changed)
        told = False
        for whole in _load(_Asked(source, request, result, sample, known, cache, pairs, outdated)):
            told = True
            yield replace(reply(complete=False), whole=whole)
        if known.profile is None and result.status not in {Status.INCOMPARABLE, Status.IDENTICAL}:
            if not told:
                yield reply(complete=False)
            known.profile = source.profile(request.tensor, sample=sample, k=_WORST, cancelled=outdated)
            if known.profile is None:
                return  # cancelled
        if request.explain and known.explained is None:
            yield reply(complete=False)
            known.explained = _explained(source, result.node, outdated)
            if known.explained is None:
                return
    except Cancelled:
        if known.summing is not None and known.summing.held > cache.most_of_one:
            known.summing = None  # what was decoded for it may be let go before anything else is asked
        return
    except (QdebugError, ValueError, TypeError, MemoryError) as error:
        shown = known.values is not None
        yield reply(str(error) if shown else f"values of sample {sample} cannot be shown: {error}", complete=True)
    else:
        yield reply(complete=True)


@dataclass(frozen=True, slots=True)
class _Asked:
    source: DiffSession
    request: DetailRequest
    result: NodeResult
    sample: int
    known: _Known
    cache: AnswerCache
    pairs: OpenPairs
    outdated: Callable[[], bool]


def _load(asked: _Asked) -> Iterator[Whole | None]:
    """Read what is not known yet of the values; give what they come to, also so far where it takes long.

    Raises:
        Cancelled: Nobody wants them any more.
    """
    known, wanted = asked.known, asked.request.elements and asked.known.whole is None
    if not wanted and known.values is not None:
        return
    if known.whole is not None:  # the rest takes long
        yield known.whole
    pair = _pair(asked)
    if wanted:
        yield from _read(asked, pair)
    if known.values is None:
        known.values = value_facts(pair)
    if asked.outdated():
        raise Cancelled
    yield known.whole


def _read(asked: _Asked, pair: OpenPair) -> Iterator[Whole]:
    """Read all elements; give what they come to so far where that takes long. What was read is not read again."""
    known = asked.known
    if known.summing is None:
        known.summing = Summing(pair, most_bytes=asked.cache.most_of_one)
        asked.cache.trim()
    slow = False
    while not known.summing.more(asked.outdated, seconds=_OFTEN):
        slow = True
        yield known.summing.whole()
    known.whole, known.slab, known.summing = known.summing.whole(), known.summing.slab(), None
    asked.cache.trim()
    if slow and known.values is None:  # which takes as long again
        yield known.whole


def _pair(asked: _Asked) -> OpenPair:
    """Open both sides; where there are not all values, take down what was recorded of them instead."""
    source, known, tensor = asked.source, asked.known, asked.result.tensor
    sample, step = asked.sample, asked.request.step
    try:
        return asked.pairs.open(source, tensor, sample=sample, step=step)
    except QdebugError:
        known.recorded = known.recorded or recorded_facts(source, asked.result, sample=sample, step=step)
        raise


def check_unchanged(changed: Callable[[], str] | None) -> None:
    """Refuse to read a file that was written over: its numbers must not be shown as those that were compared.

    Raises:
        RecordingError: It was.
    """
    why = "" if changed is None else changed()
    if why:
        raise RecordingError(f"{why}.", hint="Open it again: q, and the same command.")


def _explained(source: DiffSession, node: str, outdated: Callable[[], bool]) -> Sequence[NodeExplanation] | None:
    """Look for the arithmetic of a node; None if that was cancelled."""
    from qdebug.numerics.checkpoint import asking
    from qdebug.workflow.explain import explain

    def look(*_: object) -> None:
        if outdated():
            raise Cancelled

    try:
        with asking(look):
            return explain(source.backend, node=node, progress=look).nodes
    except Cancelled:
        return None
    except QdebugError:
        raise
    except Exception as error:  # a search that breaks must not end the walk
        raise QdebugError(f"the search for an arithmetic broke: {type(error).__name__}: {error}") from error


def shown_sample(result: NodeResult, asked: int | None) -> int:
    """Return the sample whose values are shown: the one asked for, else the worst one."""
    if asked is not None:
        return asked
    worst = None if result.metrics is None else result.metrics.worst_sample
    return 0 if worst is None else worst


def _node_detail(
    source: DiffSession,
    result: NodeResult,
    results: Mapping[str, NodeResult],
    profile: TensorProfile | None,
    sample: int | None,
) -> NodeDetail:
    producer = source.backend.graph.producer(result.tensor)
    names = () if producer is None else tuple(name for name in producer.inputs if name)
    return NodeDetail(
        result=result,
        reference=source.reference.graph.tensors.get(result.reference_tensor),
        backend=source.backend.graph.tensors.get(result.tensor),
        inputs=tuple((name, results.get(name)) for name in names),
        worst=() if profile is None else profile.worst,
        sample=sample,
    )


def answer_alone(
    source: DiffSession, request: DetailRequest, *, changed: Callable[[], str] | None = None
) -> AloneReady:
    """Sum up the values of one side; called on the reader thread.

    Args:
        source: The comparison.
        request: What was asked, with the side that has the tensor.
        changed: Says which file is no longer what was opened; "" if all are. None if they may change.
    """
    recording = source.reference if request.side == "reference" else source.backend
    sample = request.sample
    if sample is None:
        held = (at for at, step in places_of(recording, request.tensor) if step == request.step)
        sample = next((at for at in held if recording.has(request.tensor, at, request.step)), 0)
    try:
        check_unchanged(changed)
        facts = recorded_side(recording, request.tensor, sample, request.step)
    except (QdebugError, ValueError, TypeError, MemoryError) as error:
        return AloneReady(request=request, facts=None, sample=sample, problem=str(error))
    kept = facts.statistics is not None
    problem = "" if kept else f"nothing was kept of it in sample {sample}"
    return AloneReady(request=request, facts=facts if kept else None, sample=sample, problem=problem)
