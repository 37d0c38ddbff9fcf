"""Limits decide what is divergence and what may be missing."""

import math
from dataclasses import replace

import numpy as np
import pytest

from qdebug.analysis.alignment.pairs import Kind, Side, Unmatched
from qdebug.analysis.attribution.attribute import Attribution
from qdebug.analysis.results.limit_rules import LimitRule
from qdebug.analysis.results.limits import COARSE_SQNR, DEFAULT_MIN_SQNR, DERIVED_LSB, Limits, checked_limits
from qdebug.analysis.results.result import Status
from qdebug.errors import UsageError
from qdebug.model import Graph, MemoryRecording
from qdebug.numerics.stats import ErrorStats
from qdebug.session import DiffSession

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


def status(limits, **changes):
    return limits.judge(replace(STATS, **changes))[0]


def test_the_default_is_stated_and_applies_only_without_limits_of_the_user():
    assert Limits().to_dict() == {
        "source": "derived",
        "introduced_lsb": DERIVED_LSB,
        "reproduced_is_within": True,
        "min_sqnr_of_range": DEFAULT_MIN_SQNR,
        "min_sqnr_of_scale": COARSE_SQNR,
        "min_sqnr_without_replay": DEFAULT_MIN_SQNR,
        "introduced_of_integers": 0,
        "allow": {"partial": False, "unfaithful": False, "uncompared": []},
    }
    assert Limits(max_lsb=1).to_dict() == {
        "source": "given",
        "max_lsb": 1,
        "allow": {"partial": False, "unfaithful": False, "uncompared": []},
    }


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
    assert Limits().judge(replace(STATS, sqnr_db=8.25, max_lsb=2.0))[1] == "SQNR 8.25 dB is below 20 dB"
    assert Limits(max_lsb=1).judge(STATS)[1] == "a difference of 1.5 LSB is above 1 LSB"


def lost(*names):
    return tuple(Unmatched(side=Side.BACKEND, tensor=n, kind=Kind.LOST, reason="") for n in names)


def test_lost_tensors_are_accepted_by_number_or_by_pattern():
    entries = lost("a/1", "a/2", "b")
    assert Limits().not_allowed(entries) == entries
    assert Limits(allow_uncompared=3).not_allowed(entries) == ()
    assert Limits(allow_uncompared=2).not_allowed(entries) == entries
    assert [e.tensor for e in Limits(allow_uncompared=("a/*",)).not_allowed(entries)] == ["b"]


def test_without_limits_of_the_user_a_quantized_node_is_judged_by_what_it_introduces():
    far_off = replace(STATS, sqnr_db=3.0)
    clean = Attribution(introduced=STATS, in_range=replace(STATS, max_lsb=0.5))
    assert Limits().judge(far_off, clean) == (Status.WITHIN, None)
    wrong = Attribution(introduced=STATS, in_range=replace(STATS, max_lsb=7.0))
    status_, reason = Limits().judge(replace(STATS, sqnr_db=60.0), wrong)
    assert status_ is Status.DIVERGED
    assert reason == "it introduces 7 LSB, more than the 1.5 of any rounding"


def test_without_limits_of_the_user_a_float_node_is_judged_by_the_rounding_of_its_sums():
    small = replace(STATS, rmse=1e-6, count=100)
    assert Limits().judge(STATS, Attribution(in_range=small, allowed=1.1e-5))[0] is Status.WITHIN
    assert Limits().judge(STATS, Attribution(in_range=small, allowed=0.9e-5))[0] is Status.DIVERGED
    assert Limits().judge(STATS, Attribution(in_range=small, allowed=0.0))[0] is Status.DIVERGED


def test_limits_of_the_user_judge_the_whole_error_whatever_a_replay_says():
    wrong = Attribution(introduced=STATS, in_range=replace(STATS, max_lsb=7.0))
    assert Limits(min_sqnr=30).judge(STATS, wrong)[0] is Status.WITHIN


def test_an_equal_tensor_is_identical_whatever_a_replay_says():
    wrong = Attribution(introduced=STATS, in_range=replace(STATS, max_lsb=7.0))
    assert Limits().judge(replace(STATS, mismatches=0), wrong)[0] is Status.IDENTICAL


@pytest.mark.parametrize("make", [Limits, LimitRule])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("min_sqnr", float("nan")),
        ("max_lsb", "2"),
        ("max_lsb", True),
        ("max_lsb", -1),
        ("atol", -1e-9),
        ("rtol", [1]),
        ("max_saturation", 1.5),
    ],
)
def test_a_limit_that_would_let_everything_pass_is_none(make, name, value):
    with pytest.raises(UsageError, match=f"The limit {name} is "):
        make(**{name: value})


def test_numbers_of_any_kind_are_limits():
    assert Limits(max_lsb=np.float32(2), min_sqnr=-math.inf, atol=np.int64(1), max_saturation=1).given
    assert LimitRule(max_lsb=math.inf).bounds["max_lsb"] == math.inf


@pytest.mark.parametrize("limits", [{"max_lsb": 1}, "limits.toml", 1.5, [Limits()]])
def test_what_is_no_limits_is_refused_by_its_type(limits):
    with pytest.raises(UsageError, match=f"limits is a {type(limits).__name__} and no Limits") as refused:
        checked_limits(limits)
    assert "qdebug.Limits(" in refused.value.hint
    assert checked_limits(None) == Limits()
    assert checked_limits(Limits(max_lsb=2)) == Limits(max_lsb=2)


def test_diff_refuses_limits_of_another_type():
    empty = MemoryRecording.single(Graph([], inputs=["x"], outputs=["x"]), {"x": np.zeros(2, np.float32)})
    with pytest.raises(UsageError, match="limits is a dict"):
        DiffSession(empty, empty, limits={"max_lsb": 1})


@pytest.mark.parametrize(
    ("clipped", "coded", "before", "expected", "said"),
    [
        (4.0, 60.0, 0.01, Status.DIVERGED, "saturation leaves an SQNR of 4 dB"),
        (4.0, 60.0, 0.3, Status.WITHIN, "saturation leaves an SQNR of 4 dB of the reference's values, but no more"),
        (60.0, 5.0, 0.01, Status.DIVERGED, "rounding to its codes leaves an SQNR of 5 dB"),
        (4.0, 5.0, 0.3, Status.WITHIN, "saturation leaves"),
        (60.0, 60.0, 0.3, Status.WITHIN, None),
    ],
)
def test_a_range_that_loses_no_more_than_was_lost_before_is_within_and_says_so(clipped, coded, before, expected, said):
    fine = replace(STATS, max_lsb=0.5)
    attribution = Attribution(
        in_range=fine,
        clipped=replace(fine, sqnr_db=clipped),
        coded=replace(fine, sqnr_db=coded),
        propagated=replace(fine, rmse=before),
    )
    found, why = Limits().judge(STATS, attribution, reproduced=True)
    assert found is expected
    assert why is None if said is None else why.startswith(said)
