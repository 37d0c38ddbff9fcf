"""What else accounts for a wrong result: relations to the right one, operands read otherwise, mistakes in a part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import qdebug
from qdebug.arithmetic.relations import Result, relation_of
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.replay import run_node

RNG = np.random.default_rng(17)
OPSET = {"": 23}


def real(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def recorded(node, values, made):
    tensors = [TensorInfo(name=name, role=Role.CONSTANT) for name in values if not name.startswith("x")]
    inputs = [name for name in values if name.startswith("x")]
    graph = Graph([node], tensors=tensors, inputs=inputs, outputs=("y",), opset=OPSET)
    return MemoryRecording.single(graph, {**values, "y": made})


def node(op, inputs, domain="", **attrs):
    return Node(name="n", op=op, domain=domain, inputs=tuple(inputs.split()), outputs=("y",), attrs=attrs)


def said_of(right, values, made):
    """Return what diff's diagnosis and explain say of a wrong result."""
    exact = run_node(right, values, OPSET)["y"]
    result = qdebug.diff(recorded(right, values, exact), recorded(right, values, made))
    (told,) = qdebug.explain(recorded(right, values, made)).nodes
    assert (result["n"].status, told.status) == ("diverged", "unexplained")
    return result.diagnosis[0].why, told.reason


DENSE = node("MatMul", "x w")
SQUARE = {"x": real(12, 12), "w": real(12, 12)}
TALL = {"x": real(2, 3, 5, 6)}


@pytest.mark.parametrize(
    ("right", "values", "wrong", "said"),
    [
        (node("Sum", "x x x x x"), {"x": real(3, 8)}, lambda y, v: 16 * v["x"], "3.2 times what it should be"),
        (DENSE, SQUARE, lambda y, v: -y, "of the opposite sign"),
        (DENSE, SQUARE, lambda y, v: y + 1.5, "1.5 more than it should be"),
        (DENSE, SQUARE, lambda y, v: 2 * y - 3, "2 times what it should be, plus -3"),
        (DENSE, SQUARE, lambda y, v: np.abs(y), "the magnitude of what it should be"),
        (DENSE, SQUARE, lambda y, v: np.floor(y), "rounded down from what it should be"),
        (DENSE, SQUARE, lambda y, v: np.clip(y, -2, 2), "clipped below -2 and above 2"),
        (DENSE, SQUARE, lambda y, v: y[::-1], "in reverse along axis 0"),
        (DENSE, SQUARE, lambda y, v: np.roll(y, 2, 1), "shifted forward by 2 places along axis 1"),
        (node("Neg", "x"), TALL, lambda y, v: y.transpose(0, 2, 3, 1).reshape(y.shape), "axes in the order 0, 2, 3, 1"),
        (node("Neg", "x"), TALL, lambda y, v: RNG.permutation(y.reshape(-1)).reshape(y.shape), "in a different order"),
        (
            node("Add", "x x2"),
            {"x": real(4, 8), "x2": real(4, 8)},
            lambda y, v: v["x"] + 2 * v["x2"],
            "'x2' counts 2 times, not 1",
        ),
        (node("Mul", "x x2"), {"x": real(4, 8), "x2": real(4, 8)}, lambda y, v: v["x"], "it returns 'x' unchanged"),
        (
            node("Conv", "x w b"),
            {"x": real(1, 3, 6, 6), "w": real(4, 3, 1, 1), "b": real(4)},
            lambda y, v: y + np.float32([1, -2, 0.5, 0]).reshape(-1, 1, 1),
            "each index along axis 1 is a constant more than it should be",
        ),
        (
            DENSE,
            SQUARE,
            lambda y, v: y * np.linspace(0.5, 2, 12),
            "each index along axis 1 is a constant times what it should be, 0.5 to 2",
        ),
    ],
)
def test_a_relation_to_the_right_result_is_said_as_a_fact(right, values, wrong, said):
    made = wrong(run_node(right, values, OPSET)["y"], values)
    for told in said_of(right, values, np.ascontiguousarray(made, np.float32)):
        assert said in told
        assert "likely" not in told


ROWS = {"x": real(4, 245), "axes": np.array([1])}
MASK = np.where(RNG.random((1, 1, 24, 24)) < 0.3, -1e4, 0).astype(np.float32)
HEADS = {"x": real(1, 24, 16), "k": real(1, 24, 16), "v": real(1, 24, 16), "mask": MASK}
PICTURE = {"x": real(1, 4, 4, 4), "slope": RNG.random(4).astype(np.float32)}


def apart(array, pitch):
    memory = np.zeros(len(array) * pitch, array.dtype)
    memory[: array.size] = array.reshape(-1)
    return memory.reshape(len(array), pitch)[:, : array.shape[1]]


