"""Float nodes: bit-equal, within the rounding of their sums, of a coarser precision, or wrong."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from qdebug.compare.explaining.float_band import assumption_clause, judge_float
from qdebug.model import Graph, MemoryRecording, Node, Role, RunInfo, TensorInfo
from qdebug.numerics.short_formats import to_tf32
from qdebug.replay.registry import run_node

MATMUL = Node(name="fc", op="MatMul", inputs=("a", "b"), outputs=("y",))


def operands(depth=768, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((8, depth), np.float32), rng.standard_normal((depth, 32), np.float32)


def judged(a, b, y, node=MATMUL):
    graph = Graph([node], tensors=[TensorInfo(name="b", role=Role.CONSTANT)], inputs=["a"], outputs=["y"])
    return judge_float(MemoryRecording.single(graph, {"a": a, "b": b, "y": y}), node, "y", [(0, 0)])


def summed(a, b, dtype):
    """Multiply with every sum rounded to a format."""
    total = np.zeros((a.shape[0], b.shape[1]), dtype)
    for k in range(a.shape[1]):
        total = (total + (a[:, k, None] * b[None, k]).astype(dtype)).astype(dtype)
    return total.astype(np.float32)


def test_the_same_result_is_exact():
    a, b = operands()
    found = judged(a, b, a @ b)
    assert found.within
    assert found.match == 1.0
    assert found.band.exact


def test_another_order_is_within_the_band():
    a, b = operands()
    found = judged(a, b, summed(a, b, np.float32))
    assert found.within
    assert found.band.precision == "fp32"
    assert 0 < found.band.ratio <= 1
    assert found.match < 1
    assert found.band.spread is not None
    assert found.reason is None


@pytest.mark.parametrize(
    ("cast", "precision"),
    [
        (to_tf32, "tf32 inputs"),
        (lambda v: v.astype(ml_dtypes.bfloat16).astype(np.float32), "bf16 inputs"),
    ],
)
def test_rounded_inputs_are_told_apart(cast, precision):
    a, b = operands()
    found = judged(a, b, cast(a) @ cast(b))
    assert found.within
    assert found.band.precision == precision


def test_half_precision_inputs_are_told_from_tf32_where_they_differ():
    a, b = operands()
    a *= np.float32(1e-6)  # subnormals of float16: tf32 keeps their bits
    found = judged(a, b, a.astype(np.float16).astype(np.float32) @ b.astype(np.float16).astype(np.float32))
    assert found.band.precision == "fp16 inputs"


@pytest.mark.parametrize(
    ("dtype", "name"), [(np.float16, "fp16 accumulator"), (ml_dtypes.bfloat16, "bf16 accumulator")]
)
def test_sums_of_16_bits_are_found_by_their_size(dtype, name):
    a, b = operands()
    found = judged(a, b, summed(a.astype(dtype), b.astype(dtype), dtype))
    assert found.within
    assert found.band.precision == name


@pytest.mark.parametrize("noise", [0.03, 0.3])
def test_noise_with_the_digits_of_float32_is_no_sum_of_16_bits(noise):
    """A sum that was held in few digits has few digits, however large its error may be."""
    a, b = operands()
    found = judged(a, b, a @ b + noise * np.random.default_rng(3).standard_normal((8, 32)).astype(np.float32))
    assert not found.within
    assert "times the rounding bound" in found.reason


def test_a_wrong_column_is_out_of_every_band():
    a, b = operands()
    y = a @ b
    y[:, -2:] *= 1.5
    found = judged(a, b, y)
    assert not found.within
    assert "times the rounding bound" in found.reason
    assert "last 2 features of 32" in found.reason


def test_a_nan_on_one_side_is_no_band():
    a, b = operands()
    y = a @ b
    y[0, 0] = np.nan
    found = judged(a, b, y)
    assert not found.within
    assert found.reason.startswith(
        "1 of 256 elements is NaN or infinite in the recording or the replay, not in both: element"
    )
    assert "because its node computes it wrongly; the exact result is " in found.reason


def cast(values, recorded):
    """Judge a cast to 8 bits without saturation."""
    node = Node(name="cast", op="Cast", inputs=("x",), outputs=("y",), attrs={"to": 17, "saturate": 0})
    graph = Graph([node], inputs=["x"], outputs=["y"], opset={"": 19})
    return judge_float(MemoryRecording.single(graph, {"x": values, "y": recorded}), node, "y", [(0, 0)])


def test_a_cast_to_8_bits_has_one_right_answer():
    """ONNX Runtime 1.31.1 gives 448 for 480 where saturate=0 asks for NaN, and NaN for 464.1."""
    values = np.array([1.0, 2.3, 448, 464.1, 480, 500, 1e4, -3] * 8, np.float32)
    right = values.astype(ml_dtypes.float8_e4m3fn)
    assert cast(values, right).band.exact
    held = np.where(values == 480, right.dtype.type(448), right).astype(right.dtype)
    wrong = cast(values, held)
    assert not wrong.within
    assert wrong.reason.startswith("8 of 64 elements are NaN or infinite")
    down = cast(values, np.where(values == 2.3, right.dtype.type(2.0), right).astype(right.dtype))
    assert not down.within
    assert down.reason == "8 of 64 elements differ; Cast has one right result for each element"


def test_an_elementwise_function_has_a_band_too():
    node = Node(name="act", op="Tanh", inputs=("a",), outputs=("y",))
    a = np.linspace(-3, 3, 200, dtype=np.float32)
    graph = Graph([node], inputs=["a"], outputs=["y"])
    y = np.tanh(a.astype(np.float64)).astype(np.float32) * np.float32(1 + 1e-6)
    found = judge_float(MemoryRecording.single(graph, {"a": a, "y": y}), node, "y", [(0, 0)])
    assert found.within
    wrong = judge_float(MemoryRecording.single(graph, {"a": a, "y": y * 1.01}), node, "y", [(0, 0)])
    assert not wrong.within


def test_tf32_keeps_ten_bits_and_what_is_not_finite():
    values = np.array([1 + 2**-10, 1 + 2**-11, 1 + 3 * 2**-11, -0.0, np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(to_tf32(values), [1 + 2**-10, 1, 1 + 2**-9, -0.0, np.inf, np.nan])


@pytest.mark.parametrize("rounded", [lambda v: v, lambda v: v.astype(ml_dtypes.bfloat16).astype(np.float32)])
def test_a_few_slightly_wrong_elements_are_no_coarse_sums(rounded):
    """One column off by 1 % is less than sums of 16 bits may be off: but those are off everywhere."""
    a, b = operands()
    y = rounded(a) @ rounded(b)
    y[:, -1] *= np.float32(1.01)
    found = judged(a, b, y)
    assert not found.within
    assert found.reason


def test_a_bias_that_is_not_rounded_with_the_inputs():
    a, b = operands()
    bias = np.linspace(-300, 300, b.shape[1], dtype=np.float32)
    short = [values.astype(ml_dtypes.bfloat16).astype(np.float32) for values in (a, b, bias)]
    node = Node(name="fc", op="Gemm", inputs=("a", "b", "c"), outputs=("y",))
    for used, precision in ((bias, "bf16 inputs"), (short[2], "bf16 inputs and bias")):
        y = short[0] @ short[1] + used
        graph = Graph([node], inputs=["a", "b", "c"], outputs=["y"], opset={"": 13})
        recording = MemoryRecording.single(graph, {"a": a, "b": b, "c": bias, "y": y})
        assert judge_float(recording, node, "y", [(0, 0)]).band.precision == precision


def test_zeros_of_a_relu_hide_no_coarse_sums():
    a, b = operands()
    dtype = ml_dtypes.bfloat16
    y = np.maximum(summed(a.astype(dtype), b.astype(dtype), dtype), 0)
    fused = Node(
        name="fc",
        op="FusedGemm",
        domain="com.microsoft",
        inputs=("a", "b"),
        outputs=("y",),
        attrs={"activation": "Relu"},
    )
    graph = Graph([fused], inputs=["a", "b"], outputs=["y"], opset={"": 13, "com.microsoft": 1})
    recording = MemoryRecording.single(graph, {"a": a, "b": b, "y": y.astype(np.float32)})
    found = judge_float(recording, fused, "y", [(0, 0)])
    assert found.within
    assert found.band.precision == "bf16 accumulator"


@pytest.mark.parametrize(
    ("dtype", "precision"), [(np.float16, "fp16 output"), (ml_dtypes.bfloat16, "bf16 output")], ids=["fp16", "bf16"]
)
def test_a_result_of_few_digits_is_judged_alike_whatever_it_is_kept_in(dtype, precision):
    a, b = operands()
    right = (a @ b).astype(dtype)
    off = right.copy()
    off[3, 5] = dtype(float(off[3, 5]) * 1.5 + 4)
    for kept in (dtype, np.float32):
        found = judged(a, b, right.astype(kept))
        assert found.within
        assert found.band.precision == precision
        assert 0 < found.band.ratio <= 1
        wrong = judged(a, b, off.astype(kept))
        assert not wrong.within
        assert wrong.reason.startswith("its error is ")


@pytest.mark.parametrize("kept", [np.float16, np.float32])
@pytest.mark.parametrize("clamped", [False, True])
def test_a_result_beyond_its_format_is_named(kept, clamped):
    a, b = operands()
    a[2] *= 3000
    exact = a @ b
    with np.errstate(over="ignore"):
        given = (np.clip(exact, -65504, 65504) if clamped else exact).astype(np.float16).astype(kept)
    beyond = np.abs(exact) > 65520
    assert 0 < beyond.sum() < 32
    with np.errstate(all="ignore"):
        found = judged(a, b, given)
    assert found.within
    first, became = exact[beyond][0], given[beyond][0]
    assert found.reason == (
        f"{beyond.sum()} of 256 results are beyond 65504, the largest float16 value; "
        f"the first, {first:.6g}, became {became:.6g}"
    )
    for wrong in (np.inf, np.nan):
        broken = given.copy()
        broken[0, 0] = wrong
        with np.errstate(all="ignore"):
            assert not judged(a, b, broken).within


@pytest.mark.parametrize("shape", [(1, 12, 9, 3), (1, 6, 9, 6)])
def test_sums_of_a_convolution_with_channels_last_are_reordered_along_its_channels(shape):
    """With as many rows as channels, permuting rows would give another result and no error."""
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal(shape, np.float32), rng.standard_normal((16, shape[-1], 3, 3), np.float32)
    spreads = []
    for last in (True, False):
        attrs = {"strides": (2, 2), "channels_last": 1} if last else {"strides": (2, 2)}
        node = Node(name="c", op="Conv", inputs=("a", "b"), outputs=("y",), attrs=attrs)
        given = x if last else np.moveaxis(x, -1, 1)
        y = run_node(node, {"a": given, "b": w})["y"]
        off = y.copy()
        (off[..., 5] if last else off[:, 5])[:] *= np.float32(1.01)
        found = judged(given, w, off, node)
        assert not found.within
        spreads.append(found.band.spread)
        assert found.reason.endswith("only in channel 5 of 16")
    assert spreads[0] == pytest.approx(spreads[1], rel=0.5)


@pytest.mark.parametrize("declared", ["", "bf16"])
def test_a_layer_that_moves_values_may_convert_them_to_the_declared_format(declared):
    x = np.random.default_rng(0).standard_normal((8, 32)).astype(np.float32)
    y = x.astype(ml_dtypes.bfloat16).astype(np.float32).T
    node = Node(name="turn", op="Transpose", inputs=("x",), outputs=("y",), attrs={"perm": (1, 0)})
    graph = Graph([node], inputs=["x"], outputs=["y"])
    options = {"effective_precision": declared} if declared else {}
    recording = MemoryRecording.single(graph, {"x": x, "y": y}, RunInfo(backend="b", options=options))
    found = judge_float(recording, node, "y", [(0, 0)])
    assert found.within == bool(declared)
    if declared:
        assert assumption_clause(recording, "y", found.band) == "inputs rounded to bfloat16"
        assert not judge_float(recording, node, "y", [(0, 0)]).band.ratio
        wrong = y.copy()
        wrong[3, 4] += 1
        spoilt = MemoryRecording.single(graph, {"x": x, "y": wrong}, RunInfo(backend="b", options=options))
        assert not judge_float(spoilt, node, "y", [(0, 0)]).within
