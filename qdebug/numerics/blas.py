"""The number of threads of BLAS, which changes the order of sums and so their last bits."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

from threadpoolctl import LibController, ThreadpoolController

__all__ = ["one_thread"]


@cache
def _blas() -> tuple[LibController, ...]:
    """Return the loaded BLAS libraries."""
    return tuple(lib for lib in ThreadpoolController().lib_controllers if lib.user_api == "blas")


def _set_threads(numbers: Sequence[int]) -> None:
    """Set the number of threads of each BLAS library, whichever thread calls.

    In newer versions of threadpoolctl, the thread that sets the number silently blocks changes by all other threads for
    as long as it lives.
    """
    for lib, number in zip(_blas(), numbers, strict=True):
        release = getattr(lib, "clear_controlling_thread", _no_operation)
        release(force=True)
        lib.set_num_threads(number)
        release(force=True)


def _no_operation(*, force: bool) -> None:
    """Do nothing, since an older threadpoolctl has no owner thread."""


class _Limit:
    """A limit of BLAS to one thread, shared by all threads of the process. The last thread to release it lifts it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._before: list[int] = []

    def apply(self) -> None:
        with self._lock:
            if not self._holders:
                self._before = [lib.num_threads or 1 for lib in _blas()]
            _set_threads([1] * len(self._before))  # each time, because OpenMP stores the limit per calling thread
            self._holders += 1

    def undo(self) -> None:
        with self._lock:
            self._holders -= 1
            if not self._holders:
                _set_threads(self._before)


_limit = _Limit()


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS to one thread, so that results do not depend on the number of threads.

    `with` blocks may be nested and may overlap across threads: the first sets the limit, the last lifts it.
    """
    _limit.apply()
    try:
        yield
    finally:
        _limit.undo()
