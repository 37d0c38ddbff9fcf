import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from qdebug.model import QuantParams
from qdebug.tui.slab import Cancelled, channel_facts, make_slab, plane

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
    facts, pooled = channel_facts(reference, backend, axis=1)
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
