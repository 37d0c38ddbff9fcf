import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sweeps import drawn

from qdebug.compare.measure.pair_values import OpenPair
from qdebug.numerics.checkpoint import calling_at_checkpoints
from qdebug.tui.elements.values import BINS, value_facts


def facts_of(reference, backend):
    return value_facts(OpenPair(reference, backend))


@drawn(60)
@given(arrays(np.float32, st.integers(0, 300), elements=st.floats(-1e3, 1e3, width=32)))
def test_moments_are_those_of_numpy(values):
    side = facts_of(values, values).reference
    if not len(values):
        assert (side.low, side.high, side.mean, side.std) == (None,) * 4
        return
    wide = values.astype(np.float64)
    assert (side.low, side.high) == (wide.min(), wide.max())
    assert side.mean == pytest.approx(wide.mean(), rel=1e-9, abs=1e-9)
    assert side.std == pytest.approx(wide.std(), rel=1e-6, abs=1e-9)
    assert side.counts.sum() == len(values)


def test_blocks_make_no_difference():
    values = np.random.default_rng(7).normal(1e4, 1e-2, 200_000)
    side = facts_of(values, values).backend
    assert side.mean == pytest.approx(values.mean(), rel=1e-12)
    assert side.std == pytest.approx(values.std(), rel=1e-6)
    assert side.counts.sum() == len(values)


def test_both_sides_share_one_range():
    facts = facts_of(np.array([0.0, 1.0]), np.array([[4.0], [8.0]]))
    assert (facts.low, facts.high) == (0.0, 8.0)
    assert facts.reference.counts[BINS // 2 :].sum() == 0
    assert facts.backend.counts[: BINS // 2].sum() == 0
    assert facts.shape == (2, 1)


def test_nan_and_infinity_are_counted_apart():
    facts = facts_of(np.array([np.nan, 1.0, np.inf, -np.inf]), np.array([2.0, 2.0, 2.0, 2.0]))
    assert (facts.reference.nan, facts.reference.infinite) == (1, 2)
    assert (facts.reference.low, facts.reference.high) == (1.0, 1.0)
    assert facts.reference.counts.sum() == 1


def test_one_value_everywhere_has_a_histogram():
    facts = facts_of(np.full(5, 3.0), np.full(5, 3.0))
    assert facts.reference.counts.sum() == 5
    assert facts.reference.std == 0


@pytest.mark.parametrize(
    "values",
    [[1e300, 1e300], [-(2.0**60)] * 3, [-1e308, 1e308, 0.0], [1.7e308] * 2, [0.0, 5e-324], [1e-310, 2e-310], [5e-324]],
)
def test_values_at_the_ends_of_what_there_is_have_a_histogram(values):
    facts = facts_of(np.array(values), np.array(values))
    assert facts.reference.counts.sum() == len(values)
    assert np.count_nonzero(facts.reference.counts) == len(set(values))
    assert (facts.reference.low, facts.reference.high) == (min(values), max(values))
    assert min(values) <= facts.reference.mean <= max(values)
    assert facts.reference.std <= max(np.abs(values))


def test_facts_of_a_huge_tensor_can_be_given_up():
    class GivenUpError(Exception):
        pass

    left = [5]

    def ask():
        left[0] -= 1
        if not left[0]:
            raise GivenUpError

    values = np.zeros(1 << 18, np.float32)
    with calling_at_checkpoints(ask), pytest.raises(GivenUpError):
        facts_of(values, values)
    left[0] = -1
    with calling_at_checkpoints(ask):
        assert facts_of(values, values).high == 0
    assert left[0] < -6, "moments and histograms"
