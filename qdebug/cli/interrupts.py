"""Handle Ctrl-C during writing: at the next safe moment, or immediately if it is pressed again.

Other signals that end a program are treated like Ctrl-C if resources must be released first.
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
"""Delay after which a lost Ctrl-C is sent again; by then the destructor has returned."""


class Interrupts:
    """Treats the first Ctrl-C as a request to stop, and the second as an interrupt.

    An interrupt raised anywhere in the interpreter can be lost in a library's destructor, or break a write in two.
    Outside the main thread, a handler cannot be installed, and Ctrl-C works as usual.
    """

    def __init__(self) -> None:
        self._requested = False
        self._previous: object = None

    def check(self) -> None:
        """Stop here if a stop was requested.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed since the start.
        """
        if self._requested:
            raise KeyboardInterrupt

    def wrap_progress(self, note: OnProgress) -> OnProgress:
        """Return a progress callback that also stops on request."""

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
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # otherwise another handler is in charge
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
    """Send Ctrl-C again inside the block if it was raised in a destructor, which swallows exceptions."""
    previous_hook = sys.unraisablehook

    def resend(unraisable: sys.UnraisableHookArgs) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            # Raise Ctrl-C again after the destructor has returned: exceptions in destructors are ignored.
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
    """Let SIGTERM and SIGHUP interrupt the block like Ctrl-C, so that the terminal is restored.

    Then end by that signal. Signals that have a different handler, or are ignored as under nohup, are not changed.
    """
    received_signals: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        del frame
        received_signals.append(number)
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as for a background job of a shell
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
