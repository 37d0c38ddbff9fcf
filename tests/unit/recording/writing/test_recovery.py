"""What a run left behind that did not finish becomes a recording again, and says that it is incomplete."""

import json
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from qdebug.errors import NotARecordingError, OutputExistsError, RecordingError
from qdebug.model import Fidelity, Graph, Node, Role
from qdebug.model.recording import quant_of
from qdebug.recording.reading.journal_reader import JournalReader
from qdebug.recording.reading.read import FileRecording
from qdebug.recording.recorder import Recorder
from qdebug.recording.target import journal_of, part_of
from qdebug.recording.writing import recovery as recovery_module
from qdebug.recording.writing import write as writer_module
from qdebug.recording.writing.recovery import recover


def fill(rec):
    """Record a little of everything."""
    rec.constant("w", np.ones((2, 2), np.int8), scale=[0.5, 0.25], axis=0)
    for sample in range(2):
        rec.at(sample)
        rec.put("x", np.full((1, 4), sample, np.float32))
        rec.put(
            "y",
            np.full((1, 4), sample, np.int8),
            node="conv",
            op="Conv",
            inputs=("x", "w"),
            attrs={"pads": [1, 1], "value": np.array([1.5, np.nan], np.float32)},
            origin="source",
            placement="npu",
            scale=0.5 if sample == 0 else 0.25,
            zero_point=3,
            multiplier=7,
            shift=2,
            layout="NCHW",
            stands_for="y_float",
        )
        rec.put("nine", np.zeros((1,) * 9 + (3,), np.uint8))
        rec.check({"y": np.full((1, 4), sample, np.int8)})
    rec.put("same", np.full((1, 4), 1, np.float32))
    rec.outputs("y")
    rec.skip("z", "too large")
    rec.skip("same", "put after all")
    rec.at(2)
    rec.put("same", np.full((1, 4), 1, np.float32))


def left_behind(path, what=fill, **options):
    """Record and stop as a killed process does, but for the lock."""
    rec = Recorder(path, backend="npu", model="net", options={"opt": 1}, **options)
    what(rec)
    rec._sink.leave()
    return path


def same_recording(path, other):
    with FileRecording(path) as one, FileRecording(other) as two:
        assert one.graph.nodes == two.graph.nodes
        assert one.graph.outputs == two.graph.outputs
        assert one.graph.tensors == two.graph.tensors
        assert set(one.names) == set(two.names)
        assert one.event_quants == two.event_quants
        for event in two.events():
            ours, theirs = (each.load(event.tensor, event.sample, event.step) for each in (one, two))
            assert (ours.dtype, ours.shape, ours.tobytes()) == (theirs.dtype, theirs.shape, theirs.tobytes())
        return one.info, two.info


def test_everything_that_was_said_comes_back(tmp_path):
    left_behind(tmp_path / "run.h5")
    with Recorder(tmp_path / "whole.h5", backend="npu", model="net", options={"opt": 1}) as rec:
        fill(rec)
    done = recover(tmp_path / "run.h5")
    assert (done.path, done.tensors, done.complete, done.lost) == (tmp_path / "run.h5", 9, False, ())
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["run.h5", "whole.h5"]
    rescued, whole = same_recording(tmp_path / "run.h5", tmp_path / "whole.h5")
    assert not rescued.complete
    assert whole.complete
    assert rescued.fidelity is Fidelity.BIT_EQUAL
    assert (rescued.backend, rescued.model, dict(rescued.options)) == ("npu", "net", {"opt": 1})
    assert rescued.skipped == whole.skipped == {"z": "too large"}
    assert rescued.versions == whole.versions
    with FileRecording(tmp_path / "run.h5") as recording:
        assert recording.graph.tensors["w"].role is Role.CONSTANT
        assert [float(quant_of(recording, "y", sample).scale[0]) for sample in range(2)] == [0.5, 0.25]


def test_a_graph_that_was_given_comes_back(tmp_path):
    graph = Graph([Node(name="n", op="Relu", inputs=("x",), outputs=("y",))], inputs=("x",), outputs=("y",), name="g")
    left_behind(tmp_path / "run.h5", lambda rec: rec.put("y", np.zeros(3)), graph=graph)
    recover(tmp_path / "run.h5")
    with FileRecording(tmp_path / "run.h5") as recording:
        assert recording.graph.nodes == graph.nodes
        assert (recording.graph.name, recording.graph.outputs) == ("g", ("y",))


