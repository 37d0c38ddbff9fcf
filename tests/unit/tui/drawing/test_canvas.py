"""Boxes and lines on a plane of cells."""

import pytest

from qdebug.tui.drawing.canvas import Canvas, Weight
from qdebug.tui.drawing.glyphs import ASCII, UNICODE


def drawn(canvas):
    return ["".join(text for text, _ in line) for line in canvas.lines()]


def test_lines_join_where_they_meet_and_the_thicker_one_is_drawn():
    canvas = Canvas(5, 3, UNICODE)
    canvas.line([(0, 1), (4, 1)], Weight.LIGHT, "muted")
    canvas.line([(2, 0), (2, 2)], Weight.HEAVY, "fail")
    assert drawn(canvas) == ["  ┃  ", "──╋──", "  ┃  "]
    assert ("╋", "fail") in canvas.lines()[1]


@pytest.mark.parametrize(("glyphs", "rims"), [(UNICODE, ["╔══╗", "║  ║", "╚══╝"]), (ASCII, ["+==+", "|  |", "+==+"])])
def test_a_box_has_corners_and_hides_what_was_there(glyphs, rims):
    canvas = Canvas(4, 3, glyphs)
    canvas.line([(0, 1), (3, 1)], Weight.HEAVY, "fail")
    canvas.box((0, 0), (4, 3), Weight.DOUBLE, "title")
    assert drawn(canvas) == rims


def test_what_lies_outside_is_not_drawn_and_wide_characters_keep_their_cells():
    canvas = Canvas(5, 1, UNICODE)
    canvas.text(-1, 0, "ab", "plain")
    canvas.text(1, 0, "\u7573\u307f\u8fbc", "plain")
    canvas.line([(0, -2), (0, 5)], Weight.NONE, "muted")
    assert drawn(canvas) == ["┆\u7573\u307f"]
