"""Runs of a node that are stacked along the first axis give the bits of each run alone, or are not stacked."""

import numpy as np
import pytest

from qdebug.model import Node
from qdebug.replay.registry import run_node
from qdebug.replay.stacked import can_stack, is_stack, mixes_steps, run_each_step

RNG = np.random.default_rng(0)
RUNS = 3


def drawn(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


IMAGE, ROWS, TALL = drawn(2, 4, 6, 8), drawn(2, 5, 4), drawn(2, 4)
APART = {
    "elementwise with a constant": ("Mul", {}, [IMAGE], [drawn(4, 1, 1)]),
    "elementwise of two": ("Add", {}, [IMAGE, drawn(2, 4, 1, 1)], []),
    "function": ("Sigmoid", {}, [IMAGE], []),
    "clamp": ("Clip", {}, [IMAGE], [np.float32(-1), np.float32(1)]),
    "channels last": ("Conv", {"channels_last": 1, "pads": (1, 1, 1, 1)}, [IMAGE], [drawn(5, 8, 3, 3), drawn(5)]),
    "pool with channels last": ("MaxPool", {"kernel_shape": (2, 2), "channels_last": 1}, [IMAGE], []),
    "global pool with channels last": ("GlobalAveragePool", {"channels_last": 1}, [IMAGE], []),
    "convolution": ("Conv", {"pads": (1, 1, 1, 1)}, [IMAGE], [drawn(5, 4, 3, 3), drawn(5)]),
    "depthwise": ("Conv", {"group": 4, "strides": (2, 1)}, [IMAGE], [drawn(4, 1, 3, 3)]),
    "pointwise": ("Conv", {}, [IMAGE], [drawn(7, 4, 1, 1)]),
    "transposed": ("ConvTranspose", {}, [IMAGE], [drawn(4, 3, 2, 2)]),
    "pool": ("MaxPool", {"kernel_shape": (2, 2)}, [IMAGE], []),
    "global pool": ("GlobalAveragePool", {}, [IMAGE], []),
    "normalization": ("BatchNormalization", {}, [IMAGE], [drawn(4), drawn(4), drawn(4), np.abs(drawn(4))]),
    "product with a weight": ("MatMul", {}, [ROWS], [drawn(4, 7)]),
    "product of two": ("MatMul", {}, [ROWS, drawn(2, 4, 5)], []),
    "softmax": ("Softmax", {"axis": 1}, [ROWS], []),
    "layers": ("LayerNormalization", {}, [ROWS], [drawn(4), drawn(4)]),
    "transposition": ("Transpose", {"perm": (0, 2, 1)}, [ROWS], []),
    "join": ("Concat", {"axis": 1}, [IMAGE, drawn(2, 3, 6, 8)], []),
    "slice": ("Slice", {}, [IMAGE], [np.int64([1]), np.int64([3]), np.int64([-1])]),
    "mean": ("ReduceMean", {"axes": (2, 3), "keepdims": 0}, [IMAGE], []),
    "cast": ("Cast", {"to": 11}, [ROWS], []),
}
MIXED = {
    "constant for each sample": ("Mul", {}, [IMAGE], [drawn(2, 1, 1, 1)]),
    "broadcast samples": ("Add", {}, [IMAGE, drawn(1, 4, 6, 8)], []),
    "fewer dimensions": ("Add", {}, [drawn(2, 2, 4), TALL], []),
    "rows of one matrix": ("MatMul", {}, [TALL], [drawn(4, 3)]),
    "weight that varies": ("MatMul", {}, [ROWS, drawn(4, 3)], []),
    "softmax over samples": ("Softmax", {"axis": 0}, [TALL], []),
    "softmax over all": ("Softmax", {"axis": -2}, [TALL], []),
    "samples turned": ("Transpose", {}, [ROWS], []),
    "join of samples": ("Concat", {"axis": 0}, [ROWS, drawn(2, 5, 4)], []),
    "join with a constant": ("Concat", {"axis": 1}, [ROWS], [drawn(2, 1, 4)]),
    "some samples": ("Slice", {}, [IMAGE], [np.int64([0]), np.int64([1]), np.int64([0])]),
    "mean of all": ("ReduceMean", {}, [IMAGE], []),
    "extents": ("Shape", {}, [IMAGE], []),
    "running sum": ("CumSum", {}, [ROWS], [np.int64(0)]),
    "statistics of the data": (
        "BatchNormalization",
        {"training_mode": 1},
        [IMAGE],
        [drawn(4)] * 3 + [np.abs(drawn(4))],
    ),
    "scale of the data": ("DynamicQuantizeLinear", {}, [ROWS], []),
    "one number": ("Relu", {}, [np.float32(1)], []),
}


def made(case):
    op, attrs, moving, fixed = case
    names = [f"x{at}" for at in range(len(moving) + len(fixed))]
    outputs = ("y", "scale", "zero") if op.startswith("Dynamic") else ("y",)
    node = Node(name="node", op=op, inputs=tuple(names), outputs=outputs, attrs=attrs)
    varying = [True] * len(moving) + [False] * len(fixed)
    values = dict(zip(names, [*moving, *fixed], strict=True))
    out = run_node(node, values, {"": 17})["y"]
    return node, values, varying, can_stack(node, 17, [*moving, *fixed], varying, out.shape)


@pytest.mark.parametrize("case", APART.values(), ids=APART)
def test_what_is_stacked_gives_the_bits_of_each_run_alone(case):
    node, values, varying, stacks = made(case)
    assert stacks
    runs = []
    for _ in range(RUNS):
        pairs = zip(values.items(), varying, strict=True)
        runs.append({name: drawn(*value.shape) if varies else value for (name, value), varies in pairs})
    alone = [run_node(node, run, {"": 17})["y"] for run in runs]
    pairs = zip(values.items(), varying, strict=True)
    whole = {name: np.concatenate([run[name] for run in runs]) if varies else value for (name, value), varies in pairs}
    assert run_node(node, whole, {"": 17})["y"].tobytes() == np.concatenate(alone).tobytes()


@pytest.mark.parametrize("case", MIXED.values(), ids=MIXED)
def test_what_mixes_runs_is_not_stacked(case):
    *_, stacks = made(case)
    assert not stacks


def test_a_reshape_stacks_where_samples_stay_apart():
    for shape, stacks in (((2, 20), True), ((40,), False), ((10, 4), False)):
        node = Node(name="node", op="Reshape", inputs=("x", "shape"), outputs=("y",))
        assert can_stack(node, 17, [ROWS, np.int64(shape)], [True, False], shape) is stacks


def test_a_stack_begins_and_ends_with_its_runs():
    whole = drawn(6, 3)
    assert is_stack(whole, whole[:2], whole[4:], between=1)
    assert is_stack(whole, whole[:2], whole[2:])
    assert not is_stack(whole, whole[:2], whole[4:])
    assert not is_stack(whole, whole[:2], whole[3:5], between=1)


def test_a_node_that_mixes_stacked_steps_is_computed_step_by_step():
    values, opset = {"x": drawn(6, 4), "w": drawn(4, 4)}, {"": 13}
    nodes = {
        "relu": Node(name="n", op="Relu", inputs=("x",), outputs=("y",)),
        "softmax": Node(name="n", op="Softmax", inputs=("x",), outputs=("y",), attrs={"axis": 0}),
        "reduced": Node(name="n", op="ReduceMax", inputs=("x",), outputs=("y",), attrs={"axes": (0,), "keepdims": 1}),
    }
    mixing = {}
    for name, node in nodes.items():
        mixing[name] = mixes_steps(lambda given, node=node: run_node(node, given, opset), values, ["x"], 3)
        each = run_each_step(lambda given, node=node: run_node(node, given, opset), values, ["x"], 3)["y"]
        parts = [run_node(node, {"x": values["x"][at : at + 2]}, opset)["y"] for at in (0, 2, 4)]
        np.testing.assert_array_equal(each, np.concatenate(parts))
    assert mixing == {"relu": False, "softmax": True, "reduced": True}