@pytest.mark.parametrize("name", ["run.h5", "run.h5.part", "run.h5.journal"])
def test_by_any_of_its_names(tmp_path, name):
    left_behind(tmp_path / "run.h5")
    assert recover(tmp_path / name).path == tmp_path / "run.h5"


def test_elsewhere_leaves_what_is_there(tmp_path):
    left_behind(tmp_path / "run.h5")
    before = {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()}
    done = recover(tmp_path / "run.h5", tmp_path / "out.h5")
    assert done.path == tmp_path / "out.h5"
    assert before == {e.name: e.read_bytes() for e in tmp_path.iterdir() if e.name != "out.h5"}
    with pytest.raises(OutputExistsError):
        recover(tmp_path / "run.h5", tmp_path / "out.h5")
    recover(tmp_path / "run.h5", tmp_path / "out.h5", force=True)


def test_an_older_recording_in_the_place_is_replaced_only_on_demand(tmp_path):
    with Recorder(tmp_path / "run.h5", backend="old") as rec:
        rec.put("a", np.zeros(1))
    left_behind(tmp_path / "run.h5", force=True)
    with pytest.raises(RecordingError, match="exists") as caught:
        recover(tmp_path / "run.h5")
    assert "--force" in caught.value.hint
    with FileRecording(tmp_path / "run.h5") as recording:
        assert recording.info.backend == "old"
    recover(tmp_path / "run.h5", force=True)
    with FileRecording(tmp_path / "run.h5") as recording:
        assert recording.info.backend == "npu"
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.h5"]


def test_not_while_the_run_goes_on(tmp_path):
    rec = Recorder(tmp_path / "run.h5", backend="b")
    rec.put("a", np.zeros(1))
    with pytest.raises(RecordingError, match=f"being written by process {os.getpid()}"):
        recover(tmp_path / "run.h5")
    with pytest.raises(RecordingError, match="being written") as caught:
        FileRecording(tmp_path / "run.h5")
    assert "follow=True" in caught.value.hint
    rec.discard()


def test_damaged_values_are_left_out_and_named(tmp_path):
    path = left_behind(tmp_path / "run.h5")
    reader = JournalReader(journal_of(path))
    event = next(entry for entry in reader.refresh() if not isinstance(entry, dict) and entry.name == "y")
    reader.close()
    with part_of(path).open("r+b") as file:
        file.seek(event.offset)
        file.write(b"\x55")
    done = recover(path)
    assert done.lost == (("y", 0, 0),)
    with FileRecording(path) as recording:
        assert not recording.has("y", 0)
        assert recording.load("y", 1).tolist() == [[1, 1, 1, 1]]
        assert "damaged" in recording.info.skipped["y"]


@pytest.mark.parametrize("name", ["run.h5", "run.h5.part"])
def test_whoever_opens_it_is_told_what_to_do(tmp_path, name):
    left_behind(tmp_path / "run.h5")
    with pytest.raises(RecordingError, match="did not finish") as caught:
        FileRecording(tmp_path / name)
    assert "qdebug file recover" in caught.value.hint


def test_a_run_that_only_lacks_its_name_is_complete(tmp_path, monkeypatch):
    path = tmp_path / "run.h5"
    rec = Recorder(path, backend="b")
    rec.put("a", np.arange(3))

    def stop(*_, **__):
        raise RecordingError("killed here")

    monkeypatch.setattr(writer_module, "rename_finished", stop)
    with pytest.raises(RecordingError, match="killed here"):
        rec.close()
    monkeypatch.undo()
    assert not path.exists()
    assert recover(path).complete
    with FileRecording(path) as recording:
        assert recording.info.complete


def test_values_that_were_put_twice_since_the_first_time_was_interrupted(tmp_path):
    def body(rec):
        rec.put("a", np.zeros(2))
        rec._sink.append("b", np.zeros(2))
        rec.put("b", np.ones(2))

    path = left_behind(tmp_path / "run.h5", body)
    assert recover(path).tensors == 2
    with FileRecording(path) as recording:
        assert recording.load("b").tolist() == [1, 1]


def test_where_there_is_nothing_to_recover(tmp_path):
    with pytest.raises(NotARecordingError, match="There is no unfinished run"):
        recover(tmp_path / "run.h5")
    left_behind(tmp_path / "run.h5")
    journal_of(tmp_path / "run.h5").write_bytes(b"QDJ1\r\n\x1a\n")
    with pytest.raises(NotARecordingError, match="lists no tensor"):
        recover(tmp_path / "run.h5")


