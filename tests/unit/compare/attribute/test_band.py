"""What rounding accounts for in each element of an operator that computes each on its own."""

import math

import ml_dtypes
import numpy as np
import pytest

from qdebug.api import diff, explain
from qdebug.compare.attribute.band import (
    allowed_error,
    beyond_own_sums,
    beyond_own_terms,
    difference,
    finite_norm,
    is_free_scale,
    narrow_sums_error,
    norm,
    sum_terms,
    unit_roundoff_of_values,
)
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.model.thresholds.rounding import ROUNDING_SUM_FACTOR
from qdebug.numerics.checkpoint import calling_at_checkpoints
from qdebug.recording.recorder import Recorder
from qdebug.replay.registry import run_node

RNG = np.random.default_rng(21)
A, B = (RNG.normal(size=(4, 64)).astype(np.float32) for _ in range(2))
A[0] *= 1e12
B[0] *= 1e3  # beside this row the others are next to nothing in a norm
OPS = ("Add", "Sub", "Mul", "Div", "Concat", "Relu")
UNIT = 2.0**-24


def made(op, a=A, b=B):
    inputs = ("a",) if op == "Relu" else ("a", "b")
    node = Node(name="n", op=op, inputs=inputs, outputs=("y",), attrs={"axis": 1} if op == "Concat" else {})
    values = {"a": a, "b": b}
    return node, values, np.asarray(run_node(node, values, {"": 17})["y"])


def record(op, *, stale=False):
    node, values, y = made(op)
    if stale:
        y = y.copy()
        y[2] = y[3]
    arrays = {name: values[name] for name in node.inputs}
    graph = Graph([node], inputs=node.inputs, outputs=("y",), opset={"": 17})
    return MemoryRecording.single(graph, {**arrays, "y": y})


@pytest.mark.parametrize("op", OPS)
def test_a_stale_row_is_found_whatever_the_rest_of_its_tensor_is(op):
    result = diff(record(op), record(op, stale=True))
    (entry,) = (node for node in result.nodes if node.tensor == "y")
    assert (result.origin, result.exit_code) == ("n", 1)
    assert entry.reason.endswith("elements are off by more than rounding of their operands explains")
    assert int(entry.reason.split()[0]) <= entry.metrics.mismatches


@pytest.mark.parametrize("op", OPS)
def test_neither_rounding_nor_flushed_denormals_are_beyond(op):
    small = np.full((4, 64), 1e-40, np.float32)
    for a, b in ((A, B), (A, np.float32(-1) * A), (small, A), (small, small)):
        node, values, y = made(op, a, b)
        with np.errstate(over="ignore"):
            for other in (np.nextafter(y, np.float32(np.inf)), np.where(np.abs(y) < 1.2e-38, np.float32(0), y)):
                assert beyond_own_terms(node, values, y, other, UNIT) == 0


def test_a_sum_that_cancels_is_held_against_its_terms():
    near = np.nextafter(A, np.float32(np.inf))
    node, values, y = made("Sub", A, near)
    assert np.any(y != 0)
    assert beyond_own_terms(node, values, y, np.zeros_like(y), UNIT) == 0
    assert beyond_own_terms(node, values, y, y + np.abs(A) * np.float32(1e-4), UNIT) == y.size


def gelu(*, y=None, noise=0):
    """Record 0.5 * (x * (1 + erf(x / sqrt 2))), node by node; 1 + erf cancels where x is below 0."""
    steps = (
        ("Div", "x root", "d"),
        ("Erf", "d", "e"),
        ("Add", "e one", "o"),
        ("Mul", "x o", "m"),
        ("Mul", "m half", "y"),
    )
    nodes = [Node(name=f"n_{to}", op=op, inputs=tuple(of.split()), outputs=(to,)) for op, of, to in steps]
    x = np.linspace(-4.5, 3, 512, dtype=np.float32)
    values = {"x": x, "root": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5)}
    values = {name: np.asarray(array) for name, array in values.items()}
    for node in nodes:
        values.update(run_node(node, values, {"": 17}))
        if node.outputs == ("e",):
            values["e"] = values["e"] + np.float32(noise) * RNG.choice((-1, 1), 512).astype(np.float32)
    constants = [TensorInfo(name=name, role=Role.CONSTANT) for name in ("root", "one", "half")]
    graph = Graph(nodes, tensors=constants, inputs=("x",), outputs=("y",), opset={"": 17})
    return MemoryRecording.single(graph, values if y is None else {**values, "y": y})


