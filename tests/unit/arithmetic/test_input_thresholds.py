"""Functions that follow a simpler rule beyond an input."""

from __future__ import annotations

import numpy as np

from qdebug.arithmetic.input_thresholds import results_by_input

X = np.linspace(-6, 6, 121)


def test_large_inputs_are_passed_on():
    right = np.log1p(np.exp(X))
    recorded = np.where(X > 2, X, right)
    results = dict(results_by_input(X, right, np.abs(recorded - right) > 1e-3))
    assert np.array_equal(results["inputs above 2 are passed on unchanged"], recorded)


def test_small_inputs_become_0():
    right = X / (1 + np.exp(-X))
    recorded = np.where(X < -2.96, 0, right)
    results = dict(results_by_input(X, right, recorded != right))
    assert np.array_equal(results["inputs below -3 become 0"], recorded)


def test_a_function_that_is_wrong_everywhere_has_no_threshold():
    assert not list(results_by_input(X, X**2, np.ones(X.size, bool)))
