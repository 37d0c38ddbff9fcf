"""A disk that is full or broken is no concern of the program that is being recorded, and costs nothing recorded."""

import errno
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from qdebug.errors import RecordingError
from qdebug.recording.reading.read import FileRecording
from qdebug.recording.recorder import Recorder
from qdebug.recording.writing.recovery import recover
from qdebug.recording.writing.sinks import RecordingStopped

PROGRAM = Path(__file__).with_name("full_disk_run.py")


def outcomes(folder, limits):
    command = [sys.executable, PROGRAM, folder, *map(str, limits)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr == ""
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(limits)
    bad = [each for each in found if each["code"] or each["wrong"] or each["kept"] < -1]
    assert not bad
    return found


def test_a_disk_that_is_full_at_some_size(tmp_path):
    found = outcomes(tmp_path, [0, 2, 40, 150, 300, 500, 900, *range(1000, 160_000, 9000)])
    assert {each["way"] for each in found} == {"nothing", "sealed", "recovered"}


@pytest.mark.slow
def test_a_disk_that_is_full_at_any_size(tmp_path):
    found = outcomes(tmp_path, range(0, 170_000, 150))
    ways = [each["way"] for each in found]
    print({way: ways.count(way) for way in set(ways)})
    assert set(ways) == {"nothing", "sealed", "recovered"}


def fill(rec):
    for number in range(4):
        rec.put(f"t{number}", np.full(2000, number, np.int32), node=f"n{number}", op="Relu")
        rec.next_sample()
    rec.outputs("t3")
    rec.skip("z", "why")


class Failing:
    """An os.pwrite that fails at one call, and at all later ones if it fails for good."""

    def __init__(self, number, at, *, lasting):
        self.number, self.at, self.lasting = number, at, lasting
        self.calls = 0
        self.real = os.pwrite

    def __call__(self, fd, data, offset):
        self.calls += 1
        if self.calls == self.at or (self.lasting and self.calls > self.at):
            raise OSError(self.number, os.strerror(self.number))
        return self.real(fd, data, offset)


def run(path, failing, monkeypatch):
    """Record while writes fail; give the recorder, None if it could not begin, and the warnings."""
    with warnings.catch_warnings(record=True) as caught, monkeypatch.context() as patch:
        warnings.simplefilter("always")
        patch.setattr(os, "pwrite", failing)
        try:
            rec = Recorder(path, backend="b")
        except RecordingError as error:
            return None, [error]
        with rec:
            fill(rec)
    return rec, caught


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
@pytest.mark.parametrize("lasting", [True, False], ids=["for good", "for once"])
def test_any_write_of_a_run_fails(tmp_path, monkeypatch, number, lasting):
    path, ways = tmp_path / "run.h5", set()
    for at in range(1, 200):
        failing = Failing(number, at, lasting=lasting)
        rec, caught = run(path, failing, monkeypatch)
        if rec is None:
            assert "cannot be written" in caught[0].message
        if rec is None or not rec.kept:
            ways.add("nothing")
            assert not list(tmp_path.iterdir())
            continue
        assert [each.category for each in caught] == [RecordingStopped] * (rec.failure is not None)
        if rec.failure is not None:
            assert os.strerror(number).lower() in str(caught[0].message)
        way = "sealed" if path.exists() else "recovered"
        ways.add(way)
        if way == "recovered":
            recover(path)
        with FileRecording(path) as recording:
            assert recording.info.complete is (rec.failure is None)
            assert sorted(recording.names) == [f"t{number}" for number in range(rec.kept)]
            for number_, name in enumerate(sorted(recording.names)):
                assert recording.load(name, number_).tolist() == [number_] * 2000
        path.unlink()
        assert not list(tmp_path.iterdir())
        if failing.calls < at:
            break
    else:
        pytest.fail("the run has more writes than were tried")
    assert ways >= {"nothing", "sealed", "recovered"}


def test_warnings_that_are_errors_do_not_reach_the_host(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "pwrite", Failing(errno.ENOSPC, 6, lasting=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Recorder(tmp_path / "run.h5", backend="b") as rec:
            fill(rec)
    assert "no space" in rec.failure


def test_a_check_of_what_came_too_late_is_passed_over(tmp_path, monkeypatch):
    rec = Recorder(tmp_path / "run.h5", backend="b")
    rec.put("a", np.zeros(4))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", Failing(errno.ENOSPC, 1, lasting=True))
        with pytest.warns(RecordingStopped, match="'b'"):
            rec.put("b", np.ones(4))
        rec.check({"b": np.ones(4)})
        rec.check({"a": np.zeros(4)})
    rec.put("c", np.ones(4))
    assert rec.kept == 1
    rec.close()
    with FileRecording(tmp_path / "run.h5") as recording:
        assert (recording.names, recording.info.complete) == (("a",), False)


def test_a_program_that_closes_every_file_is_warned_and_goes_on(tmp_path):
    program = """
import os, numpy as np, qdebug
with qdebug.Recorder("run.h5", backend="b") as rec:
    rec.put("a", np.ones(3))
    os.closerange(3, 64)
    rec.put("b", np.ones(4))
print(rec.failure)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "bad file descriptor" in done.stdout
    assert done.stderr.startswith("<string>:6: RecordingStopped: ")  # the program's own line
    assert done.stderr.count("RecordingStopped") == 1
    assert recover(tmp_path / "run.h5").tensors == 1