def test_a_node_that_a_runtime_computes_with_those_before_did_not_use_what_was_recorded_between_them():
    x = gelu().load("x").astype(np.float64)
    exact = np.array([0.5 * each * (1 + math.erf(each / 2**0.5)) for each in x], np.float32)
    assert diff(gelu(), gelu(y=exact, noise=2.0**-24)).exit_code == 0
    wrong = exact.copy()
    wrong[5] += np.float32(1e-4)
    result = diff(gelu(), gelu(y=wrong, noise=2.0**-24))
    assert (result.origin, result.nodes[-1].reason.split(" of ")[0]) == ("n_y", "1")


def test_of_half_precision_its_own_rounding_is_allowed():
    node, values, y = made("Mul", A[1:], B[1:])
    half = y.astype(np.float16).astype(np.float32)
    assert beyond_own_terms(node, values, y, half, 2.0**-11) == 0
    assert beyond_own_terms(node, values, y, half, UNIT) > y.size // 2


def test_of_other_operators_no_such_bound_is_known():
    node = Node(name="n", op="Softmax", inputs=("a",), outputs=("y",))
    assert beyond_own_terms(node, {"a": A}, A, B, UNIT) == 0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_elements_that_are_not_finite_are_judged_elsewhere(value):
    node, values, y = made("Add")
    spoilt = y.copy()
    spoilt[1, 1] = value
    assert beyond_own_terms(node, values, y, spoilt, UNIT) == 0


def test_a_sigmoid_near_zero_may_be_a_half_less_a_half():
    x = RNG.uniform(-14, -12, (8, 32)).astype(np.float32)
    node = Node(name="n", op="Sigmoid", inputs=("a",), outputs=("y",))
    exact = 1 / (1 + np.exp(-x.astype(np.float64)))
    rounded = np.float32(0.5) + (exact - 0.5).astype(np.float32)
    allowed = allowed_error(node, {"a": x}, exact.astype(np.float32), {"": 17}, UNIT)
    assert norm(rounded - exact) > 256 * UNIT * norm(exact)
    assert norm(rounded - exact) < allowed < 0.2 * norm(exact)


ROWS = np.random.default_rng(6).normal(size=(2000, 64)).astype(np.float32)
COLUMNS = np.random.default_rng(7).normal(size=(64, 48)).astype(np.float32)


def product(dtype=np.float32, **changed):
    """Record a product of matrices, some of whose rows hold other values."""
    rows, columns = ROWS.astype(dtype), COLUMNS.astype(dtype)
    node = Node(name="n", op="MatMul", inputs=("a", "b"), outputs=("y",))
    y = run_node(node, {"a": rows, "b": columns}, {"": 17})["y"].copy()
    for row, values in changed.items():
        y[int(row[1:])] = values(y)
    graph = Graph([node], inputs=("a", "b"), outputs=("y",), opset={"": 17})
    return MemoryRecording.single(graph, {"a": rows, "b": columns, "y": y.astype(dtype)})


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_one_wrong_row_of_many_is_found_though_the_norm_does_not_see_it(dtype):
    rounded = product(dtype)
    wrong = (lambda y: y[7] + np.float32(1e-3)) if dtype == np.float32 else (lambda y: y[7] * np.float16(1.2))
    result = diff(rounded, product(dtype, r7=wrong))
    (entry,) = (node for node in result.nodes if node.tensor == "y")
    assert entry.reason.endswith("elements are off by more than rounding of their operands explains")
    assert result.origin == "n"


