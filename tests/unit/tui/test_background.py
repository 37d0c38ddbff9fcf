import os
import pty
import sys
import threading

import pytest

from qdebug.tui import background


@pytest.mark.parametrize(
    ("answer", "bright"),
    [
        (b"\x1b]11;rgb:ffff/ffff/ffff\x07\x1b[?62c", 1.0),
        (b"\x1b]11;rgb:0000/0000/0000\x1b\\", 0.0),
        (b"\x1b]11;rgba:ff/00/00/ff\x07", 0.2126),
        (b"\x1b]11;rgb:f/f/0\x07", 0.9278),
        (b"\x1b[?62c", None),
        (b"", None),
        (b"\x1b]11;rgb:zz/00/00\x07", None),
    ],
)
def test_the_brightness_is_read_out_of_the_answer(answer, bright):
    found = background.parse_colour(answer)
    assert found == (None if bright is None else pytest.approx(bright))


@pytest.fixture
def terminal(monkeypatch):
    """Stand in for a terminal; what it answers is told."""
    master, slave = pty.openpty()
    opened = [os.fdopen(slave, "rb", 0, closefd=False), os.fdopen(os.dup(slave), "wb", 0)]
    monkeypatch.setattr(sys, "__stdin__", opened[0])
    monkeypatch.setattr(sys, "__stderr__", opened[1])

    def answer(data):
        def run():
            seen = b""
            while b"\x1b[c" not in seen:
                seen += os.read(master, 100)
            os.write(master, data)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    yield answer
    for each in opened:
        each.close()
    os.close(slave)
    os.close(master)


@pytest.mark.parametrize(
    ("answer", "light"),
    [
        (b"\x1b]11;rgb:fafa/fafa/f0f0\x1b\\\x1b[?1;2c", True),
        (b"\x1b]11;rgb:1111/1111/1111\x1b\\\x1b[?1;2c", False),
        (b"\x1b[?1;2c", False),
    ],
)
def test_the_terminal_is_asked(terminal, answer, light):
    thread = terminal(answer)
    assert background.is_light() is light
    thread.join(5)


def test_a_terminal_that_says_nothing_is_taken_to_be_dark(terminal):
    assert background.is_light() is False


def test_without_a_terminal_nobody_is_asked(monkeypatch, tmp_path):
    with (tmp_path / "x").open("w+") as file:
        monkeypatch.setattr(sys, "__stdin__", file)
        assert background.is_light() is False
    monkeypatch.setattr(sys, "__stdin__", None)
    assert background.is_light() is False
