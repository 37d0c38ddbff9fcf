"""Each key as the bytes that a plain terminal sends for it, through a pseudo-terminal; what comes back is read by pyte.

A pilot presses keys by name and so cannot find a name that no terminal produces.
"""

import sys
from pathlib import Path

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


PROGRAM = Path(__file__).with_name("fake_program.py")


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
