"""The list of all commands: Textual's palette, made safe for keys that come faster than it is laid out or closed."""

from __future__ import annotations

from typing import Any

from textual.await_complete import AwaitComplete
from textual.command import CommandPalette
from textual.widgets import Input, OptionList

__all__ = ["CommandScreen"]


class CommandScreen(CommandPalette):
    """Runs the command that is chosen, once."""

    _was_dismissed = False

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
