"""Elements of ONNX tensors come out as onnx itself reads them, in every form a file may keep them in."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.backends.onnx.tensor import ELEMENT_TYPES, RUNTIME_TYPES, tensor_array, unpack
from qdebug.errors import UsageError
from qdebug.model.dtypes import LOGICAL_DTYPES, logical_dtype

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402  after the check that it is there

NOWHERE = Path()


def test_every_element_type_has_the_number_onnx_gives_it():
    numbers = {number: name.lower() for name, number in TensorProto.DataType.items()}
    for number, name in ELEMENT_TYPES.items():
        assert name in LOGICAL_DTYPES
        spelled = {"float32": "float", "float64": "double"}.get(name, name.replace("_", ""))
        assert numbers[number].startswith(spelled.removesuffix("fn").removesuffix("fnu")) or numbers[number] == spelled


def test_runtime_names_cover_the_same_types():
    assert set(RUNTIME_TYPES.values()) == set(ELEMENT_TYPES.values())
    assert RUNTIME_TYPES["tensor(float)"] == "float32"
    assert RUNTIME_TYPES["tensor(float8e4m3fn)"] == "float8_e4m3fn"


@pytest.mark.parametrize("raw", [True, False], ids=["raw_data", "typed fields"])
@pytest.mark.parametrize("number", [n for n in ELEMENT_TYPES if n not in (14, 15, 23, 24, 25, 26)])
def test_elements_are_read_as_onnx_reads_them(number, raw):
    dtype = logical_dtype(ELEMENT_TYPES[number])
    values = np.array([[0, 1, 3], [2, 1, 0]]).astype(dtype)
    proto = numpy_helper.from_array(values, "t")
    if not raw:
        proto = helper.make_tensor("t", number, values.shape, values.astype(np.float64).ravel().tolist())
        assert not proto.HasField("raw_data")
    found = tensor_array(proto, NOWHERE)
    assert found.dtype == dtype
    assert found.shape == values.shape
    assert found.astype(np.float64).tolist() == numpy_helper.to_array(proto).astype(np.float64).tolist()
    assert found.astype(np.float64).tolist() == values.astype(np.float64).tolist()


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_typed_fields_are_pairs(dtype):
    values = np.array([1 + 2j, -3.5j], dtype)
    number = TensorProto.COMPLEX64 if dtype == np.complex64 else TensorProto.COMPLEX128
    proto = helper.make_tensor("t", number, [2], values)
    np.testing.assert_array_equal(tensor_array(proto, NOWHERE), values)
    assert tensor_array(proto, NOWHERE).dtype == dtype


@drawn(60)
@given(st.lists(st.integers(-8, 7), max_size=9))
def test_packed_int4_is_unpacked_from_the_low_half_up(values):
    nibbles = [value & 15 for value in values] + [0]
    packed = bytes(nibbles[at] | nibbles[at + 1] << 4 for at in range(0, len(values), 2))
    found = unpack(packed, "int4", (len(values),))
    assert found.dtype == ml_dtypes.int4
    assert found.astype(int).tolist() == values


@drawn(60)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=9))
def test_packed_two_bit_codes_keep_sign_and_order(values):
    padded = values + [0] * (-len(values) % 4)
    packed = bytes(sum(padded[at + i] << 2 * i for i in range(4)) for at in range(0, len(padded), 4))
    assert unpack(packed, "uint2", (len(values),)).astype(int).tolist() == values
    signed = [value - 4 if value > 1 else value for value in values]
    assert unpack(packed, "int2", (len(values),)).astype(int).tolist() == signed


def test_packed_floats_are_bits_not_numbers():
    found = unpack(bytes([0x72]), "float4_e2m1fn", (2,))  # 0b0010 is 1.0, 0b0111 the largest, 6.0
    assert found.astype(float).tolist() == [1.0, 6.0]


def test_elements_inside_the_model_are_not_copied():
    proto = numpy_helper.from_array(np.arange(6, dtype=np.float32), "t")
    assert not tensor_array(proto, NOWHERE).flags.owndata
    assert not tensor_array(proto, NOWHERE).flags.writeable


def test_an_empty_tensor_is_read_inline_and_from_a_file(tmp_path):
    empty = numpy_helper.from_array(np.empty((0, 3), np.float32), "t")
    assert tensor_array(empty, NOWHERE).shape == (0, 3)
    (tmp_path / "w.bin").write_bytes(b"")
    empty.ClearField("raw_data")
    empty.data_location = TensorProto.EXTERNAL
    empty.external_data.add(key="location", value="w.bin")
    assert tensor_array(empty, tmp_path).shape == (0, 3)


def test_packed_elements_are_read_from_an_offset_of_a_file(tmp_path):
    (tmp_path / "w.bin").write_bytes(bytes([255, 255, 0x21, 0x03]))
    proto = TensorProto(name="t", data_type=TensorProto.UINT4, dims=[3], data_location=TensorProto.EXTERNAL)
    proto.external_data.add(key="location", value="w.bin")
    proto.external_data.add(key="offset", value="2")
    assert tensor_array(proto, tmp_path).astype(int).tolist() == [1, 2, 3]


def test_text_is_refused_by_name():
    with pytest.raises(UsageError, match="'words'"):
        tensor_array(helper.make_tensor("words", TensorProto.STRING, [1], [b"a"]), NOWHERE)
