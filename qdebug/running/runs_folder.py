"""Keep the folder of recordings that qdebug makes by itself below a size limit. The entry point is `prune`.

Next to each recording is a note with the hashes of the files that it was made from. A recording is removed only if it
can be made again from unchanged files, was not used for a day, and is not open in any process. The least recently used
recording is removed first.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from qdebug.errors import QdebugError
from qdebug.recording.target import lock_holder
from qdebug.regular_file import open_binary

__all__ = [
    "DAY",
    "RUNS_LIMIT",
    "PrunableRecording",
    "file_hash",
    "mark_used",
    "note_sources",
    "prunable_recordings",
    "prune",
    "runs_size",
]

RUNS_LIMIT = 5 * 10**9
"""Default size limit of the folder, in bytes."""
DAY = 86_400
"""Seconds without use after which a recording may be removed."""

_RECORDING_NAME = re.compile(r".+-[0-9a-f]{10}\.h5")
_NOTE_SUFFIX = ".made.json"
_CACHE_FOLDER = ".qdebug-cache"
_MAX_NOTE_BYTES = 1 << 20
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunableRecording:
    """A recording that may be removed.

    Args:
        path: The recording.
        size: Size of the recording and its cached comparisons, in bytes.
        last_used: Time of the last use, in seconds since the epoch.
    """

    path: Path
    size: int
    last_used: float


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with open_binary(path) as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def note_sources(recording: Path, sources: Iterable[Path]) -> None:
    """Write a note with the hashes of the files that a recording was made from.

    If a source cannot be read, no note is written, and the recording is never removed.
    """
    with contextlib.suppress(OSError, QdebugError):
        hashes = {str(source.resolve()): file_hash(source) for source in sources}
        _note_path(recording).write_text(json.dumps({"files": hashes}, indent=1), encoding="utf-8")


def mark_used(recording: Path) -> None:
    """Mark a recording as used, which keeps it for another day."""
    with contextlib.suppress(OSError):
        os.utime(recording)


def prunable_recordings(folder: Path, *, now: float | None = None) -> list[PrunableRecording]:
    """List the recordings of a folder that may be removed, least recently used first.

    Args:
        folder: The folder.
        now: The time, in seconds since the epoch. None for the current time.
    """
    latest_use = (time.time() if now is None else now) - DAY
    open_files, recordings = _open_files(), list[PrunableRecording]()
    for path in _list_recordings(folder):
        status = path.stat(follow_symlinks=False)
        last_used = max(status.st_mtime, status.st_atime)
        if (
            last_used > latest_use
            or (status.st_dev, status.st_ino) in open_files
            or lock_holder(path)
            or not _can_be_remade(path)
        ):
            continue
        recordings.append(PrunableRecording(path=path, size=_total_size(path), last_used=last_used))
    return sorted(recordings, key=lambda recording: recording.last_used)


def runs_size(folder: Path) -> int:
    """Return the total size in bytes of the recordings that qdebug made by itself, with their notes and caches."""
    return sum(map(_total_size, _list_recordings(folder)))


def prune(
    folder: Path, *, limit: int = RUNS_LIMIT, now: float | None = None, dry_run: bool = False
) -> list[PrunableRecording]:
    """Remove recordings until the folder is within a limit, or no more may be removed.

    Args:
        folder: The folder.
        limit: Maximum size of the folder, in bytes.
        now: The time, in seconds since the epoch. None for the current time.
        dry_run: Whether to only list the recordings, and remove nothing.

    Returns:
        The recordings that were removed, or would be.
    """
    remaining_bytes = runs_size(folder)
    if remaining_bytes <= limit:
        return []
    removed_recordings = list[PrunableRecording]()
    for recording in prunable_recordings(folder, now=now):
        if remaining_bytes <= limit:
            break
        if not dry_run:
            try:
                recording.path.unlink()
            except OSError:  # removed by another process, or in use
                continue
            _note_path(recording.path).unlink(missing_ok=True)
            shutil.rmtree(_cache_path(recording.path), ignore_errors=True)
        removed_recordings.append(recording)
        remaining_bytes -= recording.size
    return removed_recordings


def _list_recordings(folder: Path) -> Sequence[Path]:
    """Return the regular files of a folder that are named like a recording that qdebug made by itself."""
    try:
        return [path for path in sorted(folder.iterdir()) if _RECORDING_NAME.fullmatch(path.name) and _is_regular(path)]
    except OSError:
        return []


def _is_regular(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _note_path(recording: Path) -> Path:
    return recording.with_name(recording.name + _NOTE_SUFFIX)


def _cache_path(recording: Path) -> Path:
    return recording.with_name(recording.name + _CACHE_FOLDER)


def _total_size(path: Path) -> int:
    """Return the total size of a recording, its note and its cache."""
    companion_files = (path for path in (_note_path(path), *_regular_files(_cache_path(path))) if path.exists())
    return sum(file.stat().st_size for file in (path, *companion_files))


def _regular_files(folder: Path) -> Iterator[Path]:
    if folder.is_dir() and not folder.is_symlink():
        yield from (path for path in folder.iterdir() if _is_regular(path))


def _can_be_remade(path: Path) -> bool:
    """Return whether all files that a recording was made from exist unchanged."""
    try:
        with open_binary(_note_path(path)) as file:
            files = json.loads(file.read(_MAX_NOTE_BYTES))["files"]
        return bool(files) and all(file_hash(Path(name)) == digest for name, digest in files.items())
    except (OSError, QdebugError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def _open_files() -> set[tuple[int, int]]:
    """Return device and inode of the files that this user's processes have open; empty on systems without /proc."""
    open_files: set[tuple[int, int]] = set()
    for descriptors in Path("/proc").glob("[0-9]*/fd"):
        with contextlib.suppress(OSError):  # the process ended, or is another user's
            for descriptor in descriptors.iterdir():
                with contextlib.suppress(OSError):
                    status = descriptor.stat()
                    open_files.add((status.st_dev, status.st_ino))
    return open_files
