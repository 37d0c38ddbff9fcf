from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.compare.result.finding import Status
from qdebug.tui.nodes.filter import FilterError
from qdebug.tui.nodes.navigator import SORTS, Navigator
from qdebug.tui.nodes.rows import METRIC_CHOICES, SAMPLE_METRICS, NodeTable, PlannedRow


def test_moving_stops_at_both_ends_and_says_so(make_navigator):
    navigator = make_navigator(8)
    assert "first line" in navigator.move(-1)
    assert navigator.move(3) == ""
    assert navigator.cursor == 3
    assert navigator.edge(1) == "the last node in order; again: the end of 1 constant or only in the reference"
    assert navigator.table.rows[navigator.cursor].tensor == "loose_out"
    assert navigator.edge(1) == ""
    assert navigator.cursor == navigator.table.size - 1
    assert "last line" in navigator.edge(1)
    assert "last line" in navigator.move(5)
    navigator.edge(-1)
    assert navigator.cursor == 0


@pytest.mark.parametrize("way", ["reverse", "next_sort"])
def test_the_end_of_a_list_that_is_sorted_is_its_last_line(make_navigator, way):
    navigator = make_navigator(8)
    getattr(navigator, way)()
    navigator.edge(-1)
    assert navigator.edge(1) == ""
    assert navigator.line == navigator.table.size - 1


def test_the_end_of_a_filtered_list_is_among_what_it_shows(make_navigator):
    navigator = make_navigator(8)
    navigator.choose_filter("relu | folded")
    assert "only in the reference" in navigator.edge(1)
    assert navigator.cursor == 6
    assert navigator.edge(1) == ""
    navigator.choose_filter("relu")
    navigator.edge(-1)
    assert navigator.edge(1) == ""
    assert navigator.cursor == 6


def test_the_failing_walk_goes_both_ways_and_ends(make_navigator):
    navigator = make_navigator()
    assert "at the first divergence" in navigator.first_divergence()
    assert navigator.cursor == 9
    assert "already" in navigator.first_divergence()
    assert navigator.failing(1) == ""
    assert navigator.cursor == 10
    navigator.failing(1)
    assert navigator.cursor == 17
    assert "no failing node after" in navigator.failing(1)
    navigator.failing(-1)
    assert navigator.cursor == 10


def test_nothing_failing_says_whether_that_is_final(make_navigator):
    assert "no node is beyond" in make_navigator(6, failing=()).failing(1)
    assert "so far, 2 of 6 compared" in make_navigator(6, failing=(), filled=2).first_divergence()


def test_search_moves_as_it_grows_and_walks_around(make_navigator):
    navigator = make_navigator(12)
    assert "3 matches" in navigator.search("relu", start=3)
    assert navigator.cursor == 6
    assert "match 3 of 3" in navigator.match(1)
    assert "around the end" in navigator.match(1)
    assert navigator.cursor == 2
    assert navigator.search("zzz", start=3) == "no match"
    assert navigator.cursor == 3
    assert "nothing matches" in navigator.match(1)
    assert "regular expression" in navigator.search("~(", start=3)
    assert navigator.search("", start=3) == ""


def test_a_whole_name_is_found_before_names_that_begin_with_it(make_navigator):
    navigator = make_navigator(24)
    first, later = 3, 9
    rows = list(navigator.table.rows)
    rows[first], rows[later] = replace(rows[first], node="conv@18"), replace(rows[later], node="conv@1")
    navigator = Navigator(NodeTable(rows))
    assert "2 matches" in navigator.search("conv@1", start=0)
    assert navigator.cursor == later
    assert "match 1 of 2" in navigator.match(-1)


def test_without_a_search_n_walks_failing_nodes(make_navigator):
    navigator = make_navigator()
    assert navigator.match(1) == ""
    assert navigator.cursor == 9


def test_every_order_keeps_the_cursor_on_its_row(make_navigator):
    navigator = make_navigator()
    navigator.go(9)
    for name in (*SORTS[1:], SORTS[0]):
        assert navigator.next_sort().startswith("sorted by")
        assert navigator.sort == name
        assert navigator.cursor == 9
        assert navigator.line_to_row(navigator.line) == 9
        assert sorted(navigator.order) == list(range(navigator.table.size))


def test_sorting_by_metric_puts_the_worst_first_and_the_unknown_last(make_navigator):
    navigator = make_navigator(filled=20)
    navigator.next_sort()
    values = navigator.table.values("sqnr_db")[navigator.order]
    known = values[~np.isnan(values)]
    assert list(known) == sorted(known)
    assert np.isnan(values[len(known) :]).all()
    assert navigator.reverse() == "sorted by SQNR dB, best first"
    turned = navigator.table.values("sqnr_db")[navigator.order]
    assert list(turned[: len(known)]) == sorted(known, reverse=True)
    assert np.isnan(turned[len(known) :]).all()


def test_sorting_by_state_puts_failures_first(make_navigator):
    navigator = make_navigator(nonfinite=(20,))
    while navigator.sort != "state":
        navigator.next_sort()
    assert list(navigator.order[:4]) == [20, 9, 10, 17]


