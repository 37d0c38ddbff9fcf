"""Rows of the node table: safe texts, unrounded values beside them, one row per compared tensor."""

import math
from dataclasses import replace

import pytest

from qdebug.compare.result.finding import Finding, FindingKind, FindingRole, Judged
from qdebug.compare.result.limits import Acknowledgement
from qdebug.compare.result.result import Status
from qdebug.model import QuantParams
from qdebug.numerics.stats import Rails
from qdebug.present.rows import (
    STYLES,
    badness,
    clipping_words,
    columns,
    judged_words,
    metric_title,
    node_row,
    position,
    quant_text,
)


def test_a_row_carries_exact_names_and_unrounded_values(made):
    row = node_row(made.node(7, Status.DIVERGED, metrics=made.stats(sqnr_db=12.3456)))
    assert (row.index, row.node, row.tensor, row.status) == (7, "conv7", "conv7_q", Status.DIVERGED)
    assert row.cells["sqnr_db"].text == "12.3"
    assert row.cells["sqnr_db"].value == 12.3456
    assert row.cells["sqnr_db"].state == Status.DIVERGED
    assert row.cells["status"].text == "diverged"
    assert row.cells["worst_index"].text == "0,3,1"


def test_every_column_has_a_cell_and_every_state_a_style(made):
    for status in (Status.IDENTICAL, Status.WITHIN, Status.DIVERGED, Status.NONFINITE, Status.INCOMPARABLE):
        row = node_row(made.node(status=status))
        assert set(row.cells) == set(columns())
        assert all(cell.state in STYLES for cell in row.cells.values())


def test_an_incomparable_pair_shows_no_number(made):
    row = node_row(made.node(status=Status.INCOMPARABLE, saturation=None, quant=None))
    for key in ("sqnr_db", "max_abs", "mismatches", "clipped", "quant"):
        assert row.cells[key].text == "-"
        assert row.cells[key].value is None


def test_a_name_that_would_steer_the_terminal_is_escaped_in_the_cell_alone(made):
    row = node_row(made.node(node="conv\x1b[2J\nx"))
    assert row.cells["node"].text == r"conv\x1b[2J\nx"
    assert row.node == "conv\x1b[2J\nx"


def test_codes_at_the_ends_are_not_shown_as_clipped(made):
    rails = Rails(at_qmin=30, at_qmax=20, clipped_low=1, clipped_high=3, floor=0, total=100)
    cell = node_row(made.node(saturation=rails)).cells["clipped"]
    assert (cell.text, cell.value, cell.state) == ("4.0 %", 0.04, "warn")
    cell = node_row(made.node(saturation=replace(rails, clipped_low=0, clipped_high=0))).cells["clipped"]
    assert (cell.text, cell.state) == ("0", "")
    assert "saturat" not in " ".join(column.title for column in columns().values())


@pytest.mark.parametrize(("low", "total", "shown"), [(0, 5, "0"), (0, 0, "-"), (1, 10**6, "<0.01 %")])
def test_little_and_nothing_clipped(made, low, total, shown):
    counted = Rails(at_qmin=low, at_qmax=0, clipped_low=low, clipped_high=0, floor=0, total=total)
    assert node_row(made.node(saturation=counted)).cells["clipped"].text == shown


def test_scale_and_zero_point_read_as_one(made):
    assert quant_text(None) == "-"
    assert quant_text(QuantParams(dtype="int8", scale=0.05, zero_point=-3)) == "0.05 / -3"
    per_channel = QuantParams(dtype="int8", scale=[0.1, 0.2, 0.4], zero_point=0, axis=0)
    assert quant_text(per_channel) == "3 scales, 0.1 to 0.4 / 0"
    assert columns()["quant"].title == "scale / zero point"


def test_nonfinite_is_worst_and_incomparable_is_last(made):
    results = [
        made.node(0, Status.INCOMPARABLE),
        made.node(1, Status.IDENTICAL, metrics=made.stats(sqnr_db=math.inf, max_abs=0.0)),
        made.node(2, Status.WITHIN, metrics=made.stats(sqnr_db=30.0)),
        made.node(3, Status.DIVERGED, metrics=made.stats(sqnr_db=-math.inf)),
        made.node(4, Status.NONFINITE, metrics=made.stats(sqnr_db=None, max_abs=None)),
        made.node(5, Status.DIVERGED, metrics=made.stats(sqnr_db=10.0, max_abs=1.0)),
        made.node(6, Status.DIVERGED, metrics=made.stats(sqnr_db=10.0, max_abs=2.0)),
        made.node(7, Status.WITHIN, metrics=made.stats(sqnr_db=math.nan, max_abs=math.nan)),
    ]
    ordered = [result.index for result in sorted(results, key=badness)]
    assert ordered[:4] == [4, 3, 6, 5]
    assert ordered[-1] == 0


