"""The Textual application: it starts the reader thread, passes its news on, and ends when it fails."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from textual.app import ScreenStackError, SystemCommand
from textual.binding import Binding
from textual.command import CommandPalette
from textual.events import Event, Key, Paste, Resize
from textual.geometry import Size
from textual.message import Message
from textual.screen import Screen
from textual.timer import Timer
from textual.widget import Widget

from qdebug.present.rows import metric_title
from qdebug.tui.drawing.glyphs import UNICODE, GlyphSet
from qdebug.tui.drawing.look import Look
from qdebug.tui.drawing.palette import DARK, PALETTES, Palette
from qdebug.tui.keys import KEYS, key_label
from qdebug.tui.nodes.rows import METRIC_CHOICES
from qdebug.tui.pages.table import load_pages, load_replaying_pages
from qdebug.tui.reading.messages import Event as ReaderEvent
from qdebug.tui.reading.messages import Failed, NamesLoaded, Opening
from qdebug.tui.reading.reader import Reader
from qdebug.tui.screen.desk import StartPlace
from qdebug.tui.screen.host import ScreenHost
from qdebug.tui.screen.main_screen import MainScreen
from qdebug.tui.screen.other_screens import CommandScreen
from qdebug.tui.screens import LEAST_HEIGHT, LEAST_WIDTH
from qdebug.tui.terminal import INTERRUPTED, TerminalWatch, size_now

__all__ = ["LIMITS_FILE", "QdebugApp"]

_SETTLE_SECONDS = 0.1
"""How long a terminal's size has to stay to count as the one that it has now."""

LIMITS_FILE = Path("qdebug-limits.toml")
"""Where acknowledgements go if no limits file is given and the project has none."""

MAP_FILE = Path("qdebug-map.toml")
"""Where pairs made by hand go if no map is given."""


class News(Message):
    """An event of the reader thread.

    Args:
        event: What happened.
    """

    def __init__(self, event: ReaderEvent) -> None:
        super().__init__()
        self.event = event


