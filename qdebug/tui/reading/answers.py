"""Answers to the screen's requests about a tensor, computed step by step on a worker thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from qdebug.compare.result.node_result import compares_values
from qdebug.compare.result.result import NodeResult, Status
from qdebug.errors import QdebugError, RecordingError
from qdebug.model.dtypes import is_whole
from qdebug.model.recording import quant_of
from qdebug.numerics.summary import take_statistics
from qdebug.tui.elements.summing import Cancelled, StatisticsReader
from qdebug.tui.elements.values import value_facts
from qdebug.tui.reading.facts import Recorded, RecordedSide
from qdebug.tui.reading.glimpse import OpenPairs, first_sample, recording_of
from qdebug.tui.reading.messages import DetailReady, DetailRequest

if TYPE_CHECKING:
    from qdebug.compare.explaining.explanation import NodeExplanation
    from qdebug.compare.measure.pair_values import OpenPair
    from qdebug.model import Recording
    from qdebug.session import DiffSession

__all__ = [
    "Answers",
    "answer_one_side",
    "check_unchanged",
    "recorded_facts",
    "recorded_side",
]


def recorded_facts(source: DiffSession, result: NodeResult, *, sample: int, step: int) -> Recorded | None:
    """Read the recorded statistics of a pair. Called on a worker thread.

    Args:
        source: The comparison.
        result: The pair.
        sample: The sample.
        step: The step.

    Returns:
        The statistics of both sides; None if both were recorded in full, or if they cannot be read.
    """
    sides = ((source.reference, result.reference_tensor), (source.backend, result.tensor))
    try:
        if all(side.kept(tensor, sample, step) is None for side, tensor in sides):
            return None
        reference_side, backend_side = (recorded_side(side, tensor, sample, step) for side, tensor in sides)
    except (QdebugError, OSError):  # the attempt to read the values has reported the problem
        return None
    return reference_side, backend_side


def recorded_side(recording: Recording, tensor: str, sample: int, step: int) -> RecordedSide:
    """Read the recorded statistics of one side, or compute them from its values. Called on a worker thread.

    Args:
        recording: The recording of that side.
        tensor: The tensor.
        sample: The sample.
        step: The step.

    Raises:
        QdebugError: Its values cannot be read.
    """
    quant = quant_of(recording, tensor, sample, step)
    info = recording.graph.tensors.get(tensor)
    is_integer = info is not None and is_whole(info.dtype or "")
    if recording.has(tensor, sample, step):
        array = recording.load(tensor, sample, step)
        return RecordedSide(
            statistics=take_statistics(array, quant), quant=quant, elements=array.size, is_integer=is_integer
        )
    payload = recording.kept(tensor, sample, step)
    if payload is None:
        return RecordedSide(statistics=None, quant=quant)
    element_count = 0 if payload.positions is None else len(payload.positions)
    return RecordedSide(statistics=payload.statistics, quant=quant, elements=element_count, is_integer=is_integer)


_WORST_COUNT = 20
_INTERVAL_SECONDS = 0.2
"""Seconds after which intermediate results are shown."""
_MAX_HELD_BYTES = 64 << 20
"""Maximum memory for decoded values that is kept while another request is processed."""


class Answers:
    """Answers requests step by step, fastest parts first. Used on a worker thread.

    Args:
        pairs: Opens pairs of tensors.
    """

    def __init__(self, pairs: OpenPairs) -> None:
        self._pairs = pairs
        self._unfinished: tuple[DiffSession, tuple[object, ...], StatisticsReader] | None = None

    def answer(
        self,
        source: DiffSession,
        request: DetailRequest,
        result: NodeResult,
        is_cancelled: Callable[[], bool],
        *,
        known: DetailReady | None = None,
        describe_change: Callable[[], str] | None = None,
    ) -> Iterator[DetailReady]:
        """Compute the parts of an answer that are missing.

        Args:
            source: The comparison.
            request: The tensor, and the requested facts.
            result: The comparison of its tensor.
            is_cancelled: Returns whether the request was cancelled, in which case the answer ends early.
            known: The parts that an earlier answer contains; None without one.
            describe_change: Returns which file was replaced since it was opened, "" for none; None if files are allowed
                to change.
        """
        known = known or DetailReady(request=request, values_sample=request.sample or 0)
        known = replace(known, request=request, is_complete=False, problem="")
        try:
            check_unchanged(describe_change)
            for known in self._parts(source, result, known, is_cancelled):  # noqa: B020  each part includes the previous one
                yield known
        except Cancelled:
            if self._unfinished is not None and self._unfinished[2].held_bytes > _MAX_HELD_BYTES:
                self._unfinished = None  # free the decoded values before the next request
        except (QdebugError, OSError, MemoryError) as error:
            prefix = f"values of sample {known.values_sample} cannot be shown: "
            yield replace(known, is_complete=True, problem=f"{prefix if known.values is None else ''}{error}")
        else:
            yield replace(known, is_complete=True)

    def _parts(
        self, source: DiffSession, result: NodeResult, known: DetailReady, is_cancelled: Callable[[], bool]
    ) -> Iterator[DetailReady]:
        """Yield the facts known after each step.

        Raises:
            Cancelled: The request was cancelled.
        """
        request, sample, tensor = known.request, known.values_sample, result.tensor
        wants_elements = request.wants_elements and (known.statistics is None or bool(known.statistics.unread_count))
        if wants_elements or known.values is None:
            try:
                pair = self._pairs.open(source, tensor, sample=sample, step=request.step)
            except QdebugError:  # show the recorded statistics instead
                yield replace(known, recorded=recorded_facts(source, result, sample=sample, step=request.step))
                raise
            if wants_elements:
                statistics_reader = self._reader_of(source, (tensor, sample, request.step), pair)
                is_slow = False
                while not statistics_reader.read_more(is_cancelled, seconds=_INTERVAL_SECONDS):
                    is_slow, known = True, replace(known, statistics=statistics_reader.statistics())
                    yield known
                self._unfinished, known = None, replace(known, statistics=statistics_reader.statistics())
                if is_slow and known.values is None:  # computing the values takes as long again
                    yield known
            known = replace(known, values=known.values or value_facts(pair))
            if is_cancelled():
                raise Cancelled
            yield known
        if known.profile is None and compares_values(result) and result.status is not Status.IDENTICAL:
            profile = source.profile(tensor, sample=sample, k=_WORST_COUNT, cancelled=is_cancelled)
            if profile is None:
                raise Cancelled
            known = replace(known, profile=profile)
            yield known
        if request.wants_explanation and known.explanations is None:
            yield replace(known, explanations=_search_arithmetic(source, result.node, is_cancelled))

    def _reader_of(self, source: DiffSession, key: tuple[object, ...], pair: OpenPair) -> StatisticsReader:
        """Return the statistics reader of a pair. An unfinished reader of the same pair continues where it stopped."""
        if self._unfinished is None or self._unfinished[0] is not source or self._unfinished[1] != key:
            self._unfinished = source, key, StatisticsReader(pair)
        return self._unfinished[2]


def check_unchanged(describe_change: Callable[[], str] | None) -> None:
    """Refuse to read a file that was overwritten, since its numbers are not the ones that were compared.

    Raises:
        RecordingError: A file was overwritten.
    """
    why = "" if describe_change is None else describe_change()
    if why:
        raise RecordingError(f"{why}.", hint="Open it again: q, and the same command.")


def _search_arithmetic(source: DiffSession, node: str, is_cancelled: Callable[[], bool]) -> Sequence[NodeExplanation]:
    """Search for the arithmetic that reproduces a node.

    Raises:
        Cancelled: The request was cancelled.
    """
    from qdebug.numerics.checkpoint import calling_at_checkpoints
    from qdebug.running.explain_file import explain

    def check_cancelled(*_: object) -> None:
        if is_cancelled():
            raise Cancelled

    try:
        with calling_at_checkpoints(check_cancelled):
            return explain(source.backend, node=node, progress=check_cancelled).nodes
    except (QdebugError, Cancelled):
        raise
    except Exception as error:  # a bug in the search must not end the program
        raise QdebugError(f"the search for an arithmetic failed: {type(error).__name__}: {error}") from error


def answer_one_side(
    source: DiffSession, request: DetailRequest, *, describe_change: Callable[[], str] | None = None
) -> DetailReady:
    """Compute the statistics of a tensor that only one side has. Called on a worker thread.

    Args:
        source: The comparison.
        request: The tensor, and the side that has it.
        describe_change: Returns which file was replaced since it was opened, "" for none; None if files are allowed to
            change.
    """
    recording, sample = recording_of(source, request.side), first_sample(source, request)
    ready = DetailReady(request=request, values_sample=sample, is_complete=True)
    try:
        check_unchanged(describe_change)
        side = recorded_side(recording, request.tensor, sample, request.step)
    except (QdebugError, OSError, MemoryError) as error:
        return replace(ready, problem=str(error))
    if side.statistics is None:
        return replace(ready, problem=f"none of its values were kept in sample {sample}")
    return replace(ready, recorded=(side, side))
