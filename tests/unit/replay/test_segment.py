"""Some nodes are run on real numbers, as they are or disturbed."""

import numpy as np
import pytest

from qdebug.model import Node
from qdebug.model.thresholds.attribution import DISTURBANCE_HALF_STEPS
from qdebug.replay.run import run_nodes
from qdebug.replay.segment import disturb_values, estimate_spread, run_form, run_segment

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def node(op, inputs, output, **attrs):
    return Node(name=f"n_{output}", op=op, inputs=tuple(inputs.split()), outputs=(output,), attrs=attrs)


def test_what_no_node_makes_is_read_and_what_one_makes_is_not():
    asked = []

    def read(form, name):
        asked.append((form.op, name))
        return X

    made = run_segment((node("Neg", "x", "h"), node("Add", "h c", "y")), "y", {"": 18}, read)
    np.testing.assert_array_equal(made, np.zeros_like(X))
    assert asked == [("Neg", "x"), ("Add", "c")]
    assert run_segment((node("Neg", "x", "h"),), "y", {"": 18}, read) is None


def test_a_quantized_node_is_its_operator_on_real_numbers():
    mean = Node(
        name="m",
        op="QLinearGlobalAveragePool",
        domain="com.microsoft",
        inputs=("x", "xs", "xz", "ys", "yz"),
        outputs=("y",),
        attrs={"channels_last": 1},
    )
    values = np.arange(24, dtype=np.float32).reshape(1, 3, 4, 2)
    made = run_segment((mean,), "y", {"": 18}, lambda _, name: {"x": values}[name])
    np.testing.assert_allclose(made, values.mean((1, 2), keepdims=True))


def test_codes_of_a_scale_chosen_at_run_time_keep_their_real_values():
    nodes = (
        Node(name="q", op="DynamicQuantizeLinear", inputs=("x",), outputs=("q", "s", "z")),
        node("MatMulInteger", "q w z wz", "y"),
    )
    weight = np.array([[1, 2], [3, 4], [5, 6]], np.int8)
    held = {"x": X / 7, "w": weight, "wz": np.array([1, 0], np.int8)}
    made = run_segment(nodes, "y", {"": 18}, lambda _, name: held[name])
    np.testing.assert_allclose(made, X / 7 @ (weight - held["wz"]).astype(np.float32), rtol=1e-6)


@pytest.mark.parametrize(("output", "expected"), [("s", 6 / 255), ("z", 0)])
def test_a_scale_chosen_at_run_time_is_computed_if_it_is_what_is_asked_for(output, expected):
    chooser = Node(name="q", op="DynamicQuantizeLinear", inputs=("h",), outputs=("q", "s", "z"))
    held = {"x": X, "c": np.ones_like(X)}
    made = run_segment((node("Add", "x c", "h"), chooser), output, {"": 18}, lambda _, name: held[name])
    np.testing.assert_allclose(made, expected, rtol=1e-6)


def test_a_way_to_run_nodes_replaces_the_usual_one():
    def doubled(each, form, opset, values):
        return {name: 2 * array for name, array in run_form(each, form, opset, values).items()}

    made = run_segment((node("Neg", "x", "h"), node("Neg", "h", "y")), "y", {"": 18}, lambda *_: X, doubled)
    np.testing.assert_array_equal(made, 4 * X)


def test_a_tensor_is_held_until_its_last_reader_alone():
    nodes = [node("Neg", "x", "a"), node("Neg", "a", "b"), node("Neg", "b", "c"), node("Neg", "c", "unread")]
    held = []

    def run(each, made):
        held.append(set(made))
        return {each.outputs[0]: X}

    assert set(run_nodes(nodes, ("b",), run)) == {"b"}
    assert held == [set(), {"a"}, {"b"}, {"b", "c"}]


def test_a_result_wanders_with_its_constants_and_with_nothing_else():
    x, c = np.full(40_000, 3.0, np.float32), np.ones(40_000, np.float32)
    rng = np.random.default_rng(4)
    off = estimate_spread(x * c, lambda: x * disturb_values(rng, c, np.float32(0.01)))
    assert np.sqrt(np.mean(off**2)) == pytest.approx(3 * DISTURBANCE_HALF_STEPS * 0.01 / np.sqrt(3), rel=0.02)
    assert not estimate_spread(x * c, lambda: x * disturb_values(rng, c, 0.0)).any()
