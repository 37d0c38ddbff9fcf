"""The collector of cyclic garbage is left as it was; columns are as narrow as they can be."""

import ctypes
import gc
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdebug.model.bulk import garbage_left_alone, narrowed, own_bytes


def test_garbage_is_left_alone_inside_alone():
    assert gc.isenabled()
    with garbage_left_alone():
        assert not gc.isenabled()
        with garbage_left_alone():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_is_looked_for_again_after_a_failure():
    with pytest.raises(KeyError), garbage_left_alone():
        raise KeyError
    assert gc.isenabled()


def test_who_looks_for_none_goes_on_so():
    gc.disable()
    try:
        with garbage_left_alone():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_no_object_is_kept_from_being_collected_later():
    before = gc.get_freeze_count()
    with garbage_left_alone():
        cycle = []
        cycle.append(cycle)
        del cycle
    assert gc.get_freeze_count() == before


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=6))
def test_a_narrow_column_holds_the_same(values):
    column = np.array(values, np.int64)
    found = narrowed(column)
    assert found.tolist() == values
    assert found.dtype.kind in "iu"


@pytest.mark.parametrize(
    ("values", "kind"),
    [([0, 255], "u1"), ([0, 256], "u2"), ([-1, 127], "i1"), ([-1, 128], "i2"), ([-5, -1], "i1"), ([7, 7], "u1")],
)
def test_a_column_is_as_narrow_as_it_can_be(values, kind):
    assert narrowed(np.array(values, np.int64)).dtype == kind


def test_the_largest_unsigned_numbers_fit():
    assert narrowed(np.array([0, 2**64 - 1], np.uint64)).tolist() == [0, 2**64 - 1]


def test_one_value_throughout_takes_no_room():
    assert narrowed(np.full(100_000, 5)).strides == (0,)


@pytest.mark.parametrize("count", [0, 10, 1 << 20])
def test_bytes_of_their_own_can_be_written_and_read(count):
    room = own_bytes(count)
    room[:] = 3
    assert (room.dtype, room.shape, int(room.sum())) == (np.uint8, (count,), 3 * count)


_FREED = """
import ctypes, sys
import numpy as np
from qdebug.model.bulk import give_back_memory

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

held = [np.ones(512) for _ in range(20_000)]  # 80 MB, each too small for a piece of its own
last = held[-1]
del held[:]
before = resident()
give_back_memory()
print(before - resident() > 40e6)
"""


def test_memory_that_nobody_uses_goes_back_to_the_system():
    if not (Path("/proc/self/statm").exists() and hasattr(ctypes.CDLL(None), "malloc_trim")):
        pytest.skip("this C library cannot be asked to give memory back")
    found = subprocess.run([sys.executable, "-c", _FREED], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "True"
