"""Orders of dimensions as arrays have them: what a view says is what it does, one after the other and undone."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.layouts import (
    _compose_permutations,
    _has_merged_dimensions,
    _invert_permutation,
    _layout_without_dimensions,
    in_one_order,
    in_reference_order,
    into_stored_order,
    layout_with_added_dimensions,
    layouts_of,
    permute_quant,
    permuted_shape,
)
from qdebug.compare.align.pairs import Transform
from qdebug.errors import KernelError
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo

EXTENTS = st.lists(st.integers(1, 5), min_size=1, max_size=5)


@st.composite
def turned(draw, least=1):
    """Draw an array of numbers that are all different, and two orders of its dimensions."""
    shape = draw(st.lists(st.integers(1, 4), min_size=least, max_size=5))
    orders = [tuple(draw(st.permutations(range(len(shape))))) for _ in range(2)]
    return np.arange(math.prod(shape)).reshape(shape), *orders


def view_of(order):
    return Transform(transpose=order)


@given(turned())
def test_a_view_brings_a_stored_tensor_into_its_partners_order_and_back(drawn):
    array, order, _ = drawn
    partner, view = array.transpose(order), view_of(order)
    assert permuted_shape(array.shape, view) == partner.shape
    np.testing.assert_array_equal(in_reference_order(array, view, partner.shape), partner)
    np.testing.assert_array_equal(in_reference_order(array, view, partner.shape, copied=False), partner)
    assert in_reference_order(array, view, partner.shape).flags.c_contiguous
    np.testing.assert_array_equal(into_stored_order(partner, view), array)
    for none in (None, Transform(), Transform(clamp_low=0.0)):
        assert in_reference_order(array, none, array.shape) is array
        assert into_stored_order(array, none) is array
        assert permuted_shape(array.shape, none) == array.shape


@given(turned())
def test_both_tensors_of_a_pair_are_brought_into_one_order(drawn):
    array, first, second = drawn
    stored = [array.transpose(_invert_permutation(order)) for order in (first, second)]
    for copied in (True, False):
        found = in_one_order(stored[0], view_of(first), stored[1], view_of(second), copied=copied)
        for one in found:
            np.testing.assert_array_equal(one, array)
    plain, other = in_one_order(array, None, stored[1], view_of(second))
    assert plain is array
    np.testing.assert_array_equal(other, array)


@given(turned())
def test_one_turn_after_the_other_is_their_composition(drawn):
    array, first, then = drawn
    both = _compose_permutations(first, then)
    expected = array.transpose(first).transpose(then)
    np.testing.assert_array_equal(expected, array if both is None else array.transpose(both))
    assert both != tuple(range(array.ndim))
    assert _compose_permutations(first, _invert_permutation(first)) is None
    assert (
        _compose_permutations(None, then),
        _compose_permutations(first, None),
        _compose_permutations(None, None),
    ) == (then, first, None)
    assert _compose_permutations(first, (*then, array.ndim)) == (*then, array.ndim)


def groups(shape, merged):
    """Tell by trying all ways whether neighbouring dimensions of a shape, made one, are another shape."""
    if not merged:
        return all(extent == 1 for extent in shape)
    return any(
        math.prod(shape[:many]) == merged[0] and groups(shape[many:], merged[1:]) for many in range(len(shape) + 1)
    )


@given(EXTENTS, st.lists(st.integers(0, 5), max_size=4))
def test_dimensions_are_merged_where_some_grouping_of_neighbours_gives_the_shape(shape, cuts):
    """Beyond dimensions of extent 1 and in fewer dimensions; cuts say where a shape is parted into groups."""
    bounds = [0, *sorted(min(cut, len(shape)) for cut in cuts), len(shape)]
    made = tuple(math.prod(shape[a:b]) for a, b in pairwise(bounds))
    real = [extent for extent in shape if extent != 1] != [extent for extent in made if extent != 1]
    assert _has_merged_dimensions(tuple(shape), made) == (len(made) < len(shape) and real)


@given(EXTENTS, EXTENTS)
def test_other_shapes_are_no_grouping(shape, other):
    real = [extent for extent in shape if extent != 1] != [extent for extent in other if extent != 1]
    wanted = len(other) < len(shape) and real and groups(tuple(shape), tuple(other))
    assert _has_merged_dimensions(tuple(shape), tuple(other)) == wanted


@pytest.mark.parametrize(
    ("stored", "partner"), [((2, 3, 4, 5), (2, 12, 5)), ((6, 20), (2, 3, 4, 5)), ((7,), (1, 7, 1))]
)
def test_neighbouring_dimensions_are_parted_and_made_one_as_the_partner_has_them(stored, partner):
    array = np.arange(math.prod(stored)).reshape(stored)
    found = in_reference_order(array, None, partner)
    if [extent for extent in stored if extent != 1] == [extent for extent in partner if extent != 1]:
        assert found is array  # extents of 1 are no difference
        return
    np.testing.assert_array_equal(found, array.reshape(partner))
    order = tuple(reversed(range(len(stored))))
    np.testing.assert_array_equal(in_reference_order(array.transpose(order), view_of(order), partner), found)


@given(
    st.integers(1, 3),
    st.integers(1, 20),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from([2, 4, 8]),
    st.booleans(),
)
def test_blocks_of_channels_are_undone_and_their_padding_left_out(count, channels, height, width, block, declared):
    plain = np.arange(count * channels * height * width).reshape(count, channels, height, width) + 1
    many = -(-channels // block)
    padded = np.zeros((count, many * block, height, width), plain.dtype)
    padded[:, :channels] = plain
    stored = padded.reshape(count, many, block, height, width).transpose(0, 1, 3, 4, 2)
    stored = np.ascontiguousarray(stored)
    if declared:  # as N, C, H, W
        stored = stored.reshape(padded.shape)
    view = Transform(channel_block=block)
    np.testing.assert_array_equal(in_reference_order(stored, view, plain.shape), plain)
    for mine, theirs in ((plain, stored), (stored, plain)):
        views = (None, view) if mine is plain else (view, None)
        for one in in_one_order(mine, views[0], theirs, views[1]):
            np.testing.assert_array_equal(one, plain)
    order = (0, 2, 3, 1)
    last = Transform(channel_block=block, transpose=order)
    np.testing.assert_array_equal(
        in_reference_order(stored, last, plain.transpose(order).shape), plain.transpose(order)
    )
    for wrong in ((count, many * block + 1, height, width), (count, channels, height)):
        assert in_reference_order(stored, view, wrong) is stored
    with pytest.raises(KernelError, match="blocks of channels"):
        into_stored_order(plain, view)
    with pytest.raises(KernelError, match="blocks of channels"):
        into_stored_order(plain, last)


def test_a_block_as_wide_as_an_image_is_not_taken_for_parted_channels():
    """Channels in blocks of eight, of an image of eight rows: (1, 2, 8, 8, 8) looks like 16 channels parted in two."""
    plain = np.arange(16 * 8 * 8).reshape(1, 16, 8, 8)
    stored = plain.reshape(1, 2, 8, 8, 8).transpose(0, 1, 3, 4, 2)
    view = Transform(channel_block=8)
    for pair in ((plain, None, stored, view), (stored, view, plain, None)):
        for one in in_one_order(*pair):
            np.testing.assert_array_equal(one, plain)
    last = plain.transpose(0, 2, 3, 1)
    for one in in_one_order(last, view_of(LAST), stored, view):
        np.testing.assert_array_equal(one, plain)


def test_tensors_in_the_same_blocks_are_compared_as_they_are():
    stored = np.arange(64).reshape(1, 2, 2, 2, 8)
    view = Transform(channel_block=8)
    one, other = in_one_order(stored, view, stored.reshape(1, 16, 2, 2), view)
    assert one is stored
    np.testing.assert_array_equal(other, stored)
    short = np.arange(32).reshape(1, 8, 2, 2)
    assert in_one_order(stored, view, short, view)[1] is short


@given(turned(least=2), st.data())
def test_the_axis_of_a_scale_moves_with_its_dimension(drawn, data):
    array, order, _ = drawn
    axis = data.draw(st.integers(-array.ndim, array.ndim - 1))
    quant = QuantParams(dtype="int8", scale=np.ones(array.shape[axis], np.float32), axis=axis)
    moved = permute_quant(quant, view_of(order))
    assert 0 <= moved.axis < array.ndim
    assert order[moved.axis] == axis % array.ndim
    assert array.transpose(order).shape[moved.axis] == array.shape[axis]
    whole = QuantParams(dtype="int8", scale=np.float32(1))
    for same in ((None, view_of(order)), (whole, view_of(order)), (quant, None), (quant, Transform())):
        assert permute_quant(*same) is same[0]


@given(turned(least=2), st.data())
def test_what_a_squeeze_takes_out_of_a_turned_tensor_leaves_the_others_in_their_order(drawn, data):
    """The stored tensor and the model's lose the same dimensions, each under its own numbers."""
    array, order, _ = drawn
    gone = sorted(data.draw(st.sets(st.integers(0, array.ndim - 1), min_size=1, max_size=array.ndim - 1)))
    signed = tuple(axis - array.ndim * data.draw(st.integers(0, 1)) for axis in gone)
    node = Node(name="n", op="Squeeze", inputs=("x",), outputs=("y",), attrs={"axes": signed})
    found = _layout_without_dimensions(view_of(order), node, run_of([node], {}))
    stored = np.zeros([1 if axis in gone else axis + 2 for axis in range(array.ndim)])
    model = stored.transpose(order)
    theirs = tuple(place for place, axis in enumerate(order) if axis in gone)
    expected = model.squeeze(theirs).shape
    assert permuted_shape(stored.squeeze(tuple(gone)).shape, found) == expected
    assert found is None or found.transpose != tuple(range(len(expected)))
    for before in (Transform(), Transform(transpose=order, channel_block=8)):
        assert _layout_without_dimensions(before, node, run_of([node], {})) is None


