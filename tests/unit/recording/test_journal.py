"""What a journal says is whole or not there, wherever it is cut and whatever is in it."""

import json
import os
import struct
import zlib

import numpy as np
import pytest

from qdebug.errors import NotARecordingError, RecordingError
from qdebug.model import Graph, Node, RunInfo
from qdebug.model.dtypes import LOGICAL_DTYPES
from qdebug.recording import journal as journal_module
from qdebug.recording.format.specification import MAX_NDIM, TABLES
from qdebug.recording.journal import (
    FrameKind,
    Journal,
    decode_event,
    decode_json,
    decode_tables,
    encode_json,
    read_frames,
)
from qdebug.recording.reading.journal_reader import JournalReader, journal_at
from qdebug.recording.target import journal_of
from qdebug.recording.writing.write import RecordingWriter


@pytest.fixture
def left(tmp_path):
    """A writer that was left in the middle, and the frames of its journal."""
    writer = RecordingWriter(tmp_path / "run.h5", info=RunInfo(backend="b"), graph=Graph([Node(name="n", op="Relu")]))
    for number in range(5):
        writer.note({"put": f"t{number}"}, at_once=False)
        writer.append(f"t{number}", np.arange(number * 3, dtype=np.int16), (number, 0))
    writer.append("t0", np.arange(3, dtype=np.int16), (7, 0))
    writer.leave()
    return tmp_path / "run.h5"


