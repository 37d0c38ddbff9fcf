"""The graph screen of a node that the reference alone has: its neighbours are those in the reference's graph."""

import re
from itertools import pairwise

import numpy as np
import pytest

from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.present import numbers
from qdebug.session import DiffSession
from qdebug.tui.drawing.glyphs import ASCII, UNICODE
from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.reading.plan_rows import describe_comparison
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.elements import ElementCursor
from qdebug.tui.views.graph import go_to_worst_input
from qdebug.tui.views.table import Views
from qdebug.tui.views.view import Scene

X = np.float32([[-1.0, 2.0, 3.0]])


def recording(nodes, arrays):
    tensors = [TensorInfo(name=name, dtype="float32", shape=array.shape) for name, array in arrays.items()]
    tensors += [TensorInfo(name="k", dtype="float32", shape=(), role=Role.CONSTANT)]
    made = [Node(name=name, op=op, inputs=inputs, outputs=(name,), attrs=attrs) for name, op, inputs, attrs in nodes]
    graph = Graph(made, tensors=tensors, inputs=("x",), outputs=("y",), opset={"": 17})
    return MemoryRecording.single(graph, {**arrays, "k": np.float32(2)})


@pytest.fixture
def scene():
    """Return the screen's scene; of three nodes of the reference the backend has computed two together."""
    apart = [("a", "Mul", ("x", "k"), {}), ("b", "Sigmoid", ("a",), {"alpha": 0.5}), ("y", "Neg", ("b",), {})]
    b = (1 / (1 + np.exp(-X * 2))).astype(np.float32)
    reference = recording(apart, {"x": X, "a": X * 2, "b": b, "y": -b})
    backend = recording([("y", "Odd", ("x",), {})], {"x": X, "y": -b})
    opened = describe_comparison(DiffSession(reference, backend))
    return Scene(
        navigator=Navigator(opened.table, samples=1),
        opened=opened,
        result=None,
        ready=None,
        glyphs=UNICODE,
        colours=True,
    )


def row_of(scene, name):
    (row,) = (at for at, planned in enumerate(scene.table.rows) if planned.node == name)
    return row


def text(lines):
    return "\n".join("".join(piece for piece, _ in line) for line in lines)


def test_its_neighbours_are_those_of_the_reference_s_graph(scene):
    page = Views(ElementCursor())[ScreenId.GRAPH]
    scene.navigator.go(row_of(scene, "b"))
    assert scene.plan_row.tensor == ""
    drawn = text(page.draw(scene, 100, 24))
    assert "1 input" in drawn
    assert "read by 1" in drawn
    assert "alpha=0.5" in drawn
    assert "the graph of the reference" in drawn
    page.side(scene, -1)
    assert scene.plan_row.node == "a"
    drawn = text(page.draw(scene, 100, 24))
    assert "2 inputs" in drawn
    assert "constant" in drawn
    page.side(scene, 1)
    page.side(scene, 1)
    assert scene.plan_row.node == "y"  # which is compared, and walked along in the backend's graph again
    assert "the graph of the reference" not in text(page.draw(scene, 100, 24))


def test_nothing_is_said_of_what_it_adds_itself(scene):
    scene.navigator.go(row_of(scene, "b"))
    assert go_to_worst_input(scene).startswith("not known: only the reference has this node")


@pytest.fixture
def around():
    """Return a function that makes a scene on a residual block: t1 is read by t2 and, past it and t3, by t4."""
    reads = {"t1": ("x",), "t2": ("t1", "k"), "t3": ("t2",), "t4": ("t3", "t1"), "t5": ("t4",), "y": ("t5",)}
    arrays = {"x": X} | {name: X * (at + 2) for at, name in enumerate(reads)}

    def run(off):
        made = [(name, "Op", inputs, {}) for name, inputs in reads.items()]
        return recording(made, {name: array + np.float32(off * (name != "x")) for name, array in arrays.items()})

    def make(node, *, glyphs=UNICODE):
        session = DiffSession(run(0), run(0.01))
        opened = describe_comparison(session)
        opened.table.put(*session.results())
        made = Scene(navigator=Navigator(opened.table), opened=opened, result=None, ready=None, glyphs=glyphs)
        made.navigator.go(row_of(made, node))
        return made

    return make


def test_two_levels_each_way_fit_80_columns_and_what_passes_the_node_by_is_drawn(around):
    page, scene = Views(ElementCursor())[ScreenId.GRAPH], around("t3")
    lines = text(page.draw(scene, 79, 19)).splitlines()
    assert all(len(line) <= 79 for line in lines)
    rims = [line for line in lines if "┌" in line]
    assert all(any(f"┌{name}─" in line for line in rims) for name in ("t1", "t2", "t4", "t5"))
    first = next(at for at, line in enumerate(lines) if "╔" in line)
    assert "━━━" in lines[first - 1], "the edge from t1 to t4 passes above the node"