class QdebugApp(ScreenHost):
    """Walks through the comparison of a reference with one or more backends.

    Args:
        openings: Each opens and aligns the reference and a backend, on the reader thread.
        titles: What the two recordings of each are called.
        begin: Where to start.
        glyphs: Characters to draw with.
        palette: Colours to begin with.
        limits_file: Where acknowledgements are written.
        map_file: Where pairs made by hand are written.
        limits_apart: Whether that file is not in force unless it is asked for.
        command_words: The command that opens the same recordings again, without their files.
        files: The reference's file, and each backend's.
    """

    TITLE = "qdebug"
    ENABLE_COMMAND_PALETTE = True
    BINDINGS = [Binding("ctrl+c", "interrupt", show=False, priority=True)]  # noqa: RUF012  as Textual declares it

    def __init__(
        self,
        openings: Sequence[Opening],
        *,
        titles: Sequence[tuple[str, str]] = (("reference", "backend"),),
        begin: StartPlace | None = None,
        glyphs: GlyphSet = UNICODE,
        palette: Palette = DARK,
        limits_file: Path = LIMITS_FILE,
        limits_apart: bool = True,
        map_file: Path = MAP_FILE,
        command_words: Sequence[str] = ("qdebug", "tui"),
        files: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.failure: BaseException | None = None
        self._watch = TerminalWatch(lambda: self.call_later(self.exit, INTERRUPTED))
        self._settling: Timer | None = None
        self.limits_file, self._limits_apart, self.map_file = limits_file, limits_apart, map_file
        self._command_words = tuple(command_words)
        self._files = tuple(files) or ("REF", *("BACKEND" for _ in openings))
        self.look = Look(glyphs=glyphs, palette=palette)
        for each in PALETTES:
            self.register_theme(each.theme())
        self.theme = self.look.palette.name
        self._reader = Reader(
            openings, lambda event: self.post_message(News(event)), load=load_pages, load_later=load_replaying_pages
        )
        begin = StartPlace() if begin is None else begin
        self._main = MainScreen(self.look, titles=titles, begin=begin, ask=self._reader.request, fail=self._fail)

    def command_words(self, *, accepted: bool, backend: int = 0) -> Sequence[str]:
        """Return the command that opens the same recordings again, as they are judged here.

        Args:
            accepted: Whether any node is accepted.
            backend: The backend that is shown, which comes first then.
        """
        named = ("--limits", str(self.limits_file)) if accepted and self._limits_apart else ()
        reference, *backends = self._files
        others = [file for at, file in enumerate(backends) if at != backend]
        return (*self._command_words, *named, reference, backends[backend], *others)

    async def on_event(self, event: Event) -> None:
        """Do each key on the screen to its end before the next one is looked at; leave all else to Textual.

        Textual puts a key into the queue of whoever has the focus when it comes. Of keys that come in one burst, as
        over a slow line, some would then be done by a line that is about to open or close.
        """
        if not isinstance(event, Key | Paste) or event.is_forwarded:
            await super().on_event(event)
            return
        for each in _apart(event):
            if self.screen is not self._main or (isinstance(each, Key) and each.key in {"ctrl+c", "ctrl+q"}):
                await super().on_event(each)
            else:
                self.app_focus = True  # as Textual takes it from a key
                await self._main.do(each)

    def files(self, backend: int) -> tuple[str, str]:
        """Return the reference's file and that of a backend."""
        return self._files[0], self._files[1 + backend]

    def get_default_screen(self) -> Screen[None]:
        """Start with the only screen there is."""
        return self._main

    def on_mount(self) -> None:
        """Start reading."""
        self._reader.start()
        if not self.is_headless:
            self._watch.start()
        self.app_resume_signal.subscribe(self, self._paint_all)

    def _paint_all(self, _: object) -> None:
        """Paint everything: after a suspension the terminal shows none of what was painted."""
        with suppress(ScreenStackError):  # at the end there is no screen any more
            for widget in (self.screen, *self.screen.walk_children(Widget)):
                widget.refresh()

    def action_command_palette(self) -> None:
        """Open the palette; Textual binds its key before any screen can."""
        if self.size.width < LEAST_WIDTH or self.size.height < LEAST_HEIGHT:
            self._main.say("the terminal is too small for a palette")
        elif not isinstance(self.screen, CommandPalette):
            self.push_screen(CommandScreen(id="--command-palette"))

    def on_resize(self, event: Resize) -> None:
        """Paint everything once sizes stand still; close the palette where there is no room for it.

        A size that comes back before it was looked at counts as no change, but the terminal has lost what it cut off.
        The palette's list, never laid out, cannot be moved in.
        """
        if self._settling is not None:
            self._settling.stop()
        self._settling = self.set_timer(_SETTLE_SECONDS, self._settled)
        small = event.size.width < LEAST_WIDTH or event.size.height < LEAST_HEIGHT
        if small and isinstance(self.screen, CommandPalette):
            self.pop_screen()

    def _settled(self) -> None:
        """Paint everything in the size that the terminal has now.

        Of two signals in a row the handler of the first may be interrupted by that of the second: the older size is
        then told last, and would stay.
        """
        now = None if self.is_headless else size_now()
        if now is not None and now != self.size:
            self.post_message(Resize(Size(*now), Size(*now)))
        else:
            self._paint_all(None)

    def on_unmount(self) -> None:
        """Let the reader end after the tensor at hand."""
        self._reader.stop()
        self._watch.stop()
        gc.unfreeze()

    def join_reader(self, seconds: float | None = None) -> bool:
        """Wait until the reader thread has ended and closed both recordings; tell whether it has.

        A program that ends while a thread still closes HDF5 files crashes or hangs.

        Args:
            seconds: How long to wait; None for as long as it takes.
        """
        self._reader.stop()
        if self._reader.ident is not None:
            self._reader.join(seconds)
        return not self._reader.is_alive()

    async def on_news(self, news: News) -> None:
        """Pass an event on, or end."""
        event = news.event
        if isinstance(event, Failed) and (event.fatal or not self._main.others_left(event.backend_at)):
            self._fail(event.error)
        else:
            self._main.take(event)
        if isinstance(event, NamesLoaded):
            self.call_after_refresh(self._reader.shown)

    def prefer(self, backend: int) -> None:
        """Compare this backend before the others."""
        self._reader.prefer(backend)

    async def action_quit(self) -> None:
        """End as the key of the table does; Textual binds a key to this before any screen can."""
        self.exit(0)

    def action_interrupt(self) -> None:
        """End as Ctrl-C ends a program."""
        self.exit(INTERRUPTED)

    def next_theme(self) -> str:
        """Change the colours; say what they are now, or why they stay."""
        if self.no_color:
            return "NO_COLOR is set: there are no colours to change"
        at = PALETTES.index(self.look.palette)
        self.look.palette = PALETTES[(at + 1) % len(PALETTES)]
        self.theme = self.look.palette.name
        return f"{self.look.palette.title} colours"

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """List the commands of the palette: the key table by name, and each metric."""
        if screen is not self._main:
            return
        for row in KEYS:
            keys = " ".join(key_label(key) for key in row.keys)
            yield SystemCommand(row.help, f"{row.group}, key {keys}", partial(self._main.perform, row))
            for metric in METRIC_CHOICES if row.action == "views.metric" else ():
                said = f"metric {metric_title(metric)}: show it in the list and the profile"
                chosen = partial(self._main.perform, replace(row, argument=metric))
                yield SystemCommand(said, f"{row.group}, key {keys} walks them", chosen)

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        self.exit(2)


def _apart(event: Key | Paste) -> Iterator[Key | Paste]:
    """Yield an event, or the two keys that Textual takes for one with alt: escape and another in one burst."""
    if isinstance(event, Key) and event.key.startswith("alt+") and event.character:
        yield Key("escape", "\x1b")
        yield Key(event.character, event.character)
    else:
        yield event