@pytest.mark.parametrize(
    ("right", "values", "changed", "said"),
    [
        (node("ReduceSum", "x axes"), ROWS, {"x": lambda a: apart(a, 256)}, "245 elements of 'x' are read 256 apart"),
        (
            node("Attention", "x k v mask", q_num_heads=2, kv_num_heads=2),
            HEADS,
            {"mask": lambda a: np.where(np.arange(24) < 16, a, 0)},
            "'mask' counts as 0 from index 16 on along axis 3",
        ),
        (
            node("PRelu", "x slope"),
            PICTURE,
            {"slope": lambda a: a.reshape(-1, 1, 1)},
            "'slope' is broadcast along axis 1, not 3",
        ),
        (
            node("Conv", "x w", pads=(1, 1, 1, 1)),
            {"x": real(1, 6, 5, 7), "w": real(4, 6, 3, 3)},
            {"x": lambda a: a.reshape(1, 5, 7, 6).transpose(0, 3, 1, 2)},
            "stored in the order 0, 2, 3, 1",
        ),
        (
            node("GatherElements", "x i", axis=1),
            {"x": real(6, 9), "i": RNG.integers(0, 9, (6, 9))},
            {"i": lambda a: np.broadcast_to(a[:1], a.shape)},
            "the first element of 'i' along axis 0 is read for all positions",
        ),
    ],
)
def test_an_operand_that_is_read_otherwise_is_named(right, values, changed, said):
    other = {name: changed[name](array) if name in changed else array for name, array in values.items()}
    made = run_node(right, other, OPSET)["y"]
    diff, explain = said_of(right, values, made)
    assert said in diff
    assert f"likely: {said}" in explain or said in explain
    assert "(reproduces every element)" in explain


def test_a_mistake_in_a_part_is_named_with_its_place():
    right = node("Gemm", "x w b")
    values = {"x": real(20, 16), "w": real(16, 24), "b": real(24)}
    made = run_node(right, values, OPSET)["y"].copy()
    made[:, 16:] -= values["b"][16:]
    for told in said_of(right, values, made):
        assert "the bias is dropped" in told or "'b' counts as 0" in told
        assert "features 16 to 23" in told or "last 8 features" in told or "'b' counts as 0 from index 16" in told


PACKED = RNG.integers(0, 256, (32, 2, 16)).astype(np.uint8)
BLOCKS = {"x": real(4, 64), "q": PACKED, "s": (RNG.random(64) + 0.1).astype(np.float32)}
WEIGHT = node("MatMulNBits", "x q s", "com.microsoft", K=64, N=32, bits=4, block_size=32)


@pytest.mark.parametrize(
    ("codes", "said"),
    [
        (lambda low, high: np.concatenate([low, high], -1), "as all low codes and then all high codes"),
        (lambda low, high: np.stack([high, low], -1).reshape(32, 2, 32), "two codes of each byte of 'q' are swapped"),
        (lambda low, high: np.stack([low, high], -1).reshape(32, 2, 32) ^ 8, "in two's complement"),
        (lambda low, high: np.stack([low, high], -1).reshape(32, 2, 32) + 1.0, "zero point of the weight is 7, not 8"),
    ],
)
def test_codes_of_four_bits_that_are_unpacked_otherwise(codes, said):
    weight = (codes(PACKED & 15, PACKED >> 4).astype(np.float64) - 8) * BLOCKS["s"].reshape(32, 2, 1)
    made = (BLOCKS["x"].astype(np.float64) @ weight.reshape(32, 64).T).astype(np.float32)
    (told,) = qdebug.explain(recorded(WEIGHT, BLOCKS, made)).nodes
    assert said in told.reason


@pytest.mark.parametrize(
    ("rounded", "said"), [(np.floor, "rounded down"), (np.ceil, "rounded up"), (np.rint, "rounded to the nearest")]
)
def test_quotients_of_integers_that_are_rounded_otherwise(rounded, said):
    values = {"x": RNG.integers(-40, 40, (4, 20)), "x2": np.array([7])}
    made = rounded(values["x"] / 7).astype(np.int64)
    (told,) = qdebug.explain(recorded(node("Div", "x x2"), values, made)).nodes
    assert f"its quotients are {said}" in told.reason


def test_a_choice_that_is_taken_for_another_is_named():
    right = node("GridSample", "x g", mode="linear", padding_mode="reflection", align_corners=1)
    values = {"x": real(1, 3, 9, 9), "g": (RNG.random((1, 7, 7, 2)) * 2.8 - 1.4).astype(np.float32)}
    made = run_node(replace(right, attrs={**right.attrs, "padding_mode": "border"}), values, OPSET)["y"]
    (told,) = qdebug.explain(recorded(right, values, made)).nodes
    assert "it uses padding_mode = border, not reflection" in told.reason


CODED = {
    "x": RNG.integers(0, 256, (1, 6, 5, 7)).astype(np.uint8),
    "sx": np.float32(0.02),
    "zx": np.uint8(120),
    "w": RNG.integers(-127, 128, (4, 6, 3, 3)).astype(np.int8),
    "sw": np.float32(0.01),
    "zw": np.int8(0),
    "sy": np.float32(0.3),
    "zy": np.uint8(128),
}


def coded(node, values, made, *names):
    """Record a node on codes, with the scales and zero points that it reads beside them."""
    quants = [
        TensorInfo(
            name=name,
            quant=qdebug.QuantParams(
                scale=values[scale],
                zero_point=values[zero],
                dtype=dtype,
                axis=0 if values[scale].size > 1 else None,
            ),
        )
        for name, scale, zero, dtype in names
    ]
    known = ["x", *(each.name for each in quants)]
    tensors = [TensorInfo(name=name, role=Role.CONSTANT) for name in values if name not in known]
    graph = Graph([node], tensors=[*tensors, *quants], inputs=["x"], outputs=["y"], opset=OPSET)
    return MemoryRecording.single(graph, {**values, "y": made})


