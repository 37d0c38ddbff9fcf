"""Every order in which two tensors may be alike is listed, and the sampled places of both are those of one element."""

import numpy as np
import pytest

from qdebug.compare.align.arrangements import (
    AxisOrder,
    arrangements,
    can_merge_into,
    matched_positions,
    sample_positions,
)
from qdebug.compare.align.layouts import in_one_order
from qdebug.compare.align.pairs import Transform

RNG = np.random.default_rng(5)


def stored(values, perm, shape):
    return np.ascontiguousarray(values.transpose(perm)).reshape(shape)


@pytest.mark.parametrize(
    ("shape", "perm", "kept"),
    [
        ((2, 3, 4, 5), (0, 2, 3, 1), (2, 4, 5, 3)),
        ((2, 3, 4, 5), (3, 1, 0, 2), (5, 3, 2, 4)),
        ((1, 3, 4, 5), (0, 2, 3, 1), (4, 5, 3)),
        ((1, 3, 1, 5), (0, 2, 3, 1), (1, 1, 5, 3)),
        ((1, 3, 4, 5), (0, 2, 3, 1), (60,)),
        ((2, 3, 4, 5), (0, 2, 3, 1), (2, 20, 3)),
        ((1, 1, 1, 7), (0, 1, 3, 2), (1, 1, 7, 1)),
    ],
)
def test_one_of_the_orders_brings_a_stored_tensor_back(shape, perm, kept):
    """Both for the sampled places and for what a comparison reads, whichever side is the one that is stored so."""
    values = RNG.normal(size=shape)
    other = stored(values, perm, kept)
    for theirs, ours in ((values, other), (other, values)):
        found = []
        for order in arrangements(theirs.shape, ours.shape):
            at = matched_positions(order, theirs.shape, ours.shape)
            sampled = np.array_equal(theirs.reshape(-1)[at], ours.reshape(-1)[sample_positions(ours.size)])
            views = (None if turn is None else Transform(transpose=turn) for turn in (order.reference, order.backend))
            read = in_one_order(theirs, next(views), ours, next(views))
            found.append(sampled)
            assert sampled == np.array_equal(read[0].ravel(), read[1].ravel())
        assert any(found)


def test_the_plain_order_comes_first_and_other_extents_have_none():
    assert arrangements((2, 3), (2, 3)) == (AxisOrder(),)
    assert arrangements((3, 3), (3, 3)) == (AxisOrder(), AxisOrder(backend=(1, 0)))
    assert arrangements((4, 6), (3, 8)) == ()
    assert arrangements((2,) * 6, (2,) * 6) == (AxisOrder(),)  # there are too many others


def test_dimensions_of_one_element_are_put_where_the_reference_has_them():
    assert arrangements((1, 1, 1, 7), (1, 1, 7, 1))[0] == AxisOrder(backend=(0, 1, 3, 2))


@pytest.mark.parametrize(
    ("shape", "merged", "does"),
    [((2, 3, 4), (6, 4), True), ((2, 3, 4), (2, 12), True), ((2, 3, 4), (4, 6), False), ((2, 1, 3), (2, 3), True)],
)
def test_neighbouring_dimensions_become_one(shape, merged, does):
    assert can_merge_into(shape, merged) is does


def test_places_are_spread_over_the_whole_and_each_is_one_of_it():
    at = sample_positions(10_000)
    assert (len(at), at.min() < 100, at.max() > 9900, len(set(at.tolist()))) == (256, True, True, 256)
    assert sample_positions(5).tolist() == [0, 1, 2, 3, 4]
