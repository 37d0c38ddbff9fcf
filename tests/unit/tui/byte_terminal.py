"""An application of this process on a pseudo-terminal of its own, driven by the bytes that a plain terminal sends.

Bytes go in where a keyboard's do, and what comes out is drawn by pyte: Textual's own driver stands between. Nothing is
waited for by time: a mark sent after the keys, and one written after all they did, say when both ends are through.
What never comes ends the test by a limit of time, and a program that does not end is told where it stands.
"""

import asyncio
import os
import pty
import signal
import struct
import sys
from contextlib import ExitStack, suppress
from fcntl import ioctl
from termios import TIOCSWINSZ
from threading import Thread
from unittest.mock import patch

import pyte
from textual.drivers.linux_driver import LinuxDriver
from textual.events import AppFocus

BYTES = {
    "up": b"\x1b[A",
    "down": b"\x1b[B",
    "right": b"\x1b[C",
    "left": b"\x1b[D",
    "home": b"\x1b[H",
    "end": b"\x1b[F",
    "pageup": b"\x1b[5~",
    "pagedown": b"\x1b[6~",
    "enter": b"\r",
    "escape": b"\x1b",
    "backspace": b"\x7f",
    "ctrl+d": b"\x04",
    "ctrl+u": b"\x15",
    "ctrl+p": b"\x10",
    "slash": b"/",
    "comma": b",",
    "full_stop": b".",
    "exclamation_mark": b"!",
    "question_mark": b"?",
    "left_square_bracket": b"[",
    "right_square_bracket": b"]",
    "left_curly_bracket": b"{",
    "right_curly_bracket": b"}",
    "left_parenthesis": b"(",
    "right_parenthesis": b")",
    "less_than_sign": b"<",
    "greater_than_sign": b">",
    "apostrophe": b"'",
    "at": b"@",
    "circumflex_accent": b"^",
    "plus": b"+",
    "minus": b"-",
    "semicolon": b";",
    "colon": b":",
    "tab": b"\t",
    "shift+tab": b"\x1b[Z",
    "ctrl+z": b"\x1a",
    "space": b" ",
    "delete": b"\x1b[3~",
    "f1": b"\x1bOP",
    "ctrl+a": b"\x01",
    "ctrl+e": b"\x05",
    "ctrl+k": b"\x0b",
    "ctrl+w": b"\x17",
}
"""What a terminal without an extended keyboard protocol sends for a key that is no letter or digit."""

FOCUS = b"\x1b[I"
"""Sent by a terminal whose window gets the focus, which it is taken to have: it changes nothing, and comes in order."""

MARK = b"\x1b]7777;\x07"
"""Written after all that was drawn; no terminal knows it."""

READY = b"\x1b[?2004h"
"""Written when the driver has begun to listen to single keys."""

SIGNALS = (signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)


def sent_for(key):
    """Return the bytes of a key."""
    return BYTES.get(key) or key.encode("ascii")