CONVOLVED = (("x", "sx", "zx", "uint8"), ("w", "sw", "zw", "int8"), ("y", "sy", "zy", "uint8"))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"x": lambda a: a.reshape(1, 5, 7, 6).transpose(0, 3, 1, 2)}, "'x' is read as if its axes were stored in the"),
        ({"x": lambda a: np.where(np.arange(7) < 4, a, np.uint8(120))}, "'x' counts as 0 from index 4 on along axis 3"),
        ({"w": lambda a: a.reshape(6, 4, 3, 3).swapaxes(0, 1)}, "'w' is read as if its axes were stored in the order"),
        ({"w": lambda a: np.roll(a, 1, 1)}, "'w' is read one position before the right one along axis 1"),
    ],
)
def test_operands_of_codes_that_are_read_otherwise(changed, said):
    right = node("QLinearConv", "x sx zx w sw zw sy zy", pads=(1, 1, 1, 1))
    other = {name: changed[name](array) if name in changed else array for name, array in CODED.items()}
    made = run_node(right, other, OPSET)["y"]
    (told,) = qdebug.explain(coded(right, CODED, made, *CONVOLVED)).nodes
    assert said in told.residual.likely
    assert "(reproduces every element)" in told.residual.likely


def test_an_operand_that_counts_twice():
    right = node("ScatterND", "x i x2", reduction="add")
    values = {"x": real(12, 16), "i": np.array([[1], [4], [7]]), "x2": real(3, 16)}
    made = run_node(right, {**values, "x2": 2 * values["x2"]}, OPSET)["y"]
    for told in said_of(right, values, made):
        assert "'x2' counts 2 times" in told
        assert "likely" not in told


def test_filters_that_are_dealt_out_to_groups():
    right = node("Conv", "x w", group=6, pads=(1, 1, 1, 1))
    values = {"x": real(1, 6, 8, 8), "w": real(12, 1, 3, 3)}
    order = np.arange(12).reshape(2, 6).T.reshape(-1)
    made = run_node(right, {**values, "w": values["w"][order]}, OPSET)["y"][:, np.argsort(order)]
    (told,) = qdebug.explain(recorded(right, values, made)).nodes
    assert "'w' along axis 0, and the result, are treated as if they were interleaved in 2 blocks" in told.reason


def test_heads_of_queries_that_are_dealt_out_to_heads_of_keys():
    right = node("Attention", "x k v", q_num_heads=4, kv_num_heads=2)
    values = {"x": real(1, 10, 32), "k": real(1, 10, 16), "v": real(1, 10, 16)}
    order = np.arange(32).reshape(4, 8)[[0, 2, 1, 3]].reshape(-1)
    made = run_node(right, {**values, "x": values["x"][..., order]}, OPSET)["y"][..., np.argsort(order)]
    (told,) = qdebug.explain(recorded(right, values, made)).nodes
    assert "query heads 1 to 2 read the keys and values of the wrong group, as if heads were" in told.reason


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda i: i % 256, "integers beyond uint8 wrap around: they are kept in 8 bits"),
        (lambda i: np.minimum(i, 127), "integers beyond int8 saturate"),
        (lambda i: i + 500 * (np.arange(40) >= 16), "24 elements from place 16 to 39 are 500 more than they should be"),
    ],
)
def test_integers_that_are_off_in_a_simple_way(wrong, said):
    values = {"x": np.random.default_rng(5).normal(size=(40, 500)).astype(np.float32)}
    right = node("ArgMax", "x", axis=1, keepdims=0)
    made = wrong(run_node(right, values, OPSET)["y"])
    (told,) = qdebug.explain(recorded(right, values, made)).nodes
    assert told.reason.endswith(said)


def test_codes_that_borrow_from_their_neighbours():
    codes, scale = RNG.integers(-7, 8, (32, 24)).astype(np.int8), (RNG.random(24) + 0.1).astype(np.float32)
    nodes = [
        Node(name="weight", op="DequantizeLinear", inputs=("q", "s", "z"), outputs=("w",), attrs={"axis": 1}),
        Node(name="n", op="MatMul", inputs=("x", "w"), outputs=("y",)),
    ]
    tensors = [TensorInfo(name=name, role=Role.CONSTANT) for name in ("q", "s", "z")]
    graph = Graph(nodes, tensors=tensors, inputs=["x"], outputs=["y"], opset=OPSET)
    x, wrong = real(6, 32), codes.astype(np.int64).reshape(8, 4, 24)
    wrong[:, 1:] -= codes.reshape(8, 4, 24)[:, :-1] < 0
    made = (x.astype(np.float64) @ (wrong.reshape(32, 24) * scale.astype(np.float64))).astype(np.float32)
    held = {"q": codes, "s": scale, "z": np.zeros(24, np.int8), "w": codes * scale}
    run = MemoryRecording.single(graph, {"x": x, **held, "y": made})
    told = qdebug.explain(run).nodes[-1]
    assert "each negative code of 'w' borrows 1 from the next along axis 0, in lanes of 4" in told.reason


