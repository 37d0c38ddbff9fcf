"""Limits decide what is divergence and what may be missing."""

import math

import numpy as np
import pytest

from qdebug.compare.align.pairs import Side, Unmatched, UnmatchedKind
from qdebug.compare.result.limits import LimitRule, Limits, checked_limits
from qdebug.errors import UsageError
from qdebug.model import Graph, MemoryRecording
from qdebug.model.thresholds.verdict import CODES_MIN_SQNR, DEFAULT_MIN_SQNR, DERIVED_LSB, OUTPUT_MIN_SQNR
from qdebug.session import DiffSession


def test_the_default_is_stated_and_applies_only_without_limits_of_the_user():
    assert Limits().to_dict() == {
        "source": "derived",
        "introduced_lsb": DERIVED_LSB,
        "reproduced_is_within": True,
        "min_sqnr_of_range": DEFAULT_MIN_SQNR,
        "min_sqnr_of_scale": CODES_MIN_SQNR,
        "min_sqnr_without_replay": DEFAULT_MIN_SQNR,
        "introduced_of_integers": 0,
        "min_output_sqnr": OUTPUT_MIN_SQNR,
        "allow": {"partial": False, "unfaithful": False, "different_inputs": False, "uncompared": []},
    }
    assert Limits(max_lsb=1).to_dict() == {
        "source": "given",
        "max_lsb": 1,
        "allow": {"partial": False, "unfaithful": False, "different_inputs": False, "uncompared": []},
    }


def lost(*names):
    return tuple(Unmatched(side=Side.BACKEND, tensor=n, kind=UnmatchedKind.LOST, reason="") for n in names)


def test_lost_tensors_are_accepted_by_number_or_by_pattern():
    entries = lost("a/1", "a/2", "b")
    assert Limits().not_allowed(entries) == entries
    assert Limits(allow_uncompared=3).not_allowed(entries) == ()
    assert Limits(allow_uncompared=2).not_allowed(entries) == entries
    assert [e.tensor for e in Limits(allow_uncompared=("a/*",)).not_allowed(entries)] == ["b"]


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
    with pytest.raises(UsageError, match=f"The limit {name} must be "):
        make(**{name: value})


def test_numbers_of_any_kind_are_limits():
    assert Limits(max_lsb=np.float32(2), min_sqnr=-math.inf, atol=np.int64(1), max_saturation=1).given
    assert LimitRule(max_lsb=math.inf).bounds["max_lsb"] == math.inf


@pytest.mark.parametrize("limits", [{"max_lsb": 1}, "limits.toml", 1.5, [Limits()]])
def test_what_is_no_limits_is_refused_by_its_type(limits):
    with pytest.raises(
        UsageError, match=f"limits must be a qdebug.Limits, but is a {type(limits).__name__}"
    ) as refused:
        checked_limits(limits)
    assert "qdebug.Limits(" in refused.value.hint
    assert checked_limits(None) == Limits()
    assert checked_limits(Limits(max_lsb=2)) == Limits(max_lsb=2)


def test_diff_refuses_limits_of_another_type():
    empty = MemoryRecording.single(Graph([], inputs=["x"], outputs=["x"]), {"x": np.zeros(2, np.float32)})
    with pytest.raises(UsageError, match="but is a dict"):
        DiffSession(empty, empty, limits={"max_lsb": 1})
