"""Writing in a thread: the same recording, back-pressure by bytes, errors where the next array is put."""

import errno
import os
import subprocess
import sys
import textwrap
import threading
import warnings

import numpy as np
import pytest

import qdebug
from qdebug.errors import RecordingError
from qdebug.model import Graph, RunInfo
from qdebug.recording.reading.read import FileRecording
from qdebug.recording.writing.recovery import recover
from qdebug.recording.writing.sinks import BackgroundSink, MemorySink, RecordingStopped


@pytest.fixture(params=["file", "memory"])
def record(request, tmp_path):
    def run(body, **keys):
        path = tmp_path / "run.h5" if request.param == "file" else None
        with qdebug.Recorder(path, backend="b", background=True, **keys) as rec:
            body(rec)
        return rec.recording if path is None else FileRecording(path)

    return run


def test_everything_is_there_in_the_end(record):
    def body(rec):
        array = np.zeros(1000, np.int32)
        for number in range(200):
            array[:] = number  # the caller's buffer is used again and again
            rec.put(f"t{number}", array, node=f"n{number}", op="Relu")
        rec.check({"t199": array})

    recording = record(body)
    assert [int(recording.load(f"t{number}")[999]) for number in range(200)] == list(range(200))
    assert recording.info.fidelity == "bit_equal"
    assert len(recording.graph.nodes) == 200


def test_statistics_too(record):
    recording = record(lambda rec: rec.put("x", np.arange(5000.0)), keep="elements:10")
    assert recording.kept("x").statistics.count == 5000


class SlowSink(MemorySink):
    def __init__(self):
        super().__init__()
        self.gate = threading.Event()

    def append(self, *args, **keys):
        self.gate.wait(30)
        super().append(*args, **keys)


def test_put_waits_when_too_much_is_waiting():
    slow = SlowSink()
    sink = BackgroundSink(slow, max_bytes=3000)
    reached = []

    def fill():
        for number in range(6):
            sink.append(f"t{number}", np.zeros(1000, np.uint8))
            reached.append(number)

    filler = threading.Thread(target=fill)
    filler.start()
    filler.join(0.3)
    assert filler.is_alive()
    assert len(reached) == 3
    slow.gate.set()
    filler.join(30)
    assert reached == list(range(6))
    sink.close(Graph(), RunInfo(backend="b"))
    assert len(slow.recording.names) == 6


def test_an_array_larger_than_the_bound_waits_alone():
    memory = MemorySink()
    sink = BackgroundSink(memory, max_bytes=10)
    for number in range(3):
        sink.append(f"t{number}", np.zeros(1000))
    assert sink.read_back("t2").size == 1000
    sink.discard()


def test_an_error_is_raised_where_the_next_array_is_put():
    sink = BackgroundSink(MemorySink())
    sink.append("odd", np.array(["text"]))
    with pytest.raises(RecordingError, match="'odd'"):
        sink.read_back("odd")
    sink.append("a", np.zeros(1))
    sink.close(Graph(), RunInfo(backend="b"))
    assert sink.inner.recording.names == ("a",)


def test_an_error_is_kept_under_the_lock_that_it_is_taken_under():
    """Kept outside, it would be lost to a caller that takes the error before it at the same moment."""

    class Watched(BackgroundSink):
        @property
        def _error(self):
            return self.__dict__.get("kept")

        @_error.setter
        def _error(self, error):
            self.__dict__.setdefault("unlocked", [])
            if "_changed" in self.__dict__ and not self._changed._is_owned():
                self.unlocked.append(error)
            self.__dict__["kept"] = error

    sink = Watched(MemorySink())
    sink.append("odd", np.array(["text"]))
    with pytest.raises(RecordingError, match="'odd'"):
        sink.read_back("odd")
    sink.close(Graph(), RunInfo(backend="b"))
    assert sink.unlocked == []


def test_a_full_disk_is_warned_of_once(tmp_path, monkeypatch):
    rec = qdebug.Recorder(tmp_path / "run.h5", backend="b", background=True)
    rec.put("a", np.arange(4))
    rec._sink._drain()

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", full)
            for number in range(50):
                rec.put(f"t{number}", np.full(1000, number))
            rec._sink._thread.join(0.2)
        rec.close()
    assert [each.category for each in caught] == [RecordingStopped]
    assert "no space" in rec.failure
    with FileRecording(tmp_path / "run.h5") as recording:
        assert recording.names == ("a",)
        assert not recording.info.complete


def test_what_was_written_survives_a_kill(tmp_path):
    code = """
        import os, signal, sys
        import numpy as np
        import qdebug
        rec = qdebug.Recorder(sys.argv[1], backend="b", background=True)
        for number in range(20):
            rec.put(f"t{number}", np.full(100, number))
        rec._sink._drain()
        os.kill(os.getpid(), signal.SIGKILL)
    """
    path = tmp_path / "run.h5"
    subprocess.run([sys.executable, "-c", textwrap.dedent(code), path], timeout=60, check=False)
    assert recover(path).tensors == 20


def test_a_forked_child_is_refused_and_not_kept_waiting(tmp_path):
    code = """
        import os, sys, warnings
        import numpy as np
        import qdebug
        warnings.simplefilter("ignore")
        rec = qdebug.Recorder(sys.argv[1], backend="b", background=True)
        rec.put("a", np.zeros(3))
        child = os.fork()
        if child == 0:
            try:
                rec.put("b", np.zeros(3))
            except qdebug.QdebugError as error:
                os._exit(0 if "forked" in str(error) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        rec.close()
        print("fine")
    """
    path = tmp_path / "run.h5"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), path], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "fine\n", done.stderr


ENDINGS = {
    "the program ends": "",
    "it raises": "raise SystemExit(0)",
    "the recorder is dropped": "del rec",
    "another thread still puts": """
def work():
    for number in range(200):
        rec.put(f"t{number}", np.ones(number + 1))
threading.Thread(target=work).start()""",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_is_waiting_is_written_though_nobody_closes(tmp_path, ending):
    program = f"""
import threading, numpy as np, qdebug
rec = qdebug.Recorder("run.h5", backend="b", background=True)
for number in range(100):
    rec.put(f"x{{number}}", np.full(1000, number))
{ENDINGS[ending]}
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert recover(tmp_path / "run.h5").tensors == (300 if "thread" in ending else 100)
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.h5"]


def test_a_dropped_recorder_lets_its_path_go(tmp_path):
    rec = qdebug.Recorder(tmp_path / "run.h5", backend="b", background=True)
    rec.put("a", [1.0])
    with pytest.raises(RecordingError, match="which is this process") as error:
        qdebug.Recorder(tmp_path / "run.h5", backend="b", force=True)
    assert "rec.close()" in error.value.hint
    del rec
    with qdebug.Recorder(tmp_path / "run.h5", backend="b", force=True) as rec:
        rec.put("b", [2.0])
    with FileRecording(tmp_path / "run.h5") as recording:
        assert recording.names == ("b",)
