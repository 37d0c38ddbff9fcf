"""The entry, with real recordings on a real (pseudo-)terminal."""

import datetime as dt
import os
import signal
import subprocess
import sys
import termios
from pathlib import Path

import numpy as np
import pytest

from qdebug.errors import UsageError
from qdebug.limits.limits_file import acknowledge
from qdebug.recording.recorder import Recorder
from qdebug.tui.app import TuiChoices, _make_opening, run_tui
from qdebug.tui.application import QdebugApp
from qdebug.tui.reading.messages import Opening
from qdebug.tui.terminal import current_size

START = "import sys; from qdebug.cli.main import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """Return two recordings of a chain of four tensors; the backend's third is wrong."""
    directory = tmp_path_factory.mktemp("runs")
    values = np.linspace(-1, 1, 600, dtype=np.float32).reshape(1, 6, 10, 10)
    paths = []
    for name, error in (("ref", 0.0), ("npu", 0.5)):
        path = directory / f"{name}.h5"
        with Recorder(path, backend=name) as recorder:
            for number in range(4):
                wrong = error if number >= 2 else 0.0
                inputs = (f"t{number - 1}",) if number else ()
                recorder.put(f"t{number}", values * (number + 1) + wrong, node=f"n{number}", op="Custom", inputs=inputs)
        paths.append(path)
    return paths


def qdebug(*arguments):
    return [sys.executable, "-c", START, "tui", *map(str, arguments)]


def test_a_divergence_is_walked_to_and_left(terminal, recordings):
    program = terminal(qdebug(*recordings))
    assert program.wait_for_verdict(), program.text
    program.press(b"2")
    program.press(b"!")
    assert "n2" in next(line for line in program.screen.display if line.startswith("▸"))
    program.press(b"\r")
    assert program.wait(lambda text: "histogram" in text), program.text
    assert "1x6x10x10" in program.text
    program.send(b"q")
    program.wait(lambda _: program.process.poll() is not None)
    assert program.process.poll() == 0


def mode_of(program):
    return termios.tcgetattr(program._master)


def test_keys_of_the_first_frame_are_not_shown_and_not_left_behind(terminal, recordings):
    program = terminal(qdebug(*recordings))
    before = mode_of(program)
    assert program.wait(lambda text: "opening" in text)
    program.send(b"zzz")
    assert program.wait_for_verdict(), program.text
    assert b"zzz" not in program.written
    program.send(b"q")
    program.wait(lambda _: program.process.poll() is not None)
    assert program.process.poll() == 0, program.text
    assert mode_of(program) == before


SLOW = pytest.mark.slow
ENDS = [
    (signal.SIGINT, 130, "opening .."),
    (signal.SIGTERM, -signal.SIGTERM, "FAIL"),
    pytest.param(signal.SIGHUP, -signal.SIGHUP, "FAIL", marks=SLOW),
    pytest.param(signal.SIGINT, 130, "FAIL", marks=SLOW),
    pytest.param(signal.SIGTERM, -signal.SIGTERM, "opening ..", marks=SLOW),
    pytest.param(signal.SIGHUP, -signal.SIGHUP, "opening ..", marks=SLOW),
]


@pytest.mark.parametrize(("number", "code", "until"), ENDS)
def test_a_signal_that_ends_it_gives_the_terminal_back(terminal, recordings, number, code, until):
    program = terminal(qdebug(*recordings))
    before = mode_of(program)
    assert program.wait(lambda text: until in text), program.text
    program.process.send_signal(number)
    assert program.process.wait(20) == code
    while program.read(0.2):
        pass
    assert mode_of(program) == before
    assert not program.screen.cursor.hidden
    assert program.written.rfind(b"\x1b[?1049l") > program.written.rfind(b"\x1b[?1049h")
    assert program.written.rfind(b"\x1b[?1000l") >= program.written.rfind(b"\x1b[?1000h")
    assert b"Traceback" not in program.written


@pytest.mark.parametrize("until", ["opening ..", pytest.param("FAIL", marks=SLOW)])
def test_where_ctrl_c_is_ignored_another_signal_ends_it_all_the_same(terminal, recordings, until):
    start = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); {START}"
    program = terminal([sys.executable, "-c", start, "tui", *map(str, recordings)])
    before = mode_of(program)
    assert program.wait(lambda text: until in text), program.text
    program.process.send_signal(signal.SIGINT)
    program.process.send_signal(signal.SIGTERM)
    assert program.process.wait(20) == -signal.SIGTERM
    while program.read(0.2):
        pass
    assert mode_of(program) == before
    assert program.written.rfind(b"\x1b[?1049l") > program.written.rfind(b"\x1b[?1049h")
    assert b"Traceback" not in program.written


def test_a_signal_that_is_to_be_ignored_is_ignored(terminal, recordings):
    start = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); {START}"
    program = terminal([sys.executable, "-c", start, "tui", *map(str, recordings)])
    assert program.wait_for_verdict(), program.text
    program.process.send_signal(signal.SIGHUP)
    program.press(b"2")
    assert program.process.poll() is None
    program.send(b"q")
    program.wait(lambda _: program.process.poll() is not None)
    assert program.process.poll() == 0


def test_a_wrong_start_leaves_no_key_for_the_shell(terminal, recordings):
    program = terminal(qdebug(*recordings, "--screen", "answer", "--node", "n22"))
    before = mode_of(program)
    assert program.wait(lambda text: "opening" in text)
    program.send(b"jj")
    program.wait(lambda _: program.process.poll() is not None)
    assert program.process.poll() == 2
    assert mode_of(program) == before