def test_what_a_node_introduces_is_in_steps_or_relative(made):
    stepped = node_row(made.node(introduced=made.stats(max_lsb=0.5, rel_l2=0.01))).cells["introduced"]
    assert (stepped.text, stepped.value) == ("0.500 LSB", 0.01)
    relative = node_row(made.node(introduced=made.stats(max_lsb=None, rel_l2=2.5e-7))).cells["introduced"]
    assert relative.text == "2.50e-7 rel"
    assert node_row(made.node(introduced=made.stats(max_lsb=0.0, rel_l2=0.0))).cells["introduced"].text == "0"
    assert node_row(made.node()).cells["introduced"].text == "-"
    assert node_row(made.node(relative_gain=1.25)).cells["gain"].text == "1.25"


@pytest.mark.parametrize(
    ("amount", "limit", "unit", "cell", "words"),
    [
        (1.2, 1.5, "LSB", "1.2 < 1.5 LSB", "1.2 LSB, limit 1.5 LSB"),
        (1.501, 1.5, "LSB", "1.501 > 1.5 LSB", "1.501 LSB, limit 1.5 LSB"),
        (211.3, 1.5, "LSB", "211 > 1.5 LSB", "211 LSB, limit 1.5 LSB"),
        (0.002, 1.0, "bound", "0.20 % of bound", "0.20 % of the rounding bound"),
        (340.0, 1.0, "bound", "340x bound", "340x the rounding bound"),
        (3.0, 0.0, "elements", "3 > 0 elements", "3 elements, limit 0 elements"),
        (0.0, 1.5, "LSB", "0", "0 LSB, limit 1.5 LSB"),
    ],
)
def test_the_number_that_is_judged_stands_beside_its_limit(made, amount, limit, unit, cell, words):
    node = made.node(judged=Judged(amount=amount, limit=limit, unit=unit))
    assert node_row(node).cells["arithmetic"].text == cell
    assert judged_words(node) == words


@pytest.mark.parametrize(
    ("clipped", "contrast"),
    [(None, ""), (3, ""), (0, "; all values of the reference are in range")],
)
def test_what_clipping_cuts_off_is_said_apart_from_what_is_judged(made, clipped, contrast):
    node = made.node(judged=Judged(amount=1.2, limit=1.5, unit="LSB"), clipping=made.stats(max_lsb=139.0))
    rails = (
        None if clipped is None else Rails(at_qmin=0, at_qmax=9, clipped_low=0, clipped_high=clipped, floor=0, total=20)
    )
    node = replace(node, saturation=rails)
    assert judged_words(node) == "1.2 LSB, limit 1.5 LSB"
    assert clipping_words(node) == f"cuts up to 139 LSB off the backend's own results{contrast}"
    assert node_row(node).cells["clipping"].text == "+139 LSB"


def test_a_node_that_clips_nothing_has_no_line_on_it(made):
    assert clipping_words(made.node()) is None
    assert clipping_words(made.node(clipping=made.stats(max_abs=0.0, max_lsb=0.0))) is None


def test_every_failing_row_has_what_its_finding_is_about(made):
    kinds = (FindingKind.MISSING_NODE, FindingKind.ARITHMETIC)
    found = [Finding(kind=kind, role=FindingRole.BREACH, node="conv0", sentence=f"it is {kind}") for kind in kinds]
    wrong = made.node(status=Status.DIVERGED, reason=f"{found[1].sentence}: and more", findings=tuple(found))
    cells = node_row(wrong).cells
    assert (cells["why"].text, cells["reason"].text) == ("missing node", "it is arithmetic: and more")
    assert node_row(made.node(findings=tuple(found))).cells["why"].text == "-"
    cut = replace(found[0], kind=FindingKind.SATURATION)
    assert node_row(replace(wrong, findings=(cut,))).cells["why"].text == "clipping"


def test_the_node_that_introduces_most_is_worse_than_one_that_passes_on_more(made):
    passes_on = made.node(0, metrics=made.stats(sqnr_db=5.0), introduced=made.stats(sqnr_db=60.0))
    introduces = made.node(1, metrics=made.stats(sqnr_db=15.0), introduced=made.stats(sqnr_db=16.0))
    assert min([passes_on, introduces], key=badness) is introduces


def test_titles_and_positions():
    assert metric_title("sqnr_db") == "SQNR dB"
    assert metric_title("at_qmin") == "at qmin"
    assert position(()) == "()"
    assert position(None) == "-"
    assert position((1, 2)) == "1,2"


def test_an_acknowledged_node_keeps_its_status_and_says_that_it_does_not_count(made):
    said = Acknowledgement(node="conv0", reason="known")
    excused = node_row(made.node(0, Status.DIVERGED, acknowledged=said)).cells["status"]
    assert (excused.text, excused.value, excused.state) == ("diverged (ack)", "diverged", "warn")
    assert node_row(made.node(0, Status.WITHIN, acknowledged=said)).cells["status"].text == "within"
    expired = replace(said, expires="2020-01-01", expired=True)
    assert node_row(made.node(0, Status.DIVERGED, acknowledged=expired)).cells["status"].text == "diverged"
