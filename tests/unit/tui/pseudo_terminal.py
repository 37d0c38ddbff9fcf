"""A program on a pseudo-terminal; what it draws is read by pyte."""

import os
import pty
import re
import select
import signal
import struct
import time
from fcntl import ioctl
from subprocess import Popen
from termios import TIOCSWINSZ

import pyte

COLUMNS, LINES = 80, 24
SEQUENCE = re.compile(rb"(.*?)((?:\x1b(?:\[[0-?]*[ -/]*)?)?)", re.DOTALL)
"""What has been read, and the beginning of an escape sequence at its end: the rest comes with the next read."""


class Terminal:
    """A program on a pseudo-terminal, and what it has drawn."""

    def __init__(self, command):
        self.screen = pyte.Screen(COLUMNS, LINES)
        self.written = b""
        self._part = b""
        self._stream = pyte.ByteStream(self.screen)
        self._master, slave = pty.openpty()
        ioctl(slave, TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        plain = {key: value for key, value in os.environ.items() if key not in {"NO_COLOR", "COLUMNS", "LINES"}}
        self.process = Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**plain, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"},
            start_new_session=True,
        )
        os.close(slave)

    def resize(self, columns, lines):
        """Return the terminal another size; what is drawn for it comes later."""
        ioctl(self._master, TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        os.kill(self.process.pid, signal.SIGWINCH)
        self.screen.resize(lines, columns)

    def hang_up(self):
        """Close the terminal, as a connection that breaks does."""
        os.killpg(self.process.pid, signal.SIGHUP)

    def break_off(self):
        """Close the other end of the terminal; nobody tells the program."""
        os.close(self._master)
        self._master = -1

    def send(self, data):
        os.write(self._master, data)

    def read(self, seconds):
        """Take in what is drawn for some time; tell whether there was anything."""
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:  # the program has ended
            return False
        self.written += data
        whole, self._part = SEQUENCE.fullmatch(self._part + data).groups()
        self._stream.feed(whole.replace(b"\x1b[?2026$p", b"").replace(b"\x1b[>", b"\x1b["))  # pyte takes neither
        return bool(data)

    def wait_for_verdict(self, **limits):
        """Wait until the screen says how a comparison came out; tell whether it did."""
        return self.wait(lambda text: re.search(r"\b(PASS|FAIL|INCOMPLETE)\b", text) is not None, **limits)

    def wait(self, condition, seconds=60.0):
        """Read until a condition on the screen's text holds."""
        end = time.monotonic() + seconds
        while not condition(self.text):
            if time.monotonic() > end:
                return False
            self.read(0.05)
        return True

    def settle(self, seconds=10.0):
        """Read until nothing more is drawn; a program that never stops to draw is left after some time."""
        end = time.monotonic() + seconds
        while self.read(0.05) and time.monotonic() < end:
            pass
        return self.image

    def press(self, data, seconds=30):
        """Send a key and wait until all of its effect is drawn; tell whether there was one."""
        before = self.settle()
        self.send(data)
        changed = self.wait(lambda _: self.image != before, seconds=seconds)
        self.settle()
        return changed

    @property
    def text(self):
        return "\n".join(self.screen.display)

    @property
    def image(self):
        """Characters and colours of every cell."""
        return tuple(
            tuple((cell.data, cell.fg, cell.bg) for cell in (self.screen.buffer[y][x] for x in range(COLUMNS)))
            for y in range(LINES)
        )

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        if self._master >= 0:
            os.close(self._master)