class ByteTerminal:
    """A terminal with an application on it.

    Args:
        columns: Width of the terminal.
        lines: Its height.
    """

    keys = BYTES

    def __init__(self, columns=80, lines=24):
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self._ready, self._focused, self._marked = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._drawn = []

    async def run(self, make, act):
        """Run an application until a coroutine function of it, its pilot, has ended.

        Args:
            make: Makes the application; it is asked for its terminal already then.
            act: What is done meanwhile.

        Returns:
            What `act` gives.
        """
        loop = asyncio.get_running_loop()
        found = []

        async def then(pilot):
            self._pilot = pilot
            await asyncio.wait_for(self._ready.wait(), 20)
            await self.send(b"")
            found.append(await act(pilot))
            pilot.app.exit()

        with ExitStack() as undo:
            self._attach(undo)
            reading = Thread(target=self._take, args=(loop, os.dup(self._master)), daemon=True)
            reading.start()  # else the thread that draws is held up
            app = make()
            app.driver_class = self._driver(loop)
            await app.run_async(mouse=False, auto_pilot=then)
        reading.join(20)
        assert not reading.is_alive()
        return found[0]

    def _attach(self, undo):
        """Make the terminal that of this process."""
        self._master, slave = pty.openpty()
        undo.callback(os.close, self._master)
        ioctl(slave, TIOCSWINSZ, struct.pack("HHHH", self.screen.lines, self.screen.columns, 0, 0))
        for name, mode in (("__stdin__", "r"), ("__stdout__", "w"), ("__stderr__", "w")):
            file = undo.enter_context(os.fdopen(os.dup(slave), mode, encoding="utf-8"))
            undo.enter_context(patch.object(sys, name, file))
        os.close(slave)
        size = {"COLUMNS": str(self.screen.columns), "LINES": str(self.screen.lines)}
        undo.enter_context(patch.dict(os.environ, {"TERM": "xterm-256color", **size}))
        os.environ.pop("NO_COLOR", None)
        for number in SIGNALS:
            undo.callback(signal.signal, number, signal.getsignal(number))

    def _driver(self, loop):
        terminal = self

        class Driver(LinuxDriver):
            def process_message(self, message):
                super().process_message(message)
                if isinstance(message, AppFocus):
                    asyncio.run_coroutine_threadsafe(terminal._after_keys(), loop=loop)

        return Driver

    async def _after_keys(self):
        """Take note once the application has done what was sent before the mark: all of it waits in one queue."""
        self._pilot.app.call_later(self._focused.set)

    def _take(self, loop, master):
        """Read what is written to the end, and close the descriptor here alone: it may soon be another terminal's."""
        with suppress(OSError, RuntimeError):  # the application is gone, and its loop with it
            self._take_all(loop, master)
        with suppress(OSError):
            while os.read(master, 1 << 16):  # whoever still writes must not wait for ever
                pass
        os.close(master)

    def _take_all(self, loop, master):
        read = b""
        while data := os.read(master, 1 << 16):
            read += data
            if READY in read:
                loop.call_soon_threadsafe(self._ready.set)
            *drawn, read = read.split(MARK)
            if drawn:
                self._drawn.append(b"".join(drawn))
                loop.call_soon_threadsafe(self._marked.set)

    async def send(self, data):
        """Send bytes; wait until everything that they do to the screen is drawn."""
        self._focused.clear()
        os.write(self._master, data + FOCUS)
        await asyncio.wait_for(self._focused.wait(), 10)
        for _ in range(3):  # the key, what it does, what that does
            await self._pilot.pause(0)
        await self.drawn()

    def type(self, data):
        """Send bytes, and wait for nothing."""
        os.write(self._master, data)

    async def resize(self, columns, lines):
        """Return the terminal another size; wait until all is drawn for it."""
        ioctl(self._master, TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        os.environ |= {"COLUMNS": str(columns), "LINES": str(lines)}
        self.screen.resize(lines, columns)
        os.kill(os.getpid(), signal.SIGWINCH)
        await self.send(b"")

    async def press(self, *keys):
        """Send the bytes of some keys at once, and wait as `send` does."""
        await self.send(b"".join(map(sent_for, keys)))

    async def still(self):
        """Wait until what has changed without a key is drawn; give what is shown then."""
        await self._pilot.pause(0)
        await self.drawn()
        return self.image

    async def drawn(self):
        """Wait until what is painted is on the terminal."""
        self._marked.clear()
        self._pilot.app._driver.write(MARK.decode())
        await asyncio.wait_for(self._marked.wait(), 10)
        data, self._drawn = b"".join(self._drawn), []
        self._stream.feed(data.replace(b"$p", b"").replace(b"\x1b[>", b"\x1b["))  # pyte takes neither

    @property
    def text(self):
        """What can be read."""
        return "\n".join(self.screen.display)

    @property
    def image(self):
        """Characters and colours of every cell."""
        columns, buffer = range(self.screen.columns), self.screen.buffer
        rows = [[buffer[line][column] for column in columns] for line in range(self.screen.lines)]
        return [[(cell.data, cell.fg, cell.bg, cell.bold) for cell in row] for row in rows]
