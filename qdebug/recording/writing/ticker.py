"""Force written data to the disk at regular intervals, in a thread, even if nothing more is written."""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import Protocol

from qdebug.errors import RecordingError

__all__ = ["Ticker"]


class _SyncableWriter(Protocol):
    """A writer that a ticker can sync."""

    failure: str | None
    """Why nothing is written any more; None if writing has not failed."""

    def sync(self) -> None:
        """Force written data to the disk.

        Raises:
            RecordingError: It cannot be written.
        """


class Ticker:
    """Syncs a writer at intervals.

    Its thread ends when the ticker is stopped, or when the writer no longer exists or has failed.

    Args:
        writer: The writer.
        seconds: Time from the end of one sync to the start of the next.
    """

    def __init__(self, writer: _SyncableWriter, seconds: float) -> None:
        self._writer = weakref.ref(writer)
        self._seconds = min(seconds, threading.TIMEOUT_MAX)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._sync_until_stopped, name="qdebug durable", daemon=True)
        self._thread.start()

    def _sync_until_stopped(self) -> None:
        while not self._stopped.wait(self._seconds):
            writer = self._writer()
            if writer is None or writer.failure:
                return
            with contextlib.suppress(RecordingError):  # the writer reports it at the next call
                writer.sync()
            del writer  # otherwise this thread would keep the writer alive while it waits

    def stop(self) -> None:
        """Stop permanently. Returns once no sync is running."""
        self._stopped.set()
        # The ticker's own thread may drop the last reference to the writer, which then calls `stop` in that thread.
        if self._thread is not threading.current_thread():
            self._thread.join()