def test_an_order_by_values_follows_new_results(make_navigator, make_table):
    navigator = make_navigator(filled=5)
    assert not navigator.refresh()
    navigator.next_sort()
    for result in make_table().results[:24]:
        navigator.table.put(result)
    assert navigator.refresh()
    assert navigator.line_to_row(0) == 17
    assert not navigator.refresh()


def test_the_metric_key_walks_all_metrics(make_navigator):
    navigator = make_navigator()
    seen = [navigator.metric]
    for _ in METRIC_CHOICES:
        navigator.next_metric()
        seen.append(navigator.metric)
    assert seen == [*METRIC_CHOICES, METRIC_CHOICES[0]]


def test_a_single_sample_has_fewer_metrics_and_says_so(make_navigator):
    navigator = make_navigator()
    navigator.next_metric()
    assert "SQNR" in navigator.step_sample(1)
    assert (navigator.sample, navigator.metric) == (0, "sqnr_db")
    for _ in range(3):
        assert "2 metrics" in navigator.next_metric()
        assert navigator.metric in SAMPLE_METRICS


def test_samples_end_on_both_sides(make_navigator):
    navigator = make_navigator(samples=3)
    assert "all samples already" in navigator.step_sample(-1)
    for sample in range(3):
        navigator.step_sample(1)
        assert navigator.sample == sample
    assert "last sample" in navigator.step_sample(1)
    assert "only one sample" in make_navigator(samples=1).step_sample(1)


def test_an_empty_table_moves_nowhere():
    navigator = Navigator(NodeTable([]))
    assert "empty" in navigator.move(1)
    assert navigator.line == 0
    assert "beyond" in navigator.failing(1)


@drawn(60)
@given(
    names=st.lists(st.text(max_size=6), min_size=1, max_size=12),
    moves=st.lists(st.sampled_from(["move", "edge", "sort", "reverse", "search", "match"]), max_size=12),
    step=st.integers(-30, 30),
)
def test_no_sequence_of_moves_leaves_the_table(names, moves, step):
    rows = [PlannedRow(node=name, op="Op", tensor=f"t{i}", reference_tensor="r") for i, name in enumerate(names)]
    navigator = Navigator(NodeTable(rows))
    for move in moves:
        if move == "move":
            navigator.move(step)
        elif move == "edge":
            navigator.edge(1 if step > 0 else -1)
        elif move == "sort":
            navigator.next_sort()
        elif move == "reverse":
            navigator.reverse()
        elif move == "search":
            navigator.search(names[0], start=navigator.cursor)
        else:
            navigator.match(1)
        assert 0 <= navigator.cursor < len(names)
        assert navigator.line_to_row(navigator.line) == navigator.cursor


def test_a_filter_moves_the_cursor_to_what_it_lets_through(make_navigator):
    navigator = make_navigator()
    navigator.go(3)
    assert navigator.choose_filter("op=relu") == "6 of 26 nodes"
    assert navigator.cursor == 6, "the next one after the cursor"
    assert navigator.lines == 6
    navigator.move(1)
    assert navigator.cursor == 10
    navigator.edge(1)
    assert navigator.cursor == 22
    assert "last line" in navigator.move(1)
    assert navigator.choose_filter("") == "all nodes"
    assert navigator.lines == 26


def test_a_filter_that_lets_nothing_through_says_so_and_loses_nothing(make_navigator):
    navigator = make_navigator()
    navigator.go(9)
    assert navigator.choose_filter("nosuchname").startswith("0 of 26")
    assert navigator.cursor == 9
    assert "no node passes the filter" in navigator.move(1)
    assert "cleared" in navigator.first_divergence()
    assert navigator.lines == 26


def test_a_wrong_filter_leaves_the_last_one_in_force(make_navigator):
    navigator = make_navigator()
    navigator.choose_filter("op=relu")
    with pytest.raises(FilterError):
        navigator.choose_filter("op=")
    assert navigator.lines == 6


def test_failing_nodes_and_matches_are_walked_within_the_filter(make_navigator):
    navigator = make_navigator()
    navigator.choose_filter("row>9")
    navigator.go(10)
    navigator.failing(1)
    assert navigator.cursor == 17
    assert "no failing node before" in navigator.failing(-1) or navigator.cursor == 10
    assert "hides every match" in navigator.search("qlinearconv_0", start=10)


def test_a_filter_follows_the_results(make_table):
    table = make_table(24, filled=0)
    navigator = Navigator(table, samples=3)
    navigator.choose_filter("sqnr<20")
    assert navigator.lines == 0
    for result in make_table(24).results[:12]:
        table.put(result)
    assert navigator.refresh()
    assert navigator.order.tolist() == [9, 10]


def test_jumps_are_remembered_and_retraced(make_navigator):
    navigator = make_navigator()
    navigator.first_divergence()
    navigator.failing(1)
    assert "back at block2/qlinearadd_9" in navigator.back(-1)
    assert "back at block0/qlinearconv_0" in navigator.back(-1)
    assert "begins here" in navigator.back(-1)
    assert "forward" in navigator.back(1)
    assert navigator.cursor == 9


