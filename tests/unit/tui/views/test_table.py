"""Every screen that draws a page: it fits, it says what it must, and its keys move."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from sweeps import sweep

from qdebug.compare.explaining.explanation import ExplainStatus, NodeExplanation
from qdebug.compare.result.finding import Status
from qdebug.model import Graph
from qdebug.present.rows import position
from qdebug.tui.drawing.glyphs import ASCII, UNICODE
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.elements import ElementCursor
from qdebug.tui.views.table import Views, view_class
from qdebug.tui.views.view import DrawnView, fit_lines, heading

HOSTILE = ("[/foo]", "\x1b]0;x\x07esc", "\u202ertl\nline", "x" * 5000, "畳み込み" * 40)


def text(lines):
    return "\n".join("".join(piece for piece, _ in line) for line in lines)


WITH_PAGE = [view for view in ScreenId if issubclass(view_class(view), DrawnView)]


@pytest.fixture
def pages():
    """Return new pages."""
    return Views(ElementCursor())


@pytest.mark.parametrize("size", [(60, 12), (80, 18), (120, 34), (200, 56)])
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=["unicode", "ascii"])
@pytest.mark.parametrize("row", sweep([0, 2, 5, 9, 24, 25], 2))
def test_every_page_fits_and_is_clean(pages, make_scene, size, glyphs, row):
    scene = make_scene(row=row, glyphs=glyphs, names=HOSTILE, colours=glyphs is UNICODE)
    scene.table.rows = [replace(each, op=f"{each.op}\x1b[31m\u202e") for each in scene.table.rows]
    for view, page in [(each, pages[each]) for each in WITH_PAGE]:
        lines = page.draw(scene, *size)
        assert len(lines) <= size[1] + 1, view
        drawn = text(lines[: size[1]])
        assert "\x1b" not in drawn
        assert "\u202e" not in drawn
        assert glyphs is UNICODE or drawn.isascii(), view
        for line in drawn.splitlines():
            assert len(line) <= size[0] + 2, (view, line)


def test_what_a_screen_has_no_room_for_is_counted():
    lines = [[(str(line), "plain")] for line in range(5)]
    assert fit_lines(lines, 5) == lines
    assert text(fit_lines(lines, 3)) == "0\n1\n .. 3 more lines in a taller terminal"
    assert fit_lines(lines, 0) == []


def test_in_a_low_terminal_the_histogram_of_values_gives_way_to_the_element(pages, make_scene):
    scene, page = make_scene(row=9), pages[ScreenId.VALUES]
    assert "log counts" in text(page.draw(scene, 80, 18))
    low = text(page.draw(scene, 60, 12))
    assert len(low.splitlines()) <= 12
    assert "log counts" not in low
    assert "of -128..127" in low


def test_every_screen_that_names_a_page_has_one_that_stays_the_same(pages):
    assert [view for view in ScreenId if view not in {ScreenId.NODES, ScreenId.TENSOR}] == WITH_PAGE
    assert all(pages[view].view is view and pages[view] is pages[view] for view in WITH_PAGE)


def test_before_anything_is_compared_each_page_says_so(pages, make_scene):
    scene = make_scene(filled=0, row=3)
    for view in WITH_PAGE:
        drawn = text(pages[view].draw(scene, 80, 18))
        words = ("so far", "pending", "not compared", "its turn", "one backend")
        assert any(word in drawn for word in words), view


def test_a_tensor_without_partner_says_why_everywhere(pages, make_scene):
    scene = make_scene(row=25)
    for view in (ScreenId.VALUES, ScreenId.CHANNELS, ScreenId.MAP, ScreenId.WHY):
        assert "computed inside QLinearConv" in text(pages[view].draw(scene, 100, 18)), view


def test_the_graph_walks_along_edges(pages, make_scene):
    page, scene = pages[ScreenId.GRAPH], make_scene(row=9)
    drawn = text(page.draw(scene, 120, 30))
    assert "qlinearconv_8" in drawn
    assert "relu_10" in drawn
    assert "own" in drawn
    assert "at block2/qlinearconv_8" in page.side(scene, -1)
    assert scene.row == 8
    page.side(scene, 1)
    assert "the node itself" in page.move(scene, -1)
    assert page.move(scene, 1) == ""
    page.move(scene, 99)
    assert "last one" in page.move(scene, 1)
    page.side(scene, 1)
    assert scene.row == 10
    assert "history" in text(page.draw(scene, 80, 18))
    assert scene.navigator.trail.rows == (9, 8, 9, 10)
    scene.navigator.go(0)
    assert "not in the list" in page.side(scene, -1)
    scene.navigator.go(23)
    assert "no node reads" in page.side(scene, 1)


def test_values_share_one_cursor_and_name_its_element(pages, make_scene):
    page, scene = pages[ScreenId.VALUES], make_scene()
    drawn = text(page.draw(scene, 80, 20))
    assert "reference" in drawn
    assert "backend" in drawn
    assert "ref -> backend (diff" in drawn
    assert "@0,0,0,1" in drawn, "it starts at the worst element"
    assert "element 1 of the 8 worst in sample 2" in drawn, "of which sample they are the worst"
    assert "LSB" in drawn
    assert drawn.count("▸") == 1
    assert page.move(scene, 2) == ""
    assert page.side(scene, 1) == ""
    assert "@0,0,2,2" in text(page.draw(scene, 80, 20))
    page.move(scene, 99)
    assert "ends here" in page.move(scene, 1)
    assert "deepest" in page.enter(scene)


def test_values_as_codes_and_hex(pages, make_scene):
    cursor = ElementCursor()
    page, scene = Views(cursor)[ScreenId.VALUES], make_scene()
    page.draw(scene, 80, 20)
    assert cursor.next_form(scene) == "stored codes"
    cursor.jump(scene, "0,0,0,0")
    assert " -31 " in text(page.draw(scene, 80, 20))
    cursor.next_form(scene)
    assert " e1 " in text(page.draw(scene, 80, 20)), "-31 as two's complement"
    assert "bfc00000" in text(page.draw(scene, 80, 20)), "-1.5 as a float32"


def test_a_clipped_element_is_named_and_marked(pages, make_scene):
    codes = np.array([[127, 3]], dtype=np.int8)
    arrays = (np.array([[9.0, 0.3]], dtype=np.float32), np.array([[6.5, 0.3]], dtype=np.float32), None, codes)
    scene = make_scene(arrays=(*arrays, None, make_scene().plan_row.quant))
    cursor = ElementCursor()
    page = Views(cursor)[ScreenId.VALUES]
    page.draw(scene, 80, 20)
    cursor.jump(scene, "0,0")
    assert "CLIPPED, at qmax" in text(page.draw(scene, 80, 20))
    cursor.jump(scene, "0,1")
    assert re.search(r"\^ *9\.\d* -> +6\.5", text(page.draw(scene, 80, 20)))


def test_a_code_at_an_end_that_cuts_nothing_off_is_not_marked(make_scene):
    quant = make_scene().plan_row.quant
    codes = np.array([[quant.qmax, 3]], dtype=np.int8)
    real = (codes * quant.scale).astype(np.float32)
    scene, cursor = make_scene(arrays=(real, real, None, codes, None, quant)), ElementCursor()
    page = Views(cursor)[ScreenId.VALUES]
    page.draw(scene, 120, 20)
    cursor.jump(scene, "0,1")
    assert "^" not in text(page.draw(scene, 120, 20)).split("^: clipped")[1]
    cursor.jump(scene, "0,0")
    drawn = text(page.draw(scene, 120, 20))
    assert ", at qmax" in drawn
    assert "CLIPPED" not in drawn


@pytest.mark.parametrize(("theirs", "said"), [(5.0, "AT QMIN, where the reference is not"), (-0.7, "a Relu's zero")])
def test_a_zero_behind_a_relu_is_named_by_what_the_reference_has(pages, make_scene, theirs, said):
    quant = make_scene().plan_row.quant
    codes = np.array([[quant.qmin, 3]], dtype=np.int8)
    quant = replace(quant, zero_point=np.array([quant.qmin]))
    arrays = (np.array([[theirs, 0.3]], dtype=np.float32), np.array([[0.0, 0.3]], dtype=np.float32), None, codes)
    scene = make_scene(arrays=(*arrays, None, quant))
    cursor = ElementCursor()
    page = Views(cursor)[ScreenId.VALUES]
    page.draw(scene, 80, 20)
    cursor.jump(scene, "0,0")
    assert said in " ".join(text(page.draw(scene, 120, 20)).split())


@pytest.mark.parametrize(
    ("ends", "there"), [((0.3, 0.2), []), ((9.0, 0.2), [(0, 0), (0, 0)]), ((9.0, -9.0), [(0, 2), (0, 0)])]
)
def test_clipped_elements_are_walked_around(make_scene, ends, there):
    codes = np.array([[127, 3, -128]], dtype=np.int8)
    values = np.array([[ends[0], 0.3, ends[1]]], dtype=np.float32)
    scene, cursor = make_scene(arrays=(values, values, None, codes, None, make_scene().plan_row.quant)), ElementCursor()
    cursor.jump(scene, "0,1")
    said = [cursor.next_clipped(scene) for _ in there or [0]]
    if not there:
        assert said == ["no element is clipped in sample 2; 1 in all: . and , go through them"]
        assert cursor.index == (0, 1)
    else:
        many = len({*there})
        assert said == [f"clipped element {2 if at == (0, 2) else 1} of {many}" for at in there]
        assert cursor.index == there[-1]
    plain = make_scene(arrays=(values, values))
    assert ElementCursor().next_clipped(plain) == "the backend has no codes here: nothing is clipped"


@pytest.mark.parametrize(
    "arrays",
    [
        (np.float32(1.5), np.float32(2)),
        (np.zeros(0, np.float32), np.zeros(0, np.float32)),
        (np.zeros((3, 0, 2), np.float32), np.zeros((3, 0, 2), np.float32)),
        (np.arange(5.0), np.array([0, 1, np.nan, np.inf, 4])),
        (np.ones((2, 3, 4, 5, 6, 7), np.float32), np.zeros((2, 3, 4, 5, 6, 7), np.float32)),
        (np.ones((1, 1, 700, 900), np.float32), np.zeros((1, 1, 700, 900), np.float32)),
        (np.array([[True, False]]), np.array([[True, True]])),
    ],
    ids=["scalar", "empty", "empty-middle", "not-finite", "six", "large", "bool"],
)
def test_any_shape_can_be_looked_at(pages, make_scene, arrays):
    scene = make_scene(arrays=tuple(map(np.asarray, arrays)))
    for view in (ScreenId.VALUES, ScreenId.CHANNELS, ScreenId.MAP):
        for _ in range(2):
            assert pages[view].draw(scene, 80, 18)
            for act in (pages[view].move, pages[view].side):
                assert isinstance(act(scene, 1), str)
        if view is ScreenId.MAP:
            pages[view].next_form(scene)
            assert pages[view].draw(scene, 80, 18)


def test_what_is_true_or_false_is_one_or_zero_and_one_channel_is_one(pages, make_scene):
    scene = make_scene(arrays=(np.array([[[True, False]]]), np.array([[[True, True]]])))
    values = text(pages[ScreenId.VALUES].draw(scene, 80, 18)).replace("▸", " ").replace("^", " ")
    assert ["0", "1", "->", "1", "(0)", "0", "->", "1", "(1)"] in [line.split() for line in values.splitlines()]
    assert "\n 1 channel along dimension 1" in text(pages[ScreenId.CHANNELS].draw(scene, 80, 18))


def test_channels_are_listed_by_error_with_their_scale(pages, make_scene):
    reference = np.zeros((1, 4, 2, 2), np.float32)
    backend = reference + np.array([0.1, 3, 0.2, 0], np.float32).reshape(1, 4, 1, 1)
    scene = make_scene(arrays=(reference, backend, None, None, None, make_scene().plan_row.quant))
    page = pages[ScreenId.CHANNELS]
    lines = text(page.draw(scene, 100, 18)).splitlines()
    assert [line.split()[0].lstrip("▸") for line in lines[2:6]] in (["1", "2", "0", "3"], ["1", "2", "", "3"])
    assert "scale" in lines[1]
    assert "99%" in lines[2]
    assert page.enter(scene) is ScreenId.MAP
    assert "by number" in page.reorder(scene)
    assert "channel" in page.move(scene, -99) or page.move(scene, -99)


def test_the_map_shows_where_and_follows_the_cursor(pages, make_scene):
    reference = np.zeros((1, 2, 8, 8), np.float32)
    backend = reference.copy()
    backend[0, 1, 4, 5] = 2
    scene = make_scene(arrays=(reference, backend))
    cursor = ElementCursor()
    page = Views(cursor)[ScreenId.MAP]
    page.draw(scene, 80, 18)
    cursor.jump(scene, "0,1,4,5")
    drawn = page.draw(scene, 80, 18)
    assert "100 % of the error" in text(drawn)
    assert "down: rows 0..7" in text(drawn)
    assert f"backend - ref {backend[0, 1, 4, 5] - reference[0, 1, 4, 5]:+.4g}" in text(drawn)
    assert any(style == "first" for line in drawn for _, style in line)
    assert "an element: 4 x 4 tiles" in text(drawn)
    page.move(scene, 1)
    assert cursor.index == (0, 1, 5, 5)
    page.next_form(scene)
    assert "down: channels 0..1" in text(page.draw(scene, 80, 18))
    page.move(scene, -1)
    assert cursor.index == (0, 0, 5, 5)
    assert page.enter(scene) is ScreenId.VALUES


def test_a_flat_plane_is_drawn_as_large_as_there_is_room(pages, make_scene):
    reference = np.zeros((1, 2, 96), np.float32)
    backend = reference.copy()
    backend[0, 1, 40] = 2
    scene = make_scene(arrays=(reference, backend))
    drawn = text(pages[ScreenId.MAP].draw(scene, 80, 18))
    assert "in stretches of 48" in drawn
    assert sum("▀" * 40 in line for line in drawn.splitlines()) >= 8


def test_without_colours_the_map_says_the_same(pages, make_scene):
    reference = np.zeros((1, 1, 4, 4), np.float32)
    backend = reference.copy()
    backend[0, 0, 1, 2], backend[0, 0, 3, 3] = 2, np.nan
    scene = make_scene(arrays=(reference, backend), colours=False)
    drawn = text(pages[ScreenId.MAP].draw(scene, 80, 18))
    assert "█" in drawn
    assert "!" in drawn


def test_the_median_of_an_even_number_of_samples_lies_between_the_middle_two(pages, make_scene):
    assert "worst 43.0, median 43.5, best 44.0 dB" in text(
        pages[ScreenId.SAMPLES].draw(make_scene(row=8, samples=2), 90, 18)
    )
    assert "median 43.0" in text(pages[ScreenId.SAMPLES].draw(make_scene(row=8, samples=3), 80, 18))


def test_samples_are_chosen_for_all_screens(pages, make_scene):
    page, scene = pages[ScreenId.SAMPLES], make_scene()
    drawn = text(page.draw(scene, 80, 18))
    assert "3 samples, 3 beyond the node limit" in drawn
    assert "worst" in drawn
    assert "the worst: sample 2" in page.worst(scene, 1)
    assert scene.navigator.sample == 2
    page.move(scene, -1)
    assert scene.navigator.sample == 1
    assert page.move(scene, -99) == "all samples"
    assert "no sample beyond" in page.move(scene, -1)
    assert "one sample" in page.move(make_scene(samples=1), 1)
    assert " one sample, SQNR" in text(page.draw(make_scene(samples=1), 80, 18))


@pytest.mark.parametrize("width", [60, 80, 96, 120])
def test_the_share_of_each_channel_is_never_cut(pages, make_scene, width):
    lines = pages[ScreenId.CHANNELS].draw(make_scene(), width, 18)
    assert text(lines[1:2]).rstrip(" >").endswith("share of error")
    assert all(len(text([line])) <= width for line in lines)
    assert text(lines[2:3]).endswith("%")


def test_explain_tells_what_the_search_found(pages, make_scene):
    page, scene = pages[ScreenId.WHY], make_scene(elements=False)
    assert "looking for one" in text(page.draw(scene, 80, 18))
    found = NodeExplanation(
        node=scene.plan_row.node,
        op="QLinearAdd",
        tensor=scene.plan_row.tensor,
        status=ExplainStatus.UNEXPLAINED,
        reason="nothing gives it",
        match=0.7,
        tried=113,
    )
    scene = replace(scene, ready=replace(scene.ready, explanations=(found,)))
    drawn = text(page.draw(scene, 80, 18))
    assert "unexplained" in drawn
    assert "113" in drawn
    assert "is added here" in drawn
    short = page.draw(scene, 80, 5)
    assert len(short) <= 5
    assert page.move(scene, 1) == ""
    assert "ends here" in page.move(scene, 99) or page.move(scene, 99)


def test_backends_stand_beside_each_other(pages, make_scene, make_table):
    page, scene = pages[ScreenId.BACKENDS], make_scene()
    assert "qdebug tui REF A B C" in text(page.draw(scene, 80, 18))
    columns = [("a.h5", scene.table), ("b.h5", make_table(24))]
    both = replace(scene, backends=columns)
    drawn = text(page.draw(both, 80, 18))
    assert "all 2 are beyond the limit here" in drawn
    assert "block2/qlinearadd_9" in drawn
    columns[1] = ("b.h5", make_table(24, failing=()))
    assert "1 of 2 backends" in text(page.draw(replace(scene, backends=columns), 80, 18))
    narrow = text(page.draw(replace(scene, backends=columns * 3), 60, 18)).splitlines()[0]
    assert "node, SQNR… " in narrow, "a heading without room says that it is cut"
    columns[1] = ("b.h5", None)
    assert "opening .." in text(page.draw(replace(scene, backends=columns), 80, 18))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("0,3,5,5", "element 0,3,5,5"),
        ("@[0, -1, 0, 0]", "element 0,3,0,0"),
        ("0,4,0,0", "outside"),
        ("1,2", "needs 4 numbers"),
        ("a,b,c,d", "numbers with commas"),
        ("", "needs 4 numbers"),
    ],
)
def test_jumping_to_an_element(make_scene, given, said):
    cursor, scene = ElementCursor(), make_scene()
    assert said in cursor.jump(scene, given)


def test_the_worst_elements_are_walked_around(make_scene):
    cursor, scene = ElementCursor(), make_scene()
    assert cursor.statistics(scene) is not None
    assert cursor.next_worst(scene, 1) == "element 2 of the 8 worst in sample 2"
    assert cursor.index == (0, 1, 1, 1)
    assert cursor.next_worst(scene, -1) == "element 1 of the 8 worst in sample 2"
    assert cursor.next_worst(scene, -1) == "element 8 of the 8 worst in sample 2"


def test_the_cursor_follows_the_worst_sample_until_it_is_moved(make_scene):
    """The comparison goes on while elements are shown, and its worst sample may become another one."""
    scene, cursor = make_scene(), ElementCursor()
    scene.navigator.choose_sample(None)

    def of_sample(sample, rank):
        worst = scene.ready.worst[rank:]
        return replace(scene, ready=replace(scene.ready, values_sample=sample, profile=SimpleNamespace(worst=worst)))

    first, second = (element.index for element in scene.ready.worst[:2])
    for sample, rank, place in ((0, 0, first), (1, 1, second), (0, 0, first)):
        cursor.shape(of_sample(sample, rank))
        assert cursor.index == place
    cursor.go_to_index(second)
    cursor.shape(of_sample(2, 0))
    assert cursor.index == second, "it stays where it was moved to"


def test_nodes_that_share_a_reference_are_told_apart_on_every_backend(pages, make_scene, make_table):
    def shared(table):
        table.rows = [replace(row, reference_tensor="ref_8") if at == 9 else row for at, row in enumerate(table.rows)]
        return table

    scene = make_scene(row=4)
    columns = [(title, shared(table)) for title, table in (("a", scene.table), ("b", make_table()))]
    drawn = text(pages[ScreenId.BACKENDS].draw(replace(scene, backends=columns), 80, 18)).splitlines()
    eight, nine = (next(line for line in drawn if f"{kind}_{n}" in line) for kind, n in (("conv", 8), ("add", 9)))
    assert eight.split()[-2:] == ["44.0", "44.0"]
    assert nine.split()[-4:] == ["*", "6.50", "*", "6.50"]


def test_long_rows_go_down_the_screen(make_scene):
    reference = np.arange(300, dtype=np.float32).reshape(1, 300)
    backend = reference.copy()
    backend[0, 120] = 0
    cursor = ElementCursor()
    page, scene = Views(cursor)[ScreenId.VALUES], make_scene(arrays=(reference, backend))
    drawn = text(page.draw(scene, 80, 18))
    assert "dim 1 down" in drawn
    cursor.jump(scene, "0,120")
    drawn = text(page.draw(scene, 80, 18))
    assert all(f"{number} " in drawn for number in range(117, 124))
    assert re.search(r"\n +120 ▸ *120\S* ->", drawn)
    assert page.move(scene, 1) == ""
    assert cursor.index == (0, 121)
    assert "dimension 0 ends here" in page.side(scene, 1)


@pytest.mark.parametrize("shape", [(), (7,), (400,), (3, 5), (1, 2, 3, 500)])
def test_values_of_any_shape_can_be_walked(make_scene, shape):
    reference = np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)
    cursor = ElementCursor()
    page, scene = Views(cursor)[ScreenId.VALUES], make_scene(arrays=(reference, reference + 1))
    for step in (lambda: page.move(scene, 1), lambda: page.side(scene, 1), lambda: page.move(scene, 10**6)):
        drawn = text(page.draw(scene, 80, 18))
        assert f"@{position(cursor.index)}" in drawn
        step()
    assert all(len(line) <= 80 for line in text(page.draw(scene, 80, 18)).splitlines())


def test_where_a_sample_is_judged_otherwise_than_the_whole_both_are_said(make_scene):
    scene = make_scene()
    row = scene.row
    result = scene.table.results[row]
    mixed = tuple(replace(one, status=Status.DIVERGED if one.sample else Status.WITHIN) for one in result.samples)
    scene.table.put(replace(result, samples=mixed))
    scene.navigator.choose_sample(0)
    assert "sample 0 within, as a whole * diverged" in text([heading(scene, 80)])


def test_an_input_that_is_not_compared_is_not_said_to_be_pending(make_scene, monkeypatch):
    scene = make_scene(row=6)  # it reads the tensor of a node whose shapes differ
    rows, results = list(scene.table.rows), list(scene.table.results)
    rows[5], results[5] = replace(rows[5], missing="computed inside another one"), None
    monkeypatch.setattr(scene.table, "rows", rows)
    monkeypatch.setattr(scene.table, "results", results)
    page = Views(ElementCursor())[ScreenId.GRAPH]
    drawn = text(page.draw(scene, 100, 18))
    assert "not compared" in drawn
    assert "pending" not in drawn


def test_a_low_graph_shows_the_node_whole_before_its_attributes(make_scene):
    page = Views(ElementCursor())[ScreenId.GRAPH]
    scene = make_scene()
    low = text(page.draw(scene, 60, 14)).splitlines()
    assert any("╔" in line for line in low)
    assert any("╚" in line for line in low)
    assert len(low) <= 14


def test_an_explanation_that_goes_on_says_how_far(make_scene):
    page = Views(ElementCursor())[ScreenId.WHY]
    scene = make_scene()
    head = text(page.draw(scene, 60, 4)).splitlines()[0]
    assert "j for " in head
    page.move(scene, 99)
    assert "the end" in text(page.draw(scene, 60, 4)).splitlines()[0]
    assert text(page.draw(scene, 60, 40)).splitlines()[0].endswith("diverged")


def test_what_no_node_computes_needs_no_arithmetic(make_scene):
    scene = make_scene()
    opened = replace(scene.opened, backend_graph=Graph([], inputs=(scene.plan_row.tensor,)))
    drawn = text(Views(ElementCursor())[ScreenId.WHY].draw(replace(scene, opened=opened), 80, 18))
    assert "no node of the graph computes this tensor" in drawn
    assert "looking for" not in drawn
