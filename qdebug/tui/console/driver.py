"""What stands between Textual and the terminal: as its own driver, but no key is lost, and quitting is at once.

Textual's driver first waits for its thread that reads keys, which looks for its end no more often than every tenth of a
second, and then leaves the screen. Here it is the other way round. And what it reads passes through a pipe, into which
an escape that is a key is put so that nothing after it can be taken for a part of it.
"""

from __future__ import annotations

import os
import select
import sys
from contextlib import suppress
from threading import Event, Thread, get_ident
from typing import TYPE_CHECKING, Any

from textual.constants import ESCAPE_DELAY
from textual.drivers.linux_driver import LinuxDriver

from qdebug.tui.console.incoming import Incoming
from qdebug.tui.console.terminal import mode_before, typed_before

if TYPE_CHECKING:
    from qdebug.tui.application import QdebugApp

__all__ = ["INTERRUPTED", "PromptDriver", "terminal_is_gone"]

_LOOK_SECONDS = 0.1
"""How often it is asked whether keys are still wanted."""
_END_SECONDS = 5.0
"""How long the application may take to end once its terminal is gone; then there is nobody to wait for."""

INTERRUPTED = 130
"""What the program ends with where nobody quits it."""


def terminal_is_gone() -> bool:
    """Tell whether the other end of the terminal was closed, as when a connection breaks.

    Most programs then get a signal that ends them. One that does not, because the terminal is not its own or the
    signal is held off, would read the end of its input again and again, and keep a core busy for good.
    """
    stdin = sys.__stdin__
    if stdin is None or stdin.closed or not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(stdin.fileno(), 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))


class PromptDriver(LinuxDriver):
    """Restores the terminal before anything else when the application quits; a crash takes Textual's own way.

    Args:
        app: The application, which says whether it is quitting.
        options: As for the driver of Textual.
    """

    def __init__(self, app: QdebugApp, **options: Any) -> None:
        self._terminal, self._pipe, self._reader = -1, -1, 0
        self._incoming = Incoming(mouse=options.get("mouse", True))
        super().__init__(app, **options)
        self._quitting = app
        self._restoring = self._restored = False

    def start_application_mode(self) -> None:
        """Take the terminal over; at the end it is set up as it was before the first frame."""
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self.attrs_before = mode_before() or self.attrs_before

    @property
    def fileno(self) -> int:
        """What is read from: the terminal, and for the thread that reads keys a pipe."""
        return self._pipe if get_ident() == self._reader else self._terminal

    @fileno.setter
    def fileno(self, terminal: int) -> None:
        self._terminal = terminal

    def write(self, data: str) -> None:
        """Write to the terminal; nothing once it is gone.

        The thread that writes for Textual ends with the first write that fails, and who waits for room in its queue
        waits for ever: also for the look that would find that there is no terminal any more.
        """
        if not terminal_is_gone():
            super().write(data)

    def run_input_thread(self) -> None:
        """Read keys, out of a pipe into which another thread puts them."""
        self._pipe, writing = os.pipe()
        ended = Event()
        passing = Thread(target=self._pass_on, args=(writing, ended), name="qdebug-keys", daemon=True)
        passing.start()
        self._reader = get_ident()
        try:
            super().run_input_thread()
        finally:
            self._reader = 0
            ended.set()
            os.close(self._pipe)  # whoever writes is told

    def _pass_on(self, writing: int, ended: Event) -> None:
        """Put what the terminal sends into the pipe until the end, or until the terminal is gone."""
        incoming = self._incoming
        with suppress(OSError):
            while not ended.is_set():
                data = typed_before()
                if data:
                    pass
                elif select.select([self._terminal], [], [], ESCAPE_DELAY if incoming.begun else _LOOK_SECONDS)[0]:
                    if ended.is_set():
                        break
                    data = os.read(self._terminal, 1 << 12)
                    if not data:
                        break
                elif not incoming.begun:
                    continue
                os.write(writing, incoming.take(data))
        if not ended.wait(_END_SECONDS):  # laying out for a terminal that is gone, Textual may go round in circles
            os._exit(INTERRUPTED)
        os.close(writing)

    def disable_input(self) -> None:
        """Take no more keys; while quitting, give the screen back before."""
        if self._restoring:  # called from within
            return
        if self._quitting.leaving:
            self.stop_application_mode()
        super().disable_input()

    def stop_application_mode(self) -> None:
        """Give the screen back; while quitting once, and before the thread that reads keys is waited for."""
        if not self._quitting.leaving:
            super().stop_application_mode()
        elif not self._restored:
            self._restoring = self._restored = True
            super().stop_application_mode()
            self._restoring = False
            self.disable_input()
