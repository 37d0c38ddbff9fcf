"""The graph around a node as SVG: edges by their error, names as text, links to rows, nothing beyond the picture."""

import re
from html import unescape
from itertools import pairwise

from qdebug.compare.result.result import Status
from qdebug.present.reports.html_graph import graph_plot
from qdebug.present.reports.html_plots import to_html
from qdebug.present.surroundings import Neighbour, NeighbourEdge, Surroundings


def neighbour(name, level, result=None, op="Conv"):
    return Neighbour(name=name, op=op, level=level, result=result)


def edge(source, target, error):
    return NeighbourEdge(source=source, target=target, tensor=f"t{source}", error=error)


def drawn(nodes, edges, left_out=(0, 0), shown=frozenset()):
    around = Surroundings(nodes=tuple(nodes), edges=tuple(edges), left_out=left_out)
    return to_html(graph_plot(around, prefix="b0-", shown=shown))


def test_an_edge_is_as_wide_as_its_error():
    nodes = [neighbour(f"n{at}", at) for at in range(6)]
    errors = (0.0, 1e-3, 0.1, float("inf"), None)
    text = drawn(nodes, [edge(at, at + 1, error) for at, error in enumerate(errors)])
    of = {tensor: float(width) for width, tensor in re.findall(r'stroke-width="([\d.]+)"><title>(t\d)', text)}
    assert re.findall(r'class="(edge[^"]*)"', text).count("edge unknown") == 1
    assert of["t0"] < of["t1"] < of["t2"] < of["t3"]


def test_names_are_text_and_cut_so_that_they_fit():
    hostile = '</text><script>alert(1)</script>"\x1b\u202e' + "x" * 500
    text = drawn([neighbour(hostile, 0, op="<b>"), neighbour("y", 1)], [edge(0, 1, 0.1)])
    assert "<script" not in text
    assert "<b>" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert all(len(unescape(name)) <= 45 for name in re.findall(r'class="code name"[^>]*>([^<]*)<', text))


def test_boxes_stay_in_the_picture_beside_each_other():
    for many in range(1, 8):
        text = drawn([neighbour("m", 0), *(neighbour(f"r{at}", 1) for at in range(many))], [])
        boxes = [
            (float(x), float(wide))
            for x, wide in re.findall(r'<rect class="box unknown" x="(-?[\d.]+)" y="90" width="([\d.]+)"', text)
        ]
        assert len(boxes) == many
        boxes.sort()
        assert boxes[0][0] >= 0
        assert sum(boxes[-1]) <= 480
        assert all(x + wide < other for (x, wide), (other, _) in pairwise(boxes))


def test_a_node_with_a_row_is_a_link_and_what_is_left_out_is_said(made):
    nodes = [neighbour("a", -1, made.node(3, Status.DIVERGED)), neighbour("b", 0, made.node(4))]
    text = drawn(nodes, [edge(0, 1, 0.1)], left_out=(1, 5), shown=frozenset({3}))
    assert re.findall(r'href="#(b0-\d+)"', text) == ["b0-3"]
    assert "1 more node before these" in text
    assert "5 more nodes after these" in text
    assert 'class="box diverged"' in text
    assert 'class="box within centre"' in text
