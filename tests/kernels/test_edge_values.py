"""What kernels make of NaN, infinities, empty arrays, extremes of integers, and other precisions."""

import ml_dtypes
import numpy as np
import pytest

from qdebug.errors import KernelError
from qdebug.model import Node
from qdebug.replay import run_node

NAN, INF = np.nan, np.inf


def run(op, *inputs, domain="", outputs=1, **attrs):
    names = tuple(f"i{k}" for k in range(len(inputs)))
    outs = tuple(f"o{k}" for k in range(outputs))
    node = Node(name="n", op=op, inputs=names, outputs=outs, attrs=attrs, domain=domain)
    found = run_node(node, dict(zip(names, map(np.asarray, inputs), strict=True)))
    return found["o0"] if outputs == 1 else [found[name] for name in outs]


def floats(*values):
    return np.array(values, np.float32)


@pytest.mark.parametrize("op", ["Relu", "Sigmoid", "Tanh", "Gelu", "Erf", "LeakyRelu", "HardSwish", "Softplus"])
def test_nan_passes_through_activations(op):
    out = run(op, floats(NAN, 1.0))
    assert np.isnan(out[0])
    assert np.isfinite(out[1])


def test_sigmoid_does_not_overflow():
    assert run("Sigmoid", floats(-1000, 0, 1000, -INF, INF)).tolist() == [0, 0.5, 1, 0, 1]


def test_softmax_of_large_values():
    assert run("Softmax", floats(1e30, 1e30)).tolist() == [0.5, 0.5]
    assert run("Softmax", floats(-INF, 0)).tolist() == [0, 1]
    assert run("Softmax", np.zeros((0, 3), np.float32)).shape == (0, 3)


def test_clip_keeps_nan_and_lets_the_maximum_win():
    assert np.isnan(run("Clip", floats(NAN), np.float32(0), np.float32(1)))[0]
    assert run("Clip", floats(-5, 5), np.float32(2), np.float32(1)).tolist() == [1, 1]
    assert run("Clip", np.array([-5, 5], np.int8), np.int8(-1), np.int8(2)).tolist() == [-1, 2]


def test_integer_division_truncates():
    a, b = np.array([7, -7, 7, -7], np.int32), np.array([2, 2, -2, -2], np.int32)
    assert run("Div", a, b).tolist() == [3, -3, -3, 3]
    assert run("Div", np.array([7], np.uint8), np.array([2], np.uint8)).tolist() == [3]


def test_float_division_by_zero():
    out = run("Div", floats(1, -1, 0), floats(0, 0, 0))
    assert out[:2].tolist() == [INF, -INF]
    assert np.isnan(out[2])


def test_max_pool_of_codes_pads_with_the_lowest():
    x = np.full((1, 1, 2, 2), -128, np.int8)
    out = run("MaxPool", x, kernel_shape=(3, 3), pads=(1, 1, 1, 1))
    assert out.dtype == np.int8
    assert (out == -128).all()
    assert np.isnan(run("MaxPool", floats(NAN, 1).reshape(1, 1, 2), kernel_shape=(2,))).all()


@pytest.mark.parametrize(("include", "corner"), [(0, 1.0), (1, 4 / 9)])
def test_average_pool_counts_padding_on_request(include, corner):
    out = run("AveragePool", np.ones((1, 1, 3, 3), np.float32), kernel_shape=(3, 3), pads=(1, 1, 1, 1),
              count_include_pad=include)  # fmt: skip
    assert out[0, 0, 0, 0] == np.float32(corner)
    assert out[0, 0, 1, 1] == 1


def test_pools_demand_a_kernel():
    with pytest.raises(KernelError, match="has no kernel_shape"):
        run("AveragePool", np.ones((1, 1, 3, 3), np.float32))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_precisions_are_kept(dtype):
    x = np.linspace(-2, 2, 24).reshape(1, 2, 3, 4).astype(dtype)
    w = np.ones((2, 2, 1, 1)).astype(dtype)
    for out in (
        run("Conv", x, w),
        run("MatMul", x, np.swapaxes(x, -1, -2)),
        run("Add", x, x),
        run("Exp", x),
        run("Gelu", x),
        run("ReduceMean", x),
        run("GlobalAveragePool", x),
        run("LayerNormalization", x, np.ones(4).astype(dtype)),
    ):
        assert out.dtype == dtype


def test_sixteen_bits_are_computed_in_thirty_two():
    x = np.full(4096, 1, np.float16)  # a sum in float16 would stop at 2048
    assert run("ReduceSum", x).tolist() == [4096]
    assert run("MatMul", x[None], x[:, None]).tolist() == [[4096]]


def test_integers_are_multiplied_exactly():
    a = np.array([[2**31 - 1, 1]], np.int64)
    assert run("MatMul", a, a.T).tolist() == [[(2**31 - 1) ** 2 + 1]]


def test_empty_reductions():
    empty = np.zeros((2, 0), np.float32)
    axis = np.array([1])
    assert run("ReduceSum", empty, axis, keepdims=0).tolist() == [0, 0]
    assert run("ReduceMax", empty, axis, keepdims=0).tolist() == [-INF, -INF]
    assert run("ReduceMin", empty.astype(np.int8), axis, keepdims=0).tolist() == [127, 127]
    assert run("ReduceProd", empty, axis, keepdims=0).tolist() == [1, 1]


def test_quantization_of_what_is_no_number():
    scale, zero = np.float32(0.5), np.int8(3)
    assert run("QuantizeLinear", floats(NAN, INF, -INF, -0.0), scale, zero).tolist() == [-128, 127, -128, 3]
    nothing = run("QuantizeLinear", floats(1, -1, 0), np.float32(0), zero)
    assert nothing.tolist() == [127, -128, -128]
    assert np.isnan(run("DequantizeLinear", np.array([1], np.int8), np.float32(NAN), zero))[0]


def test_dequantization_never_wraps():
    assert run("DequantizeLinear", np.array([-128], np.int8), np.float32(1), np.int8(127)).tolist() == [-255]
    big = np.array([2**31 - 1], np.int32)
    assert run("DequantizeLinear", big, np.float32(1), np.int32(-1)).tolist() == [2.0**31]


def test_dynamic_quantization_of_nothing():
    codes, scale, zero = run("DynamicQuantizeLinear", np.zeros(3, np.float32), outputs=3)
    assert (codes.tolist(), float(scale), int(zero)) == ([0, 0, 0], 0, 0)


def test_dropping_at_random_is_refused():
    with pytest.raises(KernelError, match="at random"):
        run("Dropout", floats(1), np.float32(0.5), np.bool_(True))
    kept, mask = run("Dropout", floats(1), np.float32(0.5), outputs=2)
    assert kept.tolist() == [1]
    assert mask.tolist() == [True]


def test_constants_without_numbers_are_refused():
    with pytest.raises(KernelError, match="contain no value"):
        run("Constant", value_string="text")
    assert run("Constant", value_ints=(1, 2)).dtype == np.int64
    assert run("Constant", value_float=1.5).dtype == np.float32


def test_unknown_fused_activations_are_named():
    x = np.ones((1, 1, 2), np.float32)
    with pytest.raises(KernelError, match="'Wiggle'"):
        run("FusedConv", x, x, domain="com.microsoft", activation="Wiggle")
