"""The program on a pseudo-terminal: how it starts, stops and ends, and bytes that come in bursts, parts and pastes."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("fake_program.py")


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


def test_suspending_stops_the_program_and_resuming_draws_it_again(terminal):
    program = terminal([sys.executable, str(PROGRAM)])
    assert program.wait(lambda text: "VERDICT" in text)
    program.settle()
    program.send(b"\x1a")
    stopped = program.wait(lambda _: Path(f"/proc/{program.process.pid}/stat").read_text().split()[2] == "T", 10)
    assert stopped
    os.kill(program.process.pid, signal.SIGCONT)
    program.screen.reset()
    assert program.wait(lambda text: "block0/qlinearadd_1" in text), program.text
    program.send(b"j")
    assert program.wait(lambda text: "block2/relu_10: diverged" in text), program.text


@pytest.fixture
def program(terminal):
    """Return the interface on a terminal, all compared, on the list of nodes."""
    running = terminal([sys.executable, str(PROGRAM), "nodes"])
    assert running.wait(lambda text: "VERDICT" in text)
    running.settle()
    return running


def test_text_is_pasted_where_a_line_asks_and_nowhere_else(program):
    program.send(b"\x1b[200~q\rqWGi\x1b[201~")
    assert program.wait(lambda text: "nothing asks for text" in text), program.text
    assert program.process.poll() is None
    program.press(b"f")
    program.send(b"\x1b[200~op=relu\nq\x1b[201~")
    assert program.wait(lambda text: "6 of 26 nodes" in text), program.text
    program.press(b"\r")
    assert "filter" in program.text
    assert program.process.poll() is None


def test_a_key_whose_bytes_come_in_parts_is_one_key(program):
    for part in (b"\x1b", b"[", b"B"):
        program.send(part)
        time.sleep(0.02)
    assert program.wait(lambda text: "block0/qlinearadd_1: within" in text), program.text


def test_a_mouse_that_is_left_to_the_terminal_moves_nothing(program):
    program.send(b"\x1b[<0;5;9M\x1b[<0;5;9m" * 2 + b"j")
    assert program.wait(lambda text: "block0/qlinearadd_1: within" in text), program.text


def test_keys_that_come_all_at_once_are_all_taken(program):
    program.send(b"jjjj" + b"\x1b[B" * 4 + b"k" + b"\x1b[A")
    assert program.wait(lambda text: "block1/relu_6: within" in text), program.text


def test_sizes_that_change_all_the_time_leave_a_whole_screen(program):
    for columns, lines in ((200, 60), (1, 1), (39, 9), (60, 18), (300, 5), (41, 50), (80, 24)) * 3:
        program.resize(columns, lines)
        program.send(b"j")
    program.send(b"2")
    assert program.wait(lambda text: "this is the screen nodes" in text), program.text
    assert program.wait(lambda text: text.splitlines()[1].startswith(" 1 over")), program.text
    assert program.wait(lambda text: "enter open" in text.splitlines()[-1]), program.text
    assert program.process.poll() is None


def test_the_end_of_the_terminal_ends_the_program(program):
    program.hang_up()
    program.process.wait(10)
    assert program.process.poll() is not None


def test_a_terminal_that_is_gone_without_a_word_ends_the_program(program):
    program.break_off()
    assert program.process.wait(10) in {130, 120}  # 120: Python had something left to print, and nowhere to


def test_a_terminal_that_is_gone_before_anything_is_drawn_ends_the_program(terminal):
    """Its size is then told in two ways, and the screen was laid out for the one and the other without end."""
    program = terminal([sys.executable, str(PROGRAM), "nodes"])
    program.break_off()
    assert program.process.wait(60) in {130, 120}


def test_what_is_typed_faster_than_a_line_opens_goes_into_the_line(program):
    program.send(b"/q_17\r")
    assert program.wait(lambda text: "no match" in text), program.text
    program.send(b"fop=relu\r")
    assert program.wait(lambda text: "6 of 26" in text.splitlines()[-2]), program.text
    assert "1 overview 2 nodes" in program.text
    assert program.process.poll() is None


@pytest.mark.parametrize(
    ("burst", "node", "said"),
    [
        (b"fop=relu\rjj", "block2/relu_10", "line 3 of 6 shown of 26"),
        (b"fop=relu\rjF", "block1/relu_6", "filter 'op=relu' cleared"),
        (b"/relu\rnn", "block2/relu_10", "match 3 of 6"),
        (b"2/relu\r/conv\rn", "block2/qlinearconv_8", "match 3 of 6"),
        (b"fop=relu\r/_14\r", "block3/relu_14", "1 match"),
    ],
)
def test_keys_in_one_burst_with_a_line_do_what_they_do_one_by_one(program, burst, node, said):
    program.send(burst)
    assert program.wait(lambda text: said in text.splitlines()[-2], seconds=10), program.text
    program.settle()
    assert node in next(line for line in program.screen.display if line.startswith("▸"))


def test_quitting_gives_the_terminal_back_before_the_tensor_at_hand_is_done(terminal):
    program = terminal([sys.executable, str(PROGRAM), "nodes", "3"])
    assert program.wait(lambda text: "SO FAR" in text)
    program.settle()
    program.send(b"q")
    assert program.wait(lambda _: b"\x1b[?1049l" in program.written)
    assert program.process.poll() is None
    assert program.wait(lambda _: program.process.poll() is not None)
    assert program.process.poll() == 0
    while program.read(0.2):
        pass
    assert program.written.count(b"\x1b[?1049l") == 1
    after = program.written.split(b"\x1b[?1049l")[1]
    assert b"\x1b[?1049h" not in after
    for switched_off in (b"\x1b[?25h", b"\x1b[?1004l"):
        assert switched_off in program.written
    assert not program.screen.cursor.hidden


@pytest.fixture
def slowly_opened(terminal):
    """Return the interface on a terminal, whose recordings are opened only after some time."""
    return terminal([sys.executable, str(PROGRAM), "nodes", "0", "1.5"])


@pytest.mark.parametrize("early", [b"q", b"!jjq", b"\x03", b"!/q\x03"])
def test_quitting_before_the_recordings_are_open_quits(slowly_opened, early):
    if b"\x03" in early:  # before, it is a signal, which needs a terminal of the program's own
        assert slowly_opened.wait(lambda text: "1 over" in text), slowly_opened.text
    slowly_opened.send(early)
    slowly_opened.wait(lambda _: slowly_opened.process.poll() is not None, seconds=10)
    assert slowly_opened.process.poll() == (130 if early.endswith(b"\x03") else 0)


def test_an_escape_and_a_key_in_one_burst_are_two_keys(program):
    program.press(b"/relu")
    program.send(b"\x1bj")
    assert program.wait(lambda text: "#1 " in text.splitlines()[-2]), program.text
    program.settle()
    assert "qlinearadd_1" in next(line for line in program.screen.display if line.startswith("▸"))


@pytest.mark.parametrize(
    "key", ["K", "é", "\x12", *(pytest.param(k, marks=pytest.mark.slow) for k in ("J", "=", "#", "u"))]
)
def test_a_key_that_does_nothing_says_so(program, key):
    program.send(key.encode())
    name = {"\x12": "ctrl+r"}.get(key, key)
    assert program.wait(lambda text: f" {name} does nothing here; ? lists the keys" in text), program.text


def test_letters_in_a_line_that_are_no_keys_are_letters(program):
    program.send(b"/XoB")
    assert program.wait(lambda text: "no match" in text), program.text
    assert "does nothing" not in program.text