@given(turned(least=2), st.data())
def test_what_an_unsqueeze_puts_into_a_turned_tensor_goes_where_the_model_puts_it(drawn, data):
    array, order, _ = drawn
    added = data.draw(st.integers(1, 2))
    rank = array.ndim + added
    places = [sorted(data.draw(st.sets(st.integers(0, rank - 1), min_size=added, max_size=added))) for _ in range(2)]
    ours, theirs = (
        Node(name="n", op="Unsqueeze", inputs=("x",), outputs=("y",), attrs={"axes": tuple(axes)}) for axes in places
    )
    runs = run_of([theirs], {}), run_of([ours], {})
    stored = np.zeros([axis + 2 for axis in range(array.ndim)])
    model = stored.transpose(order)
    for partner, axes in ((theirs, places[1]), (None, places[0])):
        found = layout_with_added_dimensions(view_of(order), ours, partner, runs)
        made = np.expand_dims(stored, tuple(places[0]))
        assert permuted_shape(made.shape, found) == np.expand_dims(model, tuple(axes)).shape
        assert found is None or found.transpose != tuple(range(rank))
    other = Node(name="n", op="Reshape", inputs=("x",), outputs=("y",))
    assert layout_with_added_dimensions(view_of(order), ours, other, runs) == layout_with_added_dimensions(
        view_of(order), ours, None, runs
    )
    for before in (Transform(), Transform(transpose=order, channel_block=8)):
        assert layout_with_added_dimensions(before, ours, theirs, runs) is None


