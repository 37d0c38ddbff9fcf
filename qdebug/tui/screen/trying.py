"""The keys that try another scale on the tensor under the cursor, or edits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from qdebug.tui.pages.page import Scene
from qdebug.tui.screens import ScreenId

if TYPE_CHECKING:
    from qdebug.tui.pages.edits_page import EditsPage
    from qdebug.tui.pages.what_if_page import WhatIfPage
    from qdebug.tui.screen.main_screen import MainScreen

__all__ = ["Trying"]

_LARGE = 8
"""Steps of the keys of large steps."""


class Trying:
    """Changes what is tried on the screens what-if and edits.

    Args:
        screen: Has the page.
    """

    def __init__(self, screen: MainScreen) -> None:
        self._screen = screen

    def step(self, direction: int) -> None:
        """Take a large step with scale or zero point."""
        self._do(lambda page, scene: page.step(scene, direction * _LARGE))

    def calibrator(self) -> None:
        """Take what the next calibrator chooses."""
        self._do(lambda page, scene: page.next_calibrator(scene))

    def scheme(self) -> None:
        """Take what the calibrator chooses by the next scheme."""
        self._do(lambda page, scene: page.next_scheme(scene))

    def reset(self) -> None:
        """Go back to what was recorded."""
        if self._screen.view is ScreenId.EDITS:
            self._with_edits(lambda page, scene: page.reset(scene))
        else:
            self._do(lambda page, scene: page.reset(scene))

    def mark(self) -> None:
        """Choose an edit, or choose it no longer."""
        self._with_edits(lambda page, scene: page.mark(scene))

    def replay(self) -> None:
        """Replay the network, or give that up."""
        self._do(lambda page, scene: page.replay(scene))

    def _with_edits(self, act: Callable[[EditsPage, Scene], str]) -> None:
        if self._screen.view is not ScreenId.EDITS:
            return self._screen.say(f"edits are chosen on the screen {ScreenId.EDITS} ({ScreenId.EDITS.key})")
        page = cast("EditsPage", self._screen.page)
        return self._screen.with_scene(lambda scene: act(page, scene))

    def _do(self, act: Callable[[WhatIfPage, Scene], str]) -> None:
        if self._screen.view is not ScreenId.WHAT_IF:
            return self._screen.say(f"scales are tried on the screen {ScreenId.WHAT_IF} ({ScreenId.WHAT_IF.key})")
        page = cast("WhatIfPage", self._screen.page)
        return self._screen.with_scene(lambda scene: act(page, scene))
