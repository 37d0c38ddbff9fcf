"""The rank of the reference's winner: ties, NaN and infinities."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.compare.result.scores import Rank, winner_rank

scores = st.lists(st.floats(width=32) | st.integers(-3, 3).map(float), min_size=2, max_size=9)


def ranked(reference, backend):
    return winner_rank(np.array(reference, np.float32), np.array(backend, np.float32))


@pytest.mark.parametrize(
    ("reference", "backend", "rank", "tied"),
    [
        ([1, 5, 3], [1, 5, 3], 0, False),
        ([1, 5, 3], [-9, -1, -2], 0, False),
        ([1, 5, 3], [1, 2, 3], 1, False),
        ([1, 5, 3], [4, 2, 3], 2, False),
        ([1, 5, 3], [0, 3, 3], 1, True),
        ([1, 5, 3], [0, 0, 0], 2, True),
        ([1, 5, 5], [1, 9, 0], 0, False),
        ([1, 5, 5], [7, 9, 0], 0, False),
        ([1, 5, 5], [9, 9, 0], 1, True),
        ([1, math.inf, math.inf], [1, math.inf, 3], 0, False),
        ([1, 5, 3], [math.inf, math.inf, 0], 1, True),
        ([1, 5, 3], [math.nan, 9, 0], 1, False),
        ([1, 5, 3], [1, math.nan, 3], 2, False),
        ([1, 5, 5], [1, math.nan, 3], 1, False),
        ([-math.inf, 5], [0, 1], 0, False),
    ],
)
def test_rank(reference, backend, rank, tied):
    assert ranked(reference, backend) == Rank(rank=rank, tied=tied)


@pytest.mark.parametrize("reference", [[2, 2, 2], [1, math.nan, 3], [1], [], [math.inf, math.inf]])
def test_a_reference_without_a_winner_has_no_rank(reference):
    assert ranked(reference, reference) is None


def test_scores_of_two_shapes_are_refused():
    with pytest.raises(ValueError, match=r"\(3,\) and \(2,\)"):
        ranked([1, 2, 3], [1, 2])
    with pytest.raises(ValueError, match="one-dimensional"):
        ranked([[1, 2]], [[1, 2]])


@drawn(100)
@given(scores)
def test_a_tensor_agrees_with_itself(values):
    assert ranked(values, values) in (None, Rank(rank=0, tied=False))


@drawn(100)
@given(st.data())
def test_the_rank_is_what_sorting_says(data):
    reference = data.draw(st.permutations(range(6)))
    backend = data.draw(st.permutations(range(6)))
    order = sorted(range(6), key=lambda entry: -backend[entry])
    assert ranked(reference, backend) == Rank(rank=order.index(reference.index(5)), tied=False)
