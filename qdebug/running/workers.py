"""Processes, or the workers of a dask scheduler, that share a comparison or an explanation.

Processes are started fresh, since a copy of this one would share its open files. They end with it, however it ends.
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
"""How long a scheduler may take to answer."""
_END_SECONDS = 1
"""How long a process without work may take to end by itself."""


@contextmanager
def open_workers(*, jobs: int = 1, scheduler: str | None = None) -> Iterator[Executor | None]:
    """Have workers within the block; None where this process does all itself.

    Args:
        jobs: How many processes.
        scheduler: Address of a dask scheduler, whose workers are used instead.

    Raises:
        MissingExtraError: The package of the scheduler is not installed.
        WorkerError: The scheduler does not answer, or has no workers.
    """
    if scheduler is not None:
        with _dask(scheduler) as executor:
            yield executor
    elif jobs > 1:
        with _Processes(jobs) as processes:
            yield processes
    else:
        yield None


class _Processes(Executor):
    """Processes that are started when there is work, each at the end of a pipe of its own.

    Nothing is shared between them. So a process may be killed at any time, also while it writes a result: only what it
    had is lost, and another process takes its place. The processes of `ProcessPoolExecutor` share a pipe and its lock:
    a result that is cut off halfway there makes all of them wait for ever.
    """

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._todo: SimpleQueue[_Job | None] = SimpleQueue()
        self._seats: list[_Seat] = []

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Hand out work."""
        future: Future[T] = Future()
        self._todo.put(_Job(call=partial(fn, *args, **kwargs), future=future))
        if len(self._seats) < self._jobs:
            self._seats.append(_Seat(self._todo))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002  as its base
        """End the processes, after the work that they have."""
        while cancel_futures and not self._todo.empty():
            with suppress(Empty):  # a process may take it first
                if (job := self._todo.get_nowait()) is not None:
                    job.future.cancel()
        for _ in self._seats:
            self._todo.put(None)
        for seat in self._seats if wait else ():
            seat.thread.join()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:  # nobody needs the work any more
            for seat in self._seats:
                seat.leave()
        self.shutdown(cancel_futures=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    call: Callable[[], Any]
    future: Future[Any]


class _Seat:
    """Hands work to one process after the other, and starts another process where one was lost.

    Args:
        todo: The work; None ends it.
    """

    def __init__(self, todo: SimpleQueue[_Job | None]) -> None:
        self._todo = todo
        self._left = False
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        """Do work until there is none."""
        # Ctrl-C does not reach the processes started here: whoever started them is told, and ends them.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        while (job := self._todo.get()) is not None:
            if not job.future.set_running_or_notify_cancel():
                continue
            try:
                done, found = self._answer(job.call)
            except Exception as error:  # noqa: BLE001  whoever waits for the work is told
                done, found = False, error
            if done:
                job.future.set_result(found)
            else:
                job.future.set_exception(found)
        if self._pipe is not None and self._process is not None:
            with suppress(OSError):  # it was lost
                self._pipe.send(None)
            self._process.join(_END_SECONDS)
            self._process.kill()
            self._process.join()

    def leave(self) -> None:
        """End the process at once, whatever it does, and start no other."""
        with _STARTING:
            self._left = True
            if self._process is not None:
                self._process.terminate()

    def _answer(self, call: Callable[[], Any]) -> tuple[bool, Any]:
        """Return whether a call was done in the process, and what came of it.

        Raises:
            BrokenExecutor: The process ended meanwhile.
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
        with _STARTING:  # no other process may have the far end of the pipe: its end says that the process ended
            if self._left:
                raise BrokenExecutor("the processes were ended")
            near, far = context.Pipe()
            process = context.Process(target=_serve, args=(far,), daemon=True)
            process.start()
            far.close()
            self._process = process
        return process, near


_STARTING = threading.Lock()


def _tried(call: Callable[[], Any]) -> tuple[bool, Any]:
    """Return whether a call was done, and what it returns or raises."""
    try:
        return True, call()
    except Exception as error:  # noqa: BLE001  raised again where the work was handed out
        return False, error


def _serve(pipe: Connection) -> None:
    """Do what comes through a pipe, in a process of its own, until None comes."""
    _begin()
    while True:
        try:
            call = pipe.recv()
        except EOFError:
            return
        except Exception as error:  # noqa: BLE001  what it is asked for does not exist here
            answer: tuple[bool, Any] = False, error
        else:
            if call is None:
                return
            answer = _tried(call)
        try:
            pipe.send(answer)
        except OSError:
            return
        except Exception as error:  # noqa: BLE001  what cannot be sent
            pipe.send((False, TypeError(f"what came of work in a process cannot be sent: {error}")))


def _begin() -> None:
    """Have this worker end with its parent, even where that was killed."""
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def _dask(address: str) -> Iterator[Executor]:
    import asyncio

    try:
        from distributed import Client
    except ImportError:
        raise MissingExtraError("distributed", extra="dask", purpose="A dask scheduler") from None
    try:
        workers = asyncio.run(_workers_of(address))
    except Exception as error:  # whatever is at that address may answer anything
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


async def _workers_of(address: str) -> int:
    """Ask a scheduler how many workers it has; a client that fails to connect would go on trying."""
    import asyncio

    from distributed import Security, rpc

    arguments = Security().get_connection_args("client")
    async with asyncio.timeout(_CONNECT_SECONDS), rpc(address, connection_args=arguments) as scheduler:
        return len((await scheduler.identity())["workers"])
