"""What all elements come to: block by block the same as at once, so far and at the end, in little memory."""

import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from qdebug.compare.measure.pair_values import OpenPair
from qdebug.model import QuantParams
from qdebug.numerics.affine import dequantize
from qdebug.tui.drawing.draw import pool_plane
from qdebug.tui.elements.summing import Cancelled, StatisticsReader

QUANT = QuantParams(dtype="int8", scale=0.5, zero_point=0)


def summed(reference, backend, *quants):
    summing = StatisticsReader(OpenPair(reference, backend, quants or (None, None)))
    assert summing.read_more()
    return summing.statistics()


def test_channels_add_up():
    rng = np.random.default_rng(3)
    reference = rng.standard_normal((2, 5, 4, 3)).astype(np.float32)
    backend = reference + rng.standard_normal(reference.shape).astype(np.float32) * 0.1
    whole = summed(reference, backend)
    facts, pooled = whole.channels, whole.difference_map
    for channel in range(5):
        error = backend[:, channel].astype(float) - reference[:, channel]
        assert facts.rmse[channel] == pytest.approx(np.sqrt(np.mean(error**2)))
        assert facts.max_abs[channel] == pytest.approx(np.abs(error).max())
        assert facts.high[channel] == backend[:, channel].max()
    assert facts.share.sum() == pytest.approx(1)
    assert pooled.shape == (5, 24)
    assert pooled.max() == pytest.approx(facts.max_abs.max())


def test_clipped_values_are_counted_by_channel():
    codes = np.array([[[-128, 0], [127, 127]]], dtype=np.int8)
    reference = codes * np.float32(0.5)
    whole = summed(reference, codes, None, QUANT)
    assert whole.channels.clipped.tolist() == [0, 0]
    assert whole.channels.share.tolist() == [0, 0], "without error nobody has a share of it"
    whole = summed(reference * np.float32(1.5), codes, None, QUANT)
    assert (whole.channels.clipped.tolist(), whole.clipped) == ([1, 2], (0, 2, 3))


def test_clipped_values_of_a_small_float_type_and_of_channels_with_a_scale_each_are_found():
    quant = QuantParams(dtype="int8", scale=[0.5, 2.0], zero_point=[0, 0], axis=1)
    reference = np.array([[[100, 60], [100, 300]]], dtype=ml_dtypes.bfloat16)
    codes = np.array([[[127, 120], [50, 127]]], dtype=np.int8)
    whole = summed(reference, codes, None, quant)
    assert (whole.channels.clipped.tolist(), whole.clipped) == ([1, 1], (0, 3))


def test_nan_is_infinitely_wrong_and_spoils_no_other_channel():
    reference = np.zeros((1, 2, 2))
    backend = reference.copy()
    backend[0, 0, 0] = np.nan
    backend[0, 1, 1] = 3
    whole = summed(reference, backend)
    assert whole.channels.max_abs.tolist() == [np.inf, 3]
    assert np.isnan(whole.channels.share[0])
    assert np.isnan(whole.difference_map[0, 0])
    assert whole.largest == 3


def test_differences_beyond_float32_are_finite():
    whole = summed(np.zeros((1, 2, 2)), np.full((1, 2, 2), 1e300))
    assert whole.difference_map.tolist() == [[1e300, 1e300]] * 2


DTYPES = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.int8, np.int64, np.bool_)


@given(
    hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4),
    st.sampled_from(DTYPES),
    st.sampled_from(DTYPES),
    st.booleans(),
    st.integers(0, 99),
)
def test_every_shape_and_type_is_summed(shape, theirs, ours, spoiled, seed):
    rng = np.random.default_rng(seed)
    reference, backend = (rng.integers(0, 2, shape).astype(dtype) for dtype in (theirs, ours))
    if spoiled and backend.size and np.dtype(ours).kind == "f":
        backend.reshape(-1)[-1] = rng.choice([np.nan, np.inf, -np.inf])
    summing = StatisticsReader(OpenPair(reference, backend))
    assert summing.read_more()
    whole = summing.statistics()
    with np.errstate(all="ignore"):
        error = np.abs(backend.astype(float) - reference.astype(float))
    assert whole.largest == np.max(error, initial=0, where=np.isfinite(error))
    assert len(whole.channels.rmse) == (shape[whole.axis] if shape else 1)
    if not error.size:
        return
    rows = np.moveaxis(error.reshape(shape or (1,)), whole.axis, 0).reshape(len(whole.channels.rmse), -1)
    np.testing.assert_allclose(whole.channels.rmse, np.sqrt(np.mean(rows**2, axis=1)))
    np.testing.assert_array_equal(whole.difference_map, rows)


