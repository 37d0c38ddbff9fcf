"""The way back: screens that were left, and a search and a filter that were set on them, the last one last."""

from __future__ import annotations

from qdebug.tui.screens import ScreenId

__all__ = ["WayBack"]


class WayBack:
    """Remembers the places and states that esc returns to."""

    def __init__(self) -> None:
        self._steps: list[ScreenId | str] = ["filter"]  # that of the command line

    @property
    def depth(self) -> int:
        """How many steps lead back."""
        return len(self._steps)

    def left(self, view: ScreenId, to: ScreenId, *, first: int = 0) -> None:
        """Note that one screen was left for another; one that was left before leads back from where it was.

        Args:
            view: The screen that was left.
            to: The one that is shown now.
            first: Steps of the way that stay as they are.
        """
        if to in self._steps[first:]:
            at = self._steps.index(to, first)
            self._steps[at:] = [step for step in self._steps[at:] if not isinstance(step, ScreenId)]
        else:
            self._steps.append(view)

    def deeper(self, view: ScreenId) -> None:
        """Note that a screen led deeper, be it to itself."""
        self._steps.append(view)

    def did(self, state: str) -> None:
        """Note that a search or a filter was set; esc undoes the latest first."""
        self._steps = [*(step for step in self._steps if step != state), state]

    def step(self) -> ScreenId | str | None:
        """Return the next step back: a screen, "search" or "filter"; None if there is none."""
        return self._steps.pop() if self._steps else None
