"""The last steps of a recording: is there room, can it be read, and may it have its name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from qdebug.errors import RecordingError
from qdebug.store.payload_store import PayloadStore
from qdebug.store.reader import FileRecording
from qdebug.store.target import cause, exists

__all__ = ["check_finished", "give_name", "lacking_room"]


def lacking_room(payloads: PayloadStore, tables: Mapping[str, np.ndarray]) -> int:
    """Give the bytes that are needed to finish if the disk has fewer, else 0.

    HDF5 can crash when it cannot write its metadata, so it is not tried.
    """
    need = sum(table.nbytes for table in tables.values()) + 1024 * payloads.count + (1 << 16)
    stats = os.fstatvfs(payloads.file.fd)
    return need if stats.f_bavail * stats.f_frsize < need else 0


def check_finished(path: Path, events: int) -> None:
    """Read a finished file as everybody will, down to the bytes of the last payload.

    Raises:
        RecordingError: It cannot be read, or does not hold so many events.
    """
    with FileRecording(path) as recording:
        if recording.event_count != events:
            raise RecordingError(f"{str(path)!r} holds {recording.event_count} of {events} events.")
        if events:
            recording.check_payload(events - 1)


def give_name(part: Path, path: Path, *, force: bool) -> None:
    """Give a finished file its name.

    Raises:
        OutputExistsError: Somebody else made a file of that name, and `force` is not set.
        RecordingError: It cannot be replaced.
    """
    if path.exists() and not force:
        raise exists(path, f"The recording is in {str(part)!r}: give it another name.")
    try:
        part.replace(path)
    except OSError as exc:
        raise RecordingError(
            f"{str(path)!r} cannot be replaced: {cause(exc)}.",
            hint=f"The recording is in {str(part)!r}: give it another name.",
        ) from None
