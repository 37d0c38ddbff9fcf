"""Integers with the digits of a float format."""

from __future__ import annotations

import numpy as np

from qdebug.arithmetic.integer_digits import float_digits_of_integers
from qdebug.arithmetic.relations import Result

DATA = np.random.default_rng(2).integers(-(2**40), 2**40, (50, 20))
TEXT = "integers are computed in float32, which does not hold all their digits"


def clause(recorded):
    return float_digits_of_integers(Result(right=DATA.sum(1), recorded=recorded, allowed=0.0, operands={"x": DATA}))


def test_sums_in_float32_in_any_order():
    assert clause(DATA.astype(np.float32).sum(1).astype(np.int64)) == TEXT
    assert clause(DATA[:, ::-1].astype(np.float32).cumsum(1)[:, -1].astype(np.int64)) == TEXT


def test_other_errors_have_other_causes():
    assert clause(DATA.sum(1) + 1) is None
    assert clause(DATA.sum(1).astype(np.float32).astype(np.int64) * 2) is None
