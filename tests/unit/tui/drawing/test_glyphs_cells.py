import pytest
from rich.cells import cell_len

from qdebug.tui.drawing.glyphs import ASCII, UNICODE, cut_end, cut_middle, pad, wrap
from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.nodes.rows import NodeTable, PlannedRow
from qdebug.tui.screen.chrome import status, verdict_lines
from qdebug.tui.screens import VIEWS
from qdebug.tui.views.elements import ElementCursor
from qdebug.tui.views.table import Views, view_class
from qdebug.tui.views.tensor import detail_lines
from qdebug.tui.views.view import DrawnView, heading

CJK = "畳み込み層/正規化/第四ブロック/出力テンソル" * 3
COMBINING = "couche/" + "e\u0301" * 40 + "/fin"
EMOJI = "モデル/🚀🚀🚀🚀🚀🚀🚀🚀🚀🚀🚀🚀🚀🚀🚀🚀🚀🚀🚀🚀🚀🚀🚀🚀/出口"
NAMES = [CJK, COMBINING, EMOJI]


@pytest.mark.parametrize("width", [2, 3, 7, 20, 79])
@pytest.mark.parametrize("text", [*NAMES, "plain", "a b " + CJK, ""])
def test_no_line_is_wider_than_it_may_be(text, width):
    assert cell_len(cut_end(text, width)) <= width
    assert cell_len(cut_middle(text, width)) <= width
    assert all(cell_len(line) <= width for line in wrap(text, width))
    assert cell_len(UNICODE.fit(text, width)) == width
    assert cell_len(pad(cut_end(text, width), width)) == width


@pytest.mark.parametrize("text", NAMES)
def test_wrapping_loses_nothing(text):
    assert "".join(wrap(text, 10)) == text.replace(" ", "")
    assert " ".join(wrap("eins zwei 三 vier", 4)) == "eins zwei 三 vier"


def test_words_are_put_on_lines_by_cells():
    assert wrap("第一 第二 第三", 9) == ["第一 第二", "第三"]
    assert wrap("at 第一第二第三 end", 8) == ["at 第一", "第二第三", "end"]


def test_more_lines_than_there_may_be_end_with_dots():
    lines = wrap(CJK, 20, max_lines=2)
    assert len(lines) == 2
    assert lines[1].endswith(" ..")
    assert cell_len(lines[1]) <= 20
    assert wrap("第一", 20, max_lines=1) == ["第一"]


def test_a_long_name_keeps_its_end():
    assert cut_middle(CJK, 21).endswith("テンソル")
    assert UNICODE.fit(CJK, 21).rstrip().endswith("テンソル")
    assert cut_middle(COMBINING, 12).endswith("/fin")


def test_an_accent_stays_with_its_letter():
    for width in range(2, 20):
        assert cut_end("e\u0301" * 30, width, "").count("e") == cut_end("e\u0301" * 30, width, "").count("\u0301")
        assert not cut_middle("e\u0301" * 30, width).split("…")[1].startswith("\u0301")


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
@pytest.mark.parametrize(("width", "height"), [(60, 18), (80, 24), (120, 40)])
@pytest.mark.parametrize("name", NAMES)
def test_every_screen_keeps_to_its_width_with_wide_names(make_scene, name, width, height, glyphs):
    scene = make_scene(names=[f"{number}{name}" for number in range(12)], row=9, glyphs=glyphs)
    for row in (8, 9, 10):
        scene.navigator.jump(row)
    pages = Views(ElementCursor())
    for view, page in [(each, pages[each]) for each in VIEWS if issubclass(view_class(each), DrawnView)]:
        for line in page.draw(scene, width, height):
            assert cell_len("".join(text for text, _ in line)) <= width, (view, line)
    for line in detail_lines(scene, width):
        assert cell_len("".join(text for text, _ in line).rstrip()) <= width, line


@pytest.mark.parametrize("text", ["this is the screen nodes", "第一 第二 third"])
@pytest.mark.parametrize("width", range(-2, 6))
def test_wrapping_takes_any_width_and_keeps_to_the_lines_there_are(text, width):
    for most in (1, 2):
        assert 1 <= len(wrap(text, width, max_lines=most)) <= most


@pytest.mark.parametrize("name", NAMES)
def test_the_lines_around_the_panels_keep_to_their_width(make_scene, name):
    scene = make_scene(names=[f"{number}{name}" for number in range(12)], row=9)

    class Now:
        navigator, opened, result, failure = scene.navigator, scene.opened, scene.result, None

    shown = [*verdict_lines(Now, 60, 3, UNICODE), *verdict_lines(Now, 60, 1, UNICODE), heading(scene, 60, "extra")]
    shown += [*status(scene.navigator, f"at {name}", 60, UNICODE, height=2), *status(scene.navigator, "", 60, UNICODE)]
    for line in shown:
        assert cell_len("".join(text for text, _ in line)) <= 60, line


def test_the_column_of_names_is_as_wide_as_the_widest():
    rows = [
        PlannedRow(node="第一", op="", tensor="a", reference_tensor="a"),
        PlannedRow(node="abc", op="", tensor="b", reference_tensor="b"),
    ]
    assert NodeTable(rows).longest_name == 4
    assert Navigator(NodeTable(rows)).table.longest_name == 4
