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

from qdebug.model.bulk import as_column, compact, garbage_left_alone, narrowed, own_bytes


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


@given(st.lists(st.integers(-3, 3), max_size=5) | st.builds(lambda *ends: list(range(*ends)), *[st.integers(0, 9)] * 2))
def test_a_compact_column_gives_the_same_numbers(values):
    column = np.array(values, np.int64)
    kept = compact(column)
    assert list(kept) == values
    assert [kept[at] for at in range(len(values))] == values
    assert as_column(kept).tolist() == values


@pytest.mark.parametrize("step", [1, 3])
def test_what_goes_up_evenly_takes_no_room(step):
    assert compact(np.arange(5, 100, step)) == range(5, 100, step)
    assert compact(np.arange(5, 100, step, dtype=np.uint8)) == range(5, 100, step)


def test_what_passes_its_type_does_not_go_up_evenly():
    assert list(compact(np.array([250, 253, 0, 3], np.uint8))) == [250, 253, 0, 3]


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


_APART = """
import numpy as np
from qdebug.model.bulk import large_pieces_apart

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

np.ones(1 << 21)  # 16 MB: from now on smaller pieces lie side by side
before = resident()
with large_pieces_apart():
    made = [np.ones(1 << 16) for _ in range(200)]  # 100 MB, of which every second one stays
    del made[::2]
print(resident() - before < 60e6)
"""


def test_large_pieces_go_back_to_the_system_though_others_stay():
    if not (Path("/proc/self/statm").exists() and hasattr(ctypes.CDLL(None), "mallopt")):
        pytest.skip("this C library cannot be asked to put pieces apart")
    found = subprocess.run([sys.executable, "-c", _APART], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "True"
    other = _APART.replace("with large_pieces_apart():", "if True:")
    found = subprocess.run([sys.executable, "-c", other], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False", "what this measures does not tell the two apart"
