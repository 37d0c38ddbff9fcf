"""Logical dtypes: names, numpy counterparts, limits."""

import ml_dtypes
import numpy as np
import pytest

from qdebug.model.dtypes import LOGICAL_DTYPES, code_limits, is_float, is_integer, logical_dtype, logical_name


@pytest.mark.parametrize("name", LOGICAL_DTYPES)
def test_name_and_dtype_answer_to_each_other(name):
    assert logical_name(logical_dtype(name)) == name


def test_the_order_that_files_number_them_by_is_unchanged():
    assert LOGICAL_DTYPES[:4] == ("bool", "int8", "uint8", "int16")
    assert LOGICAL_DTYPES[9:15] == ("float16", "float32", "float64", "complex64", "complex128", "bfloat16")
    assert LOGICAL_DTYPES[-4:] == ("int4", "uint4", "int2", "uint2")
    assert len(LOGICAL_DTYPES) == len(set(LOGICAL_DTYPES)) == 30


@pytest.mark.parametrize("name", LOGICAL_DTYPES)
def test_a_dtype_is_integer_or_float_or_neither(name):
    neither = name == "bool" or name.startswith("complex")
    assert is_integer(name) + is_float(name) == (0 if neither else 1)


@pytest.mark.parametrize(
    ("name", "limits"),
    [
        ("int8", (-128, 127)),
        ("uint8", (0, 255)),
        ("int4", (-8, 7)),
        ("uint2", (0, 3)),
        ("uint64", (0, 2**64 - 1)),
        ("float32", (None, None)),
        ("bfloat16", (None, None)),
        ("bool", (None, None)),
    ],
)
def test_code_limits(name, limits):
    assert code_limits(name) == limits


def test_byte_order_does_not_change_the_name():
    assert logical_name(np.dtype(">f4")) == "float32"


@pytest.mark.parametrize("dtype", [np.dtype(object), np.dtype("U3"), np.dtype("V2"), np.dtype([("a", "i4")])])
def test_a_dtype_without_logical_name_is_refused(dtype):
    with pytest.raises(ValueError, match="no logical dtype"):
        logical_name(dtype)


@pytest.mark.parametrize("call", [logical_dtype, code_limits])
@pytest.mark.parametrize("name", ["int3x", "float", "longdouble", ""])
def test_an_unknown_name_is_refused(call, name):
    with pytest.raises(ValueError, match="unknown logical dtype"):
        call(name)


def test_extension_types_are_those_of_ml_dtypes():
    assert logical_dtype("int4") == np.dtype(ml_dtypes.int4)
    assert logical_dtype("bfloat16") == np.dtype(ml_dtypes.bfloat16)
