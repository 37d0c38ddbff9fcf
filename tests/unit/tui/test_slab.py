import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from qdebug.model import QuantParams
from qdebug.numerics.affine import dequantize
from qdebug.tui.draw import pool_plane
from qdebug.tui.slab import Cancelled, Filling, make_slab, plane

QUANT = QuantParams(dtype="int8", scale=0.5, zero_point=0)


def test_the_copy_is_no_view_of_what_it_was_made_from():
    file = np.arange(24, dtype=np.float32)
    slab = make_slab(file.reshape(2, 3, 4)[:1], file.reshape(2, 3, 4)[:1], codes=(None, file.reshape(2, 3, 4)[:1]))
    for array in (slab.reference, slab.backend, slab.backend_codes):
        assert not np.shares_memory(array, file)
    assert slab.nbytes == 3 * 12 * 4


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="against"):
        make_slab(np.zeros((1, 2)), np.zeros((2, 1)))


def test_channels_add_up():
    rng = np.random.default_rng(3)
    reference = rng.standard_normal((2, 5, 4, 3)).astype(np.float32)
    backend = reference + rng.standard_normal(reference.shape).astype(np.float32) * 0.1
    slab = make_slab(reference, backend)
    facts, pooled = slab.channels, slab.by_channel
    for channel in range(5):
        error = backend[:, channel].astype(float) - reference[:, channel]
        assert facts.rmse[channel] == pytest.approx(np.sqrt(np.mean(error**2)))
        assert facts.max_abs[channel] == pytest.approx(np.abs(error).max())
        assert facts.high[channel] == backend[:, channel].max()
    assert facts.share.sum() == pytest.approx(1)
    assert pooled.shape == (5, 24)
    assert pooled.max() == pytest.approx(facts.max_abs.max())


def test_saturated_codes_are_counted_by_channel():
    codes = np.array([[[-128, 0], [127, 127]]], dtype=np.int8)
    slab = make_slab(codes * 0.5, codes * 0.5, codes=(None, codes), quant=QUANT)
    assert slab.channels.saturated.tolist() == [1, 2]
    assert slab.channels.share.tolist() == [0, 0], "without error nobody has a share of it"


def test_nan_is_infinitely_wrong_and_spoils_no_other_channel():
    reference = np.zeros((1, 2, 2))
    backend = reference.copy()
    backend[0, 0, 0] = np.nan
    backend[0, 1, 1] = 3
    slab = make_slab(reference, backend)
    assert slab.channels.max_abs.tolist() == [np.inf, 3]
    assert np.isnan(slab.channels.share[0])
    assert slab.largest == 3


def test_the_quantized_axis_counts_the_channels():
    quant = QuantParams(dtype="int8", scale=[0.5, 0.25], zero_point=[0, 0], axis=-1)
    slab = make_slab(np.zeros((3, 2)), np.ones((3, 2)), quant=quant)
    assert slab.axis == 1
    assert slab.steps((0, 0)) == 2
    assert slab.steps((0, 1)) == 4
    assert make_slab(np.zeros(3), np.zeros(3)).steps((1,)) is None


@given(
    hnp.arrays(np.float64, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4), elements=st.floats(-9, 9))
)
def test_every_shape_has_facts_and_planes(values):
    slab = make_slab(values, values + 1)
    assert len(slab.channels.rmse) == (values.shape[slab.axis] if values.ndim else 1)
    drawn = plane(slab, (0,) * values.ndim) if values.size else None
    if drawn is not None:
        assert drawn.ndim == 2
        assert np.allclose(drawn, 1)


def filled_in_steps(filling):
    """Give what there is after each block."""
    seen = []
    while not filling.more(seconds=-1):
        seen.append(filling.slab())
    return [*seen, filling.slab()]


