"""The back stack: screens that the user left, and searches and filters that the user set, the latest on top."""

from __future__ import annotations

from qdebug.tui.screens import ScreenId

__all__ = ["BackStack"]


class BackStack:
    """Stack of the screens, searches and filters that esc goes back through."""

    def __init__(self) -> None:
        self._steps: list[ScreenId | str] = ["filter"]  # a filter from the command line can be cleared, too

    @property
    def depth(self) -> int:
        """Number of steps on the stack."""
        return len(self._steps)

    def add_view(self, view: ScreenId, target: ScreenId, *, first: int = 0) -> None:
        """Note that the user left a screen for another one. If that is on the stack, the screens above it are dropped.

        Args:
            view: The screen that was left.
            target: The screen that is shown now.
            first: Number of steps at the bottom of the stack that are kept in any case.
        """
        if target in self._steps[first:]:
            position = self._steps.index(target, first)
            self._steps[position:] = [step for step in self._steps[position:] if not isinstance(step, ScreenId)]
        else:
            self._steps.append(view)

    def add_deeper(self, view: ScreenId) -> None:
        """Note that the user went one level deeper from a screen, possibly to the same screen."""
        self._steps.append(view)

    def add_state(self, state: str) -> None:
        """Note that a search or filter was set. esc undoes the latest first."""
        self._steps = [*(step for step in self._steps if step != state), state]

    def pop(self) -> ScreenId | str | None:
        """Return the next step back: a screen, "search" or "filter"; None if there is none."""
        return self._steps.pop() if self._steps else None
