"""What follows from findings: limits that are given or derived decide, and what was found stays."""

from dataclasses import replace

import pytest

from qdebug.compare.attribute.attribute import Attribution
from qdebug.compare.checks.codes import saturation
from qdebug.compare.evidence.measured import Error
from qdebug.compare.policy import judge_error
from qdebug.compare.result.limits import Limits
from qdebug.compare.result.result import Status
from qdebug.numerics.stats import ErrorStats, Rails

STATS = ErrorStats(
    count=10,
    max_abs=0.3,
    mean_abs=0.1,
    rmse=0.1,
    max_rel=0.5,
    zero_refs=0,
    rel_l2=0.01,
    sqnr_db=40.0,
    cosine=0.99,
    max_lsb=1.5,
    mismatches=4,
    nonfinite=0,
    matched_nonfinite=0,
    worst_index=(0,),
    worst_sample=0,
    reference_min=-1.0,
    reference_max=1.0,
    backend_min=-1.0,
    backend_max=1.0,
)


def judged(limits, stats, attribution=None, *, reproduced=False):
    return judge_error(Error(stats=stats, limits=limits, attribution=attribution, excused=reproduced))


def status(limits, **changes):
    return judge_error(Error(stats=replace(STATS, **changes), limits=limits))[0]


@pytest.mark.parametrize(
    ("limits", "changes", "expected"),
    [
        (Limits(), {}, Status.WITHIN),
        (Limits(), {"sqnr_db": 19.9, "max_lsb": None}, Status.DIVERGED),
        (Limits(), {"sqnr_db": 19.9, "max_lsb": 1.6}, Status.DIVERGED),
        (Limits(), {"sqnr_db": 10.0}, Status.WITHIN),  # few codes are in use, and none is off by two
        (Limits(), {"sqnr_db": 9.9}, Status.DIVERGED),
        (Limits(min_sqnr=20), {"sqnr_db": 19.9}, Status.DIVERGED),
        (Limits(), {"sqnr_db": 20.0, "max_lsb": 9.0}, Status.WITHIN),
        (Limits(), {"sqnr_db": float("nan")}, Status.DIVERGED),
        (Limits(), {"sqnr_db": -float("inf")}, Status.DIVERGED),
        (Limits(), {"mismatches": 0, "sqnr_db": float("inf")}, Status.IDENTICAL),
        (Limits(), {"nonfinite": 1, "sqnr_db": 90.0}, Status.NONFINITE),
        (Limits(min_sqnr=50), {}, Status.DIVERGED),
        (Limits(max_lsb=1), {"sqnr_db": 1.0}, Status.DIVERGED),
        (Limits(max_lsb=2), {"sqnr_db": 1.0}, Status.WITHIN),
        (Limits(max_lsb=1), {"max_lsb": None}, Status.WITHIN),
        (Limits(max_lsb=1), {"max_lsb": float("nan")}, Status.DIVERGED),
        (Limits(atol=0.1), {"beyond_tolerance": 1}, Status.DIVERGED),
        (Limits(rtol=0.1), {"beyond_tolerance": 0}, Status.WITHIN),
        (Limits(min_sqnr=10, max_lsb=1), {}, Status.DIVERGED),
    ],
)
def test_judging(limits, changes, expected):
    assert status(limits, **changes) is expected


def test_a_broken_limit_is_named_with_both_numbers():
    assert judged(Limits(), replace(STATS, sqnr_db=8.25, max_lsb=2.0))[1] == "SQNR 8.25 dB is below 20 dB"
    assert judged(Limits(max_lsb=1), STATS)[1] == "the largest error, 1.5 LSB, is above the limit of 1 LSB"


def test_without_limits_of_the_user_a_quantized_node_is_judged_by_what_it_introduces():
    far_off = replace(STATS, sqnr_db=3.0)
    clean = Attribution(introduced=STATS, arithmetic_unsaturated=replace(STATS, max_lsb=0.5))
    assert judged(Limits(), far_off, clean) == (Status.WITHIN, None)
    wrong = Attribution(introduced=STATS, arithmetic_unsaturated=replace(STATS, max_lsb=7.0))
    status_, reason = judged(Limits(), replace(STATS, sqnr_db=60.0), wrong)
    assert status_ is Status.DIVERGED
    assert reason == "its arithmetic error is 7 LSB; rounding explains at most 1.5 LSB"


def test_without_limits_of_the_user_a_float_node_is_judged_by_the_rounding_of_its_sums():
    small = replace(STATS, rmse=1e-6, count=100)
    assert judged(Limits(), STATS, Attribution(arithmetic_unsaturated=small, allowed=1.1e-5))[0] is Status.WITHIN
    status_, reason = judged(Limits(), STATS, Attribution(arithmetic_unsaturated=small, allowed=0.8e-5))
    assert status_ is Status.DIVERGED
    assert reason == "its arithmetic error is 1.25 times the rounding bound"
    assert judged(Limits(), STATS, Attribution(arithmetic_unsaturated=small, allowed=0.0))[0] is Status.DIVERGED


def test_limits_of_the_user_judge_the_whole_error_whatever_a_replay_says():
    wrong = Attribution(introduced=STATS, arithmetic_unsaturated=replace(STATS, max_lsb=7.0))
    assert judged(Limits(min_sqnr=30), STATS, wrong)[0] is Status.WITHIN


def test_an_equal_tensor_is_identical_whatever_a_replay_says():
    wrong = Attribution(introduced=STATS, arithmetic_unsaturated=replace(STATS, max_lsb=7.0))
    assert judged(Limits(), replace(STATS, mismatches=0), wrong)[0] is Status.IDENTICAL


@pytest.mark.parametrize(
    ("clipped", "coded", "before", "said"),
    [
        (
            4.0,
            60.0,
            0.01,
            "clipping the reference's values to its code range leaves an SQNR of 4 dB, below 20 dB; the range",
        ),
        (
            4.0,
            60.0,
            0.3,
            "clipping the reference's values to its code range leaves an SQNR of 4 dB, below 20 dB; the range",
        ),
        (
            60.0,
            5.0,
            0.01,
            "rounding the reference's values to its codes leaves an SQNR of 5 dB, below 10 dB; the",
        ),
        (4.0, 5.0, 0.3, "clipping the reference's values"),
        (60.0, 60.0, 0.3, None),
    ],
)
def test_what_codes_lose_is_said_of_a_tensor_within_its_limit(clipped, coded, before, said):
    fine = replace(STATS, max_lsb=0.5)
    attribution = Attribution(
        arithmetic_unsaturated=fine,
        saturation_error=replace(fine, sqnr_db=clipped),
        quantization_error=replace(fine, sqnr_db=coded),
        propagated=replace(fine, rmse=before),
    )
    found, why = judged(Limits(), STATS, attribution, reproduced=True)
    assert found is Status.WITHIN
    assert why is None if said is None else why.startswith(said)


def test_the_limit_of_saturation_holds_for_clipped_values_alone():
    rails = Rails(at_qmin=30, at_qmax=20, clipped_low=1, clipped_high=3, floor=0, total=100)

    def found(most, counts=rails):
        return saturation(Error(stats=STATS, limits=Limits(max_saturation=most), rails=counts))

    assert found(0.04) is None
    assert found(0.03).sentence == "its code range clips 0.04 of the reference's values, more than the limit of 0.03"
    assert (found(0.03).amount, found(0.03).limit, found(0.03).unit) == (0.04, 0.03, "of all values")
    assert found(0, None) is None
    assert found(None) is None
