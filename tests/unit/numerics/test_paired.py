"""Intervals of proportions against published values, and against a search for the likeliest parameters."""

import numpy as np
import pytest

from qdebug.numerics.paired import paired_loss, proportion, samples_needed

Z = 1.959963984540054


def likeliest_statistic(lost, won, count, loss):
    """Return the score statistic of a loss, with the nuisance parameter that makes the counts likeliest, searched."""
    low, high = max(0.0, -loss), (1 - loss) / 2
    for _ in range(6):  # a grid, refined six times
        shares = np.linspace(low, high, 2001)[1:-1]
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = (lost, shares + loss), (won, shares), (count - lost - won, 1 - 2 * shares - loss)
            logs = sum(np.where(many > 0, many * np.log(share), 0.0) for many, share in terms)
        at = int(np.nanargmax(logs))
        low, high = shares[max(at - 1, 0)], shares[min(at + 1, len(shares) - 1)]
    share = shares[at]
    return (lost - won - count * loss) / np.sqrt(count * (2 * share + loss * (1 - loss)))


@pytest.mark.parametrize(("lost", "won", "count"), [(6, 3, 397), (1, 7, 21), (40, 10, 400), (3, 3, 50)])
def test_the_ends_are_where_the_score_test_rejects(lost, won, count):
    low, high = paired_loss(lost, won, count)
    assert likeliest_statistic(lost, won, count, low) == pytest.approx(Z, abs=1e-3)
    assert likeliest_statistic(lost, won, count, high) == pytest.approx(-Z, abs=1e-3)


def test_a_published_interval_is_found_again():
    # M. Fagerland, S. Lydersen, P. Laake, "Recommended tests and confidence intervals for paired binomial proportions",
    # Statistics in Medicine 33 (2014), airway hyper-responsiveness: Tango's interval
    assert paired_loss(1, 7, 21) == pytest.approx((-0.517, -0.026), abs=5e-4)


def test_it_turns_with_its_sides_and_never_leaves_its_bounds():
    for lost, won, count in [(0, 0, 1), (1, 0, 1), (5, 0, 5), (0, 9, 100), (0, 0, 397)]:
        low, high = paired_loss(lost, won, count)
        assert -1 <= low <= (lost - won) / count <= high <= 1
        assert paired_loss(won, lost, count) == pytest.approx((-high, -low), abs=1e-12)


def test_so_many_samples_decide_and_one_fewer_does_not():
    for lost, won, count, margin in [(0, 0, 397, 0.005), (6, 3, 397, 0.005), (2, 2, 50, 0.01)]:
        needed = samples_needed(lost, won, count, margin)
        open_ = []
        for many in (needed - 1, needed):
            low, high = paired_loss(lost * many / count, won * many / count, many)
            open_.append(low <= margin < high)
        assert open_ == [True, False]
    assert samples_needed(2, 0, 400, 0.005) is None


def test_a_proportion_has_its_published_interval():
    # R. Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in Medicine 17 (1998), table I
    assert proportion(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert proportion(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
