"""The program on a pseudo-terminal: how it starts, stops and ends, and bytes that come in bursts, parts and pastes."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from textual import constants

PROGRAM = Path(__file__).with_name("fake_program.py")


def test_leaving_restores_the_terminal(terminal):
    program = terminal([sys.executable, str(PROGRAM)])
    assert program.wait_for_verdict()
    program.send(b"q")
    program.wait(lambda _: program.process.poll() is not None, seconds=10)
    assert program.process.poll() == 0
    while program.read(0.2):
        pass
    assert not program.screen.cursor.hidden


def test_ctrl_c_leaves_with_its_own_code(terminal):
    program = terminal([sys.executable, str(PROGRAM)])
    assert program.wait_for_verdict()
    program.send(b"\x03")
    program.wait(lambda _: program.process.poll() is not None, seconds=10)
    assert program.process.poll() == 130


def test_suspending_stops_the_program_and_resuming_draws_it_again(terminal):
    program = terminal([sys.executable, str(PROGRAM)])
    assert program.wait_for_verdict()
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
    assert running.wait_for_verdict()
    running.settle()
    return running


@pytest.fixture
def typed(byte_terminal, make_app, make_session, settle, monkeypatch):
    """Return a function that types bursts of bytes on the list of nodes, and waits for what it is given between them.

    The application runs in this process, on a terminal of its own. Bursts that come late are still parts of one key.
    """
    monkeypatch.setattr(constants, "ESCAPE_DELAY", 60)

    async def run(*steps):
        terminal = byte_terminal()

        async def act(pilot):
            await settle(pilot)
            for step in steps:
                if isinstance(step, bytes):
                    await terminal.send(step)
                    continue
                end = time.monotonic() + 60
                while not step(terminal.text):
                    assert time.monotonic() < end, terminal.text
                    await pilot.pause(0.01)
                    await terminal.still()
            await terminal.still()
            assert pilot.app.is_running
            assert pilot.app.failure is None
            return terminal.text

        return await terminal.run(lambda: make_app(make_session()), act)

    return run


def under_cursor(text):
    """Return the row of the list under the cursor."""
    return next(line for line in text.splitlines() if line.startswith("▸"))


def status(text):
    """Return the line that tells what the last key did."""
    return text.splitlines()[-2]


async def test_text_is_pasted_where_a_line_asks_and_nowhere_else(typed):
    text = await typed(
        b"\x1b[200~q\rqWGi\x1b[201~",
        lambda text: "nothing asks for text" in text,
        b"f",
        b"\x1b[200~op=relu\nq\x1b[201~",
        lambda text: "6 of 26 nodes" in text,
        b"\r",
    )
    assert "filter" in text


async def test_a_key_whose_bytes_come_in_parts_is_one_key(byte_terminal, make_app, make_session, settle, monkeypatch):
    monkeypatch.setattr(constants, "ESCAPE_DELAY", 60)
    terminal = byte_terminal()

    async def act(pilot):
        await settle(pilot)
        for part in (b"\x1b", b"["):
            terminal.type(part)
            await pilot.pause(0.02)
        await terminal.send(b"B")
        return terminal.text

    assert "block0/qlinearadd_1: within" in await terminal.run(lambda: make_app(make_session()), act)


@pytest.mark.parametrize(
    "key", ["up", *(pytest.param(key, marks=pytest.mark.slow) for key in ("down", "right", "left"))]
)
async def test_an_arrow_that_a_slow_line_cuts_behind_its_escape_is_an_arrow(
    byte_terminal, make_app, make_session, settle, monkeypatch, key
):
    """The driver has given the escape up as a key by then: "[" and a letter that follow soon make it an arrow."""
    monkeypatch.setattr(constants, "ESCAPE_DELAY", 0.01)
    monkeypatch.setattr("qdebug.tui.application._ESCAPE_SECONDS", 60)
    whole, cut = byte_terminal(), byte_terminal()

    async def press(pilot, terminal, *parts):
        main = await settle(pilot)
        await terminal.press("j")
        for part in parts[:-1]:
            terminal.type(part)
            await pilot.pause(0.1)
        await terminal.send(parts[-1])
        return main.view, main.message, main.navigator.cursor, terminal.text

    arrow = byte_terminal.keys[key]
    asked = await whole.run(lambda: make_app(make_session()), lambda pilot: press(pilot, whole, arrow))
    given = await cut.run(lambda: make_app(make_session()), lambda pilot: press(pilot, cut, b"\x1b", arrow[1:]))
    assert given == asked


async def test_an_escape_that_nothing_follows_is_done_soon(byte_terminal, make_app, make_session, settle):
    terminal = byte_terminal()

    async def act(pilot):
        main = await settle(pilot)
        await terminal.press("3")
        terminal.type(b"\x1b")
        begun = time.monotonic()
        await settle(pilot, until=lambda main: main.view == "nodes")
        return main.view, time.monotonic() - begun

    view, seconds = await terminal.run(lambda: make_app(make_session()), act)
    assert view == "nodes"
    assert seconds < 5, "it is held for a moment alone"


async def test_keys_that_come_all_at_once_are_all_taken(typed):
    assert "block1/relu_6: within" in await typed(b"jjjj" + b"\x1b[B" * 4 + b"k" + b"\x1b[A")


def test_a_mouse_that_is_left_to_the_terminal_is_not_asked_for(program):
    program.send(b"j")
    assert program.wait(lambda text: "block0/qlinearadd_1: within" in text), program.text
    assert b"?1000h" not in program.written
    assert b"?1003h" not in program.written


def test_sizes_that_change_all_the_time_leave_a_whole_screen(program):
    for columns, lines in ((200, 60), (1, 1), (39, 9), (60, 18), (300, 5), (41, 50), (80, 24)) * 3:
        program.resize(columns, lines)
        program.send(b"j")
    program.send(b"2")
    assert program.wait(lambda text: "this is the screen nodes" in text), program.text
    assert program.wait(lambda text: text.splitlines()[1].startswith(" 1 answer")), program.text
    assert program.wait(lambda text: "enter tensor" in text.splitlines()[-1]), program.text
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


async def test_what_is_typed_faster_than_a_line_opens_goes_into_the_line(typed):
    text = await typed(
        b"/q_17\r", lambda text: "no match" in text, b"fop=relu\r", lambda text: "6 of 26" in status(text)
    )
    assert "1 answer 2 nodes" in text


@pytest.mark.parametrize(
    ("burst", "node", "said"),
    [
        (b"fop=relu\rjj", "block2/relu_10", "line 3 of 6 shown of 26"),
        (b"fop=relu\rj\x7f", "block1/relu_6", "filter 'op=relu' cleared"),
        (b"/relu\rnn", "block2/relu_10", "match 3 of 6"),
        (b"2/relu\r/conv\rn", "block2/qlinearconv_8", "match 3 of 6"),
        (b"fop=relu\r/_14\r", "block3/relu_14", "1 match"),
    ],
)
async def test_keys_in_one_burst_with_a_line_do_what_they_do_one_by_one(typed, burst, node, said):
    assert node in under_cursor(await typed(burst, lambda text: said in status(text)))


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


@pytest.mark.parametrize(
    "early", [b"!jjq", *(pytest.param(each, marks=pytest.mark.slow) for each in (b"\x03", b"q", b"!/q\x03"))]
)
def test_quitting_before_the_recordings_are_open_quits(slowly_opened, early):
    if b"\x03" in early:  # before, it is a signal, which needs a terminal of the program's own
        assert slowly_opened.wait(lambda text: "1 answer" in text), slowly_opened.text
    slowly_opened.send(early)
    slowly_opened.wait(lambda _: slowly_opened.process.poll() is not None, seconds=10)
    assert slowly_opened.process.poll() == (130 if early.endswith(b"\x03") else 0)


def test_an_escape_and_a_key_in_one_burst_are_two_keys(program):
    program.press(b"/relu")
    program.send(b"\x1bj")
    assert program.wait(lambda text: "#1 " in status(text)), program.text
    program.settle()
    assert "qlinearadd_1" in under_cursor(program.text)


@pytest.mark.parametrize(
    "key", ["K", "é", "\x12", *(pytest.param(key, marks=pytest.mark.slow) for key in ("J", "=", "#", "u"))]
)
async def test_a_key_that_does_nothing_says_so(typed, key):
    name = {"\x12": "ctrl+r"}.get(key, key)
    said = f" {name} does nothing here; ? lists the keys"
    assert said in await typed(key.encode(), lambda text: said in text)


async def test_letters_in_a_line_that_are_no_keys_are_letters(typed):
    assert "does nothing" not in await typed(b"/XoB", lambda text: "no match" in text)
