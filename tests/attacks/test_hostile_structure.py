"""Files that plain h5py would follow, expand or trip over: refused before anything of them is opened or read."""

import itertools
import re

import h5py
import numpy as np
import pytest
from sweeps import sweep

from qdebug.errors import NotARecordingError, RecordingError
from qdebug.recording.format.specification import TABLES
from qdebug.recording.reading.read import FileRecording

PLACES = ["index", "names", "t/00000000"]


def test_the_genuine_one_is_read(victim):
    with FileRecording(victim) as recording:
        assert recording.load("x").tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]


def arm(secret):
    if hasattr(secret, "arm"):
        secret.arm()


# -- other files


@pytest.mark.parametrize("place", PLACES)
def test_external_storage(place, spoil, refused, tmp_path):
    loot = tmp_path / "passwd"
    loot.write_bytes(b"s3cr3t" * 4096)

    def attack(file):
        old = file[place]
        shape, dtype = old.shape, old.dtype
        del file[place]
        file.create_dataset(place, shape, dtype, external=[(str(loot), 0, h5py.h5f.UNLIMITED)])

    spoil(attack)
    assert "another file" in refused(RecordingError)


@pytest.mark.parametrize("place", [*PLACES, "t"])
def test_external_link(place, spoil, refused, secret):
    def attack(file):
        del file[place]
        file[place] = h5py.ExternalLink(str(getattr(secret, "path", secret)), "/data")

    spoil(attack)
    arm(secret)
    assert "link" in refused(RecordingError)


@pytest.mark.parametrize("place", [*PLACES, "t"])
def test_soft_link(place, spoil, refused):
    def attack(file):
        file.move(place, "elsewhere")
        file[place] = h5py.SoftLink("/elsewhere")

    spoil(attack)
    assert "link" in refused(RecordingError)


@pytest.mark.parametrize("place", PLACES)
def test_virtual_dataset(place, spoil, refused, secret):
    def attack(file):
        shape, dtype = file[place].shape, file[place].dtype
        del file[place]
        layout = h5py.VirtualLayout(shape, dtype)
        layout[...] = h5py.VirtualSource(str(getattr(secret, "path", secret)), "data", shape)
        file.create_virtual_dataset(place, layout)

    spoil(attack)
    arm(secret)
    assert "virtual" in refused(RecordingError)


def test_a_virtual_dataset_that_grows_with_its_sources(spoil, refused, secret):
    def attack(file):
        del file["index"]
        layout = h5py.VirtualLayout((3,), np.float32, maxshape=(None,))
        source = h5py.VirtualSource(str(getattr(secret, "path", secret)), "data", (3,), np.float32, maxshape=(None,))
        layout[: h5py.h5s.UNLIMITED] = source[: h5py.h5s.UNLIMITED]
        file.create_virtual_dataset("index", layout)

    spoil(attack)
    arm(secret)
    assert "virtual" in refused(RecordingError)


# -- things of another kind


@pytest.mark.parametrize("place", PLACES)
def test_a_group_instead_of_a_dataset(place, spoil, refused):
    def attack(file):
        del file[place]
        file.create_group(place)

    spoil(attack)
    assert "is damaged" in refused(RecordingError)


def test_a_dataset_instead_of_the_group(spoil, refused):
    def attack(file):
        del file["t"]
        file["t"] = np.zeros(3)

    spoil(attack)
    assert re.search("is damaged|differ from what was recorded", refused(RecordingError))


def test_a_group_that_contains_itself(spoil, refused):
    def attack(file):
        del file["t"]
        file["t"] = file["/"]

    spoil(attack)
    assert "lacks" in refused(RecordingError)


TYPES = {
    "vlen text": h5py.string_dtype(),
    "fixed text": "S8",
    "vlen array": h5py.vlen_dtype(np.int32),
    "reference": h5py.ref_dtype,
    "region reference": h5py.regionref_dtype,
    "opaque": "V8",
    "compound with vlen": np.dtype([("a", "i4"), ("b", h5py.vlen_dtype(np.int8))]),
}


@pytest.mark.parametrize(("kind", "place"), sweep(itertools.product(TYPES, PLACES), 8))
def test_elements_of_a_foreign_type(place, kind, spoil, refused):
    def attack(file):
        del file[place]
        file.create_dataset(place, (3,), TYPES[kind])

    spoil(attack)
    assert "is damaged" in refused(RecordingError)


def test_a_compound_in_a_compound_without_end(spoil, refused):
    kind = np.dtype("i4")
    for _ in range(20):
        kind = np.dtype([("a", kind)])

    def attack(file):
        del file["index"]
        file.create_dataset("index", (3,), kind)

    spoil(attack)
    assert "is damaged" in refused(RecordingError)


# -- sizes


HUGE = [(1 << 50,), (1 << 30, 1 << 29), (1 << 60,)]


