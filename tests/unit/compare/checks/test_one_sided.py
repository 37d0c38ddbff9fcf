"""A node that truncates is found however small its error is, and one that rounds as the reference does is not."""

import ml_dtypes
import numpy as np
import pytest

import qdebug
from qdebug.api import diff, explain
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.numerics.float_rounding import round_float
from qdebug.numerics.short_formats import SHORT_FORMATS

RNG = np.random.default_rng(3)
SHORT = next(short for short in SHORT_FORMATS if short.name == "bfloat16")
SCALE = RNG.standard_normal(256)


def rounded(values, word="even"):
    return round_float(np.asarray(values, np.float64), SHORT, word).astype(np.float32)


A, B = rounded(RNG.standard_normal((64, 256))), rounded(RNG.standard_normal((64, 256)))
GRAPH = Graph(
    (
        Node(name="add", op="Add", inputs=("a", "b"), outputs=("h",)),
        Node(name="norm", op="RMSNormalization", inputs=("h", "s"), outputs=("y",), attrs={"epsilon": 1e-5}),
    ),
    tensors=[TensorInfo(name="s", role=Role.CONSTANT)],
    inputs=["a", "b"],
    outputs=["y"],
)


def run(add="even", inverse=None, *, dtype=ml_dtypes.bfloat16, unrounded=False):
    scale, total = rounded(SCALE), A.astype(np.float64) + B
    h = rounded(total, add) if dtype is not np.float32 else total.astype(np.float32)
    x = total.astype(np.float32) if unrounded else h
    factor = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-5))
    y = x * (factor if inverse is None else rounded(factor, inverse)) * scale
    y = y if dtype is np.float32 else rounded(y)
    values = {"a": A, "b": B, "s": scale, "h": h, "y": y}
    return MemoryRecording.single(GRAPH, {name: array.astype(dtype) for name, array in values.items()})


@pytest.mark.parametrize("reference", [{}, {"dtype": np.float32}], ids=["bfloat16", "float32"])
@pytest.mark.parametrize("word", ["zero", "out", "up", "down"])
def test_a_one_sided_rounding_fails(word, reference):
    result = diff(run(**reference), run(word))
    assert result["add"].status == "diverged"
    (finding,) = [each for each in result["add"].findings if each.kind == "one_sided"]
    assert finding.amount > 0.25
    assert "16,384 of 16,384 elements" in finding.sentence
    assert result["norm"].status == "within"
    assert result.diagnosis[0].fault == "kernel"


@pytest.mark.parametrize("word", ["even", "away"])
def test_rounding_to_nearest_passes(word):
    result = diff(run(dtype=np.float32), run(word))
    assert result["add"].status == "within"
    assert not [each for each in result["add"].findings if each.kind == "one_sided"]


def test_a_reference_that_truncates_too_passes():
    result = diff(run("zero"), run("zero", inverse="even"))
    assert not [each for node in result.nodes for each in node.findings if each.kind == "one_sided"]


def test_a_rounding_in_another_place_is_named_beside_the_reference():
    result = diff(run(), run(inverse="even"))
    (finding,) = [each for each in result["norm"].findings if each.kind == "rounding"]
    assert "the inverse root rounded to nearest as well" in finding.sentence
    assert finding.role == "note"
    assert result["norm"].status == "within"


def test_an_input_that_is_read_before_its_rounding_is_named():
    result = diff(run(), run(unrounded=True))
    (finding,) = [each for each in result["norm"].findings if each.kind == "rounding"]
    assert finding.sentence == "its input 'h' read before its rounding, unlike in the reference"


def single(op, inputs, result, *, constants=(), dtype=ml_dtypes.bfloat16, **attrs):
    """Record one node in a format, in as many samples as its first input has."""
    names = [f"i{at}" for at in range(len(inputs))]
    infos = [TensorInfo(name=names[at], role=Role.CONSTANT) for at in constants]
    free = [name for at, name in enumerate(names) if at not in constants]
    node = Node(name="s", op=op, inputs=tuple(names), outputs=("y",), attrs=attrs)
    arrays = {(names[at], 0, 0): np.asarray(inputs[at]).astype(dtype) for at in constants}
    for sample, values in enumerate(result):
        arrays["y", sample, 0] = values.astype(dtype)
        arrays |= {
            (name, sample, 0): np.asarray(inputs[at][sample]).astype(dtype)
            for at, name in enumerate(names)
            if at not in constants
        }
    return MemoryRecording(Graph([node], tensors=infos, inputs=free, outputs=["y"]), arrays)


