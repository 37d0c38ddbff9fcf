from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.compare.result.result import Status
from qdebug.tui.drawing.glyphs import ASCII, UNICODE
from qdebug.tui.nodes.error_profile import ErrorProfile, choose_axis, column_to_row
from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.nodes.rows import NodeTable


def texts(lines):
    return ["".join(text for text, _ in line) for line in lines]


@drawn(80)
@given(
    st.lists(st.floats(-200, 200), min_size=1, max_size=20),
    st.integers(1, 12),
    st.booleans(),
    st.one_of(st.none(), st.floats(-60, 60)),
)
def test_the_axis_holds_the_worst_value_and_every_error_is_seen(values, rows, decibels, limit):
    values = np.array(values)
    axis = choose_axis(values, rows, decibels=decibels, limit=limit)
    assert axis.bottom < values.min() + 1e-6 if decibels else axis.bottom + rows * axis.step >= values.max() - 1e-6
    dots = axis.dots(values, rows)
    assert dots.min() >= 1
    assert dots.max() <= 4 * rows
    order = np.argsort(values)
    assert np.all(np.diff(dots[order]) >= 0)


def test_an_infinite_sqnr_is_as_high_as_it_goes_and_the_unknown_has_no_height():
    axis = choose_axis(np.array([20.0]), 4, decibels=True)
    assert list(axis.dots(np.array([-np.inf, np.nan, np.inf]), 4)) == [0, 0, 16]


def test_more_decibels_are_higher(make_navigator):
    navigator = make_navigator(24, failing=(9, 17))
    table = navigator.table
    levels = table.values("sqnr_db", None)
    lines = texts(ErrorProfile().lines(navigator, 58, 6, UNICODE))[:-1]
    heights, empty_columns = dict[int, int](), 0
    for column in range(11, 58):
        row = column_to_row(column, 58, table.ordered)
        drawn_lines = [at for at, line in enumerate(lines) if line.ljust(58)[column] != " "]
        if np.isnan(levels[row]):  # not compared: unlike an identical tensor, it has no height
            empty_columns += not drawn_lines
            continue
        (line,) = drawn_lines
        heights[row] = min(heights.get(row, 5), -line)
    assert empty_columns
    worst = min(heights, key=lambda row: levels[row])
    assert heights[worst] == min(heights.values()) < max(heights.values())
    labels = [int(line[:10].split()[0]) for line in lines]
    assert labels == sorted(labels, reverse=True)


def test_labels_are_round():
    axis = choose_axis(np.array([57.0, -3.0]), 5, decibels=True, limit=20.0)
    assert [axis.label(line) for line in range(5)] == ["-15 dB", "0 dB", "15 dB", "30 dB", "45 dB"]
    axis = choose_axis(np.array([-4.0, -0.5]), 4, decibels=False)
    assert [axis.label(line) for line in range(4)] == ["1e-4", "1e-3", "1e-2", "1e-1"]


def test_the_marks_name_failures_first_divergence_and_cursor(make_navigator):
    navigator = make_navigator(24, failing=(9, 17))
    lines = ErrorProfile().lines(navigator, 58, 6, UNICODE, limit=20.0)
    marks = texts(lines)[-1]
    plot = marks[11:]
    assert plot.index("▴") <= 1
    assert plot.index("!") == pytest.approx(9 * 2, abs=1)
    assert plot.rindex("*") == pytest.approx(17 * 2 + 1, abs=2)
    navigator.go(17)
    assert "▴" in texts(ErrorProfile().lines(navigator, 58, 6, UNICODE))[-1][8 + 30 :]


def test_the_limit_is_drawn_and_named(make_navigator):
    lines = ErrorProfile().lines(make_navigator(24), 58, 6, UNICODE, limit=20.0)
    assert sum("limit" in text for text in texts(lines)) == 1
    assert not any("limit" in text for text in texts(ErrorProfile().lines(make_navigator(24), 58, 6, UNICODE)))


def test_a_narrow_failure_survives_pooling(make_table):
    navigator = Navigator(make_table(2000, failing=(1234,)))
    lines = ErrorProfile().lines(navigator, 60, 6, UNICODE, limit=20.0)
    assert texts(lines)[-1].count("!") == 1
    assert any(style == "fail" for line in lines[:-1] for _, style in line)


@pytest.mark.parametrize("metric", ["sqnr_db", "rel_l2", "cosine", "mismatches"])
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_no_line_is_wider_than_asked(make_navigator, metric, glyphs):
    navigator = make_navigator(24, nonfinite=(20,))
    navigator.metric = metric
    for width in (20, 41, 80):
        lines = texts(ErrorProfile().lines(navigator, width, 7, glyphs, limit=20.0))
        assert len(lines) == 7
        assert max(map(len, lines)) <= width
        assert glyphs is UNICODE or "".join(lines).isascii()


def test_what_is_kept_of_a_profile_is_never_stale(make_navigator):
    navigator, profile = make_navigator(24, failing=(9,)), ErrorProfile()

    def check(width=58, limit=20.0):
        drawn = profile.lines(navigator, width, 6, UNICODE, limit=limit)
        assert drawn == ErrorProfile().lines(navigator, width, 6, UNICODE, limit=limit)
        return drawn

    seen = [check()]
    navigator.go(20)
    seen.append(check())
    navigator.table.put(replace(navigator.table.results[3], status=Status.DIVERGED))
    seen.append(check())
    seen.append(check(limit=None))
    navigator.sample = 0
    seen.append(check())
    navigator.sample, navigator.metric = None, "rel_l2"
    seen += [check(), check(width=40)]
    assert all(one != after for one, after in pairwise(seen))


def test_a_column_leads_to_the_row_drawn_there(make_navigator):
    assert column_to_row(3, 58, 24) is None
    assert column_to_row(11, 58, 24) == 0
    assert column_to_row(57, 58, 24) == 23
    assert column_to_row(10, 58, 0) is None


def test_nothing_is_drawn_without_rows():
    assert len(ErrorProfile().lines(Navigator(NodeTable([])), 60, 5, UNICODE)) == 5


def test_what_is_acknowledged_is_not_marked_as_failing(make_navigator):
    navigator = make_navigator(24, failing=(9, 17))
    navigator.go(0)
    before = texts(ErrorProfile().lines(navigator, 58, 6, UNICODE))[-1]
    assert "~" not in before
    navigator.table.acknowledged[17] = True
    after = texts(ErrorProfile().lines(navigator, 58, 6, UNICODE))[-1]
    assert (after.count("~"), after.count("*")) == (2, before.count("*") - 2)


@pytest.mark.parametrize("cells", [20, 21, 48, 120])
@pytest.mark.parametrize("row", [0, 2, 9])
def test_one_node_of_a_small_net_has_its_marks_side_by_side(make_navigator, cells, row):
    navigator = make_navigator(10, failing=(row,))
    navigator.go(row)
    size = navigator.table.ordered
    cells = cells * size // 10
    marks = texts(ErrorProfile().lines(navigator, cells + 11, 6, UNICODE))[-1][11:]
    assert sorted(marks.replace("─", "")) == ["!", "▴"]
    navigator.go(5)
    elsewhere = texts(ErrorProfile().lines(navigator, cells + 11, 6, UNICODE))[-1][11:]
    assert sorted(elsewhere.replace("─", "")) == ["!", "▴"], "one node has one sign"
    assert abs(marks.index("!") - marks.index("▴")) == 1
    assert column_to_row(11 + marks.index("▴"), cells + 11, size) == row
