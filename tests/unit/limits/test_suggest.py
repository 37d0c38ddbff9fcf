"""Suggested limits: every run that they were made from keeps them, and the file says what it rests on."""

import math

import pytest

from qdebug.compare.evidence.measured import Error
from qdebug.compare.policy import judge_error
from qdebug.compare.result.limits import RuleFinder
from qdebug.compare.result.result import Status
from qdebug.errors import LimitsError
from qdebug.limits.limits_file import load_limits
from qdebug.limits.suggest import suggest_limits


@pytest.fixture
def suggest(made, tmp_path):
    def suggest(*runs):
        text = suggest_limits({f"run{number}.h5": made.result(nodes) for number, nodes in enumerate(runs)})
        path = tmp_path / "limits.toml"
        path.write_text(text, encoding="utf-8")
        return text, load_limits(path)

    return suggest


def test_the_worst_of_all_runs_counts_and_the_margin_is_stated(made, suggest):
    first = [made.node(0, metrics=made.stats(max_lsb=2.0, sqnr_db=40.0))]
    second = [made.node(0, metrics=made.stats(max_lsb=1.0, sqnr_db=30.05))]
    text, limits = suggest(first, second)
    (rule,) = limits.rules
    assert (rule.tensor, rule.max_lsb, rule.min_sqnr) == ("conv0_q", 3.0, 27.0)
    assert "2 run(s), 4 sample(s)" in text
    assert '"run0.h5"' in text
    assert "Margin: SQNR 3 dB" in text


def test_every_run_keeps_them(made, suggest):
    runs = [
        [made.node(i, metrics=made.stats(max_lsb=float(i), sqnr_db=50.0 / (i + run + 1))) for i in range(4)]
        for run in range(3)
    ]
    _, limits = suggest(*runs)
    finder = RuleFinder(limits.rules)
    for node in (node for run in runs for node in run):
        assert judge_error(Error(stats=node.metrics, limits=limits.under(finder.find(node))))[0] is Status.WITHIN


def test_what_was_identical_or_not_finite_gets_no_limit_and_is_said(made, suggest):
    same = made.stats(mismatches=0, max_lsb=0.0, sqnr_db=math.inf)
    wild = made.node(1, Status.NONFINITE, metrics=made.stats(nonfinite=3, sqnr_db=math.nan))
    text, limits = suggest([made.node(0, metrics=same), wild, made.node(2, Status.INCOMPARABLE)])
    assert limits.rules == ()
    assert "1 tensor(s) were identical" in text
    assert 'not comparable: "conv1_q"' in text
    assert 'not comparable: "conv2_q"' in text
    assert "One run says little" in text


def test_a_reference_of_zeros_gets_an_absolute_limit(made, suggest):
    zeros = made.stats(sqnr_db=-math.inf, max_lsb=None, max_abs=0.5)
    _, limits = suggest([made.node(0, metrics=zeros, quant=None)])
    assert limits.rules[0].atol == 0.75


@pytest.mark.parametrize("name", ["a[0]", "b*", "c?", 'd"\n[default]', "e\x1b[0m"])
def test_a_name_stands_for_itself_alone(name, made, suggest):
    _, limits = suggest([made.node(0, tensor=name)])
    finder = RuleFinder(limits.rules)
    assert finder.find(made.node(0, tensor=name)) is not None
    assert finder.find(made.node(0, tensor=name + "x")) is None


def test_nothing_compared_is_refused(suggest):
    with pytest.raises(LimitsError, match="No tensor was compared"):
        suggest([])


def test_a_run_that_breaks_the_limits_in_force_is_named(made):
    bad = made.result([made.node(0, Status.DIVERGED, metrics=made.stats())])
    text = suggest_limits({"good.h5": made.result([made.node(0)]), "bad.h5": bad})
    assert '# Check "bad.h5": it exceeds the limits in force, first at "conv0".' in text
    assert 'Check "good.h5":' not in text


def test_half_a_character_in_a_name_costs_no_limit(made, tmp_path):
    nodes = [made.node(0, tensor="half \ud800[*]"), made.node(1, Status.INCOMPARABLE, tensor="\udfff")]
    text = suggest_limits({"file\udcff.h5": made.result(nodes)})
    (tmp_path / "limits.toml").write_text(text, encoding="utf-8")
    (rule,) = load_limits(tmp_path / "limits.toml").rules
    assert RuleFinder([rule]).find(nodes[0]) is rule
