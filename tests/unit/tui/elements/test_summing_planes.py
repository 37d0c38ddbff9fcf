"""A map of a plane that is never held as a whole is the map of that plane."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from qdebug.compare.measure.pair_values import OpenPair
from qdebug.model import QuantParams
from qdebug.tui.drawing.draw import pool_plane
from qdebug.tui.elements.slab import plane_size
from qdebug.tui.elements.summing import UNREAD, Cancelled, StatisticsReader


@given(
    hnp.array_shapes(min_dims=0, max_dims=5, min_side=1, max_side=6),
    st.sampled_from([2, 7, 1000]),
    st.sampled_from([0.0, np.nan, np.inf]),
    st.data(),
)
def test_any_plane_of_any_shape_is_pooled_block_by_block(shape, block, spoiled, data):
    values = np.random.default_rng(block).standard_normal((2, *shape))
    values[1].reshape(-1)[0] += spoiled
    place = tuple(data.draw(st.integers(0, size - 1)) for size in shape[:-2])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("qdebug.numerics.channels.BLOCK", block)
        patch.setattr("qdebug.tui.elements.summing.MAX_MAP_SIZE", (3, 4))
        sums = StatisticsReader(OpenPair(*values), place)
        assert sums.read_more()
    drawn, size = sums.statistics(), plane_size(shape)
    with np.errstate(invalid="ignore"):
        error = np.abs(values[1] - values[0])[place].reshape(size)
    np.testing.assert_array_equal(drawn.difference_map, pool_plane(error, 3, 4))
    assert drawn.largest == np.max(error, initial=0, where=np.isfinite(error))
    assert (drawn.plane_index, drawn.shape, drawn.unread_count, drawn.percent_read) == (place, size, 0, "")


def test_a_plane_is_read_on_where_it_was_left_and_says_how_far_it_is():
    backend = np.full((2, 1 << 9, 1 << 9), 3.0)
    sums, left = StatisticsReader(OpenPair(backend * 0, backend), (1,)), [2]

    def cancelled():
        left[0] -= 1
        return left[0] < 0

    with pytest.raises(Cancelled):
        sums.read_more(cancelled)
    begun = sums.statistics()
    assert begun.percent_read == "25%"
    assert ((begun.difference_map == UNREAD).sum(axis=1) == 512).sum() == 384
    assert (begun.difference_map.max(), begun.largest) == (3, 3)
    assert sums.read_more(seconds=60)
    assert (sums.statistics().difference_map == 3).all()
    assert (begun.difference_map == UNREAD).any(), "what was handed out stays as it is"


def test_a_plane_without_elements_is_read_at_once():
    sums = StatisticsReader(OpenPair(np.zeros((2, 0, 3)), np.zeros((2, 0, 3))), (1,))
    assert sums.read_more()
    assert sums.statistics().difference_map.size == 0


def test_codes_at_the_ends_of_their_range_are_not_clipped_where_nothing_is_cut_off():
    quant = QuantParams(dtype="uint8", scale=0.1, zero_point=0)
    codes = np.array([[0, 0, 255, 7], [3, 0, 255, 255]], np.uint8)[None]
    reference = codes * np.float32(0.1)
    for beyond, expected in (([], [0, 0]), ([(0, 0, 2, 25.7), (0, 1, 1, -3.0), (0, 1, 3, 30.0)], [1, 2])):
        for *place, value in beyond:
            reference[tuple(place)] = value
        sums = StatisticsReader(OpenPair(reference, codes, (None, quant)))
        assert sums.read_more()
        whole = sums.statistics()
        assert whole.channels.clipped.tolist() == expected
        assert whole.clipped == ((2, 5, 7) if beyond else ())
