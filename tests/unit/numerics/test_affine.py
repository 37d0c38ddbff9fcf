"""Codes to real values and back: per tensor, per channel, per block, every width."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.errors import UsageError
from qdebug.model import QuantParams
from qdebug.model.dtypes import code_limits, logical_dtype
from qdebug.numerics.affine import BLOCK, Affine, ScaleMap, dequantize, quantize, to_single

F32 = np.float32
SMALL_FLOATS = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn"]


def test_real_is_scale_times_code_minus_zero_point():
    quant = QuantParams(dtype="int8", scale=F32(0.1), zero_point=3)
    codes = np.int8([[-128, 3], [4, 127]])
    real = dequantize(codes, quant)
    assert real.dtype == F32
    assert np.array_equal(real, F32(0.1) * (codes.astype(F32) - F32(3)))


def test_each_channel_has_its_own_parameters():
    scale, zero_point = F32([0.5, 0.25, 2.0]), np.array([0, 1, -1])
    codes = np.arange(24, dtype=np.int8).reshape(2, 3, 4)
    for axis in (1, -2):
        quant = QuantParams(dtype="int8", scale=scale, zero_point=zero_point, axis=axis)
        expected = scale[:, None] * (codes - zero_point[:, None]).astype(F32)
        assert np.array_equal(dequantize(codes, quant), expected)


@pytest.mark.parametrize("shape", [(7, 5, 3), (1, 35, 3), (35, 1, 3), (2, 3, 50_000), (2, 40_000, 3), (70_000, 3)])
@pytest.mark.parametrize("axis", [0, 1])
def test_channels_are_found_at_any_stretch_of_a_large_tensor(shape, axis):
    extent = shape[axis]
    scale = np.linspace(0.5, 2.0, extent).astype(F32)
    quant = QuantParams(dtype="int8", scale=scale, axis=axis if extent > 1 else None)
    codes = np.ones(shape, np.int8)
    expected = np.broadcast_to(scale.reshape([-1 if d == axis else 1 for d in range(len(shape))]), shape)
    assert np.array_equal(dequantize(codes, quant), expected)


@pytest.mark.parametrize("ndim", [1, 2])
def test_blocks_along_an_axis_share_parameters(ndim):
    codes = np.ones((2, 7), np.int8)
    scale = F32([1.0, 2.0, 3.0]) if ndim == 1 else F32([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    quant = QuantParams(dtype="int8", scale=scale, axis=1, block_size=3)
    rows = np.broadcast_to(scale, (2, 3))
    assert np.array_equal(dequantize(codes, quant), np.repeat(rows, 3, axis=1)[:, :7])
    assert np.array_equal(quantize(dequantize(codes, quant), quant), codes)


@pytest.mark.parametrize(
    ("scale", "axis", "shape"),
    [([1.0, 2.0], 0, (3, 2)), ([1.0, 2.0], 2, (2, 2)), ([1.0, 2.0], 0, ()), ([1.0, 2.0], -3, (2, 2))],
)
def test_parameters_that_do_not_fit_are_refused_with_both_shapes(scale, axis, shape):
    quant = QuantParams(dtype="int8", scale=F32(scale), axis=axis)
    with pytest.raises(UsageError, match="axis"):
        dequantize(np.zeros(shape, np.int8), quant)


def test_blocks_that_do_not_fit_are_refused():
    quant = QuantParams(dtype="int8", scale=F32([1.0, 2.0]), axis=0, block_size=2)
    with pytest.raises(UsageError, match="expected 3"):
        dequantize(np.zeros(5, np.int8), quant)


def test_a_float64_scale_stands_for_the_float32_scale_that_it_rounds_to():
    for dtype in ("int8", "int16", "int32"):
        codes = np.arange(-128, 128).astype(dtype) * np.array(np.iinfo(dtype).max // 128, dtype)
        single, double = (QuantParams(dtype=dtype, scale=form(0.1), zero_point=1) for form in (F32, float))
        assert np.array_equal(dequantize(codes, single), dequantize(codes, double))
        real = dequantize(codes, single, double=True)
        assert np.array_equal(real, dequantize(codes, double, double=True))
        assert np.array_equal(quantize(real.astype(F32), single), quantize(real.astype(F32), double))


@pytest.mark.parametrize("scale", [1e-42, 1e-50, 1e50])
def test_a_scale_beyond_the_normal_numbers_of_float32_is_used_as_it_is(scale):
    quant = QuantParams(dtype="int8", scale=scale)
    assert dequantize(np.array([3.0]), quant).tolist() == [3 * scale]


def test_wide_codes_are_rounded_once():
    codes = np.int32([2**31 - 1, -(2**31), 2**24 + 1])
    quant = QuantParams(dtype="int32", scale=F32(0.1))
    exact = [F32(float(F32(0.1)) * int(code)) for code in codes]
    assert np.array_equal(dequantize(codes, quant), exact)
    far = QuantParams(dtype="int64", scale=F32(1.0), zero_point=2**62)
    assert np.array_equal(dequantize(np.int64([2**62 + 3, -(2**62)]), far), F32([3.0, -(2.0**63)]))
    unsigned = QuantParams(dtype="uint64", scale=F32(1.0), zero_point=-1)
    assert dequantize(np.uint64([2**64 - 1]), unsigned)[0] == F32(2.0**64)


def test_a_far_zero_point_of_narrow_codes_is_subtracted_exactly():
    quant = QuantParams(dtype="int8", scale=F32(1.0), zero_point=2**24 + 1)
    assert dequantize(np.int8([1]), quant)[0] == -(2.0**24)


@pytest.mark.parametrize("name", [*SMALL_FLOATS, "bfloat16", "float16"])
def test_small_floats_are_widened(name):
    dtype = logical_dtype(name)
    width = dtype.itemsize
    codes = np.arange(256**width, dtype=f"u{width}")
    values = codes.view(dtype) if name != "float4_e2m1fn" else codes[:16].view(dtype)
    real = dequantize(values, None)
    assert real.dtype == F32
    assert np.array_equal(real, values.astype(F32), equal_nan=True)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int4", "uint64", "bool"])
def test_other_unquantized_elements_come_back_as_they_are(dtype):
    values = np.ones((2, 3)).astype(logical_dtype(dtype))
    assert dequantize(values, None) is values


def test_codes_kept_as_float64_stay_float64():
    quant = QuantParams(dtype="int8", scale=0.1, zero_point=1)
    assert dequantize(np.array([2.0]), quant).tolist() == [float(F32(0.1))]


def test_scalars_and_empty_tensors_keep_their_shape():
    quant = QuantParams(dtype="int8", scale=F32(0.5))
    assert dequantize(np.int8(4), quant).shape == ()
    assert dequantize(np.zeros((0, 4), np.int8), quant).shape == (0, 4)
    assert quantize(F32(2.0), quant).shape == ()


def test_a_zero_or_nan_scale_is_kept_as_a_fact():
    assert dequantize(np.int8([5]), QuantParams(dtype="int8", scale=F32(0.0)))[0] == 0.0
    assert math.isnan(dequantize(np.int8([5]), QuantParams(dtype="int8", scale=F32(math.nan)))[0])


def test_strided_and_read_only_codes_are_read():
    codes = np.arange(2 * BLOCK + 10, dtype=np.int8)[::2]
    codes.flags.writeable = False
    quant = QuantParams(dtype="int8", scale=F32(1.0))
    assert np.array_equal(dequantize(codes, quant), codes.astype(F32))


def test_int4_is_read_by_value():
    values = np.array([-8, -1, 0, 7], np.int8).astype(ml_dtypes.int4)
    out = np.empty(4, F32)
    to_single(values, out)
    assert out.tolist() == [-8.0, -1.0, 0.0, 7.0]


@pytest.mark.parametrize(
    ("rounding", "expected"), [("even", [0, 2, -2]), ("away", [1, 2, -2]), ("floor", [0, 1, -2]), ("trunc", [0, 1, -1])]
)
def test_quantize_rounds_by_name(rounding, expected):
    quant = QuantParams(dtype="int8", scale=F32(2.0))
    assert quantize(F32([1.0, 3.0, -3.0]), quant, rounding).tolist() == expected


def test_quantize_saturates_and_has_a_place_for_what_is_not_finite():
    quant = QuantParams(dtype="int8", scale=F32(0.1), zero_point=5, qmin=-127)
    codes = quantize(F32([1e30, -1e30, math.inf, -math.inf, math.nan, 0.0]), quant)
    assert codes.dtype == np.int8
    assert codes.tolist() == [127, -127, 127, -127, -127, 5]


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint64", "uint32"])
def test_wide_codes_saturate_at_their_ends(dtype):
    low, high = code_limits(dtype)
    quant = QuantParams(dtype=dtype, scale=F32(1.0))
    assert quantize(np.array([1e30, -1e30, 7.0]), quant).tolist() == [high, low, 7]


def test_float_codes_saturate_and_keep_nan():
    quant = QuantParams(dtype="float8_e4m3fn", scale=F32(0.5))
    codes = quantize(F32([1.0, 1e9, -math.inf, math.nan]), quant).astype(F32)
    assert codes[:3].tolist() == [2.0, 448.0, -448.0]
    assert math.isnan(codes[3])


def test_quantize_uses_the_parameters_of_each_channel():
    quant = QuantParams(dtype="uint8", scale=F32([1.0, 0.5]), zero_point=np.array([0, 10]), axis=1)
    assert quantize(F32([[3.0, 3.0]]), quant).tolist() == [[3, 16]]


@drawn(60)
@given(
    dtype=st.sampled_from(["int4", "uint4", "int8", "uint8", "int16", "uint16"]),
    scale=st.floats(1e-6, 1e6),
    zero_point=st.integers(-7, 7),
    single=st.booleans(),
    data=st.data(),
)
def test_quantize_undoes_dequantize(dtype, scale, zero_point, single, data):
    low, high = code_limits(dtype)
    codes = np.array(data.draw(st.lists(st.integers(low, high), max_size=30)), np.int64).astype(logical_dtype(dtype))
    quant = QuantParams(dtype=dtype, scale=F32(scale) if single else scale, zero_point=zero_point)
    back = quantize(dequantize(codes, quant), quant)
    assert back.dtype == codes.dtype
    assert np.array_equal(back, codes)


def test_a_stretch_of_a_scalar_scale_is_one_entry():
    quant = QuantParams(dtype="int8", scale=F32(0.5))
    assert ScaleMap(quant, (4,)).expand(quant.scale, 1, 3).shape == ()
    out = np.empty(2, np.float64)
    Affine(quant, (4,), np.dtype(np.int8)).apply(np.int8([1, 2]), 1, out)
    assert out.tolist() == [0.5, 1.0]


def test_codes_and_values_agree_with_onnxruntime():
    onnx = pytest.importorskip("onnx")
    ort = pytest.importorskip("onnxruntime")
    helper, kinds = onnx.helper, onnx.TensorProto
    values = (np.arange(-600, 600).astype(F32) * F32(0.0371) / F32(2)).astype(F32)
    values[:3] = math.nan, math.inf, -math.inf
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    constants = [helper.make_tensor("s", kinds.FLOAT, (), [F32(0.0371)]), helper.make_tensor("z", kinds.INT8, (), [7])]
    outputs = [
        helper.make_tensor_value_info("q", kinds.INT8, [1200]),
        helper.make_tensor_value_info("y", kinds.FLOAT, [1200]),
    ]
    graph = helper.make_graph(
        nodes, "qdq", [helper.make_tensor_value_info("x", kinds.FLOAT, [1200])], outputs, constants
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    codes, real = session.run(["q", "y"], {"x": values})
    quant = QuantParams(dtype="int8", scale=F32(0.0371), zero_point=7)
    assert np.array_equal(quantize(values, quant)[1:], codes[1:])  # what NaN becomes depends on the processor
    assert np.array_equal(dequantize(codes, quant), real)