def run_of(nodes, values, *, layouts=None):
    """Index a run of some nodes on x."""
    names = dict.fromkeys(["x", *(name for node in nodes for name in (*node.inputs, *node.outputs) if name)])
    infos = [
        TensorInfo(
            name=name,
            role=Role.CONSTANT if name.startswith("k") else Role.ACTIVATION,
            layout=(layouts or {}).get(name),
        )
        for name in names
    ]
    graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=nodes[-1].outputs[:1], opset={"": 17})
    return IndexedRecording.of(MemoryRecording.single(graph, values))


def node(op, inputs, output, **attrs):
    return Node(name=f"n_{output}", op=op, inputs=tuple(inputs.split()), outputs=(output,), attrs=attrs)


LAST = (0, 3, 1, 2)


@pytest.mark.parametrize(
    ("nodes", "values", "expected"),
    [
        ([node("Conv", "x k", "y", channels_last=1)], {}, {"y": LAST}),
        ([node("Conv", "x k", "y")], {}, {}),
        ([node("Conv", "x k", "a", channels_last=1), node("Relu", "a", "y")], {}, {"a": LAST, "y": LAST}),
        (
            [node("Conv", "x k", "a", channels_last=1), node("Transpose", "a", "y", perm=LAST)],
            {},
            {"a": LAST},
        ),
        (
            [node("Conv", "x k", "a", channels_last=1), node("Squeeze", "a", "y", axes=(1, 2))],
            {},
            {"a": LAST},
        ),
        (
            [node("Conv", "x k", "a", channels_last=1), node("Squeeze", "a", "y", axes=(1,))],
            {},
            {"a": LAST, "y": (0, 2, 1)},
        ),
        (
            [node("Conv", "x k", "a", channels_last=1), node("ReduceMean", "a", "y", axes=(1,), keepdims=0)],
            {},
            {"a": LAST, "y": (0, 2, 1)},
        ),
        (
            [node("Conv", "x k", "a", channels_last=1), node("ReduceMean", "a", "y", axes=(1,), keepdims=1)],
            {},
            {"a": LAST, "y": LAST},
        ),
        (
            [node("Conv", "x k", "a", channels_last=1), node("ReduceMean", "a", "y", axes=(1,))],
            {},
            {"a": LAST, "y": LAST},
        ),
        (
            [node("Conv", "x k", "a", channels_last=1), node("Unsqueeze", "a", "y", axes=(0,))],
            {},
            {"a": LAST, "y": (0, 1, 4, 2, 3)},
        ),
        (
            [node("Conv", "x k", "a", channels_last=1), node("Unsqueeze", "a k1", "y")],
            {"k1": np.array([0])},
            {"a": LAST, "y": (0, 1, 4, 2, 3)},
        ),
        ([node("Conv", "x k", "a", channels_last=1), node("Unsqueeze", "a k1", "y")], {}, {"a": LAST}),
        (
            [node("Conv", "x k", "a", channels_last=1), node("Squeeze", "a", "y")],
            {"a": np.zeros((1, 1, 4, 5))},
            {"a": LAST, "y": (1, 0)},
        ),
        ([node("Conv", "x k", "y", channels_last=1)], {"y": np.zeros((2, 3, 4))}, {"y": (0, 2, 1)}),
        ([node("Conv", "x k", "y", channels_last=1)], {"y": np.zeros((2, 3))}, {}),
        (
            [node("Transpose", "x", "a", perm=(0, 2, 3, 1)), node("Conv", "a k", "y", channels_last=1)],
            {},
            {"a": LAST, "y": LAST},
        ),
        ([node("Transpose", "x", "y", perm=(0, 2, 3, 1))], {}, {}),
    ],
)
def test_a_graph_alone_tells_which_tensors_are_kept_in_another_order(nodes, values, expected):
    found = layouts_of(run_of(nodes, values))
    assert {name: layout.transpose for name, layout in found.items()} == expected


def test_a_declared_block_is_a_layout_of_its_own():
    nodes = [node("Conv", "x k", "a"), node("Relu", "a", "y")]
    found = layouts_of(run_of(nodes, {}, layouts={"a": "NCHW16c"}))
    assert found["a"] == Transform(channel_block=16)
    assert layouts_of(run_of(nodes, {}, layouts={"a": "NCHW"})) == {}
