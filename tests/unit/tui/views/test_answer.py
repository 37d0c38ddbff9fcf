"""The overview: whom it ranks first, what it says where nothing is known, and its keys."""

import math
from dataclasses import replace

import numpy as np
import pytest

from qdebug.compare.result.diagnosis import Diagnosis, FaultClass, OutputGain, Remedy
from qdebug.compare.result.finding import Status
from qdebug.compare.result.result import Contributor
from qdebug.tui.drawing.glyphs import UNICODE
from qdebug.tui.nodes.columns import metric_text
from qdebug.tui.nodes.filter import filter_rows
from qdebug.tui.nodes.rows import State
from qdebug.tui.screen.jumps import go_to_origin
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.answer import culprits, strip_lines
from qdebug.tui.views.elements import ElementCursor
from qdebug.tui.views.table import Views


def text(lines):
    return "\n".join("".join(piece for piece, _ in line) for line in lines)


@pytest.fixture
def pages():
    """Return new pages."""
    return Views(ElementCursor())


def test_culprits_are_ranked_by_what_to_look_at_first(make_table):
    table = make_table(24, nonfinite=(20,))
    ranked = culprits(table, origin=17).tolist()
    assert ranked[:4] == [17, 9, 20, 10]  # 9 is the first divergence
    table.acknowledged[9] = True
    assert culprits(table, origin=None).tolist().index(9) > 2


def test_a_cursor_on_none_of_the_culprits_is_shown_below_them(pages, make_scene):
    scene, page = make_scene(row=9), pages[ScreenId.ANSWER]
    assert "not one of these" not in text(page.draw(scene, 60, 12))
    apart = next(row for row in range(scene.table.ordered) if row not in page.culprit_rows(scene))
    scene.navigator.go(apart)
    for height in (6, 12):
        drawn = text(page.draw(scene, 60, height)).splitlines()
        assert len(drawn) <= height
        assert drawn[-3] == " not one of these; enter opens it, j goes to the first:"
        assert drawn[-2].startswith("▸")
        assert f"#{scene.table.compared_number(apart)} " in drawn[-2]


@pytest.mark.parametrize("width", [60, 70, 80, 100, 140])
def test_culprits_keep_their_names_in_a_narrow_terminal(pages, make_scene, width):
    drawn = text(pages[ScreenId.ANSWER].draw(make_scene(), width, 18))
    assert "add_9" in drawn
    assert "introduced" in drawn
    assert max(map(len, drawn.splitlines())) <= width


def test_where_it_is_not_known_what_nodes_add_their_whole_error_ranks_them(make_scene, pages):
    scene = make_scene(failing=(), incomparable=())
    table = scene.table
    table.values("introduced")[:] = np.nan
    table.values("rel_l2")[:] = 0.0
    table.values("rel_l2")[[3, 8]] = 0.1, 0.4
    assert culprits(table, None).tolist() == [8, 3]
    table.values("introduced")[5] = 1e-6
    assert culprits(table, None).tolist() == [5, 8, 3]
    table.version += 1
    drawn = text(pages[ScreenId.ANSWER].draw(scene, 80, 18))
    assert "no node adds any error" not in drawn
    assert "0.00631          -" in next(line for line in drawn.splitlines() if "_8 " in line)


def test_introduced_and_whole_error_have_one_unit(pages, make_scene):
    scene = make_scene()
    head, first = text(pages[ScreenId.ANSWER].draw(scene, 100, 18)).splitlines()[:2]
    for title, value in (("introduced", scene.table.values("introduced")[9]), ("LSB", 12.5)):
        end = head.index(title) + len(title)
        assert float(first[:end].split()[-1]) == pytest.approx(value, rel=0.01), title


def test_an_identical_node_is_no_culprit(make_table):
    table = make_table(failing=(9,))
    assert culprits(table, None)[0] == 9
    table.state[9] = State.IDENTICAL
    assert 9 not in culprits(table, None)


