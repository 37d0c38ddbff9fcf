"""Answers to what the screen asks of one tensor, loaded in parts on the reader thread, the last ones kept in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from qdebug.analysis.results.result import NodeResult, Status
from qdebug.errors import QdebugError, RecordingError
from qdebug.tui.events import DetailReady
from qdebug.tui.new_file import new_file
from qdebug.tui.recorded import RecordedFacts, recorded_facts
from qdebug.tui.requests import DetailRequest
from qdebug.tui.slab import Cancelled, Filling, Slab
from qdebug.tui.source import DiffSource, PairValues
from qdebug.tui.values import ValueFacts, value_facts
from qdebug.view.detail import NodeDetail

if TYPE_CHECKING:  # the screen is drawn before any of this is needed
    from qdebug.analysis.explaining.explanation import NodeExplanation
    from qdebug.numerics.full_tier import TensorProfile

__all__ = ["AnswerCache", "answer", "check_unchanged", "export_elements", "shown_sample"]

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
    filling: Filling | None = None
    slab: Slab | None = None
    explained: Sequence[NodeExplanation] | None = None

    @property
    def nbytes(self) -> int:
        return 4096 + sum(0 if held is None else held.nbytes for held in (self.filling, self.slab))


class AnswerCache:
    """What was loaded last, up to a number of bytes; the newest answer is kept whatever its size.

    Args:
        most_bytes: The cap.
    """

    def __init__(self, most_bytes: int = 256 << 20) -> None:
        self._most = most_bytes
        self._kept: dict[Key, _Known] = {}

    @property
    def nbytes(self) -> int:
        """Memory that the answers take."""
        return sum(known.nbytes for known in self._kept.values())

    def known(self, key: Key) -> _Known:
        """Give what is kept, as the newest entry."""
        known = self._kept.pop(key, None) or _Known()
        self._kept[key] = known
        return known

    def trim(self) -> None:
        """Forget the oldest answers beyond the cap."""
        while self.nbytes > self._most and len(self._kept) > 1:
            del self._kept[next(iter(self._kept))]


def answer(
    source: DiffSource,
    request: DetailRequest,
    results: Mapping[str, NodeResult],
    *,
    cache: AnswerCache,
    outdated: Callable[[], bool],
    changed: Callable[[], str] | None = None,
) -> Iterator[DetailReady]:
    """Answer in parts, the quick ones first; end early if nobody waits for it any more.

    Args:
        source: The comparison.
        request: What was asked; its tensor has been compared.
        results: Results by backend tensor.
        cache: What was loaded before.
        outdated: Tells whether something newer was asked.
        changed: Says which file is no longer what was opened; "" if all are. None if they may change.
    """
    result = results[request.tensor]
    sample = shown_sample(result, request.sample)
    known = cache.known((request.backend, request.tensor, sample, request.step))
    cache.trim()  # a huge tensor that was left takes memory no longer

    def reply(problem: str = "", *, complete: bool) -> DetailReady:
        return DetailReady(
            request=request,
            detail=_node_detail(source, result, results, known.profile, request.sample),
            values=known.values,
            values_sample=sample,
            recorded=known.recorded,
            profile=known.profile,
            slab=known.slab,
            explained=known.explained,
            complete=complete,
            problem=problem,
        )

    try:
        check_unchanged(changed)
        for slab in _load(_Asked(source, request, result, sample, known, cache, outdated)):
            yield replace(reply(complete=False), slab=slab)
        if known.profile is None and result.status not in {Status.INCOMPARABLE, Status.IDENTICAL}:
            known.profile = source.profile(request.tensor, sample=sample, k=_WORST, cancelled=outdated)
            if known.profile is None:
                return  # cancelled
        if request.explain and known.explained is None:
            yield reply(complete=False)
            known.explained = _explained(source, result.node, outdated)
            if known.explained is None:
                return
    except Cancelled:
        return
    except (QdebugError, ValueError, TypeError, MemoryError) as error:
        shown = known.values is not None
        yield reply(str(error) if shown else f"values of sample {sample} cannot be shown: {error}", complete=True)
    else:
        yield reply(complete=True)


@dataclass(frozen=True, slots=True)
class _Asked:
    source: DiffSource
    request: DetailRequest
    result: NodeResult
    sample: int
    known: _Known
    cache: AnswerCache
    outdated: Callable[[], bool]


def _load(asked: _Asked) -> Iterator[Slab | None]:
    """Read what is not known yet of the values; give the elements, also those there are so far where it takes long.

    Raises:
        Cancelled: Nobody wants them any more.
    """
    known, wanted = asked.known, asked.request.elements and asked.known.slab is None
    if wanted:
        yield from _read(asked)
    elif known.values is not None:
        return
    if known.values is None:
        pair = known.slab or _pair(asked.source, asked.result, known, asked.sample, asked.request.step)
        known.values = value_facts(pair.reference, pair.backend)
        del pair  # two whole tensors
    if asked.outdated():
        raise Cancelled
    yield known.slab


def _read(asked: _Asked) -> Iterator[Slab]:
    """Read the elements; give what there is so far where that takes long. What was read before is not read again."""
    known = asked.known
    if known.filling is None:
        pair = _pair(asked.source, asked.result, known, asked.sample, asked.request.step)
        known.filling = Filling(
            np.asarray(pair.reference),
            np.asarray(pair.backend),
            codes=(pair.reference_codes, pair.backend_codes),
            quant=pair.backend_quant,
            reference_quant=pair.reference_quant,
        )
        del pair
        asked.cache.trim()
    slow = False
    while not known.filling.more(asked.outdated, seconds=_OFTEN):
        slow = True
        yield known.filling.slab()
    known.slab, known.filling = known.filling.slab(), None
    asked.cache.trim()
    if slow and known.values is None:  # which takes as long again
        yield known.slab


def _pair(source: DiffSource, result: NodeResult, known: _Known, sample: int, step: int) -> PairValues:
    """Load both sides; where there are not all values, take down what was recorded of them instead."""
    try:
        return source.values(result.tensor, sample=sample, step=step)
    except QdebugError:
        known.recorded = known.recorded or recorded_facts(source, result, sample=sample, step=step)
        raise


def check_unchanged(changed: Callable[[], str] | None) -> None:
    """Refuse to read a file that was written over: its numbers must not be shown as those that were compared.

    Raises:
        RecordingError: It was.
    """
    why = "" if changed is None else changed()
    if why:
        raise RecordingError(f"{why}.", hint="Open it again: q, and the same command.")


def _explained(source: DiffSource, node: str, outdated: Callable[[], bool]) -> Sequence[NodeExplanation] | None:
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


def export_elements(source: DiffSource, path: Path, *, tensor: str, sample: int, step: int) -> str:
    """Write the elements of a tensor into a new file; say what was written.

    Args:
        source: The comparison.
        path: A file that does not exist: .npy for the backend's stored elements, .npz for both sides.
        tensor: Backend tensor.
        sample: Which sample.
        step: Which step.

    Raises:
        QdebugError: The values cannot be read, or the file exists or cannot be written.
    """
    pair = source.values(tensor, sample=sample, step=step)
    known = {
        "reference": pair.reference,
        "backend": pair.backend,
        "reference_codes": pair.reference_codes,
        "backend_codes": pair.backend_codes,
    }
    arrays = {name: np.asarray(array) for name, array in known.items() if array is not None}
    with new_file(path, text=False) as file:
        if path.suffix == ".npy":
            np.save(file, arrays.get("backend_codes", arrays["backend"]), allow_pickle=False)
            return f"{'codes' if 'backend_codes' in arrays else 'values'} of the backend, sample {sample}"
        np.savez(file, **arrays)  # type: ignore[arg-type]  # its stub takes the names for the flag allow_pickle
    return f"{', '.join(arrays)} of sample {sample}"


def shown_sample(result: NodeResult, asked: int | None) -> int:
    """Give the sample whose values are shown: the one asked for, else the worst one."""
    if asked is not None:
        return asked
    worst = None if result.metrics is None else result.metrics.worst_sample
    return 0 if worst is None else worst


def _node_detail(
    source: DiffSource,
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
