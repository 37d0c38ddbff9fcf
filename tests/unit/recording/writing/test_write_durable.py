"""With durable=True what was put is forced to the disk in time, and a disk that refuses is no concern of the host."""

import errno
import gc
import os
import threading
import time
import warnings
import weakref

import numpy as np
import pytest

from qdebug.errors import RecordingError, UsageError
from qdebug.recording import target as target_module
from qdebug.recording.reading.read import FileRecording
from qdebug.recording.recorder import Recorder
from qdebug.recording.writing.recovery import recover
from qdebug.recording.writing.sinks import RecordingStopped

SOON = 0.02


class Syncs:
    """An os.fsync that knows which files it was called for, and can fail."""

    def __init__(self):
        self.real = os.fsync
        self.error = 0
        self.inodes = []

    def __call__(self, fd):
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        self.inodes.append(os.fstat(fd).st_ino)
        self.real(fd)


@pytest.fixture
def syncs(monkeypatch):
    found = Syncs()
    monkeypatch.setattr(os, "fsync", found)
    monkeypatch.delattr(target_module.fcntl, "F_FULLFSYNC", raising=False)
    return found


def wait_for(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def tickers():
    return [thread for thread in threading.enumerate() if thread.name == "qdebug durable"]


def test_it_syncs_though_nothing_more_is_put(tmp_path, syncs):
    rec = Recorder(tmp_path / "run.h5", backend="b", durable=SOON)
    rec.put("x", np.ones(3))
    before = len(syncs.inodes)
    files = {(tmp_path / f"run.h5{ending}").stat().st_ino for ending in (".part", ".journal")}
    wait_for(lambda: files <= set(syncs.inodes[before:]))
    rec.discard()
    assert not tickers()


def test_it_syncs_a_second_time(tmp_path, syncs):
    with Recorder(tmp_path / "run.h5", backend="b", durable=SOON) as rec:
        rec.put("x", np.ones(3))
        wait_for(lambda: len(syncs.inodes) > 10)
        journal = (tmp_path / "run.h5.journal").stat().st_ino
        assert syncs.inodes.count(journal) > 2, "at the start, and by the timer more than once"


def test_a_recorder_that_is_not_durable_syncs_nothing(tmp_path, syncs):
    with Recorder(tmp_path / "run.h5", backend="b") as rec:
        rec.put("x", np.ones(3))
    assert not tickers()
    assert not syncs.inodes


def test_a_recording_that_is_replaced_is_not_lost_with_the_new_one(tmp_path, syncs):
    for force in (False, True):
        with Recorder(tmp_path / "run.h5", backend="b", force=force) as rec:
            rec.put("x", np.ones(3))
    assert syncs.inodes == [(tmp_path / "run.h5").stat().st_ino]


def test_close_syncs_the_file_and_its_folder(tmp_path, syncs):
    rec = Recorder(tmp_path / "run.h5", backend="b", durable=1e9)
    rec.put("x", np.ones(3))
    rec.close()
    assert syncs.inodes[-2:] == [(tmp_path / "run.h5").stat().st_ino, tmp_path.stat().st_ino]
    assert not tickers()


def test_a_recorder_that_is_dropped_syncs_and_stops(tmp_path, syncs):
    rec = Recorder(tmp_path / "run.h5", backend="b", durable=1e9)
    rec.put("x", np.ones(3))
    gone = weakref.ref(rec._sink)
    syncs.inodes.clear()
    del rec
    gc.collect()
    assert gone() is None
    assert len(syncs.inodes) == 2
    assert not tickers()


def test_a_disk_that_refuses_ends_the_recording_and_nothing_else(tmp_path, syncs):
    rec = Recorder(tmp_path / "run.h5", backend="b", durable=SOON)
    rec.put("x", np.ones(3))
    syncs.error = errno.EIO
    wait_for(lambda: rec.failure)
    syncs.error = 0
    count = len(syncs.inodes)
    with pytest.warns(RecordingStopped, match="could not be written"):
        rec.put("y", np.ones(3))
    assert len(syncs.inodes) == count  # a second try would prove nothing
    rec.close()
    with FileRecording(tmp_path / "run.h5") as recording:
        assert not recording.info.complete
        assert recording.names == ("x",)


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("call", ["rename", "fsync"])
def test_a_failure_at_close_is_reported_and_not_raised(tmp_path, syncs, monkeypatch, durable, call):
    path = tmp_path / "run.h5"
    rec = Recorder(path, backend="b", durable=durable)
    rec.put("x", np.ones(3))

    def refuse(*_, **__):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        patch.setattr(*((target_module, "_rename_exclusively") if call == "rename" else (os, call)), refuse)
        rec.close()
    expected = call == "rename" or durable
    assert bool(rec.failure) is expected
    assert [each.category for each in caught] == [RecordingStopped] * expected
    if expected:
        assert "input/output error" in rec.failure
        assert recover(path).tensors == 1
    with FileRecording(path) as recording:
        assert recording.load("x").tolist() == [1.0] * 3


def test_a_name_that_may_not_outlive_a_power_cut_is_reported(tmp_path, monkeypatch):
    rec = Recorder(tmp_path / "run.h5", backend="b", durable=True)
    rec.put("x", np.ones(3))
    real = os.fsync

    def refuse(fd):
        if os.path.samestat(os.fstat(fd), tmp_path.stat()):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(fd)

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.warns(RecordingStopped, match="may not survive a power failure"):
        rec.close()
    assert "may not survive a power failure" in rec.failure
    with FileRecording(tmp_path / "run.h5") as recording:
        assert recording.info.complete


def test_a_disk_that_refuses_only_at_the_end_is_warned_of(tmp_path, syncs):
    rec = Recorder(tmp_path / "run.h5", backend="b", durable=1e9)
    rec.put("x", np.ones(3))
    real, syncs.error = rec._sink._sync_last, errno.EIO

    def heal():
        real()
        syncs.error = 0

    rec._sink._sync_last = heal
    with pytest.warns(RecordingStopped, match="could not be written"):
        rec.close()
    with FileRecording(tmp_path / "run.h5") as recording:
        assert not recording.info.complete


def test_a_folder_that_cannot_be_synced_refuses_at_the_start(tmp_path, syncs):
    syncs.error = errno.EIO
    with pytest.raises(RecordingError, match="cannot be written"):
        Recorder(tmp_path / "run.h5", backend="b", durable=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), -0.5])
def test_seconds_that_make_no_sense(tmp_path, seconds):
    with pytest.raises(UsageError, match="durable"):
        Recorder(tmp_path / "run.h5", backend="b", durable=seconds)
    assert list(tmp_path.iterdir()) == []


def test_a_forked_child_is_harmless(tmp_path, run_python):
    code = """
        import os, sys
        import numpy as np
        from qdebug.recording.recorder import Recorder
        rec = Recorder(sys.argv[1], backend="b", durable=0.01)
        rec.put("x", np.ones(3))
        for end in (lambda: os._exit(0), lambda: sys.exit(0)):
            child = os.fork()
            if child == 0:
                end()
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        rec.put("y", np.ones(3))
        rec.close()
        print(rec.failure)
    """
    result = run_python(code, tmp_path / "run.h5")
    assert result.stdout == "None\n", result.stderr
    with FileRecording(tmp_path / "run.h5") as recording:
        assert recording.names == ("x", "y")