def test_nothing_that_can_be_read(tmp_path):
    path = left_behind(tmp_path / "run.h5", lambda rec: rec.put("a", np.zeros(4)))
    os.truncate(part_of(path), 8)
    with pytest.raises(RecordingError, match="can be read"):
        recover(path)
    assert journal_of(path).exists()


@pytest.mark.parametrize(
    "note",
    [
        {"put": "a"},
        {"put": "a", "shape": ["x"]},
        {"put": "a", "shape": [1], "node": 5},
        {"put": "a", "shape": [1], "quant": "{}"},
        {"put": "a", "shape": [1], "quant": "["},
        {"put": "a", "shape": [1], "role": "king"},
        {"outputs": 5},
        {"fidelity": "so so"},
    ],
    ids=str,
)
def test_a_note_that_makes_no_sense_is_damage(tmp_path, note):
    def body(rec):
        rec.put("a", np.zeros(1))
        rec._sink.note(note)

    with pytest.raises(RecordingError, match="damaged"):
        recover(left_behind(tmp_path / "run.h5", body))


def frame(kind, body, payload=b""):
    """A frame as the format's description says it, made without qdebug's help."""
    head = struct.pack("<IBBHIQ", 0x4D464451, kind, 0, 0, len(body), len(payload))
    return head + struct.pack("<I", zlib.crc32(head + body)) + body + payload


def event(name, values, sample):
    """An event of float32 values that follow it, hashed by CRC-32."""
    data, shape = values.astype("<f4").tobytes(), (*values.shape, *(0,) * (8 - values.ndim))
    check = struct.pack("<I12x", zlib.crc32(data))
    heads = (*(0, 0, sample, 0, 0), -1, 0, 10, values.ndim, 0)
    row = struct.pack("<5IiHBBf8QQ16s6Q7d", *heads, *shape, len(data), check, values.size, *(0,) * 12)
    return frame(4, row + struct.pack("<QBBBB", 0, 2, 2, 0, 0) + name.encode(), data)


def test_a_journal_of_a_program_without_hdf5(tmp_path):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    note = {"put": "y", "shape": [2, 3], "node": {"name": "n", "op": "Relu", "domain": "", "inputs": ["x"]}}
    note["node"] |= {"origin": [], "attrs": ""}
    content = b"QDJ1\r\n\x1a\n" + frame(1, json.dumps({"journal": 1, "info": {"backend": "firmware"}}).encode())
    content += event("x", values, 0) + frame(3, json.dumps(note).encode()) + event("y", -values, 0)
    content += event("x", values + 1, 1) + frame(5, b'{"complete": true, "events": 3}')
    (tmp_path / "dump.qdj").write_bytes(content)
    with pytest.raises(RecordingError, match="where to put") as caught:
        recover(tmp_path / "dump.qdj")
    assert "-o" in caught.value.hint
    done = recover(tmp_path / "dump.qdj", tmp_path / "run.h5")
    assert (done.tensors, done.complete) == (3, True)
    with FileRecording(tmp_path / "run.h5") as recording:
        assert recording.info.backend == "firmware"
        assert recording.graph.producer("y").op == "Relu"
        assert recording.load("x", 1).tolist() == (values + 1).tolist()
    rotten = bytearray(content)
    rotten[content.index(values.tobytes()) + 4] ^= 1
    (tmp_path / "rotten.qdj").write_bytes(rotten)
    assert recover(tmp_path / "rotten.qdj", tmp_path / "rotten.h5").lost == (("x", 0, 0),)


def test_a_journal_with_its_values_inside_leaves_a_foreign_file_beside_it(tmp_path):
    content = b"QDJ1\r\n\x1a\n" + frame(1, b'{"journal": 1, "info": {"backend": "firmware"}}')
    (tmp_path / "run.h5.journal").write_bytes(content + event("x", np.ones(3, np.float32), 0))
    (tmp_path / "run.h5.part").write_text("mine")
    assert recover(tmp_path / "run.h5").tensors == 1
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["run.h5", "run.h5.part"]


def whole(path):
    """A run that lacks but its name, as a power cut can leave it."""
    with Recorder(path, backend="npu") as rec:
        fill(rec)
    path.rename(part_of(path))
    return path


