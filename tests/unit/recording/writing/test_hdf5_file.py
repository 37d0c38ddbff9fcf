"""The HDF5 file that we write ourselves, as HDF5's own library reads it."""

import os
import struct
import zlib
from itertools import product

import h5py
import numpy as np
import pytest

from qdebug.model.dtypes import LOGICAL_DTYPES
from qdebug.recording.format.specification import TABLES, hdf5_type, payload_key, physical_dtype
from qdebug.recording.writing.hdf5_file import Chunks, PayloadFile, Placed

EMPTY = {name: np.empty(0, dtype) for name, dtype in TABLES.items()}


def data_of(array):
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def finished(path, arrays, tables=EMPTY):
    """Make a file of arrays by their logical dtype, which numpy's is if it is a list."""
    file = PayloadFile(path)
    placed = [
        Placed(number, str(array.dtype), array.shape, file.write(data_of(array)) if array.size else None)
        for number, array in enumerate(arrays)
    ]
    file.finish(placed, tables, complete=True)
    file.close()
    return path


@pytest.mark.parametrize(
    "count", [0, 1, 8, 9, 256, 257, 300, pytest.param(8192, marks=pytest.mark.slow), 8193], ids=str
)
def test_every_payload_is_found_by_its_name(tmp_path, count):
    arrays = [np.full(number % 3, number, np.int32) for number in range(count)]
    with h5py.File(finished(tmp_path / "a.h5", arrays)) as file:
        assert list(file) == sorted(["t", *TABLES])
        assert list(file["t"]) == [payload_key(number).decode() for number in range(count)]
        for number in {*range(min(count, 20)), *range(0, count, 97), *range(max(0, count - 20), count)}:
            assert np.array_equal(file["t"][payload_key(number)], arrays[number])
        assert "missing" not in file["t"]


def test_shapes_and_bytes_are_those_given(tmp_path):
    shapes = [(), (0,), (1,), (3, 0, 2), (1,) * 30 + (2, 3), (1, 2, 3, 4, 5)]
    arrays = [np.random.default_rng(0).standard_normal(shape, np.float32) for shape in shapes]
    arrays = [np.asarray(array, np.float32) for array in arrays]
    with h5py.File(finished(tmp_path / "a.h5", arrays)) as file:
        for number, array in enumerate(arrays):
            found = file["t"][payload_key(number)]
            assert (found.shape, found.dtype) == (array.shape, array.dtype)
            assert np.array_equal(found[()], array)


def test_types_and_attributes_are_those_of_the_format(tmp_path):
    file = PayloadFile(tmp_path / "a.h5")
    placed = [
        Placed(number, logical, (2,), file.write(memoryview(bytes(2 * physical_dtype(logical).itemsize))))
        for number, logical in enumerate(LOGICAL_DTYPES)
    ]
    rows = np.zeros(3, TABLES["index"])
    rows["seq"] = [7, 8, 9]
    file.finish(placed, {**EMPTY, "index": rows}, complete=False)
    file.close()
    with h5py.File(tmp_path / "a.h5") as made:
        for number, logical in enumerate(LOGICAL_DTYPES):
            assert made["t"][payload_key(number)].id.get_type().equal(hdf5_type(logical)), logical
        assert made["index"]["seq"].tolist() == [7, 8, 9]
        assert made["index"].dtype == TABLES["index"]
        assert dict(made.attrs) | {"format": b"qdebug.recording", "format_version": 1, "complete": 0} == dict(
            made.attrs
        )


@pytest.mark.parametrize("count", [1, 64, 65, 4097])
def test_every_chunk_is_found(tmp_path, count):
    """More chunks than a node of the tree has room for, and than two levels have."""
    array = np.arange(4 * count * 3, dtype=np.int16).reshape(4 * count, 3) // 5
    places = list(product(range(0, 4 * count, 4), range(0, 3, 2)))
    file, stored = PayloadFile(tmp_path / "a.h5"), []
    for row, column in places:
        part = np.zeros((4, 2), np.int16)
        inside = array[row : row + 4, column : column + 2]
        part[:, : inside.shape[1]] = inside
        packed = zlib.compress(data_of(part.reshape(-1).view(np.uint8).reshape(-1, 2).T), 1)  # shuffled
        stored.append((file.write(memoryview(packed)), len(packed)))
    filters = ((h5py.h5z.FILTER_SHUFFLE, (2,)), (h5py.h5z.FILTER_DEFLATE, (1,)))
    file.finish([Placed(0, "int16", array.shape, None, Chunks((4, 2), filters, places, stored))], EMPTY, complete=True)
    file.close()
    with h5py.File(tmp_path / "a.h5") as made:
        found = made["t/00000000"]
        assert (found.chunks, found.compression, found.shuffle) == ((4, 2), "gzip", True)
        assert found.id.get_num_chunks() == len(places)
        assert np.array_equal(found[()], array)


def test_nobody_opens_a_file_that_is_being_written(tmp_path):
    file = PayloadFile(tmp_path / "a.h5")
    file.write(memoryview(b"1234"))
    with pytest.raises(OSError, match="already open for write"):
        h5py.File(tmp_path / "a.h5")
    file.finish([], EMPTY, complete=True)
    with h5py.File(tmp_path / "a.h5") as made:
        assert not len(made["t"])
    file.abandon()
    file.abandon()


