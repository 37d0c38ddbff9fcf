"""Results as they are kept: the same JSON comes back, and columns that are not theirs are refused."""

import math
from dataclasses import replace

import numpy as np
import pytest

from qdebug.compare.align.pairs import Match, Pair, Transform
from qdebug.compare.result.kept import kept_columns, kept_results, result_facts
from qdebug.compare.result.limits import Limits
from qdebug.compare.result.result import OutputRanking, Status

OUTPUT = OutputRanking(
    tensor="y",
    entries=3,
    samples=0,
    unranked=2,
    top1_agreement=None,
    top5_agreement=None,
    tied=0,
    worst_rank=None,
    worst_sample=None,
)


@pytest.fixture
def nodes(made):
    return [
        made.node(0, metrics=made.stats(sqnr_db=math.inf, max_lsb=None), introduced=made.stats(cosine=math.nan)),
        made.node(1, Status.DIVERGED, node="\u03b1 \udcff", declared="another stride", note="one sample is missing"),
        made.node(2, Status.INCOMPARABLE, quant=None, saturation=None, samples=(), match=Match.SIGNATURE),
    ]


def test_the_same_json_comes_back(nodes, planned):
    plan = [planned(node) for node in nodes]
    back, outputs = kept_results(kept_columns(nodes, [OUTPUT]), plan)
    assert [repr(node.to_dict()) for node in back] == [repr(node.to_dict()) for node in nodes]
    assert back[0].quant is plan[0].quant
    assert outputs == (OUTPUT,)


def test_nothing_at_all_can_be_kept():
    assert kept_results(kept_columns([], ()), []) == ([], ())


def test_too_few_and_too_many_results_are_refused(nodes, planned):
    plan = [planned(node) for node in nodes]
    for wrong in (plan[:2], [*plan, plan[0]]):
        with pytest.raises(ValueError, match="column"):
            kept_results(kept_columns(nodes, ()), wrong)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("outputs", np.array([-1], np.int64)),
        ("outputs", np.array([2**40], np.int64)),
        ("outputs", np.array([1.0])),
        ("outputs", np.zeros(0, np.int64)),
        ("somewhere/else", np.zeros(1)),
        ("nodes/surplus", np.zeros(1)),
        ("nodes/status", np.zeros(3)),
    ],
)
def test_columns_that_do_not_fit_are_refused(nodes, name, values, planned):
    columns = kept_columns(nodes, ()) | {name: values}
    with pytest.raises(ValueError, match=r"column|outputs"):
        kept_results(columns, [planned(node) for node in nodes])


def test_facts_tell_apart_what_changes_results_and_nothing_else():
    pair = Pair(reference="a", backend="b", match=Match.EXACT, reason="one name")
    known = list(result_facts([pair], Limits()))
    assert list(result_facts([replace(pair, reason="another clause")], Limits(allow_partial=True))) == known
    for limits in (Limits(min_sqnr=20.0), Limits(max_lsb=1.0), Limits(atol=0.0), Limits(rtol=0.0)):
        assert list(result_facts([pair], limits)) != known
    assert list(result_facts([replace(pair, backend_view=Transform(clamp_low=0.0))], Limits())) != known
    assert list(result_facts([replace(pair, reference="c")], Limits())) != known
    assert list(result_facts([pair, pair], Limits())) != known
