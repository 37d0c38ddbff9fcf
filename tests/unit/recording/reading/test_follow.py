"""A recording is read while it grows: nothing wrong, nothing twice, and it is known when it ends and how."""

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import qdebug
from qdebug.errors import NotARecordingError, RecordingError
from qdebug.model.recording import quant_of
from qdebug.recording.reading.follow import FollowState
from qdebug.recording.reading.journal_reader import JournalReader
from qdebug.recording.recorder import Recorder
from qdebug.recording.target import journal_of, part_of
from qdebug.recording.writing.recovery import recover


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.h5"


@pytest.fixture
def recorder(path):
    made = Recorder(path, backend="npu", model="net")
    yield made
    made.discard()


@pytest.fixture
def followed(recorder, path):
    with qdebug.open_recording(path, follow=True) as recording:
        yield recording


def test_it_grows(recorder, followed):
    assert isinstance(followed, qdebug.Recording)
    assert followed.refresh() == ()
    assert (followed.names, followed.samples, followed.info.backend) == ((), 1, "npu")
    recorder.constant("w", np.ones(2))
    recorder.put("x", np.zeros(3))
    assert followed.names == ()  # nothing changes unasked
    assert followed.refresh() == ("w", "x")
    recorder.put("y", np.full(3, 7, np.int8), node="n", op="Relu", inputs=("x",), scale=0.5)
    recorder.next_sample()
    recorder.put("y", np.full(3, 8, np.int8), scale=0.25)
    recorder.put("x", np.ones(3))
    assert followed.refresh() == ("y", "x")
    assert followed.refresh() == ()
    assert (followed.samples, followed.steps, followed.names) == (2, 1, ("w", "x", "y"))
    assert followed.load("y", 1).tolist() == [8, 8, 8]
    assert not followed.load("y").flags.writeable
    assert followed.load("w", 1).tolist() == [1, 1]
    assert followed.has("w", 9)
    assert not followed.has("x", 2)
    assert followed.graph.producer("y").op == "Relu"
    assert [float(quant_of(followed, "y", sample).scale[0]) for sample in range(2)] == [0.5, 0.25]
    assert (followed.graph.name, followed.info.complete) == ("net", False)
    with pytest.raises(RecordingError, match="no values for sample 5"):
        followed.load("y", 5)


def test_it_ends_when_the_recorder_is_closed(recorder, followed, path):
    recorder.put("x", np.arange(3))
    assert followed.state is FollowState.WRITING
    assert followed.refresh() == ("x",)
    recorder.put("last", np.arange(4))
    recorder.close()
    assert followed.state is FollowState.FINISHED
    assert followed.refresh() == ("last",)
    assert followed.load("last").tolist() == [0, 1, 2, 3]
    assert followed.info.complete
    with qdebug.open_recording(path) as whole:
        assert whole.names == followed.names
        assert whole.graph.nodes == followed.graph.nodes


def test_a_finished_recording_can_be_followed_too(recorder, path):
    recorder.put("x", np.arange(3))
    recorder.close()
    with qdebug.open_recording(path, follow=True) as recording:
        assert recording.state == "finished"
        assert recording.refresh() == ()
        assert (recording.names, recording.samples, recording.steps) == (("x",), 1, 1)
        assert recording.load("x").tolist() == [0, 1, 2]
        assert recording.has("x")
        assert recording.info.complete
        assert recording.graph.nodes
        assert not recording.event_quants


def test_where_nobody_records(path):
    with pytest.raises(NotARecordingError):
        qdebug.open_recording(path, follow=True)


def test_a_discarded_recording_has_stopped(recorder, followed):
    recorder.put("x", np.arange(3))
    followed.refresh()
    recorder.discard()
    assert followed.state is FollowState.STOPPED
    assert followed.load("x").tolist() == [0, 1, 2]


@pytest.mark.parametrize("taken_in", [False, True])
@pytest.mark.parametrize(("end", "state"), [("close", FollowState.FINISHED), ("discard", FollowState.STOPPED)])
def test_how_it_ended_is_known_whatever_was_taken_in_before(recorder, followed, taken_in, end, state):
    recorder.put("x", np.arange(3))
    if taken_in:
        followed.refresh()
    getattr(recorder, end)()
    assert followed.state is state
    assert followed.refresh() == (() if taken_in else ("x",))
    assert followed.load("x").tolist() == [0, 1, 2]