@pytest.mark.parametrize(
    ("factor", "zero", "said"),
    [
        (-1 / 3, 128, "the dequantized values are about -0.33 times what they should be"),
        (
            0.7,
            100,
            "its codes have a scale of about 0.043 and zero point 100, not 0.03 and 128",
        ),
        (0.75, 128, "its codes have a scale of about 0.04 and zero point 128, not 0.03 and 128"),
    ],
)
def test_codes_of_another_scale_and_zero_point(factor, zero, said):
    right = node("QLinearConv", "x sx zx w sw zw sy zy", pads=(1, 1, 1, 1))
    values = {
        **CODED,
        "x": np.random.default_rng(1).integers(100, 140, (1, 6, 12, 12)).astype(np.uint8),
        "w": CODED["w"] // 4,
        "sy": np.float32(0.03),
    }
    x, w = (values["x"].astype(np.float64) - 120) * 0.02, values["w"] * np.float64(np.float32(0.01))
    exact = run_node(node("Conv", "x w", pads=(1, 1, 1, 1)), {"x": x, "w": w}, OPSET)["y"]
    made = np.clip(np.rint(exact / 0.03 * factor) + zero, 0, 255).astype(np.uint8)
    (told,) = qdebug.explain(coded(right, values, made, *CONVOLVED)).nodes
    assert said in told.residual.likely


def test_a_softmax_in_fixed_point_has_one_scale():
    x = RNG.integers(0, 256, (6, 16)).astype(np.uint8)
    right = node("QLinearSoftmax", "x sx zx sy zy", "com.microsoft", axis=-1, opset=13)
    values = {"x": x, "sx": np.float32(0.05), "zx": np.uint8(128), "sy": np.float32(0.0078432), "zy": np.uint8(128)}
    powers = np.exp(x * 0.05)
    made = np.clip(np.rint(powers / powers.sum(-1, keepdims=True) * 256), 0, 255).astype(np.uint8)
    (told,) = qdebug.explain(coded(right, values, made, ("x", "sx", "zx", "uint8"), ("y", "sy", "zy", "uint8"))).nodes
    assert "its codes have a scale of about 0.0039" in told.residual.likely
    assert "zero point 0, not 0.007843 and 128" in told.residual.likely


def test_scales_inside_a_layer_that_ends_in_codes():
    codes, scale = (
        RNG.integers(-127, 128, (6, 6, 3, 3)).astype(np.int8),
        (RNG.random(6) * 0.01 + 0.001).astype(np.float32),
    )
    nodes = [
        Node(name="weight", op="DequantizeLinear", inputs=("q", "s", "z"), outputs=("w",), attrs={"axis": 1}),
        Node(name="conv", op="Conv", inputs=("x", "w"), outputs=("c",), attrs={"pads": (1, 1, 1, 1)}),
        Node(name="quant", op="QuantizeLinear", inputs=("c", "sy", "zy"), outputs=("y",)),
    ]
    constants = {"q": codes, "s": scale, "z": np.zeros(6, np.int8), "sy": np.float32(0.1), "zy": np.int8(-5)}
    tensors = [TensorInfo(name=name, role=Role.CONSTANT) for name in constants]
    tensors.append(TensorInfo(name="y", quant=qdebug.QuantParams(scale=0.1, zero_point=-5, dtype="int8")))
    graph = Graph(nodes, tensors=tensors, inputs=["x"], outputs=["y"], opset=OPSET)
    x = real(1, 6, 9, 9)
    other = codes * scale.reshape(-1, 1, 1, 1)
    real_result = run_node(node("Conv", "x w", pads=(1, 1, 1, 1)), {"x": x, "w": other}, OPSET)["y"]
    made = np.clip(np.rint(real_result / np.float32(0.1)) - 5, -128, 127).astype(np.int8)
    told = qdebug.explain(MemoryRecording.single(graph, {"x": x, **constants, "y": made})).nodes[-1]
    assert "it works along axis 0, not 1 in 'weight' (DequantizeLinear), inside the layer" in told.residual.likely


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"x": lambda a: np.tile(a[:, :2], (1, 2, 1, 1))},
            "the first 2 elements of 'x' along axis 1 are read repeatedly",
        ),
        ({"x": lambda a: np.roll(a, 2, 1)}, "the halves of 'x' along axis 1 are swapped"),
        ({"x": lambda a: np.where(np.arange(4)[:, None, None] < 3, 0, a)}, "'x' counts as 0 before index 3"),
    ],
)
def test_parts_of_an_operand_that_are_read_otherwise(changed, said):
    right = node("Conv", "x w", group=2, pads=(1, 1, 1, 1))
    values = {"x": real(1, 4, 6, 6), "w": real(8, 2, 3, 3)}
    other = {name: changed[name](array) if name in changed else array for name, array in values.items()}
    made = run_node(right, other, OPSET)["y"].astype(np.float32)
    for told in said_of(right, values, made):
        assert said in told