class TestWholeWithoutJournal:
    @pytest.mark.parametrize("name", ["run.h5", "run.h5.part"])
    def test_it_gets_its_name(self, tmp_path, name):
        path = whole(tmp_path / "run.h5")
        done = recover(tmp_path / name)
        assert (done.path, done.tensors, done.complete, done.lost) == (path, 9, True, ())
        assert [entry.name for entry in tmp_path.iterdir()] == ["run.h5"]
        with FileRecording(path) as recording:
            assert recording.info.complete

    def test_whoever_opens_it_is_told(self, tmp_path):
        with pytest.raises(RecordingError, match="did not finish") as caught:
            FileRecording(whole(tmp_path / "run.h5"))
        assert "qdebug file recover" in caught.value.hint

    def test_elsewhere_leaves_it(self, tmp_path):
        path = whole(tmp_path / "run.h5")
        assert recover(path, tmp_path / "out.h5").tensors == 9
        assert sorted(entry.name for entry in tmp_path.iterdir()) == ["out.h5", "run.h5.part"]

    def test_it_replaces_an_older_recording_only_on_demand(self, tmp_path):
        path = whole(tmp_path / "run.h5")
        with Recorder(tmp_path / "old.h5", backend="old") as rec:
            rec.put("a", np.zeros(1))
        (tmp_path / "old.h5").rename(path)
        with pytest.raises(RecordingError, match="exists"):
            recover(path)
        assert recover(path, force=True).tensors == 9

    def test_values_that_are_damaged_are_refused(self, tmp_path):
        path = whole(tmp_path / "run.h5")
        content = bytearray(part_of(path).read_bytes())
        content[content.index(np.full(4, 1, np.float32).tobytes())] ^= 1
        part_of(path).write_bytes(content)
        with pytest.raises(RecordingError, match="differ from what was recorded"):
            recover(path)
        assert part_of(path).read_bytes() == content


def test_a_finished_recording_needs_no_recovery(tmp_path):
    with Recorder(tmp_path / "run.h5", backend="b") as rec:
        rec.put("x", np.ones(2))
    for name in ("run.h5", "run.h5.part", "run.h5.journal"):
        with pytest.raises(NotARecordingError, match=r"run\.h5' is finished; there is nothing to recover"):
            recover(tmp_path / name)


def test_values_without_their_journal_are_not_recovered(tmp_path):
    path = left_behind(tmp_path / "run.h5")
    journal_of(path).unlink()
    for name in (path, part_of(path)):
        with pytest.raises(NotARecordingError, match=r"The journal of .*run\.h5\.part' is missing"):
            recover(name)
    with pytest.raises(RecordingError, match="belongs to an unfinished run, and its journal is missing"):
        FileRecording(part_of(path))


def test_a_journal_without_the_values_says_what_is_gone(tmp_path):
    path = left_behind(tmp_path / "run.h5")
    part_of(path).unlink()
    with pytest.raises(RecordingError, match=r"because .*run\.h5\.part', which held the values, is missing"):
        recover(path)


@pytest.mark.parametrize("ending", [".part", ".journal"])
def test_nothing_is_written_over_what_is_being_recovered(tmp_path, ending):
    path = left_behind(tmp_path / "run.h5")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(RecordingError, match=r"is all that is left of an unfinished run"):
        recover(path, tmp_path / f"run.h5{ending}", force=True)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    assert recover(path).tensors == 9


@pytest.mark.parametrize("name", [".", "/"])
def test_a_folder_is_no_run(name):
    with pytest.raises(NotARecordingError, match="There is no unfinished run"):
        recover(Path(name))


@pytest.mark.parametrize("lost", [True, False])
def test_what_stands_in_the_way_of_a_recovery_is_said_as_it_is(tmp_path, monkeypatch, lost):
    """Whether a run lacks no more than its name, or has to be put together."""
    path = left_behind(tmp_path / "run.h5") if lost else whole(tmp_path / "run.h5")
    (tmp_path / "out.h5").write_bytes(b"somebody's")
    with pytest.raises(OutputExistsError, match=r"out\.h5' already exists") as caught:
        recover(path, tmp_path / "out.h5")
    assert "--force" in caught.value.hint
    assert (tmp_path / "out.h5").read_bytes() == b"somebody's"

    def full(*_, **__):
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        for name in ("rename_durably", "rename_finished", "rename", "link"):
            for module in (recovery_module, writer_module, os):
                if hasattr(module, name):
                    patch.setattr(module, name, full)
        with pytest.raises(RecordingError, match="no space left on device"):
            recover(path)
    assert recover(path).tensors == 9
    assert [entry.name for entry in sorted(tmp_path.iterdir())] == ["out.h5", "run.h5"]