def test_marks_are_set_walked_and_listed(make_navigator):
    navigator = make_navigator()
    assert "nothing is marked" in navigator.next_mark()
    for row in (12, 4):
        navigator.go(row)
        assert navigator.mark().startswith("marked")
    assert "mark 2 of 2" in navigator.next_mark()
    assert navigator.cursor == 12
    navigator.choose_filter("is=marked")
    assert navigator.order.tolist() == [4, 12]
    assert navigator.mark().startswith("mark removed")


def test_blocks_are_the_scopes_of_names(make_navigator):
    navigator = make_navigator()
    navigator.go(2)
    assert "block block1" in navigator.block(1)
    assert navigator.cursor == 4
    navigator.go(9)
    navigator.block(-1)
    assert navigator.cursor == 4, "the first node of the block before"
    navigator.go(0)
    assert "no other block before" in navigator.block(-1)


def test_another_table_of_the_net_is_taken_over_where_the_user_stood(make_navigator, make_table):
    old = make_navigator()
    old.go(7)
    old.mark()
    old.go(10)
    old.choose_sample(1)
    old.choose_filter("row>3")
    new = Navigator(make_table(40), samples=3)
    new.take_over(old)
    assert (new.cursor, new.sample, new.filter, new.trail.marks) == (10, 1, "row>3", [7])
    smaller = Navigator(make_table(4), samples=1)
    smaller.take_over(old)
    assert (smaller.cursor, smaller.sample, smaller.trail.marks) == (0, None, [])


def test_acknowledged_rows_are_passed_by(make_navigator):
    navigator = make_navigator()
    navigator.table.acknowledged[9] = True
    navigator.table.version += 1
    navigator.first_divergence()
    assert navigator.cursor == 10


def test_steps_are_walked_to_both_ends(make_table):
    assert "one step" in Navigator(make_table(4)).next_step(1)
    navigator = Navigator(make_table(4), steps=3)
    assert "first step" in navigator.next_step(-1)
    navigator.next_step(1)
    assert "step 2 of 0..2" in navigator.next_step(1)
    assert "last step" in navigator.next_step(1)


def test_a_filter_is_worked_out_once_for_each_letter(make_navigator, monkeypatch):
    asked = []
    navigator = make_navigator(24)
    works_out = navigator.table.rows_containing
    monkeypatch.setattr(navigator.table, "rows_containing", lambda text: asked.append(text) or works_out(text))
    navigator.choose_filter("relu")
    navigator.choose_filter("relu_1")
    assert asked == ["relu", "relu_1"]
    assert navigator.lines == 3


def test_no_failure_in_one_sample_is_not_said_of_all(make_navigator):
    navigator = make_navigator(24, failing=(9,))
    table = navigator.table
    mixed = [
        replace(one, status=Status.DIVERGED if one.sample == 2 else Status.WITHIN) for one in table.results[9].samples
    ]
    table.put(replace(table.results[9], samples=tuple(mixed)))
    navigator.choose_sample(0)
    assert navigator.first_divergence().startswith("no node is beyond its limit in sample 0; ")
    navigator.choose_sample(2)
    assert navigator.first_divergence() == "at the first divergence"


@pytest.mark.parametrize("growing", [False, True])
def test_while_more_is_recorded_what_is_not_found_is_not_found_so_far(make_table, growing):
    done = make_table(24, failing=())
    table = NodeTable(done.rows, is_growing=growing)
    for row in range(done.size):
        if done.results[row] is not None:
            table.put(done.results[row])
    said = Navigator(table, samples=3).failing(1)
    assert not table.pending
    assert said == "no node is beyond its limit" + (" so far" if growing else "")


def test_of_a_failing_node_without_samples_no_sample_is_called_right(make_navigator):
    navigator = make_navigator(24, failing=(9,))
    failing = navigator.table.results[9]
    navigator.choose_sample(0)
    assert navigator.failing(1) == ""
    assert navigator.cursor == 9
    navigator.table.put(replace(failing, samples=()))
    said = navigator.failing(1)
    assert said.startswith("block2/qlinearadd_9 fails, and has no results of single samples")


def test_a_name_that_is_seen_is_found_before_that_of_a_tensor(make_navigator):
    rows = list(make_navigator(24).table.rows)
    rows[3], rows[9] = replace(rows[3], tensor="silu_10.tmp"), replace(rows[9], node="silu_10")
    navigator = Navigator(NodeTable(rows))
    assert navigator.search("silu_10", start=0) == "2 matches"
    assert navigator.cursor == 9
    assert navigator.search("silu_10.t", start=0) == "1 match, here in the tensor silu_10.tmp"
    assert navigator.cursor == 3


def test_of_two_rows_with_a_whole_name_the_compared_one_is_found(make_navigator):
    rows = list(make_navigator(24).table.rows)
    rows[3], rows[9] = (
        replace(rows[3], node="conv@7"),
        replace(rows[9], node="conv@7", missing="inside a fused node"),
    )
    navigator = Navigator(NodeTable(rows))
    assert navigator.search("conv@7", start=5) == "2 matches"
    assert navigator.cursor == 3
