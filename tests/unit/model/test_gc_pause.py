"""The collector of cyclic garbage is left as it was."""

import gc

import pytest

from qdebug.model.gc_pause import gc_paused


def test_garbage_is_left_alone_inside_alone():
    assert gc.isenabled()
    with gc_paused():
        assert not gc.isenabled()
        with gc_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_is_looked_for_again_after_a_failure():
    with pytest.raises(KeyError), gc_paused():
        raise KeyError
    assert gc.isenabled()


def test_who_looks_for_none_goes_on_so():
    gc.disable()
    try:
        with gc_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_no_object_is_kept_from_being_collected_later():
    before = gc.get_freeze_count()
    with gc_paused():
        cycle = []
        cycle.append(cycle)
        del cycle
    assert gc.get_freeze_count() == before
