"""The way back: screens that were left, and a search and a filter that were set on them, the last one last."""

from __future__ import annotations

from qdebug.tui.screens import ScreenId

__all__ = ["WayBack"]


class WayBack:
    """Remembers the places and states that esc returns to."""

    def __init__(self) -> None:
        self._done: list[ScreenId | str] = ["filter"]  # that of the command line

    @property
    def depth(self) -> int:
        """How many steps lead back."""
        return len(self._done)

    def left(self, view: ScreenId, to: ScreenId, *, first: int = 0) -> None:
        """Note that one screen was left for another; one that was left before leads back from where it was.

        Args:
            view: The screen that was left.
            to: The one that is shown now.
            first: Steps of the way that stay as they are.
        """
        if to in self._done[first:]:
            at = self._done.index(to, first)
            self._done[at:] = [each for each in self._done[at:] if not isinstance(each, ScreenId)]
        else:
            self._done.append(view)

    def deeper(self, view: ScreenId) -> None:
        """Note that a screen led deeper, be it to itself."""
        self._done.append(view)

    def did(self, what: str) -> None:
        """Note that a search or a filter was set; esc undoes the latest first."""
        self._done = [*(each for each in self._done if each != what), what]

    def step(self) -> ScreenId | str | None:
        """Return the next step back: a screen, "search" or "filter"; None if there is none."""
        return self._done.pop() if self._done else None
