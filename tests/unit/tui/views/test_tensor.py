import math
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from rich.cells import cell_len

from qdebug.compare.measure.pair_values import OpenPair
from qdebug.compare.result.finding import Status
from qdebug.compare.result.limits import Acknowledgement
from qdebug.model import Graph, TensorInfo
from qdebug.numerics.stats import WorstElement
from qdebug.tui.drawing.glyphs import ASCII, UNICODE
from qdebug.tui.elements.values import value_facts
from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.nodes.rows import NodeTable, PlannedRow
from qdebug.tui.reading.messages import DetailReady, DetailRequest
from qdebug.tui.views.tensor import detail_lines
from qdebug.tui.views.view import Scene


def said(lines):
    return "\n".join("".join(text for text, _ in line) for line in lines)


def lines_of(navigator, ready, width, glyphs, *, dtype="float32"):
    """Draw the row under the cursor, of graphs that know its tensors' types."""
    row = navigator.table.rows[navigator.cursor]
    ours = TensorInfo(name=row.tensor, dtype="int8", quant=row.quant)
    theirs = TensorInfo(name=row.reference_tensor, dtype=dtype)
    opened = SimpleNamespace(
        backend_graph=Graph([], tensors=[ours]), reference_graph=Graph([], tensors=[theirs] if theirs.name else [])
    )
    scene = Scene(navigator=navigator, opened=opened, result=None, ready=ready, glyphs=glyphs)
    return detail_lines(scene, width)


@pytest.fixture
def ready():
    """Return a function that makes a complete answer for a result."""

    def make(result, *, sample=None, problem=""):
        worst = tuple(
            WorstElement(
                index=(0, i, 2, 1),
                sample=2,
                reference=1.0,
                backend=0.5 - i,
                difference=-0.5 - i,
                lsb=-10.0 - i,
                reference_code=None,
                backend_code=7,
            )
            for i in range(5)
        )
        values = np.linspace(-1, 1, 50)
        return DetailReady(
            request=DetailRequest(row=result.index, tensor=result.tensor, sample=sample),
            profile=SimpleNamespace(worst=worst),
            values=None if problem else value_facts(OpenPair(values, values.reshape(5, 10) + 0.1)),
            values_sample=2,
            is_complete=True,
            problem=problem,
        )

    return make


def test_a_failing_node_says_why_and_shows_both_sides(make_navigator, ready):
    navigator = make_navigator(24, failing=(9,))
    navigator.go(9)
    text = said(lines_of(navigator, ready(navigator.table.results[9]), 78, UNICODE))
    assert "! first divergence, diverged: SQNR" in text
    assert "paired (exact): both graphs name it so" in text
    for label in ("reference", "backend", "scale / zero point", "min .. max", "mean, std", "histogram", "5x10"):
        assert label in text
    assert "at qmax 2 (1.4 %)" in text
    assert "worst elements of sample 2" in text
    assert "0,4,2,1" in text
    assert "worst SQNR: sample 2 of 0..2: diverged" in text


def test_what_is_cut_off_of_the_backend_is_said_though_the_reference_is_in_range(make_navigator, ready):
    navigator = make_navigator(24)
    result = navigator.table.results[9]
    rails, cut = replace(result.saturation, clipped_low=0, clipped_high=0), replace(result.metrics, max_lsb=63.5)
    result = replace(result, saturation=rails, clipping=cut)
    navigator.table.results[9] = result
    navigator.go(9)
    text = said(lines_of(navigator, ready(result), 78, UNICODE))
    assert "clipped nothing of the reference" in text
    assert "cut off the backend's own results up to 63.5 LSB" in " ".join(text.split())


@pytest.mark.parametrize("clipped", [0, 1])
def test_the_codes_say_whether_anything_is_lost_by_it(make_navigator, ready, clipped):
    navigator = make_navigator(24)
    result = navigator.table.results[9]
    result = replace(result, saturation=replace(result.saturation, clipped_high=clipped))
    navigator.table.results[9] = result
    navigator.go(9)
    text = said(lines_of(navigator, ready(result), 78, UNICODE))
    assert ("clipped nothing of the reference" in text) is not bool(clipped)
    assert ("above range 1 (0.69 %)" in text) is bool(clipped)


def test_the_ground_of_a_pair_is_said_to_its_end(make_navigator, ready):
    navigator = make_navigator(24)
    reason = "the weights have a BatchNormalization folded in; " * 4 + "that is the end"
    result = replace(navigator.table.results[9], confidence=0.9, match_reason=reason)
    navigator.table.results[9] = result
    navigator.go(9)
    assert "that is the end" in said(lines_of(navigator, ready(result), 60, UNICODE))


def test_before_the_values_come_the_comparison_is_there(make_navigator):
    navigator = make_navigator()
    navigator.go(3)
    text = said(lines_of(navigator, None, 78, UNICODE))
    assert "reading values" in text
    assert "SQNR 46" in text


def test_a_row_that_waits_says_so(make_navigator):
    navigator = make_navigator(filled=4)
    navigator.go(20)
    text = said(lines_of(navigator, None, 78, UNICODE))
    assert "pending" in text
    assert "topological order" in text


