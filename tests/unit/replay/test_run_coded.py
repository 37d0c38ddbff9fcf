"""Plain operators between codes: when they are, and that they give what the real operator gives."""

import numpy as np
import pytest

from qdebug.arithmetic.presets import preset
from qdebug.errors import KernelError
from qdebug.model import Graph, Node, QuantParams, Role, TensorInfo
from qdebug.replay import Arithmetic, run_graph
from qdebug.replay.run import computes_on_codes

X = QuantParams(dtype="uint8", scale=np.float32(0.5), zero_point=3)
Y = QuantParams(dtype="uint8", scale=np.float32(0.25), zero_point=7)
W = QuantParams(dtype="int8", scale=np.float32(0.125), zero_point=0)
CODES = np.array([[0, 3, 4, 200]], np.uint8)


def graph(node, x=X, y=Y, **others):
    tensors = [TensorInfo(name="x", dtype="uint8", quant=x), TensorInfo(name="y", dtype="uint8", quant=y)]
    tensors += [
        TensorInfo(name=name, role=Role.CONSTANT, dtype=dtype, quant=quant) for name, (dtype, quant) in others.items()
    ]
    return Graph([node], inputs=["x"], outputs=["y"], tensors=tensors, opset={"": 13})


def unary(op, **attrs):
    return Node(name="n", op=op, inputs=("x",), outputs=("y",), attrs=attrs)


def run(node, constants=None, arithmetic=None, **others):
    return run_graph(graph(node, **others), {"x": CODES}, constants or {}, arithmetic=arithmetic)["y"]


def test_a_relu_between_codes_is_one_between_real_numbers():
    # codes 0, 3, 4, 200 stand for -1.5, 0, 0.5, 98.5
    assert run(unary("Relu")).tolist() == [[7, 7, 9, 255]]


def test_codes_are_held_to_the_recorded_range():
    narrow = QuantParams(dtype="uint8", scale=np.float32(0.5), zero_point=3, qmin=5, qmax=9)
    rounded = Graph(
        [unary("QuantizeLinear")], inputs=["x"], tensors=[TensorInfo(name="y", quant=narrow)], outputs=["y"]
    )
    assert run_graph(rounded, {"x": np.array([-9, 1.5, 2, 9], np.float32)}, {})["y"].tolist() == [5, 6, 7, 9]


def test_without_parameters_the_numbers_are_meant():
    plain = Graph([unary("Relu")], inputs=["x"], outputs=["y"])
    assert not computes_on_codes(plain, plain.nodes[0])
    assert run_graph(plain, {"x": CODES.astype(np.int8)}, {})["y"].tolist() == [[0, 3, 4, 0]]


def test_a_fused_activation_is_heeded():
    node = Node(
        name="n",
        op="Add",
        inputs=("x", "w"),
        outputs=("y",),
        attrs={"activation": "Clip", "activation_params": (-1.0, 2.0)},
    )
    found = run(node, {"w": np.array([[0, 0, 4, 0]], np.int8)}, w=("int8", W))
    assert found.tolist() == [[3, 7, 11, 15]]


def test_the_arithmetic_decides_the_rounding():
    node = Node(name="n", op="MatMul", inputs=("x", "w"), outputs=("y",))
    x = np.array([[4], [5], [6]], np.uint8)  # 1, 2, 3 from the zero point, times 2/16: 0.25 a step: half a code each
    w = np.array([[2]], np.int8)
    with_w = {"w": ("int8", QuantParams(dtype="int8", scale=np.float32(0.125)))}
    even = run_graph(graph(node, **with_w), {"x": x}, {"w": w}, arithmetic=Arithmetic())["y"]
    away = run_graph(graph(node, **with_w), {"x": x}, {"w": w}, arithmetic=preset("glow-interpreter").arithmetic)["y"]
    assert even.tolist() == [[7], [8], [9]]
    assert away.tolist() == [[8], [8], [9]]


@pytest.mark.parametrize(
    ("node", "coded"),
    [
        (unary("MaxPool", kernel_shape=(2,)), True),
        (unary("Flatten"), True),
        (unary("Cast", to=1), False),
        (unary("NonZero"), False),
        (Node(name="n", op="Relu", inputs=("x",), outputs=("y",), domain="com.example"), False),
        (Node(name="n", op="Constant", outputs=("y",)), False),
        (unary("Pad"), True),
        (Node(name="n", op="Pad", inputs=("x", "pads", "value"), outputs=("y",)), False),
        (Node(name="n", op="Clip", inputs=("x", "value"), outputs=("y",)), False),
        (Node(name="n", op="Clip", inputs=("x", "low"), outputs=("y",)), True),
    ],
)
def test_which_nodes_mean_the_real_numbers(node, coded):
    others = {"pads": ("int64", None), "value": ("uint8", None), "low": ("float32", None)}
    whole = graph(node, **others)
    assert computes_on_codes(whole, whole.nodes[0]) is coded


