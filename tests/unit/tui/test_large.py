"""A hundred thousand nodes, and gigabytes: recordings made here, driven by bytes through a pseudo-terminal.

`QDEBUG_TEST_GIGABYTES=5` makes the large one larger than the gigabyte that it is otherwise.
"""

import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from qdebug.recording.recorder import Recorder

pytestmark = pytest.mark.slow

NODES = 100_000
FAULTS = (40_000, 70_001)
GIGABYTES = float(os.environ.get("QDEBUG_TEST_GIGABYTES", "1"))
PLANE = (1, 16, 1024, 1024)


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Record a hundred thousand small nodes twice; two nodes of the second run are wrong."""
    folder = tmp_path_factory.mktemp("many")
    rng = np.random.default_rng(5)
    paths = folder / "ref.h5", folder / "npu.h5"
    with Recorder(paths[0], backend="float") as reference, Recorder(paths[1], backend="npu") as backend:
        values, before = rng.standard_normal((1, 4, 4)).astype(np.float32), ()
        for number in range(NODES):
            op = ("Neg", "Abs", "Neg", "Identity")[number % 4]
            values = np.abs(values) if op == "Abs" else -values if op == "Neg" else values
            wrong = np.float32(0.5 if number in FAULTS else 0)
            name = f"block{number // 100}/{op.lower()}_{number}"
            for recorder, stored in ((reference, values), (backend, values + wrong)):
                recorder.put(f"{name}_out", stored, node=name, op=op, inputs=before)
            before = (f"{name}_out",)
    return paths


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Record a few large tensors twice; the third node of the second run is wrong in one channel."""
    folder = tmp_path_factory.mktemp("large")
    rng = np.random.default_rng(5)
    paths = folder / "ref.h5", folder / "npu.h5"
    values = rng.standard_normal(PLANE, dtype=np.float32)
    nodes = max(int(GIGABYTES * 1e9 / 2 / values.nbytes), 4)
    with Recorder(paths[0], backend="float") as reference, Recorder(paths[1], backend="npu") as backend:
        for number in range(nodes):
            values = np.negative(values)
            stored = values
            if number == 2:
                stored = values.copy()
                stored[0, 11, 500:520] += 2
            for recorder, array in ((reference, values), (backend, stored)):
                inputs = (f"t{number - 1}",) if number else ()
                recorder.put(f"t{number}", array, node=f"n{number}", op="Neg", inputs=inputs)
            values[0, 0, 0, 0] = number  # equal tensors are stored once
    yield paths
    for path in paths:
        path.unlink()


@pytest.fixture
def open_in_terminal(terminal, tmp_path, monkeypatch):
    """Return a function that opens recordings in a terminal, as people do."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: terminal([sys.executable, "-m", "qdebug", "tui", *map(str, words)])


def shows(words):
    """Return a condition on the screen's text, whatever the space is that groups digits."""
    return lambda text: words in text.replace("\u202f", " ")


def under_cursor(name):
    """Return a condition: the row of the list under the cursor is of this name."""
    return lambda text: any(line.startswith("▸") and name in line for line in text.splitlines())


def resident_megabytes(program):
    status = Path(f"/proc/{program.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("RssAnon")).split()[1]) / 1024


def test_a_hundred_thousand_nodes_are_walked_while_they_are_compared(open_in_terminal, many):
    program = open_in_terminal(*many)
    assert program.wait(shows("100 000"), seconds=60), program.text
    program.press(b"2")
    program.press(b"G")
    assert f"_{NODES - 1}" in program.text
    program.send(b"/_70001\r")
    assert program.wait(under_cursor("_70001"), seconds=60), program.text
    assert program.wait_for_verdict(seconds=400), program.text
    program.send(b"\x1b")
    program.send(b"!")
    assert program.wait(
        lambda text: f"neg_{FAULTS[0]}: diverged" in text or "first divergence" in text.splitlines()[-2]
    )
    assert f"neg_{FAULTS[0]}" in program.text
    program.send(b"fis=failing\r")
    assert program.wait(shows("2 of 100 000 nodes"), seconds=30), program.text
    program.send(b"F1")
    assert program.wait(shows("compared 100 000 of 100 000"), seconds=30), program.text
    for screen in b"34579":
        program.press(bytes([screen]))
    assert program.process.poll() is None
    program.send(b"q")
    program.wait(lambda _: program.process.poll() is not None, seconds=30)
    assert program.process.poll() == 0


def test_gigabytes_are_walked_in_little_memory(open_in_terminal, large):
    program = open_in_terminal(*large)
    assert program.wait(lambda text: "n2" in text and "first divergence" in text, seconds=120), program.text
    program.send(b"!5")
    assert program.wait(lambda text: "difference" in text and "@0,11,5" in text, seconds=120), program.text
    program.press(b"6")
    assert program.wait(lambda text: "▸" in text and "100%" in text, seconds=60), program.text
    program.press(b"7")
    assert program.wait(lambda text: "channel 11" in text, seconds=60), program.text
    program.send(b"v")
    assert program.wait(lambda text: "channels x positions" in text, seconds=60), program.text
    # Nodes of 64 MB are still replayed to be explained; what stays is a window of the elements.
    assert program.wait(lambda _: resident_megabytes(program) < 200, seconds=120), resident_megabytes(program)
    program.send(b"8")
    time.sleep(1)
    begun = time.monotonic()
    program.send(b"2")
    assert program.wait(lambda text: "nodes: all" in text.splitlines()[-2], seconds=10), "the search held the screen up"
    program.send(b"q")
    program.wait(lambda _: program.process.poll() is not None, seconds=60)
    assert program.process.poll() == 0
    assert time.monotonic() - begun < 60, "leaving waits for what nobody looks at"


def test_memory_does_not_grow_with_the_recording(open_in_terminal, large):
    program = open_in_terminal(*large)
    assert program.wait_for_verdict(seconds=600), program.text
    assert resident_megabytes(program) < 400
