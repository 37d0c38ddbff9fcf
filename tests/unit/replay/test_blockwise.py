"""Huge arrays are computed block by block: the same bytes in the same order in memory, with checkpoints in between."""

import numpy as np
import pytest

from qdebug.model import Node
from qdebug.model.dtypes import logical_dtype
from qdebug.numerics.checkpoint import calling_at_checkpoints
from qdebug.replay import blockwise
from qdebug.replay.blockwise import by_rows, elementwise
from qdebug.replay.registry import run_node

ONE = (
    "Relu Sigmoid Tanh HardSwish Softplus Softsign Mish LeakyRelu ThresholdedRelu HardSigmoid Gelu Elu Celu Selu Swish"
    " Shrink Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Exp Floor Log Neg Reciprocal Round Sign Sin Sinh Sqrt"
    " Tan Erf Not"
)
TWO = "Add Sub Mul Div Pow Mod Min Max Sum Mean PRelu Equal Greater LessOrEqual"
ROWS = (
    ("Softmax", {"axis": -1}),
    ("Softmax", {"axis": 1}),
    ("LogSoftmax", {"axis": 2}),
    ("LayerNormalization", {"axis": -1}),
    ("LayerNormalization", {"axis": 2}),
    ("RMSNormalization", {"axis": -1}),
    ("InstanceNormalization", {}),
    ("GroupNormalization", {"num_groups": 2}),
    ("BatchNormalization", {}),
    ("MaxPool", {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 1, 1, 0]}),
    ("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    ("LpPool", {"kernel_shape": [2, 2]}),
    ("GlobalAveragePool", {}),
    ("GlobalMaxPool", {}),
    ("ReduceMean", {"axes": [2, 3]}),
    ("ReduceSum", {"axes": [3], "keepdims": 0}),
    ("ReduceL2", {"axes": [-1]}),
    ("ReduceMax", {"axes": [1, 3]}),
    ("ReduceLogSumExp", {"axes": [3]}),
)
SHAPE = (2, 4, 9, 13)


@pytest.fixture
def both(monkeypatch):
    """Run a node whole and in small blocks: both results, and how often the second asked."""

    def run(node, values, opset=None):
        asked = []
        monkeypatch.setattr(blockwise, "_LARGE", 1 << 40)
        whole = run_node(node, values, opset or {"": 17})
        monkeypatch.setattr(blockwise, "_LARGE", 1)
        monkeypatch.setattr(blockwise, "_BLOCK", 37)
        with calling_at_checkpoints(lambda: asked.append(1)):
            parts = run_node(node, values, opset or {"": 17})
        return whole, parts, len(asked)

    return run


def same(whole, parts):
    """Tell whether two results are the same bytes in the same order in memory."""
    return all(
        a.dtype == b.dtype and a.shape == b.shape and a.strides == b.strides and a.tobytes() == b.tobytes()
        for a, b in zip(whole.values(), parts.values(), strict=True)
    )


def values_of(dtype="float32", shape=SHAPE, seed=0):
    """Return values with zeros, infinities, NaN and tiny numbers among them."""
    rng = np.random.default_rng(seed)
    values = (rng.standard_normal(shape) * 3).astype(dtype)
    values.reshape(-1)[:8] = [0, -0.0, np.inf, -np.inf, np.nan, 1e-7, -1e-7, 60000]
    return values


@pytest.mark.parametrize("op", ONE.split())
def test_functions_of_one_array(both, op):
    for dtype in ("float32", "float64", "float16"):
        x = values_of(dtype)
        layouts = {"channels first": x, "channels last": np.moveaxis(x, -1, 1), "every second": x[:, :, ::2]}
        for layout, laid_out in layouts.items():
            node = Node(name="n", op=op, inputs=("x",), outputs=("y",))
            whole, parts, asked = both(node, {"x": laid_out}, {"": 20})
            assert same(whole, parts), (dtype, layout)
            assert layout == "every second" or asked > 10 or op == "Not", (dtype, layout)


