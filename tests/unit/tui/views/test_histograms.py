"""Histograms of both sides: logarithmic counts, and what stands at the axes."""

import numpy as np
import pytest

from qdebug.tui.drawing.glyphs import ASCII, UNICODE
from qdebug.tui.views.histograms import Bins, histogram_lines

BINS = Bins(sides=(np.array([1000, 0, 1, 31]), np.array([1, 1000, 0, 0])), low="-1", high="3", zero=0.25)


def drawn(bins, label=12, side=10, glyphs=UNICODE, rows=2):
    lines = histogram_lines(bins, label, side, glyphs, rows=rows)
    return ["".join(text for text, _ in line).rstrip() for line in lines]


def test_one_element_shows_beside_a_thousand_and_the_axes_say_how_many():
    lines = drawn(BINS)
    assert lines[0] == "histogram      1k│█       1k│ █"
    assert lines[1] == "log counts      1│█ ▂█     1│▂█"
    assert lines[2] == "                  -1 3       -1 3"


def test_zero_is_marked_where_it_is_unless_an_end_stands_there():
    wide = Bins(sides=(np.ones(20),), low="-5", high="5", zero=0.5)
    assert drawn(wide, side=26)[-1].split() == ["-5", "0", "5"]
    assert drawn(wide, side=26)[-1].index("0") == 12 + 6 + 10


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
@pytest.mark.parametrize("side", [4, 12, 30, 200])
def test_it_keeps_to_its_width(glyphs, side):
    counts = np.random.default_rng(0).integers(0, 5_000_000, 96)
    lines = drawn(Bins(sides=(counts, counts), low="-1.23e-5", high="1.23e+5", zero=0.4), side=side, glyphs=glyphs)
    assert max(map(len, lines)) <= 12 + 2 * max(side, 10) + 1
    assert glyphs is UNICODE or "".join(lines).isascii()


def test_nothing_at_all_has_an_axis_too():
    assert drawn(Bins(sides=(np.zeros(4), np.zeros(4)), low="0", high="0"))[0].split() == ["histogram", "0│", "0│"]


def test_the_axis_says_the_count_of_the_highest_bar_where_bins_are_summed_up():
    counts = np.repeat([30, 7], 20)
    (first, *_) = drawn(Bins(sides=(counts,), low="0", high="1"), side=16)
    assert first == "histogram     120│█████▃▃▃▃▃"