def test_the_order_of_a_sum_is_not_beyond_it():
    node = Node(name="n", op="MatMul", inputs=("a", "b"), outputs=("y",))
    values = {"a": ROWS, "b": COLUMNS}
    y = run_node(node, values, {"": 17})["y"]
    turned = run_node(node, {"a": ROWS[:, ::-1], "b": COLUMNS[::-1]}, {"": 17})["y"]
    serial = np.cumsum(ROWS[:, :, None] * COLUMNS, axis=1, dtype=np.float32)[:, -1]
    for other in (turned, serial, (ROWS.astype(np.float64) @ COLUMNS).astype(np.float32)):
        assert beyond_own_sums(node, values, y, other, opset={"": 17}, unit=UNIT) == 0


def test_a_suffix_sum_by_subtraction_is_beyond_its_own_terms_although_its_norm_is_right():
    node = Node(name="n", op="CumSum", inputs=("x", "axis"), outputs=("y",), attrs={"reverse": 1})
    x = np.exp(np.linspace(9, -9, 64)).astype(np.float32) * np.ones((8, 1), np.float32)
    values = {"x": x, "axis": np.int64(1)}
    y = run_node(node, values, {"": 17})["y"]
    subtracted = x.sum(1, keepdims=True) - np.cumsum(x, 1, dtype=np.float32) + x
    assert np.linalg.norm(subtracted - y) < 1e-6 * np.linalg.norm(y)
    assert beyond_own_sums(node, values, y, subtracted, opset={"": 17}, unit=UNIT) > 100
    exact = np.cumsum(x[:, ::-1].astype(np.float64), 1)[:, ::-1].astype(np.float32)
    assert beyond_own_sums(node, values, y, exact, opset={"": 17}, unit=UNIT) == 0


def test_what_a_fast_convolution_shares_between_neighbours_is_not_beyond():
    """Its error is that of the largest terms near by: where all of an element's own terms are 0, too."""
    node = Node(name="n", op="Conv", inputs=("x", "w"), outputs=("y",), attrs={"pads": (1, 1, 1, 1)})
    x = ROWS[:16].reshape(1, 16, 8, 8).copy()
    x[:, :, :3, :3] = 0
    values = {"x": x, "w": COLUMNS[:48, :].reshape(16, 16, 3, 3)}
    y = run_node(node, values, {"": 17})["y"]
    shared = UNIT * 20 * np.sqrt(np.mean(y.astype(np.float64) ** 2))
    assert np.any(y[:, :, 1, 1] == 0)
    other = y + np.random.default_rng(8).normal(size=y.shape).astype(np.float32) * np.float32(shared)
    assert beyond_own_sums(node, values, y, other, opset={"": 17}, unit=UNIT) == 0
    other[0, 0, 4, 4] += np.float32(1000 * shared)
    assert beyond_own_sums(node, values, y, other, opset={"": 17}, unit=UNIT) == 1


def test_a_huge_tensor_is_looked_at_in_stretches_that_make_no_difference(monkeypatch):
    rng = np.random.default_rng(8)
    terms = {"a": rng.standard_normal((6, 50)).astype(np.float32), "b": rng.standard_normal(50).astype(np.float32)}
    total = terms["a"] + terms["b"]
    recorded = total.copy()
    recorded[::2, 7] += 1e-3
    node = Node(name="n", op="Add", inputs=("a", "b"), outputs=("y",))
    half = rng.standard_normal(300).astype(np.float16).astype(np.float32)
    arrays = (np.append(total.reshape(-1), [np.nan, np.inf]), np.zeros(0), np.float32(3))

    def found():
        asked = []
        with calling_at_checkpoints(lambda: asked.append(1)):
            count = beyond_own_terms(node, terms, total, recorded, 2.0**-24)
            return (
                (count, unit_roundoff_of_values(half), unit_roundoff_of_values(total)),
                [finite_norm(np.asarray(each)) for each in arrays],
                len(asked),
            )

    whole, lengths, times = found()
    monkeypatch.setattr("qdebug.numerics.blocks._STRETCH", 32)
    monkeypatch.setattr("qdebug.numerics.short_formats._STRETCH", 32)
    parts, summed, more = found()
    assert whole == parts == (3, 2.0**-11, 2.0**-24)
    assert summed == pytest.approx(lengths, rel=1e-15)
    assert more > 3 * times, "whoever waits is asked in between"