def test_an_unknown_node_is_told_after_the_terminal_is_restored(terminal, recordings):
    program = terminal(qdebug(*recordings, "--node", "n22"))
    program.wait(lambda _: program.process.poll() is not None)
    while program.read(0.2):
        pass
    assert program.process.poll() == 2
    assert "n22" in program.text
    assert "Near names" in program.text
    assert not program.screen.cursor.hidden


def test_without_a_terminal_it_refuses(recordings, monkeypatch, tmp_path):
    with (tmp_path / "empty").open("w+") as no_terminal:
        monkeypatch.setattr(sys, "stdin", no_terminal)
        with pytest.raises(UsageError, match="needs a terminal") as caught:
            run_tui(recordings[0], recordings[1:])
    assert "qdebug diff" in caught.value.hint


def test_the_first_frame_needs_neither_textual_nor_hdf5():
    loaded = "import qdebug.tui.app, sys; print([m for m in ('textual', 'h5py', 'numpy') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_deep_link_opens_the_same_place(terminal, recordings):
    links = ("--node", "n2", "--screen", "values", "--filter", "row>0", "--theme", "light", "--no-mouse")
    program = terminal(qdebug(*recordings, *links))
    assert program.wait(lambda text: "@0,0,0,0" in text or "difference" in text), program.text
    assert "#2 n2" in program.text
    assert "5 values" in program.text


def test_several_backends_and_limits(terminal, recordings):
    program = terminal(qdebug(*recordings, recordings[1], "--min-sqnr", "1", "--screen", "backends"))
    assert program.wait(lambda text: "on all 2 backends" in text), program.text
    program.press(b"b")
    assert program.wait(lambda text: "backend 2 of 2" in text), program.text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("--filter", "rel>"), "cannot be read"), pytest.param(("--sample", "7"), "no sample 7", marks=SLOW)],
)
def test_a_wrong_start_is_told_after_the_terminal_is_restored(terminal, recordings, arguments, said):
    program = terminal(qdebug(*recordings, *arguments))
    program.wait(lambda _: program.process.poll() is not None)
    while program.read(0.2):
        pass
    assert program.process.poll() == 2
    assert said in program.text


def test_the_screens_of_the_command_line_are_those_there_are():
    from qdebug.cli.tui import SCREENS
    from qdebug.tui.screens import VIEWS

    assert tuple(map(str, VIEWS)) == SCREENS


def test_the_first_screen_needs_neither_hdf5_nor_the_arithmetic():
    heavy = (
        "h5py",
        "qdebug.replay",
        "onnx",
        "qdebug.present.detail",
        "qdebug.tui.reading.answers",
        "qdebug.tui.views.graph",
    )
    loaded = f"import qdebug.tui.application, sys; print([m for m in {heavy} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_names_need_nothing_of_the_analysis():
    loaded = (
        "import qdebug.recording.reading.opening, sys; "
        "print([m for m in sys.modules if m.startswith('qdebug.compare')])"
    )
    found = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_names_need_no_unusual_dtypes(tmp_path):
    with Recorder(tmp_path / "a.h5", backend="npu") as recorder:
        recorder.put("y", np.zeros(3, np.int8), scale=0.5)
    words = "import sys; from qdebug.recording.reading.opening import open_recording"
    words += "; print(list(open_recording(sys.argv[1]).names), 'ml_dtypes' in sys.modules)"
    command = [sys.executable, "-c", words, str(tmp_path / "a.h5")]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "['y'] False"


@pytest.mark.parametrize(
    ("told", "hand", "known"),
    [((80, 24), "", (80, 24)), ((0, 0), "", None), (None, "", None), ((80, 24), "100", None)],
)
def test_the_size_of_a_terminal_is_asked_of_it_unless_it_was_set_by_hand(monkeypatch, told, hand, known):
    def ask(_):
        if told is None:
            raise OSError
        return os.terminal_size(told)

    monkeypatch.setattr(os, "get_terminal_size", ask)
    monkeypatch.setenv("COLUMNS", hand)
    monkeypatch.delenv("LINES", raising=False)
    assert current_size() == known


def test_a_file_that_accepts_nodes_without_being_in_force_is_pointed_at(tmp_path):
    path, sides = tmp_path / "qdebug-limits.toml", (Path("ref.h5"), Path("be.h5"))
    opening = _make_opening(*sides, TuiChoices(), path, is_unused=True)
    assert opening.make_remark() == ""
    acknowledge(path, "conv1", reason="known")
    assert opening.make_remark() == f"{path} acknowledges 1 node; to use it: --limits {path}"
    acknowledge(path, "conv2", reason="over", expires=dt.date(2001, 1, 1), today=dt.date(2000, 1, 1))
    assert "acknowledges 1 node;" in opening.make_remark()
    acknowledge(path, "conv3", reason="known as well")
    assert "acknowledges 2 nodes;" in opening.make_remark()
    assert _make_opening(*sides, TuiChoices(), path).make_remark is None


def test_the_command_puts_the_backend_that_is_shown_first():
    openings = [Opening(compare=lambda: None) for _ in range(3)]
    app = QdebugApp(openings, titles=[("r", name) for name in "abc"], files=("r", "a", "b", "c"))
    assert app.files.command_words(has_acknowledged=False) == ("qdebug", "tui", "r", "a", "b", "c")
    assert app.files.command_words(has_acknowledged=False, backend=1) == ("qdebug", "tui", "r", "b", "a", "c")
