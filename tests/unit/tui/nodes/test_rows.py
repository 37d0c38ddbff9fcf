from dataclasses import replace

import numpy as np
import pytest

from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.nodes.rows import METRIC_CHOICES, NodeTable, PlannedRow, State, severity


def test_rows_stand_in_the_backends_order_and_the_references_own_come_last(make_table):
    table = make_table(8)
    assert [row.missing is None for row in table.rows] == [True] * 8 + [False, False]
    assert table.rows[-2].tensor == "loose_out"
    assert "no tensor of the reference fits" in table.rows[-2].missing
    assert table.rows[-1].reference_tensor == "ref_only"
    assert table.ordered == 9
    assert table.names[-1] == "folded"


def test_two_nodes_of_one_name_are_told_apart():
    """A backend names what it makes of several nodes by one of them; the reference has that one alone, too."""
    ours = PlannedRow(node="Conv@1", op="Conv", tensor="relu", reference_tensor="relu")
    theirs = PlannedRow(node="Conv@1", op="Conv", tensor="", reference_tensor="conv", missing="fused")
    other = PlannedRow(node="Shape@0", op="Shape", tensor="", reference_tensor="shape", missing="folded")
    assert NodeTable([ours, theirs, other]).names == ["Conv@1", "Conv@1 (ref)", "Shape@0"]
    second = replace(theirs, reference_tensor="conv2")
    names = NodeTable([ours, theirs, second]).names
    assert names == ["Conv@1", "Conv@1 > conv (ref)", "Conv@1 > conv2 (ref)"]
    navigator = Navigator(NodeTable([ours, theirs, replace(other, node="b/Shape@0")]))
    assert navigator.block(1).startswith("block b")
    assert navigator.cursor == 2, "the side is no block"


def test_results_fill_their_row_and_nothing_else(make_table):
    table = make_table(8, filled=3, failing=(1,))
    assert table.compared == 3
    assert table.pending == 5
    assert list(table.state[:4]) == [State.IDENTICAL, State.DIVERGED, State.WITHIN, State.PENDING]
    assert np.isinf(table.values("sqnr_db")[0])
    assert np.isnan(table.values("sqnr_db")[3])
    assert table.values("at_ends")[1] == pytest.approx((1 + 2) / 144)
    assert table.values("clipped")[1] == pytest.approx(1 / 144)
    assert np.isnan(table.values("clipped")[2]), "a tensor without quantization has no rails"


def test_a_result_put_twice_is_counted_once(make_table):
    table = make_table(4, filled=1)
    again = table.results[0]
    table.put(again)
    assert table.compared == 1


def test_failing_and_first_divergence_follow_the_topological_order(make_table):
    table = make_table(24, failing=(17, 9), nonfinite=(12,))
    assert list(table.failing()) == [9, 12, 17]
    assert table.first_divergence() == 9
    assert make_table(4, failing=()).first_divergence() is None


@pytest.mark.parametrize("order", [range(24), range(23, -1, -1)])
def test_the_first_divergence_follows_results_that_come_in(make_table, order):
    """Each answer is the one that all rows give, also for one sample and when a result is mended later."""
    whole, mended = (
        make_table(24, failing=(17, 9), nonfinite=(12,), samples=2),
        make_table(24, failing=(17,), samples=2),
    )
    table = make_table(24, filled=0, samples=2)

    def answers():
        return [(table.first_divergence(each), next(iter(table.failing(each)), None)) for each in (None, 1)]

    for results in (whole.results, mended.results):
        for row in order:
            table.put(*[result for result in results[row : row + 1] if result is not None])
            for known, seen in answers():
                assert known == seen
    assert table.first_divergence() == 17


def test_one_sample_has_its_own_values(make_table):
    table = make_table(6, samples=3, filled=4)
    assert table.values("sqnr_db", 2)[1] == table.values("sqnr_db", 0)[1] - 2
    assert table.states(1)[5] == State.PENDING
    for result in make_table(6, samples=3).results:
        if result is not None:
            table.put(result)
    assert table.states(2)[4] == State.WITHIN, "a sample that is looked at keeps filling"
    assert table.states(7)[4] == State.INCOMPARABLE, "a sample that was not recorded is not compared"


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("RELU", [2, 6]),
        ("block1", [4, 5, 6, 7]),
        ("'ref_3", [3]),
        ("'ref_3'", [3]),
        ("~conv_[04]$", []),
        ("none", []),
        ("#7", [7]),
        ("#99", []),
    ],
)
def test_search_by_part_whole_and_regex(make_table, pattern, expected):
    assert list(make_table(8).search(pattern)) == expected


def test_a_number_is_searched_beside_names_that_contain_it():
    rows = [PlannedRow(node=f"n{at}#1", op="Op", tensor=f"t{at}", reference_tensor=f"t{at}") for at in range(12)]
    table = NodeTable(rows)
    assert list(table.search("#1")) == list(range(12))
    assert table.rows_named("#1") == [1]
    assert list(table.search("#999999999999")) == []
    navigator = Navigator(table)
    navigator.search("#1", start=5)
    assert navigator.cursor == 1, "who types a number means that row"


def test_search_by_regex_sees_node_tensor_and_operator(make_table):
    assert list(make_table(8).search("~conv_[04]_out")) == [0, 4]


def test_a_broken_regex_is_said(make_table):
    with pytest.raises(ValueError, match="not a valid regular expression yet"):
        make_table(4).search("~(")


