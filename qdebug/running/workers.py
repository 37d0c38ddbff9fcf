"""Worker processes, or the workers of a dask scheduler, that share a comparison or an explanation.

Processes are spawned, not forked, because a fork would share open files. They end when this process ends, even if it is
killed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from qdebug.errors import MissingExtraError, WorkerError

__all__ = ["open_workers"]

T = TypeVar("T")

_CONNECT_SECONDS = 5
"""Seconds within which a scheduler must answer."""
_END_SECONDS = 1
"""Seconds within which an idle process can end by itself, before it is killed."""


@contextmanager
def open_workers(*, jobs: int = 1, scheduler: str | None = None) -> Iterator[Executor | None]:
    """Provide workers within the block, or None if this process does all the work.

    Args:
        jobs: Number of processes.
        scheduler: Address of a dask scheduler, whose workers are used instead.

    Raises:
        MissingExtraError: The package of the scheduler is not installed.
        WorkerError: The scheduler does not answer, or has no workers.
    """
    if scheduler is not None:
        with _open_dask_client(scheduler) as executor:
            yield executor
    elif jobs > 1:
        with _ProcessPool(jobs) as processes:
            yield processes
    else:
        yield None


class _ProcessPool(Executor):
    """Processes that are started on demand, each with its own pipe.

    Because nothing is shared, a process may be killed at any time, even while it writes a result: only its job is lost,
    and a new process takes its place. The processes of `ProcessPoolExecutor` share one pipe and its lock, so a result
    cut off halfway makes all of them wait forever.
    """

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._todo: SimpleQueue[_Job | None] = SimpleQueue()
        self._slots: list[_ProcessSlot] = []

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Queue a call."""
        future: Future[T] = Future()
        self._todo.put(_Job(call=partial(fn, *args, **kwargs), future=future))
        if len(self._slots) < self._jobs:
            self._slots.append(_ProcessSlot(self._todo))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002  as its base
        """End the processes after their current jobs."""
        while cancel_futures and not self._todo.empty():
            with suppress(Empty):  # a process may take the job first
                if (job := self._todo.get_nowait()) is not None:
                    job.future.cancel()
        for _ in self._slots:
            self._todo.put(None)
        for slot in self._slots if wait else ():
            slot.thread.join()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:  # the results are not needed any more
            for slot in self._slots:
                slot.stop()
        self.shutdown(cancel_futures=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    call: Callable[[], Any]
    future: Future[Any]


class _ProcessSlot:
    """Runs jobs in one process, and starts a new process if that one dies.

    Args:
        todo: The queue of jobs. None ends the slot.
    """

    def __init__(self, todo: SimpleQueue[_Job | None]) -> None:
        self._todo = todo
        self._is_stopped = False
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        """Run jobs until there are none."""
        # Processes started here inherit this mask, so Ctrl-C reaches only the main process, which ends them.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        while (job := self._todo.get()) is not None:
            if not job.future.set_running_or_notify_cancel():
                continue
            try:
                has_succeeded, result = self._run_in_process(job.call)
            except Exception as error:  # noqa: BLE001  raised from the future
                has_succeeded, result = False, error
            if has_succeeded:
                job.future.set_result(result)
            else:
                job.future.set_exception(result)
        if self._pipe is not None and self._process is not None:
            with suppress(OSError):  # the process is gone
                self._pipe.send(None)
            self._process.join(_END_SECONDS)
            self._process.kill()
            self._process.join()

    def stop(self) -> None:
        """End the process at once, even in the middle of a job, and do not start a new one."""
        with _START_LOCK:
            self._is_stopped = True
            if self._process is not None:
                self._process.terminate()

    def _run_in_process(self, call: Callable[[], Any]) -> tuple[bool, Any]:
        """Run a call in the process. Return whether it succeeded, and its result or exception.

        Raises:
            BrokenExecutor: The process ended in the meantime.
        """
        if self._process is None or self._pipe is None or not self._process.is_alive():
            self._process, self._pipe = self._start()
        try:
            self._pipe.send(call)
            answer: tuple[bool, Any] = self._pipe.recv()
        except (EOFError, OSError) as error:
            self._pipe.close()
            self._process.kill()
            self._process.join()
            raise BrokenExecutor(f"a process ended with status {self._process.exitcode}") from error
        return answer

    def _start(self) -> tuple[BaseProcess, Connection]:
        context = multiprocessing.get_context("spawn")
        # One start at a time: if another process inherited `process_end`, recv() would not fail when this one ends.
        with _START_LOCK:
            if self._is_stopped:
                raise BrokenExecutor("the processes were ended")
            own_end, process_end = context.Pipe()
            process = context.Process(target=_run_worker, args=(process_end,), daemon=True)
            process.start()
            process_end.close()
            self._process = process
        return process, own_end


_START_LOCK = threading.Lock()


def _call_safely(call: Callable[[], Any]) -> tuple[bool, Any]:
    """Run a call. Return whether it succeeded, and its result or exception."""
    try:
        return True, call()
    except Exception as error:  # noqa: BLE001  raised again in the main process
        return False, error


def _run_worker(pipe: Connection) -> None:
    """Run the calls that arrive through a pipe until None arrives. This is the main function of a process."""
    _watch_parent()
    while True:
        try:
            call = pipe.recv()
        except EOFError:
            return
        except Exception as error:  # noqa: BLE001  the call cannot be unpickled here
            answer: tuple[bool, Any] = False, error
        else:
            if call is None:
                return
            answer = _call_safely(call)
        try:
            pipe.send(answer)
        except OSError:
            return
        except Exception as error:  # noqa: BLE001  the answer cannot be pickled
            pipe.send((False, TypeError(f"the result of a worker process cannot be sent: {error}")))


def _watch_parent() -> None:
    """Make this worker end with its parent, even if the parent is killed."""
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def _open_dask_client(address: str) -> Iterator[Executor]:
    import asyncio

    try:
        from distributed import Client
    except ImportError:
        raise MissingExtraError("distributed", extra="dask", purpose="A dask scheduler") from None
    try:
        workers = asyncio.run(_count_workers(address))
    except Exception as error:  # the program at that address may not be a scheduler
        raise WorkerError(
            f"No dask scheduler answers at {address!r}.",
            hint="Start one with `dask scheduler`, and give the address that it prints.",
        ) from error
    if not workers:
        raise WorkerError(
            f"The dask scheduler at {address!r} has no workers.", hint=f"Start some: dask worker {address}."
        )
    with Client(address, timeout=_CONNECT_SECONDS, set_as_default=False) as client:
        yield client.get_executor()


async def _count_workers(address: str) -> int:
    """Return the number of workers of a scheduler. A `Client` would keep trying to connect."""
    import asyncio

    from distributed import Security, rpc

    arguments = Security().get_connection_args("client")
    async with asyncio.timeout(_CONNECT_SECONDS), rpc(address, connection_args=arguments) as scheduler:
        return len((await scheduler.identity())["workers"])
