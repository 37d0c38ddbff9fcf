"""Rows of a result that hold the result of other rows are named, and noise is not."""

from __future__ import annotations

import numpy as np
import pytest

from qdebug.arithmetic.patterns.misplaced_rows import RowsOfResult, misplaced_rows

RIGHT = np.random.default_rng(4).normal(size=(2, 3, 4, 10)).astype(np.float32)


def named(recorded, right=RIGHT, **rest):
    return misplaced_rows([RowsOfResult(right=right, recorded=recorded, slack=1e-6, **rest)])


def moved(axis, order):
    return RIGHT.take(order, axis)


def unwritten(array, axis, number):
    result = array.copy()
    result.swapaxes(0, axis)[1:] = number
    return result


@pytest.mark.parametrize(
    ("recorded", "said"),
    [
        (moved(2, [0, 2, 1, 3]), "2 of 4 hold the result of another: row 1 that of 2, 2 that of 1"),
        (moved(2, [1, 1, 2, 3]), "1 of 4 hold the result of another: row 0 that of 1"),
        (moved(1, [1, 2, 0]), "along axis 1, 3 of 3 hold the result of another: index 0 that of 1"),
        (unwritten(moved(2, [3, 3, 3, 3]), 2, 0.5), "every row is written to the first, which holds the last of 4; "),
        (unwritten(moved(2, [3, 3, 3, 3]), 2, 0.5), "the others hold 0.5, as if never written"),
        (
            moved(0, [1, 0]).reshape(2, 3, 4, 10),
            "along axis 0, 2 of 2 hold the result of another: index 0 that of 1, 1 that of 0",
        ),
    ],
)
def test_misplaced_rows_are_named(recorded, said):
    assert said in named(recorded)


def test_all_rows_of_all_samples_count():
    rows = RIGHT.reshape(24, 10)
    result = RIGHT.copy().reshape(24, 10)
    result[:23] = rows[1:]
    assert "23 of 24 hold the result of another: row i holds that of i+1" in named(result, rows)


@pytest.mark.parametrize("kind", ["right", "noise", "one noisy row", "zeros", "only the first"])
def test_nothing_else_is_named(kind):
    recorded = RIGHT.copy()
    noise = np.random.default_rng(5).normal(size=RIGHT.shape).astype(np.float32)
    if kind == "noise":
        recorded += noise
    elif kind == "one noisy row":
        recorded[0, 0, 0] = noise[0, 0, 0]
    elif kind == "zeros":
        recorded[:] = 0
    elif kind == "only the first":
        recorded[:, :, 1:] = 0
    assert named(recorded) is None


def test_codes_may_be_off_by_one():
    right = np.rint(RIGHT * 30)
    recorded = right[:, :, [0, 2, 1, 3]].copy()
    recorded[0, 0, 1, 3] += 1
    at = {"right": right, "recorded": recorded, "step": 1.0}
    assert misplaced_rows([RowsOfResult(slack=0.5, **at)]) is None
    assert "row 1 that of 2" in misplaced_rows([RowsOfResult(slack=1.5, **at)])
