"""A large array that has to be made lies in a file without a name, and is the same array."""

import errno
import mmap
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdebug.numerics import large_arrays as spilled
from qdebug.numerics.large_arrays import STRETCH, ArrayBuilder, SpillFile, in_c_order, passed_pages


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("spilled")


@pytest.fixture(autouse=True, scope="module")
def all_is_large(folder):
    """Make every array in a file of a folder, in pieces of some elements."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spilled, "SPILL_FROM", 1)
        patch.setattr(spilled.tempfile, "tempdir", str(folder))
        patch.setattr(spilled, "_PIECE", 64)
        patch.setattr(spilled, "_AT_ONCE", 16)
        yield


def in_file(array):
    owner = array
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return isinstance(owner, SpillFile)


@st.composite
def turned(draw):
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    values = np.arange(np.prod(shape), dtype=draw(st.sampled_from(["<f4", ">f4", "i1", "<f8"]))).reshape(shape)
    values = values.transpose(draw(st.permutations(range(len(shape)))))
    spans = [slice(None, None, draw(st.sampled_from([1, 1, 2, -1]))) for _ in shape]
    return values[tuple(spans)]


@pytest.mark.parametrize("crumb", [0, 16, 1 << 20])
def test_a_turned_array_is_copied_as_numpy_does(crumb, monkeypatch):
    monkeypatch.setattr(spilled, "_MIN_RUN", crumb)

    @given(turned())
    def copied(array):
        made = in_c_order(array)
        assert made.dtype == array.dtype
        assert made.flags.c_contiguous
        assert np.array_equal(made, array)
        assert in_file(made) != array.flags.c_contiguous

    copied()


@given(turned(), st.data())
def test_parts_come_to_the_whole(array, data):
    cuts = [sorted(data.draw(st.sets(st.integers(1, extent), max_size=3))) for extent in array.shape]
    spans = [
        [slice(a, b) for a, b in zip([0, *cut], [*cut, extent], strict=True) if a < b]
        for cut, extent in zip(cuts, array.shape, strict=True)
    ]
    making = ArrayBuilder(array.shape, array.dtype)
    places = [()]
    for some in spans:
        places = [(*place, span) for place in places for span in some]
    for place in data.draw(st.permutations(places)):
        making.put(place, array[place])
    assert np.array_equal(making.finish(), array)
    making, flat = ArrayBuilder(array.shape, array.dtype), np.ravel(array)
    for start in range(0, flat.size, 7):
        making.put_flat(start, flat[start : start + 7])
    assert np.array_equal(making.finish(), array)


def test_it_is_read_only_and_leaves_nothing(folder):
    making = ArrayBuilder((4, 4), np.dtype(np.float32))
    making.put_flat(0, np.arange(16, dtype=np.float32))
    array = making.finish()
    assert in_file(array)
    assert not array.flags.writeable
    assert list(folder.iterdir()) == []
    assert passed_pages(array) is None, "small"


@pytest.mark.parametrize("shape", [(0,), (), (3, 0)])
def test_nothing_and_one_number(shape):
    assert in_c_order(np.zeros((*shape, 1))[..., 0]).size == np.prod(shape)
    assert ArrayBuilder(shape, np.dtype(np.int8)).finish().shape == shape


def test_what_is_small_is_made_in_memory(monkeypatch):
    monkeypatch.setattr(spilled, "SPILL_FROM", 65)
    making = ArrayBuilder((4, 4), np.dtype(np.float32))
    making.put((slice(0, 4), slice(0, 4)), np.ones((4, 4)))
    assert not in_file(making.finish())
    assert making.finish().sum() == 16


def _full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("statvfs", lambda _: SimpleNamespace(f_bavail=31, f_frsize=1)),
        ("statvfs", _full),
        ("posix_fallocate", _full),
    ],
)
def test_without_room_on_the_disk_it_is_made_in_memory(name, answer, monkeypatch):
    monkeypatch.setattr(os, name, answer, raising=False)
    making = ArrayBuilder((16,), np.dtype(np.int8))
    making.put_flat(0, np.arange(16, dtype=np.int8))
    assert not in_file(making.finish())
    assert making.finish().tolist() == list(range(16))


def test_what_cannot_be_mapped_is_read_back(monkeypatch):
    making = ArrayBuilder((16,), np.dtype(np.int8))
    making.put_flat(0, np.arange(16, dtype=np.int8))
    monkeypatch.setattr(spilled, "SpillFile", _full)
    monkeypatch.setattr(spilled, "_MAX_READ", 5)
    assert making.finish().tolist() == list(range(16))


def test_room_is_taken_where_the_system_has_no_call_for_it(monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    monkeypatch.setattr(spilled, "_ZEROS", 5)
    making = ArrayBuilder((16,), np.dtype(np.int8))
    assert os.fstat(making._fd).st_size == 16
    making.put_flat(8, np.ones(8, np.int8))
    assert making.finish().tolist() == [0] * 8 + [1] * 8


def test_large_files_do_not_go_where_memory_is(monkeypatch):
    monkeypatch.setattr(spilled.tempfile, "tempdir", "/tmp")  # noqa: S108  nothing is made there
    assert spilled._temporary_folders() == ("/var/tmp", "/tmp")  # noqa: S108


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or not hasattr(mmap, "MADV_DONTNEED"),
    reason="reads what Linux says of a process's memory",
)
@pytest.mark.parametrize("order", ["0, 2, 1", "2, 1, 0", "1, 0, 2"])
def test_memory_stays_flat(order, tmp_path):
    (tmp_path / "values").write_bytes(b"")
    os.truncate(tmp_path / "values", 6 * STRETCH)
    program = f"""
import numpy as np, pathlib, tempfile
from qdebug.numerics.large_arrays import in_c_order
tempfile.tempdir = {str(tmp_path)!r}
values = np.memmap({str(tmp_path / "values")!r}, np.float32, mode="r").reshape(3, 1024, -1).transpose({order})
def peak():
    return 1024 * int(pathlib.Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
before = peak()
made = in_c_order(values)
assert made.flags.c_contiguous and made.shape == values.shape
print(peak() - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 3 * STRETCH
