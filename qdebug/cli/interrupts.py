"""Handle Ctrl-C while files are written: stop at the next safe point, or immediately if it is pressed again.

Other signals that end a program can be treated like Ctrl-C, so that resources are released first.
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

__all__ = ["Interrupts", "interrupts_resent", "signals_as_interrupts"]

_RESEND_SECONDS = 0.02
"""Seconds after which a lost Ctrl-C is sent again. By then, the destructor that swallowed it has returned."""


class Interrupts:
    """Treats the first Ctrl-C as a request to stop, which `check` raises, and the second as an immediate interrupt.

    An interrupt that is raised at an arbitrary moment can be lost in a destructor, or leave a half-written file.
    Handlers can be installed only in the main thread; in other threads, Ctrl-C works as usual.
    """

    def __init__(self) -> None:
        self._requested = False
        self._previous: object = None

    def check(self) -> None:
        """Raise the interrupt that was requested, if any.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed inside the block.
        """
        if self._requested:
            raise KeyboardInterrupt

    def wrap_progress(self, note: OnProgress) -> OnProgress:
        """Return a progress callback that also calls `check`."""

        def note_and_check(done: int, total: int, label: str = "") -> None:
            self.check()
            note(done, total, label)

        return note_and_check

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._requested:
            raise KeyboardInterrupt
        self._requested = True

    def __enter__(self) -> Self:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # do not replace somebody else's handler
            with suppress(ValueError):
                self._previous = signal.signal(signal.SIGINT, self._handle_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)  # type: ignore[arg-type]  # as returned by signal()


@contextmanager
def interrupts_resent() -> Iterator[None]:
    """Inside the block, send Ctrl-C again if it was raised in a destructor, where Python ignores exceptions."""
    previous_hook = sys.unraisablehook

    def resend(unraisable: sys.UnraisableHookArgs) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            # Wait until the destructor has returned, or the exception would be ignored again.
            Timer(_RESEND_SECONDS, signal.pthread_kill, (get_ident(), signal.SIGINT)).start()
        else:
            previous_hook(unraisable)

    sys.unraisablehook = resend
    try:
        yield
    finally:
        sys.unraisablehook = previous_hook


@contextmanager
def signals_as_interrupts() -> Iterator[None]:
    """Let SIGTERM and SIGHUP interrupt the block like Ctrl-C, so that it can clean up, such as restore the terminal.

    After the block, the process ends by the signal it received. A signal that has a handler, or is ignored as under
    nohup, keeps its effect.
    """
    received_signals: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        del frame
        received_signals.append(number)
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # shells start background jobs like this
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    with suppress(ValueError):  # outside the main thread
        for number in numbers:
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        with suppress(ValueError):
            for number in numbers:
                signal.signal(number, signal.SIG_DFL)
        if received_signals:
            signal.raise_signal(received_signals[0])
