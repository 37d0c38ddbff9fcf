"""Read a whole recording in a process of its own, and say what is wrong with it.

The HDF5 library does not promise to survive hostile files. So the reading is done by a child with a limit on memory and
on time: it may crash, hang or swell, and the parent tells what became of it.
"""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qdebug.errors import NotARecordingError, PayloadMismatchError, RecordingError, UsageError
from qdebug.recording.opening import is_manifest, read_manifest

__all__ = ["Verified", "main", "verify"]

MEMORY_LIMIT = 2 << 30
"""Bytes of address space that the child may take; what it really uses is a small part of that."""

_KINDS = (NotARecordingError, PayloadMismatchError)
"""Errors that the child may raise, apart from their base."""
_LEAST_MEMORY = 256 << 20
_LEAST_SECONDS = 20
_BYTES_A_SECOND = 20 << 20
_START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from qdebug.recording.verify import main; main()"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What a recording that is all right holds.

    Args:
        path: The file.
        tensors: Number of arrays, each of which has the hash it was recorded with.
        bytes: Their size in all, as recorded.
        complete: Whether the run finished.
        tables: Whether graph and index have the hash they were written with; False if the file has none.
    """

    path: Path
    tensors: int
    bytes: int
    complete: bool
    tables: bool


def verify(path: Path, *, memory: int = MEMORY_LIMIT, timeout: float | None = None) -> Verified:
    """Check all of a recording in a guarded process: structure, graph, and the hash of every array.

    Args:
        path: The file.
        memory: Bytes of address space that the process may take.
        timeout: Seconds that it may take; 20 and what reading so many bytes takes on a slow disk if None.

    Raises:
        UsageError: `memory` is too little for any file.
        NotARecordingError: The file is something else.
        RecordingError: Something is wrong with the file, or reading it crashes, hangs, or needs too much memory.
    """
    if memory < _LEAST_MEMORY:
        raise UsageError(
            f"{memory >> 20} MB are too little memory to read any recording in.",
            hint=f"Give at least {_LEAST_MEMORY >> 20}: qdebug file verify --memory {_LEAST_MEMORY >> 20}.",
        )
    if is_manifest(path):
        parts = [_verify_file(part.path, memory, timeout) for part in read_manifest(path)]
        return Verified(
            path=path,
            tensors=sum(part.tensors for part in parts),
            bytes=sum(part.bytes for part in parts),
            complete=all(part.complete for part in parts),
            tables=all(part.tables for part in parts),
        )
    return _verify_file(path, memory, timeout)


def _verify_file(path: Path, memory: int, timeout: float | None) -> Verified:
    if timeout is None:
        size = path.stat().st_size if path.is_file() else 0
        timeout = _LEAST_SECONDS + size / _BYTES_A_SECOND
    command = [sys.executable, "-P", "-c", _START, json.dumps(sys.path), str(path), str(memory)]
    try:
        done = subprocess.run(  # noqa: S603  this very interpreter
            command, capture_output=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise _refused(path, f"reading it takes more than {timeout:.0f} seconds") from None
    try:
        said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        raise _refused(path, _end_of(done.returncode)) from None
    if "error" in said:
        kind = next((each for each in _KINDS if each.__name__ == said.get("kind")), RecordingError)
        raise kind(str(said["error"]), hint=str(said["hint"]))
    return Verified(path=path, **said)


def _refused(path: Path, why: str) -> RecordingError:
    return RecordingError(f"{str(path)!r} is not safe to read: {why}.", hint="Ask whoever made it for another copy.")


def _end_of(code: int) -> str:
    """Say how a process ended that told nothing."""
    if code < 0:
        return f"the process that read it was ended by {signal.Signals(-code).name}"
    return f"the process that read it ended with code {code}"


def main() -> None:
    """Check the file named on the command line, and print what came of it as JSON. The child's part."""
    path, memory = Path(sys.argv[2]), int(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":  # elsewhere it does not hold, or hits the loader
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (memory, memory))  # of what is made in temporary files instead
    try:
        said = _check(path)
    except RecordingError as error:
        said = {"error": error.message, "hint": error.hint, "kind": type(error).__name__}
    except MemoryError:
        said = {"error": f"{str(path)!r} is not safe to read: it needs too much memory.", "hint": "Do not open it."}
    sys.stdout.write(json.dumps(said) + "\n")


def _check(path: Path) -> dict[str, Any]:
    from qdebug.recording.read import FileRecording, mismatch

    with FileRecording(path) as recording:
        tables = recording.check_tables()
        _ = recording.graph, recording.event_quants
        bad: dict[str, None] = {}
        for number, event in enumerate(recording.events()):
            try:
                recording.check_payload(number)
            except PayloadMismatchError:
                bad.setdefault(event.tensor)
        if bad:
            raise mismatch(path, list(bad))
        return {
            "tensors": recording.event_count,
            "bytes": recording.tensor_bytes,
            "complete": recording.info.complete,
            "tables": tables,
        }
