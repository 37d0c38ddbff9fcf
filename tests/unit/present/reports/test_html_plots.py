"""Plots: nothing is lost that has no number, and no mark leaves the picture."""

import math
import re

import pytest

from qdebug.compare.result.result import Status
from qdebug.present.profile import Bar
from qdebug.present.reports.html_plots import element, error_profile, histogram, parts_plot, rendered, sample_map


def numbers_of(svg, *names):
    text = rendered(svg)
    return [float(value) for name in names for value in re.findall(rf'\b{name}="(-?[\d.]+)"', text)]


@pytest.mark.parametrize("values", [[0.0], [-500.0, 500.0], [20.0] * 5, [math.inf], [math.nan], [-math.inf], [1e-300]])
def test_marks_stay_in_the_picture(values, made):
    nodes = [made.node(i, Status.DIVERGED, metrics=made.stats(sqnr_db=value)) for i, value in enumerate(values)]
    svg = error_profile(nodes, prefix="n", floor=1000.0)
    assert all(0 <= x <= 720 for x in numbers_of(svg, "cx"))
    assert all(0 <= y <= 270 for y in numbers_of(svg, "cy"))
    assert len(numbers_of(svg, "cx")) == len(values)
    assert "nan" not in rendered(svg).replace("NaN", "").lower()


def test_a_long_net_has_a_line_and_a_dot_for_what_is_wrong(made):
    nodes = [made.node(i, metrics=made.stats(sqnr_db=30.0)) for i in range(1000)]
    nodes[500] = made.node(500, Status.DIVERGED)
    nodes[600] = made.node(600, Status.INCOMPARABLE)
    svg = error_profile(nodes, prefix="n")
    assert rendered(svg).count("<circle") == 2
    (line,) = re.findall(r'class="trace" d="([^"]+)"', rendered(svg))
    assert line.count("L") + line.count("M") == 999
    assert line.count("M") == 2


def test_parts_are_drawn_where_they_are_known(made):
    assert parts_plot([made.node(0)]) is None
    wild = made.stats(rel_l2=math.nan)
    nodes = [
        made.node(0, introduced=made.stats(rel_l2=0.0), propagated=made.stats(rel_l2=1e-3)),
        made.node(1, introduced=made.stats(rel_l2=1e-2), propagated=made.stats(rel_l2=1e-3)),
        made.node(2, introduced=wild, propagated=wild),
    ]
    text = rendered(parts_plot(nodes))
    assert len(re.findall(r'class="own" d="M[^"]*"', text)) == 1
    assert text.count("1e-") >= 2


def test_a_value_between_two_gaps_is_drawn(made):
    """A path of one move draws nothing, whatever its cap is."""
    nodes = [made.node(i, introduced=made.stats(rel_l2=1e-2 if i % 2 else 0.0)) for i in range(9)]
    (line,) = re.findall(r'class="own" d="([^"]+)"', rendered(parts_plot(nodes)))
    assert line.count("M") == line.count("h0") == 4


def test_the_plot_says_where_along_the_net_one_is_and_names_the_first_divergence(made):
    nodes = [made.node(i, metrics=made.stats(sqnr_db=30.0)) for i in range(101)]
    nodes[70] = made.node(70, Status.DIVERGED, node="bad \x1b" + "x" * 500)
    text = rendered(error_profile(nodes, prefix="n"))
    assert re.findall(r">#(\d+)<", text) == ["0", "25", "50", "75", "100"]
    (flag,) = re.findall(r">(first: #70 [^<]+)<", text)
    assert len(flag) < 60
    assert "\x1b" not in text
    assert "first:" not in rendered(error_profile(nodes[:70], prefix="n"))
    assert re.findall(r">#(\d+)<", rendered(error_profile(nodes[:1], prefix="n"))) == ["0"]


def test_what_a_plot_does_not_show_is_not_explained(made):
    plain = rendered(error_profile([made.node(0)], prefix="n"))
    assert "identical" not in plain
    assert "no SQNR" not in plain
    wild = [made.node(0, metrics=made.stats(sqnr_db=math.inf)), made.node(1, metrics=made.stats(sqnr_db=math.nan))]
    text = rendered(error_profile(wild, prefix="n"))
    assert ">identical<" in text
    assert "no SQNR" in text


def test_a_heat_map_tells_bad_from_good_and_what_is_not_known(made):
    node = made.node(0)
    svg = rendered(sample_map([node], [0, 1, 2]))
    assert svg.count("<rect") == 3
    assert 'class="hnone"' in svg
    shades = [int(shade) for shade in re.findall(r'class="h(\d)"', svg)]
    assert shades[0] < shades[1]  # 35 dB against 25 dB


def test_a_rare_value_is_seen_beside_a_frequent_one():
    svg = histogram([Bar("a", 10**9, 1.0), Bar("b", 1, 1e-9), Bar("c", 0, 0.0)], title="t")
    heights = numbers_of(svg, "height")
    assert heights[0] > 100
    assert heights[1] == 1.0
    assert heights[2] == 0.0


def test_two_histograms_share_the_bins():
    bars, over = [Bar("a", 1, 0.5), Bar("b", 2, 1.0)], [Bar("a", 2, 1.0), Bar("b", 0, 0.0)]
    text = rendered(histogram(bars, over, title="t"))
    assert "a: 1 and 2" in text
    assert text.count('class="over"') == 1


def test_texts_and_attributes_are_escaped_and_shown_as_they_are():
    made = element("p", "<b>&\x1b\u202e", element("i", "x"), "tail\n", title='"><script>', data_sort="<")
    text = rendered(made)
    assert "&lt;b&gt;&amp;\\x1b\\u202e" in text
    assert "tail\\n" in text
    assert "<script>" not in text.replace('title="&quot;&gt;<script&gt;"', "")
    assert "data-sort=" in text