def test_a_norm_says_that_a_value_is_not_finite():
    values = np.array([3.0, 4.0, np.nan], np.float32)
    assert (norm(values[:2]), finite_norm(values)) == (5.0, 5.0)
    assert np.isnan(norm(values))
    assert np.isnan(norm(np.array([np.inf, 1.0])))


def test_a_difference_of_equal_infinities_and_nans_is_zero():
    one = np.array([np.inf, -np.inf, np.nan, 2.0, np.inf])
    other = np.array([np.inf, -np.inf, np.nan, 0.5, 1.0])
    assert difference(one, other).tolist() == [0.0, 0.0, 0.0, 1.5, np.inf]


def test_the_rounding_of_a_product_grows_with_the_root_of_its_terms():
    """Of ones, whose sums are as large as their terms; a bias is one term more."""
    node = Node(name="n", op="MatMul", inputs=("a", "b"), outputs=("y",))
    values = {"a": np.ones((2, 15), np.float32), "b": np.ones((15, 3), np.float32)}
    output = values["a"] @ values["b"]
    assert sum_terms(node, {name: array.shape for name, array in values.items()}, output.shape) == 16
    expected = ROUNDING_SUM_FACTOR * (math.sqrt(16) + 1) * 2.0**-24 * norm(output)
    assert allowed_error(node, values, output, {"": 13}, 2.0**-24) == pytest.approx(expected)


@pytest.mark.parametrize("mixed", [True, False])
def test_sums_in_half_precision_are_off_by_about_what_is_estimated(mixed):
    """Where signs are mixed the error comes of the terms, where they are not of the partial sums."""
    x, w = RNG.normal(size=(16, 256)).astype(np.float32), RNG.normal(size=(256, 16)).astype(np.float32)
    values = {"x": x, "w": w} if mixed else {"x": np.abs(x), "w": np.abs(w)}
    node = Node(name="n", op="MatMul", inputs=("x", "w"), outputs=("y",))
    exact = values["x"].astype(np.float64) @ values["w"]
    total = np.zeros(exact.shape, np.float16)
    for at in range(256):
        total = (total + np.outer(values["x"][:, at], values["w"][at])).astype(np.float16)
    estimate = narrow_sums_error(node, values, exact, {"": 17}, 2.0**-11)
    assert 0.1 < norm(total - exact) / estimate < 1
    assert narrow_sums_error(node, values, exact, {"": 17}, 2.0**-8) == pytest.approx(8 * estimate)
    assert narrow_sums_error(Node(name="n", op="Relu", inputs=("x",), outputs=("y",)), values, x, {"": 17}, 1) is None


@pytest.mark.parametrize(
    ("op", "attrs", "shapes", "output", "terms"),
    [
        ("MatMul", {}, [(2, 3), (3, 5)], (2, 5), 4),
        ("Gemm", {"transA": 1}, [(3, 2), (3, 5)], (2, 5), 4),
        ("MatMul", {}, [(), ()], (), 1),
        ("Conv", {}, [(1, 4, 9, 9), (6, 2, 3, 3)], (1, 6, 7, 7), 19),
        ("ReduceSum", {}, [(4, 6, 5)], (4, 5), 6),
        ("ReduceSum", {}, [(0, 5)], (5,), 1),
        ("AveragePool", {"kernel_shape": (2, 3)}, [(1, 1, 8, 9)], (1, 1, 7, 7), 6),
        ("Sum", {}, [(5,)] * 3, (5,), 3),
        ("Conv", {}, [(1, 4, 9, 9), (0, 2, 3, 3)], (1, 0, 7, 7), 19),
        ("Conv", {}, [(1, 4, 9, 9), ()], (), 2),
        ("ConvTranspose", {}, [(1, 4, 9, 9)], (), 2),
        ("MatMul", {}, [], (), 1),
        ("Sum", {}, [], (), 1),
        ("AveragePool", {"kernel_shape": "wide"}, [(1, 1, 8, 9)], (1, 1, 7, 7), 1),
    ],
)
def test_how_many_terms_each_sum_has(op, attrs, shapes, output, terms):
    names = tuple("abc"[: len(shapes)])
    node = Node(name="n", op=op, inputs=names, outputs=("y",), attrs=attrs)
    assert sum_terms(node, dict(zip(names, shapes, strict=True)), output) == terms


