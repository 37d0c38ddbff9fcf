"""Keeps the folder of recordings that qdebug makes by itself below a limit.

Beside each of them stands a note of the files that it was made of, with their hashes. What can be made again from these
files, was not used for a day and is open nowhere may be removed, the one not used for longest first. A recording
without a note, or of files that changed or are gone, is never removed, and nothing else is.
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

__all__ = ["DAY", "RUNS_LIMIT", "Prunable", "file_hash", "note_sources", "prunable", "prune", "runs_size", "used_now"]

RUNS_LIMIT = 5 * 10**9
"""Bytes that the folder may hold if nothing else is asked for."""
DAY = 86_400
"""Seconds without use after which a recording may be removed."""

_NAME = re.compile(r".+-[0-9a-f]{10}\.h5")
_NOTE = ".made.json"
_CACHE = ".qdebug-cache"
_MOST_NOTE = 1 << 20
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Prunable:
    """A recording that may be removed.

    Args:
        path: The recording.
        size: Its bytes, those of what was kept of its comparisons included.
        used: When it was used last, in seconds since the epoch.
    """

    path: Path
    size: int
    used: float


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with open_binary(path) as file:
        while part := file.read(_BLOCK):
            digest.update(part)
    return digest.hexdigest()


def note_sources(recording: Path, sources: Iterable[Path]) -> None:
    """Note which files a recording was made of.

    One that is no file, or cannot be read, leaves no note: then the recording is never removed.
    """
    with contextlib.suppress(OSError, QdebugError):
        plain = {str(source.resolve()): file_hash(source) for source in sources}
        _note(recording).write_text(json.dumps({"files": plain}, indent=1), encoding="utf-8")


def used_now(recording: Path) -> None:
    """Mark a recording as used: it stays for another day."""
    with contextlib.suppress(OSError):
        os.utime(recording)


def prunable(folder: Path, *, now: float | None = None) -> list[Prunable]:
    """List the recordings of a folder that may be removed, the one not used for longest first.

    Args:
        folder: The folder.
        now: The time, in seconds since the epoch; that of the clock if None.
    """
    before = (time.time() if now is None else now) - DAY
    opened, found = _open_files(), list[Prunable]()
    for path in _recordings(folder):
        status = path.stat(follow_symlinks=False)
        used = max(status.st_mtime, status.st_atime)
        if used > before or (status.st_dev, status.st_ino) in opened or lock_holder(path) or not _can_be_made(path):
            continue
        found.append(Prunable(path=path, size=_size(path), used=used))
    return sorted(found, key=lambda each: each.used)


def runs_size(folder: Path) -> int:
    """Return the bytes of all recordings of a folder that qdebug named, with what is kept beside them."""
    return sum(map(_size, _recordings(folder)))


def prune(folder: Path, *, limit: int = RUNS_LIMIT, now: float | None = None, dry_run: bool = False) -> list[Prunable]:
    """Remove recordings until the folder is no larger than a limit, or nothing is left that may go.

    Args:
        folder: The folder.
        limit: Bytes that it may hold.
        now: The time, in seconds since the epoch; that of the clock if None.
        dry_run: Remove nothing.

    Returns:
        What was removed, or would be.
    """
    left = runs_size(folder)
    if left <= limit:
        return []
    gone = list[Prunable]()
    for each in prunable(folder, now=now):
        if left <= limit:
            break
        if not dry_run:
            try:
                each.path.unlink()
            except OSError:  # somebody else was quicker, or may not be disturbed
                continue
            _note(each.path).unlink(missing_ok=True)
            shutil.rmtree(_cache(each.path), ignore_errors=True)
        gone.append(each)
        left -= each.size
    return gone


def _recordings(folder: Path) -> Sequence[Path]:
    """Return the regular files of a folder that have the name of a recording that qdebug made by itself."""
    try:
        return [path for path in sorted(folder.iterdir()) if _NAME.fullmatch(path.name) and _is_regular(path)]
    except OSError:
        return []


def _is_regular(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _note(recording: Path) -> Path:
    return recording.with_name(recording.name + _NOTE)


def _cache(recording: Path) -> Path:
    return recording.with_name(recording.name + _CACHE)


def _size(path: Path) -> int:
    """Return the bytes of a recording and of what is kept beside it."""
    beside = (each for each in (_note(path), *_files(_cache(path))) if each.exists())
    return sum(each.stat().st_size for each in (path, *beside))


def _files(folder: Path) -> Iterator[Path]:
    if folder.is_dir() and not folder.is_symlink():
        yield from (path for path in folder.iterdir() if _is_regular(path))


def _can_be_made(path: Path) -> bool:
    """Tell whether all files that a recording was made of are there, unchanged."""
    try:
        with open_binary(_note(path)) as file:
            files = json.loads(file.read(_MOST_NOTE))["files"]
        return bool(files) and all(file_hash(Path(name)) == digest for name, digest in files.items())
    except (OSError, QdebugError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def _open_files() -> set[tuple[int, int]]:
    """Return the files that processes of this user have open, by device and number; none where the system hides it."""
    found: set[tuple[int, int]] = set()
    for descriptors in Path("/proc").glob("[0-9]*/fd"):
        with contextlib.suppress(OSError):  # the process ended, or is another user's
            for each in descriptors.iterdir():
                with contextlib.suppress(OSError):
                    status = each.stat()
                    found.add((status.st_dev, status.st_ino))
    return found
