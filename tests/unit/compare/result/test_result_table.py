"""Columns of all results say the same as the results one by one."""

import math

import numpy as np
import pytest

from qdebug.compare.result.limits import Acknowledgement
from qdebug.compare.result.node_result import breaks_limit, is_beyond, is_excused
from qdebug.compare.result.result import Status
from qdebug.compare.result.result_table import ResultTable

MANY = 500

SAID = (
    None,
    None,
    Acknowledgement(node="", reason="known"),
    Acknowledgement(node="", reason="was known", expires="2020-01-01", expired=True),
)
SIZES = (None, math.nan, 0.0, 0.25, 3.0, math.inf)


@pytest.fixture
def nodes(made):
    """Return results of every kind, at random."""
    random = np.random.default_rng(5)

    def one_of(values):
        return values[int(random.integers(len(values)))]

    def stats():
        return None if random.random() < 0.2 else made.stats(rmse=one_of(SIZES), rel_l2=one_of(SIZES))

    statuses = [status for status in Status if status is not Status.INCOMPLETE]
    return [
        made.node(
            number,
            one_of(statuses),
            metrics=stats(),
            introduced=stats(),
            propagated=stats(),
            declared=one_of((None, "another stride")),
            note=one_of((None, "", "one sample is missing")),
            basis=one_of(("full", "elements", "stats")),
            lacking=one_of((True, False)),
            gain=one_of(SIZES),
            acknowledged=one_of(SAID),
            samples=(),
        )
        for number in range(MANY)
    ]


def relative(stats):
    if stats is None or stats.rel_l2 is None:
        return 0.0
    return math.inf if math.isnan(stats.rel_l2) else stats.rel_l2


def adds_as_much(node):
    parts = [None if part is None else part.rmse for part in (node.introduced, node.propagated)]
    return None in parts or parts[0] >= parts[1]


def hands_on_more(node):
    parts = [None if part is None else part.rmse for part in (node.introduced, node.propagated)]
    return None in parts or parts[1] > parts[0]


@pytest.mark.parametrize(
    ("name", "of_one"),
    [
        ("breaking", breaks_limit),
        ("excused", is_excused),
        ("beyond", is_beyond),
        ("accepted", lambda node: node.acknowledged is not None),
        ("declared", lambda node: node.declared is not None),
        ("partial", lambda node: bool(node.note) and (node.basis == "full" or node.lacking)),
        ("carried", lambda node: math.inf if node.status is Status.INCOMPARABLE else relative(node.metrics)),
        ("introducing", adds_as_much),
        ("passing_on", hands_on_more),
    ],
)
def test_a_column_says_of_each_what_its_result_says(nodes, name, of_one):
    expected = [of_one(node) for node in nodes]
    assert len(set(expected)) > 1
    assert getattr(ResultTable(nodes), name).tolist() == expected


def test_columns_by_a_value(nodes):
    of = ResultTable(nodes)
    for status in Status:
        assert of.has_status(status).tolist() == [node.status is status for node in nodes]
    assert of.has_basis("stats").tolist() == [node.basis == "stats" for node in nodes]
    for part in ("metrics", "introduced", "propagated"):
        assert of.relative(part).tolist() == [relative(getattr(node, part)) for node in nodes]


def test_rows_are_found_by_tensor_and_made_into_results(nodes):
    of = ResultTable(nodes)
    assert len(of) == MANY
    assert of.rows_of(["conv7_q", "nowhere", "conv3_q", "conv7_q"]) == [3, 7]
    assert of[300] is nodes[300]


def test_of_nothing_there_are_empty_columns():
    of = ResultTable([])
    assert not of.beyond.size
    assert not of.carried.size
    assert of.rows_of(["t"]) == []