def test_what_is_not_compared_gives_the_reason(make_navigator, ready):
    navigator = make_navigator()
    navigator.go(5)
    answer = ready(navigator.table.results[5], problem="values of sample 0 cannot be shown: shapes differ")
    text = said(lines_of(navigator, answer, 78, UNICODE))
    assert "not compared: shape (1, 4, 6, 6) against (1, 6, 6, 5)" in text
    assert "shapes differ" in text
    navigator.go(navigator.table.find("loose_out"))
    assert "no tensor of the reference fits" in said(lines_of(navigator, None, 78, UNICODE))


def test_a_chosen_sample_is_the_one_described(make_navigator, ready):
    navigator = make_navigator()
    navigator.go(9)
    navigator.choose_sample(1)
    text = said(lines_of(navigator, ready(navigator.table.results[9], sample=1), 100, UNICODE))
    assert "shown: sample 1 of 0..2: diverged" in text


@pytest.mark.parametrize("width", [36, 38, 58, 70, 78, 140])
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_no_line_is_wider_than_the_panel(make_navigator, ready, width, glyphs):
    navigator = make_navigator(24, names=("a/very/long/name/" * 9,), nonfinite=(3,))
    for row in (0, 3, 5, 9, 24, 25):
        navigator.go(row)
        result = navigator.table.results[row]
        lines = lines_of(navigator, None if result is None else ready(result), width, glyphs)
        for line in said(lines).splitlines():
            assert cell_len(line.rstrip()) <= width
            assert glyphs is UNICODE or line.isascii()


def test_hostile_names_are_harmless(make_table):
    name = "\x1b]52;c;x\x07[@click=app.quit]\u202e"
    row = PlannedRow(node=name, op=name, tensor=name, reference_tensor=name, missing=name)
    text = said(lines_of(Navigator(NodeTable([row])), None, 60, UNICODE))
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_where_there_is_little_room_both_values_stay_and_what_can_be_looked_up_goes(make_navigator, ready):
    navigator = make_navigator(24, failing=(9,))
    navigator.go(9)
    for width in (44, 52, 58, 64):
        text = said(lines_of(navigator, ready(navigator.table.results[9]), width, UNICODE))
        assert re.search(r"index +(sample +)?reference +backend", text.partition("worst elements")[2])


@pytest.mark.parametrize(
    ("dtype", "shown"), [("int64", "-1 .. 1"), ("bool", "-1 .. 1"), ("float32", "-1.000 .. 1.000")]
)
def test_extremes_of_integers_are_integers(dtype, shown, make_navigator, ready):
    navigator = make_navigator(4)
    navigator.go(1)
    made = ready(navigator.table.results[1])
    text = said(lines_of(navigator, made, 78, UNICODE, dtype=dtype))
    assert re.search(rf"min .. max +{re.escape(shown)} ", text)


@pytest.mark.parametrize(("status", "level"), [(Status.NONFINITE, math.nan), (Status.DIVERGED, -math.inf)])
def test_an_error_without_a_finite_level_is_no_absence_of_error(status, level, make_navigator, ready):
    navigator = make_navigator(24, failing=(9,))
    navigator.go(9)
    result = navigator.table.results[9]
    samples = tuple(replace(one, status=status, sqnr_db=level) for one in result.samples)
    navigator.table.put(replace(result, samples=samples))
    text = said(lines_of(navigator, ready(navigator.table.results[9]), 78, UNICODE))
    assert "no error" not in text
    assert UNICODE.eighths[-1] * 3 in text
    calm = tuple(replace(one, status=Status.IDENTICAL, sqnr_db=math.inf) for one in result.samples)
    navigator.table.put(replace(result, samples=calm))
    assert "no error" in said(lines_of(navigator, ready(navigator.table.results[9]), 78, UNICODE))


def test_the_sample_that_is_shown_is_told_from_the_noisiest(make_navigator, ready):
    navigator = make_navigator(24, failing=(9,))
    navigator.go(9)
    shown = ready(navigator.table.results[9])
    text = said(lines_of(navigator, shown, 100, UNICODE))
    assert "sample 2, largest max abs" in text
    assert "worst SQNR: sample 2" in text
    navigator.choose_sample(0)
    assert "sample 0, chosen" in said(lines_of(navigator, replace(shown, values_sample=0), 140, UNICODE))


@pytest.mark.parametrize("width", [44, 100])
def test_of_several_steps_it_is_said_which_one_values_and_elements_are_of(width, make_table, ready):
    table = make_table(24, failing=(9,))
    navigator = Navigator(table, samples=3, steps=2)
    navigator.go(9)
    shown = ready(table.results[9])
    worst = tuple(replace(element, step=at % 2) for at, element in enumerate(shown.worst))
    shown = replace(shown, profile=SimpleNamespace(worst=worst))
    text = said(lines_of(navigator, shown, width, UNICODE))
    assert "sample 2, step 0" in text
    assert "worst elements of sample 2, all 2 steps" in text
    row = next(line for line in text.splitlines() if line.lstrip().startswith("0,3,2,1"))
    assert row.split()[1] == "1"


def test_an_acknowledged_node_is_not_said_to_fail_and_says_why(make_table, ready):
    table = make_table(24, failing=(9,))
    accepted = Acknowledgement(node=table.rows[9].node, reason="known bug", expires="2999-01-31")
    table.put(replace(table.results[9], acknowledged=accepted))
    navigator = Navigator(table, samples=3)
    navigator.go(9)
    text = said(lines_of(navigator, ready(table.results[9]), 78, UNICODE))
    assert "~ diverged: SQNR" in text
    assert "* diverged" not in text
    assert "acknowledged: known bug, until 2999-01-31" in text
