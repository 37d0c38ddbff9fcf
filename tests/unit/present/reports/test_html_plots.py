"""Plots: nothing is lost that has no number, and no mark leaves the picture."""

import math
import re

import pytest

from qdebug.compare.result.result import Status
from qdebug.present.error_bars import Bar
from qdebug.present.reports.html_plots import element, error_profile, histogram, parts_plot, sample_map, to_html


def numbers_of(svg, *names):
    text = to_html(svg)
    return [float(value) for name in names for value in re.findall(rf'\b{name}="(-?[\d.]+)"', text)]


@pytest.mark.parametrize("values", [[0.0], [-500.0, 500.0], [20.0] * 5, [math.inf], [math.nan], [-math.inf], [1e-300]])
def test_marks_stay_in_the_picture(values, made):
    nodes = [made.node(i, Status.DIVERGED, metrics=made.stats(sqnr_db=value)) for i, value in enumerate(values)]
    svg = error_profile(nodes, prefix="n", floor=1000.0)
    assert all(0 <= x <= 720 for x in numbers_of(svg, "cx"))
    assert all(0 <= y <= 312 for y in numbers_of(svg, "cy"))
    assert len(numbers_of(svg, "cx")) == len(values)
    assert "nan" not in to_html(svg).replace("NaN", "").lower()


def test_a_long_net_has_a_band_and_a_dot_for_what_is_wrong(made):
    nodes = [made.node(i, metrics=made.stats(sqnr_db=30.0 - i % 3)) for i in range(5000)]
    nodes[2500] = made.node(2500, Status.DIVERGED, metrics=made.stats(sqnr_db=3.0))
    nodes[2501] = made.node(2501, Status.DIVERGED, metrics=made.stats(sqnr_db=9.0))
    nodes[3000] = made.node(3000, Status.INCOMPARABLE)
    text = to_html(error_profile(nodes, prefix="n"))
    assert re.findall(r'href="#(n\d+)"', text) == ["n2500", "n3000"]  # the worst of neighbours
    (line,) = re.findall(r'class="trace" d="([^"]+)"', text)
    (band,) = re.findall(r'class="band" d="([^"]+)"', text)
    assert line.count("L") + 1 == band.count("V") <= 240
    assert len(text) < 20_000


def test_only_nodes_with_a_row_are_linked_and_no_dot_is_a_stop_for_the_keyboard(made):
    nodes = [made.node(i, Status.DIVERGED) for i in range(3)]
    text = to_html(error_profile(nodes, prefix="n", shown=frozenset({1})))
    assert re.findall(r'<a href="#(n\d+)" tabindex="-1">', text) == ["n1"]
    assert text.count("<circle") == 3


def test_parts_are_drawn_where_they_are_known(made):
    assert parts_plot([made.node(0)]) is None
    wild = made.stats(rel_l2=math.nan)
    nodes = [
        made.node(0, introduced=made.stats(rel_l2=0.0), propagated=made.stats(rel_l2=1e-3)),
        made.node(1, introduced=made.stats(rel_l2=1e-2), propagated=made.stats(rel_l2=1e-3)),
        made.node(2, introduced=wild, propagated=wild),
    ]
    text = to_html(parts_plot(nodes))
    assert len(re.findall(r'class="own" d="M[^"]*"', text)) == 1
    assert text.count("1e-") >= 2


def test_a_value_between_two_gaps_is_drawn(made):
    """A path of one move draws nothing, whatever its cap is."""
    values = [30.0 if i % 2 else math.inf for i in range(9)]
    nodes = [made.node(i, metrics=made.stats(sqnr_db=value)) for i, value in enumerate(values)]
    (line,) = re.findall(r'class="trace" d="([^"]+)"', to_html(error_profile(nodes, prefix="n")))
    assert line.count("M") == line.count("h0") == 4


def test_a_part_far_below_the_largest_is_seen_and_the_axis_says_so(made):
    nodes = [made.node(i, introduced=made.stats(rel_l2=value)) for i, value in enumerate((1.0, 1e-30))]
    text = to_html(parts_plot(nodes))
    (bars,) = re.findall(r'class="own" d="([^"]+)"', text)
    heights = [float(low) - float(high) for low, high in re.findall(r" ([\d.]+)V([\d.]+)", bars)]
    assert heights[0] > 100
    assert heights[1] >= 2
    assert ">&lt;1e-7<" in text


def test_the_plot_says_where_along_the_net_one_is_and_names_the_first_divergence(made):
    nodes = [made.node(i, metrics=made.stats(sqnr_db=30.0)) for i in range(101)]
    nodes[70] = made.node(70, Status.DIVERGED, node="bad \x1b" + "x" * 500)
    text = to_html(error_profile(nodes, prefix="n"))
    assert re.findall(r">#(\d+)<", text) == ["0", "25", "50", "75", "100"]
    (flag,) = re.findall(r">(first: #70 [^<]+)<", text)
    assert len(flag) < 60
    assert "\x1b" not in text
    assert "first:" not in to_html(error_profile(nodes[:70], prefix="n"))
    assert re.findall(r">#(\d+)<", to_html(error_profile(nodes[:1], prefix="n"))) == ["0"]


def test_what_a_plot_does_not_show_is_not_explained(made):
    plain = to_html(error_profile([made.node(0)], prefix="n"))
    assert ">equal<" not in plain
    assert "no SQNR" not in plain
    wild = [made.node(0, metrics=made.stats(sqnr_db=math.inf)), made.node(1, metrics=made.stats(sqnr_db=math.nan))]
    text = to_html(error_profile(wild, prefix="n"))
    assert ">equal<" in text
    assert "no SQNR" in text


def test_a_heat_map_tells_bad_from_good_and_what_is_not_known(made):
    node = made.node(0)
    svg = to_html(sample_map([node], [0, 1, 2]))
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
    text = to_html(histogram(bars, over, title="t"))
    assert "a: 1 and 2" in text
    assert text.count('class="over"') == 1


def test_texts_and_attributes_are_escaped_and_shown_as_they_are():
    made = element("p", "<b>&\x1b\u202e", element("i", "x"), "tail\n", title='"><script>', data_sort="<")
    text = to_html(made)
    assert "&lt;b&gt;&amp;\\x1b\\u202e" in text
    assert "tail\\n" in text
    assert "<script>" not in text.replace('title="&quot;&gt;<script&gt;"', "")
    assert "data-sort=" in text
