"""The Textual application: keys, the terminal's size, the command palette, and the end of the program."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Timer as ThreadTimer
from typing import Any

from textual.app import App, ScreenStackError, SystemCommand
from textual.binding import Binding
from textual.command import CommandPalette
from textual.events import Event, Key, MouseMove, Paste, Resize
from textual.geometry import Size
from textual.screen import Screen
from textual.timer import Timer
from textual.widget import Widget

from qdebug.present.rows import metric_title
from qdebug.tui.drawing.glyphs import UNICODE, GlyphSet
from qdebug.tui.drawing.look import Look
from qdebug.tui.drawing.palette import DARK, PALETTES, Palette
from qdebug.tui.keys import KeyRow
from qdebug.tui.nodes.rows import METRIC_CHOICES
from qdebug.tui.reading.messages import Opening
from qdebug.tui.reading.turns import short_switches
from qdebug.tui.screen.bindings import COMMANDS_WITHOUT_KEY, QUIT, all_key_rows
from qdebug.tui.screen.files import Files
from qdebug.tui.screen.main_screen import MainScreen
from qdebug.tui.screen.other_screens import CommandScreen
from qdebug.tui.screen.start_place import StartPlace
from qdebug.tui.screens import MIN_HEIGHT, MIN_WIDTH
from qdebug.tui.terminal import INTERRUPTED, TerminalWatch, current_size, print_waiting
from qdebug.tui.views.answer import VERDICT

__all__ = ["LIMITS_FILE", "QdebugApp"]

_SETTLE_SECONDS = 0.1
"""How long a terminal's size must stay the same to be considered final."""

_THREADS = 16
"""Maximum number of simultaneous workers. A job that waits for a long computation keeps its thread."""
_PATIENCE_SECONDS = 1.0
"""If the threads take longer than this to finish at the end, a message explains the wait."""

_ESCAPE_SECONDS = 0.15
"""How long an escape is held back for the rest of an arrow key, in addition to the driver's 0.1 s."""
_ARROWS = {"A": "up", "B": "down", "C": "right", "D": "left", "H": "home", "F": "end"}
"""Keys by the final letter of their escape sequences."""
_ALT_DIGITS = dict(zip("¡™£¢∞§¶•ª", "123456789", strict=True))
"""Digits by the character that Option and the digit type on a Mac, which Textual reports for escape and a digit."""

LIMITS_FILE = Path("qdebug-limits.toml")
"""File for acknowledgements if no limits file is given and the project has none."""

MAP_FILE = Path("qdebug-map.toml")
"""File for manual pairs if no map is given."""


