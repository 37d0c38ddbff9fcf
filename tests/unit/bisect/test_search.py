"""The search finds one boundary with few trials, and every change that halving can see."""

import math

from hypothesis import given
from hypothesis import strategies as st

from qdebug.bisect.search import find_changes


def searched(classes, anchors=None, *, every=False):
    tried = []

    def classify(position):
        tried.append(position)
        return classes[position]

    pairs = find_changes(anchors or (0, len(classes) - 1), classify, every=every)
    return pairs, set(tried)


@given(st.integers(2, 300).flatmap(lambda size: st.tuples(st.just(size), st.integers(1, size - 1))))
def test_a_single_change_takes_as_many_trials_as_halving(drawn):
    size, change = drawn
    pairs, tried = searched(["good"] * change + ["bad"] * (size - change))
    assert pairs == [(change - 1, change)]
    assert len(tried) <= 2 + math.ceil(math.log2(size))


@given(st.lists(st.sampled_from(["a", "b", None]), min_size=1, max_size=12))
def test_pairs_differ_and_only_what_cannot_be_tried_is_between(middle):
    classes = ["a", *middle, "b"]
    for every in (False, True):
        pairs, _ = searched(classes, every=every)
        assert pairs
        for low, high in pairs:
            assert classes[low] != classes[high]
            assert all(label is None for label in classes[low + 1 : high])


def test_a_third_result_splits_the_range():
    assert searched(list("aaabbbbccc"))[0] == [(2, 3), (6, 7)]


def test_a_range_between_equal_ends_is_not_searched_unless_asked():
    assert searched(list("abba")) == ([], {0, 3})
    assert searched(list("abba"), every=True)[0] == [(0, 1), (2, 3)]


def test_where_it_became_right_again_is_searched_beyond_the_bad_end():
    assert searched(list("aabbba"), anchors=(0, 3, 5))[0] == [(1, 2), (4, 5)]