def test_a_scale_of_data_that_is_all_zero_may_be_any_number_and_no_other():
    node = Node(name="n", op="DynamicQuantizeLinear", inputs=("x",), outputs=("y", "scale", "zero"))
    zeros, one = {"x": np.zeros(4, np.float32)}, np.float32([1])
    assert is_free_scale(node, "scale", zeros, one)
    assert is_free_scale(node, "scale", zeros, 0 * one)
    assert not is_free_scale(node, "scale", {"x": np.float32([0, 1])}, one)
    assert not any(is_free_scale(node, "scale", zeros, each * one) for each in (-1, np.inf, np.nan))
    assert not is_free_scale(node, "y", zeros, one)
    other = Node(name="n", op="Split", inputs=("x",), outputs=("y", "scale"))
    assert not is_free_scale(other, "scale", zeros, one)


def test_of_what_comes_in_no_more_than_rounding_of_the_largest_result_counts():
    node, values, y = made("Mul", A[2:] * np.float32(1e-6), B[2:])
    off = y + np.float32(1e-9)
    assert beyond_own_terms(node, values, y, off, UNIT, carried=1.0) == y.size
    assert beyond_own_terms(node, values, y, y + 2 * UNIT * np.abs(y).max(), UNIT, carried=1.0) == 0


def test_of_a_product_in_another_arrangement_no_bound_is_known():
    node = Node(name="n", op="MatMul", inputs=("a", "b"), outputs=("y",))
    y = np.ones((48, 2000), np.float32)
    assert beyond_own_sums(node, {"a": ROWS, "b": COLUMNS}, y, y + 9, opset={"": 17}, unit=UNIT) == 0


@pytest.mark.parametrize(("roundoffs", "beyond"), [(0.9, 0), (1.1, 12)])
def test_the_bound_of_a_sum_is_of_its_own_terms_and_of_those_usual_in_the_tensor(roundoffs, beyond):
    """Of three products of 1 and a bias: (sqrt(4) + 1) times the factor, of 3 and of 3."""
    node = Node(name="n", op="MatMul", inputs=("a", "b"), outputs=("y",))
    values = {"a": np.ones((3, 3), np.float32), "b": np.ones((3, 4), np.float32)}
    y = np.full((3, 4), 3.0)
    off = y + roundoffs * ROUNDING_SUM_FACTOR * 3 * UNIT * (3 + 3)
    assert beyond_own_sums(node, values, y, off, opset={"": 17}, unit=UNIT) == beyond


def test_small_terms_have_a_small_bound():
    node, values, y = made("Add", A[1:] * np.float32(1e-6), B[1:] * np.float32(1e-6))
    assert beyond_own_terms(node, values, y, y + np.float32(1e-9), UNIT) == y.size