def test_a_little_clipping_is_a_little_bar(make_navigator):
    navigator = make_navigator()
    navigator.table.values("clipped")[:] = 0.0
    navigator.table.values("clipped")[4] = 0.004
    drawn = "".join(piece for piece, _ in strip_lines(navigator, 60, UNICODE)[1])
    assert UNICODE.eighths[1] in drawn
    assert not any(high in drawn for high in UNICODE.eighths[2:])


def test_the_first_divergence_leads_though_nobody_knows_what_it_adds(make_table):
    table = make_table(3000, failing=tuple(range(1000, 2500)), incomparable=())
    table.values("introduced")[1000] = np.nan
    table.values("introduced")[2400] = 1.0
    assert culprits(table, None)[:2].tolist() == [1000, 2400]
    assert culprits(table, 2200)[:3].tolist() == [2200, 1000, 2400]


def test_a_metric_that_is_nan_is_not_shown_as_missing(pages, make_scene):
    scene = make_scene()
    result = scene.outcome
    scene.table.put(replace(result, metrics=replace(result.metrics, rel_l2=math.nan, sqnr_db=math.nan)))
    scene.table.version += 1
    line = text(pages[ScreenId.ANSWER].draw(scene, 80, 18)).splitlines()[1]
    assert "NaN" in line.split()
    assert metric_text(scene.table, 9, "sqnr_db") == "NaN"
    samples = tuple(replace(one, sqnr_db=math.nan) for one in result.samples)
    scene.table.put(replace(result, samples=samples))
    assert metric_text(scene.table, 9, "sqnr_db", 1) == "NaN"
    assert metric_text(scene.table, 5, "sqnr_db") == "-"


def test_many_culprits_are_cut_to_the_worst(make_table):
    table = make_table(3000, failing=(2999,))
    assert culprits(table, None)[0] == 2999
    assert len(culprits(table, None)) == 200


def test_the_overview_moves_among_culprits(pages, make_scene):
    page, scene = pages[ScreenId.ANSWER], make_scene(row=3)
    drawn = text(page.draw(scene, 80, 18))
    assert "!* #9 block2/qlinearadd_9" in drawn
    assert "compared 24 of 24" in drawn
    page.move(scene, -1_000_000)
    assert scene.row == 9
    assert page.move(scene, 1) == ""
    assert scene.row == 10
    page.move(scene, -1_000_000)
    assert "worst culprit" in page.move(scene, -1)
    page.move(scene, 1_000_000)
    assert "last culprit" in page.move(scene, 1)
    scene.navigator.go(0)
    assert "begins" in page.side(scene, -1)
    assert "profile" in page.side(scene, 1)
    assert scene.row == 1


def test_where_nothing_could_be_compared_no_node_is_called_right(pages, make_scene):
    scene = make_scene(4, failing=(), incomparable=range(4), row=1)
    drawn = text(pages[ScreenId.ANSWER].draw(scene, 80, 18))
    assert "no node adds any error" not in drawn
    assert "no error where there was something to compare; f is=missing lists the rest" in drawn


def test_the_first_row_is_the_node_that_the_verdict_says_costs_the_output_most(pages, make_scene):
    scene = make_scene(failing=(), incomparable=())
    assert " dB" not in text(pages[ScreenId.ANSWER].draw(scene, 100, 18))
    known = [(7, 3.05, "exact"), (4, 17.5, "exact"), (2, 1.0, "bounded")]
    rows = scene.table.rows
    contributors = tuple(
        Contributor(node=rows[at].node, tensor=rows[at].tensor, output="out", sqnr_db=level, how=how)
        for at, level, how in known
    )
    verdict = replace(scene.result.verdict, status=Status.ACCUMULATED, contributors=contributors)
    scene = replace(scene, result=replace(scene.result, verdict=verdict))
    scene.table.conclude(scene.result)
    page = pages[ScreenId.ANSWER]
    assert page.rows(scene)[:2] == [7, 4]
    assert np.flatnonzero(filter_rows("worst_db<10dB", scene.table)).tolist() == [7]
    assert not filter_rows("worst_db<10dB", make_scene().table).any(), "there is no verdict, or it knows no cost"
    lines = text(page.draw(scene, 80, 18)).splitlines()
    assert "alone dB" in lines[0]
    assert " 3.05 " in next(line for line in lines if "#7 " in line)
    scene.navigator.go(0)
    assert go_to_origin(scene).startswith("the largest cause is here (its error alone leaves the output 3.05 dB)")
    assert scene.row == 7, "nothing leads up from the start: the costliest node of all"
    scene.navigator.go(20)
    assert go_to_origin(scene).startswith(
        "the largest cause, 13 edges up (its error alone leaves the output 3.05 dB): no node is beyond its limit"
    )
    assert go_to_origin(scene).startswith("the largest cause is here (its error alone leaves the output 3.05 dB)")
    scene.navigator.go(5)
    said = go_to_origin(scene)
    found = "the largest cause, 1 edge up (its error alone leaves the output 17.5 dB)"
    assert said.startswith(found), "7 does not lead there"
    assert "of the nodes above the start, this one's error" in said, "it is not what costs the output most"