@pytest.mark.parametrize("op", TWO.split())
@pytest.mark.parametrize("last", [False, True])
def test_functions_of_two_arrays(both, op, last):
    for other in (SHAPE, (4, 1, 1), (13,), (), (1,), (2, 4, 9, 1), (3, 1, 1, 1, 1)):
        x, y = values_of(), values_of(seed=1, shape=(*other, 8))[..., 0]
        if last:
            x = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
        if last and other == SHAPE:
            y = np.moveaxis(np.ascontiguousarray(np.moveaxis(y, 1, -1)), -1, 1)
        node = Node(name="n", op=op, inputs=("x", "y"), outputs=("z",), attrs={"fmod": 1} if op == "Mod" else {})
        whole, parts, _ = both(node, {"x": x, "y": y})
        assert same(whole, parts), other


@pytest.mark.parametrize(("op", "attrs"), ROWS)
@pytest.mark.parametrize("last", [False, True])
def test_rows_and_windows(both, op, attrs, last):
    rng = np.random.default_rng(2)
    x = rng.standard_normal(SHAPE).astype(np.float32)
    x = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1) if last else x
    sizes = {"LayerNormalization": SHAPE[attrs.get("axis", -1) :], "RMSNormalization": SHAPE[-1:]}.get(op, SHAPE[1:2])
    count = {"LayerNormalization": 2, "InstanceNormalization": 2, "GroupNormalization": 2, "BatchNormalization": 4}
    count["RMSNormalization"] = 1
    given = {f"p{at}": rng.random(sizes).astype(np.float32) for at in range(count.get(op, 0))}
    axes = {} if "axes" not in attrs or op != "ReduceSum" else {"axes": np.array(attrs["axes"], np.int64)}
    kept = {name: value for name, value in attrs.items() if name != "axes" or not axes}
    node = Node(name="n", op=op, inputs=("x", *given, *axes), outputs=("y",), attrs=kept)
    whole, parts, asked = both(node, {"x": x, **given, **axes})
    assert same(whole, parts)
    assert asked > 1 or last or attrs.get("axes") == [1, 3]


@pytest.mark.parametrize("scale", [np.float32(0.1), np.array([0.1, 0.2, 0.3, 0.4], np.float32)])
@pytest.mark.parametrize(("dtype", "attrs"), [("float8_e4m3fn", {}), ("int32", {}), ("int8", {"precision": 10})])
def test_quantizing_to_codes_of_all_kinds(both, scale, dtype, attrs):
    zero = np.zeros(scale.shape, logical_dtype(dtype))
    node = Node(name="n", op="QuantizeLinear", inputs=("x", "s", "z"), outputs=("q",), attrs={"axis": 1, **attrs})
    whole, parts, asked = both(node, {"x": values_of(), "s": np.asarray(scale), "z": zero}, {"": 23})
    assert same(whole, parts)
    assert asked > 1


def test_a_clip_without_bounds_copies_nothing(both):
    x = values_of()
    whole, parts, _ = both(Node(name="n", op="Clip", inputs=("x",), outputs=("y",)), {"x": x})
    assert whole["y"] is x
    assert parts["y"] is x


def test_a_computation_is_given_up_between_two_blocks(both):
    class GivenUp(Exception):  # noqa: N818  no error
        """It is wanted no longer."""

    def give_up():
        raise GivenUp

    x = np.ones(1 << 21, np.float32)
    with calling_at_checkpoints(give_up), pytest.raises(GivenUp):
        run_node(Node(name="n", op="Tanh", inputs=("x",), outputs=("y",)), {"x": x})


def test_arrays_that_do_not_broadcast_are_left_to_the_function():
    with pytest.raises(ValueError, match="could not be broadcast"):
        elementwise(np.add, np.ones(3), np.ones(4))


def test_rows_of_nothing():
    (out,) = by_rows(lambda part: (part + 1,), np.ones((0, 3)), 1)
    assert out.shape == (0, 3)
