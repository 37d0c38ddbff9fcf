"""A process of its own for each batch of hostile files: it may crash, hang or swell, and the tests go on."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from recording_parts import OpenedFile, rewrite_as_format_one

from qdebug.cli.main import main
from qdebug.model import Graph, Node, QuantParams, Role, RunInfo, TensorInfo
from qdebug.recording.reading.read import FileRecording
from qdebug.recording.writing.write import RecordingWriter

CHILD = Path(__file__).with_name("open_files.py")


@pytest.fixture(scope="session")
def open_files():
    """Return a function that uses every given file as a recording, and says what became of each."""

    def run(paths, *, timeout=300):
        result = subprocess.run(
            [sys.executable, CHILD],
            input="\n".join(map(str, paths)),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        assert result.returncode == 0, f"died of {result.returncode} at file {len(lines)}: {result.stderr[-2000:]}"
        assert len(lines) == len(paths) + 1
        return lines[:-1], lines[-1]

    return run


@pytest.fixture
def run_verb(tmp_path, monkeypatch, capfd):
    """Return a function that runs a command in this process, in a folder of its own, for a minute at most.

    What waits for a pipe, reads a device to its end or counts through all numbers is ended by an alarm, which the
    command tells as an internal error.
    """

    def too_late(*_):
        raise AssertionError("the command takes more than a minute")

    def run(*words):
        monkeypatch.chdir(tmp_path)
        capfd.readouterr()
        before = signal.signal(signal.SIGALRM, too_late)
        signal.alarm(60)
        try:
            code = main([str(word) for word in words])
        except SystemExit as stop:
            code = stop.code
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)
        out, err = capfd.readouterr()
        assert "internal error" not in err, err
        assert "Traceback" not in err
        return SimpleNamespace(code=code, out=out, err=err)

    return run


@pytest.fixture(params=[1, 2], ids=["format 1", "format 2"])
def victim(request, tmp_path):
    """A genuine recording of `x` and what is made of it."""
    writer = RecordingWriter(tmp_path / "victim.h5")
    writer.append("x", np.arange(8, dtype=np.float32).reshape(2, 4))
    writer.append("y", np.arange(8, dtype=np.int8))
    writer.close(Graph([Node(name="n", op="Relu", inputs=("x",), outputs=("y",))]), RunInfo(backend="b"))
    if request.param == 1:
        rewrite_as_format_one(tmp_path / "victim.h5")
    return tmp_path / "victim.h5"


@pytest.fixture
def spoil(victim):
    """A function that lets another one change the open HDF5 file."""

    def change(attack):
        with OpenedFile(victim, "a") as file:
            attack(file)

    return change


@pytest.fixture
def refused(victim):
    """A function that uses the spoiled file and gives the message of the error it must raise."""

    def read():
        with FileRecording(victim) as recording:
            for name in recording.names:
                recording.load(name)
            recording.check_datasets()

    def use(kind):
        with pytest.raises(kind) as caught:
            read()
        assert caught.value.hint
        return caught.value.message

    return use


@pytest.fixture
def secret(tmp_path):
    """An HDF5 file that no recording may lead to."""
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["data"] = np.full(3, 42, np.float32)
    return tmp_path / "secret.h5"


@pytest.fixture(scope="session", params=[1, 2], ids=["format 1", "format 2"])
def innocent(request, tmp_path_factory):
    """A recording with something in every table, that reads well."""
    path = tmp_path_factory.mktemp("innocent") / "run.h5"
    write_innocent(path)
    return rewrite_as_format_one(path) if request.param == 1 else path


def write_innocent(path):
    """Write a recording with something in every table."""
    quant = QuantParams(dtype="int8", scale=0.5, zero_point=1, multiplier=np.array(5), shift=np.array(1))
    graph = Graph(
        [
            Node(name="n0", op="Conv", inputs=("x", "w"), outputs=("y",), attrs={"pads": (1, 1)}, origin=("a",)),
            Node(name="n1", op="Relu", inputs=("y",), outputs=("z",)),
        ],
        tensors=[
            TensorInfo(name="w", role=Role.CONSTANT, shape=(2, 2), dtype="int8"),
            TensorInfo(name="x", shape=(None, 3), dtype="float32", layout="NC"),
            TensorInfo(name="y", dtype="int8", quant=quant, stands_for="x"),
            TensorInfo(name="u", quant=QuantParams(dtype="int8", scale=np.float32(1))),
        ],
        inputs=("x",),
        outputs=("z",),
        opset={"": 13},
    )
    writer = RecordingWriter(path)
    writer.append("w", np.ones((2, 2), np.int8), constant=True)
    for sample in range(2):
        writer.append("x", np.arange(12, dtype=np.float32).reshape(4, 3) + sample, (sample, 0))
        writer.append("y", np.arange(12, dtype=np.int8).reshape(4, 3) + np.int8(sample), (sample, 0))
    writer.close(graph, RunInfo(backend="b", options={"a": 1}, versions={"numpy": "2"}, skipped={"q": "why"}))


@pytest.fixture(scope="session")
def use_corpus(innocent, tmp_path_factory, open_files):
    """A function that spoils a copy of the innocent file in every given way and has one process use them all.

    An attack is a function of the open HDF5 file and of the path of a pipe, which nobody writes to. The function
    gives what became of each file by the name of its attack, and the memory of the process in MB.
    """

    def run(attacks):
        folder = tmp_path_factory.mktemp("corpus")
        foreign = folder / "foreign"
        os.mkfifo(foreign)
        paths = [innocent]
        for number, spoil in enumerate(attacks.values()):
            paths.append(folder / f"{number}.h5")
            paths[-1].write_bytes(innocent.read_bytes())
            with OpenedFile(paths[-1], "a") as file:
                spoil(file, foreign)
        results, end = open_files(paths)
        return dict(zip(["innocent", *attacks], results, strict=True)), end["peak_mb"]

    return run