@pytest.mark.parametrize("shape", HUGE, ids=str)
@pytest.mark.parametrize("place", ["index", "t/00000000"])
def test_a_huge_shape_without_storage(place, shape, spoil, refused):
    def attack(file):
        del file[place]
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_LATE)
        space = h5py.h5s.create_simple(shape)
        file.create_low_level(place, h5py.h5t.IEEE_F32LE, space, plist)

    spoil(attack)
    assert "bytes" in refused(RecordingError)


@pytest.mark.parametrize("chunk", [1 << 10, 1 << 26], ids=["small chunks", "huge chunks"])
def test_a_bomb_of_chunks(chunk, spoil, refused):
    def attack(file):
        del file["t/00000000"]
        file.create_dataset("t/00000000", (1 << 40,), "f4", chunks=(chunk,), compression="gzip", shuffle=True)

    spoil(attack)
    assert re.search("stores|differs from the index", refused(RecordingError))


def test_a_filter_that_is_no_part_of_the_format(spoil, refused):
    def attack(file):
        del file["t/00000000"]
        file.create_dataset("t/00000000", data=np.zeros((2, 4), np.float32), chunks=(2, 4), compression="lzf")

    spoil(attack)
    assert "filter" in refused(RecordingError)


@pytest.mark.parametrize("layout", ["chunked", "compact"])
def test_a_table_in_another_storage(layout, spoil, refused):
    def attack(file):
        data = file["names"][...]
        del file["names"]
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT if layout == "compact" else h5py.h5d.CHUNKED)
        if layout == "chunked":
            plist.set_chunk((4,))
        space = h5py.h5s.create_simple(data.shape)
        dataset = file.create_low_level("names", h5py.h5t.STD_U8LE, space, plist)
        dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, data)

    spoil(attack)
    assert "is damaged" in refused(RecordingError)


@pytest.mark.parametrize("shape", [(), (1, 3), (0, 3), (3, 1)], ids=str)
def test_a_table_of_another_shape(shape, spoil, refused):
    def attack(file):
        del file["dims"]
        file.create_dataset("dims", shape, "i8")

    spoil(attack)
    assert "is damaged" in refused(RecordingError)


@pytest.mark.parametrize("change", ["shape", "dtype", "signedness", "byte order"])
def test_a_payload_that_is_not_what_the_index_says(change, spoil, refused):
    def attack(file):
        data = file["t/00000000"][...]
        changed = {
            "shape": data.reshape(4, 2),
            "dtype": data.view(np.int32),
            "signedness": data.view(np.uint32),
            "byte order": data.astype(">f4"),
        }[change]
        del file["t/00000000"]
        file["t/00000000"] = changed

    spoil(attack)
    assert re.search("payload 0|bytes of tensor 'x'", refused(RecordingError))


@pytest.mark.parametrize("table", sweep(TABLES, 4))
def test_a_missing_table(table, spoil, refused):
    spoil(lambda file: file.__delitem__(table))
    assert f"/{table}" in refused(RecordingError)


def test_a_missing_payload(spoil, refused):
    spoil(lambda file: file.__delitem__("t/00000001"))
    assert "is damaged" in refused(RecordingError)


@pytest.mark.parametrize(
    "value", ["vlen", np.bytes_(b"x" * 60000), np.arange(3), h5py.Empty("f4"), np.bytes_(b"other")], ids=str
)
def test_a_format_attribute_of_another_kind(value, spoil, refused):
    def attack(file):
        del file.attrs["format"]
        file.attrs["format"] = value

    spoil(attack)
    assert "not a qdebug recording" in refused(NotARecordingError)


@pytest.mark.parametrize("value", ["1", 1.0, np.arange(2), -1, 0, np.bytes_(b"1")], ids=str)
def test_a_version_of_another_kind(value, spoil, refused):
    def attack(file):
        del file.attrs["format_version"]
        file.attrs["format_version"] = value

    spoil(attack)
    assert "is damaged" in refused(RecordingError)


@pytest.mark.parametrize("place", ["names", "t/00000000"])
def test_bytes_that_take_no_room_on_the_disk(place, victim, spoil, refused):
    size = 600 << 20 if place == "names" else 1 << 42

    def attack(file):
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        kind = h5py.h5t.py_create(file[place].dtype)
        del file[place]
        space = h5py.h5s.create_simple((size // kind.get_size(),))
        dataset = file.create_low_level(place, kind, space, plist)
        end = dataset.get_offset() + size
        del dataset
        file.flush()
        with victim.open("r+b") as raw:
            raw.truncate(max(end, victim.stat().st_size))

    spoil(attack)
    assert victim.stat().st_blocks * 512 < 1 << 20
    assert re.search("the file has|the file takes|differs from the index", refused(RecordingError))