def test_what_cannot_be_made_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space"):
        PayloadFile(tmp_path / "a.h5")
    assert not list(tmp_path.iterdir())


def test_a_payload_that_was_not_written_leaves_its_place_to_the_next(tmp_path, monkeypatch):
    file = PayloadFile(tmp_path / "a.h5")

    def broken(*_):
        raise OSError(5, os.strerror(5))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", broken)
        with pytest.raises(OSError, match="Input/output"):
            file.write(memoryview(bytes(100)))
    first, second = file.write(memoryview(b"a" * 17)), file.write(memoryview(b"b"))
    assert (first, second) == (1024, 1056)
    file.abandon()


@pytest.mark.parametrize("values", [(), (7,), (7, 9), (7, 9, 11), (1, 2, 3, 4)])
def test_a_filter_has_as_many_values_as_it_takes(tmp_path, values):
    """The file pads an odd number of them, which no reader sees."""
    file = PayloadFile(tmp_path / "a.h5")
    stored = [(file.write(memoryview(b"abc")), 3)]
    filters = ((32015, values), (h5py.h5z.FILTER_SHUFFLE, (4,)))
    file.finish([Placed(0, "int32", (3,), None, Chunks((3,), filters, [(0,)], stored))], EMPTY, complete=True)
    file.close()
    with h5py.File(tmp_path / "a.h5") as made:
        listed = made["t/00000000"].id.get_create_plist()
        assert listed.get_nfilters() == 2
        assert [listed.get_filter(at)[0] for at in range(2)] == [32015, h5py.h5z.FILTER_SHUFFLE]
        assert listed.get_filter(0)[2] == values
        assert made["t/00000000"].id.get_chunk_info(0).size == 3


def nodes_of(content, at):
    """Return what the B-tree node at some place says: type, level, entries, and the nodes beside it."""
    signature, kind, level, entries, left, right = struct.unpack_from("<4sBBHQQ", content, at)
    assert signature == b"TREE"
    return kind, level, entries, left, right


@pytest.mark.parametrize(("count", "most"), [(1, 64), (64, 64), (65, 64), (64 * 64 + 1, 64)])
def test_each_level_of_a_tree_is_a_chain_from_the_first_to_the_last(tmp_path, count, most):
    """As the format has it: the nodes of a level know each other, all but the last are full, keys go up."""
    file = PayloadFile(tmp_path / "a.h5")
    stored = [(file.write(memoryview(bytes([number % 251]))), 1) for number in range(count)]
    places = [(number * 2,) for number in range(count)]
    file.finish([Placed(0, "int8", (2 * count,), None, Chunks((2,), (), places, stored))], EMPTY, complete=True)
    file.close()
    content = (tmp_path / "a.h5").read_bytes()
    leaf = content.index(b"TREE\x01\x00")
    none, seen, width = (1 << 64) - 1, 0, 8 + 8 * 2
    size = 24 + (most + 1) * width + most * 8
    level = [leaf + number * size for number in range(-(-count // most))]
    while True:
        found = [nodes_of(content, at) for at in level]
        assert [row[2] for row in found[:-1]] == [most] * (len(found) - 1)
        assert [row[3] for row in found] == [none, *level[:-1]]
        assert [row[4] for row in found] == [*level[1:], none]
        assert [row[1] for row in found] == [seen] * len(found)
        keys = []
        for at, row in zip(level, found, strict=True):
            entries = [
                struct.unpack_from("<IIQQQ", content, at + 24 + number * (width + 8)) for number in range(row[2])
            ]
            (behind,) = struct.unpack_from("<Q", content, at + 24 + row[2] * (width + 8) + 8)
            keys.append([*(entry[2] for entry in entries), behind])
            if not seen:
                assert [entry[4] for entry in entries] == [place for place, _ in stored][len(keys) * most - most :][
                    :most
                ]
        assert [own[-1] for own in keys[:-1]] == [own[0] for own in keys[1:]]
        assert keys[0][0] == 0
        assert keys[-1][-1] == 2 * count
        assert all(own == sorted(set(own)) for own in keys)
        if len(level) == 1:
            break
        above, seen = level[-1] + size, seen + 1
        many = -(-len(level) // most)
        level = [above + number * size for number in range(many)]


def test_parts_begin_where_readers_expect_them(tmp_path):
    """Values at multiples of 16 bytes, all else at multiples of 8."""
    arrays = [np.arange(size, dtype=np.uint8) for size in (1, 15, 16, 17, 0, 33)]
    content = finished(tmp_path / "a.h5", arrays).read_bytes()
    with h5py.File(tmp_path / "a.h5") as made:
        offsets = [made["t"][payload_key(number)].id.get_offset() for number in range(len(arrays))]
    assert offsets == [1024, 1040, 1056, 1072, None, 1104]
    assert len(content) % 8 == 0
    for signature in (b"TREE", b"SNOD", b"HEAP"):
        places = [at for at in range(len(content)) if content.startswith(signature, at)]
        assert places
        assert not any(at % 8 for at in places)