def faults(op, inputs, right, made, **options):
    result = diff(single(op, inputs, right, dtype=np.float32, **options), single(op, inputs, made, **options))
    return [each for each in result["s"].findings if each.kind == "one_sided"]


def test_results_that_nearest_moves_in_one_direction_are_right():
    """Quotients by 255 lie between 0.5 and 1 units above a number of bfloat16, so each goes away from zero."""
    whole = RNG.integers(0, 256, (1, 3, 32, 32)).astype(np.float32)
    right = whole / np.float32(255)
    assert not faults("Div", [whole, np.float32(255)], right, rounded(right), constants=(1,))
    large, small = rounded(RNG.uniform(129, 255, (1, 4096))), rounded(RNG.uniform(0.1, 0.4, (1, 4096)))
    assert not faults("Add", [large, small], large + small, rounded(large.astype(np.float64) + small))


@pytest.mark.parametrize("rows", [1, 16, 64])
def test_a_factor_of_a_row_that_is_rounded_to_nearest_moves_the_row_as_one(rows):
    for seed in range(5):
        x = rounded(np.random.default_rng(seed).standard_normal((1, rows, 256)))
        powers = np.exp(x - x.max(-1, keepdims=True))
        total = powers.sum(-1, keepdims=True)
        assert not faults("Softmax", [x], powers / total, rounded(powers / rounded(total)), axis=-1)


def test_an_accumulator_that_truncates_is_a_fault():
    x, w = rounded(RNG.standard_normal((1, 32, 64))), rounded(RNG.standard_normal((64, 64)) / 8)
    total = np.zeros((1, 32, 64), np.float32)
    for k in range(64):
        total = rounded(total + x[..., k : k + 1] * w[k], "zero")
    (finding,) = faults("MatMul", [x, w], x @ w, total, constants=(1,))
    assert "its errors are one-sided" in finding.sentence


def test_a_single_sample_that_truncates_is_a_fault():
    a, b = (rounded(RNG.standard_normal((8, 1024))) for _ in range(2))
    exact = a.astype(np.float64) + b
    made = np.stack([rounded(values, "zero" if at == 5 else "even") for at, values in enumerate(exact)])
    (finding,) = faults("Add", [a, b], exact, made)
    assert "in 1,024 of 1,024 elements in sample 5" in finding.sentence


def test_the_unusual_step_is_named_first():
    x = rounded(RNG.standard_normal((1, 64, 64)))
    powers = np.exp(x - x.max(-1, keepdims=True))
    cut = rounded(powers, "zero")
    made = rounded(cut / cut.sum(-1, keepdims=True))
    result = diff(
        single("Softmax", [x], rounded(powers / powers.sum(-1, keepdims=True)), axis=-1),
        single("Softmax", [x], made, axis=-1),
    )
    (finding,) = [each for each in result["s"].findings if each.kind in ("one_sided", "rounding")]
    assert finding.sentence.startswith("the exponentials truncated as well")


def test_an_input_that_was_never_recorded_is_no_crash():
    node = Node(name="s", op="Sigmoid", inputs=("a",), outputs=("y",))
    runs = []
    for dtype in (np.float32, ml_dtypes.bfloat16):
        values = (1 / (1 + np.exp(-A))).astype(dtype)
        runs.append(MemoryRecording.single(Graph([node], inputs=["a"], outputs=["y"]), {"y": values}))
    assert diff(*runs)["s"].status in ("within", "diverged", "incomparable")
    assert explain(runs[1]).nodes[0].status == "no_input"