def test_a_recording_that_another_replaces_has_stopped(recorder, followed, path):
    recorder.put("x", np.arange(3))
    followed.refresh()
    recorder._sink.leave()
    other = Recorder(path, backend="b", force=True)
    other.put("x", np.arange(4))
    assert followed.state is FollowState.STOPPED
    assert followed.refresh() == ()
    assert followed.load("x").tolist() == [0, 1, 2]
    other.discard()


def test_damage_is_noticed_after_what_was_right(recorder, followed, path):
    recorder.put("a", np.arange(3))
    recorder._sink.note({"outputs": 3})
    with pytest.raises(RecordingError, match="damaged"):
        followed.refresh()
    assert followed.load("a").tolist() == [0, 1, 2]


def test_damaged_values_are_refused(recorder, followed, path):
    recorder.put("a", np.arange(3.0))
    followed.refresh()
    event = followed._run.events["a", 0, 0]
    with part_of(path).open("r+b") as file:
        file.seek(event.offset)
        file.write(b"\x01")
    with pytest.raises(RecordingError, match="differ from the recorded hash"):
        followed.load("a")


def test_it_needs_no_write_permission_and_leaves_no_trace(recorder, path):
    recorder.put("a", np.arange(3))
    before = sorted(entry.name for entry in path.parent.iterdir())
    for entry in (journal_of(path), part_of(path)):
        entry.chmod(0o400)
    with qdebug.open_recording(path, follow=True) as recording:
        assert recording.load("a").tolist() == [0, 1, 2]
    assert sorted(entry.name for entry in path.parent.iterdir()) == before


def test_it_can_be_handed_to_another_process(recorder, path):
    recorder.put("a", np.arange(3))
    with qdebug.open_recording(path, follow=True) as recording:
        other = pickle.loads(pickle.dumps(recording))  # noqa: S301  our own
        assert other.load("a").tolist() == [0, 1, 2]
        other.close()


def test_a_closed_one_says_so(recorder, path):
    recorder.put("a", np.arange(3))
    recording = qdebug.open_recording(path, follow=True)
    recording.close()
    recording.close()
    with pytest.raises(RecordingError):
        recording.load("a")


def test_a_killed_writer_has_stopped(tmp_path):
    code = """
        import os, signal, sys
        import numpy as np
        from qdebug.recording.recorder import Recorder
        rec = Recorder(sys.argv[1], backend="b")
        for number in range(20):
            rec.put(f"t{number}", np.full(1000, number))
        print("ready", flush=True)
        signal.pause()
    """
    path = tmp_path / "run.h5"
    arguments = [sys.executable, "-c", textwrap.dedent(code), path]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "ready\n"
        with qdebug.open_recording(path, follow=True) as recording:
            assert recording.state is FollowState.WRITING
            os.kill(writer.pid, signal.SIGKILL)
            writer.wait(timeout=30)
            assert recording.state is FollowState.STOPPED
            assert [int(recording.load(f"t{number}")[999]) for number in range(20)] == list(range(20))


WRITER = """
    import sys, time
    import numpy as np
    from qdebug.recording.recorder import Recorder
    with Recorder(sys.argv[1], backend="b") as rec:
        for number in range(int(sys.argv[2])):
            rec.put(f"t{number}", np.arange(number, number + 5_000, dtype=np.int64))
"""


@pytest.mark.parametrize("readers", [1, 2])
def test_another_process_sees_every_tensor_right(tmp_path, readers):
    path, count = tmp_path / "run.h5", 400
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(WRITER), path, str(count)]) as writer:
        until = time.monotonic() + 60
        while not journal_of(path).exists() and not path.exists() and time.monotonic() < until:
            time.sleep(0.001)
        recordings = [qdebug.open_recording(path, follow=True) for _ in range(readers)]
        seen = [list(recording.names) for recording in recordings]
        while any(recording.state == "writing" for recording in recordings) and time.monotonic() < until:
            for recording, names in zip(recordings, seen, strict=True):
                names.extend(recording.refresh())
        for recording, names in zip(recordings, seen, strict=True):
            names.extend(recording.refresh())
            assert names == [f"t{number}" for number in range(count)]
            for number, name in enumerate(names):
                assert np.array_equal(recording.load(name), np.arange(number, number + 5_000))
            recording.close()
        assert writer.wait(timeout=60) == 0


