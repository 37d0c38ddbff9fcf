"""Ctrl-C while something is written: noticed at the next safe moment, and at once if it comes again.

Other signals that end a program end it as Ctrl-C does where there is something to be given back first.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Timer, get_ident
from types import FrameType, TracebackType
from typing import Self

from qdebug.cli.output import OnProgress

__all__ = ["Interrupts", "ended_as_interrupted", "interrupts_kept"]

_AGAIN = 0.02
"""Seconds after which a lost Ctrl-C is sent again: the destructor has long been left."""


class Interrupts:
    """Take Ctrl-C as a wish until it comes a second time.

    An exception that the interpreter raises wherever it happens to be can be lost in a library's destructor, and can
    tear a write in two. Where handlers cannot be installed, outside the main thread, Ctrl-C is left as it is.
    """

    def __init__(self) -> None:
        self._wished = False
        self._previous: object = None

    def check(self) -> None:
        """Stop here if somebody wishes to.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed since the beginning.
        """
        if self._wished:
            raise KeyboardInterrupt

    def checked(self, note: OnProgress) -> OnProgress:
        """Return a callback of progress that stops if somebody wishes to."""

        def step(done: int, total: int, label: str = "") -> None:
            self.check()
            note(done, total, label)

        return step

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._wished:
            raise KeyboardInterrupt
        self._wished = True

    def __enter__(self) -> Self:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else somebody else decides
            with suppress(ValueError):
                self._previous = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)  # type: ignore[arg-type]  # what signal() gave


@contextmanager
def interrupts_kept() -> Iterator[None]:
    """Send Ctrl-C again within the block where it falls into a destructor, which would swallow it."""
    before = sys.unraisablehook

    def again(unraisable: sys.UnraisableHookArgs) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            Timer(_AGAIN, signal.pthread_kill, (get_ident(), signal.SIGINT)).start()  # once the destructor is left
        else:
            before(unraisable)

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = before


@contextmanager
def ended_as_interrupted() -> Iterator[None]:
    """Let SIGTERM and SIGHUP interrupt the block as Ctrl-C does, so that it gives the terminal back; then end by them.

    A signal that somebody else takes care of, or that is to be ignored as under nohup, is left to them.
    """
    came: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        del frame
        came.append(number)
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    with suppress(ValueError):  # outside the main thread
        for number in numbers:
            signal.signal(number, end)
    try:
        yield
    finally:
        with suppress(ValueError):
            for number in numbers:
                signal.signal(number, signal.SIG_DFL)
        if came:
            signal.raise_signal(came[0])
