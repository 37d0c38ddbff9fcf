"""The back stack: screens that were left, and searches and filters that were set on them, the latest on top."""

from __future__ import annotations

from qdebug.tui.screens import ScreenId

__all__ = ["WayBack"]


class WayBack:
    """The back stack of places and states that esc returns to."""

    def __init__(self) -> None:
        self._steps: list[ScreenId | str] = ["filter"]  # that of the command line

    @property
    def depth(self) -> int:
        """Number of steps on the stack."""
        return len(self._steps)

    def left(self, view: ScreenId, to: ScreenId, *, first: int = 0) -> None:
        """Note that one screen was left for another. If that screen was on the stack, the stack is cut back to it.

        Args:
            view: The screen that was left.
            to: The screen that is shown now.
            first: Number of steps at the bottom of the stack that are kept.
        """
        if to in self._steps[first:]:
            at = self._steps.index(to, first)
            self._steps[at:] = [step for step in self._steps[at:] if not isinstance(step, ScreenId)]
        else:
            self._steps.append(view)

    def deeper(self, view: ScreenId) -> None:
        """Note that a screen led one level deeper, even if to itself."""
        self._steps.append(view)

    def did(self, state: str) -> None:
        """Note that a search or filter was set. esc undoes the latest first."""
        self._steps = [*(step for step in self._steps if step != state), state]

    def step(self) -> ScreenId | str | None:
        """Return the next step back: a screen, "search" or "filter"; None if there is none."""
        return self._steps.pop() if self._steps else None