class QdebugApp(App[int]):
    """Shows the comparison of a reference with one or more backends.

    Args:
        openings: For each backend, a function that opens and aligns it and the reference on a worker thread.
        titles: Names of the two recordings of each comparison.
        start_place: The node, sample, screen and filter to start with; None for the defaults.
        glyphs: Characters for drawing.
        palette: Initial colours.
        limits_file: The file to which acknowledgements are written.
        needs_limits_option: Whether the limits file applies only if it is named on the command line.
        map_file: The file to which manual pairs are written.
        command_words: The command that opens the same recordings again, without file names.
        files: The reference's file, and each backend's.
    """

    TITLE = "qdebug"
    ENABLE_COMMAND_PALETTE = True
    BINDINGS = [  # noqa: RUF012  as Textual declares it
        Binding("ctrl+c", "interrupt", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", show=False, tooltip="suspend; fg comes back"),
        QUIT,
    ]

    def __init__(
        self,
        openings: Sequence[Opening],
        *,
        titles: Sequence[tuple[str, str]] = (("reference", "backend"),),
        start_place: StartPlace | None = None,
        glyphs: GlyphSet = UNICODE,
        palette: Palette = DARK,
        limits_file: Path = LIMITS_FILE,
        needs_limits_option: bool = True,
        map_file: Path = MAP_FILE,
        command_words: Sequence[str] = ("qdebug", "tui"),
        files: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.failure: BaseException | None = None
        self.animation_level = "none"  # only keys move anything
        self._watch = TerminalWatch(lambda: self.call_later(self.exit, INTERRUPTED))
        self._settle_timer: Timer | None = None
        self.files = Files(
            limits=limits_file,
            map=map_file,
            recordings=tuple(files) or ("REF", *("BACKEND" for _ in openings)),
            command=tuple(command_words),
            needs_limits_option=needs_limits_option,
        )
        self._pending_keys: list[Key] = []
        self._release_timer: Timer | None = None
        self.look = Look(glyphs=glyphs, palette=palette)
        for colours in PALETTES:
            self.register_theme(colours.theme())
        self.theme = self.look.palette.name
        start_place = StartPlace() if start_place is None else start_place
        self._main = MainScreen(
            self.look,
            titles=titles,
            start_place=start_place,
            files=self.files,
            openings=openings,
            fail=self._fail,
        )
        self._reader = self._main.loader.reader

    async def on_event(self, event: Event) -> None:
        """Process each key completely before the next key. All other events are left to Textual.

        Textual queues a key at the widget that has the focus when the key arrives. If keys arrive in a burst, as over a
        slow line, some would otherwise go to an input line that is about to open or close.
        """
        if not isinstance(event, Key | Paste) or event.is_forwarded:
            if not isinstance(event, MouseMove):
                await self._release_keys()
            await super().on_event(event)
            return
        is_asking = self.screen is self._main and self._main.is_asking
        for key in _split_alt_key(event, types_text=is_asking):
            for complete_key in self._complete_keys(key):
                await self._process_key(complete_key)

    async def _process_key(self, event: Key | Paste) -> None:
        if self.screen is not self._main:
            await super().on_event(event)
        else:
            self.app_focus = True  # as Textual does: keys come only with the focus
            await self._main.press(event)

    def _complete_keys(self, event: Key | Paste) -> Iterator[Key | Paste]:
        """Yield a key once it is complete, since an arrow key may arrive as three keys over a slow line.

        The driver reports an escape as a key after 0.1 s without further input. It is held back slightly longer here,
        until it is certain that "[" and a letter do not follow. Without a terminal, as in a test, nothing is held back.
        """
        if self._release_timer is not None:
            self._release_timer.stop()
            self._release_timer = None
        keys = [*self._pending_keys, event]
        self._pending_keys = []
        characters = [each.character if isinstance(each, Key) else None for each in keys]
        if characters[0] == "\x1b" and not self.is_headless:
            if len(keys) == 3 and characters[1] in {"[", "O"} and characters[2] in _ARROWS:
                yield Key(_ARROWS[characters[2]], None)
                return
            if len(keys) == 1 or (len(keys) == 2 and characters[1] in {"[", "O"}):
                self._pending_keys = [each for each in keys if isinstance(each, Key)]
                self._release_timer = self.set_timer(_ESCAPE_SECONDS, self._release_keys)
                return
        yield from keys

    async def _release_keys(self) -> None:
        """Process the keys that were held back, since they did not turn out to be an arrow key."""
        keys, self._pending_keys = self._pending_keys, []
        for key in keys:
            await self._process_key(key)

    def get_default_screen(self) -> Screen[None]:
        """Return the main screen."""
        return self._main

    def on_mount(self) -> None:
        """Start watching the terminal."""
        if not self.is_headless:
            self._watch.start()
        self.app_resume_signal.subscribe(self, self._paint_all)

    def _paint_all(self, _: object) -> None:
        """Repaint every widget, since the terminal may have lost its contents, as after a suspension."""
        with suppress(ScreenStackError):  # the stack is empty while the program exits
            for widget in (self.screen, *self.screen.walk_children(Widget)):
                widget.refresh()

    def action_command_palette(self) -> None:
        """Open the command palette if it fits. Overridden because Textual binds ctrl+p to it on every screen."""
        if self.size.width < MIN_WIDTH or self.size.height < MIN_HEIGHT:
            self._main.say("the terminal is too small for a palette")
        elif not isinstance(self.screen, CommandPalette):
            self.push_screen(CommandScreen(id="--command-palette"))

    def on_resize(self, event: Resize) -> None:
        """Repaint everything once the size is stable. Close the command palette if it no longer fits.

        If the size changes back before Textual reads it, Textual sees no change, although the terminal has lost what it
        cut off. The palette's list cannot be navigated if it was never laid out.
        """
        if self._settle_timer is not None:
            self._settle_timer.stop()
        self._settle_timer = self.set_timer(_SETTLE_SECONDS, self._repaint_at_current_size)
        is_too_small = event.size.width < MIN_WIDTH or event.size.height < MIN_HEIGHT
        if is_too_small and isinstance(self.screen, CommandPalette):
            self.pop_screen()

    def _repaint_at_current_size(self) -> None:
        """Repaint everything in the terminal's current size.

        If two resize signals arrive in a row, the second handler may interrupt the first. The older size is then
        reported last, and would remain in effect.
        """
        size = None if self.is_headless else current_size()
        if size is not None and size != self.size:
            self.post_message(Resize(Size(*size), Size(*size)))
        else:
            self._paint_all(None)

    def on_unmount(self) -> None:
        """Stop watching the terminal."""
        self._watch.stop()
        gc.unfreeze()

    async def run_async(self, **options: Any) -> int | None:
        """Run until the screen is closed and all worker threads have ended, possibly after their current tensor.

        Exiting while a thread is still closing HDF5 files would crash or hang.
        """
        with ThreadPoolExecutor(_THREADS, "qdebug") as threads, short_switches():
            asyncio.get_running_loop().set_default_executor(threads)
            code = await super().run_async(**options)
            timer = ThreadTimer(_PATIENCE_SECONDS, print_waiting)
            timer.start()
            try:
                threads.shutdown()
            finally:
                timer.cancel()
        return code

    async def action_quit(self) -> None:
        """Quit with exit code 0. Textual's own action, which ctrl+q also runs, has no exit code."""
        self.exit(0)

    def action_interrupt(self) -> None:
        """Quit with the exit code of a program that Ctrl-C ended."""
        self.exit(INTERRUPTED)

    def action_theme(self) -> None:
        """Switch the theme. Report the new theme, or why it cannot be changed."""
        if self.no_color:
            return self._main.say("NO_COLOR is set: there are no colours to change")
        position = PALETTES.index(self.look.palette)
        self.look.palette = PALETTES[(position + 1) % len(PALETTES)]
        self.theme = self.look.palette.name
        self._paint_all(None)
        return self._main.say(f"{self.look.palette.title} colours")

    def action_suspend_process(self) -> None:
        """Suspend the program."""
        self._main.say("resumed")
        super().action_suspend_process()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """List the commands of the palette: every key, actions without a key, and all metrics."""
        if screen is not self._main:
            return
        for views, row in all_key_rows():
            if row.help == VERDICT:  # `COMMANDS_WITHOUT_KEY` lists it for every screen
                continue
            place_text = f"on {views}" if views else "on every screen"
            yield SystemCommand(row.help, f"key {row.label}, {place_text}", partial(self._run_key_action, row))
        for action, description in COMMANDS_WITHOUT_KEY:
            yield SystemCommand(description, "no key", partial(self._main.perform, action))
        for metric in METRIC_CHOICES:
            description = f"metric {metric_title(metric)}: show it in the list and the profile"
            yield SystemCommand(description, "key d walks them", partial(self._main.perform, f"metric('{metric}')"))

    async def _run_key_action(self, row: KeyRow) -> None:
        """Run a key's action in the view that binds it."""
        active_binding = self._main.active_bindings.get(row.keys[0])
        if active_binding is not None and active_binding.binding.action == row.action:
            await self._main.perform(row.action, active_binding)
        else:
            self._main.say(f"{row.label} does nothing on the screen {self._main.view}: {row.help}")

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        self.exit(2)


def _split_alt_key(event: Key | Paste, *, types_text: bool) -> Iterator[Key | Paste]:
    """Yield an event, or two keys if Textual has read escape and another key in one burst as an alt combination.

    Args:
        event: The key.
        types_text: Whether it is typed into a prompt, where such a character may be intended.
    """
    character = None
    if isinstance(event, Key) and event.character and event.key.startswith("alt+"):
        character = event.character
    elif isinstance(event, Key) and event.character and not types_text:
        character = _ALT_DIGITS.get(event.character)
    if character is not None:
        yield Key("escape", "\x1b")
        yield Key(character, character)
    else:
        yield event
