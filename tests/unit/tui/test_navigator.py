import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from qdebug.tui.navigator import SORTS, Navigator
from qdebug.tui.rows import METRIC_CHOICES, SAMPLE_METRICS, NodeTable, PlannedRow


def test_moving_stops_at_both_ends_and_says_so(make_navigator):
    navigator = make_navigator(8)
    assert "first line" in navigator.move(-1)
    assert navigator.move(3) == ""
    assert navigator.cursor == 3
    assert navigator.edge(1) == ""
    assert navigator.cursor == navigator.table.size - 1
    assert "last line" in navigator.move(5)


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
        assert navigator.line_to_row(navigator.place) == 9
        assert sorted(navigator.order) == list(range(navigator.table.size))


def test_sorting_by_metric_puts_the_worst_first_and_the_unknown_last(make_navigator):
    navigator = make_navigator(filled=20)
    navigator.next_sort()
    values = navigator.table.metrics["sqnr_db"][navigator.order]
    known = values[~np.isnan(values)]
    assert list(known) == sorted(known)
    assert np.isnan(values[len(known) :]).all()
    first = navigator.line_to_row(0)
    navigator.reverse()
    assert navigator.line_to_row(navigator.table.size - 1) == first


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
    assert "one sample only" in make_navigator(samples=1).step_sample(1)


def test_an_empty_table_moves_nowhere():
    navigator = Navigator(NodeTable([]))
    assert "empty" in navigator.move(1)
    assert navigator.place == 0
    assert "beyond" in navigator.failing(1)


@settings(max_examples=60, deadline=None)
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
        assert navigator.line_to_row(navigator.place) == navigator.cursor
