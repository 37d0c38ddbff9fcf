"""The order of the node list: that of the run, and behind it what has no place in a run."""

import numpy as np

import qdebug
from qdebug.session import DiffSession
from qdebug.tui.reading.plan_rows import describe_comparison


def net(*, coded):
    """Record two layers whose weights are, or are not, dequantized by nodes of their own."""
    rec = qdebug.Recorder(None, backend="test")
    with rec:
        codes = np.array([[3, -2], [1, 4]], np.int8)
        values = np.array([[1.0, 2.0]], np.float32)
        rec.put("x", values)
        for layer in ("a", "b"):
            weight = codes.astype(np.float32) * np.float32(0.5)
            if coded:
                rec.constant(f"{layer}.codes", codes, scale=0.5, zero_point=0)
                rec.constant(f"{layer}.scale", np.float32(0.5))
                given = (f"{layer}.codes", f"{layer}.scale")
                rec.put(f"{layer}.w", weight, node=f"{layer}.dq", op="DequantizeLinear", inputs=given)
                rec.put(f"{layer}.t", weight.T, node=f"{layer}.turn", op="Transpose", inputs=(f"{layer}.w",))
                rec.put(f"{layer}.w2", weight, node=f"{layer}.back", op="Transpose", inputs=(f"{layer}.t",))
            else:
                rec.constant(f"{layer}.w2", weight)
        before = "x"
        for layer in ("a", "b"):
            values = values @ (codes.astype(np.float32) * np.float32(0.5))
            rec.put(layer, values, node=layer, op="MatMul", inputs=(before, f"{layer}.w2"))
            before = layer
        if not coded:
            rec.put("extra", values * 3, node="extra", op="Exp", inputs=("b",))
        rec.outputs("b")
    return rec.recording


def test_what_is_computed_of_constants_stands_behind_what_is_computed_of_the_input():
    table = describe_comparison(DiffSession(net(coded=False), net(coded=True))).table
    shown = [row.tensor or row.reference_tensor for row in table.rows]
    assert shown[:3] == ["x", "a", "b"]
    assert sorted(shown[3:-1]) == ["a.t", "a.w", "a.w2", "b.t", "b.w", "b.w2"]
    assert shown[-1] == "extra"
    assert table.ordered == 3
    assert all(table.rows[at].missing for at in range(3, table.size))


def test_a_tensor_of_a_node_that_names_no_inputs_keeps_its_place():
    """Who records by hand may leave inputs out: that makes no constant of what it computes."""

    def recorded(*, more):
        rec = qdebug.Recorder(None, backend="test")
        with rec:
            rec.put("x", np.ones(4, np.float32))
            if more:
                rec.put("early", np.ones(4, np.float32), node="early", op="Identity")
            rec.put("y", np.ones(4, np.float32) * 2, node="y", op="Exp", inputs=("x",))
            rec.outputs("y")
        return rec.recording

    table = describe_comparison(DiffSession(recorded(more=False), recorded(more=True))).table
    assert [row.tensor for row in table.rows] == ["x", "early", "y"]
    assert table.ordered == 3
