"""A window holds what the whole tensor holds there, wherever it lies and however the tensor is kept."""

import numpy as np
import pytest

from qdebug.analysis.alignment.pairs import Match, Pair, View
from qdebug.analysis.comparison.pair_values import PairReader
from qdebug.analysis.comparison.pair_window import read_window
from qdebug.errors import UsageError
from qdebug.model import Graph, Node, QuantParams, TensorInfo


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


def window(of, around=None, extents=(3, 4)):
    return read_window(of, sample=0, step=0, around=around, extents=extents)


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
    part = window(reader(values, values, view=View(clamp_low=0.0)))
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
