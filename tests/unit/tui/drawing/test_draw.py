import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sweeps import drawn

from qdebug.tui.drawing.draw import area, bars, merge_pieces, pool, resample
from qdebug.tui.drawing.glyphs import ASCII, UNICODE


@drawn(80)
@given(arrays(np.int64, st.integers(1, 400), elements=st.integers(0, 99)), st.integers(1, 80))
def test_pooling_keeps_the_largest_value_and_invents_none(values, columns):
    pooled = pool(values, columns)
    assert len(pooled) == columns
    assert set(pooled) <= set(values)
    assert pooled.max() == values.max()


@drawn(80)
@given(arrays(np.int64, st.integers(1, 400), elements=st.integers(0, 99)), st.integers(1, 80))
def test_resampling_keeps_every_count(counts, columns):
    summed = resample(counts, columns)
    assert summed.sum() == counts.sum()
    assert len(summed) == min(len(counts), columns)


@drawn(60)
@given(st.lists(st.integers(0, 12), min_size=2, max_size=40), st.sampled_from([UNICODE, ASCII]))
def test_an_area_has_its_size_and_grows_from_below(heights, glyphs):
    heights = heights if len(heights) % 2 == 0 else heights[:-1]
    lines = area(np.array(heights), 3, glyphs)
    assert [len(line) for line in lines] == [len(heights) // 2] * 3
    for cell in range(len(heights) // 2):
        tall = max(heights[2 * cell : 2 * cell + 2])
        assert [line[cell] != " " for line in lines] == [tall > 8, tall > 4, tall > 0]


def test_braille_dots_are_those_of_unicode():
    assert area(np.array([4, 0, 0, 4, 4, 4, 1, 2]), 1, UNICODE) == ["⡇⢸⣿⣠"]


def test_ascii_draws_nothing_but_ascii():
    assert "".join(area(np.arange(16), 4, ASCII)).isascii()
    assert bars(np.arange(9), ASCII).isascii()


def test_bars_show_the_smallest_value_and_hide_none():
    drawn = bars(np.array([0.0, 1e-9, 0.5, 1.0, np.nan]), UNICODE)
    assert drawn[0] == drawn[4] == " "
    assert drawn[1] == "▁"
    assert drawn[3] == "█"
    assert bars(np.zeros(3), UNICODE) == "   "
    assert bars(np.array([2.0]), UNICODE, top=4.0) == "▄"


@drawn(200)
@given(
    st.lists(
        st.tuples(st.sampled_from([" ", "  ", "a", " b "]), st.sampled_from(["fine", "fail", "first", "heat:1:2"]))
    )
)
def test_merged_pieces_look_the_same(pieces):
    def cells(line):
        shown = ((sign, style) for text, style in line for sign in text)
        return [(sign, style if sign != " " or style in {"first", "heat:1:2"} else "") for sign, style in shown]

    merged = merge_pieces(pieces)
    assert cells(merged) == cells(pieces)
    assert len(merged) <= len(pieces)


def test_blank_pieces_join_their_neighbours():
    pieces = [(" ", "cursor"), (" ", "accent"), ("7", "muted"), (" ", "plain"), ("x", "plain"), (" ", "first")]
    assert merge_pieces(pieces) == [("  7 ", "muted"), ("x", "plain"), (" ", "first")]
