"""Read a whole recording in a separate process, and report any faults.

The HDF5 library may not survive hostile files. So a child process with limits on memory and time reads the file. If the
child crashes, hangs or exceeds a limit, the parent reports that.
"""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qdebug.errors import NotARecordingError, PayloadMismatchError, RecordingError, UsageError
from qdebug.recording.reading.opening import is_manifest, read_manifest

__all__ = ["VerifiedContents", "main", "verify"]

MEMORY_LIMIT = 2 << 30
"""Maximum address space of the child in bytes, of which it actually uses a small part."""

_ERROR_TYPES = (NotARecordingError, PayloadMismatchError)
"""Errors that the child may report, besides their base class."""
_MIN_MEMORY = 256 << 20
_MIN_SECONDS = 20
_BYTES_PER_SECOND = 20 << 20
_WALL_FACTOR = 10
"""Maximum ratio of the child's wall time to its processor time."""
_GRACE_SECONDS = 5
"""Extra seconds of processor time in which the child can end by itself."""
_CHILD_CODE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from qdebug.recording.reading.verify import main; main()"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedContents:
    """The contents of a valid recording.

    Args:
        path: The file.
        tensors: Number of arrays, all of which match their recorded hash.
        bytes: Their total size, as recorded.
        complete: Whether the run finished.
        tables: Whether graph and index match their recorded hash; False if the file has no such hash.
    """

    path: Path
    tensors: int
    bytes: int
    complete: bool
    tables: bool


def verify(path: Path, *, memory: int = MEMORY_LIMIT, timeout: float | None = None) -> VerifiedContents:
    """Check a whole recording in a process with limits: its structure, its graph, and the hash of every array.

    Args:
        path: The file.
        memory: Maximum bytes of address space of the process.
        timeout: Maximum seconds of processor time; by default 20 plus the time to read the file from a slow disk. The
            wall time may be ten times as long, since a busy machine can delay even a valid file.

    Raises:
        UsageError: `memory` is too small for any file.
        NotARecordingError: The file is not a recording.
        RecordingError: The file is faulty, or reading it crashes, hangs, or needs too much memory.
    """
    if memory < _MIN_MEMORY:
        raise UsageError(
            f"--memory {memory >> 20} is too small to read any recording.",
            hint=f"Give at least {_MIN_MEMORY >> 20} MB: qdebug file verify --memory {_MIN_MEMORY >> 20}.",
        )
    parts = [part.path for part in read_manifest(path).parts] if is_manifest(path) else [path]
    return _verify_files(path, list({os.path.realpath(part): part for part in parts}.values()), memory, timeout)


def _verify_files(path: Path, parts: Sequence[Path], memory: int, timeout: float | None) -> VerifiedContents:
    """Check files sequentially in a single process. The limits apply to all of them together.

    Args:
        path: The recording that the files are parts of.
        parts: The files, without repetition.
        memory: Bytes of address space.
        timeout: Seconds of processor time.
    """
    if timeout is None:
        size = sum(part.stat().st_size for part in parts if part.is_file())
        timeout = _MIN_SECONDS + size / _BYTES_PER_SECOND
    seconds = max(math.ceil(timeout), 1)
    command = [sys.executable, "-P", "-c", _CHILD_CODE, json.dumps(sys.path), str(memory), str(seconds)]
    try:
        process = subprocess.run(  # noqa: S603  runs this interpreter
            command,
            capture_output=True,
            timeout=_WALL_FACTOR * seconds,
            check=False,
            input=json.dumps([os.fspath(part) for part in parts]).encode(),
        )
    except subprocess.TimeoutExpired:
        raise _unsafe_error(path, f"reading it takes more than {_WALL_FACTOR * seconds} seconds") from None
    if -process.returncode == signal.SIGXCPU:
        raise _unsafe_error(path, f"reading it takes more than {seconds} seconds of processor time")
    try:
        answer: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        raise _unsafe_error(path, _describe_end(process.returncode)) from None
    if "error" in answer:
        kind = next(
            (error_type for error_type in _ERROR_TYPES if error_type.__name__ == answer.get("kind")), RecordingError
        )
        raise kind(str(answer["error"]), hint=str(answer["hint"]))
    return VerifiedContents(path=path, **answer)


def _unsafe_error(path: Path, reason: str) -> RecordingError:
    return RecordingError(f"{str(path)!r} is not safe to read: {reason}.", hint="Ask the sender for another copy.")


def _describe_end(code: int) -> str:
    """Describe how a process that returned nothing ended."""
    if code < 0:
        return f"the process that read it was ended by {signal.Signals(-code).name}"
    return f"the process that read it ended with code {code}"


def main() -> None:
    """Check the files named on standard input, and print the result as JSON. Runs in the child."""
    memory, seconds = int(sys.argv[2]), int(sys.argv[3])
    path = Path()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + _GRACE_SECONDS))
    if sys.platform == "linux":  # other systems ignore this limit, or cannot load the program under it
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    sys.dont_write_bytecode = True  # the limit could truncate a .pyc, and later imports would fail
    resource.setrlimit(resource.RLIMIT_FSIZE, (memory, memory))  # also limits temporary files
    parts = []
    try:
        for path in map(Path, json.load(sys.stdin)):
            parts.append(_check_file(path))
        answer = {
            "tensors": sum(part["tensors"] for part in parts),
            "bytes": sum(part["bytes"] for part in parts),
            "complete": all(part["complete"] for part in parts),
            "tables": all(part["tables"] for part in parts),
        }
    except RecordingError as error:
        answer = {"error": error.message, "hint": error.hint, "kind": type(error).__name__}
    except MemoryError:
        answer = {"error": f"{str(path)!r} is not safe to read: it needs too much memory.", "hint": "Do not open it."}
    sys.stdout.write(json.dumps(answer) + "\n")


def _check_file(path: Path) -> dict[str, Any]:
    from qdebug.recording.reading.read import FileRecording, mismatch_error

    with FileRecording(path) as recording:
        tables = recording.check_tables()
        _ = recording.graph, recording.event_quants
        damaged_tensors: dict[str, None] = {}
        for number, event in enumerate(recording.events()):
            try:
                recording.check_payload(number)
            except PayloadMismatchError:
                damaged_tensors.setdefault(event.tensor)
        if damaged_tensors:
            raise mismatch_error(path, list(damaged_tensors))
        recording.check_datasets()
        return {
            "tensors": recording.event_count,
            "bytes": recording.tensor_bytes,
            "complete": recording.info.complete,
            "tables": tables,
        }
