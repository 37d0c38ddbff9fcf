"""Runs in float16 and bfloat16 are judged alike, whether they were recorded in that format or in float32."""

import ml_dtypes
import numpy as np
import pytest

from qdebug.api import diff, explain
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo

RNG = np.random.default_rng(5)
X = RNG.standard_normal((2, 16, 32)).astype(np.float32)
W = (RNG.standard_normal((32, 32)) / 6).astype(np.float32)
B = RNG.standard_normal(32).astype(np.float32)
NODES = (
    Node(name="scale", op="Mul", inputs=("x", "s"), outputs=("xs",)),
    Node(name="one", op="MatMul", inputs=("xs", "w"), outputs=("a",)),
    Node(name="bias", op="Add", inputs=("a", "b"), outputs=("c",)),
    Node(name="relu", op="Relu", inputs=("c",), outputs=("r",)),
    Node(name="two", op="MatMul", inputs=("r", "w"), outputs=("y",)),
)
GRAPH = Graph(NODES, tensors=[TensorInfo(name=n, role=Role.CONSTANT) for n in "wbs"], inputs=["x"], outputs=["y"])


def rounded(dtype):
    return lambda values: values.astype(dtype).astype(np.float32)


def saturated(dtype):
    end = float(ml_dtypes.finfo(dtype).max)
    return lambda values: rounded(dtype)(np.clip(values, -end, end))


def flushed(dtype):
    least = float(ml_dtypes.finfo(dtype).smallest_normal)
    return lambda values: np.where(np.abs(rounded(dtype)(values)) < least, np.float32(0), rounded(dtype)(values))


def run(held, keep, *, scale=1.0, weight=W):
    """Record a net whose every value is brought to a format, and kept in another."""
    constants = {"w": weight, "b": B, "s": np.asarray(scale, np.float32)}
    arrays = {(name, 0, 0): held(array).astype(keep) for name, array in constants.items()}
    w, b, s = (arrays[name, 0, 0].astype(np.float32) for name in "wbs")
    for sample in (0, 1):
        x = held(X[sample])
        xs = held(x * s)
        a = held(xs @ w)
        c = held(a + b)
        r = np.maximum(c, 0)
        values = {"x": x, "xs": xs, "a": a, "c": c, "r": r, "y": held(r @ w)}
        arrays |= {(name, sample, 0): array.astype(keep) for name, array in values.items()}
    return MemoryRecording(GRAPH, arrays)


def answers(held, dtype, **options):
    """Say all that diff and explain find in a run, which is kept in its own format and in float32."""
    found = []
    with np.errstate(all="ignore"):
        reference = run(lambda values: values, np.float32, **options)
        for keep in (dtype, np.float32):
            backend = run(held(dtype), keep, **options)
            compared, explained = diff(reference, backend), explain(backend)
            nodes = [
                (n.node, n.status, n.precision, n.reason, [f.sentence for f in n.findings]) for n in compared.nodes
            ]
            bands = [(n.node, n.status, n.band.precision, n.reason) for n in explained.nodes]
            found.append(((compared.verdict.status, compared.verdict.sentence), nodes, bands))
    assert found[0] == found[1]
    (status, sentence), nodes, bands = found[0]
    assert {band[1].value for band in bands} <= {"in_band", "explained"}
    return status.value, sentence, {band[0]: band[3] for band in bands}


LARGE = np.where(np.arange(1024).reshape(32, 32) == 77, np.float32(1e5), W)
BEYOND = "results are beyond 65504, the largest float16 value; the first, 72949.2, became"
FLUSHED = "results are subnormal in float16, below 6.10352e-05, and flushed to zero; the first, -4.89354e-05, became 0"


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("held", [rounded, saturated, flushed])
def test_rounding_alone_is_within(held, dtype):
    status, _, reasons = answers(held, dtype)
    assert status == "within"
    assert set(reasons.values()) == {None}


def test_an_overflow_is_named_with_its_value():
    status, sentence, reasons = answers(rounded, np.float16, scale=3e4)
    assert status == "nonfinite"
    assert "is Infinity because its exact result 72949.2 is beyond 65504, the largest float16 value" in sentence
    assert reasons["scale"] == f"25 of 1024 {BEYOND} inf"


def test_a_result_held_to_the_largest_number_is_named_with_its_value():
    status, sentence, reasons = answers(saturated, np.float16, scale=3e4)
    assert status == "diverged"
    assert f"25 of 1024 {BEYOND} 65504" in sentence
    assert reasons["scale"] == f"25 of 1024 {BEYOND} 65504"
    assert "float8" not in sentence


def test_an_underflow_is_named_with_its_value():
    status, _, reasons = answers(rounded, np.float16, scale=2.0**-14)
    assert status == "within"
    assert (
        reasons["scale"] == "1 of 1024 results is below 5.96046e-08, the smallest float16 value; 9.20409e-10 became 0"
    )


def test_results_in_few_digits_below_the_normal_numbers_are_rounding():
    status, _, reasons = answers(rounded, np.float16, scale=2.0**-22 * 1.1)
    assert status == "within"
    assert reasons["one"].startswith("113 of 1024 results are below 5.96046e-08, the smallest float16")
    status, _, reasons = answers(rounded, ml_dtypes.bfloat16, scale=2.0**-127)
    assert status == "within"
    assert reasons["scale"].startswith("6 of 1024 results are below 9.18355e-41, the smallest bfloat16")


def test_subnormal_numbers_flushed_to_zero_are_named():
    status, sentence, reasons = answers(flushed, np.float16, scale=2.0**-14)
    assert status == "diverged"
    assert f"696 of 1024 {FLUSHED}" in sentence
    assert reasons["scale"] == f"696 of 1024 {FLUSHED}"


@pytest.mark.parametrize(
    ("held", "said"),
    [(saturated, "is clamped to 65504, the largest float16"), (rounded, "overflows to infinity in float16")],
)
def test_constants_beyond_the_range_are_named(held, said):
    _, sentence, _ = answers(held, np.float16, weight=LARGE)
    assert f"1 of 1024 elements of its weight 'w' {said}: 100000" in sentence
