"""Turns of the worker threads, so that a key is answered at once even while a comparison runs for minutes.

A session keeps open tensors and partial results between calls, so only one thread at a time may compute with it.
Textual does not prioritize groups of workers. So at each checkpoint of its computation, the holder of the lock lets
more urgent work run first, and then continues.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from itertools import count
from typing import TYPE_CHECKING, Any

from qdebug.numerics.checkpoint import calling_at_checkpoints
from qdebug.tui.elements.summing import Cancelled

if TYPE_CHECKING:
    from textual.worker import Worker

__all__ = ["Turns", "Urgency", "short_switches"]

_SWITCH_SECONDS = 0.0002
_CANCEL_SECONDS = 0.05
"""How often a waiting thread checks whether it was cancelled, so that it does not block a thread of the pool."""


@contextmanager
def short_switches() -> Iterator[None]:
    """Let threads switch after a fraction of a millisecond inside the block, so that the screen stays responsive."""
    interval_before = sys.getswitchinterval()
    sys.setswitchinterval(min(interval_before, _SWITCH_SECONDS))
    try:
        yield
    finally:
        sys.setswitchinterval(interval_before)


class Urgency(IntEnum):
    """Kinds of work, the most urgent first."""

    JOB = 0
    ANSWER = 1
    TRIAL = 2
    COMPARISON = 3


class Turns:
    """A lock that its holder passes to more urgent threads at checkpoints, and takes back afterwards."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._queue: list[tuple[Urgency, int]] = []
        self._tickets = count()
        self._is_taken = False

    @contextmanager
    def turn(self, urgency: Urgency, worker: Worker[Any], *, must_run: bool = False) -> Iterator[Callable[[], bool]]:
        """Wait for a turn, and hold it inside the block.

        Checkpoints inside the block raise Cancelled once the worker is cancelled.

        Args:
            urgency: The kind of work.
            worker: The worker.
            must_run: Whether to wait for the turn even if the worker was cancelled.

        Returns:
            A function that lets more urgent threads run, and returns whether the worker is cancelled.

        Raises:
            Cancelled: The worker was cancelled before its turn came.
        """

        def is_cancelled() -> bool:
            if not worker.is_cancelled and min(self._queue, default=(urgency, 0))[0] < urgency:
                self._leave()
                # Not cancellable: `turn` releases the turn at its end, so it must hold it until then.
                self._enter(urgency)
            return worker.is_cancelled

        def check() -> None:
            if is_cancelled():
                raise Cancelled

        self._enter(urgency, None if must_run else worker)
        try:
            with calling_at_checkpoints(check):
                yield is_cancelled
        finally:
            self._leave()

    def _enter(self, urgency: Urgency, worker: Worker[Any] | None = None) -> None:
        with self._condition:
            ticket = urgency, next(self._tickets)
            self._queue.append(ticket)
            try:
                while self._is_taken or min(self._queue) != ticket:
                    self._condition.wait(None if worker is None else _CANCEL_SECONDS)
                    if worker is not None and worker.is_cancelled:
                        raise Cancelled
                self._is_taken = True
            finally:
                self._queue.remove(ticket)
                self._condition.notify_all()

    def _leave(self) -> None:
        with self._condition:
            self._is_taken = False
            self._condition.notify_all()
