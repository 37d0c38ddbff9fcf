"""A part of a pair holds what the whole tensor holds there, wherever it lies and however the tensor is kept."""

import mmap

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from qdebug.compare.align.pairs import Match, Pair, Transform
from qdebug.compare.measure.pair_values import PairReader, open_pair
from qdebug.errors import UsageError
from qdebug.model import Graph, Node, QuantParams, TensorInfo
from qdebug.numerics import large_arrays as spilled


class Kept:
    """A recording of one tensor."""

    samples = steps = 1

    def __init__(self, array, quant=None):
        self.array = array
        info = TensorInfo(name="y", shape=array.shape, dtype=array.dtype.name, quant=quant)
        self.graph = Graph([Node(name="n", op="Conv", inputs=("x",), outputs=("y",))], tensors=[info], inputs=("x",))

    def load(self, tensor, sample=0, step=0):
        return self.array


def reader(theirs, ours, *, quant=None, view=None):
    pair = Pair(reference="y", backend="y", match=Match.EXACT, reason="", backend_view=view)
    return PairReader(Kept(theirs), Kept(ours, quant), pair)


def opened(of):
    return open_pair(of, sample=0, step=0)


def window(of, around=None, extents=(3, 4)):
    return opened(of).window(around, extents)


@pytest.mark.parametrize("around", [None, (0, 0, 0, 0), (1, 2, 8, 10), (1, 1, 4, 5), (0, 2, 8, 0)])
@pytest.mark.parametrize("quantized", [False, True])
def test_a_window_is_a_part_of_the_whole(around, quantized):
    rng = np.random.default_rng(3)
    theirs = rng.standard_normal((2, 3, 9, 11)).astype(np.float32)
    scales = QuantParams(dtype="int8", scale=np.array([0.1, 0.2, 0.3]), zero_point=np.array([1, -2, 3]), axis=1)
    ours = rng.integers(-128, 128, theirs.shape).astype(np.int8) if quantized else theirs + 1
    of = reader(theirs, ours, quant=scales if quantized else None)
    whole, part = of.values(0, 0), window(of, around)
    at = tuple(slice(first, first + size) for first, size in zip(part.start, part.backend.shape, strict=True))
    assert part.whole == ours.shape
    assert part.backend.shape == (1, 1, 3, 4)
    assert around is None or all(s.start <= i < s.stop for s, i in zip(at, around, strict=True))
    np.testing.assert_array_equal(part.reference, whole.reference[at])
    np.testing.assert_array_equal(part.backend, whole.backend[at])
    assert part.reference_codes is None
    if quantized:
        np.testing.assert_array_equal(part.backend_codes, ours[at])
    else:
        assert part.backend_codes is None


@pytest.mark.parametrize("shape", [(), (7,), (2, 3), (0, 3), (1, 0)])
def test_any_number_of_dimensions(shape):
    values = np.arange(np.prod(shape, dtype=int), dtype=np.float16).reshape(shape)
    part = window(reader(values, values))
    assert part.backend.ndim == len(shape)
    assert part.backend.dtype == np.float16
    np.testing.assert_array_equal(part.backend, values[tuple(slice(0, n) for n in part.backend.shape)])


def test_bounds_of_a_fused_clamp_hold_in_a_window_too():
    values = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    part = window(reader(values, values, view=Transform(clamp_low=0.0)))
    assert part.backend.min() == 0
    assert part.reference.min() == -1


@pytest.mark.filterwarnings("error")
def test_codes_that_stand_for_more_than_a_number_holds_are_infinite_without_a_warning():
    mask = QuantParams(dtype="uint16", scale=np.array([5.1924e33], np.float32), zero_point=np.array([65535]))
    codes = np.array([[0, 65535]], np.uint16)
    of = reader(np.zeros((1, 2), np.float32), codes, quant=mask)
    np.testing.assert_array_equal(window(of).backend, [[-np.inf, 0]])


def test_an_index_that_the_tensor_does_not_have_is_the_first():
    values = np.zeros((5, 5), np.float32)
    assert window(reader(values, values), (9, 9)).start == (0, 0)
    assert window(reader(values, values), (1,)).start == (0, 0)


def test_sides_of_different_sizes_have_no_window():
    with pytest.raises(UsageError, match=r"\(2, 3\)"):
        window(reader(np.zeros((2, 3)), np.zeros((2, 4))))


VIEWS = {
    "as it is": (None, lambda array: array),
    "channels last": (Transform(transpose=(0, 3, 1, 2)), lambda array: array.transpose(0, 2, 3, 1)),
    "in blocks": (
        Transform(channel_block=2),
        lambda array: array.reshape(2, 2, 2, 5, 6).transpose(0, 1, 3, 4, 2),
    ),
    "clamped": (Transform(clamp_low=-0.5, clamp_high=0.5), lambda array: array),
}