def fake_quantized(*, moved=0, steps=0.0):
    """Record real numbers rounded to steps of 0.05, the first 20 of them next to ties; some results are off."""
    x = np.random.default_rng(1).normal(0, 2, (1, 4, 16, 16)).astype(np.float32)
    x.reshape(-1)[:20] = np.nextafter((np.arange(20) + 0.5).astype(np.float32) * np.float32(0.05), np.float32(9))
    ends = dict(zip("abcd", np.float32([-6.4, 6.35, -6.4, 6.35]), strict=True))
    node = Node(name="n", op="FakeQuantize", inputs=("x", *ends), outputs=("y",), attrs={"levels": 256})
    y = run_node(node, {"x": x, **ends})["y"].copy()
    y.reshape(-1)[:moved] -= np.float32(steps * 0.05)
    with Recorder(None, backend="npu") as rec:
        for name, end in ends.items():
            rec.constant(name, end)
        rec.put("x", x)
        rec.put("y", y, node="n", op=node.op, inputs=node.inputs, attrs=node.attrs)
        rec.outputs("y")
    return rec.recording


@pytest.mark.parametrize(("moved", "steps", "right"), [(20, 1, True), (20, 8, False), (100, 1, False)])
def test_ties_of_steps_are_rounded_either_way_and_nothing_else_is(moved, steps, right):
    faulty = fake_quantized(moved=moved, steps=steps)
    node = diff(fake_quantized(), faulty).nodes[-1]
    assert node.status == ("within" if right else "diverged")
    assert explain(faulty).nodes[-1].status == ("in_band" if right else "unexplained")


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("terms", "same_sign"), [(16, False), (256, False), (2048, False), (16, True), (64, True)])
def test_sums_in_a_short_format_pass_and_a_wrong_fifth_of_the_terms_does_not(dtype, terms, same_sign):
    """The products are added one after the other, each sum rounded: the worst that kernels do.

    More terms of one sign than the format has units are lost, which is no rounding any more.
    """
    rng = np.random.default_rng(terms)
    rows, columns = (rng.normal(size=shape) for shape in ((16, terms), (terms, 24)))
    if same_sign:
        rows, columns = np.abs(rows), np.abs(columns) / terms
    rows, columns = rows.astype(dtype), columns.astype(dtype)
    node = Node(name="n", op="MatMul", inputs=("a", "b"), outputs=("y",))
    exact = rows.astype(np.float64) @ columns.astype(np.float64)
    total = np.zeros(exact.shape, dtype)
    for term in range(terms):
        products = rows[:, term, None].astype(np.float32) * columns[term].astype(np.float32)
        total = (total.astype(np.float32) + products).astype(dtype)
    graph = Graph([node], inputs=("a", "b"), outputs=("y",), opset={"": 17})

    def run(y):
        return MemoryRecording.single(graph, {"a": rows, "b": columns, "y": y.astype(dtype)})

    assert "arithmetic" not in {found.kind for found in diff(run(exact), run(total))["n"].findings}
    part = terms * 4 // 5
    lacking = rows[:, :part].astype(np.float64) @ columns[:part].astype(np.float64)
    assert diff(run(exact), run(lacking))["n"].status == "diverged"


@pytest.mark.parametrize("offset", [0, 50])
@pytest.mark.parametrize("spread", [0.3, 1.0, 4.0])
def test_a_softmax_in_float16_may_round_its_steps_but_not_its_sums(spread, offset):
    scores = (np.random.default_rng(3).normal(size=(6, 3072)) * spread + offset).astype(np.float16).astype(np.float32)
    form = Node(name="n", op="Softmax", inputs=("x",), outputs=("y",))
    exact = np.exp(scores - scores.max(-1, keepdims=True))
    powers = np.exp((scores - scores.max(-1, keepdims=True)).astype(np.float16)).astype(np.float16)
    honest = powers / powers.astype(np.float32).sum(-1, keepdims=True).astype(np.float16)
    total = np.zeros((6, 1), np.float16)
    for at in range(powers.shape[1]):
        total += powers[:, at : at + 1]
    exact /= exact.sum(-1, keepdims=True)
    allowed = allowed_error(form, {"x": scores}, exact, {"": 17}, 2.0**-11)
    assert finite_norm(honest - exact) < allowed / 10
    if spread <= 1:
        assert finite_norm(powers / total - exact) > allowed
