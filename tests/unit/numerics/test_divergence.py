"""Divergences of distributions against their definitions, and their special values."""

from fractions import Fraction
from math import exp, log

import numpy as np
import pytest

from qdebug.numerics.divergence import score_divergence


def test_definitions():
    rng = np.random.default_rng(5)
    reference, backend = rng.normal(size=(2, 40)) * 3
    p, q = (np.exp(scores) / np.exp(scores).sum() for scores in (reference, backend))
    divergence = score_divergence(reference, backend)
    assert divergence.kl == pytest.approx(np.sum(p * np.log(p / q)), rel=1e-12)
    assert divergence.squared_log_ratio == pytest.approx(np.sum(p * np.log(p / q) ** 2), rel=1e-12)
    assert score_divergence(p, q, probabilities=True).kl == pytest.approx(divergence.kl, rel=1e-12)
    assert score_divergence(reference + 100, backend - 7).kl == pytest.approx(divergence.kl, rel=1e-9)
    overlap = len(set(np.argsort(reference)[-5:]) & set(np.argsort(backend)[-5:])) / 5
    assert divergence.top_overlap == overlap


def test_a_small_divergence_is_not_lost_to_cancellation():
    reference = np.zeros(1000)
    backend = reference.copy()
    backend[0] = 1e-9
    exact = Fraction(1e-9) ** 2 / 2 * Fraction(1, 1000) * Fraction(999, 1000)  # to second order
    assert score_divergence(reference, backend).kl == pytest.approx(float(exact), rel=1e-6)


def test_entries_that_are_ruled_out():
    never = -np.inf
    masked = np.array([1.0, 2.0, never])
    assert score_divergence(masked, masked).kl == 0.0
    # the backend gives 1/(1 + e + e^2) to the entry that the reference rules out
    backend = np.array([1.0, 2.0, 0.0])
    assert score_divergence(masked, backend).kl == pytest.approx(log((1 + exp(1) + exp(2)) / (exp(1) + exp(2))))
    assert score_divergence(backend, masked).kl == np.inf
    assert score_divergence(backend, masked).squared_log_ratio == np.inf


@pytest.mark.parametrize("scores", [[np.nan, 1.0], [np.inf, 1.0], [-np.inf, -np.inf], []])
def test_a_reference_that_is_no_distribution_has_no_divergence(scores):
    assert score_divergence(np.array(scores), np.zeros(len(scores))) is None


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_backend_that_is_no_distribution_agrees_in_nothing(wrong):
    backend = np.arange(6.0)
    backend[0] = wrong
    divergence = score_divergence(np.arange(6.0), backend)
    assert np.isnan([divergence.kl, divergence.squared_log_ratio]).all()
    assert divergence.top_overlap == 0.0


def test_of_equal_scores_the_first_are_highest():
    reference = np.zeros(7)
    assert score_divergence(reference, reference).top_overlap == 1.0
    backend = np.array([0.0, 0, 0, 0, 0, 1, 1])
    assert score_divergence(reference, backend).top_overlap == pytest.approx(3 / 5)
    assert score_divergence(reference[:5], reference[:5]).top_overlap is None
