"""A tensor that one side alone has is not compared, and what was recorded of it is shown all the same."""

import numpy as np
import pytest

from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.session import DiffSession
from qdebug.tui.drawing.glyphs import UNICODE
from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.reading.answers import answer_one_side
from qdebug.tui.reading.messages import DetailRequest
from qdebug.tui.reading.plan_rows import describe_comparison
from qdebug.tui.views.tensor import detail_lines
from qdebug.tui.views.view import Scene

X = np.float32([[-1.0, 2.0, 3.0]])
CODES = np.int8([[-4, 8, 12]])


def recording(nodes, arrays, quants=None):
    tensors = [
        TensorInfo(name=name, dtype=array.dtype.name, shape=array.shape, quant=(quants or {}).get(name))
        for name, array in arrays.items()
    ]
    tensors += [TensorInfo(name="k", dtype="float32", shape=(), role=Role.CONSTANT)]
    made = [Node(name=name, op=op, inputs=inputs, outputs=(name,)) for name, op, inputs in nodes]
    graph = Graph(made, tensors=tensors, inputs=("x",), outputs=("y",), opset={"": 17})
    return MemoryRecording.single(graph, {**arrays, "k": np.float32(2)})


@pytest.fixture
def session():
    """Return a comparison in which the reference alone has a and b; b in codes, and nothing was kept of c."""
    apart = [("a", "Mul", ("x", "k")), ("b", "Odd", ("a",)), ("c", "Odder", ("b",)), ("y", "Oddest", ("c",))]
    quants = {"b": QuantParams(dtype="int8", scale=0.25)}
    reference = recording(apart, {"x": X, "a": X * 2, "b": CODES, "y": -X}, quants)
    return DiffSession(reference, recording([("y", "All", ("x",))], {"x": X, "y": -X}))


def row_of(table, name):
    (row,) = (at for at, planned in enumerate(table.rows) if planned.node == name)
    return row


def asked(tensor, side="reference"):
    return DetailRequest(row=0, tensor=tensor, sample=None, side=side)


def test_extremes_and_codes_of_the_side_that_has_it_are_told(session):
    told = answer_one_side(session, asked("a"))
    assert (told.recorded[0].statistics.low, told.recorded[1].statistics.high, told.problem) == (
        -2.0,
        6.0,
        "",
    )
    opened = describe_comparison(session)
    navigator = Navigator(opened.table, samples=1)
    navigator.go(row_of(opened.table, "b"))
    ready = answer_one_side(session, asked("b"))
    lines = detail_lines(Scene(navigator=navigator, opened=opened, result=None, ready=ready, glyphs=UNICODE), 60)
    text = "\n".join("".join(piece for piece, _ in line) for line in lines)
    assert "as the reference recorded it in sample 0" in text
    assert "-1.000 .. 3.000" in text
    assert "0.25 / 0" in text
    assert "histogram" in text
    assert "int8 1x3" in text
    assert max(len(line) for line in text.splitlines()) <= 60


def test_where_nothing_was_kept_that_is_said(session):
    told = answer_one_side(session, asked("c"))
    assert told.recorded is None
    assert told.problem == "none of its values were kept in sample 0"


def test_a_file_that_was_written_over_is_not_read(session):
    told = answer_one_side(session, asked("a"), describe_change=lambda: "ref.h5 was written over")
    assert told.recorded is None
    assert "written over" in told.problem


async def test_the_tensor_screen_shows_it(session, make_app, settle):
    app = make_app(session, screen="tensor", node="a")
    async with app.run_test(size=(100, 30)) as pilot:
        main = await settle(pilot)
        assert main.scene.plan_row.missing is not None
        await settle(pilot, until=lambda main: main.detail_ready is not None)
        lines = "\n".join(main.text_lines())
        assert "-2.000 .. 6.000" in lines
