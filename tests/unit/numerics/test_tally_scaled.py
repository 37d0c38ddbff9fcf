"""Sums with an exponent of their own."""

import math

import pytest

from qdebug.numerics.tally import ScaledSum


def test_adding_at_one_exponent_is_plain_addition():
    total = ScaledSum()
    total.add(1.5)
    total.add(2.25)
    assert (total.mantissa, total.exponent) == (3.75, 0)
    assert total.mean(3) == 1.25


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_terms_of_different_exponents_are_aligned(order):
    terms = [(3.0, 0), (1.0, 4)]
    total = ScaledSum()
    for place in order:
        total.add(*terms[place])
    assert total.mean(1) == 19.0


def test_a_zero_term_changes_nothing_and_a_zero_sum_takes_any_exponent():
    total = ScaledSum()
    total.add(0.0, 1000)
    assert (total.mantissa, total.exponent) == (0.0, 0)
    total.add(1.0, -3000)
    total.add(0.0)
    assert (total.mantissa, total.exponent) == (1.0, -3000)
    assert ScaledSum().normalized() == (0.0, 0)


def test_merging_adds_and_leaves_the_other_alone():
    first, second = ScaledSum(1.0, 10), ScaledSum(1.0, 8)
    first.merge(second)
    assert first.mean(1) == 1280.0
    assert second.mean(1) == 256.0


@pytest.mark.parametrize("exponent", [0, 1, 2000, 2001, -2000, -2001])
def test_roots_and_ratios_do_not_leave_float64(exponent):
    total, other = ScaledSum(2.0, exponent), ScaledSum(0.5, exponent)
    assert total.root_ratio(other) == 2.0
    assert total.log10_ratio(other) == pytest.approx(math.log10(4))
    assert (
        ScaledSum(8.0, 2 * exponent).root_mean(2) == pytest.approx(2.0 * 2.0 ** min(exponent, 1022)) or exponent > 1022
    )
    assert total.at_exponent(exponent) == 2.0


def test_a_value_beyond_float64_is_infinite():
    assert ScaledSum(1.0, 5000).mean(1) == math.inf
    assert ScaledSum(-1.0, 5000).mean(1) == -math.inf
    assert ScaledSum(1.0, 5000).root_mean(1) == math.inf
    assert ScaledSum(1.0, 5000).root_ratio(ScaledSum(1.0, -5000)) == math.inf
    assert ScaledSum(1.0, -5000).mean(1) == 0.0
