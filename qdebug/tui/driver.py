"""What stands between Textual and the terminal: as its own driver, but quitting gives the screen back at once.

Textual's driver first waits for its thread that reads keys, which looks for its end no more often than every tenth of a
second, and then leaves the screen. Here it is the other way round.
"""

from __future__ import annotations

import select
import sys
from typing import TYPE_CHECKING, Any

from textual.drivers.linux_driver import LinuxDriver

if TYPE_CHECKING:
    from qdebug.tui.application import QdebugApp

__all__ = ["PromptDriver", "terminal_is_gone"]


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
        super().__init__(app, **options)
        self._quitting = app
        self._restoring = self._restored = False

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
