"""Entries that are repeated along an axis can be repeated in the other order."""

from __future__ import annotations

import numpy as np
import pytest

from qdebug.arithmetic.mistakes.repeats import other_repeats

HEADS = np.random.default_rng(2).normal(size=(1, 3, 4, 5)).astype(np.float32)


@pytest.mark.parametrize(
    ("turned", "said"), [(False, "in turn, not each in a row"), (True, "in a row, not all in turn")]
)
@pytest.mark.parametrize("axis", [1, 3])
def test_repeated_entries_have_one_other_order(turned, said, axis):
    count = HEADS.shape[axis]
    in_a_row, in_turn = (np.repeat(HEADS, 2, axis), np.concatenate([HEADS, HEADS], axis))
    right, wrong = (in_turn, in_a_row) if turned else (in_a_row, in_turn)
    (repeat,) = other_repeats(right)
    np.testing.assert_array_equal(right.take(repeat.order, repeat.axis), wrong)
    assert said in repeat.clause
    assert f"the {count} entries of {{}} along axis {axis} " in repeat.clause


@pytest.mark.parametrize("array", [HEADS, np.zeros((4, 8)), np.float32(1), np.broadcast_to(HEADS[:, :1], (1, 6, 4, 5))])
def test_entries_that_are_not_repeated_or_all_equal_have_none(array):
    assert not list(other_repeats(array))