def test_a_matrix_product_that_is_read_before_its_rounding_is_named():
    x, w, gate = (rounded(RNG.standard_normal(shape)) for shape in ((32, 32), (32, 64), (32, 64)))
    product = x @ w
    graph = Graph(
        (
            Node(name="product", op="MatMul", inputs=("x", "w"), outputs=("p",)),
            Node(name="gated", op="Mul", inputs=("p", "g"), outputs=("y",)),
        ),
        tensors=[TensorInfo(name=name, role=Role.CONSTANT) for name in "wg"],
        inputs=["x"],
        outputs=["y"],
    )
    values = {"x": x, "w": w, "g": gate, "p": rounded(product), "y": rounded(product * gate)}
    run = MemoryRecording.single(graph, {name: array.astype(ml_dtypes.bfloat16) for name, array in values.items()})
    told = {node.node: node.words for node in explain(run).nodes}
    assert "its input 'p' read before its rounding" in told["gated"]


@pytest.mark.parametrize(("op", "domain"), [("Conv", ""), ("FusedConv", "com.microsoft")])
def test_a_rounded_weight_moves_its_channel_together_and_is_no_fault(op, domain):
    """A filter whose weights sum to more than they do after rounding shrinks each result of a long signal."""
    x, w = rounded(np.exp(2 * RNG.standard_normal((1, 1, 4096)))), np.full((1, 1, 8), 1.003, np.float32)
    attrs = {"activation": "Relu", "activation_params": ()} if domain else {}
    graph = Graph(
        [Node(name="conv", op=op, domain=domain, inputs=("x", "w"), outputs=("y",), attrs=attrs)],
        tensors=[TensorInfo(name="w", role=Role.CONSTANT)],
        inputs=["x"],
        outputs=["y"],
    )

    def filtered(weight, short):
        y = np.convolve(x[0, 0], weight[0, 0], "valid")[None, None].astype(np.float32)
        values = {"x": x.astype(np.float32), "w": w, "y": rounded(y) if short else y}
        return MemoryRecording.single(graph, values)

    result = diff(filtered(w, short=False), filtered(rounded(w), short=True))
    assert not [each for node in result.nodes for each in node.findings if each.kind == "one_sided"]


def test_errors_that_a_cumulative_sum_hands_on_count_once():
    x = RNG.standard_normal((4, 400)).astype(np.float32)
    total, sums = np.zeros(4, np.float16), []
    for at in range(400):
        total = (total.astype(np.float32) + x[:, at]).astype(np.float16)
        sums.append(total.astype(np.float32))
    node = Node(name="sum", op="CumSum", inputs=("x", "axis"), outputs=("y",))
    graph = Graph([node], tensors=[TensorInfo(name="axis", role=Role.CONSTANT)], inputs=["x"], outputs=["y"])
    arrays = {"x": x, "axis": np.array(1)}
    right = np.cumsum(x, 1, dtype=np.float64).astype(np.float32)
    runs = [MemoryRecording.single(graph, arrays | {"y": y}) for y in (right, np.stack(sums, 1))]
    assert not [each for each in diff(*runs)["sum"].findings if each.kind == "one_sided"]


def quantized(compute):
    """Record a quantizer whose codes are computed from quotients."""
    x, scale = np.random.default_rng(6).normal(size=(20, 50)).astype(np.float32), np.float32(0.03)
    codes = np.clip(compute(x / scale) - 5, -128, 127).astype(np.int8)
    with qdebug.Recorder(None, backend="chip") as recorder:
        recorder.put("x", x)
        recorder.put(
            "q", codes, node="quantize", op="QuantizeLinear", inputs=("x",), scale=scale, zero_point=np.int8(-5)
        )
        recorder.outputs("q")
    return recorder.recording


@pytest.mark.parametrize(("compute", "words"), [(np.trunc, "cut off"), (np.floor, "rounded down")])
def test_a_quantizer_that_does_not_round_to_nearest_fails(compute, words):
    result = diff(quantized(np.rint), quantized(compute))
    assert result["quantize"].status == "diverged"
    (finding,) = [each for each in result["quantize"].findings if each.kind == "one_sided"]
    assert f"its quotients are {words}, not rounded to nearest, in 1,000 of 1,000 elements" in finding.sentence


@pytest.mark.parametrize("compute", [lambda v: np.floor(v + np.float32(0.5)), lambda v: np.rint(v * 0.9999)])
def test_a_quantizer_that_rounds_to_nearest_passes(compute):
    assert diff(quantized(np.rint), quantized(compute))["quantize"].status in ("within", "identical")