def test_find_prefers_the_node(make_table):
    table = make_table(8, names=("a", "a_out"))
    assert table.find("a_out") == 1
    assert table.find("ref_0") == 0
    assert table.find("nothing") is None


@pytest.mark.parametrize("metric", METRIC_CHOICES)
def test_severity_grows_with_the_error(metric):
    better = np.array([np.inf, 60.0, 20.0, -3.0]) if metric == "sqnr_db" else np.array([0.0, 1e-6, 0.5, 3.0])
    values = 1 - better if metric == "cosine" else better
    found = severity(metric, values)
    assert found[0] == -np.inf
    assert np.all(np.diff(found) > 0)
    assert np.isnan(severity(metric, np.array([np.nan])))[0]


def test_a_hundred_thousand_rows_fit():
    rows = [PlannedRow(node=f"block{i}/relu", op="Relu", tensor=f"t{i}", reference_tensor="r") for i in range(100_000)]
    table = NodeTable(rows)
    assert table.size == 100_000
    assert len(table.search("block999")) == 111
    assert table.first_divergence() is None


def test_where_names_are_all_that_is_known_no_row_is_looked_at():
    class Unseen(list):
        def __iter__(self):
            raise AssertionError("a row was made for nothing")

        __getitem__ = None

    table = NodeTable(Unseen([None] * 3), names=["c", "a", "b"])
    assert (table.size, table.pending, table.ordered) == (3, 3, 3)
    assert (table.longest_name, table.by_name.tolist()) == (1, [1, 2, 0])


@pytest.fixture
def table():
    """Return a table of seven pairs and a tensor that has no partner."""
    rows = [
        PlannedRow(
            node=f"n{at}",
            op="Conv" if at % 2 else "Relu",
            tensor=f"t{at}",
            reference_tensor=f"r{at}",
            match="exact",
            dtype="float32" if at % 3 else "int8",
        )
        for at in range(7)
    ]
    lost = PlannedRow(node="n3", op="Split", tensor="t9", reference_tensor="", missing="nothing answers to it")
    return NodeTable([*rows, lost])


def test_rows_are_found_by_any_of_their_names(table):
    assert table.names[3] == "n3 > t3"
    assert (table.pending, table.ordered) == (7, 8)
    found = {text: table.search(text).tolist() for text in ("n3", "'t4'", "~^r|split", "RELU")}
    assert found == {"n3": [3, 7], "'t4'": [4], "~^r|split": [7], "RELU": [0, 2, 4, 6]}
    assert (table.find("r2"), table.find("n3"), table.find("nowhere")) == (2, 3, None)
    assert [table.row_of_reference(name) for name in ("r5", "", "t5")] == [5, None, None]
    assert [table.row_of(name) for name in ("t9", "r1", "")] == [7, None, None]
    assert table.by_op.tolist() == [1, 3, 5, 0, 2, 4, 6, 7]


@pytest.mark.parametrize(
    ("field", "rows"),
    [("name", [3, 7]), ("tensor", [3]), ("ref", [3]), ("op", []), ("dtype", [1, 2, 4, 5]), ("match", [])],
)
def test_rows_are_matched_by_a_field(table, field, rows):
    assert np.flatnonzero(table.rows_matching(field, lambda text: "3" in text)).tolist() == rows


def test_of_several_rows_of_one_tensor_the_last_is_found():
    rows = [PlannedRow(node=name, op="Conv", tensor="t", reference_tensor="r") for name in "ab"]
    table = NodeTable(rows)
    assert (table.row_of("t"), table.row_of_reference("r")) == (1, 1)


def test_a_row_has_the_number_that_a_report_gives_it(make_table):
    table = make_table(24)
    for row in range(table.size):
        result = table.results[row]
        assert table.compared_number(row) == (None if result is None else result.index)
    assert table.title(9) == "#9 block2/qlinearadd_9"
    assert table.title(25) == table.names[25]


def test_a_few_long_names_are_no_measure_for_all():
    names = [f"conv{at}" for at in range(95)] + ["x" * 60] * 5
    rows = [PlannedRow(node=name, op="Conv", tensor=name, reference_tensor=name) for name in names]
    table = NodeTable(rows, names=names)
    assert (table.usual_name, table.longest_name) == (6, 60)


def planned(*names, op="Conv"):
    return [PlannedRow(node=name, op=op, tensor=f"{name}_out", reference_tensor="r") for name in names]


@pytest.mark.parametrize(
    ("names", "prefix"),
    [
        (("model/stem/conv", "model/stage1/conv"), "model/"),
        (("/conv1/Conv", "/conv2/Conv"), "/"),
        (("net.a.b", "net.a.c", "net.a.d"), "net.a."),
        (("conv1", "conv2"), ""),
        (("model/a", "model/b", "other"), ""),
        (("model/a",), ""),
        (("a/", "a/b"), ""),
    ],
)
def test_a_list_leaves_out_the_scope_that_all_names_share(names, prefix):
    table = NodeTable([*planned("x", op="Input"), *planned(*names)])
    assert [table.short_name(row + 1) for row in range(len(names))] == [name.removeprefix(prefix) for name in names]
    assert table.short_name(0) == "x"
    assert table.title(1).endswith(names[0]), "elsewhere a name is whole"


def test_names_stay_whole_where_two_would_be_alike_without_their_scope():
    table = NodeTable([*planned("a", op="Input"), *planned("net/a", "net/b")])
    assert len({table.short_name(row) for row in range(3)}) == 3
