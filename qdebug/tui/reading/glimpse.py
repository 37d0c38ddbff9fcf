"""Read the elements around the selected one immediately, independent of other computations."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from qdebug.errors import QdebugError
from qdebug.tui.elements.slab import slab_of
from qdebug.tui.elements.summing import Cancelled, StatisticsReader
from qdebug.tui.reading.messages import Glimpsed, TensorRequest, WindowRequest

if TYPE_CHECKING:
    from textual.worker import Worker

    from qdebug.compare.measure.pair_values import OpenPair
    from qdebug.model import Recording
    from qdebug.session import DiffSession

__all__ = ["VISIBLE_RADIUS", "WINDOW_EXTENTS", "Glimpser", "OpenPairs", "first_sample", "recording_of"]


class OpenPairs:
    """Opens pairs of tensors. The last pair stays open if a side is large and had to be decoded rather than mapped.

    To read one element of such a tensor, all of it must be decoded or reordered, which may take seconds. Large results
    are stored in a temporary file, see `qdebug.numerics.large_arrays`.

    Args:
        min_bytes: Minimum size in bytes of a pair that stays open.
    """

    def __init__(self, min_bytes: int = 1 << 22) -> None:
        self._min_bytes = min_bytes
        self._lock = threading.Lock()
        self._latest: tuple[DiffSession, tuple[str, str, int, int], OpenPair] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes held by the pair that is kept open."""
        latest = self._latest
        return 0 if latest is None else latest[2].held

    def open(self, source: DiffSession, tensor: str, *, sample: int, step: int, side: str = "") -> OpenPair:
        """Open both sides of a tensor for the calling thread.

        Args:
            source: The comparison.
            tensor: The backend's tensor, or the reference's if only the reference has it.
            sample: The sample.
            step: The step.
            side: The only side that has it, which is then compared with zeros; "" if both sides have it.

        Raises:
            QdebugError: The values cannot be read.
        """
        key = side, tensor, sample, step
        with self._lock:
            if self._latest is not None and (self._latest[0] is not source or self._latest[1] != key):
                self._latest = None  # freed first, so that memory holds only one decoded pair
            if self._latest is not None:
                return self._latest[2].again()
            if side:
                from qdebug.compare.measure.pair_values import open_alone  # already imported by the session

                pair = open_alone(recording_of(source, side), tensor, sample=sample, step=step)
            else:
                pair = source.pair(tensor, sample=sample, step=step)
            if pair.made >= self._min_bytes:
                self._latest = source, key, pair
                pair = pair.again()
            return pair

    def forget(self) -> None:
        """Close the pair that is kept open."""
        with self._lock:
            self._latest = None


def recording_of(source: DiffSession, side: str) -> Recording:
    """Return the recording of one side of a comparison."""
    return source.reference if side == "reference" else source.backend


def first_sample(source: DiffSession, request: TensorRequest) -> int:
    """Return the requested sample of a tensor that only one side has; by default the first sample with values."""
    if request.sample is not None:
        return request.sample
    recording = recording_of(source, request.side)
    samples = (at for at, step in recording.places(request.tensor) if step == request.step)
    return next((at for at in samples if recording.has(request.tensor, at, request.step)), 0)


WINDOW_EXTENTS = (512, 512)
"""Maximum elements of a window along the last two dimensions: more than any terminal shows, read in about 10 ms.

Smaller tensors are read as a whole.
"""
VISIBLE_RADIUS = 64
"""Maximum distance, approximately, from the selected element to other elements on the screen."""
_FIRST_SECONDS = 0.03
"""Time limit in seconds for the first part of a plane. Most planes are completely read in this time."""
_INTERVAL_SECONDS = 0.2
"""Seconds after which intermediate results are shown."""


class Glimpser:
    """Reads a window of a tensor, and a map of the plane.

    Args:
        find_source: Returns the open comparison that a request is for; None if it is not open. Raises RecordingError if
            its files must no longer be read.
        post: Receives each event; called on a worker thread, must not block.
        pairs: Opens pairs of tensors.
    """

    def __init__(
        self,
        find_source: Callable[[WindowRequest], DiffSession | None],
        post: Callable[[Glimpsed], object],
        pairs: OpenPairs,
    ) -> None:
        self._find_source, self._post, self._pairs = find_source, post, pairs
        self._lock = threading.Lock()  # a cancelled worker may still be reading
        self._plane: tuple[tuple[object, ...], DiffSession, StatisticsReader] | None = None

    def read_window(self, request: WindowRequest | None, worker: Worker[Any]) -> None:
        """Post the window of a request, and its map as it fills. With None, free the data of the last request.

        Args:
            request: The requested element.
            worker: The requesting worker; reading ends early once it is cancelled.
        """
        with self._lock:
            if worker.is_cancelled:
                return
            if request is None:
                self._plane = None
                self._pairs.forget()
                return
            for glimpse in self._read_parts(request, worker):
                if worker.cancelled_event.is_set():
                    return
                self._post(glimpse)

    def _read_parts(self, request: WindowRequest, worker: Worker[Any]) -> Iterator[Glimpsed]:
        sample = request.sample or 0
        try:
            source = self._find_source(request)
            if source is None:
                return
            if request.side:
                sample = first_sample(source, request)
            pair = self._pairs.open(source, request.tensor, sample=sample, step=request.step, side=request.side)
            slab = slab_of(pair.window(request.element, WINDOW_EXTENTS), only_side=request.side)
            element = request.element
            if element is None or len(element) != len(slab.shape):
                element = (0,) * len(slab.shape)
            if not request.wants_plane or slab.has_plane(element):
                yield Glimpsed(request=request, part=slab, sample=sample)
                return
            sums, is_complete, seconds = (
                self._plane_reader(source, request, (sample, element[:-2]), pair),
                False,
                _FIRST_SECONDS,
            )
            while not is_complete:
                is_complete, seconds = sums.read_more(lambda: worker.is_cancelled, seconds=seconds), _INTERVAL_SECONDS
                yield Glimpsed(request=request, part=slab, sample=sample, plane=sums.statistics())
        except Cancelled:
            return
        except (QdebugError, OSError, MemoryError) as error:
            yield Glimpsed(request=request, part=None, sample=sample, problem=str(error))

    def _plane_reader(
        self, source: DiffSession, request: WindowRequest, sample_and_plane: tuple[int, tuple[int, ...]], pair: OpenPair
    ) -> StatisticsReader:
        """Return the reader of a plane. The reader of the last plane is reused, so that nothing is read twice."""
        key = (request.backend, request.tensor, request.step, *sample_and_plane)
        if self._plane is None or self._plane[0] != key or self._plane[1] is not source:
            self._plane = key, source, StatisticsReader(pair.again(), sample_and_plane[1])
        return self._plane[2]
