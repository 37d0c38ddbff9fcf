"""A file that we wrote, as we read it ourselves: as HDF5's own library does, or not at all."""

import contextlib
import os
import struct

import h5py
import numpy as np
import pytest

from qdebug.model.dtypes import LOGICAL_DTYPES
from qdebug.recording.format import OPTIONAL_TABLES, TABLES, payload_key, physical_dtype
from qdebug.recording.hdf5_file import ForeignFile, OwnFile, PayloadFile, Placed
from qdebug.recording.pack import pack
from qdebug.recording.read import FileRecording


def made(path, count, optional=()):
    """Make a file of payloads of all dtypes and some shapes; return what each is."""
    file, placed = PayloadFile(path), []
    for number in range(count):
        logical, shape = LOGICAL_DTYPES[number % len(LOGICAL_DTYPES)], ((2,), (), (0, 3), (1, 2, 1, 2, 1))[number % 4]
        nbytes = int(np.prod(shape)) * physical_dtype(logical).itemsize
        offset = file.write(memoryview(bytes([number % 251]) * nbytes)) if nbytes else None
        placed.append(Placed(number, logical, shape, offset))
    kinds = TABLES | {name: OPTIONAL_TABLES[name] for name in optional}
    tables = {name: np.zeros(number % 4, dtype) for number, (name, dtype) in enumerate(kinds.items())}
    file.finish(placed, tables, complete=count % 2 == 0)
    file.close()
    return placed


def read(path, placed, room=1 << 30):
    """Return all that can be read of such a file."""
    fd = os.open(path, os.O_RDONLY)
    try:
        own = OwnFile(fd, os.fstat(fd).st_size, room)
        tables = {name: own.table(name) for name in (*TABLES, *(own.tables & OPTIONAL_TABLES.keys()))}
        return own.attributes, tables, own.payloads, [own.payload(*each[:3]) for each in placed]
    finally:
        os.close(fd)


@pytest.mark.parametrize(("count", "optional"), [(0, ()), (1, OPTIONAL_TABLES), (9, ()), (257, ()), (1025, ())])
def test_all_is_where_the_library_finds_it(tmp_path, count, optional):
    placed = made(tmp_path / "a.h5", count, optional)
    attributes, tables, payloads, offsets = read(tmp_path / "a.h5", placed)
    with h5py.File(tmp_path / "a.h5") as file:
        found = {name: value.decode() if isinstance(value, bytes) else value for name, value in file.attrs.items()}
        assert attributes == found
        assert tables == {name: (file[name].id.get_offset() or 0, len(file[name])) for name in file if name != "t"}
        assert payloads == len(file["t"]) == count
        assert offsets == [file["t"][payload_key(each.number)].id.get_offset() or 0 for each in placed]


def test_a_bit_that_is_no_payload_and_no_row_is_noticed(tmp_path):
    path = tmp_path / "a.h5"
    placed = made(path, 12)
    whole, right = path.read_bytes(), read(path, placed)
    free = np.ones(len(whole), bool)
    free[1024 : placed[-1].offset + 64] = False
    for name, (offset, rows) in right[1].items():
        free[offset : offset + -(-rows * TABLES[name].itemsize // 8) * 8] = False
    unnoticed = set()
    for place in np.flatnonzero(free)[::7]:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        with contextlib.suppress(ForeignFile):
            if read(path, placed) == right:
                unnoticed.add(int(place))
    assert not unnoticed
    assert free.sum() > 5000


@pytest.mark.parametrize("size", [0, 1, 1023, 1024, -1])
def test_a_file_that_was_cut_is_not_read(tmp_path, size):
    path = tmp_path / "a.h5"
    placed = made(path, 3)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ForeignFile):
        read(path, placed)


@pytest.mark.parametrize("offset", [0, 1023])
def test_values_lie_behind_the_head(tmp_path, offset):
    path = tmp_path / "a.h5"
    placed = made(path, 1)
    whole, nbytes = path.read_bytes(), 2 * physical_dtype(placed[0].dtype).itemsize
    before, after = whole.split(struct.pack("<QQ", placed[0].offset, nbytes))
    path.write_bytes(before + struct.pack("<QQ", offset, nbytes) + after)
    with pytest.raises(ForeignFile):
        read(path, placed)


def test_names_that_are_mostly_a_hole_are_not_read(tmp_path):
    placed = made(tmp_path / "a.h5", 300)
    assert read(tmp_path / "a.h5", placed, room=300 * 16 + 8)
    with pytest.raises(ForeignFile):
        read(tmp_path / "a.h5", placed, room=300 * 16 + 7)


@pytest.mark.parametrize(
    "changed", [{"number": 99}, {"dtype": "int16"}, {"shape": (1,)}, {"shape": (2, 1)}], ids=["n", "t", "s", "ndim"]
)
def test_another_payload_than_the_expected_one_is_not_read(tmp_path, changed):
    placed = made(tmp_path / "a.h5", 3)
    with pytest.raises(ForeignFile):
        read(tmp_path / "a.h5", [placed[0]._replace(**changed)])


def test_the_library_is_not_asked_for_what_we_wrote(recorded, monkeypatch):
    def refuse(*arguments, **keys):
        raise AssertionError("opened by the library")

    monkeypatch.setattr(h5py.h5f, "open", refuse)
    with FileRecording(recorded) as recording:
        for event in range(recording.event_count):
            recording.check_payload(event)
        assert recording.load("x", 1)[0, 0] == 1


def test_what_we_packed_is_read_by_the_library(recorded, tmp_path):
    pack(recorded, tmp_path / "packed.h5")
    with FileRecording(recorded) as recording, FileRecording(tmp_path / "packed.h5") as packed:
        assert list(packed.names) == list(recording.names)
        for name, sample in ((name, sample) for name in packed.names for sample in range(2)):
            assert np.array_equal(packed.load(name, sample), recording.load(name, sample))
