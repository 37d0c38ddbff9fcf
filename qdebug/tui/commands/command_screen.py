"""The list of all commands: Textual's palette, made safe for keys that come faster than it is laid out or closed."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress
from typing import Any

from textual.await_complete import AwaitComplete
from textual.command import Command, CommandPalette
from textual.widgets import Input, OptionList

__all__ = ["CommandScreen"]

_FOUND_SECONDS = 2.0
_LOOK_SECONDS = 0.005


class CommandScreen(CommandPalette):
    """Runs the command that is chosen, once."""

    _was_dismissed = False
    _looked_for: str | None = ""

    def on_input_changed(self, event: Input.Changed) -> None:
        """Remember which text is looked for."""
        self._looked_for = event.value

    async def until_found(self) -> None:
        """Wait until the commands that fit what was typed are listed: enter is for the first of those."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_FOUND_SECONDS):
                while not self._was_dismissed and not self._found:
                    await asyncio.sleep(_LOOK_SECONDS)

    @property
    def _found(self) -> bool:
        looking = any(each.node is self and not each.is_finished for each in self.workers)
        return not looking and self.query_one(Input).value == self._looked_for

    async def choose(self) -> None:
        """Run the command that is chosen."""
        options = self.query_one(OptionList)
        chosen = options.highlighted_option
        if self._was_dismissed or not isinstance(chosen, Command):
            return
        self.dismiss()
        found = chosen.hit.command()
        if inspect.isawaitable(found):
            await found

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Refuse to move by a page in a list that is not on the screen yet: it has no lines to move over."""
        if action == "command_list":
            return any(each.option_count and each.scrollable_content_region.area for each in self.query(OptionList))
        return super().check_action(action, parameters)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take nothing that was on its way when a command was chosen."""
        if self._was_dismissed:
            event.stop()
            event.prevent_default()

    def dismiss(self, result: Any = None) -> AwaitComplete:
        """Close; that it is closed already is no reason to close what lies under it."""
        if self._was_dismissed:
            return AwaitComplete()
        self._was_dismissed = True
        return super().dismiss(result)