def test_another_tensor_that_is_read_in_place_of_an_operand():
    nodes = [
        Node(name="gate", op="Sigmoid", inputs=("x",), outputs=("g",)),
        Node(name="root", op="Abs", inputs=("x",), outputs=("a",)),
        Node(name="scale", op="Mul", inputs=("a", "x"), outputs=("y",)),
    ]
    graph = Graph(nodes, inputs=["x"], outputs=["y"], opset=OPSET)
    x = real(6, 8)
    gate = (1 / (1 + np.exp(-x))).astype(np.float32)
    run = MemoryRecording.single(graph, {"x": x, "g": gate, "a": np.abs(x), "y": gate * x})
    told = qdebug.explain(run).nodes[-1]
    assert "likely: 'g' is read instead of 'a' (reproduces every element)" in told.reason


def test_a_view_whose_strides_are_ignored():
    nodes = [
        Node(name="half", op="Slice", inputs=("x", "starts", "ends", "axes"), outputs=("v",)),
        Node(name="scores", op="Softmax", inputs=("v",), outputs=("y",)),
    ]
    bounds = {"starts": np.array([2]), "ends": np.array([5]), "axes": np.array([1])}
    tensors = [TensorInfo(name=name, role=Role.CONSTANT) for name in bounds]
    graph = Graph(nodes, tensors=tensors, inputs=["x"], outputs=["y"], opset=OPSET)
    x = real(8, 6)
    view = x[:, 2:5]
    for start in (0, 2):
        read = x.reshape(-1)[start : start + view.size].reshape(view.shape)
        made = run_node(nodes[1], {"v": read}, OPSET)["y"].astype(np.float32)
        told = qdebug.explain(MemoryRecording.single(graph, {"x": x, **bounds, "v": view, "y": made})).nodes[-1]
        assert "likely: the strides of 'v' are ignored: 'x' is read in memory order (reproduces" in told.reason


def test_the_end_of_a_sorted_result_is_named_rather_than_its_small_values():
    x = real(3, 40)
    right = node("TopK", "x k", largest=1, sorted=1)
    values = {"x": x, "k": np.array([12])}
    made = -np.sort(-x)[:, :12]
    made[:, 8:] = 0
    assert all("the last 4 of 12 elements along axis 1 are all 0" in told for told in said_of(right, values, made))


def test_an_axis_that_codes_are_averaged_along():
    codes = RNG.integers(-128, 128, (3, 8, 8, 8)).astype(np.int8)
    right = node("ReduceMean", "x axes", keepdims=0)
    tensors = [
        TensorInfo(name="axes", role=Role.CONSTANT),
        TensorInfo(name="x", quant=qdebug.QuantParams(scale=0.05, zero_point=4, dtype="int8")),
        TensorInfo(name="y", quant=qdebug.QuantParams(scale=0.02, zero_point=7, dtype="int8")),
    ]
    graph = Graph([right], tensors=tensors, inputs=["x"], outputs=["y"], opset=OPSET)
    mean = (codes.astype(np.float64) - 4).mean(1) * 0.05
    made = np.clip(np.rint(mean / 0.02) + 7, -128, 127).astype(np.int8)
    (told,) = qdebug.explain(MemoryRecording.single(graph, {"x": codes, "axes": np.array([3]), "y": made})).nodes
    assert told.residual.likely == "it works along axis 1, not 3 (reproduces every code to within one)"


def test_codes_that_overflow_are_told_from_those_that_are_never_written():
    right, values = node("QLinearConv", "x sx zx w sw zw sy zy", pads=(1, 1, 1, 1)), {**CODED, "sy": np.float32(1.5)}
    exact = run_node(right, values, OPSET)["y"]
    made = np.where(exact < 124, np.uint8(255), exact)
    (told,) = qdebug.explain(recorded(right, values, made)).nodes
    assert told.residual.pattern == "overflow"
    assert told.residual.likely == "results that overflow or lose their sign on the way, and then saturate"


def test_the_sign_that_wrong_real_numbers_should_have():
    values = {"x": real(8, 12), "w": real(12, 10)}
    exact = run_node(DENSE, values, OPSET)["y"]
    made = np.where(exact < 0, np.sqrt(np.abs(exact)) * np.float32(0.3) - 1, exact).astype(np.float32)
    (told,) = qdebug.explain(recorded(DENSE, values, made)).nodes
    assert "exactly the elements that should be negative" in told.reason


@pytest.mark.parametrize(
    ("right", "values", "wrong", "said"),
    [
        (
            node("BatchNormalization", "x g b m v", epsilon=0.01),
            {
                "x": real(1, 6, 5, 5),
                "g": real(6),
                "b": real(6),
                "m": real(6),
                "v": (RNG.random(6) / 20).astype(np.float32),
            },
            {"epsilon": 0.02},
            "epsilon counts twice, as 0.02",
        ),
        (
            node("LayerNormalization", "x g", epsilon=0.01),
            {"x": real(6, 12) / 10, "g": real(12)},
            {"epsilon": 1e-3},
            "it uses epsilon = 0.001",
        ),
    ],
)
def test_a_number_of_an_attribute_that_counts_otherwise(right, values, wrong, said):
    made = run_node(replace(right, attrs=wrong), values, OPSET)["y"]
    (told,) = qdebug.explain(recorded(right, values, made)).nodes
    assert said in told.reason


