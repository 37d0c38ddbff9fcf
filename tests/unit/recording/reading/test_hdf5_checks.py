"""What a dataset declares is checked before anything of it is read."""

import h5py
import numpy as np
import pytest

from qdebug.recording.reading.hdf5_checks import MAX_CHUNK_BYTES, open_dataset, open_group

PLAIN, PACKED = b"plain", b"packed"


@pytest.fixture
def file(tmp_path):
    """An HDF5 file with a contiguous dataset, and one that is stored in chunks of zeros."""
    with h5py.File(tmp_path / "x.h5", "w") as made:
        made["plain"] = np.arange(100, dtype=np.float32)
        made.create_dataset("packed", data=np.zeros(100_000, np.int8), chunks=(50_000,), compression="gzip")
    with h5py.File(tmp_path / "x.h5", "a") as opened:
        yield opened


def created(file, kind, *, chunk, filters=(), shape=(8,)):
    """Create a dataset that may grow, by its properties."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk(chunk)
    for number in filters:
        plist.set_filter(number, h5py.h5z.FLAG_OPTIONAL, (1,))
    space = h5py.h5s.create_simple(shape, (h5py.h5s.UNLIMITED,))
    h5py.h5d.create(file.id, b"new", h5py.h5t.py_create(np.dtype(kind)), space, plist)


def refused(file, name, size=1 << 40):
    with pytest.raises(ValueError, match=r".*") as caught:
        open_dataset(file.id, name, file_size=size)
    return str(caught.value)


def test_contiguous_values_lie_within_the_file_to_the_last_byte(file):
    dataset, extent = open_dataset(file.id, PLAIN, file_size=1 << 40)
    end = dataset.get_offset() + 400
    assert (extent.offset, extent.nbytes) == (dataset.get_offset(), 400)
    open_dataset(file.id, PLAIN, file_size=end)
    assert "declares 400 bytes, more than the file has" in refused(file, PLAIN, end - 1)


def test_packed_values_are_held_against_the_size_of_the_file_too(file):
    open_dataset(file.id, PACKED, file_size=1 << 40)
    assert "declares 100000 bytes, but stores" in refused(file, PACKED, 50)


@pytest.mark.parametrize(("elements", "fine"), [(MAX_CHUNK_BYTES, True), (MAX_CHUNK_BYTES + 1, False)])
def test_a_chunk_takes_no_more_than_its_limit_however_little_it_holds(file, elements, fine):
    created(file, "i1", chunk=(elements,), shape=(0,))
    if fine:
        open_dataset(file.id, b"new", file_size=1 << 40)
    else:
        assert "declares 0 bytes" in refused(file, b"new")


@pytest.mark.parametrize("filters", [(1, 1), (2, 1, 2)])
def test_no_filter_comes_twice(file, filters):
    created(file, "i1", chunk=(8,), filters=filters)
    assert f"needs the HDF5 filters {sorted(filters)}" in refused(file, b"new")


def test_types_nest_a_little_and_no_more(file):
    for depth in range(8):
        kind = np.dtype("i4")
        for _ in range(depth):
            kind = np.dtype([("a", kind)])
        created(file, kind, chunk=(8,), shape=(0,))
        if depth <= 4:
            open_dataset(file.id, b"new", file_size=1 << 40)
        else:
            assert "of an unexpected type" in refused(file, b"new")
        del file["new"]


def test_values_in_another_file_are_refused_by_that_name(file, tmp_path):
    (tmp_path / "other").write_bytes(bytes(400))
    file.create_dataset("new", (100,), "f4", external=[(str(tmp_path / "other"), 0, 400)])
    assert "stores its data in another file" in refused(file, b"new")


@pytest.mark.parametrize("link", [h5py.SoftLink("/real"), h5py.ExternalLink("x.h5", "/real")])
def test_a_group_is_opened_where_it_lies_and_not_through_a_link(file, link):
    file.create_group("real")
    file["linked"] = link
    assert open_group(file.id, b"real").get_num_objs() == 0
    for name, said in ((b"linked", "link"), (b"nowhere", "lacks"), (PLAIN, "cannot be opened as a group")):
        with pytest.raises(ValueError, match=said):
            open_group(file.id, name)
