"""Merging of counts, extremes, sums and the worst element."""

import math

import pytest

from qdebug.numerics.tally import Tally


def tally_with(*, difference=None, flat=0, sample=0, nonfinite_at=None):
    tally = Tally(sample=sample, shape=(2, 3))
    if difference is not None:
        tally.finite = tally.count = 1
        tally.update_max_abs(difference, flat)
    if nonfinite_at is not None:
        tally.update_first_nonfinite(nonfinite_at)
    return tally


def test_the_larger_difference_wins_and_equals_keep_the_first():
    tally = tally_with(difference=1.0, flat=1)
    tally.merge(tally_with(difference=2.0, flat=5, sample=3))
    tally.merge(tally_with(difference=2.0, flat=0, sample=4))
    stats = tally.stats()
    assert (stats.max_abs, stats.worst_index, stats.worst_sample, stats.count) == (2.0, (1, 2), 3, 3)


def test_a_nonfinite_disagreement_wins_over_numbers_from_either_side():
    for first, second in ((1, None), (None, 1)):
        tally = tally_with(difference=9.0, nonfinite_at=first)
        tally.merge(tally_with(difference=99.0, flat=2, nonfinite_at=second))
        assert tally.stats().worst_index == (0, 1)
        assert tally.stats().max_abs == 99.0


def test_merging_with_nothing_changes_nothing():
    tally = tally_with(difference=1.0, flat=4)
    before = tally.stats()
    tally.merge(Tally())
    assert tally.stats() == before
    empty = Tally()
    empty.merge(tally)
    assert empty.stats() == before


def test_maxima_that_one_side_lacks_are_taken_from_the_other():
    tally, other = Tally(), Tally()
    other.update_max_rel(0.5)
    other.update_max_lsb(2.0)
    tally.update_max_lsb(3.0)
    tally.merge(other)
    assert (tally.max_rel, tally.max_lsb, tally.max_abs) == (0.5, 3.0, None)


def with_sums(a2, b2, error2, product, exponent=0):
    tally = Tally(finite=1, count=1)
    tally.reference_squares.add(a2, exponent)
    tally.backend_squares.add(b2, exponent)
    tally.error_squares.add(error2, exponent)
    tally.products.add(product, exponent)
    return tally.stats()


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 1000, 1001, -1000, -1003])
def test_ratios_do_not_depend_on_the_exponent_of_the_sums(exponent):
    stats = with_sums(1.0, 1.0, 1e-6, 1.0 - 5e-7, exponent)
    assert 1.0 - stats.cosine == pytest.approx(5e-7, rel=1e-9)
    assert stats.rel_l2 == pytest.approx(1e-3)
    assert stats.sqnr_db == pytest.approx(60.0)
    opposite = with_sums(1.0, 4.0, 9.0, -2.0, exponent)
    assert opposite.cosine == -1.0


def test_norms_that_differ_by_much_take_the_angle_from_the_products():
    stats = with_sums(1.0, 1e20, 1e20, 1e10)
    assert stats.cosine == pytest.approx(1.0)
    assert not math.isnan(with_sums(1e-30, 1e30, 1e30, 0.5).cosine)
