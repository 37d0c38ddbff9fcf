"""Places of wrong elements: which are named, in which words, and from how many elements on."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from qdebug.arithmetic.patterns.wrong_places import (
    Layout,
    _repeated_part_of_blocks,
    may_be_chance,
    places,
    unbroadcast_operand,
)
from qdebug.model import Node
from qdebug.model.thresholds.patterns import PLACE_MAX_PROBABILITY

NCHW = Layout(channel=0, spatial=(1, 2))


def wrong_in(shape, *where):
    wrong = np.zeros(shape, bool)
    for part in where:
        wrong[part] = True
    return wrong


def told(wrong, layout):
    return [(place.pattern, place.detail) for place in places(wrong, layout)]


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 40), st.integers(1, 10**9))
def test_chance_is_the_probability_of_any_such_place(hit, more, wrong, choices):
    share = Fraction(hit, hit + more - 1)
    probability, most = share**wrong * choices, Fraction(PLACE_MAX_PROBABILITY)
    assume(not math.isclose(probability, most, rel_tol=1e-9))
    assert may_be_chance(float(share), wrong, choices) == (probability > most)
    assert may_be_chance(float(share), wrong) == (share**wrong > most)


def test_a_probability_at_the_limit_is_no_chance():
    assert not may_be_chance(0.1, 4)
    assert may_be_chance(0.1, 3)


@pytest.mark.parametrize(
    ("residues", "block", "total", "said"),
    [
        ([1, 3, 5, 7], 32, 128, "number 1, 3, 5, 7 of every 32"),
        ([1, 3, 5, 7, 9], 32, 192, "number 1, 3, 5, 7, ... of every 32"),
        ([31], 32, 128, "the last of every 32"),
        ([30, 31], 32, 128, "the last 2 of every 32"),
        ([0], 32, 128, "number 0 of every 32"),
        ([7], 8, 24, "the last of every 8"),
        ([1, 2, 4], 8, 64, None),  # more than a quarter of each block
        ([1, 2, 3], 8, 64, "numbers 1 to 3 of every 8"),
        ([4, 5, 6, 7], 8, 32, "the last 4 of every 8"),
        ([0, 1, 2, 3, 4], 8, 64, None),  # more than half of each block
        ([3], 16, 32, "number 3 of every 16"),
        ([3], 16, 31, None),  # less than two blocks
        ([3], 8, 16, None),  # two elements have the same place in 8 by chance
        ([3], 8, 24, "number 3 of every 8"),
        ([3], 4, 12, "the last of every 4"),
        ([3], 4, 11, None),
    ],
)
def test_a_part_of_every_block_is_named_if_it_is_small_and_hardly_chance(residues, block, total, said):
    hit = np.array([at for at in range(total) if at % block in residues])
    assert _repeated_part_of_blocks(hit, total) == said


@given(st.integers(1, 40), st.integers(2, 130), st.data())
def test_indices_of_a_single_block_are_no_part_of_every_block(many, total, data):
    start = data.draw(st.integers(0, total - 1))
    hit = np.arange(start, min(start + many, total))
    if hit.size <= 4:
        assert _repeated_part_of_blocks(hit, total) is None


@pytest.mark.parametrize(
    ("layout", "axes", "names"),
    [
        (Layout(spatial=(0,)), (1,), [("position", "positions")]),
        (Layout(spatial=(0, 1)), (1, 2), [("row", "rows"), ("column", "columns")]),
        (Layout(spatial=(0, 1, 2)), (1, 2, 3), [("plane", "planes"), ("row", "rows"), ("column", "columns")]),
        (
            Layout(spatial=(0, 1, 2, 3)),
            (1, 2, 3, 4),
            [("index", "indices"), ("plane", "planes"), ("row", "rows"), ("column", "columns")],
        ),
        (Layout(channel=0, spatial=(1,)), (2, 1), [("position", "positions"), ("channel", "channels")]),
    ],
)
def test_a_tail_a_head_and_a_block_are_named_along_each_axis(layout, axes, names):
    """Along an axis of seven: its last index, its last two, its first, its first three, one inside and two inside."""
    for axis, (one, several) in zip(axes, names, strict=True):
        shape = [3, *([5] * max(axes))]
        shape[axis], shape[0] = 7, 40
        kind = "channels" if one == "channel" else "rows"
        for part, pattern, detail in (
            (slice(6, 7), "tail", f"only in the last {one} of 7"),
            (slice(5, 7), "tail", f"only in the last 2 {several} of 7"),
            (slice(0, 1), kind, f"only in the first {one} of 7"),
            (slice(0, 3), kind, f"only in the first 3 {several} of 7"),
            (slice(4, 5), kind, f"only in {one} 4 of 7"),
            (slice(4, 6), kind, f"only in {several} 4 to 5 of 7"),
        ):
            where = tuple(part if other == axis else slice(None) for other in range(len(shape)))
            (place,) = places(wrong_in(shape, where), layout)
            assert (place.pattern, place.detail, place.loose) == (pattern, detail, False)
            assert place.share == (part.stop - part.start) / 7


@pytest.mark.parametrize(("wrong", "found"), [(5, False), (6, True)])
def test_a_place_along_an_axis_is_one_of_as_many_as_there_are_pairs_of_ends(wrong, found):
    """One index of twenty holds five elements with probability 3e-7, and there are four hundred places."""
    element = wrong_in((1, 20, wrong), np.s_[:, 4])
    assert bool(told(element, Layout(channel=0))) == found


@pytest.mark.parametrize(("wrong", "found"), [(3, False), (9, True)])
def test_a_list_of_indices_is_one_of_as_many_as_there_are_choices(wrong, found):
    """Four of eight hold nine elements each with probability 2**-36; there are 70 choices of four."""
    element = wrong_in((1, 8, wrong), np.s_[:, [0, 1, 3, 6]])
    said = told(element, Layout(channel=0))
    assert said == ([("channels", "only in 4 of 8 channels: 0, 1, 3, 6")] if found else [])


def test_wrong_elements_everywhere_or_nowhere_lie_in_no_place():
    assert places(np.ones((4, 3, 5, 5), bool), NCHW) == ()
    assert places(np.zeros((4, 3, 5, 5), bool), NCHW) == ()


def test_the_smallest_place_comes_first():
    wrong = wrong_in((8, 6, 9, 11), np.s_[2, :2, 8])
    assert told(wrong, NCHW) == [
        ("tail", "only in the last row of 9"),
        ("one_sample", "only in sample 2 of 8"),
        ("channels", "only in the first 2 channels of 6"),
    ]
    shares = [place.share for place in places(wrong, NCHW)]
    assert shares == [1 / 9, 1 / 8, 2 / 6]


def test_a_tail_of_each_block_of_positions_is_counted_through_rows_and_columns():
    """The last of every 16 positions of a plane of 6 x 8 lies in every other row: that row is no better place."""
    flat = wrong_in((5, 3, 48), np.s_[:, :, 15::16])
    assert told(flat.reshape(5, 3, 6, 8), NCHW) == [("block_tail", "only in the last of every 16 positions")]
    assert told(flat[:, :, :16].reshape(5, 3, 2, 8), NCHW) == [("tail", "only in the last column of 8")]
    # A column of a plane that is as wide as a block is that column.
    column = wrong_in((5, 3, 6, 8), np.s_[..., 5])
    assert told(column, NCHW) == [("rows", "only in column 5 of 8")]


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("sides", [ends for ends in product((False, True), repeat=4) if sum(ends) > 1])
def test_a_frame_names_the_sides_that_hold_wrong_elements(width, sides):
    """Sides of both axes are a frame of up to three elements; those of one axis alone are no tail either."""
    top, bottom, left, right = sides
    parts = (np.s_[:, :, :width], np.s_[:, :, 20 - width :], np.s_[..., :width], np.s_[..., 23 - width :])
    wrong = wrong_in((2, 3, 20, 23), *(part for part, given in zip(parts, sides, strict=True) if given))
    ends = {"first row": top, "last row": bottom, "first column": left, "last column": right}
    named = [name if width == 1 else name.replace(" ", f" {width} ") + "s" for name, given in ends.items() if given]
    frames = [place for place in places(wrong, NCHW) if place.pattern == "borders"]
    if width > 3:
        assert frames == []
    elif (top or bottom) and (left or right):
        (frame,) = frames
        assert frame.detail == f"only in {' and '.join(f'the {name}' for name in named)}"
        assert frame.share == pytest.approx(1 - (1 - (top + bottom) * width / 20) * (1 - (left + right) * width / 23))


def test_a_side_that_others_hold_already_is_not_named():
    """A corner belongs to a row and to a column; the longer side holds it."""
    wrong = wrong_in((4, 3, 9, 11), np.s_[:, :, 0], np.s_[:, :, 1:8, 10])
    (frame,) = (place for place in places(wrong, NCHW) if place.pattern == "borders")
    assert frame.detail == "only in the first row and the last column"
    assert told(wrong_in((4, 3, 9, 11), np.s_[:, :, 0]), NCHW) == [("rows", "only in the first row of 9")]


def test_a_frame_around_nothing_is_no_place():
    """With two rows, or four at a width of two, a frame has no inside."""
    for rows, found in ((2, False), (3, True)):
        wrong = wrong_in((40, 4, rows, 9), np.s_[:, :, -1], np.s_[..., -1])
        assert bool(told(wrong, NCHW)) == found
    assert told(wrong_in((40, 4), np.s_[:, 3]), Layout()) == []


@pytest.mark.parametrize(("wrong", "found"), [(14, False), (15, True)])
def test_few_elements_lie_on_the_border_by_chance(wrong, found):
    """The frame of a plane of 9 x 8 is 5 / 12 of it, and there are 48 frames: three widths, each side or not."""
    ring = [(row, column) for row, column in product(range(9), range(8)) if row in (0, 8) or column in (0, 7)]
    plane = np.zeros((1, 1, 9, 8), bool)
    for at in np.random.default_rng(0).permutation(len(ring))[:wrong]:
        plane[0, 0, *ring[at]] = True
    assert bool([place for place in places(plane, NCHW) if place.pattern == "borders"]) == found


def test_sides_are_named_from_the_first_to_the_last_whichever_holds_more():
    wrong = wrong_in((4, 3, 9, 11), np.s_[:, :, 0, 3:5], np.s_[:, :, 8], np.s_[..., 0])
    (frame,) = (place for place in places(wrong, NCHW) if place.pattern == "borders")
    assert frame.detail == "only in the first row and the last row and the first column"


@pytest.mark.parametrize("many", [6, 7, 8])
def test_six_indices_are_listed(many):
    hit = [0, 1, 3, 6, 7, 9, 12, 17][:many]
    ((_, detail),) = told(wrong_in((2, 23, 50), np.s_[:, hit]), Layout(channel=0))
    assert detail == f"only in {many} of 23 channels: 0, 1, 3, 6, 7, 9{', ...' * (many > 6)}"


@pytest.mark.parametrize(
    ("shape", "axis", "name"), [((9, 7), 0, "row"), ((2, 9, 7), 1, "token"), ((2, 9, 7), 2, "feature")]
)
def test_axes_of_a_product_with_a_matrix_go_by_their_roles(shape, axis, name):
    part = tuple(slice(-1, None) if at == axis else slice(None) for at in range(len(shape)))
    layout = Layout(channel=len(shape) - 1, spatial=tuple(range(len(shape) - 1)), vectors=True)
    wrong = np.zeros((3, *shape), bool)
    wrong[:, *part] = True
    (place,) = places(wrong, layout)
    assert place.detail == f"only in the last {name} of {shape[axis]}"
    assert place.channels is (name == "feature")


@pytest.mark.parametrize(
    ("part", "said"), [(slice(1, None), "last 5"), (slice(None, 5), "first 5"), (slice(1, 5), None)]
)
def test_all_samples_but_the_first_or_the_last_are_a_place(part, said):
    wrong = np.zeros((6, 16), bool)
    wrong[part] = True
    found = [place.detail for place in places(wrong, Layout(channel=0, first="row", vectors=True))]
    assert found == ([] if said is None else [f"only in the {said} rows of 6"])
    few = np.zeros((6, 16), bool)
    few[1, 3] = few[3, 7] = few[5, 2] = True
    assert places(few, Layout(channel=0, first="row", vectors=True)) == ()


@pytest.mark.parametrize(
    ("shape", "part", "said"),
    [
        ((2, 14, 10), np.s_[200:], ["only from element [1, 6, 0] on, in memory order", "only in sample 1 of 2"]),
        ((3, 8, 10), np.s_[:35], ["only up to element [0, 3, 4], in memory order", "only in sample 0 of 3"]),
        ((2, 14, 10), np.s_[150:], ["only in sample 1 of 2"]),  # hardly smaller than that
        ((4, 30), np.s_[37::9], []),  # few elements of that part are wrong
        ((2, 40), np.s_[79:], []),  # a single element
    ],
)
def test_the_end_or_the_beginning_in_memory_is_a_place(shape, part, said):
    wrong = np.zeros(shape, bool)
    wrong.reshape(-1)[part] = True
    assert [place.detail for place in places(wrong, Layout())] == said


def test_rows_of_a_tile_are_a_place():
    wrong = np.zeros((32, 24), bool)
    wrong[np.arange(32) % 8 >= 4] = True
    vectors = Layout(channel=0, spatial=(), first="row", vectors=True)
    assert [place.detail for place in places(wrong, vectors)] == ["only in the last 4 of every 8 of the rows"]


@pytest.mark.parametrize(
    ("op", "shapes", "right", "text"),
    [
        ("MatMul", {"a": (1, 5, 8), "b": (3, 8, 6)}, (0,), "'a' is not broadcast: only the first batch slice of 3"),
        ("MatMul", {"a": (5, 8), "b": (3, 8, 6)}, (0,), "'a' is not broadcast: only the first batch slice of 3"),
        ("MatMul", {"a": (2, 3, 5, 8), "b": (2, 1, 8, 6)}, (slice(None), 0), "'b' is not broadcast: only the first"),
        (
            "Mul",
            {"a": (4, 6, 9), "b": (4, 1, 9)},
            (slice(None), 0),
            "'b' is not broadcast: only the first index of axis 1",
        ),
        ("MatMul", {"a": (3, 5, 8), "b": (3, 8, 6)}, (0,), None),
        ("MatMul", {"a": (1, 5, 8), "b": (3, 8, 6)}, (1,), None),
        ("Softmax", {"a": (3, 5, 6)}, (0,), None),
    ],
)
def test_only_slices_that_need_no_broadcast_are_right(op, shapes, right, text):
    arrays = [np.zeros(shape, bool) for shape in shapes.values()]
    is_wrong = np.ones(np.matmul(*arrays).shape if op == "MatMul" else np.broadcast_shapes(*shapes.values()), bool)
    is_wrong[right] = False
    node = Node(name="n", op=op, inputs=tuple(shapes), outputs=("y",))
    clause = unbroadcast_operand(node, shapes, is_wrong)
    assert clause is None if text is None else text in clause
    is_wrong[...] = True
    assert unbroadcast_operand(node, shapes, is_wrong) is None