def test_a_marked_node_has_its_sign(pages, make_scene):
    scene = make_scene()
    scene.navigator.trail.toggle(10)
    line = next(line for line in text(pages[ScreenId.ANSWER].draw(scene, 80, 18)).splitlines() if "#10 " in line)
    assert line.lstrip().startswith("'*")


def test_nodes_of_the_diagnosis_come_first_with_share_and_reason(pages, make_scene):
    scene = make_scene(failing=(9,), incomparable=())
    rows = scene.table.rows
    faults = tuple(
        Diagnosis(
            fault=FaultClass.QUANTIZATION, kind=None, node=rows[at].node, op=rows[at].op, tensor=rows[at].tensor,
            model_node=None, why=f"one scale for {at} channels", share={"y": share},
        )
        for at, share in ((7, 0.61), (4, 0.043), (2, None))
    )  # fmt: skip
    scene = replace(scene, result=replace(scene.result, diagnosis=faults))
    scene.table.conclude(scene.result)
    page = pages[ScreenId.ANSWER]
    assert page.rows(scene)[:3] == [7, 4, 2]
    assert 9 in page.rows(scene), "what fails stays in the list"
    head, *drawn = text(page.draw(scene, 100, 18)).splitlines()
    assert head.split()[:5] == ["SQNR", "dB", "share", "of", "y"]
    for line, share, at in zip(drawn, ("61 %", "4 %", " - "), (7, 4, 2), strict=False):
        assert share in line
        assert f"#{at} " in line
        assert f"one scale for {at} channels" in line
    assert all(len(line) <= 40 for line in text(page.draw(scene, 40, 10)).splitlines())


def test_the_share_that_is_left_stands_below_the_nodes_that_were_tried_together(pages, make_scene):
    scene = make_scene(failing=(9,), incomparable=())
    rows = scene.table.rows
    tried = Remedy(
        edit="float a, float b", what="", gains=(OutputGain(output="y", db=10.0),), samples=1, cost="", command="",
        nodes=2,
    )  # fmt: skip
    faults = tuple(
        Diagnosis(
            fault=FaultClass.QUANTIZATION, kind=None, node=rows[at].node, op=rows[at].op, tensor=rows[at].tensor,
            model_node=None, why="", share={"y": share}, remedies=(tried,) if at == 7 else (),
        )
        for at, share in ((7, 0.5), (4, 0.1), (2, 0.4))
    )  # fmt: skip
    scene = replace(scene, result=replace(scene.result, diagnosis=faults))
    scene.table.conclude(scene.result)
    page = pages[ScreenId.ANSWER]
    scene.navigator.go(7)
    drawn = text(page.draw(scene, 80, 18)).splitlines()
    assert drawn[3].split() == ["10", "%", "left", "if", "the", "first", "2", "are", "in", "float"]
    assert page.click(scene, 0, 3) is None
    assert page.click(scene, 0, 4) == ""
    assert scene.row == 2, "the line after it is the third node"
    page.draw(scene, 80, 18)
    page.click(scene, 0, 2)
    assert scene.row == 4
    assert not any("left if" in line for line in text(page.draw(scene, 80, 5)).splitlines()), "no room"
