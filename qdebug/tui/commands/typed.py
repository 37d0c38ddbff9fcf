"""Keys in the order in which they were typed: each has done all it does before the next one is looked at.

Textual puts a key into the queue of whoever has the focus when it comes, from where it wanders up to the application.
While the keys before it still wander, that is somebody else: a line that opens or closes, a screen that comes or goes.
Of keys that come faster than they are done some would then be done by the wrong one, in another order, or not at all.
Here the application does each key itself, waits until what it changed is laid out, and only then takes the next.

A key that needs the recordings before they are open waits for them, and with it all that is typed after it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from textual.events import Key, Paste
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input

from qdebug.tui.commands.command_screen import CommandScreen
from qdebug.tui.keys import ROW_OF, key_label
from qdebug.tui.panels.panels import NOT_OPEN
from qdebug.tui.panels.widgets import put_in

if TYPE_CHECKING:
    from qdebug.tui.application import QdebugApp
    from qdebug.tui.commands.main_screen import MainScreen

__all__ = ["Typed"]

_LAID_OUT_SECONDS = 2.0
"""A screen that is not painted by then is no reason to take no keys any more."""
_ROUNDS = 4
"""What is laid out may say that something else has to be, but not for ever."""
_NAMED = 8
"""Keys that wait are named up to as many as this."""

_ELSEWHERE = {key for key, row in ROW_OF.items() if row.asks or row.action in {"help", "verdict", "palette"}}
"""Keys after which others belong to a line or another screen."""


class Typed:
    """Does what is typed.

    Args:
        app: The application.
        main: Its main screen.
    """

    def __init__(self, app: QdebugApp, main: MainScreen) -> None:
        self._app, self._main = app, main
        self._waiting: deque[Key | Paste] = deque()
        self._laid_out: Screen[Any] | None = None
        self._frame: tuple[object, ...] = ()

    async def take(self, event: Key | Paste) -> None:
        """Do what a key or a paste does, or let it wait behind those that wait."""
        if isinstance(event, Key) and event.key == "ctrl+j":  # enter, as a terminal sends it that nobody has set up yet
            event = Key("enter", "\r")
        if not self._waiting:
            if not await self._do(event):
                self._wait(event)
        elif not isinstance(event, Key) or _elsewhere(self._waiting) or event.key not in {"q", "escape"}:
            self._wait(event)
        elif event.key == "q":
            self._app.exit(0)
        else:
            self._waiting.clear()
            self._main.say(f"{NOT_OPEN}; nothing waits for them any more")

    async def go_on(self) -> None:
        """Do what has waited, as far as that can be done now."""
        while self._waiting and not self._app.leaving and await self._do(self._waiting[0]):
            self._waiting.popleft()

    def _wait(self, event: Key | Paste) -> None:
        self._waiting.append(event)
        names = ["paste" if isinstance(each, Paste) else key_label(each.key) for each in self._waiting]
        shown = " ".join(names[-_NAMED:] if len(names) <= _NAMED else ["..", *names[-_NAMED:]])
        self._main.say(f"{NOT_OPEN}; then comes {shown} (esc: no)")

    async def _do(self, event: Key | Paste) -> bool:
        """Do what is typed, unless it has to wait; tell whether it was done."""
        if self._app.leaving:
            return True
        await self._until_laid_out()
        screen = self._app.screen
        if screen is self._main:
            self._main.too_early = False
            await self._main.do(event)
        elif isinstance(screen, CommandScreen) and isinstance(event, Key) and not event.is_printable:
            await screen.until_found()
            await self._painted()
            await self._do_elsewhere(screen, event)
        else:
            await self._do_elsewhere(screen, event)
        done = screen is not self._main or not self._main.too_early
        if not self._app.leaving:
            await self._until_laid_out()
        return done

    async def _do_elsewhere(self, screen: Screen[Any], event: Key | Paste) -> None:
        line = screen.focused
        if isinstance(event, Paste) or event.is_printable:
            if isinstance(line, Input):
                put_in(line, event.text if isinstance(event, Paste) else event.character or "")
                return
            if isinstance(event, Paste):
                return
        if event.key == "ctrl+p":
            self._app.action_command_palette()
        elif event.key == "enter" and isinstance(screen, CommandScreen):
            await screen.choose()
        elif (found := screen.active_bindings.get(event.key)) is not None and found.enabled:
            await self._app.run_action(found.binding.action, found.node)

    async def _until_laid_out(self) -> None:
        """Wait until what is on the screen is laid out, if something of it is new or another one is there."""
        for _ in range(_ROUNDS):
            screen, frame = self._app.screen, self._main.frame
            if screen is self._laid_out and frame == self._frame:
                return
            await self._painted()
            self._laid_out, self._frame = screen, frame

    async def _painted(self) -> None:
        """Wait until the screen is painted with all that its widgets want to have laid out."""
        screen = self._app.screen
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAID_OUT_SECONDS):
                await _through([screen.call_after_refresh])
                await _through([widget.call_later for widget in screen.walk_children(Widget)])
                await _through([screen.call_after_refresh])


async def _through(schedules: Sequence[Callable[[Callable[[], object]], bool]]) -> None:
    """Wait until each has called what it is given; one that refuses is closing."""
    called = asyncio.Semaphore(0)
    for _ in [schedule for schedule in schedules if schedule(called.release)]:
        await called.acquire()


def _elsewhere(events: Iterable[Key | Paste]) -> bool:
    """Tell whether what comes after these belongs to a line, or to another screen."""
    elsewhere = False
    for event in events:
        if isinstance(event, Key):
            elsewhere = event.key not in {"enter", "escape"} if elsewhere else event.key in _ELSEWHERE
    return elsewhere
