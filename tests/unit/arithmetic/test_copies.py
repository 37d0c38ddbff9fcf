"""Wrong elements that are copies of other elements of an operand."""

from __future__ import annotations

import numpy as np
import pytest

from qdebug.arithmetic.copies import copied_elements

X = np.random.default_rng(4).normal(size=(9, 6)).astype(np.float32)
ROWS = np.array([7, 2, 5, 1])
RIGHT = X[ROWS]


def relations(recorded):
    return list(copied_elements(RIGHT, recorded, {"x": X, "i": ROWS}, recorded != RIGHT))


@pytest.mark.parametrize(
    ("recorded", "words"),
    [
        (X.reshape(-1)[np.add.outer(ROWS * 6 - 2, np.arange(6))], "2 places before the right ones in memory"),
        (X.reshape(-1)[3:27].reshape(4, 6), "in memory order, from element 3 on"),
        (X[ROWS + 1], "1 place after the right ones along axis 0"),
        (
            RIGHT[:, ::-1],
            "wrong elements are copies of the wrong elements of 'x', such as x[7, 5] where x[7, 0] is right",
        ),
    ],
)
def test_their_distance_or_an_example_is_named(recorded, words):
    (relation,) = relations(recorded)
    assert words in relation


def test_other_numbers_are_no_copies():
    assert not relations(RIGHT + np.float32(0.5))


def test_one_number_among_copies_is_enough_to_say_nothing():
    recorded = X[ROWS + 1]
    recorded[0, 0] = 0.25
    assert not relations(recorded)
