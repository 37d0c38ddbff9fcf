"""Columns fit the width, names get what remains, and empty columns take none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.compare.align.pairs import Match
from qdebug.compare.result.result import Status
from qdebug.present.reports.diff_table import GAP, natural_width, place_columns
from qdebug.present.rows import node_row


def taken(placed):
    return sum(entry.width for entry in placed) + GAP * (len(placed) - 1)


def keys(placed):
    return [entry.column.key for entry in placed]


@pytest.fixture
def rows(made):
    return [node_row(made.node(i, node=f"model/backbone/stage{i}/block/conv")) for i in range(12)]


def test_the_essential_columns_are_there_in_80_characters(rows):
    placed = place_columns(rows, 80)
    assert keys(placed)[:5] == ["index", "status", "node", "op", "sqnr_db"]
    assert {"max_lsb", "rel_l2"} <= set(keys(placed))
    assert taken(placed) <= 80


def test_a_wide_terminal_shows_scale_and_zero_point_and_full_names(rows):
    placed = {entry.column.key: entry.width for entry in place_columns(rows, 160)}
    assert {"clipped", "max_abs", "quant", "match", "mismatches"} <= set(placed)
    assert placed["node"] == len("model/backbone/stage10/block/conv")


def test_columns_in_which_nothing_stands_are_left_out(made):
    plain = [node_row(made.node(0, quant=None, saturation=None, match=Match.EXACT, metrics=made.stats(max_lsb=None)))]
    assert not {"quant", "clipped", "match", "max_lsb"} & set(keys(place_columns(plain, 200)))


def test_nothing_is_shortened_at_the_natural_width(rows):
    placed = {entry.column.key: entry.width for entry in place_columns(rows, natural_width(rows))}
    assert all(len(row.cells[key].text) <= width for row in rows for key, width in placed.items())


@drawn(60)
@given(st.integers(60, 300), st.integers(1, 120), st.sampled_from([*Status][:5]))
def test_the_table_never_exceeds_the_width(made, width, length, status):
    row = node_row(made.node(123456, status, node="n" * length, op="QLinearGlobalAveragePool"))
    assert taken(place_columns([row], width)) <= width
