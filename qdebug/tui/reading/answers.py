"""Answers to what the screen asks of one tensor, loaded in parts on the reader thread, the last ones kept in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from qdebug.compare.result.result import NodeResult, Status
from qdebug.errors import QdebugError, RecordingError
from qdebug.model.recording import places_of
from qdebug.present.detail import NodeDetail
from qdebug.tui.elements.slab import Slab
from qdebug.tui.elements.summing import Cancelled, Summing, Whole
from qdebug.tui.elements.values import ValueFacts, value_facts
from qdebug.tui.reading.messages import AloneReady, DetailReady, DetailRequest
from qdebug.tui.reading.open_pairs import OpenPairs
from qdebug.tui.reading.recorded import RecordedFacts, recorded_facts, recorded_side

if TYPE_CHECKING:
    from qdebug.compare.explaining.explanation import NodeExplanation
    from qdebug.compare.measure.pair_values import OpenPair
    from qdebug.compare.result.result import NodeResult
    from qdebug.numerics.profile import TensorProfile
    from qdebug.session import DiffSession
    from qdebug.tui.reading.messages import DetailRequest

__all__ = [
    "AnswerCache",
    "answer",
    "answer_alone",
    "check_unchanged",
    "shown_sample",
]


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
