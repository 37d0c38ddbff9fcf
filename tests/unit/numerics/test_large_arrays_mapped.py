"""What was read of a mapped file is given back, and is read again as it was."""

import mmap
import subprocess
import sys

import numpy as np
import pytest

from qdebug.numerics.blocks import RealBlocks
from qdebug.numerics.large_arrays import STRETCH, passed_pages, touched_pages

COUNT = 3 * STRETCH // 4 + 1000


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "values"
    np.arange(COUNT + 3, dtype=np.float32).tofile(path)
    return path


def mapped(path, offset, access=mmap.ACCESS_READ):
    with path.open("rb") as file:
        held = mmap.mmap(file.fileno(), 0, access=access)
    return np.frombuffer(held, np.float32, count=COUNT, offset=offset)


@pytest.mark.parametrize("offset", [0, 4, 12])
def test_all_is_read_twice_as_it_is(path, offset):
    values = mapped(path, offset)
    assert passed_pages(values.reshape(2, -1)) is not None
    blocks, out = RealBlocks(values), np.empty(1 << 20, np.float32)
    expected = np.arange(COUNT + 3, dtype=np.float32)[offset // 4 :][:COUNT]
    for _ in range(2):
        for start in range(0, COUNT, out.size):
            stop = min(start + out.size, COUNT)
            assert np.array_equal(blocks.read_single(start, stop, out), expected[start:stop])
    assert np.array_equal(values, expected)


def test_only_what_the_file_has_as_well_is_given_back(path):
    assert passed_pages(mapped(path, 0)[: STRETCH // 4]) is None  # small
    assert passed_pages(np.zeros(COUNT, np.float32)) is None
    held = mmap.mmap(-1, COUNT * 4)
    assert passed_pages(np.frombuffer(held, np.float32)) is None
    changed = np.memmap(path, np.float32, mode="c")
    changed[:] = 1
    assert passed_pages(changed) is None
    assert passed_pages(np.memmap(path, np.float32, mode="r")) is not None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads what Linux says of a process's memory")
def test_memory_stays_flat(path):
    program = f"""
import numpy as np, pathlib
from qdebug.numerics.accumulate import ErrorAccumulator
values = np.memmap({str(path)!r}, np.float32, mode="r")
small = ErrorAccumulator()
small.update(values[:100000], values[:100000], sample=0)
def peak():  # `ru_maxrss` would count what the parent had when it forked, too
    return 1024 * int(pathlib.Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
before = peak()
small.update(values, values[:], sample=0)
print(peak() - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 2 * STRETCH < COUNT * 4


def test_what_is_turned_is_read_as_it_is(path):
    values = mapped(path, 4)[: COUNT // 24 * 24].reshape(4, -1, 6).transpose(0, 2, 1)
    assert touched_pages(values) is not None
    assert touched_pages(values[:, ::-1]) is None, "it is not known where that begins"
    assert touched_pages(values[:1, :, :100]) is None, "small"
    blocks, expected = RealBlocks(values), np.ravel(values)
    for start in range(0, values.size, 1 << 20):
        stop = min(start + (1 << 20), values.size)
        assert np.array_equal(blocks.stored(start, stop), expected[start:stop])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads what Linux says of a process's memory")
def test_memory_stays_flat_where_it_is_turned(path):
    program = f"""
import numpy as np, pathlib
from qdebug.numerics.blocks import RealBlocks
values = np.memmap({str(path)!r}, np.float32, mode="r")
values = values[:values.size // 32 * 32].reshape(-1, 32).T
def peak():
    return 1024 * int(pathlib.Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
blocks, before = RealBlocks(values), peak()
for start in range(0, values.size, 1 << 15):
    blocks.stored(start, min(start + (1 << 15), values.size))
print(peak() - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 2 * STRETCH < COUNT * 4