@pytest.mark.parametrize("kept", VIEWS)
@pytest.mark.parametrize("quantized", [False, True])
def test_stretches_and_windows_are_parts_of_the_whole_however_it_is_kept(kept, quantized):
    rng = np.random.default_rng(7)
    view, keep = VIEWS[kept]
    theirs = rng.standard_normal((2, 4, 5, 6)).astype(np.float32)
    ours = rng.integers(-128, 128, theirs.shape).astype(np.int8) if quantized else theirs + np.float32(1)
    quant = QuantParams(dtype="int8", scale=0.1, zero_point=3) if quantized else None
    of = reader(theirs, np.ascontiguousarray(keep(ours)), quant=quant, view=view)
    whole, pair = of.values(0, 0), opened(of)
    assert pair.shape == whole.backend.shape
    for start, stop in ((0, 0), (0, 240), (7, 8), (5, 67), (29, 241), (119, 121)):
        part = pair.read(start, stop)
        for name in ("reference", "backend", "reference_codes", "backend_codes"):
            mine, all_of_it = getattr(part, name), getattr(whole, name)
            assert (mine is None) == (all_of_it is None)
            if mine is not None:
                assert mine.dtype == all_of_it.dtype
                assert mine.tobytes() == all_of_it.reshape(-1)[start:stop].tobytes()
    for around in ((0, 0, 0, 0), (1, 3, 4, 5), (1, 0, 2, 3)):
        part = pair.window(around, (2, 3))
        at = tuple(slice(first, first + size) for first, size in zip(part.start, part.backend.shape, strict=True))
        np.testing.assert_array_equal(part.backend, whole.backend[at])
        np.testing.assert_array_equal(part.reference, whole.reference[at])


@given(
    hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=5),
    st.sampled_from([np.float32, np.float16, ml_dtypes.bfloat16, np.int64, ml_dtypes.int4, np.uint8]),
    st.data(),
)
def test_a_window_of_any_shape_holds_what_it_is_around(shape, dtype, data):
    values = np.random.default_rng(1).integers(0, 7, shape).astype(dtype)
    of = open_pair(reader(values, values), sample=0, step=0)
    around = tuple(data.draw(st.integers(0, max(size - 1, 0))) for size in shape)
    part = of.window(around, (data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))))
    at = tuple(slice(first, first + size) for first, size in zip(part.start, part.backend.shape, strict=True))
    assert part.backend.tobytes() == values[at].tobytes()
    assert not values.size or all(where.start <= one < where.stop for where, one in zip(at, around, strict=True))


def test_scales_of_channels_fit_a_tensor_without_elements():
    quant = QuantParams(dtype="int8", scale=[0.5, 0.25], zero_point=[0, 0], axis=1)
    part = window(reader(np.zeros((0, 2, 3), np.float32), np.zeros((0, 2, 3), np.int8), quant=quant))
    assert part.backend.shape == (0, 2, 3)
    assert part.backend.dtype == np.float32


def test_what_lies_in_a_file_takes_no_memory(tmp_path):
    path = tmp_path / "values"
    np.arange(64, dtype=np.int8).tofile(path)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    ours = np.frombuffer(mapped, np.int8).reshape(1, 4, 4, 4)
    theirs = np.zeros((1, 4, 4, 4), np.float32)
    quant = QuantParams(dtype="int8", scale=0.5, zero_point=0)
    turned = Transform(transpose=(0, 3, 1, 2))
    assert opened(reader(theirs, ours, quant=quant)).held == theirs.nbytes
    assert opened(reader(ours, ours, quant=quant)).held == 0
    assert opened(reader(ours, ours, quant=quant, view=turned)).held == 0, "a view of it, which is read as it is asked"
    blocked = opened(reader(ours, ours, view=Transform(channel_block=4)))
    assert blocked.held in {0, 64}


def test_what_was_made_in_a_file_takes_no_memory_but_would_have_to_be_made_again(monkeypatch):
    values, blocks = np.arange(64.0).reshape(1, 4, 4, 4), Transform(channel_block=4)
    in_memory = opened(reader(values, values.copy(), view=blocks))
    assert in_memory.made == in_memory.held == 2 * values.nbytes
    monkeypatch.setattr(spilled, "SPILL_FROM", 1)
    in_file = opened(reader(values, values.copy(), view=blocks))
    assert (in_file.held, in_file.made) == (values.nbytes, 2 * values.nbytes)
    np.testing.assert_array_equal(in_file.read(0, 64).backend, in_memory.read(0, 64).backend)


def test_sides_that_lie_in_the_same_memory_are_counted_once():
    values = np.zeros(1000)
    pair = opened(reader(values, values))
    assert (pair.held, pair.nbytes, pair.size) == (8000, 16000, 1000)
    assert pair.again().held == 8000


def test_channels_are_counted_where_the_operators_put_them():
    values = np.zeros((2, 5, 8), np.float32)
    assert opened(reader(values, values)).axis == 1, "a convolution has them second"
    tokens = reader(values, values)
    for side in (tokens._reference, tokens._backend):
        node = Node(name="n", op="MatMul", inputs=("x", "w"), outputs=("y",))
        side.graph = Graph([node], tensors=side.graph.tensors.values(), inputs=("x", "w"))
    assert opened(tokens).axis == 2
    assert window(tokens).axis == 2
    scales = QuantParams(dtype="int8", scale=[0.5, 0.25], zero_point=[0, 0], axis=0)
    assert opened(reader(values, values.astype(np.int8), quant=scales)).axis == 0
