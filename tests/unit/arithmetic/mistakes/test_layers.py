"""Mistakes of recurrent layers, normalizations, movements and casts: each is named where it was made."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import qdebug
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.replay import run_node

RNG = np.random.default_rng(8)
OPSET = {"": 21}


def real(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def recorded(node, values, made):
    tensors = [TensorInfo(name=name, role=Role.CONSTANT) for name in values if not name.startswith("x")]
    inputs = [name for name in values if name.startswith("x")]
    graph = Graph([node], tensors=tensors, inputs=inputs, outputs=node.outputs[:1], opset=OPSET)
    return MemoryRecording.single(graph, {**values, "y": made})


def node(op, inputs, **attrs):
    return Node(
        name="n",
        op=op,
        inputs=tuple("" if each == "-" else each for each in inputs.split()),
        outputs=("y",),
        attrs=attrs,
    )


def with_attribute(right, **attrs):
    return replace(right, attrs={**right.attrs, **attrs})


def named(right, values, made):
    """Return what diff and explain say."""
    exact = run_node(right, values, OPSET)["y"]
    assert not np.array_equal(exact, made, equal_nan=True)
    result = qdebug.diff(recorded(right, values, exact), recorded(right, values, made))
    (told,) = qdebug.explain(recorded(right, values, made)).nodes
    assert (result["n"].status, told.status) == ("diverged", "unexplained")
    causes = [found.sentence for found in result["n"].findings if found.role == "cause"]
    return " ".join(causes), told.reason


GELU, TANH_GELU = (node("Gelu", "x", approximate=form) for form in ("none", "tanh"))
SILU = replace(node("QuickGelu", "x", alpha=1.0), domain="com.microsoft")


def gru():
    values = {"x": real(7, 2, 5), "W": real(1, 18, 5), "R": real(1, 18, 6), "b": real(1, 36), "h": real(1, 2, 6)}
    return node("GRU", "x W R b - h", hidden_size=6, linear_before_reset=1), values


def lstm():
    values = {"x": real(7, 2, 5), "W": real(1, 24, 5), "R": real(1, 24, 6), "b": real(1, 48)}
    return node("LSTM", "x W R b", hidden_size=6), values


def moved_gates(values, order, size):
    rows = np.concatenate([np.arange(size) + size * at for at in order])
    both = np.concatenate([rows, rows + size * len(order)])
    return {"W": values["W"][:, rows], "R": values["R"][:, rows], "b": values["b"][:, both]}


@pytest.mark.parametrize(
    ("layer", "changed", "wrong", "said"),
    [
        (gru, {}, {"linear_before_reset": 0}, "linear_before_reset is ignored"),
        (gru, {}, {"direction": "reverse"}, "it runs in direction reverse, not forward"),
        (gru, {"h": lambda values: 0 * values["h"]}, {}, "the initial state is ignored"),
        (gru, {"b": lambda values: 0 * values["b"]}, {}, "the bias is ignored"),
        (lstm, {"gates": (0, 2, 1, 3)}, {}, "the gate order input, forget, output, cell"),
        (gru, {"gates": (1, 0, 2)}, {}, "the gate order reset, update, hidden"),
        (lstm, {}, {"input_forget": 1}, "it uses input_forget = 1, not 0"),
    ],
)
def test_recurrent_layers(layer, changed, wrong, said):
    right, values = layer()
    other = dict(values)
    for name, change in changed.items():
        other |= moved_gates(values, change, 6) if name == "gates" else {name: change(values)}
    made = run_node(with_attribute(right, **wrong), other, OPSET)["y"]
    for each in named(right, values, made):
        assert said in each


@pytest.mark.parametrize("gate", [None, 2])
def test_a_first_step_that_skips_the_recurrent_bias(gate):
    drawn = np.random.default_rng(1)
    shapes = {"x": (7, 2, 5), "W": (1, 18, 5), "R": (1, 18, 6), "b": (1, 36)}
    values = {name: drawn.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    layer = node("GRU", "x W R b", hidden_size=6, linear_before_reset=1)
    bias = values["b"].copy().reshape(1, 2, 3, 6)
    bias[:, 1, slice(None) if gate is None else gate] = 0
    both = replace(layer, outputs=("y", "h"))
    begun = run_node(both, {**values, "x": values["x"][:1], "b": bias.reshape(1, 36)}, OPSET)
    rest = replace(layer, inputs=(*layer.inputs, "", "h"))
    continued = run_node(rest, {**values, "x": values["x"][1:], "h": begun["h"]}, OPSET)
    said = "skips the recurrent bias" + ("" if gate is None else " of the hidden gate")
    for text in named(layer, values, np.concatenate([begun["y"], continued["y"]])):
        assert said in text


IMAGE = {"x": real(2, 6, 3, 4) + 1, "g": real(6) + 1, "b": real(6)}
ROWS = {"x": real(5, 12) + 1, "g": real(12) + 1, "b": real(12)}
INSTANCES = node("InstanceNormalization", "x g b", epsilon=0.01)
LAYERS = node("LayerNormalization", "x g b", epsilon=0.01)
GROUPS = node("GroupNormalization", "x g b", epsilon=0.01, num_groups=2)
STATISTICS = {
    "variance is divided by": lambda x, axes, n: np.sqrt(x.var(axes, keepdims=True) * n / (n - 1) + 0.01),
    "added to the deviation": lambda x, axes, n: np.sqrt(x.var(axes, keepdims=True)) + 0.01,
    "added to the count": lambda x, axes, n: np.sqrt(x.var(axes, keepdims=True) * n / (n + 0.01)),
    "divides by the variance, not its root": lambda x, axes, n: x.var(axes, keepdims=True) + 0.01,
    "mean is not subtracted before squaring": lambda x, axes, n: np.sqrt((x * x).mean(axes, keepdims=True) + 0.01),
}


@pytest.mark.parametrize("said", STATISTICS)
@pytest.mark.parametrize(
    ("right", "values", "axes"), [(INSTANCES, IMAGE, (2, 3)), (LAYERS, ROWS, (1,)), (GROUPS, IMAGE, (2,))]
)
def test_normalizations(right, values, axes, said):
    x = values["x"].astype(np.float64)
    shaped = x.reshape(2, 2, -1) if right is GROUPS else x
    count = np.prod([shaped.shape[axis] for axis in axes])
    made = ((shaped - shaped.mean(axes, keepdims=True)) / STATISTICS[said](shaped, axes, count)).reshape(x.shape)
    by = (1, -1, 1, 1) if x.ndim > 2 else (1, -1)
    made = (made * values["g"].reshape(by) + values["b"].reshape(by)).astype(np.float32)
    for each in named(right, values, made):
        assert said in each


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"g": np.ones(12, np.float32)}, "the scale is ignored"),
        ({"b": np.zeros(12, np.float32)}, "the bias is ignored"),
        ({"g": ROWS["g"] + np.float32(1)}, "1 is added to the scale"),
    ],
)
def test_parameters_of_a_normalization(changed, said):
    made = run_node(LAYERS, {**ROWS, **changed}, OPSET)["y"]
    for each in named(LAYERS, ROWS, made):
        assert said in each


def test_channels_that_are_dealt_out_to_groups():
    x = IMAGE["x"]
    order = [0, 2, 4, 1, 3, 5]
    other = {"x": x[:, order], "g": IMAGE["g"][order], "b": IMAGE["b"][order]}
    made = run_node(GROUPS, other, OPSET)["y"][:, np.argsort(order)]
    for each in named(GROUPS, IMAGE, made):
        assert "assigned to groups round-robin" in each


TABLE = {"x": real(2, 9, 4), "i": np.array([0, -1, 3, -4, 7])}
PICK = node("Gather", "x i", axis=1)


def indexed(change):
    return run_node(PICK, {**TABLE, "i": change(TABLE["i"])}, OPSET)["y"]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (np.where((TABLE["i"] < 0)[:, None], 0, indexed(np.asarray)).astype(np.float32), "negative indices return 0"),
        (indexed(lambda i: np.where(i < 0, 0, i)), "negative indices are treated as 0"),
        (indexed(np.abs), "the sign of negative indices is dropped"),
        (indexed(lambda i: (i + 1) % 9), "indices are one too large"),
    ],
)
def test_indices(made, said):
    for each in named(PICK, TABLE, made):
        assert said in each


CUBE = {"x": real(3, 4, 5)}
FILTERS = {"x": real(1, 3, 9, 8), "w": real(4, 3, 3, 3)}
CONV = node("Conv", "x w", strides=(2, 1), pads=(1, 2, 1, 0))
PADDED = {"x": real(1, 1, 5, 5), "p": np.array([0, 0, 1, 2, 0, 0, 1, 2]), "v": np.float32(2.5)}
PAD = node("Pad", "x p v", mode="constant")
CLIPPED = {"x": 3 * real(40), "l": np.float32(-1), "h": np.float32(2)}
CLIP = node("Clip", "x l h")
CHOSEN = {"xc": RNG.random((4, 8)) > 0.5, "x": real(4, 8), "x2": real(4, 8)}
JOINED = {"x": real(3, 4), "x2": real(3, 4), "x3": real(3, 4)}
MIRRORED = node("Pad", "x p", mode="reflect")


def mirrored_by_elements(values):
    """Pad columns, then mirror the elements of each flattened plane above and below it."""
    planes = np.pad(values["x"], ((0, 0), (0, 0), (0, 0), (1, 2)), mode="reflect")
    flat = planes.reshape(2, -1)
    above, below = flat[:, 1 : 2 * 8 + 1][:, ::-1], flat[:, -8 - 1 : -1][:, ::-1]
    return np.concatenate([above, flat, below], 1).reshape(1, 2, 9, 8)


MEAN = node("ReduceMean", "x", axes=(1, 2), keepdims=0)


@pytest.mark.parametrize(
    ("right", "values", "made", "said"),
    [
        (
            node("Transpose", "x", perm=(2, 0, 1)), {"x": real(4, 4, 4)}, lambda v: v["x"].transpose(1, 2, 0),
            "it uses the inverse permutation (1, 2, 0)",
        ),
        (
            node("Transpose", "x", perm=(2, 0, 1)), CUBE, lambda v: v["x"].reshape(5, 3, 4),
            "the elements are not reordered",
        ),
        (
            node("Concat", "x x2 x3", axis=1), JOINED, lambda v: np.concatenate([v["x3"], v["x2"], v["x"]], 1),
            "the parts are joined in reverse order",
        ),
        (
            node("Where", "xc x x2"), CHOSEN, lambda v: np.where(v["xc"], v["x2"], v["x"]),
            "the condition is inverted",
        ),
        (
            CONV, FILTERS, lambda v: run_node(CONV, {**v, "w": v["w"][..., ::-1, ::-1]}, OPSET)["y"],
            "its filters are flipped",
        ),
        (
            CONV, FILTERS, lambda v: run_node(CONV, {**v, "w": v["w"].swapaxes(2, 3)}, OPSET)["y"],
            "rows and columns of its filters are swapped",
        ),
        (
            PAD, PADDED, lambda v: run_node(PAD, {**v, "v": np.float32(0)}, OPSET)["y"],
            "the padding value is ignored",
        ),
        (
            CLIP, CLIPPED, lambda v: run_node(node("Clip", "x - h"), v, OPSET)["y"],
            "the lower bound is ignored",
        ),
        (MEAN, {"x": real(9, 3, 4)}, lambda v: v["x"].sum((1, 2)), "it is a sum, not a mean"),
        (
            MIRRORED, {"x": real(1, 2, 6, 5), "p": np.array([0, 0, 2, 1, 0, 0, 1, 2])}, mirrored_by_elements,
            "outer axes are padded by single elements of the flattened inner axes",
        ),
    ],
)  # fmt: skip
def test_movements_lists_and_bounds(right, values, made, said):
    for each in named(right, values, np.ascontiguousarray(made(values))):
        assert said in each


HALF = node("Cast", "x", to=10)
SHORT = node("Cast", "x", to=16)
NUMBERS = {"x": np.concatenate([real(400), np.float32([0.99999, 1.99999, -0.0312499, 7e4, -9e4, 3e-6, -2e-5])])}


def halved(x):
    made = x.astype(np.float16)
    carried = (np.abs(np.frexp(made)[0]) == 0.5) & (np.abs(made.astype(np.float32)) > np.abs(x))
    return np.where(carried, made / np.float16(2), made)


def test_a_cast_that_loses_a_carry():
    with np.errstate(over="ignore"):
        told = reason(HALF, NUMBERS, halved(NUMBERS["x"]))
    assert "values that round up to a power of 2 in float16 become half of it" in told


@pytest.mark.parametrize(
    ("right", "made", "words"),
    [
        (HALF, lambda x: np.where(np.abs(x) < 2.0**-14, 0, x).astype(np.float16), "subnormal results become 0"),
        (
            SHORT,
            lambda x: (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32).astype(ml_dtypes.bfloat16),
            "results truncated to bfloat16",
        ),
    ],
)
def test_casts_that_round_otherwise_are_explained(right, made, words):
    with np.errstate(over="ignore"):
        (told,) = qdebug.explain(recorded(right, NUMBERS, made(NUMBERS["x"]))).nodes
    assert told.status == "explained"
    assert words in told.words


def reason(right, values, made):
    (told,) = qdebug.explain(recorded(right, values, made)).nodes
    return told.reason


def test_scales_of_a_weight_along_another_axis():
    scale = (0.01 + 0.1 * RNG.random(6)).astype(np.float32)
    codes = RNG.integers(-127, 128, (6, 6)).astype(np.int8)
    held = {"x": real(9, 6), "q": codes, "s": scale}
    nodes = [
        Node(name="w", op="DequantizeLinear", inputs=("q", "s"), outputs=("w",), attrs={"axis": 1}),
        Node(name="fc", op="MatMul", inputs=("x", "w"), outputs=("y",)),
    ]

    def run(weight):
        infos = [TensorInfo(name=name, role=Role.CONSTANT) for name in "qs"]
        graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=("y",), opset=OPSET)
        return MemoryRecording.single(graph, {**held, "y": held["x"] @ weight})

    right, wrong = run(codes * scale), run((codes * scale[:, None]).astype(np.float32))
    (cause,) = [found.sentence for found in qdebug.diff(right, wrong)["fc"].findings if found.role == "cause"]
    assert "the scales of 'w' are applied along axis 0, not 1" in cause


CURVE = node("HardSwish", "x")
POOL = node("MaxPool", "x", kernel_shape=(2, 2), strides=(2, 2), pads=(1, 1, 1, 1))
SUMS = node("CumSum", "x a")
BELOW = {"x": real(1, 2, 8, 8) - 3}
GREY = {"x": RNG.integers(0, 256, (6, 9)).astype(np.uint8), "k": RNG.integers(0, 120, 9).astype(np.uint8)}


@pytest.mark.parametrize(
    ("right", "values", "made", "said"),
    [
        (
            CURVE, {"x": 3 * real(50)}, lambda v: np.clip(v["x"] / np.float32(6) + np.float32(0.5), 0, 1),
            "it computes only its HardSigmoid, without the factor 'x'",
        ),
        (
            node("Selu", "x"), {"x": real(50)},
            lambda v: np.float32(1.05070102) * np.where(v["x"] > 0, v["x"], np.float32(1.67326319) * v["x"]),
            "negative numbers are multiplied by alpha, without the exponential, as in LeakyRelu",
        ),
        (
            node("Gelu", "x", approximate="tanh"), {"x": np.linspace(-3, 3, 60, dtype=np.float32)},
            lambda v: (
                v["x"] / 2 * (1 + np.tanh(0.044715 * v["x"] * (1 + np.sqrt(2 / np.pi) * v["x"] ** 2)))
            ).astype(np.float32),
            "the two constants of its tanh form are swapped",
        ),
        (
            node("Elu", "x"), {"x": real(50)}, lambda v: np.where(v["x"] < 0, v["x"] * np.float32(0.01), v["x"]),
            "it computes LeakyRelu, not Elu",
        ),
        (
            SUMS, {"x": real(5, 6), "a": np.int64(1)}, lambda v: np.cumsum(v["x"], 0, dtype=np.float32),
            "it works along axis 0, not 1",
        ),
        (
            node("MaxPool", "x", kernel_shape=(2, 2), strides=(2, 2)), {"x": real(1, 3, 12, 12) - 1},
            lambda v: np.maximum(
                v["x"].reshape(1, 3, 6, 2, 6, 2).max((3, 5)), np.finfo(np.float32).tiny, dtype=np.float32
            ),
            "its running maximum starts from the smallest positive float32, not from the lowest number",
        ),
        (
            node("ReduceMin", "x", axes=(1,), keepdims=0), {"x": real(60, 3)}, lambda v: v["x"].min(1).clip(max=0),
            "its running minimum starts from 0, not from the highest number",
        ),
        (
            POOL, BELOW,
            lambda v: np.pad(v["x"], ((0, 0), (0, 0), (1, 1), (1, 1))).reshape(1, 2, 5, 2, 5, 2).max((3, 5)),
            "the padding counts as 0 instead of being ignored",
        ),
        (
            CONV, FILTERS,
            lambda v: run_node(
                with_attribute(CONV, pads=(0, 0, 0, 0)),
                {**v, "x": np.pad(v["x"], ((0, 0), (0, 0), (1, 1), (2, 0)), mode="edge")}, OPSET,
            )["y"],
            "the padding repeats its outermost values",
        ),
    ],
)  # fmt: skip
def test_functions_axes_and_padding(right, values, made, said):
    for each in named(right, values, np.ascontiguousarray(made(values))):
        assert said in each


def test_integers_that_saturate_where_they_wrap_around():
    made = np.clip(GREY["x"].astype(int) - GREY["k"], 0, 255).astype(np.uint8)
    right = node("Sub", "x k")
    for each in named(right, GREY, made):
        assert "results beyond uint8 saturate instead of wrapping around" in each
    assert qdebug.explain(recorded(right, GREY, made)).exit_code == 1


def test_a_table_that_is_one_code_off_on_one_side():
    codes = np.arange(-128, 128).astype(np.int8).reshape(1, -1)
    moved = np.where(codes > 0, codes - 1.0, codes)
    curve = np.clip(np.rint(256 / (1 + np.exp(-moved * 0.05))) - 128, -128, 127).astype(np.int8)
    with qdebug.Recorder(None, backend="npu") as rec:
        rec.put("x", codes, scale=0.05, zero_point=0)
        rec.put("y", curve, node="n", op="Sigmoid", inputs=("x",), scale=1 / 256, zero_point=-128)
    (told,) = qdebug.explain(rec.recording).nodes
    assert told.status == "unexplained"
    assert "the table is read one code before the right one for codes above real 0" in told.residual.likely


def test_a_table_of_another_function():
    codes = np.arange(-128, 128).astype(np.int8).reshape(1, -1)
    made = np.clip(np.rint(np.tanh(codes * 0.05) * 128), -128, 127).astype(np.int8)
    with qdebug.Recorder(None, backend="npu") as rec:
        rec.put("x", codes, scale=0.05, zero_point=0)
        rec.put("y", made, node="n", op="Sigmoid", inputs=("x",), scale=1 / 128, zero_point=0)
    (told,) = qdebug.explain(rec.recording).nodes
    assert "it computes Tanh, not Sigmoid (reproduces every element)" in told.residual.likely


def test_a_square_operand_that_is_turned_is_said_both_ways():
    right, values = node("Gemm", "x w"), {"x": real(7, 7), "w": real(7, 5)}
    for each in named(right, values, values["x"].T @ values["w"]):
        assert "'x' is read in column-major order, or it uses transA = 1, not 0" in each


def test_an_infinite_constant_that_a_format_turns_into_its_largest_number():
    values = {"xc": CHOSEN["xc"], "x": real(4, 8), "m": np.float32(-np.inf)}
    right = node("Where", "xc x m")
    made = np.where(values["xc"], values["x"], np.float32(-65504))
    told = reason(right, values, made)
    assert "infinite values in 'm' become 65504, the largest float16 value" in told


def test_a_constant_in_float64_may_be_picked_in_float32():
    table = 3 + RNG.random(40)
    values = {"t": table, "x": RNG.integers(0, 40, 16)}
    right = node("Gather", "t x", axis=0)
    picked = table[values["x"]].astype(np.float32)
    for made in (picked, picked.astype(np.float64)):
        (told,) = qdebug.explain(recorded(right, values, made)).nodes
        assert told.status == "in_band"
    picked[3] = np.nextafter(picked[3], np.float32(9))
    (told,) = qdebug.explain(recorded(right, values, picked)).nodes
    assert told.status == "unexplained"


@pytest.mark.parametrize("divisor", [24, 32])
def test_empty_lanes_count_in_the_variance(divisor):
    values = {"x": real(6, 24) + np.float32(0.7), "g": real(24), "b": real(24)}
    right, data = node("LayerNormalization", "x g b", axis=-1), values["x"].astype(np.float64)
    mean = data.mean(-1, keepdims=True)
    variance = (((data - mean) ** 2).sum(-1, keepdims=True) + 8 * mean**2) / divisor
    made = ((data - mean) / np.sqrt(variance + 1e-5) * values["g"] + values["b"]).astype(np.float32)
    for said in named(right, values, made):
        assert f"the variance includes 8 empty lanes beyond the 24 elements, and is divided by {divisor}" in said


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_empty_lanes_count_in_the_sum_of_a_softmax(op):
    values = {"x": real(5, 12)}
    shares = np.exp(values["x"].astype(np.float64))
    made = shares / (shares.sum(-1, keepdims=True) + 4)
    made = (np.log(made) if op == "LogSoftmax" else made).astype(np.float32)
    for said in named(node(op, "x", axis=-1), values, made):
        assert "the sum includes 4 empty lanes beyond the 12 elements, each as exp(0)" in said


def test_statistics_of_the_first_elements_alone():
    values = {"x": real(2, 4, 6, 8) * np.linspace(0.5, 2, 6, dtype=np.float32)[:, None], "g": real(4), "b": real(4)}
    right = node("GroupNormalization", "x g b", num_groups=2)
    rows = values["x"].reshape(2, 2, -1).astype(np.float64)
    first = rows[..., :64]
    made = (rows - first.mean(-1, keepdims=True)) / np.sqrt(first.var(-1, keepdims=True) + 1e-5)
    made = made.reshape(2, 4, 6, 8) * values["g"].reshape(-1, 1, 1) + values["b"].reshape(-1, 1, 1)
    for said in named(right, values, made.astype(np.float32)):
        assert "the statistics cover only the first 64 of 96 elements" in said


def affine(normalized, values):
    return (normalized * values["g"].reshape(-1, 1, 1) + values["b"].reshape(-1, 1, 1)).astype(np.float32)


@pytest.mark.parametrize("divisor", [108, 144])
@pytest.mark.parametrize("crosses_samples", [False, True])
def test_sums_that_count_the_next_group_in_a_block_that_is_longer_than_the_group(divisor, crosses_samples):
    values = {"x": real(2, 12, 6, 6) + np.linspace(-2, 2, 12, dtype=np.float32)[:, None, None]}
    values |= {"g": real(12), "b": real(12)}
    right, memory = node("GroupNormalization", "x g b", num_groups=4), values["x"].astype(np.float64).reshape(-1)
    made = []
    for begin in range(0, memory.size, 108):
        end = memory.size if crosses_samples else (begin // 432 + 1) * 432
        block = memory[begin : min(begin + 144, end)]
        mean = block.sum() / divisor
        deviation = np.sqrt(np.square(block - mean).sum() / divisor + 1e-5)
        made.append((memory[begin : begin + 108] - mean) / deviation)
    for said in named(right, values, affine(np.reshape(made, (2, 12, 6, 6)), values)):
        assert "a group of 108 elements include up to 36 elements of the next group" in said
        assert f"are divided by {divisor}" in said
        assert ("of the next sample" in said) == crosses_samples


@pytest.mark.parametrize(("op", "groups"), [("GroupNormalization", 4), ("InstanceNormalization", 12)])
def test_groups_cut_out_of_channels_last_memory(op, groups):
    values = {"x": real(2, 12, 6, 6) + np.linspace(-2, 2, 12, dtype=np.float32)[:, None, None]}
    values |= {"g": real(12), "b": real(12)}
    last = values["x"].transpose(0, 2, 3, 1)
    parts = last.reshape(2, groups, -1).astype(np.float64)
    parts = (parts - parts.mean(-1, keepdims=True)) / np.sqrt(parts.var(-1, keepdims=True) + 1e-5)
    made = affine(parts.reshape(last.shape).transpose(0, 3, 1, 2), values)
    for said in named(node(op, "x g b", num_groups=groups), values, made):
        assert f"the statistics are taken over {groups} parts of channels-last memory" in said


def nearest(x, at, choose):
    index = np.clip(choose(at), 0, x.shape[-1] - 1).astype(int)
    return x[..., index, :][..., index]


def test_coordinates_in_float32_miss_a_tie():
    values, half = {"x": real(1, 3, 20, 20), "s": np.array([1, 3, 6, 6])}, np.float32(0.5)
    right = node("Resize", "x - - s", mode="nearest", nearest_mode="round_prefer_ceil")
    at = (np.arange(6, dtype=np.float32) + half) / np.float32(0.3) - half
    made = nearest(values["x"], at, lambda at: np.floor(at + half))
    for said in named(right, values, made):
        assert "its coordinates are divided by the scale in float32, which misses a tie" in said


@pytest.mark.parametrize("part", [0, 1])
def test_channels_of_a_split_that_run_on_in_their_block(part):
    values = {"x": real(1, 12, 5, 5), "sizes": np.array([2, 10])}
    begin, end = ((0, 2), (2, 12))[part]
    right = Node(name="n", op="Split", inputs=("x", "sizes"), outputs=("a", "b"), attrs={"axis": 1})
    memory = values["x"].reshape(3, 4, 25).transpose(0, 2, 1).reshape(-1)
    first = begin // 4 * 100 + begin % 4
    cut = memory[first + np.arange(end - begin)[:, None] + 4 * np.arange(25)].reshape(1, -1, 5, 5)
    exact = run_node(right, values, OPSET)
    assert np.array_equal(cut, exact["ab"[part]]) == (part == 0)
    if part == 0:
        return
    tensors = [TensorInfo(name="x", role=Role.INPUT), TensorInfo(name="sizes", role=Role.CONSTANT)]
    graph = Graph([right], tensors=tensors, inputs=("x",), outputs=("a", "b"), opset=OPSET)
    told = qdebug.explain(MemoryRecording.single(graph, {**values, **exact, "b": cut})).nodes
    assert [each.status for each in told] == ["in_band", "unexplained"]
    assert "its channels are stored in blocks of 4, and those after its first block are read past" in told[1].reason


@pytest.mark.parametrize("flat", [True, False])
def test_a_rotary_embedding_that_takes_the_head_for_the_position(flat):
    angles = RNG.uniform(0, 6, (16, 4))
    values = {"x": real(2, 7, 24) if flat else real(2, 3, 7, 8), "p": np.tile(np.arange(2, 9), (2, 1))}
    values |= {"c": np.cos(angles).astype(np.float32), "s": np.sin(angles).astype(np.float32)}
    right = replace(node("RotaryEmbedding", "x p c s", num_heads=3), domain="com.microsoft")
    data = (values["x"].reshape(2, 7, 3, 8) if flat else values["x"].swapaxes(1, 2)).astype(np.float64)
    cos, sin = (np.tile(values[name][2:5].astype(np.float64), 1) for name in "cs")
    low, high = data[..., :4], data[..., 4:]
    made = np.concatenate([low * cos - high * sin, low * sin + high * cos], -1).astype(np.float32)
    made = made.reshape(2, 7, 24) if flat else made.swapaxes(1, 2)
    for said in named(right, values, made):
        assert "the position is the index of the head, not of the token" in said


@pytest.mark.parametrize(
    ("read", "words"),
    [
        ([head % 3 for head in range(12)], "query heads 1 to 2, 5 to 6, 9 to 10 read"),
        ([0] * 12, "as if there were one head"),
        ([head // 8 * 8 // 4 for head in range(12)], "query heads 4 to 7 read"),
        ([(head // 4 + 1) % 3 for head in range(12)], "the next group's"),
    ],
)
@pytest.mark.parametrize("domain", ["", "com.microsoft"])
def test_query_heads_that_read_another_group_of_keys(domain, read, words):
    values = {"x": real(1, 5, 48), "k": real(1, 5, 12), "v": real(1, 5, 12)}
    if domain:
        values |= {"n": np.array([4], np.int32), "t": np.array(5, np.int32)}
        right = replace(node("GroupQueryAttention", "x k v - - n t", num_heads=12, kv_num_heads=3), domain=domain)
    else:
        right = node("Attention", "x k v", q_num_heads=12, kv_num_heads=3)
    each = {name: values[name].reshape(1, 5, 3, 4)[:, :, read].reshape(1, 5, 48) for name in "kv"}
    made = run_node(with_attribute(right, kv_num_heads=12), {**values, **each}, {"": 23})["y"]
    tensors = [TensorInfo(name=name, role=Role.INPUT) for name in values]
    graph = Graph([right], tensors=tensors, inputs=tuple(values), outputs=("y",), opset={"": 23})
    (told,) = qdebug.explain(MemoryRecording.single(graph, {**values, "y": made})).nodes
    assert told.status == "unexplained"
    assert words in told.reason


def test_a_dynamic_scale_of_a_part_of_the_data_is_one_fault_of_one_node():
    x = (np.random.default_rng(8).normal(size=(4, 64)) * np.where(np.arange(64) < 32, 0.5, 1.5)).astype(np.float32)
    right = Node(name="n", op="DynamicQuantizeLinear", inputs=("x",), outputs=("y", "s", "z"))
    tensors = [TensorInfo(name="x", role=Role.INPUT)]
    graph = Graph([right], tensors=tensors, inputs=("x",), outputs=("y", "s", "z"), opset=OPSET)
    low, high = x[:, :32].min(), x[:, :32].max()
    scale = np.float32((high - low) / np.float32(255))
    zero = np.rint(-low / scale)
    codes = np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.uint8)
    exact = run_node(right, {"x": x}, OPSET)
    pair = [
        MemoryRecording.single(graph, {"x": x, **made})
        for made in (exact, {"y": codes, "s": np.asarray(scale), "z": np.asarray(np.uint8(zero))})
    ]
    (fault,) = qdebug.diff(*pair).diagnosis
    assert (fault.node, fault.nodes) == ("n", ("n",))
    assert "its scale is chosen only for the data before index 32 along axis 1" in fault.why


@pytest.mark.parametrize(
    ("rounded", "direction"),
    [
        (lambda x: np.floor(x + np.float32(0.5)), "up"),
        (lambda x: np.copysign(np.floor(np.abs(x) + np.float32(0.5)), x), "away from 0"),
    ],
)
def test_halves_that_are_rounded_in_another_direction(rounded, direction):
    values = {"x": (RNG.integers(-40, 40, (6, 8)) / np.float32(4)).astype(np.float32)}
    found = " ".join(named(node("Round", "x"), values, rounded(values["x"])))
    assert f"halves are rounded {direction}, not to even" in found


def test_halves_alone_do_not_tell_one_direction_from_rounding_up():
    values = {"x": (RNG.integers(-40, 40, (6, 8)) / np.float32(2)).astype(np.float32)}
    found = " ".join(named(node("Round", "x"), values, np.ceil(values["x"])))
    assert "halves are rounded up" in found
    assert "it computes Ceil" in found


@pytest.mark.parametrize(
    ("right", "wrong", "text"),
    [
        (SILU, TANH_GELU, "it computes the tanh form of Gelu, not QuickGelu"),
        (SILU, GELU, "it computes Gelu, not QuickGelu"),
        (GELU, TANH_GELU, "it uses approximate = tanh, not none"),
    ],
)
def test_a_gate_of_language_models_is_taken_for_another(right, wrong, text):
    values = {"x": real(20, 30)}
    made = run_node(wrong, values, OPSET)["y"]
    assert f"{text} (reproduces every element)" in " ".join(named(right, values, made))
