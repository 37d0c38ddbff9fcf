"""Journals and what lies beside them, made or spoiled by somebody else: refused, or read to the last sound frame."""

import os
import random

import numpy as np
import pytest

import qdebug
from qdebug.errors import RecordingError
from qdebug.recording.journal import FrameKind, Journal, encode_json
from qdebug.recording.reading.journal_reader import JournalReader
from qdebug.recording.reading.read import FileRecording
from qdebug.recording.recorder import Recorder
from qdebug.recording.target import journal_of, part_of
from qdebug.recording.writing.recovery import recover


@pytest.fixture
def left(tmp_path):
    """A run that did not finish, with something of everything in its journal."""
    rec = Recorder(tmp_path / "run.h5", backend="b", keep=["s=stats", "e=elements:5"])
    rec.constant("w", np.ones(3))
    rec.put("a", np.arange(20.0), node="n", op="Conv", inputs=("x", "w"), attrs={"pads": (1, 2)}, scale=0.5)
    rec.put("s", np.arange(50.0))
    rec.put("e", np.arange(50.0))
    rec.outputs("a")
    rec._sink.leave()
    return tmp_path / "run.h5"


def use(path, out):
    """Follow and recover it; a typed error is as good as a result."""
    try:
        with qdebug.open_recording(path, follow=True) as recording:
            for name in recording.names:
                if recording.has(name):
                    recording.load(name)
                recording.kept(name)
            _ = recording.graph, recording.info, recording.state
        recover(path, out, force=True)
    except RecordingError as error:
        return "refused" if error.hint and "\n" not in str(error) else f"badly said: {error}"
    with FileRecording(out) as recording:
        for event in range(recording.event_count):
            recording.check_payload(event)
    return "read"


@pytest.mark.parametrize("times", [40, pytest.param(150, marks=pytest.mark.slow)])
@pytest.mark.parametrize("victim", ["journal", "part"])
def test_spoiled_in_any_place(left, tmp_path, victim, times):
    path = journal_of(left) if victim == "journal" else part_of(left)
    content = path.read_bytes()
    rng = random.Random(victim)  # noqa: S311  seeded on purpose
    found = []
    for _ in range(times):
        data = bytearray(content)
        if rng.random() < 0.3:
            del data[rng.randrange(len(data)) :]
        else:
            for _ in range(rng.randint(1, 4)):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        found.append(use(left, tmp_path / "out.h5"))
    assert "read" in found
    assert set(found) <= {"read", "refused"}


def with_note(path, note):
    """Append a sound frame with any note."""
    fd = os.open(journal_of(path), os.O_RDWR)
    journal = Journal.__new__(Journal)
    journal.fd, journal._file_end, journal._queued_frames = fd, os.fstat(fd).st_size, bytearray()
    journal.add(FrameKind.NOTE, encode_json(note))
    journal.commit()
    journal.close()


@pytest.mark.parametrize(
    "note",
    [
        {"put": "z" * 5000, "shape": [1] * 40},
        {"put": "z", "shape": [-1]},
        {"put": "z", "shape": [1], "dtype": "object"},
        {
            "put": "z",
            "shape": [1],
            "node": {"name": "m", "op": "", "domain": "", "inputs": ["z"], "origin": [], "attrs": ""},
        },
        {"put": "z", "shape": [1], "quant": '{"scale":["a",{"dtype":"float32","shape":[99999999999],"data":""}]}'},
        {"skip": {"a": 1}},
        {"unknown": 1},
    ],
    ids=range(7),
)
def test_notes_that_nobody_writes(left, tmp_path, note):
    with_note(left, note)
    assert use(left, tmp_path / "out.h5") in ("refused", "read")


def test_frames_of_huge_size_are_not_believed(left):
    content = journal_of(left).read_bytes()
    for at, size in ((8, b"\xff\xff\xff\x7f"), (12, b"\xff" * 8)):
        head = content[8:32]
        journal_of(left).write_bytes(content[:8] + head[:at] + size + head[at + len(size) :] + content[32:])
        reader = JournalReader(journal_of(left))
        assert reader.refresh() == []
        reader.close()


@pytest.mark.parametrize("name", [".part", ".journal"])
def test_a_link_leads_nowhere(left, tmp_path, name):
    target = left.with_name(left.name + name)
    target.rename(tmp_path / "elsewhere")
    target.symlink_to(tmp_path / "elsewhere")
    if name == ".part":
        assert use(left, tmp_path / "out.h5") == "refused"
    for force in (False, True):
        with pytest.raises(RecordingError):
            Recorder(left, backend="b", force=force)
    assert target.is_symlink()
    assert (tmp_path / "elsewhere").exists()


def test_a_pipe_in_place_of_a_file(left, tmp_path):
    for path in (journal_of(left), part_of(left)):
        path.unlink()
        os.mkfifo(path)
        assert use(left, tmp_path / "out.h5") == "refused"
