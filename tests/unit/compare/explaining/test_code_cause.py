"""Why codes are wrong: a mistake that gives them all, or the place of the wrong ones, also in a verdict."""

import numpy as np
import pytest

import qdebug
from qdebug.compare.explaining.code_cause import cause_of_codes
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo

RNG = np.random.default_rng(2)
WEIGHT, X = RNG.integers(-127, 128, (16, 24), dtype=np.int8), RNG.integers(-128, 128, (40, 24), dtype=np.int8)
SCALES = RNG.uniform(0.001, 0.006, 16).astype(np.float32)


def run(scales, spoil=None):
    factors = np.float64(0.04) * scales.astype(np.float64) / 0.2
    codes = np.clip(np.rint((X.astype(np.int64) + 10) @ WEIGHT.astype(np.int64).T * factors) + 3, -128, 127)
    codes = codes.astype(np.int8)
    if spoil is not None:
        codes[spoil] = RNG.integers(-128, 128, codes[spoil].shape)
    with qdebug.Recorder(None, backend="board") as rec:
        rec.constant("w", WEIGHT, scale=SCALES, zero_point=np.zeros(16, int), axis=0)
        rec.put("x", X, scale=0.04, zero_point=-10)
        attrs = {"fused_activation_function": "NONE"}
        rec.put("y", codes, node="fc", op="FULLY_CONNECTED", inputs=("x", "w"), attrs=attrs, scale=0.2, zero_point=3)
        rec.outputs("y")
    return rec.recording


def test_the_verdict_names_the_mistake_that_gives_every_element():
    wrong = run(np.full_like(SCALES, SCALES[0]))
    found = cause_of_codes(wrong, "y")
    assert found.sentence == "the first channel's scale is used for all channels (reproduces every element)"
    assert found.sentence in qdebug.diff(run(SCALES), wrong).verdict.sentence
    unasked = qdebug.diff(run(SCALES), wrong, limits=qdebug.Limits(explain=False))
    assert found.sentence not in unasked.verdict.sentence


def test_the_verdict_names_the_place_of_wrong_codes():
    wrong = run(SCALES, np.s_[:, -2:])
    found = cause_of_codes(wrong, "y")
    assert "reproduces" not in found.sentence
    assert "only in the last 2 features of 16" in found.sentence
    assert found.sentence in qdebug.diff(run(SCALES), wrong).verdict.sentence


def rewritten(change):
    right = run(SCALES)
    codes = change(right.load("y"))
    return MemoryRecording.single(right.graph, {**{name: right.load(name) for name in right.names}, "y": codes})


def shifted(axis, by):
    def change(codes):
        made = np.roll(codes, by, axis)
        np.moveaxis(made, axis, 0)[0 if by > 0 else -1] = 99
        return made

    return change


@pytest.mark.parametrize(
    ("axis", "by", "said"),
    [
        (0, 1, "each row is written one row late"),
        (0, -1, "each row is written one row early"),
        (1, 1, "each feature is written one feature late"),
        (1, -1, "each feature is written one feature early"),
    ],
)
def test_codes_that_are_written_beside_their_place_are_named_whatever_the_end_holds(axis, by, said):
    wrong = rewritten(shifted(axis, by))
    found = cause_of_codes(wrong, "y")
    assert found.sentence == f"{said} (reproduces every element)"
    assert said in qdebug.diff(run(SCALES), wrong).verdict.sentence


def test_another_shift_is_named_with_the_rows_that_it_moves():
    sentence = cause_of_codes(rewritten(shifted(0, 3)), "y").sentence
    assert sentence.startswith(
        "39 of 40 hold the result of another: row i holds that of i-3 cyclically; the others hold"
    )


def test_half_a_tensor_that_is_shifted_has_a_cause_there():
    wrong = rewritten(lambda codes: np.concatenate([codes[:20], np.roll(codes[20:], 1, 1)]))
    sentence = cause_of_codes(wrong, "y").sentence
    assert sentence.startswith("only in the last 20 rows of 40: ")
    assert sentence.endswith("each column is written one column late (reproduces all wrong elements)")


def test_one_wrong_code_is_said_to_be_alone_and_where():
    def change(codes):
        codes = codes.copy()
        codes[7, 3] = codes[7, 3] // 2 - 60
        return codes

    sentence = cause_of_codes(rewritten(change), "y").sentence
    assert sentence.startswith("1 of 640 codes is wrong, only at batch row 7, feature 3; likely: not a rounding")
    assert "batch row 7, feature 3" in qdebug.diff(run(SCALES), rewritten(change)).verdict.sentence


def test_right_codes_have_no_cause():
    assert cause_of_codes(run(SCALES), "y").sentence is None
    assert cause_of_codes(run(SCALES), "x").sentence is None


@pytest.mark.parametrize("noise", [0, 1])
def test_codes_that_end_too_early_are_named_beside_other_rounding(noise):
    def change(codes):
        odd = (np.arange(codes.size).reshape(codes.shape) % 5 == 0) * noise
        return np.clip(codes.astype(int) + odd, -20, 20).astype(np.int8)

    sentence = cause_of_codes(rewritten(change), "y").sentence
    assert "a clamp of the codes below -20 and above 20 is too narrow" in sentence


