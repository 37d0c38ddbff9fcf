"""A sink that writes in a thread of its own: the program that is recorded waits only when too much is waiting.

What is waiting when the process is killed is lost: that is the price. What has been written survives as ever. A program
that ends or drops its recorder without closing it loses nothing: the recorder then calls `leave`.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from qdebug.errors import RecordingError
from qdebug.model import Graph, QuantParams, RunInfo
from qdebug.model.kept import Kept
from qdebug.record.sinks import Place, Sink

__all__ = ["MOST_WAITING", "BackgroundSink"]

MOST_WAITING = 256 << 20
"""Bytes of arrays that may be waiting; an array larger than that waits alone."""


class BackgroundSink:
    """Hands everything on to another sink, in order, from a thread.

    Args:
        sink: The other sink; nobody else uses it.
        most: Bytes of arrays that may be waiting.
    """

    def __init__(self, sink: Sink, *, most: int = MOST_WAITING) -> None:
        self.inner = sink
        self._most = most
        self._pid = os.getpid()
        self._waiting: deque[tuple[int, Callable[[], object]]] = deque()
        self._bytes = self._running = 0
        self._stopping = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="qdebug recorder", daemon=True)
        self._thread.start()

    @property
    def failure(self) -> str | None:
        """Why nothing can be written any more; None while all is well."""
        return self.inner.failure

    @property
    def events(self) -> int:
        """How many arrays have been written."""
        return self.inner.events

    def note(self, plain: Mapping[str, Any], *, now: bool = True) -> None:
        """Write down what was said, after what was put before."""
        self._hand_on(0, partial(self.inner.note, dict(plain), now=now))

    def append(
        self, name: str, array: np.ndarray, place: Place, *, constant: bool = False, quant: QuantParams | None = None
    ) -> None:
        """Copy the values of a tensor, to be written soon."""
        copy = np.array(array, order="C")
        self._hand_on(copy.nbytes, partial(self.inner.append, name, copy, place, constant=constant, quant=quant))

    def append_kept(
        self, name: str, kept: Kept, place: Place, *, constant: bool = False, quant: QuantParams | None = None
    ) -> None:
        """Take what there is of a tensor that is not kept in full, to be written soon."""
        size = 0 if kept.values is None else kept.values.nbytes
        self._hand_on(size, partial(self.inner.append_kept, name, kept, place, constant=constant, quant=quant))

    def read_back(self, name: str, place: Place) -> np.ndarray | None:
        """Give values that were kept, or None; waits until all is written."""
        self._drain()
        return self.inner.read_back(name, place)

    def close(self, graph: Graph, info: RunInfo) -> None:
        """Write all that is waiting, and finish."""
        self._stop()
        self.inner.close(graph, info)
        self._raise_error()

    def leave(self) -> None:
        """Write all that is waiting, and stop without finishing."""
        self._stop()
        self.inner.leave()

    def discard(self) -> None:
        """Leave nothing behind."""
        with self._changed:
            self._waiting.clear()
        self._stop()
        self.inner.discard()

    def _hand_on(self, size: int, work: Callable[[], object]) -> None:
        if os.getpid() != self._pid:
            work()  # a forked child has no such thread; the sink says that it must not write
            return
        with self._changed:
            self._raise_error()
            while self._waiting and self._bytes + size > self._most:
                self._changed.wait()
                self._raise_error()
            self._waiting.append((size, work))
            self._bytes += size
            self._changed.notify_all()

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._stopping:
                    self._changed.wait()
                if not self._waiting:
                    return
                size, work = self._waiting.popleft()
                self._running = 1
            try:
                work()
            except RecordingError as error:
                self._error = self._error or error
            except BaseException as error:  # noqa: BLE001  raised where the next array is put
                self._error = error
            with self._changed:
                self._running = 0
                self._bytes -= size
                self._changed.notify_all()

    def _drain(self) -> None:
        if os.getpid() != self._pid:
            return
        with self._changed:
            while (self._waiting or self._running) and self._thread.is_alive():
                self._changed.wait(0.1)
            self._raise_error()

    def _stop(self) -> None:
        if os.getpid() != self._pid:
            return
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()