def test_names_of_boxes_differ_across_columns():
    names = ("x", *(f"net/{name}_convolution_quantized" for name in ("dw", "pw", "end")))
    arrays = {name: X * (at + 1) for at, name in enumerate(names)}
    made = [(name, "Op", (before,), {}) for before, name in pairwise(names)]
    session = DiffSession(recording(made, arrays), recording(made, arrays))
    opened = describe_comparison(session)
    opened.table.put(*session.results())
    scene = Scene(navigator=Navigator(opened.table), opened=opened, result=None, ready=None, glyphs=UNICODE)
    scene.navigator.go(row_of(scene, names[2]))
    drawn = text(Views(ElementCursor())[ScreenId.GRAPH].draw(scene, 50, 19))
    before, after = re.findall(r"┌([^┌─]*)─*┐", drawn)
    assert "dw" in before
    assert "end" in after


def test_names_of_many_boxes_differ_in_their_column():
    """Where all names cannot be told apart, those of a column still are."""
    first = [f"res_stage1_conv{at}_fwd_quantized" for at in range(4)]
    second = [f"res_stage1_relu{at}_fwd_quantized" for at in range(4)]
    made = [(name, "Op", ("x",), {}) for name in first]
    made += [(name, "Op", (before,), {}) for before, name in zip(first, second, strict=True)]
    made.append(("y", "Op", tuple(second), {}))
    arrays = {name: X * (at + 1) for at, name in enumerate(("x", *first, *second, "y"))}
    session = DiffSession(recording(made, arrays), recording(made, arrays))
    opened = describe_comparison(session)
    opened.table.put(*session.results())
    scene = Scene(navigator=Navigator(opened.table), opened=opened, result=None, ready=None, glyphs=UNICODE)
    scene.navigator.go(row_of(scene, "y"))
    drawn = text(Views(ElementCursor())[ScreenId.GRAPH].draw(scene, 79, 24))
    assert all(drawn.count(f"{kind}{at}") == 1 for kind in ("conv", "relu") for at in range(4))


def test_no_number_in_a_box_loses_its_end(around):
    scene = around("t3")
    for width in (60, 79, 100, 132, 200):
        drawn = text(Views(ElementCursor())[ScreenId.GRAPH].draw(scene, width, 19))
        for row in (2, 4):
            assert numbers.number(scene.table.results[row].metrics.rel_l2) in drawn, width


def test_every_box_can_be_chosen_and_enter_opens_it(around):
    page, scene = Views(ElementCursor())[ScreenId.GRAPH], around("t3")
    assert page.enter(scene) is ScreenId.TENSOR
    assert scene.plan_row.node == "t3", "the node itself is chosen first"
    assert page.move(scene, 1) == ""
    assert "┏" in text(page.draw(scene, 79, 19)), "what is chosen has a thick rim"
    assert page.enter(scene) is ScreenId.TENSOR
    assert scene.plan_row.node == "t2"
    assert scene.navigator.back(-1) == "back at t3"
    page.move(scene, 3)
    assert page.enter(scene) is ScreenId.TENSOR
    assert scene.plan_row.node == "t1", "two levels away"


def test_an_edge_without_error_is_drawn_otherwise(around):
    drawn = text(Views(ElementCursor())[ScreenId.GRAPH].draw(around("t1"), 79, 19))
    assert "┄>" in drawn, drawn
    assert "━>" in drawn
    plain = text(Views(ElementCursor())[ScreenId.GRAPH].draw(around("t1", glyphs=ASCII), 79, 19))
    assert plain.isascii()
    assert ".>" in plain
    assert "=>" in plain


def test_what_a_low_screen_has_no_room_for_is_said(make_scene):
    scene = make_scene()
    lines = text(Views(ElementCursor())[ScreenId.GRAPH].draw(scene, 60, 9)).splitlines()
    assert any(" more, see 4 " in line for line in lines)
    assert lines[-1].endswith(".. more in a taller terminal")
    assert "taller" not in text(Views(ElementCursor())[ScreenId.GRAPH].draw(scene, 100, 40))


def test_the_line_that_counts_inputs_left_out_is_not_drawn_over():
    made = [Node(name=f"n{at}", op="Neg", inputs=("x",), outputs=(f"n{at}",)) for at in range(12)]
    last = Node(name="y", op="Concat", inputs=tuple(node.name for node in made), outputs=("y",))
    tensors = [TensorInfo(name=node.name, dtype="float32", shape=X.shape) for node in (*made, last)]
    graph = Graph([*made, last], tensors=tensors, inputs=("x",), outputs=("y",), opset={"": 17})
    arrays = {"x": X, **{node.name: -X for node in made}, "y": np.concatenate([-X] * 12)}
    recorded = MemoryRecording.single(graph, arrays)
    opened = describe_comparison(DiffSession(recorded, recorded))
    navigator = Navigator(opened.table, samples=1)
    for height in range(12, 24):
        shown = Scene(navigator=navigator, opened=opened, result=None, ready=None, glyphs=UNICODE)
        navigator.go(row_of(shown, "y"))
        assert " more: j k" in text(Views(ElementCursor())[ScreenId.GRAPH].draw(shown, 100, height)), height