def test_a_function_that_only_a_runtime_has():
    values = {"x": real(8, 16)}
    made = (values["x"] / (1 + np.exp(-1.702 * values["x"].astype(np.float64)))).astype(np.float32)
    (told,) = qdebug.explain(recorded(node("Gelu", "x"), values, made)).nodes
    assert "it computes QuickGelu, not Gelu" in told.reason


@pytest.mark.parametrize(("scale", "said"), [(0.04, "as if 's' did not count"), (25.0, "as if 's' counted once more")])
def test_a_factor_that_is_read_and_counts_otherwise(scale, said):
    right = real(6, 8)
    result = Result(
        right=right, recorded=25 * right, allowed=1e-4, operands={"x": right + 1}, numbers={"s": np.float32(scale)}
    )
    assert relation_of(result) == f"every element is 25 times what it should be, {said}"


def test_a_bias_that_counts_several_times_in_codes():
    right = node("QLinearConv", "x sx zx w sw zw sy zy b", pads=(1, 1, 1, 1))
    values = {**CODED, "b": RNG.integers(-9000, 9000, 4).astype(np.int32), "sb": np.float32(0.0002), "zb": np.int32(0)}
    made = run_node(right, {**values, "b": 4 * values["b"]}, OPSET)["y"]
    (told,) = qdebug.explain(coded(right, values, made, *CONVOLVED, ("b", "sb", "zb", "int32"))).nodes
    assert "'b' counts 4 times" in told.residual.likely


@pytest.mark.parametrize(
    ("order", "said"),
    [([0] * 4 + [1] * 4, "the scales are indexed by group, not by channel"), ([0, 1, 2, 3] * 2, "of the first group")],
)
def test_scales_of_groups_that_are_confused(order, said):
    scale = (RNG.random(8) * 0.01 + 0.004).astype(np.float32)
    weight = RNG.integers(-127, 128, (8, 3, 3, 3)).astype(np.int8)
    values = {**CODED, "w": weight, "sw": scale, "zw": np.zeros(8, np.int8)}
    right = node("QLinearConv", "x sx zx w sw zw sy zy", pads=(1, 1, 1, 1), group=2)
    made = run_node(right, {**values, "sw": scale[order]}, OPSET)["y"]
    (told,) = qdebug.explain(recorded(right, values, made)).nodes
    assert said in told.residual.likely


def test_results_that_were_never_written_are_called_that_and_not_readings_of_zeros():
    values = {"x": real(1, 4, 6, 8), "c": real(1, 6, 4), "s": real(1, 6, 4)}
    right = node("RotaryEmbedding", "x c s", num_heads=4)
    made = run_node(right, values, OPSET)["y"].copy()
    made[:, 1:] = 0
    for said in said_of(right, values, made):
        assert "only in the last 3 channels of 4, all 0 (possibly never written)" in said
        assert "read" not in said


def verdict_on_codes(right, values, made, *names):
    """Return the reason that a comparison with the right codes gives."""
    pair = [coded(right, values, codes, *names) for codes in (run_node(right, values, OPSET)["y"], made)]
    return qdebug.diff(*pair).diagnosis[0].why


def test_a_cause_that_gives_nearly_all_codes_is_named_by_a_comparison_too():
    """Codes are wrong all over the tensor, and some of them one off what the mistake gives."""
    right = node("QLinearConv", "x sx zx w sw zw sy zy", pads=(1, 1, 1, 1))
    cut = np.where(np.arange(6).reshape(1, 6, 1, 1) < 3, CODED["x"], np.uint8(120))
    made = run_node(right, {**CODED, "x": cut}, OPSET)["y"]
    made[0, 0, 0, :3] += 1
    why = verdict_on_codes(right, CODED, made, *CONVOLVED)
    assert "'x' counts as 0 from index 3 on along axis 1" in why
    assert "reproduces every code to within one" in why


def test_a_fixed_scale_that_clips_is_named_and_not_a_tensor_made_of_its_codes():
    values = {"x": RNG.normal(size=(8, 32)).astype(np.float32) * np.float32(2.6), "s": np.float32(8.24 / 127)}
    values["z"] = np.int8(0)
    runs = []
    for scale in (8.24 / 127, 5 / 127):
        codes = np.clip(np.rint(values["x"] / np.float32(scale)), -127, 127).astype(np.int8)
        quant = qdebug.QuantParams(scale=values["s"], zero_point=0, dtype="int8")
        nodes = [
            Node(name="q", op="QuantizeLinear", inputs=("x", "s", "z"), outputs=("c",)),
            Node(name="d", op="DequantizeLinear", inputs=("c", "s", "z"), outputs=("y",)),
        ]
        tensors = [TensorInfo(name=name, role=Role.CONSTANT) for name in ("s", "z")]
        tensors.append(TensorInfo(name="c", quant=quant))
        graph = Graph(nodes, tensors=tensors, inputs=["x"], outputs=["y"], opset=OPSET)
        arrays = {**values, "c": codes, "y": codes.astype(np.float32) * values["s"]}
        runs.append(MemoryRecording.single(graph, arrays))
    fault = qdebug.diff(*runs).diagnosis[0]
    assert fault.node == "q"
    assert "its codes have a scale of about 0.039 and zero point 0, not 0.06488 and 0" in fault.why


