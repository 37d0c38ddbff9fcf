"""The index as it is kept: every event is found at its place, and nowhere else."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.recording.format.specification import DTYPE_CODES, TABLES
from qdebug.recording.reading.event_index import EventIndex

TENSORS = 5
PLACES = st.tuples(st.integers(0, TENSORS - 1), st.integers(0, 3), st.integers(0, 2))


def table(places, ndim=2):
    index = np.zeros(len(places), TABLES["index"])
    for row, (tensor, sample, step) in enumerate(places):
        index[row]["seq"], index[row]["payload"], index[row]["ndim"] = row, 100 + row, ndim
        index[row]["tensor"], index[row]["sample"], index[row]["step"] = tensor, sample, step
        index[row]["shape"][:2] = row, 7
    return index


@drawn(200)
@given(st.lists(PLACES, unique=True, max_size=20))
def test_every_event_is_found_at_its_place_alone(places):
    index = EventIndex(table(places), TENSORS)
    assert len(index) == len(places)
    for tensor in range(TENSORS):
        for sample in range(-1, 5):
            for step in range(-1, 4):
                place = tensor, sample, step
                assert index.find(*place) == (places.index(place) if place in places else None)


def test_places_beyond_what_a_file_can_hold_are_nowhere():
    index = EventIndex(table([(0, 0, 0), (1, 0, 0), (1, 1, 0)]), TENSORS)
    assert index.find(0, 2**40, 0) is None
    assert index.find(1, 0, 2**40) is None


def test_what_is_needed_to_read_values_is_kept():
    given_rows = table([(0, 0, 0), (3, 1, 0)])
    given_rows["nbytes"], given_rows["hash"][1], given_rows["dtype"][1] = (7, 2**40), 9, DTYPE_CODES["int8"]
    given_rows["flags"], given_rows["quant"] = (3, 1000), (-1, 5)
    index = EventIndex(given_rows, TENSORS)
    for name in ("tensor", "sample", "step", "payload", "quant", "flags", "dtype", "ndim", "nbytes"):
        assert np.array_equal(index.rows[name], given_rows[name])
    assert [index.expected(row).shape for row in (0, 1)] == [(0, 7), (1, 7)]
    assert [index.expected(row).nbytes for row in (0, 1)] == [7, 2**40]
    assert [index.is_partial(row) for row in (0, 1)] == [False, True]
    assert index.expected(1) == (101, "int8", 2**40, 2, (1, 7))
    assert index.digest(1) == bytes([9] * 16)


def test_scalars_have_no_extents():
    assert EventIndex(table([(0, 0, 0)], ndim=0), 1).expected(0).shape == ()


def test_more_dimensions_than_the_table_has_room_for_keep_those_it_has():
    assert EventIndex(table([(0, 0, 0)], ndim=12), 1).expected(0).shape == (0, 7, 0, 0, 0, 0, 0, 0)


def test_an_outline_tells_dtype_shape_and_hash():
    index = table([(0, 0, 0), (1, 0, 0)])
    index["hash"][1] = 7
    index["dtype"][1] = DTYPE_CODES["int8"]
    assert EventIndex(index, TENSORS).outline(1) == ("int8", (1, 7), bytes([7] * 16))


def test_a_shape_that_the_index_has_no_room_for_has_no_outline():
    assert EventIndex(table([(0, 0, 0)], ndim=12), 1).outline(0) is None
