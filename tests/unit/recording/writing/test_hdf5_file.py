"""The HDF5 file that we write ourselves, as HDF5's own library reads it."""

import os
import struct
import zlib
from itertools import product

import h5py
import numpy as np
import pytest

from qdebug.model.dtypes import LOGICAL_DTYPES
from qdebug.recording.format.specification import STATISTICS, TABLES, hdf5_type, physical_dtype
from qdebug.recording.writing.datasets import Chunks, PlacedPayload
from qdebug.recording.writing.hdf5_file import PayloadFile
from qdebug.recording.writing.hdf5_objects import key_type, tree_bytes

EMPTY = {name: np.empty(0, dtype) for name, dtype in TABLES.items()}


def data_of(array):
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def tables_of(events):
    """Return the tables of tensors "0", "1", ...; an event is a tensor, a sample and a payload."""
    count = 1 + max((tensor for tensor, *_ in events), default=-1)
    texts = [str(number).encode() for number in range(count)]
    strings, tensors = np.zeros(count, TABLES["strings"]), np.zeros(count, TABLES["tensors"])
    strings["length"] = [len(text) for text in texts]
    strings["offset"] = np.cumsum(strings["length"]) - strings["length"]
    tensors["name"] = np.arange(count)
    tensors["stands_for"] = tensors["layout"] = tensors["quant"] = -1
    index = np.zeros(len(events), TABLES["index"])
    for row, (tensor, sample, placed) in zip(index, events, strict=True):
        row["tensor"], row["sample"], row["payload"], row["quant"] = tensor, sample, placed.number, -1
    return EMPTY | {
        "index": index,
        "strings": strings,
        "tensors": tensors,
        "names": np.frombuffer(b"".join(texts), np.uint8),
    }


def finished(path, arrays):
    """Make a file of arrays, each a tensor with one sample."""
    file = PayloadFile(path)
    placed = [
        PlacedPayload(number, str(array.dtype), array.shape, file.write(data_of(array)) if array.size else None)
        for number, array in enumerate(arrays)
    ]
    file.finish(placed, tables_of([(each.number, 0, each) for each in placed]), is_complete=True)
    file.close()
    return path


@pytest.mark.parametrize(
    "count", [0, 1, 8, 9, 256, 257, 300, pytest.param(8192, marks=pytest.mark.slow), 8193], ids=str
)
def test_every_tensor_is_found_by_its_name(tmp_path, count):
    arrays = [np.full(number % 3, number, np.int32) for number in range(count)]
    with h5py.File(finished(tmp_path / "a.h5", arrays)) as file:
        assert list(file) == ["constants", "graph", "tensors"]
        assert list(file["graph"]) == sorted(["payloads", *TABLES])
        assert list(file["tensors"]) == sorted(map(str, range(count)))
        for number in {*range(min(count, 20)), *range(0, count, 97), *range(max(0, count - 20), count)}:
            assert np.array_equal(file["tensors"][str(number)][0], arrays[number])
        assert "missing" not in file["tensors"]


def test_shapes_and_bytes_are_those_given(tmp_path):
    shapes = [(), (0,), (1,), (3, 0, 2), (1,) * 29 + (2, 3), (1, 2, 3, 4, 5)]
    arrays = [np.random.default_rng(0).standard_normal(shape, np.float32) for shape in shapes]
    arrays = [np.asarray(array, np.float32) for array in arrays]
    with h5py.File(finished(tmp_path / "a.h5", arrays)) as file:
        for number, array in enumerate(arrays):
            found = file["tensors"][str(number)]
            assert (found.shape, found.dtype) == ((1, *array.shape), array.dtype)
            assert np.array_equal(found[0], array)


def test_types_and_attributes_are_those_of_the_format(tmp_path):
    file = PayloadFile(tmp_path / "a.h5")
    placed = [
        PlacedPayload(number, logical, (2,), file.write(memoryview(bytes(2 * physical_dtype(logical).itemsize))))
        for number, logical in enumerate(LOGICAL_DTYPES)
    ]
    tables = tables_of([(each.number, 0, each) for each in placed])
    tables["index"]["seq"] += 7
    file.finish(placed, tables, is_complete=False)
    file.close()
    with h5py.File(tmp_path / "a.h5") as made:
        for number, logical in enumerate(LOGICAL_DTYPES):
            found = made["tensors"][str(number)]
            assert found.id.get_type().equal(hdf5_type(logical)), logical
            assert found.attrs["dtype"] == logical.encode()
        assert set(made["graph"]["index"]["seq"].tolist()) == {7}
        columns = [name for name in TABLES["index"].names if name not in STATISTICS]
        assert made["graph"]["index"].dtype == np.dtype([(name, TABLES["index"][name]) for name in columns])
        assert dict(made.attrs) | {"format": b"qdebug.recording", "format_version": 2, "complete": 0} == dict(
            made.attrs
        )


def chunked(path, shape, chunk, filters, stored):
    """Make a file of one tensor of int32 in chunks."""
    file = PayloadFile(path)
    kept = [(file.write(memoryview(data)), len(data), 0) for data in stored]
    placed = [PlacedPayload(0, "int32", shape, None, Chunks(chunk, filters, kept))]
    file.finish(placed, tables_of([(0, 0, placed[0])]), is_complete=True)
    file.close()
    return path