def test_a_part_along_an_axis_may_have_an_order_of_its_own():
    values = {"x": real(8, 2, 6), "w": real(2, 20, 6), "r": real(2, 20, 5), "b": real(2, 40)}
    right = node("LSTM", "x w r b", hidden_size=5, direction="bidirectional")
    made = run_node(right, values, OPSET)["y"].copy()
    made[:, 0] = made[::-1, 0]
    for said in said_of(right, values, made):
        assert "at index 0 of axis 1, the result is in reverse along axis 0" in said


@pytest.mark.parametrize("reads", ["memory in another order", "another order of memory"])
def test_a_filter_in_another_order_of_its_axes(reads):
    right, values = node("Conv", "x w"), {"x": real(1, 4, 7, 7), "w": real(6, 4, 3, 3)}
    stored = values["w"].transpose(1, 0, 2, 3).reshape(6, 4, 3, 3)
    if reads == "memory in another order":
        stored = values["w"].reshape(4, 6, 3, 3).transpose(1, 0, 2, 3)
    made = run_node(right, {**values, "w": stored}, OPSET)["y"]
    (told,) = qdebug.explain(recorded(right, values, made)).nodes
    words = {
        "memory in another order": "'w' is read as if its axes were stored in the order 1, 0, 2, 3",
        "another order of memory": "'w' is stored with its axes in the order 1, 0, 2, 3, which the kernel ignores",
    }
    assert words[reads] in told.reason


def of_blocks(array, order):
    """Return weights or biases whose gates come from other blocks, in the order of ONNX's gates."""
    parts = array.reshape(1, -1, 4, 5, *array.shape[2:])
    return np.ascontiguousarray(parts[:, :, list(order)]).reshape(array.shape)


SMALL = {"x": real(6, 2, 4), "w": real(1, 15, 4), "r": real(1, 15, 5), "b": real(1, 30)}
PICTURES = {"x": real(2, 3, 9, 9)}


def gated_product_without_bias(y, values):
    w, r, b = (values[name][0].astype(np.float64) for name in "wrb")
    state, steps = np.zeros((2, 5)), []
    for x in values["x"].astype(np.float64):
        of_input, of_state = x @ w.T + b[:15], state @ r.T
        update, reset = (1 / (1 + np.exp(-(of_input + of_state + b[15:])[:, at : at + 5])) for at in (0, 5))
        hidden = np.tanh(of_input[:, 10:] + reset * of_state[:, 10:] + b[25:])
        state = (1 - update) * hidden + update * state
        steps.append(state)
    return np.stack(steps)[:, None]


@pytest.mark.parametrize(
    ("right", "values", "wrong", "said"),
    [
        (
            node("ConvTranspose", "x w", pads=(1, 2, 1, 2)),
            {"x": real(1, 2, 6, 6), "w": real(2, 3, 4, 5)},
            lambda y, v: run_node(node("ConvTranspose", "x w", pads=(2, 1, 0, 3)), v, OPSET)["y"],
            "the padding is [2, 1, 0, 3], not [1, 2, 1, 2]",
        ),
        (
            node("Gather", "x at"),
            {"x": real(9, 5), "at": np.array([4, 7, 8, 5, 6])},
            lambda y, v: v["x"][:5],
            "'at' is ignored, and the positions along axis 0 are used",
        ),
        (
            DENSE,
            {"x": real(24, 24), "w": real(24, 24)},
            lambda y, v: np.where(y >= 4, 30, y),
            "becomes 30",
        ),
        (
            DENSE,
            {"x": real(24, 24), "w": real(24, 24)},
            lambda y, v: np.where(np.abs(y) >= 4, np.copysign(30, y), y),
            "becomes ±30",
        ),
        (
            node("GRU", "x w r b", hidden_size=5),
            SMALL,
            gated_product_without_bias,
            "the reset gate multiplies the product with the recurrent weight, without its bias",
        ),
        (
            node("GRU", "x w r b", hidden_size=5),
            SMALL,
            lambda y, v: run_node(
                node("GRU", "x w r b", hidden_size=5), {**v, "b": v["b"] * (np.arange(30) < 15)}, OPSET
            )["y"],
            "the recurrent biases are ignored",
        ),
        (
            node("AveragePool", "x", kernel_shape=(4, 4), pads=(1, 1, 3, 3), count_include_pad=1),
            PICTURES,
            lambda y, v: (
                y * np.where(np.arange(10) == 9, 16 / 12, 1) * np.where(np.arange(10) == 9, 16 / 12, 1)[:, None]
            ),
            "19 of 100 windows are divided by 9 or 12, not 16",
        ),
        (
            node("Softplus", "x"),
            {"x": real(40, 20) * np.float32(8)},
            lambda y, v: np.where(v["x"] > 11.09, 0, y),
            "on becomes 0",
        ),
        (
            node("LSTM", "x w r b", hidden_size=5),
            {"x": real(6, 2, 4), "w": real(1, 20, 4), "r": real(1, 20, 5), "b": real(1, 40)},
            lambda y, v: run_node(
                node("LSTM", "x w r b", hidden_size=5),
                {name: v[name] if name == "x" else of_blocks(v[name], (0, 3, 1, 2)) for name in v},
                OPSET,
            )["y"],
            "it assumes the gate order input, forget, cell, output",
        ),
        (
            node("Resize", "x r s", mode="linear", coordinate_transformation_mode="pytorch_half_pixel"),
            {"x": real(1, 3, 7, 6), "r": np.zeros(0, np.float32), "s": np.float32([1, 1, 2, 3])},
            lambda y, v: run_node(
                node("Resize", "x r s", mode="linear", coordinate_transformation_mode="asymmetric"), v, OPSET
            )["y"],
            "it uses coordinate_transformation_mode = asymmetric, not pytorch_half_pixel",
        ),
        (
            node("GatherElements", "x at", axis=1),
            {"x": real(7, 9), "at": np.array([[0, 2, 5], *([[-1, 3, -4]] * 6)])},
            lambda y, v: v["x"].reshape(-1)[v["at"] + 9 * np.arange(7)[:, None]],
            "read the memory before the start",
        ),
        (
            node("LSTM", "x w r b", hidden_size=5),
            {"x": real(6, 2, 4), "w": real(1, 20, 4), "r": real(1, 20, 5), "b": real(1, 40)},
            lambda y, v: run_node(
                node("LSTM", "x w r b", hidden_size=5), {**v, "b": of_blocks(v["b"], (1, 1, 1, 3))}, OPSET
            )["y"],
            "the input and forget gates have the biases of the output gate",
        ),
        (
            node("InstanceNormalization", "x g b"),
            {"x": real(2, 4, 40) * np.float32([1, 400, 2, 900]).reshape(4, 1), "g": real(4) + 2, "b": real(4)},
            lambda y, v: np.where(v["x"].var(2, keepdims=True) > 65504, v["b"].reshape(4, 1), y),
            "the variance overflows in float16",
        ),
    ],
)
def test_a_mistake_of_an_operator_is_named(right, values, wrong, said):
    made = wrong(run_node(right, values, OPSET)["y"], values)
    for told in said_of(right, values, np.ascontiguousarray(made, np.float32)):
        assert said in told


