import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from sweeps import drawn

from qdebug.compare.result.finding import Finding, FindingKind, FindingRole, Judged
from qdebug.tui.drawing.glyphs import ASCII, UNICODE
from qdebug.tui.nodes.columns import header_cells, lay_out, row_cells, row_signs
from qdebug.tui.nodes.filter import filter_rows
from qdebug.tui.nodes.navigator import SORTS, Navigator
from qdebug.tui.nodes.rows import NodeTable, PlannedRow, State, sign
from qdebug.tui.screen.chrome import status
from qdebug.tui.views.answer import AnswerView
from qdebug.tui.views.view import sign_of


@pytest.mark.parametrize("width", [40, 59, 80, 120, 200, 300])
def test_the_important_columns_are_always_there(make_navigator, width):
    layout = lay_out(make_navigator(), width)
    keys = [column.key for column in layout.columns]
    important = ["mark", "number", "name", "sqnr_db", *(["arithmetic"] if width >= 60 else []), "clipped"]
    assert keys[: len(important)] == important
    assert sum(column.width + 1 for column in layout.columns) <= width + 1


def test_what_does_not_fit_is_counted_and_can_be_reached(make_navigator):
    navigator = make_navigator()
    narrow = lay_out(navigator, 80)
    assert narrow.after > 0
    seen = set()
    for offset in range(narrow.after + len(narrow.columns)):
        layout = lay_out(navigator, 80, offset=offset)
        seen |= {column.key for column in layout.columns}
        assert layout.before == offset
        if not layout.after:
            break
    wide = lay_out(navigator, 400)
    assert not wide.after
    assert seen == {column.key for column in wide.columns}


def test_each_heading_is_whole_when_the_list_is_sorted_by_it(make_navigator):
    navigator = make_navigator()
    for sort in SORTS[1:]:
        navigator.sort = sort
        layout = lay_out(navigator, 160)
        heads = header_cells(navigator, layout, UNICODE)
        marked = {head.strip() for column, head in zip(layout.columns, heads, strict=True) if column.sort == sort}
        assert marked == {f"{column.title}▾" for column in layout.columns if column.sort == sort}


def test_introduced_error_is_shown_as_it_is_sorted_by(make_navigator):
    navigator = make_navigator(24, failing=(9,))
    navigator.sort_by("introduced")
    layout = lay_out(navigator, 160)
    at = next(at for at, column in enumerate(layout.columns) if column.key == "introduced")
    cells = [row_cells(navigator, int(row), layout, UNICODE)[at].strip() for row in navigator.order]
    shown = [float(cell) for cell in cells if cell not in {"-", ""}]
    assert len(shown) > 9
    assert shown == sorted(shown, reverse=True)


def test_cells_say_what_the_row_is(make_navigator):
    navigator = make_navigator(24, failing=(9,))
    layout = lay_out(navigator, 400)
    cells = dict(zip([c.key for c in layout.columns], row_cells(navigator, 9, layout, UNICODE), strict=True))
    said = {key: cell.strip() for key, cell in cells.items()}
    assert said["state_word"] == "diverged"
    assert said["op"] == "QLinearAdd"
    assert said["quant"] == "0.05 / -3"
    assert said["shape"] == "1x4x6x6"
    assert said["match"] == "exact"
    assert said["sqnr_db"].startswith("6.5")


@pytest.mark.parametrize("page", ["nodes", "overview"])
def test_a_tiny_number_is_never_cut_into_a_larger_one(make_scene, page):
    scene = make_scene(24, failing=(9,))
    own = replace(scene.table.results[9].introduced, max_lsb=5.51e-36, rel_l2=1.23e-100)
    scene.table.put(
        replace(scene.table.results[9], introduced=own, judged=Judged(amount=5.51e-36, limit=1.5, unit="LSB"))
    )
    if page == "nodes":
        shown = " ".join(row_cells(scene.navigator, 9, lay_out(scene.navigator, 80), UNICODE))
        assert " 5.5e-36 LSB " in shown
    else:
        line = next(
            text for line in AnswerView().draw(scene, 100, 40) if "#9 " in (text := "".join(part for part, _ in line))
        )
        assert "  1.23e-100 5.5e-36 " in line


def test_marks_tell_states_apart_without_colour(make_navigator):
    table = make_navigator(24, failing=(9, 10), filled=20).table
    first = table.first_divergence()
    assert row_signs(table, 9, State.DIVERGED, first) == "!*"
    assert row_signs(table, 9, State.DIVERGED, first, is_marked=True) == "!'"
    assert row_signs(table, 10, State.DIVERGED, first) == " *"
    assert row_signs(table, 5, State.INCOMPARABLE, first) == " ?"
    assert row_signs(table, 22, State.PENDING, first) == " ."
    assert row_signs(table, 1, State.WITHIN, first) == "  "


