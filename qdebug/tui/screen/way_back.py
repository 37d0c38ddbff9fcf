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

    def add_view(self, view: ScreenId, target: ScreenId, *, first: int = 0) -> None:
        """Note that one screen was left for another. If that screen was on the stack, the stack is cut back to it.

        Args:
            view: The screen that was left.
            target: The screen that is shown now.
            first: Number of steps at the bottom of the stack that are kept.
        """
        if target in self._steps[first:]:
            position = self._steps.index(target, first)
            self._steps[position:] = [step for step in self._steps[position:] if not isinstance(step, ScreenId)]
        else:
            self._steps.append(view)

    def add_deeper(self, view: ScreenId) -> None:
        """Note that a screen led one level deeper, even if to itself."""
        self._steps.append(view)

    def add_state(self, state: str) -> None:
        """Note that a search or filter was set. esc undoes the latest first."""
        self._steps = [*(step for step in self._steps if step != state), state]

    def pop(self) -> ScreenId | str | None:
        """Return the next step back: a screen, "search" or "filter"; None if there is none."""
        return self._steps.pop() if self._steps else None
