"""Processes, or the workers of a dask scheduler, that share a comparison or an explanation.

Processes are started fresh, since a copy of this one would share its open files. They end with it, however it ends.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import Any, TypeVar

from qdebug.errors import MissingExtraError, WorkerError

__all__ = ["open_workers"]

T = TypeVar("T")

_CONNECT_SECONDS = 5
"""How long a scheduler may take to answer."""
_END_SECONDS = 0.2
"""How long processes may take to end by themselves where nobody needs their work any more."""


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
    """Processes that are started when there is work, and started again after one was lost."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._others = frozenset(multiprocessing.active_children())
        self._pool: ProcessPoolExecutor | None = None

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Hand out work."""
        if self._pool is not None:
            try:
                with _ctrl_c_held():  # any work may start a process
                    return self._pool.submit(fn, *args, **kwargs)
            except BrokenExecutor:
                self._pool.shutdown()
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(self._jobs, mp_context=context, initializer=_begin)
        with _ctrl_c_held():
            return self._pool.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002  as its base
        """End the processes."""
        if self._pool is not None:
            self._pool.shutdown(wait, cancel_futures=cancel_futures)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:  # work that was cancelled has to be forgotten before its worker is lost
            self.shutdown(wait=False, cancel_futures=True)
            started = set(multiprocessing.active_children()) - self._others
            wait([process.sentinel for process in started], timeout=_END_SECONDS)
            for process in started:
                process.terminate()
        self.shutdown(cancel_futures=True)


@contextmanager
def _ctrl_c_held() -> Iterator[None]:
    """Start processes that Ctrl-C does not reach: whoever started them is told, and ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


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
    from distributed import Security, rpc

    arguments = Security().get_connection_args("client")
    async with asyncio.timeout(_CONNECT_SECONDS), rpc(address, connection_args=arguments) as scheduler:
        return len((await scheduler.identity())["workers"])