def test_the_heading_marks_the_order(make_navigator):
    navigator = make_navigator()
    layout = lay_out(navigator, 100)
    assert "▾" not in "".join(header_cells(navigator, layout, UNICODE))
    navigator.next_sort()
    assert "SQNR dB▾" in "".join(header_cells(navigator, layout, UNICODE))
    navigator.reverse()
    assert "SQNR dB^" in "".join(header_cells(navigator, layout, ASCII))


@drawn(80)
@given(st.text(min_size=1, max_size=60), st.integers(40, 130), st.sampled_from([UNICODE, ASCII]))
def test_any_name_fills_exactly_its_cells_and_steers_nothing(name, width, glyphs):
    row = PlannedRow(node=name, op=name, tensor="t", reference_tensor=name, missing="x")
    navigator = Navigator(NodeTable([row]))
    layout = lay_out(navigator, width)
    for column, cell in zip(layout.columns, row_cells(navigator, 0, layout, glyphs), strict=True):
        assert column.key == "mark" or cell_len(cell) == column.width
        assert not {unicodedata.category(character) for character in cell} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
        assert glyphs is UNICODE or cell.isascii()


def test_a_single_sample_has_no_column_that_is_of_all_samples(make_navigator):
    navigator = make_navigator()
    every = [column.key for column in lay_out(navigator, 400).columns]
    navigator.choose_sample(1)
    one = lay_out(navigator, 400)
    assert {"gain", "propagated", "rel_l2"} <= set(every)
    assert not {"gain", "propagated", "rel_l2", "arithmetic"} & {column.key for column in one.columns}
    assert len(row_cells(navigator, 9, one, UNICODE)) == len(one.columns)


def test_the_operator_is_the_first_column_that_finds_room(make_navigator):
    assert [column.key for column in lay_out(make_navigator(), 80).columns][-1] == "op"


def test_names_are_shown_whole_before_there_is_a_second_column_more():
    rows = [PlannedRow(node="n" * 34, op="Conv", tensor=f"t{at}", reference_tensor="r") for at in range(9)]
    navigator = Navigator(NodeTable(rows))
    for width, extra in ((81, []), (86, ["op"]), (98, ["op"]), (112, ["op", "state_word"])):
        columns = lay_out(navigator, width).columns
        assert [column.key for column in columns][6:] == extra
        assert next(column.width for column in columns if column.key == "name") >= (24 if width == 86 else 34)


def test_with_a_sample_chosen_the_clipped_share_is_said_to_be_of_all(make_navigator):
    navigator = make_navigator()

    def heads():
        return "".join(header_cells(navigator, lay_out(navigator, 80), UNICODE))

    assert "clip. of all" not in heads()
    navigator.choose_sample(1)
    assert "clip. of all" in heads()


def test_a_row_within_its_limit_though_its_number_is_beyond_has_a_sign_and_says_why(make_navigator):
    navigator = make_navigator(24, failing=())
    said = "the error of its arithmetic is 33.7 LSB; a known arithmetic gives the same bits"
    cost = Finding(
        kind=FindingKind.ARITHMETIC, role=FindingRole.COST, node="n", sentence=said, amount=33.7, limit=1.5, unit="LSB"
    )
    table = navigator.table
    table.put(replace(table.results[4], findings=(cost,)))
    navigator.go(4)
    assert row_signs(table, 4, State.WITHIN, None) == " +"
    assert filter_rows("is=cost", table).nonzero()[0].tolist() == [4]
    assert sign_of(table, 4) == "+ "
    assert said in "".join(text for text, _ in status(navigator, "", 200, UNICODE)[0])


def test_a_row_of_the_reference_alone_has_a_sign_and_a_word(make_navigator):
    navigator = make_navigator(24)
    table = navigator.table
    row = table.find("ref_only")
    assert row_signs(table, row, State.INCOMPARABLE, None) == " -"
    assert "in ref. only" in row_cells(navigator, row, lay_out(navigator, 160), UNICODE)
    other = table.find("loose_out")
    assert "not compared" in row_cells(navigator, other, lay_out(navigator, 160), UNICODE)


def test_a_diverged_node_costs_nothing_in_a_sample_that_is_within(make_table):
    table = make_table(24, failing=(9,))
    assert sign(table, 9, State.WITHIN) == " "
    assert sign(table, 9, State.DIVERGED) == "*"