def test_a_journal_that_was_not_removed_does_not_hide_the_recording(recorder, path):
    recorder.put("x", np.arange(3))
    content = journal_of(path).read_bytes()
    recorder.close()
    journal_of(path).write_bytes(content)
    with qdebug.open_recording(path, follow=True) as recording:
        assert (recording.state, recording.names) == ("finished", ("x",))
    with pytest.raises(NotARecordingError, match="is finished"):
        recover(path)
    with qdebug.open_recording(path) as recording:
        assert recording.info.complete
    with Recorder(path, backend="b", force=True) as again:
        again.put("y", np.arange(3))
    assert [entry.name for entry in path.parent.iterdir()] == ["run.h5"]


def test_what_is_written_anew_is_noticed(recorder, followed, path):
    recorder.put("x", np.arange(3))
    assert followed.describe_change() == ""
    followed.refresh()
    recorder.discard()
    assert followed.describe_change() == "was removed"
    other = Recorder(path, backend="b")
    assert followed.describe_change() == "was rewritten"
    with qdebug.open_recording(path, follow=True) as again:
        other.put("x", np.arange(4))
        assert again.refresh() == ("x",)
        other.close()
        assert again.refresh() == ()
        assert again.describe_change() == ""
        assert followed.describe_change() == "was rewritten"
        path.unlink()
        assert again.describe_change() == "was removed"
    assert followed.load("x").tolist() == [0, 1, 2]


def test_a_finished_recording_that_is_written_anew_is_noticed(recorder, path):
    recorder.put("x", np.arange(3))
    recorder.close()
    with qdebug.open_recording(path, follow=True) as recording:
        assert recording.describe_change() == ""
        other = Recorder(path, backend="b", force=True)
        assert recording.describe_change() == "was rewritten"
        other.discard()
        assert recording.describe_change() == ""
        path.write_bytes(path.read_bytes()[:100])
        assert recording.describe_change() == "was rewritten"
        path.unlink()
        assert recording.describe_change() == "was removed"


@pytest.mark.parametrize("which", [journal_of, part_of])
def test_a_file_that_is_cut_off_is_noticed(recorder, followed, path, which):
    recorder.put("x", np.arange(30_000))
    followed.refresh()
    os.truncate(which(path), 50)
    assert followed.describe_change() == "was truncated"


def test_a_journal_that_was_not_removed_is_nothing_new(recorder, path):
    recorder.put("x", np.arange(3))
    content = journal_of(path).read_bytes()
    recorder.close()
    journal_of(path).write_bytes(content)
    with qdebug.open_recording(path, follow=True) as recording:
        assert recording.describe_change() == ""


def test_what_is_known_of_values_is_told_without_reading_them(recorder, followed, path, monkeypatch):
    recorder.constant("w", np.ones((2, 3), np.float32))
    recorder.put("x", np.arange(30_000, dtype=np.int8), scale=0.5)
    recorder.next_sample()
    recorder.put("x", np.arange(30_000, dtype=np.int8), scale=0.5)
    followed.refresh()
    monkeypatch.setattr(JournalReader, "read", None)
    seen = {place: followed.outline(*place) for place in (("w", 1), ("x", 0), ("x", 1), ("x", 2), ("y", 0))}
    assert seen["w", 1][:2] == ("float32", (2, 3))
    assert seen["x", 0] == seen["x", 1]
    assert seen["x", 2] is seen["y", 0] is None
    recorder.close()
    with qdebug.open_recording(path) as whole, qdebug.open_recording(path, follow=True) as finished:
        assert {place: whole.outline(*place) for place in seen} == seen
        assert {place: finished.outline(*place) for place in seen} == seen


@pytest.mark.parametrize("keep", ["full", "stats", "elements:4", "none"])
def test_what_was_kept_in_part_is_not_cut_off(path, keep):
    with Recorder(path, backend="npu", keep=keep) as recorder:
        recorder.constant("w", np.ones(3))
        for number in range(3):
            recorder.put(f"x{number}", np.arange(100_000.0) + number)
            recorder.put(f"empty{number}", np.zeros((0, 3)))
        with qdebug.open_recording(path, follow=True) as followed:
            assert followed.describe_change() == ""
            recorder.close()
            followed.refresh()
            assert followed.describe_change() == ""
