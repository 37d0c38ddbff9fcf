"""Run a command on untrusted files in a separate process, with limits on memory, time and disk space.

The library that reads the files (HDF5) is not hardened against malicious files. The limits grow with the disk space
that the files take.
"""

from __future__ import annotations

import argparse
import json
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from qdebug.cli.failures import COULD_NOT_RUN, say
from qdebug.errors import UsageError

__all__ = ["limit_process", "run_guarded"]

_MIN_MEMORY = 256 << 20
_BASE_MEMORY = 1 << 30
_MEMORY_PER_BYTE = 4
_BASE_SECONDS = 25
_BYTES_PER_SECOND = 1 << 20
_MAX_WRITTEN = 1 << 30
_BLOCK = 512
"""Bytes per block in `st_blocks` (POSIX)."""
_GRACE_SECONDS = 5
"""Seconds between SIGXCPU, on which a process can still end by itself, and SIGKILL."""
# One thread per library, because each thread reserves memory when it starts, which counts towards the limit.
_CHILD_CODE = """\
import json, os, sys
os.putenv("OPENBLAS_NUM_THREADS", "1")
os.putenv("OMP_NUM_THREADS", "1")
sys.path[:] = json.loads(sys.argv[1])
from qdebug.cli.guarded import limit_process
limit_process(*json.loads(sys.argv[2]))
from qdebug.cli.main import main
sys.exit(main(sys.argv[3:], guarded=True))"""


def run_guarded(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    """Run a command line in a guarded process. Return its exit code.

    Args:
        arguments: The parsed command line. It sets the limits, or else the size of its files does.
        words: The command line.

    Raises:
        UsageError: The memory limit is too small for any file.
    """
    size = sum(_disk_bytes(path) for path in _named_files(arguments))
    memory = (arguments.memory << 20) if arguments.memory else _BASE_MEMORY + _MEMORY_PER_BYTE * size
    if memory < _MIN_MEMORY:
        raise UsageError(
            f"--memory {memory >> 20} is too small for any command.",
            hint=f"Give at least {_MIN_MEMORY >> 20} MB: --memory {_MIN_MEMORY >> 20}.",
        )
    seconds = arguments.seconds
    if seconds is None and not arguments.endless:
        seconds = _BASE_SECONDS + size // _BYTES_PER_SECOND
    limits = json.dumps([memory, seconds, max(_MAX_WRITTEN, memory)])
    command = [sys.executable, "-P", "-c", _CHILD_CODE, json.dumps(sys.path), limits, *words]
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    code = _wait(subprocess.Popen(command))  # noqa: S603  this interpreter
    if code >= 0:
        return code
    end_signal = signal.Signals(-code)
    out_of_time = end_signal is signal.SIGXCPU or (end_signal is signal.SIGKILL and seconds is not None)
    reason = f"used more than {seconds} seconds of processor time" if out_of_time else f"was ended by {end_signal.name}"
    say(f"qdebug: the guarded process {reason}.")
    say(f"  hint: {'Allow it more: --seconds N.' if out_of_time else 'Ask the sender for other copies of the files.'}")
    return COULD_NOT_RUN


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Wait for a process. Ctrl-C is ignored meanwhile, since the process receives it too and handles it."""
    previous_handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return process.wait()
    finally:
        signal.signal(signal.SIGINT, previous_handler)
        if process.poll() is None:
            process.terminate()


def _named_files(arguments: argparse.Namespace) -> Iterator[Path]:
    """Yield the files that a command line names, and the files of unfinished runs next to them."""
    for value in vars(arguments).values():
        for path in value if isinstance(value, list | tuple) else [value]:
            if isinstance(path, Path):
                yield from (path.with_name(path.name + suffix) for suffix in ("", ".part", ".journal") if path.name)
                yield from _manifest_parts(path)


def _manifest_parts(path: Path) -> Sequence[Path]:
    from qdebug.errors import QdebugError
    from qdebug.recording.reading.opening import is_manifest, read_manifest

    try:
        return [part.path for part in read_manifest(path).parts] if is_manifest(path) else ()
    except QdebugError:  # the guarded command reports this error
        return ()


def _disk_bytes(path: Path) -> int:
    """Return the bytes that a file takes on disk, since the nominal size of a sparse file can be far larger."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return 0
    return min(status.st_size, status.st_blocks * _BLOCK) if path.is_file() else 0


def limit_process(memory: int, seconds: int | None, max_file_bytes: int) -> None:
    """Set limits for this process.

    Args:
        memory: Maximum bytes of address space.
        seconds: Maximum processor time; None for no limit.
        max_file_bytes: Maximum size of a written file in bytes.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":  # on other systems, RLIMIT_AS has no effect or breaks the loader
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    sys.dont_write_bytecode = True  # the limit on file size would truncate a .pyc, and later imports would fail
    resource.setrlimit(resource.RLIMIT_FSIZE, (max_file_bytes, max_file_bytes))
    if seconds is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + _GRACE_SECONDS))