@pytest.mark.parametrize("op", ["MaxPool", "Flatten", "Transpose"])
def test_what_keeps_its_codes_is_run_on_them(op):
    whole = graph(unary(op), y=X)
    assert not computes_on_codes(whole, whole.nodes[0])


def test_real_output_is_no_code():
    whole = Graph([unary("Relu")], inputs=["x"], outputs=["y"], tensors=[TensorInfo(name="x", dtype="uint8", quant=X)])
    assert not computes_on_codes(whole, whole.nodes[0])
    floats = TensorInfo(name="y", dtype="float32", quant=Y)
    whole = Graph([unary("Relu")], inputs=["x"], tensors=[TensorInfo(name="x", dtype="uint8", quant=X), floats])
    assert not computes_on_codes(whole, whole.nodes[0])


def test_what_cannot_be_computed_names_its_node():
    with pytest.raises(KernelError, match=r"Node 'n' \(MatMul\)"):
        run(
            Node(name="n", op="MatMul", inputs=("x", "w"), outputs=("y",)),
            {"w": np.ones((3, 2), np.int8)},
            w=("int8", W),
        )
    node = Node(name="n", op="MatMul", inputs=("x", "w"), outputs=("y",))
    with pytest.raises(KernelError, match="on the codes that it reads"):
        run(node, {"w": np.ones((4, 2), np.float32)}, w=("float32", None))


def test_a_bilinear_resize_is_computed_as_the_arithmetic_says():
    node = Node(name="n", op="Resize", inputs=("x", "", "", "sizes"), outputs=("y",), attrs={"mode": "linear"})
    whole = graph(node, y=X, sizes=("int64", None))
    codes = np.array([[10, 20, 40]], np.uint8)
    feed, sizes = {"x": codes}, {"sizes": np.array([1, 5])}
    assert not computes_on_codes(whole, whole.nodes[0], Arithmetic())
    plain = run_graph(whole, feed, sizes)["y"]
    tflite = preset("tflite-reference").arithmetic
    assert computes_on_codes(whole, whole.nodes[0], tflite)
    fixed = run_graph(whole, feed, sizes, arithmetic=tflite)["y"]
    # At -0.2, 0.4, 1.0, 1.6 and 2.2: cut off in one, rounded half away from zero in the other.
    assert plain.tolist() == [[10, 14, 20, 32, 40]]
    assert fixed.tolist() == [[10, 14, 20, 32, 40]]
    codes[0, 1] = 19
    assert run_graph(whole, feed, sizes)["y"].tolist() == [[10, 13, 19, 31, 40]]
    assert run_graph(whole, feed, sizes, arithmetic=tflite)["y"].tolist() == [[10, 14, 19, 32, 40]]


@pytest.mark.parametrize("name", ["ort-mlas", "tflite-reference", "xnnpack-fp32", "torch-qnnpack-x86"])
@pytest.mark.parametrize(
    "attrs",
    [
        {"antialias": 1},
        {"coordinate_transformation_mode": "half_pixel_symmetric"},
        {"coordinate_transformation_mode": "tf_crop_and_resize"},
        {},
    ],
    ids=["antialias", "symmetric", "crop", "three axes"],
)
def test_a_linear_resize_that_is_no_bilinear_one_is_computed_too(name, attrs):
    """No arithmetic says how, so that it is computed as it is defined."""
    node = Node(name="n", op="Resize", inputs=("x", "roi", "", "s"), outputs=("y",), attrs={"mode": "linear", **attrs})
    whole = graph(node, y=X, s=("int64", None), roi=("float32", None))
    codes = np.linspace(0, 90, 60).astype(np.uint8).reshape(3, 4, 5)
    sizes = np.array([3, 3, 4] if attrs else [2, 3, 4])
    held = {"s": sizes, "roi": np.array([0, 0, 0, 1, 1, 1], np.float32)}
    chosen = run_graph(whole, {"x": codes}, held, arithmetic=preset(name).arithmetic)["y"]
    plain = run_graph(whole, {"x": codes}, held)["y"]
    assert chosen.shape == tuple(sizes)
    assert np.abs(chosen.astype(int) - plain.astype(int)).max() <= 1
