"""Each key as the bytes that a plain terminal sends for it, through a pseudo-terminal; what comes back is read by pyte.

A pilot presses keys by name and so cannot find a name that no terminal produces.
"""

import os
import pty
import select
import struct
import sys
import time
from fcntl import ioctl
from pathlib import Path
from subprocess import Popen
from termios import TIOCSWINSZ

import pyte
import pytest

from qdebug.tui.keys import KEYS

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
}
COLUMNS, LINES = 80, 24
PROGRAM = Path(__file__).with_name("fake_program.py")


class Terminal:
    """A program on a pseudo-terminal, and what it has drawn."""

    def __init__(self, command):
        self.screen = pyte.Screen(COLUMNS, LINES)
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
        self._stream.feed(data.replace(b"\x1b[?2026$p", b"").replace(b"\x1b[>", b"\x1b["))
        return bool(data)

    def wait(self, condition, seconds=20.0):
        """Read until a condition on the screen's text holds."""
        end = time.monotonic() + seconds
        while not condition(self.text):
            if time.monotonic() > end:
                return False
            self.read(0.05)
        return True

    def settle(self):
        while self.read(0.12):
            pass
        return self.image

    def press(self, data):
        """Send a key and wait until all of its effect is drawn; tell whether there was one."""
        before = self.settle()
        self.send(data)
        changed = self.wait(lambda _: self.image != before, seconds=5)
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
        os.close(self._master)


@pytest.fixture
def terminal():
    running = []

    def start(command):
        running.append(Terminal(command))
        return running[-1]

    yield start
    for each in running:
        each.close()


def sent_for(key):
    return BYTES.get(key) or key.encode("ascii")


def test_every_key_of_the_table_is_one_that_a_plain_terminal_sends():
    for row in KEYS:
        for key in row.keys:
            assert key in BYTES or (len(key) == 1 and key.isalpha()), key


def test_each_key_changes_the_screen_or_says_why_not(terminal):
    program = terminal([sys.executable, str(PROGRAM)])
    assert program.wait(lambda text: "VERDICT The backend diverges" in text), program.text
    dead = []
    for row in KEYS:
        for key in row.keys:
            if row.action == "leave":
                continue
            program.press(b"k" if key in {"j", "G", "end"} else b"j")  # so that no two keys in a row say the same
            if not program.press(sent_for(key)):
                dead.append(key)
            if row.action in {"search", "help", "palette"}:
                program.press(b"\x1b")
    assert not dead


def test_leaving_restores_the_terminal(terminal):
    program = terminal([sys.executable, str(PROGRAM)])
    assert program.wait(lambda text: "VERDICT" in text)
    program.send(b"q")
    program.wait(lambda _: program.process.poll() is not None, seconds=10)
    assert program.process.poll() == 0
    while program.read(0.2):
        pass
    assert not program.screen.cursor.hidden


def test_ctrl_c_leaves_with_its_own_code(terminal):
    program = terminal([sys.executable, str(PROGRAM)])
    assert program.wait(lambda text: "VERDICT" in text)
    program.send(b"\x03")
    program.wait(lambda _: program.process.poll() is not None, seconds=10)
    assert program.process.poll() == 130