def frames_of(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        return list(read_frames(fd))
    finally:
        os.close(fd)


def test_frames_come_back_in_order(left):
    frames = frames_of(journal_of(left))
    assert [frame.kind for frame in frames] == [
        FrameKind.RUN,
        FrameKind.GRAPH,
        *[FrameKind.NOTE, FrameKind.EVENT] * 5,
        FrameKind.EVENT,
    ]
    assert decode_json(frames[0].body)["info"]["backend"] == "b"
    events = [decode_event(frame.body) for frame in frames if frame.kind == FrameKind.EVENT]
    assert [event.name for event in events] == ["t0", "t1", "t2", "t3", "t4", "t0"]
    assert [event.shape for event in events] == [(0,), (3,), (6,), (9,), (12,), (3,)]
    assert events[5].offset == events[1].offset  # equal values are stored once


def test_cut_at_every_byte_it_reads_to_the_last_whole_frame(left):
    journal = journal_of(left)
    content = journal.read_bytes()
    ends = [frame.end for frame in frames_of(journal)]
    for size in reversed(range(len(content) + 1)):
        os.truncate(journal, size)
        assert [frame.end for frame in frames_of(journal)] == [end for end in ends if end <= size]


def test_any_byte_that_rots_ends_it_or_is_noticed(left):
    journal = journal_of(left)
    content = journal.read_bytes()
    frames = frames_of(journal)
    fd = os.open(journal, os.O_RDWR)
    for at in range(8, len(content)):
        os.pwrite(fd, bytes([content[at] ^ 0x40]), at)
        assert list(read_frames(fd)) == [frame for frame in frames if frame.end <= at]
        os.pwrite(fd, content[at : at + 1], at)
    os.close(fd)


@pytest.mark.parametrize(
    ("field", "least"), [("dtype", len(LOGICAL_DTYPES)), ("ndim", MAX_NDIM + 1)], ids=["dtype", "ndim"]
)
def test_an_event_of_a_dtype_or_rank_that_there_is_not_is_refused(left, field, least):
    """The first number past the last one is refused as all beyond it are."""
    body = next(frame.body for frame in frames_of(journal_of(left)) if frame.kind == FrameKind.EVENT)
    row = np.frombuffer(body, TABLES["index"], count=1).copy()
    rest = body[row.nbytes :]
    for number in (least, np.iinfo(row.dtype[field]).max):
        row[field] = number
        with pytest.raises(ValueError, match="impossible dtype or shape"):
            decode_event(row.tobytes() + rest)


@pytest.mark.parametrize("content", [b"", b"QDJ", b"QDJ1\r\n\x1a\n"])
def test_a_journal_that_has_just_begun_is_empty(tmp_path, content):
    (tmp_path / "j").write_bytes(content)
    assert frames_of(tmp_path / "j") == []


@pytest.mark.parametrize("content", [b"x", b"QDJ2\r\n\x1a\n", b"\x89HDF\r\n\x1a\n"])
def test_something_else_is_no_journal(tmp_path, content):
    (tmp_path / "j").write_bytes(content)
    with pytest.raises(ValueError, match="not a journal"):
        frames_of(tmp_path / "j")


def test_a_frame_of_a_later_version_is_skipped(left):
    with journal_of(left).open("ab") as file:
        file.write(
            journal_module._make_frame(77, b"?") + journal_module._make_frame(FrameKind.END, b'{"complete":true}')
        )
    reader = JournalReader(journal_of(left))
    assert len([entry for entry in reader.refresh() if not isinstance(entry, dict)]) == 6
    assert reader.end == {"complete": True}
    reader.close()


@pytest.mark.parametrize("magic", [0x4D464451, 0x4D464450, 0])
def test_what_begins_otherwise_is_no_frame_though_its_sum_is_right(left, magic):
    """What a disk holds behind a journal may be an old file of another kind."""
    before = len(frames_of(journal_of(left)))
    head = journal_module._FRAME.pack(magic, FrameKind.END, 0, 0, 2, 0)
    with journal_of(left).open("ab") as file:
        file.write(head + struct.pack("<I", zlib.crc32(b"{}", zlib.crc32(head))) + b"{}")
    assert len(frames_of(journal_of(left))) - before == (magic == 0x4D464451)


@pytest.mark.parametrize("there", [7, 8])
def test_a_frame_is_whole_only_with_the_values_behind_it(left, there):
    before = len(frames_of(journal_of(left)))
    head = journal_module._FRAME.pack(0x4D464451, FrameKind.END, 0, 0, 2, 8)
    with journal_of(left).open("ab") as file:
        file.write(head + struct.pack("<I", zlib.crc32(b"{}", zlib.crc32(head))) + b"{}" + bytes(there))
    assert len(frames_of(journal_of(left))) - before == (there == 8)


def test_frames_that_cannot_be_written_leave_no_trace(tmp_path, monkeypatch):
    fd = os.open(tmp_path / "j", os.O_RDWR | os.O_CREAT)
    journal = Journal(fd)
    journal.add(FrameKind.NOTE, encode_json({"first": 1}))
    journal.commit()
    whole, real = os.fstat(fd).st_size, os.pwrite

    def full(fd, data, offset):
        if offset > 60:
            raise OSError(28, "full")
        return real(fd, bytes(data)[:5], offset)

    monkeypatch.setattr(os, "pwrite", full)
    journal.add(FrameKind.NOTE, encode_json({"second": 2}))
    with pytest.raises(OSError, match="full"):
        journal.commit()
    monkeypatch.undo()
    assert os.fstat(fd).st_size == whole
    assert [decode_json(frame.body) for frame in frames_of(tmp_path / "j")] == [{"first": 1}]
    journal.add(FrameKind.NOTE, encode_json({"third": 3}))
    journal.forget()
    journal.add(FrameKind.NOTE, encode_json({"fourth": 4}))
    journal.commit()
    assert [decode_json(frame.body) for frame in frames_of(tmp_path / "j")] == [{"first": 1}, {"fourth": 4}]
    journal.close()
    journal.close()


def is_whole(reader, event):
    """Tell whether the values of an event are there and are those that were written."""
    try:
        reader.read(event)
    except RecordingError:
        return False
    return True


class TestReader:
    @pytest.mark.usefixtures("made_in")
    def test_it_goes_on_where_it_was(self, tmp_path):
        writer = RecordingWriter(tmp_path / "run.h5")
        reader = JournalReader(journal_of(tmp_path / "run.h5"))
        assert reader.refresh() == []
        for number in range(3):
            writer.append(f"t{number}", np.full(4, number))
            (event,) = reader.refresh()
            assert reader.read(event).tolist() == [number] * 4
            assert reader.refresh() == []
        writer.close(Graph(), RunInfo(backend="b"))
        assert reader.read(event).tolist() == [2] * 4  # the file has another name now, and is still open
        assert reader.refresh() == []
        assert reader.end == {"complete": True, "events": 3}
        reader.close()

    @pytest.mark.usefixtures("made_in")
    def test_damaged_values_are_never_handed_out(self, left):
        part = left.with_name("run.h5.part")
        reader = JournalReader(journal_of(left))
        events = [entry for entry in reader.refresh() if not isinstance(entry, dict)]
        content = bytearray(part.read_bytes())
        content[events[3].offset + 2] ^= 1
        part.write_bytes(content)
        assert [is_whole(reader, event) for event in events] == [True, True, True, False, True, True]
        with pytest.raises(RecordingError, match=r"'t3'.*differ from the recorded hash"):
            reader.read(events[3])
        reader.close()

    @pytest.mark.usefixtures("made_in")
    def test_payloads_that_are_missing(self, left):
        os.truncate(left.with_name("run.h5.part"), 10)
        reader = JournalReader(journal_of(left))
        events = [entry for entry in reader.refresh() if not isinstance(entry, dict)]
        assert [is_whole(reader, event) for event in events] == [True, *[False] * 5]
        reader.close()

    def test_a_link_in_place_of_the_payloads_is_not_followed(self, left, tmp_path):
        part = left.with_name("run.h5.part")
        part.rename(tmp_path / "elsewhere")
        part.symlink_to(tmp_path / "elsewhere")
        reader = JournalReader(journal_of(left))
        events = [entry for entry in reader.refresh() if not isinstance(entry, dict)]
        assert not is_whole(reader, events[2])
        reader.close()

    def test_it_is_found_by_any_of_its_names(self, left):
        journal = journal_of(left)
        for name in (left, left.with_name("run.h5.part"), journal):
            assert journal_at(name) == journal
        assert journal_at(left.with_name("other.h5")) is None
        journal.rename(left.with_name("moved"))
        assert journal_at(left.with_name("moved")) == left.with_name("moved")
        assert journal_at(left) is None

    @pytest.mark.parametrize("kind", ["missing", "folder", "pipe"])
    def test_what_is_no_file_is_refused(self, tmp_path, kind):
        path = tmp_path / "x.journal"
        if kind == "folder":
            path.mkdir()
        if kind == "pipe":
            os.mkfifo(path)
        with pytest.raises(NotARecordingError):
            JournalReader(path)


def frame(kind, body, inline=b""):
    head = struct.pack("<IBBHIQ", 0x4D464451, kind, 0, 0, len(body), len(inline))
    return head + struct.pack("<I", zlib.crc32(head + body)) + body + inline


def row(**fields):
    """A row of the index as a program without qdebug would make it."""
    from qdebug.recording.format.specification import TABLES

    made = np.zeros((), TABLES["index"])
    for name, value in fields.items():
        made[name] = value
    return made.tobytes()


def foreign_event(name, values, *, check=True, nbytes=None):
    """An event that carries its values, as the format's description says it."""
    data = values.tobytes()
    body = row(
        dtype=10,
        ndim=values.ndim,
        shape=[*values.shape, *[0] * (8 - values.ndim)],
        nbytes=len(data) if nbytes is None else nbytes,
        hash=list(zlib.crc32(data).to_bytes(4, "little") + bytes(12)) if check else [0] * 16,
        count=values.size,
    )
    body += struct.pack("<QBBBB", 0, 2, 2 if check else 0, 0, 0) + name.encode()
    return frame(FrameKind.EVENT, body, data)


class TestJournalOfAnotherProgram:
    def write(self, path, *frames):
        path.write_bytes(b"QDJ1\r\n\x1a\n" + b"".join(frames))
        return JournalReader(path)

    @pytest.mark.parametrize("check", [True, False])
    @pytest.mark.usefixtures("made_in")
    def test_values_behind_their_frame(self, tmp_path, check):
        values = np.array([[1, 2], [3, 4.5]], np.float32)
        reader = self.write(tmp_path / "c", foreign_event("a", values, check=check))
        (event,) = reader.refresh()
        assert (event.name, event.dtype, event.shape) == ("a", "float32", (2, 2))
        assert reader.read(event).tolist() == values.tolist()
        reader.close()

    def test_rotten_values_behind_their_frame(self, tmp_path):
        content = bytearray(foreign_event("a", np.ones(4, np.float32)))
        content[-1] ^= 1
        reader = self.write(tmp_path / "c", bytes(content))
        (event,) = reader.refresh()
        assert not is_whole(reader, event)
        reader.close()

    @pytest.mark.parametrize("nbytes", [12, 20, 2**63])
    def test_values_that_are_not_as_many_as_said(self, tmp_path, nbytes):
        reader = self.write(tmp_path / "c", foreign_event("a", np.ones(4, np.float32), nbytes=nbytes))
        with pytest.raises(RecordingError, match="damaged"):
            reader.refresh()
        reader.close()

    @pytest.mark.parametrize(
        "body",
        [b"", bytes(300), row(dtype=200) + bytes(12) + b"a", row(ndim=33) + bytes(12) + b"a", row() + bytes(12)],
        ids=["nothing", "zeros", "dtype", "dimensions", "no name"],
    )
    def test_an_event_that_is_none(self, tmp_path, body):
        reader = self.write(tmp_path / "c", frame(FrameKind.EVENT, body))
        with pytest.raises(RecordingError, match="damaged"):
            reader.refresh()
        reader.close()

    @pytest.mark.parametrize("body", [b"[]", b"{", b"\xff", b"[" * 100_000], ids=["list", "cut", "no text", "deep"])
    @pytest.mark.parametrize("kind", [FrameKind.RUN, FrameKind.NOTE, FrameKind.END])
    def test_a_note_that_is_none(self, tmp_path, kind, body):
        reader = self.write(tmp_path / "c", frame(kind, body))
        with pytest.raises(RecordingError, match="damaged"):
            reader.refresh()
        reader.close()

    @pytest.mark.parametrize(
        "body",
        [b"", b"\xff\xff\xff\xff", struct.pack("<I", 2) + b"{}", struct.pack("<I", 13) + b'{"tables":{}}'],
        ids=["nothing", "too long", "no tables", "no table"],
    )
    def test_a_graph_that_is_none(self, body):
        with pytest.raises(ValueError, match=r"."):
            decode_tables(body)

    def test_tables_of_impossible_size(self):
        head = json.dumps({"tables": {"dims": -8, "names": 1 << 60}}).encode()
        with pytest.raises(ValueError, match=r"."):
            decode_tables(struct.pack("<I", len(head)) + head)
