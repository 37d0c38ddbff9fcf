import ml_dtypes
import numpy as np
import pytest

from qdebug.replay.precision import ONNX_DTYPES, compute_dtype, integer_limits, is_real, narrow, onnx_dtype, widen


def test_numbers_of_element_types_agree_with_onnx():
    onnx = pytest.importorskip("onnx")
    for number, name in ONNX_DTYPES.items():
        if name != "string" and number in onnx.TensorProto.DataType.values():
            assert onnx_dtype(number) == onnx.helper.tensor_dtype_to_np_dtype(number), name


@pytest.mark.parametrize("number", [0, 8, 99])
def test_types_without_numbers_are_refused(number):
    with pytest.raises(ValueError, match="not supported"):
        onnx_dtype(number)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_narrow_floats_are_computed_in_float32(dtype):
    array = np.array([1.5], dtype)
    assert widen(array).dtype == np.float32
    assert narrow(widen(array), array.dtype).dtype == array.dtype


def test_other_types_stay():
    for dtype in (np.float32, np.float64, np.int8, np.bool_, np.complex64):
        array = np.zeros(2, dtype)
        assert widen(array) is array
    assert compute_dtype(np.dtype(np.float64)) == np.float64
    assert compute_dtype(np.dtype(np.int8)) == np.float32
    assert is_real(np.dtype(ml_dtypes.bfloat16))
    assert not is_real(np.dtype(np.complex64))


def test_limits():
    assert integer_limits(np.dtype(ml_dtypes.int4)) == (-8, 7)
    assert integer_limits(np.dtype(np.uint8)) == (0, 255)
    with pytest.raises(ValueError, match="not an integer"):
        integer_limits(np.dtype(np.float32))
