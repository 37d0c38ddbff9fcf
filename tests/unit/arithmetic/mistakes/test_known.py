"""Known mistakes on real numbers and whole sums: each is named where it was made, and nothing where several fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import qdebug
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.replay import run_node

RNG = np.random.default_rng(3)
OPSET = {"": 17}


def real(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def recorded(node, values, made):
    names = [name for name in values if not name.startswith("x")]
    tensors = [TensorInfo(name=name, role=Role.CONSTANT) for name in names]
    inputs = [name for name in values if name.startswith("x")]
    graph = Graph([node], tensors=tensors, inputs=inputs, outputs=("y",), opset=OPSET)
    return MemoryRecording.single(graph, {**values, "y": made})


def node(op, inputs, **attrs):
    return Node(name="n", op=op, inputs=tuple(inputs.split()), outputs=("y",), attrs=attrs)


CODES = {"x": RNG.integers(0, 256, (5, 32)).astype(np.uint8), "w": RNG.integers(0, 256, (32, 4)).astype(np.uint8)}
ZEROS = {"z": np.uint8(120), "v": np.uint8(131)}
INTEGERS = node("MatMulInteger", "x w z v")
GEMM = node("Gemm", "x w b", alpha=0.5, beta=2.0)
DENSE = {"x": real(6, 8), "w": real(8, 8), "b": real(8)}
CONV = node("Conv", "x w", pads=(1, 1, 0, 0), strides=(2, 2))
IMAGE = {"x": real(1, 3, 9, 9), "w": real(4, 3, 3, 3)}


@pytest.mark.parametrize(
    ("right", "values", "wrong", "said"),
    [
        (
            INTEGERS,
            CODES | ZEROS,
            replace(INTEGERS, inputs=("x", "w")),
            "zero points of both operands are not subtracted",
        ),
        (
            INTEGERS,
            CODES | ZEROS,
            replace(INTEGERS, inputs=("x", "w", "", "v")),
            "zero point of the first operand is not",
        ),
        (GEMM, DENSE, replace(GEMM, attrs={"beta": 2.0}), "alpha is ignored"),
        (GEMM, DENSE, replace(GEMM, inputs=("x", "w")), "the bias is dropped"),
        (node("Sub", "x x2"), {"x": real(4, 8), "x2": real(4, 8)}, node("Sub", "x2 x"), "its operands are swapped"),
        (node("Mul", "x s"), {"x": real(4, 8), "s": real(1)}, node("Identity", "x"), "the factor 's' is left out"),
        (node("Relu", "x"), {"x": real(4, 8)}, node("Identity", "x"), "the Relu is missing"),
        (node("Softmax", "x", axis=-1), {"x": real(4, 8)}, node("Softmax", "x", axis=0), "along axis 0, not -1"),
        (
            CONV,
            IMAGE,
            replace(CONV, attrs={**CONV.attrs, "pads": (0, 0, 1, 1)}),
            "padding is [0, 0, 1, 1], not [1, 1, 0, 0]",
        ),
    ],
)
def test_a_mistake_is_named_by_diff_and_by_explain(right, values, wrong, said):
    made = [run_node(each, values, OPSET)["y"] for each in (right, wrong)]
    result = qdebug.diff(*(recorded(right, values, each) for each in made))
    (cause,) = [found for found in result["n"].findings if found.role == "cause"]
    assert said in cause.sentence
    assert result["n"].status == "diverged"
    (told,) = qdebug.explain(recorded(right, values, made[1])).nodes
    assert told.status == "unexplained"
    assert said in told.reason


def test_what_is_right_or_unknown_has_no_mistake():
    values = DENSE
    made = run_node(GEMM, values, OPSET)["y"]
    assert qdebug.explain(recorded(GEMM, values, made)).nodes[0].status == "in_band"
    odd = recorded(GEMM, values, made * np.float32(1.37))
    reason = qdebug.explain(odd).nodes[0].reason
    assert "likely" not in reason
    assert reason.endswith("every element is 1.37 times what it should be")


def assert_named(right, values, made, said):
    result = qdebug.diff(recorded(right, values, run_node(right, values, OPSET)["y"]), recorded(right, values, made))
    assert [said in found.sentence for found in result["n"].findings if found.role == "cause"] == [True]
    (told,) = qdebug.explain(recorded(right, values, made)).nodes
    assert said in told.reason


@pytest.mark.parametrize(("right", "values"), [(GEMM, DENSE), (CONV, IMAGE)])
@pytest.mark.parametrize(("axis", "said"), [(-2, "row is written one row late"), (-1, "is written one column late")])
def test_rows_that_are_written_late_are_named_whatever_the_first_one_holds(right, values, axis, said):
    made = np.roll(run_node(right, values, OPSET)["y"], 1, axis)
    np.moveaxis(made, axis, 0)[0] = 7
    assert_named(right, values, made, said)


def test_the_scale_of_the_block_before_is_named():
    packed = node("MatMulNBits", "x w s", K=64, N=8, bits=4, block_size=16)
    packed = replace(packed, domain="com.microsoft")
    codes = RNG.integers(0, 256, (8, 4, 8)).astype(np.uint8)
    values = {"x": real(6, 64), "w": codes, "s": RNG.uniform(0.1, 1, (8, 4)).astype(np.float32)}
    made = run_node(packed, {**values, "s": np.roll(values["s"], 1, -1)}, OPSET)["y"]
    assert_named(packed, values, made, "the scale of the previous block is used")


@pytest.mark.parametrize("misread", ["w", "s"])
def test_rows_of_a_packed_weight_are_read_without_the_padding_of_their_last_block(misread):
    packed = replace(node("MatMulNBits", "x w s", K=40, N=12, bits=4, block_size=16), domain="com.microsoft")
    values = {"x": real(6, 40), "w": RNG.integers(0, 256, (12, 3, 8)).astype(np.uint8)}
    values["s"] = RNG.uniform(0.1, 1, 36).astype(np.float32)
    length, pitch, unit = {"w": (24, 20, "bytes"), "s": (3, 2, "scales")}[misread]
    memory = values[misread].reshape(-1)
    moved = np.stack([memory[row * pitch : row * pitch + length] for row in range(12)]).reshape(values[misread].shape)
    made = run_node(packed, {**values, misread: moved}, OPSET)["y"]
    assert_named(packed, values, made, f"the rows of {misread!r} are read {pitch} {unit} apart, not {length}")


def test_an_element_of_each_tile_that_is_never_written_is_located():
    values = {"x": real(40, 8), "w": real(8, 24)}
    made = run_node(node("MatMul", "x w"), values, OPSET)["y"]
    made[3::4, 7::8] = 0
    (told,) = qdebug.explain(recorded(node("MatMul", "x w"), values, made)).nodes
    for said in (
        "only in the last of every 4 of the rows",
        "last of every 8 of the features",
        "all 0 (possibly never written)",
    ):
        assert said in told.reason


POOL = node("AveragePool", "x", kernel_shape=(3, 3), pads=(1, 1, 1, 1))
PACKED = replace(node("MatMulNBits", "x w s", K=64, N=8, bits=4, block_size=16), domain="com.microsoft")
BLOCKS = {
    "x": real(6, 64),
    "w": RNG.integers(0, 256, (8, 4, 8)).astype(np.uint8),
    "s": RNG.uniform(0.1, 1, (8, 4)).astype(np.float32),
}
RESIZE = replace(
    node("Resize", "x", mode="linear", coordinate_transformation_mode="align_corners"), inputs=("x", "", "s")
)
SCALED = {"x": real(1, 2, 6, 6), "s": np.array([1, 1, 2, 2], np.float32)}


def with_attribute(base, **attrs):
    return replace(base, attrs={**base.attrs, **attrs})


@pytest.mark.parametrize(
    ("right", "values", "wrong", "changed", "said"),
    [
        (POOL, {"x": real(1, 2, 7, 7)}, with_attribute(POOL, count_include_pad=1), {}, "the padding is counted"),
        (
            RESIZE,
            SCALED,
            with_attribute(RESIZE, coordinate_transformation_mode="asymmetric"),
            {},
            "= asymmetric, not align_corners",
        ),
        (
            PACKED,
            BLOCKS,
            replace(PACKED, inputs=("x", "w", "s", "z")),
            {"z": np.zeros((8, 4), np.float32)},
            "the zero point of the weight is not subtracted",
        ),
        (
            replace(PACKED, inputs=("x", "w", "s", "z")),
            BLOCKS | {"z": RNG.integers(0, 256, (8, 2)).astype(np.uint8)},
            PACKED,
            {},
            "the zero points of the weight are ignored",
        ),
        (
            node("MatMul", "x w"),
            {"x": real(5, 72), "w": (weight := real(72, 9))},
            node("MatMul", "x w"),
            {"w": np.where(np.arange(72)[:, None] < 64, weight, 0)},
            "the last 8 of the 72 products of each sum are left out",
        ),
    ],
)
def test_what_kernels_leave_out_or_take_for_something_else_is_named(right, values, wrong, changed, said):
    assert_named(right, values, run_node(wrong, {**values, **changed}, OPSET)["y"], said)


def test_a_mistake_that_tells_all_elements_comes_before_one_that_tells_a_part():
    right = node("ConvTranspose", "x w", strides=(2,), pads=(1, 0), output_padding=(1,))
    values = {"x": real(2, 4, 12), "w": real(4, 6, 3)}
    made = run_node(with_attribute(right, pads=(0, 1)), values, OPSET)["y"]
    assert_named(right, values, made, "the padding is [0, 1], not [1, 0]")


def test_the_place_of_wrong_real_numbers_is_in_the_verdict():
    right, values = node("MatMul", "x w"), {"x": real(20, 8), "w": real(8, 24)}
    made = run_node(right, values, OPSET)["y"]
    wrong = made.copy()
    wrong[:, -3:] = 0
    sentence = qdebug.diff(*(recorded(right, values, each) for each in (made, wrong))).verdict.sentence
    assert "wrong elements: only in the last 3 features of 24, all 0 (possibly never written)" in sentence


DILATED = node("Conv", "x w", dilations=(2, 2), pads=(2, 2, 2, 2))
NORM = node("LayerNormalization", "x s b", epsilon=1e-3)


@pytest.mark.parametrize(
    ("right", "values", "wrong", "change", "said"),
    [
        (DILATED, IMAGE, with_attribute(DILATED, dilations=(1, 1), pads=(1, 1, 1, 1)), None, "the dilation is ignored"),
        (DILATED, IMAGE, with_attribute(DILATED, dilations=(1, 1)), lambda y: y[:, :, :-2, :-2], "the dilation is"),
        (
            NORM,
            {"x": real(6, 16) * np.float32(0.05), "s": real(16), "b": real(16)},
            with_attribute(NORM, epsilon=0.0),
            None,
            "it uses epsilon = 0",
        ),
        (
            node("HardSwish", "x"),
            {"x": (data := real(6, 16))},
            node("HardSigmoid", "x"),
            lambda y: y * data,
            "HardSigmoid has the default parameters of that operator, not alpha 0.1667, beta 0.5",
        ),
        (
            node("MatMul", "x w"),
            {"x": (rows := real(5, 7)), "w": real(7, 6)},
            replace(node("MatMul", "x2 w"), inputs=("x2", "w")),
            None,
            "'x' is read in column-major order",
        ),
        (
            node("MatMul", "x w"),
            {"x": real(5, 7), "w": real(7, 13)},
            node("MatMul", "x w"),
            lambda y: np.pad(y, ((0, 0), (0, 3))).reshape(-1)[: y.size].reshape(y.shape),
            "padded to a multiple of 4 elements, and read without these gaps",
        ),
    ],
)
def test_more_mistakes_of_public_reports_are_named(right, values, wrong, change, said):
    made = run_node(wrong, {**values, "x2": rows.reshape(7, 5).T}, OPSET)["y"]
    assert_named(right, values, made if change is None else change(made), said)


@pytest.mark.parametrize("counted", [0, 1])
def test_windows_beyond_the_padding_that_are_divided_by_all_taps_are_named(counted):
    right = with_attribute(POOL, strides=(2, 2), ceil_mode=1, count_include_pad=counted)
    values = {"x": real(1, 2, 8, 6)}
    whole = with_attribute(right, ceil_mode=0, count_include_pad=1, pads=(1, 1, 2, 2))
    made = run_node(whole, values, OPSET)["y"]
    assert_named(
        right, values, made, "the last windows are divided by all taps, although some taps lie beyond the padding"
    )


@pytest.mark.parametrize(
    ("opset", "other", "said"), [(11, 13, "works along axis 1 only"), (13, 11, "all axes from 1 on")]
)
def test_a_softmax_of_another_operator_set_is_named(opset, other, said):
    right = node("Softmax", "x", axis=1)
    values = {"x": real(2, 5, 4, 4)}
    runs = [run_node(right, values, {"": version})["y"] for version in (opset, other)]
    graph = Graph([right], inputs=["x"], outputs=("y",), opset={"": opset})
    good, bad = (MemoryRecording.single(graph, {**values, "y": each}) for each in runs)
    (cause,) = [found for found in qdebug.diff(good, bad)["n"].findings if found.role == "cause"]
    assert said in cause.sentence


@pytest.mark.parametrize(
    ("shape", "small", "wrong", "said"),
    [
        (
            (1, 6, 4, 5),
            (1, 6, 1, 1),
            lambda b: np.resize(b.reshape(-1), (1, 6, 4, 5)),
            "repeated over all elements in memory order",
        ),
        ((1, 6, 6, 5), (1, 6, 1, 1), lambda b: b.reshape(1, 1, 6, 1), "broadcast along axis 2, not 1"),
    ],
)
def test_an_operand_that_is_repeated_along_other_axes_is_named(shape, small, wrong, said):
    right = node("Add", "x b")
    values = {"x": real(*shape), "b": real(*small)}
    assert_named(right, values, run_node(right, {**values, "b": wrong(values["b"])}, OPSET)["y"], said)


def test_elements_that_no_rounding_changes_are_located_too():
    values = {"x": real(8, 1), "shape": np.array([8, 16])}
    made = run_node(node("Expand", "x shape"), values, OPSET)["y"].copy()
    made[:, 3::4] = 0
    (told,) = qdebug.explain(recorded(node("Expand", "x shape"), values, made)).nodes
    assert "last of every 4" in told.reason
    assert "Expand does not round" in told.reason


SHUFFLE = node("DepthToSpace", "x", blocksize=2, mode="CRD")
DILATED = node("Conv", "x w", dilations=(1, 2), pads=(1, 2, 1, 2))
SUMMED = node("ReduceSum", "x axes", keepdims=0)


@pytest.mark.parametrize(
    ("right", "values", "wrong", "changed", "said"),
    [
        (SHUFFLE, {"x": real(1, 12, 4, 4)}, with_attribute(SHUFFLE, mode="DCR"), {}, "it uses mode = DCR, not CRD"),
        (
            DILATED,
            {"x": real(1, 3, 9, 9), "w": real(4, 3, 3, 3)},
            with_attribute(DILATED, dilations=(2, 2), pads=(2, 2, 2, 2)),
            {},
            "the last dilation is used for all axes",
        ),
        (
            DILATED,
            {"x": real(1, 3, 9, 9), "w": real(4, 3, 3, 3)},
            with_attribute(DILATED, dilations=(2, 1), pads=(2, 1, 2, 1)),
            {},
            "the dilations of rows and columns are swapped",
        ),
        (
            SUMMED,
            {"x": real(3, 8, 8), "axes": np.array([1])},
            SUMMED,
            {"axes": np.array([2])},
            "it works along axis 2, not 1",
        ),
    ],
)
def test_what_is_confused_with_its_like_is_named(right, values, wrong, changed, said):
    assert_named(right, values, run_node(wrong, {**values, **changed}, OPSET)["y"], said)


def test_an_attribute_taken_for_its_default_is_one_mistake():
    right = with_attribute(RESIZE, coordinate_transformation_mode="asymmetric")
    made = run_node(with_attribute(RESIZE, coordinate_transformation_mode="half_pixel"), SCALED, OPSET)["y"]
    assert_named(right, SCALED, made, "it uses coordinate_transformation_mode = half_pixel, not asymmetric")


def test_two_mistakes_about_one_attribute_that_both_fit_are_said_together():
    right = node("LayerNormalization", "x g", axis=-1, epsilon=0.01)
    values = {"x": real(6, 24), "g": real(24)}
    made = run_node(with_attribute(right, epsilon=0.0), values, OPSET)["y"]
    told = qdebug.explain(recorded(right, values, made)).nodes[0].reason
    assert "it uses epsilon = 0" in told


def test_matrices_that_are_repeated_one_after_the_other_are_named():
    values = {"x": real(4, 3, 6, 8), "w": real(4, 1, 8, 10)}
    right = node("MatMul", "x w")
    repeated = np.resize(values["w"], (12, 8, 10)).reshape(4, 3, 8, 10)
    made = run_node(right, {**values, "w": repeated}, OPSET)["y"]
    assert_named(right, values, made, "the matrices of 'w' are repeated in memory order")


def test_channels_of_space_to_depth_in_the_other_order_are_named():
    values, right = {"x": real(1, 3, 8, 8)}, node("SpaceToDepth", "x", blocksize=2)
    made = values["x"].reshape(1, 3, 4, 2, 4, 2).transpose(0, 1, 3, 5, 2, 4).reshape(1, 12, 4, 4)
    assert_named(right, values, np.ascontiguousarray(made), "it uses mode = CRD, not DCR")
