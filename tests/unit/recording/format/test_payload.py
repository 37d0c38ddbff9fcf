import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from sweeps import drawn

from qdebug.errors import RecordingError
from qdebug.model.dtypes import LOGICAL_DTYPES, logical_dtype
from qdebug.recording.format.payload import from_physical, payload_hash, storable_dtype, to_bytes
from qdebug.recording.format.specification import physical_dtype


def _through(array, logical):
    raw = np.frombuffer(to_bytes(array, logical), dtype=physical_dtype(logical)).reshape(array.shape)
    return from_physical(raw, logical)


@pytest.mark.parametrize("logical", [name for name in LOGICAL_DTYPES if logical_dtype(name).itemsize <= 2])
@pytest.mark.usefixtures("made_in")
def test_every_bit_pattern_of_a_small_dtype_comes_back(logical):
    dtype = logical_dtype(logical)
    unsigned = np.dtype(f"u{dtype.itemsize}")
    patterns = np.arange(2 if logical == "bool" else 1 << 8 * dtype.itemsize, dtype=np.uint32).astype(unsigned)
    if dtype.itemsize == 1 and logical.startswith(("int4", "uint4", "float4")):
        patterns = patterns[:16]
    if logical.startswith(("int2", "uint2")):
        patterns = patterns[:4]
    if logical.startswith("float6"):
        patterns = patterns[:64]
    array = patterns.view(dtype)
    back = _through(array, logical)
    assert back.dtype == dtype
    assert np.array_equal(back.view(unsigned), patterns)


@drawn(60)
@given(
    st.sampled_from(["<", ">"]),
    st.sampled_from(["f4", "f8", "i8", "u8", "c8", "c16"]),
    st.binary(min_size=32, max_size=32),
)
def test_bits_survive_either_byte_order(order, kind, data):
    array = np.frombuffer(data, dtype=order + kind)
    back = _through(array, array.dtype.name)
    assert back.dtype.isnative
    # Compared as they lie in memory in one order: a conversion would quieten signalling NaN.
    part = array.dtype.itemsize // (2 if kind.startswith("c") else 1)
    assert back.view(f"u{part}").tolist() == array.view(f"{order}u{part}").tolist()


def test_the_file_holds_the_value_of_a_small_integer_not_its_bits():
    codes = np.array([-8, -1, 0, 7], dtype=ml_dtypes.int4)
    assert np.frombuffer(to_bytes(codes, "int4"), dtype=np.int8).tolist() == [-8, -1, 0, 7]


def test_high_bits_that_mean_nothing_are_not_stored():
    dirty = np.array([0xF1, 0xFF], dtype=np.uint8)
    for logical, mask in (("uint4", 0x0F), ("float4_e2m1fn", 0x0F), ("float6_e2m3fn", 0x3F)):
        stored = np.frombuffer(to_bytes(dirty.view(logical_dtype(logical)), logical), dtype=np.uint8)
        assert stored.tolist() == (dirty & mask).tolist()
        clean = from_physical(dirty, logical)
        assert clean.view(np.uint8).tolist() == (dirty & mask).tolist()


def test_memory_order_does_not_matter():
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    expected = bytes(to_bytes(array, "float32"))
    assert bytes(to_bytes(np.asfortranarray(array), "float32")) == expected
    assert bytes(to_bytes(np.repeat(array, 2, axis=1)[:, ::2], "float32")) == expected
    assert bytes(to_bytes(array[:, ::-1].copy()[:, ::-1], "float32")) == expected


def test_a_plain_array_is_not_copied():
    array = np.arange(8, dtype=np.int32)
    assert np.shares_memory(np.frombuffer(to_bytes(array, "int32"), dtype=np.int32), array)


@pytest.mark.parametrize(
    "array",
    [
        np.array(["a"]),
        np.array([b"a"]),
        np.array([object()]),
        np.zeros(2, dtype=[("a", "i4")]),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        pytest.param(
            np.zeros(2, dtype=np.longdouble),
            marks=pytest.mark.skipif(
                np.dtype(np.longdouble) == np.dtype(np.float64), reason="longdouble is double here"
            ),
        ),
    ],
    ids=lambda array: str(array.dtype),
)
def test_what_cannot_be_stored_is_refused_by_name(array):
    with pytest.raises(RecordingError, match="'odd one'") as caught:
        storable_dtype("odd one", array)
    assert caught.value.hint


def test_dimensions_are_limited_to_those_of_the_container():
    assert storable_dtype("x", np.zeros((1,) * 32)) == "float64"
    with pytest.raises(RecordingError, match="33 dimensions"):
        storable_dtype("x", np.zeros((1,) * 33))


def test_the_hash_is_of_the_bytes():
    assert payload_hash(b"abc") == payload_hash(memoryview(b"abc"))
    assert payload_hash(b"abc") != payload_hash(b"abd")
    assert len(payload_hash(b"")) == 16
