"""A child that never ends is killed and cleaned up after, and a recording that another process writes is left alone."""

import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from qdebug.bisect.axes import Candidate, Candidates
from qdebug.bisect.environments import UnavailableError
from qdebug.bisect.trial import ModelCommand, RecordingFailedError, Trials
from qdebug.errors import RecordingError
from qdebug.recording.target import WriterLock, part_of
from qdebug.running.model_runs import ModelRun

HANG = """
import os, pathlib, sys, time
for suffix in (".part", ".journal"):
    pathlib.Path(sys.argv[1] + suffix).touch()
pathlib.Path(sys.argv[1] + ".lock").write_text(str(os.getpid()))
time.sleep(600)
"""


class FakeEnvironments:
    """Environments whose Python runs a script with the path of the recording."""

    def __init__(self, script):
        self.timeout, self.script, self.path = 0.5, script, None

    @contextmanager
    def open(self, package, version, modules):
        yield self

    def command(self, *words, variables=()):
        self.path = Path(words[words.index("-o") + 1])
        return [sys.executable, "-S", "-c", self.script, str(self.path)]


@pytest.fixture
def trials(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.zeros(1))
    (tmp_path / "net.npz").write_bytes(b"net")
    row = tuple(Candidate(label=label) for label in ("a", "b"))

    def make(environments):
        return Trials(
            ModelCommand(
                run=ModelRun(model=tmp_path / "net.npz", backend="interpreter"),
                inputs=tmp_path / "x.npz",
            ),
            Candidates(over="options", package="", row=row, anchors=(0, 1)),
            environments,
            metric="output",
            folder=tmp_path / "runs",
            on_trial=lambda *_: None,
        )

    return make


def test_a_child_that_never_ends_is_killed_and_leaves_nothing(trials, tmp_path):
    tried = trials(FakeEnvironments(HANG))
    assert tried.classify(1) is None
    assert tried.trial(1).reason == "it did not end within 0.5 s, the limit of --timeout"
    assert list((tmp_path / "runs").iterdir()) == []
    with pytest.raises(UnavailableError):  # so does the recording of all tensors
        tried.record(1, taps="faithful")


def test_a_recording_that_another_process_writes_is_left_alone(trials):
    environments = FakeEnvironments("raise SystemExit(2)")
    tried = trials(environments)
    with pytest.raises(RecordingFailedError):
        tried.record(0, taps="outputs")
    lock = WriterLock(environments.path)
    part_of(environments.path).touch()
    with pytest.raises(RecordingError, match=r"Process .* is writing"):
        tried.record(0, taps="outputs")
    assert part_of(environments.path).exists()
    lock.release()