@pytest.mark.parametrize("shape", [(1, 5, 300, 200), (3, 4, 100, 111), (70_000, 3), (2, 9, 70_000), (200_000,)])
@pytest.mark.parametrize("last", [False, True])
def test_what_is_read_so_far_is_told_from_what_is_not(shape, last):
    rng = np.random.default_rng(5)
    reference, error = rng.standard_normal(shape).astype(np.float32), rng.standard_normal(shape).astype(np.float32)
    backend = reference + error
    codes = rng.integers(-128, 128, shape).astype(np.int8)
    if last:  # as a backend with channels last has it
        backend = np.ascontiguousarray(backend.T).T
    steps = filled_in_steps(Filling(reference, backend, codes=(None, codes), quant=QUANT))
    assert len(steps) > 2
    difference = np.abs(backend.astype(float) - reference).reshape(-1)
    for slab in (steps[0], steps[len(steps) // 2]):
        read = backend.size - slab.missing
        assert 0 < read < backend.size
        assert slab.so_far == f"{100 * read // backend.size}%"
        assert slab.largest == difference[:read].max()
        assert slab.backend.reshape(-1)[:read].tobytes() == np.ravel(backend)[:read].tobytes()
        assert slab.channels.read.sum() == read
        index = np.unravel_index(read, shape)
        assert slab.local(tuple(map(int, index))) is None
        assert slab.local((0,) * len(shape)) == (0,) * len(shape)
        unread = np.isnan(slab.channels.rmse)
        assert (unread == (slab.channels.read == 0)).all()
        assert slab.channels.share[~unread].sum() == pytest.approx(1)
        drawn = plane(slab, (0,) * len(shape)).reshape(-1)
        assert ((drawn < 0) == (np.arange(drawn.size) >= read)).all()
    assert steps[-1].missing == 0
    assert steps[-1].so_far == ""


@given(hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=6), st.integers(0, 3), st.sampled_from([2, 5, 40]))
def test_blocks_add_up_to_the_whole(shape, axis, block):
    values = np.random.default_rng(block).standard_normal((2, *shape))
    axis %= len(shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("qdebug.numerics.channels.BLOCK", block)
        patch.setattr("qdebug.tui.channel_sums.POOLED", (3, 4))
        quant = QuantParams(dtype="int8", scale=[0.5] * shape[axis], zero_point=[0] * shape[axis], axis=axis)
        slab = make_slab(values[0], values[1], quant=quant if shape[axis] > 1 else None)
    rows = np.abs(values[1] - values[0])
    rows = np.moveaxis(rows, slab.axis, 0).reshape(shape[slab.axis], -1)
    assert slab.channels.rmse == pytest.approx(np.sqrt(np.mean(rows**2, axis=1)))
    assert (slab.channels.max_abs == rows.max(axis=1)).all()
    assert (slab.channels.low == np.moveaxis(values[1], slab.axis, 0).reshape(rows.shape).min(axis=1)).all()
    assert (slab.by_channel == pool_plane(rows, 3, 4).astype(np.float32)).all()
    assert slab.largest == rows.max()


@given(hnp.array_shapes(min_dims=0, max_dims=4, min_side=1, max_side=7), st.integers(1, 4), st.integers(1, 4))
def test_a_plane_is_pooled_like_the_whole_of_it(shape, rows, columns):
    values = np.random.default_rng(rows).standard_normal((2, *shape))
    slab, element = make_slab(values[0], values[1]), (0,) * len(shape)
    whole = plane(slab, element)
    assert (whole == np.abs(values[1] - values[0])[element[:-2]].reshape(whole.shape)).all()
    assert (plane(slab, element, (rows, columns)) == pool_plane(whole, rows, columns)).all()


def test_reading_goes_on_where_it_was_left():
    asked = []
    filling = Filling(np.zeros((1, 8, 1 << 14)), np.ones((1, 8, 1 << 14)))
    with pytest.raises(Cancelled):
        filling.more(lambda: len(asked) > 2 or asked.append(1))
    before = filling.slab().missing
    assert 0 < before < 1 << 17
    assert filling.more()
    assert (filling.slab().channels.rmse == 1).all()


def test_more_channels_than_anybody_lists_have_a_map_alone():
    slab = make_slab(np.zeros((1 << 18) + 1, np.float32), np.ones((1 << 18) + 1, np.float32))
    assert not len(slab.channels.rmse)
    assert slab.by_channel.shape == (512, 1)
    assert (slab.by_channel == 1).all()


def test_what_nobody_wants_any_more_is_left():
    asked = []

    def cancelled():
        asked.append(1)
        return len(asked) > 2

    with pytest.raises(Cancelled):
        make_slab(np.zeros((1, 8, 1 << 18)), np.zeros((1, 8, 1 << 18)), cancelled=cancelled)
    assert len(asked) == 3


def test_a_large_tensor_is_pooled_for_its_map():
    backend = np.zeros((1, 2000, 3000), np.float32)
    backend[0, 1999, 2999] = 5
    slab = make_slab(np.zeros_like(backend), backend)
    assert slab.by_channel.shape == (512, 1024)
    assert slab.by_channel[-1, -1] == 5
    assert slab.by_channel.sum() == 5


def test_a_part_has_the_indices_of_the_whole_tensor():
    quant = QuantParams(dtype="int8", scale=np.array([0.5, 0.25, 2.0]), zero_point=0, axis=1)
    codes = np.arange(20, dtype=np.int8).reshape(1, 1, 4, 5)
    part = make_slab(
        codes * 2.0, codes * 2.0 + 4, codes=(None, codes), quant=quant, place=((1, 2, 10, 0), (2, 3, 40, 5))
    )
    assert part.shape == (2, 3, 40, 5)
    assert part.local((1, 2, 11, 3)) == (0, 0, 1, 3)
    for outside in ((1, 2, 9, 3), (1, 2, 14, 3), (0, 2, 11, 3)):
        assert part.local(outside) is None
        assert not part.around(outside, 0)
    assert part.scale_at((0, 0, 1, 3)) == 2.0, "that of the tensor's third channel"
    assert part.steps((0, 0, 1, 3)) == 2.0
    assert part.around((1, 2, 11, 3), 1), "the last dimension is here as a whole"
    assert not part.around((1, 2, 11, 3), 2)
    whole = make_slab(codes, codes)
    assert whole.shape == (1, 1, 4, 5)
    assert whole.local((0, 0, 1, 3)) == (0, 0, 1, 3)
    assert whole.around((0, 0, 1, 3), 99)


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_integers_that_float64_does_not_hold_differ(dtype):
    reference = np.full((2, 3), 2**53, dtype)
    backend = reference.copy()
    backend[1, 2] += 1
    slab = make_slab(reference, backend)
    assert (float(slab.difference((1, 2))), float(slab.difference((0, 0)))) == (1.0, 0.0)
    assert plane(slab, (0, 0)).tolist() == [[0, 0, 0], [0, 0, 1]]
    assert (slab.largest, slab.channels.max_abs.tolist()) == (1.0, [0, 0, 1])


def test_one_code_is_one_step_however_large_the_codes_are():
    quant = QuantParams(dtype="int32", scale=np.float32(0.37), zero_point=1)
    codes = np.int32([[2**31 - 2, 5]]), np.int32([[2**31 - 1, 5]])
    real = [dequantize(side, quant, double=True) for side in codes]
    slab = make_slab(*real, codes=codes, quant=quant, reference_quant=quant)
    assert (slab.steps((0, 0)), slab.steps((0, 1))) == (1.0, 0.0)


def test_steps_of_what_is_no_number_are_none():
    slab = make_slab(np.array([np.nan, 1.0]), np.array([1.0, np.inf]), quant=QUANT)
    assert np.isnan(slab.steps((0,)))
    assert slab.steps((1,)) == np.inf
