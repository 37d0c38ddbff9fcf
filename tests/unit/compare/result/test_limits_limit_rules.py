"""Rules: which one holds for a tensor, and what an acknowledgement changes."""

import pickle
from dataclasses import replace
from types import SimpleNamespace

import pytest

from qdebug.compare.policy import shortcomings, verdict
from qdebug.compare.result.kept import result_facts
from qdebug.compare.result.limits import Acknowledgement, LimitRule, Limits, RuleFinder, unused_entries
from qdebug.compare.result.node_result import breaks_limit, is_beyond
from qdebug.compare.result.result import Status
from qdebug.compare.result.result_table import ResultTable

HERE = SimpleNamespace(tensor="head/conv_q", node="head/conv", op="Conv")


@pytest.mark.parametrize(
    ("rule", "fits"),
    [
        ({"tensor": "head/*"}, True),
        ({"tensor": "head/conv_q"}, True),
        ({"tensor": "head/conv"}, False),
        ({"node": "head/conv"}, True),
        ({"node": "head/conv_?"}, False),
        ({"tensor": "HEAD/*"}, False),
        ({"op": "Conv"}, True),
        ({"op": "*on*"}, True),
        ({"op": "Gemm"}, False),
        ({"tensor": "head/*", "op": "Gemm"}, False),
        ({"tensor": "head/conv_q", "op": "Gemm"}, False),
        ({"tensor": "head/conv_q", "node": "h*", "op": "Conv"}, True),
    ],
)
def test_a_rule_fits_by_tensor_node_and_operator(rule, fits):
    assert (RuleFinder([LimitRule(max_lsb=1, **rule)]).find(HERE) is not None) == fits


def test_the_last_rule_that_fits_holds_whether_it_is_a_name_or_a_pattern():
    exact, wide = LimitRule(tensor="head/conv_q", max_lsb=1), LimitRule(tensor="*", max_lsb=2)
    assert RuleFinder([exact, wide]).find(HERE) is wide
    assert RuleFinder([wide, exact]).find(HERE) is exact


def test_a_bracket_in_a_name_is_a_pattern_and_can_be_escaped():
    bracket = SimpleNamespace(tensor="a[0]", node="", op="")
    assert RuleFinder([LimitRule(tensor="a[0]", max_lsb=1)]).find(bracket) is None
    assert RuleFinder([LimitRule(tensor="a[[]0]", max_lsb=1)]).find(bracket) is not None


def test_a_rule_replaces_all_limits_and_leaves_what_may_be_missing():
    limits = Limits(min_sqnr=30, max_lsb=1, allow_partial=True).under(LimitRule(op="Softmax", atol=0.1))
    assert (limits.min_sqnr, limits.max_lsb, limits.atol, limits.allow_partial) == (None, None, 0.1, True)
    assert Limits(max_lsb=1).under(None) == Limits(max_lsb=1)


def test_rules_are_part_of_what_kept_results_depend_on_and_acknowledgements_are_not():
    plain = list(result_facts((), Limits()))
    assert list(result_facts((), Limits(rules=(LimitRule(op="Conv", max_lsb=1),)))) != plain
    assert list(result_facts((), Limits(max_saturation=0.1))) != plain
    accepted = Limits(acknowledged=(Acknowledgement(node="a", reason="b"),), file="x.toml", allow_partial=True)
    assert list(result_facts((), accepted)) == plain


def test_limits_travel_to_worker_processes():
    limits = Limits(rules=(LimitRule(op="Conv", max_lsb=1),), acknowledged=(Acknowledgement(node="a", reason="b"),))
    assert pickle.loads(pickle.dumps(limits)) == limits  # noqa: S301  made here


def test_of_several_acknowledgements_the_last_holds():
    old, new = Acknowledgement(node="conv", reason="old"), Acknowledgement(node="conv", reason="new")
    assert Limits(acknowledged=(old, new)).acknowledgement("conv") is new
    assert Limits(acknowledged=(old,)).acknowledgement("conv2") is None


ACCEPTED = Acknowledgement(node="conv1", reason="known")
EXPIRED = Acknowledgement(node="conv1", reason="known", expires="2020-01-01", expired=True)


def test_an_acknowledged_node_stays_diverged_and_counts_for_nothing(made):
    nodes = [made.node(0), made.node(1, Status.DIVERGED, acknowledged=ACCEPTED)]
    found = verdict(ResultTable(nodes), ())
    assert (found.status, found.first_divergence) == (Status.WITHIN, None)
    assert "1 of 2 compared tensors is within the limit." in found.sentence
    assert "1 tensor beyond the limit is acknowledged (the first: 'conv1_q')." in found.sentence
    assert breaks_limit(nodes[1])
    assert nodes[1].to_dict()["status"] == "diverged"
    assert nodes[1].to_dict()["acknowledged"] == {"reason": "known", "expires": None, "expired": False}


def test_an_expired_acknowledgement_counts_and_is_named(made):
    node = made.node(1, Status.DIVERGED, acknowledged=EXPIRED)
    found = verdict(ResultTable([node]), ())
    assert is_beyond(node)
    assert found.status is Status.DIVERGED
    assert "The acknowledgement of 'conv1_q' expired on 2020-01-01." in found.sentence


def test_an_acknowledged_node_that_is_fine_is_not_mentioned(made):
    assert "acknowledged" not in verdict(ResultTable([made.node(0, acknowledged=ACCEPTED)]), ()).sentence


@pytest.mark.parametrize(("said", "code"), [(ACCEPTED, 0), (EXPIRED, 1)])
def test_what_cannot_be_compared_or_is_not_finite_can_be_acknowledged_too(made, said, code):
    nodes = [made.node(0, Status.INCOMPARABLE, acknowledged=said, reason="other shape")]
    base = made.result(nodes)
    assert len(shortcomings(base.reference, base.backend, base.coverage, ResultTable(nodes), limits=Limits())) == code
    wild = [replace(made.node(0, Status.NONFINITE), acknowledged=said)]
    assert (verdict(ResultTable(wild), ()).status is Status.NONFINITE) == bool(code)


def test_entries_that_hold_for_nothing_are_named(made):
    nodes = [made.node(0), made.node(1)]
    rules = (
        LimitRule(tensor="gone", op="Conv", max_lsb=1),
        LimitRule(op="*", max_lsb=2),
        LimitRule(node="conv0", atol=1),
    )
    accepted = (Acknowledgement(node="conv1", reason="r"), Acknowledgement(node="conv7", reason="r"))
    assert unused_entries(rules, accepted, nodes) == [
        "rule 1 (tensor = 'gone', op = 'Conv') matches no tensor",
        "the acknowledged node 'conv7' does not exist",
    ]
