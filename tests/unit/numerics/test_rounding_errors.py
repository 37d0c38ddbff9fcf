"""Errors have one sign if more of them go one way than chance explains, each row or element counted once."""

import numpy as np
import pytest

from qdebug.numerics.float_rounding import round_float
from qdebug.numerics.rounding_errors import RoundingErrors
from qdebug.numerics.short_formats import SHORT_FORMATS

SHORT = next(short for short in SHORT_FORMATS if short.name == "bfloat16")
VALUES = np.random.default_rng(0).standard_normal((100, 64))


def errors(recorded, *, joint_axes=()):
    made = RoundingErrors(SHORT, joint_axes)
    made.add(VALUES, recorded)
    return made


@pytest.mark.parametrize(
    ("word", "direction"), [("zero", "toward zero"), ("out", "away from zero"), ("up", "upward"), ("down", "downward")]
)
def test_a_direction_is_named(word, direction):
    found = errors(round_float(VALUES, SHORT, word))
    assert found.one_sided
    assert found.direction == direction
    assert abs(found.mean) == pytest.approx(0.5, abs=0.05)
    assert found.unequal == pytest.approx(3200, abs=200)


def test_nearest_has_no_errors():
    found = errors(round_float(VALUES, SHORT, "even"))
    assert (found.unequal, found.mean, found.one_sided) == (0, 0, False)


def test_rows_that_move_together_count_once():
    shift = np.where(np.arange(100) < 62, 1 + 2.0**-8, 1 - 2.0**-8)[:, None]
    moved = round_float(VALUES * shift, SHORT, "even")
    assert errors(moved).deviations > 6
    assert errors(moved, joint_axes=(1,)).deviations < 6
    assert errors(moved, joint_axes=(0,)).deviations > 6


def test_few_errors_of_many_units_do_not_outweigh_the_others():
    recorded = round_float(VALUES, SHORT, "zero")
    recorded[0] = VALUES[0] * np.where(np.arange(64) % 2, 100, -100)
    assert errors(recorded).one_sided


def test_what_has_no_right_neighbor_is_left_out():
    found = RoundingErrors(SHORT)
    found.add(np.float64([np.nan, np.inf, 1e-40, 1.0]), np.float64([0.0, 0.0, 0.0, 1.0]))
    assert found.elements == 1