@pytest.mark.parametrize("count", [1, 64, 65, 4097])
def test_every_chunk_is_found(tmp_path, count):
    """More chunks than a node of the tree has room for, and than two levels have."""
    array = np.arange(4 * count * 3, dtype=np.int32).reshape(4 * count, 3) // 5
    stored = []
    for row, column in product(range(0, 4 * count, 4), range(0, 3, 2)):
        part = np.zeros((4, 2), np.int32)
        inside = array[row : row + 4, column : column + 2]
        part[:, : inside.shape[1]] = inside
        stored.append(zlib.compress(data_of(part.reshape(-1).view(np.uint8).reshape(-1, 4).T), 1))  # shuffled
    filters = ((h5py.h5z.FILTER_SHUFFLE, (4,)), (h5py.h5z.FILTER_DEFLATE, (1,)))
    with h5py.File(chunked(tmp_path / "a.h5", array.shape, (4, 2), filters, stored)) as made:
        found = made["tensors"]["0"]
        assert (found.chunks, found.compression, found.shuffle) == ((1, 4, 2), "gzip", True)
        assert found.id.get_num_chunks() == len(stored)
        assert np.array_equal(found[0], array)


def test_nobody_opens_a_file_that_is_being_written(tmp_path):
    file = PayloadFile(tmp_path / "a.h5")
    file.write(memoryview(b"1234"))
    with pytest.raises(OSError, match="already open for write"):
        h5py.File(tmp_path / "a.h5")
    file.finish([], EMPTY, is_complete=True)
    with h5py.File(tmp_path / "a.h5") as made:
        assert not len(made["tensors"])
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
    filters = ((32015, values), (h5py.h5z.FILTER_SHUFFLE, (4,)))
    with h5py.File(chunked(tmp_path / "a.h5", (3,), (3,), filters, [b"abc"])) as made:
        found = made["tensors"]["0"].id
        listed = found.get_create_plist()
        assert listed.get_nfilters() == 2
        assert [listed.get_filter(at)[0] for at in range(2)] == [32015, h5py.h5z.FILTER_SHUFFLE]
        assert listed.get_filter(0)[2] == values
        assert found.get_chunk_info(0).size == 3


def nodes_of(content, at):
    """Return what the B-tree node at some place says: type, level, entries, and the nodes beside it."""
    signature, kind, level, entries, left, right = struct.unpack_from("<4sBBHQQ", content, at)
    assert signature == b"TREE"
    return kind, level, entries, left, right


@pytest.mark.parametrize("most", [2, 6, 64])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 36, 37, 64, 65, 64 * 64 + 1])
def test_each_level_of_a_tree_is_a_chain_from_the_first_to_the_last(count, most):
    """As the format has it: the nodes of a level know each other, all but the last are full, keys go up."""
    keys, at = np.zeros(count + 1, key_type(1)), 800
    keys["size"][:-1], keys["at"][:, 0] = 1, 2 * np.arange(count + 1)
    places = np.arange(count, dtype=np.uint64) * np.uint64(16)
    content, roots = tree_bytes(1, keys, np.stack([places, places + np.uint64(1)]), at, max_children=most)
    none, width = (1 << 64) - 1, 8 + 8 * 2
    size = 24 + (most + 1) * width + most * 8
    assert len(content) % (2 * size) == 0
    for tree in range(2):
        first = at + tree * len(content) // 2
        level, seen = [first + number * size for number in range(-(-count // most))], 0
        while True:
            found = [nodes_of(content, place - at) for place in level]
            assert [row[2] for row in found[:-1]] == [most] * (len(found) - 1)
            assert [row[3] for row in found] == [none, *level[:-1]]
            assert [row[4] for row in found] == [*level[1:], none]
            assert [row[1] for row in found] == [seen] * len(found)
            own_keys, children = [], []
            for place, row in zip(level, found, strict=True):
                entries = [
                    struct.unpack_from("<IIQQQ", content, place - at + 24 + number * (width + 8))
                    for number in range(row[2])
                ]
                (behind,) = struct.unpack_from("<Q", content, place - at + 24 + row[2] * (width + 8) + 8)
                own_keys.append([*(entry[2] for entry in entries), behind])
                children += [entry[4] for entry in entries]
            if seen == 0:
                assert children == (places + np.uint64(tree)).tolist()
            assert [own[-1] for own in own_keys[:-1]] == [own[0] for own in own_keys[1:]]
            assert (own_keys[0][0], own_keys[-1][-1]) == (0, 2 * count)
            assert all(own == sorted(set(own)) for own in own_keys)
            if len(level) == 1:
                break
            below, seen = level, seen + 1
            level = [below[-1] + (number + 1) * size for number in range(-(-len(below) // most))]
            above = [nodes_of(content, place - at) for place in level]
            assert sum(row[2] for row in above) == len(below)
        assert level == [roots[tree]]


def test_parts_begin_where_readers_expect_them(tmp_path):
    """Values at multiples of 16 bytes, all else at multiples of 8."""
    arrays = [np.arange(size, dtype=np.uint8) for size in (1, 15, 16, 17, 0, 33)]
    content = finished(tmp_path / "a.h5", arrays).read_bytes()
    with h5py.File(tmp_path / "a.h5") as made:
        offsets = [made["tensors"][str(number)].id.get_offset() for number in range(len(arrays))]
    assert offsets == [1024, 1040, 1056, 1072, None, 1104]
    assert len(content) % 8 == 0
    for signature in (b"TREE", b"SNOD", b"HEAP"):
        places = [at for at in range(len(content)) if content.startswith(signature, at)]
        assert places
        assert not any(at % 8 for at in places)