def island(change, inside=np.float32):
    """Record a float net, and a chip that rounds the sigmoid of its input to codes without showing the sigmoid."""
    x = np.random.default_rng(5).normal(size=(16, 32)).astype(np.float32) * 2
    right = 1 / (1 + np.exp(-x))
    made = change(x, right).astype(inside).astype(np.float32)
    scale, zero = np.float32(1 / 255), np.int8(-128)
    codes = np.clip(np.rint(made / scale) + zero, -128, 127).astype(np.int8)
    with qdebug.Recorder(None, backend="float") as reference:
        reference.put("x", x)
        reference.put("s", right.astype(np.float32), node="sigmoid", op="Sigmoid", inputs=("x",))
        reference.outputs("s")
    nodes = [
        Node(name="sigmoid", op="Sigmoid", inputs=("x",), outputs=("s",)),
        Node(name="quant", op="QuantizeLinear", inputs=("s", "scale", "zero"), outputs=("q",)),
    ]
    constants = [TensorInfo(name=name, role=Role.CONSTANT) for name in ("scale", "zero")]
    graph = Graph(nodes, inputs=["x"], outputs=["q"], tensors=constants)
    with qdebug.Recorder(None, backend="chip", graph=graph) as chip:
        chip.constant("scale", scale)
        chip.constant("zero", zero)
        chip.put("x", x)
        chip.put("q", codes, scale=scale, zero_point=zero)
    return reference.recording, chip.recording


def test_codes_that_only_round_a_wrong_result_have_its_cause():
    result = qdebug.diff(*island(lambda x, right: np.clip(0.2 * x + 0.5, 0, 1)))
    assert (result.verdict.status, result.origin) == ("diverged", "quant")
    assert "it computes HardSigmoid, not Sigmoid" in result.verdict.sentence
    clipped = qdebug.diff(*island(lambda x, right: np.clip(right, 0.1, 0.9)))
    assert "the result is clipped below 0.098" in clipped.verdict.sentence


def test_codes_that_round_a_right_result_in_fewer_digits_are_within():
    for inside in (np.float32, np.float16):
        assert qdebug.diff(*island(lambda x, right: right, inside)).verdict.status == "within"


FACTORS = np.random.default_rng(10).uniform(0.2, 1, (12, 12)).astype(np.float32)


def hidden_layer(compute, op, **attrs):
    """Return a chip that shows the codes before and after nodes on real numbers alone; an Elu reads products."""
    codes = np.random.default_rng(9).integers(-100, 100, (2, 3, 12, 12)).astype(np.int8)
    constants = {"s": np.float32(0.0513), "z": np.int8(0), "r": np.float32(0.037), "f": FACTORS}
    nodes = [
        Node(name="dequantize", op="DequantizeLinear", inputs=("c", "s", "z"), outputs=("x",)),
        *([Node(name="scale", op="Mul", inputs=("x", "f"), outputs=("n",))] if op == "Elu" else []),
        Node(name="node", op=op, inputs=("n" if op == "Elu" else "x",), outputs=("a",), attrs=attrs),
        Node(name="quantize", op="QuantizeLinear", inputs=("a", "r", "z"), outputs=("q",)),
    ]
    tensors = [TensorInfo(name=name, role=Role.CONSTANT) for name in constants]
    tensors += [
        TensorInfo(name=name, dtype="int8", quant=QuantParams(dtype="int8", scale=constants[scale], zero_point=0))
        for name, scale in (("c", "s"), ("q", "r"))
    ]
    graph = Graph(nodes, tensors=tensors, inputs=("c",), outputs=("q",), opset={"": 21})
    result = np.clip(np.rint(compute(codes.astype(int)) / constants["r"]), -128, 127).astype(np.int8)
    return MemoryRecording.single(graph, {"c": codes, "q": result, **constants})


def elu(x):
    return np.where(x < 0, np.expm1(x), x)


def averaged(codes):
    return np.lib.stride_tricks.sliding_window_view(np.trunc(codes / 9), (3, 3), (2, 3)).sum((-1, -2)) * 0.0513


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (
            hidden_layer(lambda codes: elu(codes * 0.0513 * FACTORS / 0.037) * 0.037, "Elu"),
            "the activation is applied to values that were already divided by the output's scale",
        ),
        (
            hidden_layer(averaged, "AveragePool", kernel_shape=(3, 3)),
            "each code of 'x' is divided by 9, in integers, before the sum",
        ),
    ],
)
def test_codes_of_a_layer_whose_real_numbers_are_hidden_have_its_cause(run, said):
    assert said in cause_of_codes(run, "q").sentence


def test_codes_of_an_unrecorded_function_that_wrap_around_have_that_cause():
    values = RNG.normal(size=(60, 8)).astype(np.float32)
    exact = np.exp(values) / np.exp(values).sum(-1, keepdims=True)
    quant = QuantParams(dtype="int8", scale=np.float32(1 / 400), zero_point=-128)
    graph = Graph(
        [
            Node(name="softmax", op="Softmax", inputs=("x",), outputs=("p",), attrs={"axis": -1}),
            Node(name="quantize", op="QuantizeLinear", inputs=("p", "s", "z"), outputs=("q",)),
        ],
        tensors=[
            TensorInfo(name="q", dtype="int8", quant=quant),
            *(TensorInfo(name=name, role=Role.CONSTANT) for name in "sz"),
        ],
        inputs=("x",),
        outputs=("q",),
        opset={"": 21},
    )
    wrapped = (np.rint(exact * 400) - 128).astype(np.int64).astype(np.int8)
    assert np.any(np.rint(exact * 400) - 128 > 127)
    constants = {"s": np.float32(1 / 400), "z": np.int8(-128)}
    found = cause_of_codes(MemoryRecording.single(graph, {"x": values, "q": wrapped, **constants}), "q")
    assert found.explains_all
    assert "wrap" in found.sentence
