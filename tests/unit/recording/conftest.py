"""A recording file with a bit of everything, for the tests of recordings."""

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from recording_parts import rewrite_as_format_one

from qdebug.model import Graph, Node, QuantParams, Role, RunInfo, TensorInfo
from qdebug.numerics import large_arrays as spilled
from qdebug.recording.reading.journal_reader import JournalReader
from qdebug.recording.reading.read import FileRecording
from qdebug.recording.recorder import Recorder
from qdebug.recording.target import journal_of
from qdebug.recording.writing.write import RecordingWriter


def small_graph():
    return Graph(
        [
            Node(name="conv", op="Conv", inputs=("x", "w", ""), outputs=("y",), attrs={"pads": (1, 1), "alpha": 0.5}),
            Node(name="relu", op="Relu", inputs=("y",), outputs=("z",), domain="com.example", origin=("a", "b")),
        ],
        tensors=[
            TensorInfo(name="w", role=Role.CONSTANT, dtype="int8", shape=(2, 3)),
            TensorInfo(
                name="y", dtype="int8", shape=(None, 3), quant=QuantParams(dtype="int8", scale=0.02, zero_point=-3)
            ),
        ],
        inputs=("x",),
        outputs=("z",),
        name="small",
        opset={"": 21, "com.example": 1},
    )


@pytest.fixture(params=[False, True], ids=["in memory", "in a file"])
def made_in(request, monkeypatch):
    """Make what is no view of a recording in memory, or in a temporary file as if it were large."""
    if request.param:
        monkeypatch.setattr(spilled, "SPILL_FROM", 1)
    return request.param


@pytest.fixture
def graph():
    return small_graph()


def small_info():
    return RunInfo(backend="test", model="small.onnx")


@pytest.fixture
def info():
    return small_info()


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A file of each format, of two samples and a constant; `big` is large enough to be mapped."""
    path = tmp_path_factory.mktemp("finished") / "2.h5"
    writer = RecordingWriter(path)
    writer.append("w", np.arange(6, dtype=np.int8).reshape(2, 3), constant=True)
    for sample in range(2):
        writer.append("x", np.arange(12, dtype=np.float32).reshape(4, 3) + sample, (sample, 0))
        writer.append("y", np.arange(12, dtype=np.int8).reshape(4, 3), (sample, 0))
        writer.append("z", np.full((4, 3), sample, dtype=np.float64), (sample, 0))
        writer.append("big", np.arange(1 << 18, dtype=np.float32) + sample, (sample, 0))
    writer.close(small_graph(), small_info())
    shutil.copy(path, path.with_name("1.h5"))
    return {1: rewrite_as_format_one(path.with_name("1.h5")), 2: path}


@pytest.fixture(params=[1, 2], ids=["format 1", "format 2"])
def recorded(request, tmp_path, finished):
    """A copy of such a file."""
    return Path(shutil.copyfile(finished[request.param], tmp_path / "run.h5"))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.h5"


@pytest.fixture(params=["file", "memory"])
def record(request, path):
    """Run a function on a recorder, of a file and in memory, and return the recording."""

    def run(body, **keys):
        with Recorder(path if request.param == "file" else None, backend="test", **keys) as recorder:
            body(recorder)
        return recorder.recording if request.param == "memory" else FileRecording(path)

    return run


@pytest.fixture
def run_python():
    """A function that runs code in another process; its output comes back, and its exit status is not judged."""

    def run(code, *arguments, **options):
        return subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            **options,
        )

    return run


@pytest.fixture
def left_in():
    """A function that gives the values that an unfinished recording can be rebuilt with."""

    def values(path):
        reader = JournalReader(journal_of(path))
        found = {event.name: reader.read(event).tolist() for event in reader.refresh()}
        reader.close()
        return found

    return values


@pytest.fixture
def value_in():
    """A function that gives the first value of the tensor x."""

    def value(path):
        with FileRecording(path) as recording:
            return float(recording.load("x")[0])

    return value