def test_the_scale_of_a_channel_that_is_looked_up_by_the_sample():
    right = node("QLinearConv", "x sx zx w sw zw sy zy", pads=(1, 1, 1, 1))
    scales = np.linspace(0.004, 0.02, CODED["w"].shape[0]).astype(np.float32)
    x = RNG.integers(0, 256, (2, *CODED["x"].shape[1:])).astype(np.uint8)
    values = {**CODED, "x": x, "sw": scales, "zw": np.zeros(scales.size, np.int8)}
    by_sample = [run_node(right, {**values, "sw": np.full_like(scales, each)}, OPSET)["y"] for each in scales[:2]]
    made = np.stack([by_sample[0][0], by_sample[1][1]])
    assert "'sw' is indexed along axis 0, not 1" in verdict_on_codes(right, values, made, *CONVOLVED)


def test_roundings_that_differ_by_one_code_are_told_apart_though_a_default_is_stated_once():
    values = {"x": real(6, 40), "s": np.float32(0.02), "z": np.int8(7)}
    right = node("QuantizeLinear", "x s z", axis=1)
    codes = run_node(right, values, OPSET)["y"]
    cut = np.clip(np.trunc(values["x"] / np.float32(0.02) + 7), -128, 127).astype(np.int8)
    runs = [
        coded(each, values, made, ("y", "s", "z", "int8"))
        for each, made in ((right, codes), (node("QuantizeLinear", "x s z"), cut))
    ]
    result = qdebug.diff(*runs)
    assert result.verdict.status == "within"
    assert "zero point before rounding, cut off" in result.verdict.sentence


def test_a_part_that_holds_another_tensor():
    values = {"x": real(12, 10), "w": real(10, 8), "r": real(10, 8)}
    nodes = [
        Node(name=name, op="MatMul", inputs=("x", weight), outputs=(name,)) for name, weight in (("p", "w"), ("q", "r"))
    ]
    tensors = [TensorInfo(name=name, role=Role.CONSTANT) for name in "wr"]
    graph = Graph(nodes, tensors=tensors, inputs=("x",), outputs=("p", "q"), opset=OPSET)
    right = {"p": values["x"] @ values["w"], "q": values["x"] @ values["r"]}
    wrong = {**right, "q": np.where(np.arange(8) < 5, right["q"], right["p"])}
    result = qdebug.diff(*(MemoryRecording.single(graph, {**values, **made}) for made in (right, wrong)))
    assert "the wrong elements are equal to 'p' at the same positions" in result.diagnosis[0].why


def test_codes_whose_scale_holds_for_another_part():
    right = node("QuantizeLinear", "x s z")
    values = {"x": real(2, 8, 6, 6), "s": np.float32(0.03), "z": np.int8(-20)}
    made = run_node(right, values, OPSET)["y"].copy()
    made[:, 4:] = np.clip(np.rint(values["x"][:, 4:] / np.float32(0.025)) + 5, -128, 127)
    why = verdict_on_codes(right, values, made, ("y", "s", "z", "int8"))
    assert "at 4 to 7 of axis 1, its codes have a scale of about 0.025 and zero point 5, not 0.03 and -20" in why
    assert "filters" not in why
