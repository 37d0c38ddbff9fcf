"""Distributes work to the workers of an executor and returns the results in order.

A worker may be lost: killed for memory, or together with its machine. Another worker then repeats its work, once.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

from qdebug.errors import WorkerError
from qdebug.version import __version__

__all__ = ["check_version", "in_parts", "in_workers"]

T = TypeVar("T")
P = TypeVar("P")
R = TypeVar("R")

_IN_FLIGHT = 32
"""Number of parts handed out at a time: enough to keep workers busy, few enough to stop quickly."""
_PARTS = 64
"""Approximate number of parts."""
_ATTEMPTS = 2
"""Number of attempts at a part."""


def in_parts(items: Sequence[T], *, least: int = 1) -> list[Sequence[T]]:
    """Split a sequence into parts, independently of the number of workers.

    Args:
        items: The sequence.
        least: Minimum number of items in a part, except the last.
    """
    size = max(least, -(-len(items) // _PARTS))
    return [items[start : start + size] for start in range(0, len(items), size)]


def in_workers(executor: Executor, work: Callable[[P], R], parts: Sequence[P]) -> Iterator[R]:
    """Run work on parts in the workers of an executor, and yield the results in the order of the parts.

    Args:
        executor: The workers.
        work: Picklable function. Its exceptions are raised here.
        parts: Its arguments.

    Raises:
        WorkerError: A part was lost with its worker twice.
    """
    remaining_parts = iter(parts)
    waiting: deque[_Task[P, R]] = deque()
    try:
        while True:
            for part in islice(remaining_parts, _IN_FLIGHT - len(waiting)):
                waiting.append(_Task(part=part, job=_submit(executor, work, part)))
            if not waiting:
                return
            yield _wait_for_first(executor, work, waiting)
    except WorkerError as error:
        if isinstance(error.__cause__, BrokenExecutor):
            # A broken pool fails its pending work itself. If that work were cancelled here in the meantime,
            # concurrent.futures would raise while doing so and leave its other processes waiting.
            waiting.clear()
        raise
    finally:
        for task in waiting:
            task.job.cancel()


@dataclass(slots=True, kw_only=True)
class _Failure:
    """An exception raised by the work, as opposed to a failure of the worker."""

    error: Exception


@dataclass(slots=True, kw_only=True)
class _Task(Generic[P, R]):
    part: P
    job: Future[R | _Failure]
    attempts: int = 1


def _wait_for_first(executor: Executor, work: Callable[[P], R], waiting: deque[_Task[P, R]]) -> R:
    """Wait for the first task and remove it from the queue."""
    task = waiting[0]
    while True:
        try:
            result = task.job.result()
        except Exception as error:
            if task.attempts == _ATTEMPTS:
                raise _worker_loss(error) from error
            task.job, task.attempts = _submit(executor, work, task.part), task.attempts + 1
            continue
        waiting.popleft()
        if isinstance(result, _Failure):
            raise result.error
        return result


def _submit(executor: Executor, work: Callable[[P], R], part: P) -> Future[R | _Failure]:
    try:
        return executor.submit(_run_guarded, work, part)
    except (RuntimeError, OSError) as error:  # a broken or closed pool accepts no more work
        raise _worker_loss(error) from error


def _run_guarded(work: Callable[[P], R], part: P) -> R | _Failure:
    """Run work in a worker, and return its result or exception."""
    try:
        return work(part)
    except Exception as error:  # noqa: BLE001  raised again where the work was handed out
        error.add_note(f"In a worker:\n{traceback.format_exc()}")
        return _Failure(error=error)


def _worker_loss(error: Exception) -> WorkerError:
    message_lines = str(error).strip().splitlines()
    cause = message_lines[0] if message_lines else type(error).__name__
    return WorkerError(
        f"A worker process died, and its work could not be repeated ({cause}).",
        hint="Check whether it ran out of memory, and use fewer workers. Run without workers to see the error itself.",
    )


def check_version(version: str) -> None:
    """Refuse to work in a worker that runs a different qdebug version, whose results may differ.

    Args:
        version: Version of the qdebug that distributed the work.

    Raises:
        WorkerError: The versions differ.
    """
    if version != __version__:
        raise WorkerError(
            f"A worker runs qdebug {__version__}, but this process runs qdebug {version}.",
            hint="Install the same version where the workers run.",
        )
