import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdebug.tui.drawing.draw import LEVELS, NOT_FINITE, heat_levels, heat_lines, legend, pool_plane, rows_in_lines
from qdebug.tui.drawing.glyphs import ASCII, UNICODE


def text(lines):
    return ["".join(piece for piece, _ in line) for line in lines]


def test_no_error_has_a_step_of_its_own():
    levels = heat_levels(np.array([[0.0, 1e-30, 0.25, 1.0]]), 1.0)
    assert levels.tolist() == [[0, 1, 4, LEVELS - 1]]
    assert heat_levels(np.zeros((2, 2)), 0.0).max() == 0


def test_what_is_not_finite_is_never_part_of_the_ramp():
    levels = heat_levels(np.array([[np.nan, np.inf, 1.0]]), 1.0)
    assert levels.tolist() == [[NOT_FINITE, NOT_FINITE, LEVELS - 1]]
    for glyphs, colours in ((UNICODE, True), (UNICODE, False), (ASCII, True)):
        assert "".join(text(heat_lines(levels, glyphs, colours=colours))).count("!") == 2


def test_two_rows_share_a_line_where_there_are_colours():
    levels = np.array([[0, 1], [2, 3], [4, 5]])
    lines = heat_lines(levels, UNICODE, colours=True)
    assert len(lines) == 2
    assert lines[0] == [("▀", "heat:0:2"), ("▀", "heat:1:3")]
    assert lines[1] == [("▀", "heat:4:0"), ("▀", "heat:5:0")]
    assert rows_in_lines(5, UNICODE, colours=True) == 10


def test_without_colours_shades_tell_the_same():
    levels = np.arange(LEVELS).reshape(1, -1)
    shades = text(heat_lines(levels, UNICODE, colours=False))[0]
    assert len(set(shades)) >= 5
    assert text(heat_lines(levels, ASCII, colours=True))[0].isascii()
    assert rows_in_lines(5, ASCII, colours=True) == 5
    assert shades == legend(UNICODE, colours=False)[0][0]


def test_the_cursor_is_seen_in_either_half():
    levels = np.zeros((4, 3), dtype=int)
    assert ("▄", "first") in heat_lines(levels, UNICODE, colours=True, cursor=(1, 2))[0]
    assert ("▀", "first") in heat_lines(levels, UNICODE, colours=True, cursor=(2, 0))[1]
    assert text(heat_lines(levels, UNICODE, colours=False, cursor=(3, 1)))[3] == "·X·"


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 12), st.integers(1, 12))
def test_pooling_keeps_the_largest_and_never_hides_nan(height, width, rows, columns):
    values = np.random.default_rng(height * 41 + width).random((height, width))
    values[height // 2, width // 2] = np.nan
    pooled = pool_plane(values, rows, columns)
    assert pooled.shape == (min(height, rows), min(width, columns))
    assert np.isnan(pooled).any()
    values[height // 2, width // 2] = 5
    assert pool_plane(values, rows, columns).max() == pytest.approx(5)
