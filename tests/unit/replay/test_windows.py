import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from qdebug.replay import Call, windows
from qdebug.replay.windows import convolve, pad_for_window, window_of


def call(**attrs):
    return Call(inputs=(), attrs=attrs)


def test_plain_windows():
    window = window_of(call(), (5, 4), (3, 2))
    assert window.out == (3, 3)
    assert window.covered == (5, 4)
    assert not window.is_pointwise
    assert window_of(call(), (5, 4), (1, 1)).is_pointwise
    assert not window_of(call(strides=(2, 2)), (5, 4), (1, 1)).is_pointwise


@pytest.mark.parametrize(
    ("mode", "begin", "end", "out"),
    [("SAME_UPPER", (0,), (1,), (3,)), ("SAME_LOWER", (1,), (0,), (3,)), ("VALID", (0,), (0,), (2,))],
)
def test_automatic_padding(mode, begin, end, out):
    window = window_of(call(auto_pad=mode, strides=(2,)), (6,), (3,))
    assert (window.begin, window.end, window.out) == (begin, end, out)


def test_ceil_mode_drops_windows_that_begin_in_the_padding():
    assert window_of(call(strides=(2,)), (5,), (2,), ceil_mode=True).out == (3,)
    assert window_of(call(strides=(2,)), (5,), (2,)).out == (2,)
    # The last window would start at 6 = 5 + 1, in the padding.
    assert window_of(call(strides=(3,), pads=(1, 1)), (5,), (1,), ceil_mode=True).out == (2,)


@given(
    st.integers(1, 12), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(0, 3), st.integers(0, 3)
)
def test_taps_read_what_the_definition_says(size, taps, stride, dilation, before, after):
    span = (taps - 1) * dilation + 1
    lacking = max(span - (size + before + after), 0)
    if lacking >= stride:
        with pytest.raises(ValueError, match="do not fit"):
            window_of(call(strides=(stride,), dilations=(dilation,), pads=(before, after)), (size,), (taps,))
        return
    window = window_of(call(strides=(stride,), dilations=(dilation,), pads=(before, after)), (size,), (taps,))
    x = np.arange(1, size + 1)
    source = pad_for_window(x, window, -1)
    full = np.concatenate([np.full(before, -1), x, np.full(after + lacking, -1)])
    for tap, place in enumerate(window.taps()):
        expected = [full[o * stride + tap * dilation] for o in range(window.out[0])]
        assert source[place].tolist() == expected


def test_nothing_is_copied_without_padding():
    x = np.zeros((2, 5))
    assert pad_for_window(x, window_of(call(), (5,), (3,)), 0) is x


def test_rows_in_part():
    window = window_of(call(pads=(1, 1, 1, 1)), (4, 4), (3, 3))
    source = pad_for_window(np.arange(16).reshape(4, 4), window, 0)
    for whole, part in zip(window.taps(), window.taps(1, 3), strict=True):
        np.testing.assert_array_equal(source[whole][1:3], source[part])


@pytest.mark.parametrize("attrs", [{"pads": (1,)}, {"strides": (1, 1)}, {"dilations": (1, 1)}])
def test_lists_of_the_wrong_length(attrs):
    with pytest.raises(ValueError, match="expected"):
        window_of(call(**attrs), (5,), (3,))
    with pytest.raises(ValueError, match="axes"):
        window_of(call(), (5,), (3, 3))


@given(
    extent=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    taps=st.integers(1, 5),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 3),
    before=st.integers(0, 4),
    after=st.integers(0, 4),
)
def test_small_planes_have_the_bits_of_large_ones(extent, taps, stride, dilation, before, after):
    axes = len(extent)
    assume(min(extent) + before + after > (taps - 1) * dilation)
    attrs = {"strides": (stride,) * axes, "dilations": (dilation,) * axes, "pads": (before,) * axes + (after,) * axes}
    window = window_of(call(**attrs), extent, (taps,) * axes)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, *extent)).astype(np.float32)
    weight = rng.standard_normal((3, 1, *[taps] * axes)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "_SMALL_PLANE", 0)
        expected = convolve(x, weight, window, 3)
    np.testing.assert_array_equal(convolve(x, weight, window, 3), expected)


def test_padding_counts_beside_an_infinite_weight():
    window = window_of(call(pads=(1, 1)), (3,), (3,))
    weight = np.array([[[np.inf, 1, 1]], [[1, 1, 1]]], np.float32)
    with np.errstate(invalid="ignore"):
        result = convolve(np.ones((1, 2, 3), np.float32), weight, window, 2)
    np.testing.assert_array_equal(result, np.array([[[np.nan, np.inf, np.inf], [2, 3, 2]]], np.float32))


def test_pointwise_samples_have_the_bits_of_single_ones():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((5, 8, 6, 7)).astype(np.float32)
    weight = rng.standard_normal((12, 4, 1, 1)).astype(np.float32)
    window = window_of(call(), (6, 7), (1, 1))
    singles = [convolve(x[at : at + 1], weight, window, 2) for at in range(5)]
    np.testing.assert_array_equal(convolve(x, weight, window, 2), np.concatenate(singles))