@pytest.mark.parametrize("shape", [(1, 5, 300, 200), (3, 4, 100, 111), (70_000, 3), (2, 9, 70_000), (200_000,)])
@pytest.mark.parametrize("last", [False, True])
def test_what_is_read_so_far_is_told_from_what_is_not(shape, last):
    rng = np.random.default_rng(5)
    reference = rng.standard_normal(shape).astype(np.float32)
    codes = rng.integers(-128, 128, shape).astype(np.int8)
    backend = dequantize(codes, QUANT)
    if last:  # as a backend with channels last has it
        codes = np.ascontiguousarray(codes.T).T
    summing, steps = StatisticsReader(OpenPair(reference, codes, (None, QUANT))), []
    while not summing.read_more(seconds=-1):
        steps.append(summing.statistics())
    assert len(steps) > 2
    difference = np.abs(backend.astype(float) - reference).reshape(-1)
    for whole in (steps[0], steps[len(steps) // 2]):
        read = backend.size - whole.unread_count
        assert 0 < read < backend.size
        assert whole.percent_read == f"{100 * read // backend.size}%"
        assert whole.largest == difference[:read].max()
        assert whole.channels.element_counts.sum() == read
        unread = np.isnan(whole.channels.rmse)
        assert (unread == (whole.channels.element_counts == 0)).all()
        assert whole.channels.share[~unread].sum() == pytest.approx(1)
    done = summing.statistics()
    assert (done.unread_count, done.percent_read) == (0, "")


@given(hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=6), st.integers(0, 3), st.sampled_from([2, 5, 40]))
def test_blocks_add_up_to_the_whole(shape, axis, block):
    rng = np.random.default_rng(block)
    reference, codes = rng.standard_normal(shape), rng.integers(-9, 9, shape).astype(np.int8)
    axis %= len(shape)
    quant = QuantParams(dtype="int8", scale=[0.5] * shape[axis], zero_point=[0] * shape[axis], axis=axis)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("qdebug.numerics.channels.BLOCK", block)
        patch.setattr("qdebug.tui.elements.summing.MAX_MAP_SIZE", (3, 4))
        whole = summed(reference, codes, None, quant if shape[axis] > 1 else QUANT)
    rows = np.abs(codes * 0.5 - reference)
    rows = np.moveaxis(rows, whole.axis, 0).reshape(shape[whole.axis], -1)
    lowest = np.moveaxis(codes * 0.5, whole.axis, 0).reshape(rows.shape).min(axis=1)
    assert whole.channels.rmse == pytest.approx(np.sqrt(np.mean(rows**2, axis=1)))
    assert (whole.channels.max_abs == rows.max(axis=1)).all()
    assert (whole.channels.low == lowest).all()
    assert (whole.difference_map == pool_plane(rows, 3, 4)).all()
    assert whole.largest == rows.max()


def test_reading_goes_on_where_it_was_left():
    asked = []
    summing = StatisticsReader(OpenPair(np.zeros((1, 8, 1 << 14)), np.ones((1, 8, 1 << 14))))
    with pytest.raises(Cancelled):
        summing.read_more(lambda: len(asked) > 2 or asked.append(1))
    assert 0 < summing.statistics().unread_count < 1 << 17
    assert summing.read_more()
    assert (summing.statistics().channels.rmse == 1).all()


def test_what_nobody_wants_any_more_is_left():
    asked = []

    def cancelled():
        asked.append(1)
        return len(asked) > 2

    values = np.zeros((1, 8, 1 << 18))
    with pytest.raises(Cancelled):
        StatisticsReader(OpenPair(values, values)).read_more(cancelled)
    assert len(asked) == 3


def test_more_channels_than_anybody_lists_have_a_map_alone():
    whole = summed(np.zeros((1 << 18) + 1, np.float32), np.ones((1 << 18) + 1, np.float32))
    assert not len(whole.channels.rmse)
    assert whole.difference_map.shape == (512, 1)
    assert (whole.difference_map == 1).all()


def test_a_large_tensor_is_pooled_for_its_map():
    backend = np.zeros((1, 2000, 3000), np.float32)
    backend[0, 1999, 2999] = 5
    whole = summed(np.zeros_like(backend), backend)
    assert whole.difference_map.shape == (512, 1024)
    assert whole.difference_map[-1, -1] == 5
    assert whole.difference_map.sum() == 5


@pytest.mark.parametrize("turned", [False, True])
def test_summing_takes_next_to_no_memory(turned):
    shape = (1, 64, 256, 256)
    codes = np.zeros(shape, np.int8)
    reference = np.zeros(shape, np.float32)
    if turned:
        codes = codes.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2)
    pair = OpenPair(reference, codes, (None, QUANT))
    tracemalloc.start()
    try:
        summing = StatisticsReader(pair)
        assert summing.read_more()
        whole = summing.statistics()
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert whole.nbytes < 8 << 20
    assert whole.channels.element_counts.sum() == reference.size


def test_a_channel_whose_nan_is_on_both_sides_is_right():
    reference = np.ones((3, 4), np.float32)
    reference[0, 1], reference[1, 2] = np.nan, np.inf
    backend = reference.copy()
    backend[2, 3] = np.nan
    whole = summed(reference.reshape(1, 3, 4), backend.reshape(1, 3, 4))
    assert whole.channels.rmse[:2].tolist() == [0, 0]
    assert whole.channels.max_abs[:2].tolist() == [0, 0]
    assert np.isnan(whole.channels.rmse[2])
    assert np.isnan(whole.channels.low[0])
