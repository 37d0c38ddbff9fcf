"""Run a command on files of somebody else in a process of its own, which may take only so much of the machine.

The library that reads the files does not promise to survive hostile ones. What it may cost is known beforehand: a few
times the room that the files really take on the disk.
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

__all__ = ["limit", "run_guarded"]

_LEAST_MEMORY = 256 << 20
_USUAL_MEMORY = 1 << 30
_MEMORY_A_BYTE = 4
_LEAST_SECONDS = 25
_BYTES_A_SECOND = 1 << 20
_LARGEST_FILE = 1 << 30
_BLOCK = 512
"""Bytes of a block, as `st_blocks` counts them (POSIX)."""
_GRACE = 5
"""Seconds after its time in which a process may end by itself."""
# Each thread of such a library takes memory before it does anything.
_START = """\
import json, os, sys
os.putenv("OPENBLAS_NUM_THREADS", "1")
os.putenv("OMP_NUM_THREADS", "1")
sys.path[:] = json.loads(sys.argv[1])
from qdebug.cli.guarded import limit
limit(*json.loads(sys.argv[2]))
from qdebug.cli.main import main
sys.exit(main(sys.argv[3:], guarded=True))"""


def run_guarded(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    """Run a command line in a guarded process; return its exit code.

    Args:
        arguments: What was parsed of it; the files that it names say how much it may take, unless it says so itself.
        words: The command line.

    Raises:
        UsageError: It may take too little memory for any file.
    """
    size = sum(_room(path) for path in _files(arguments))
    memory = (arguments.memory << 20) if arguments.memory else _USUAL_MEMORY + _MEMORY_A_BYTE * size
    if memory < _LEAST_MEMORY:
        raise UsageError(
            f"{memory >> 20} MB are too little memory for any command.",
            hint=f"Give at least {_LEAST_MEMORY >> 20}: --memory {_LEAST_MEMORY >> 20}.",
        )
    seconds = arguments.seconds
    if seconds is None and not arguments.endless:
        seconds = _LEAST_SECONDS + size // _BYTES_A_SECOND
    limits = json.dumps([memory, seconds, max(_LARGEST_FILE, memory)])
    command = [sys.executable, "-P", "-c", _START, json.dumps(sys.path), limits, *words]
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    code = _waited(subprocess.Popen(command))  # noqa: S603  this very interpreter
    if code >= 0:
        return code
    ended = signal.Signals(-code)
    slow = ended is signal.SIGXCPU or (ended is signal.SIGKILL and seconds is not None)
    why = f"took more than {seconds} seconds of the processor" if slow else f"was ended by {ended.name}"
    say(f"qdebug: the guarded process {why}.")
    say(f"  hint: {'Allow it more: --seconds N.' if slow else 'Ask whoever made the files for other copies.'}")
    return COULD_NOT_RUN


def _waited(process: subprocess.Popen[bytes]) -> int:
    """Wait for a process, which gets Ctrl-C as well and answers it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
        if process.poll() is None:
            process.terminate()


def _files(arguments: argparse.Namespace) -> Iterator[Path]:
    """List the files that a command line names, and what lies beside them of runs that did not finish."""
    for given in vars(arguments).values():
        for path in given if isinstance(given, list | tuple) else [given]:
            if isinstance(path, Path):
                yield from (path.with_name(path.name + ending) for ending in ("", ".part", ".journal") if path.name)
                yield from _parts(path)


def _parts(path: Path) -> Sequence[Path]:
    from qdebug.errors import QdebugError
    from qdebug.recording.reading.opening import is_manifest, read_manifest

    try:
        return [part.path for part in read_manifest(path)] if is_manifest(path) else ()
    except QdebugError:  # the command says what is wrong with it
        return ()


def _room(path: Path) -> int:
    """Return the bytes that a file takes on the disk: it may say that it is far larger."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return 0
    return min(found.st_size, found.st_blocks * _BLOCK) if path.is_file() else 0


def limit(memory: int, seconds: int | None, largest: int) -> None:
    """Limit what this process may take from now on.

    Args:
        memory: Bytes of address space.
        seconds: Processor time; None for any.
        largest: Bytes of a file that it writes.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":  # elsewhere it does not hold, or hits the loader
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    if seconds is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + _GRACE))
