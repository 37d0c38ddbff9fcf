"""The first tensor that differs is found by bits, in the order of the second run."""

import numpy as np

import qdebug
from qdebug.bisect.changed_node import find_changed_node
from qdebug.model import Node, Role, TensorInfo


def run(values, *, dtype=np.float32):
    recorder = qdebug.Recorder(None, backend="mine")
    with recorder:
        recorder.put("x", np.zeros(4, dtype))
        previous = "x"
        for name, value in values.items():
            recorder.put(name, np.full(4, value, dtype), node=f"n_{name}", op="Add", inputs=(previous,))
            previous = name
    return recorder.recording


def test_the_first_of_two_differences_is_named():
    change = find_changed_node(run({"a": 1, "b": 2, "c": 3}), run({"a": 1, "b": 5, "c": 4}))
    assert (change.node, change.equal, change.different, change.max_abs) == ("n_b", 1, 4, 3.0)
    assert change.has_equal_inputs


def test_a_tensor_that_one_run_lacks_leaves_its_node_in_doubt():
    change = find_changed_node(run({"a": 1, "c": 3}), run({"a": 1, "b": 5, "c": 4}))
    assert change.node == "n_c"
    assert not change.has_equal_inputs


def fused(y, *constants):
    """Record y = Relu(x + w), of which the sum stays inside a kernel."""
    nodes = [Node(name="add", op="Add", inputs=("x", "w"), outputs=("sum",))]
    nodes += [Node(name="relu", op="Relu", inputs=("sum",), outputs=("y",), placement=f"kernel {y}")]
    weight = TensorInfo(name="w", role=Role.CONSTANT)
    recorder = qdebug.Recorder(
        None, backend="mine", graph=qdebug.Graph(nodes, tensors=[weight], inputs=["x"], outputs=["y"])
    )
    with recorder:
        for name in constants:
            recorder.constant(name, np.ones(4, np.float32))
        recorder.put("x", np.ones(4, np.float32))
        recorder.put("y", np.full(4, y, np.float32))
    return recorder.recording


def test_nodes_between_equal_tensors_and_the_one_that_differs_are_named():
    change = find_changed_node(fused(1, "w"), fused(2, "w"))
    assert (change.nodes, change.has_equal_inputs) == (["add", "relu"], False)
    assert (change.placement_before, change.placement) == ("kernel 1", "kernel 2")
    assert change.other_inputs == []
    assert find_changed_node(fused(1), fused(2)).other_inputs == ["w"]


def test_signs_of_zero_and_payloads_of_nan_are_differences():
    assert find_changed_node(run({"a": 0.0}), run({"a": -0.0})).different == 4
    assert find_changed_node(run({"a": np.nan}), run({"a": np.nan})) is None


def test_integers_are_counted_in_integers():
    change = find_changed_node(run({"a": 250}, dtype=np.uint8), run({"a": 3}, dtype=np.uint8))
    assert (change.max_abs, change.is_integer) == (247.0, True)


def test_a_constant_that_was_not_recorded_leaves_its_node_in_doubt():
    runs = []
    for value in (1, 2):
        with qdebug.Recorder(None, backend="mine") as recorder:
            recorder.put("x", np.zeros(4, np.float32))
            recorder.put("y", np.full(4, value, np.float32), node="n", op="Add", inputs=("x", "w"))
        runs.append(recorder.recording)
    change = find_changed_node(*runs)
    assert (change.nodes, change.other_inputs, change.has_equal_inputs) == (["n"], ["w"], False)
