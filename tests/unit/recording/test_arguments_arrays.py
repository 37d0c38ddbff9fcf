"""Whatever holds a tensor gives its elements, bit for bit, or an error that names it."""

import array as array_module
import sys
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from qdebug.errors import RecordingError
from qdebug.recording.arguments import as_array


class OnlyArray:
    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return self.values if dtype is None else self.values.astype(dtype)


class OnlyDlpack:
    def __init__(self, values):
        self.values = values

    def __dlpack__(self, **keys):
        return self.values.__dlpack__(**keys)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


VALUES = np.array([[1.5, -0.0], [np.inf, 4]], np.float32)


@pytest.mark.parametrize(
    "given", [VALUES, OnlyArray(VALUES), OnlyDlpack(VALUES), memoryview(VALUES), VALUES[::-1][::-1]], ids=type
)
def test_every_holder_gives_its_elements_without_a_copy(given):
    found = as_array("x", given)
    assert (found.dtype, found.shape, found.tobytes()) == (np.float32, (2, 2), VALUES.tobytes())
    assert np.shares_memory(found, VALUES)


@pytest.mark.parametrize(
    ("given", "dtype", "shape"),
    [
        (3, "int64", ()),
        (2.5, "float64", ()),
        (True, "bool", ()),
        ([1, 2], "int64", (2,)),
        ([[1.0], [2.0]], "float64", (2, 1)),
        (bytearray(b"\x01\x02"), "uint8", (2,)),
        (array_module.array("f", [1, 2]), "float32", (2,)),
        (np.float16(1), "float16", ()),
        ([], "float64", (0,)),
    ],
    ids=repr,
)
def test_numbers_lists_and_buffers(given, dtype, shape):
    found = as_array("x", given)
    assert (found.dtype.name, found.shape) == (dtype, shape)


def test_byte_order_becomes_the_machines_and_bits_stay():
    swapped = np.array([0x7FC00001, 0x7F800001], ">u4").view(">f4")
    found = as_array("x", swapped)
    assert found.dtype.isnative
    assert found.view(np.uint32).tolist() == [0x7FC00001, 0x7F800001]


@pytest.mark.parametrize(
    "given",
    ["text", [object()], [[1], [1, 2]], np.zeros(1, dtype="M8[s]"), None, {"a": 1}, {1, 2}],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_tensor_is_named(given):
    with pytest.raises(RecordingError, match="'odd one'") as caught:
        as_array("odd one", given)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("given", "dtype", "expected"),
    [
        (np.array([0x3FC0], np.uint16), "bfloat16", np.array([1.5], ml_dtypes.bfloat16)),
        (np.array([0x38], np.uint8), "float8_e4m3fn", np.array([1], ml_dtypes.float8_e4m3fn)),
        (np.array([1.5], np.float32), "bfloat16", np.array([1.5], ml_dtypes.bfloat16)),
        (np.array([-8, 7], np.int8), "int4", np.array([-8, 7], ml_dtypes.int4)),
        (np.array([15], np.uint8), "uint4", np.array([15], ml_dtypes.uint4)),
        ([1, -1], "int8", np.array([1, -1], np.int8)),
        ([1.0, np.nan], "float32", np.array([1, np.nan], np.float32)),
        ([2**63], "uint64", np.array([2**63], np.uint64)),
        (np.array([3], np.int32), "float32", np.array([3], np.float32)),
        (np.array([1], np.int8), "int8", np.array([1], np.int8)),
        (np.array([0x3C], np.uint8), "float8_e5m2", np.array([1], ml_dtypes.float8_e5m2)),
        (np.array([15], np.uint8), "float4_e2m1fn", np.array([-6], ml_dtypes.float4_e2m1fn)),
        (np.array([256], np.int32), "float16", np.array([256], np.float16)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_dtype_says_what_the_array_does_not(given, dtype, expected):
    found = as_array("x", given, dtype)
    assert found.dtype == expected.dtype
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (np.array([8], np.int8), "int4"),
        ([300], "int8"),
        ([-1], "uint8"),
        ([0.1], "float32"),
        ([2**24 + 1], "float32"),
        ([1.0], "int8"),
        ([True], "int8"),
        ([1j], "float32"),
        (np.array(["a"]), "int8"),
        (np.zeros(1, dtype=np.longdouble), "longdouble"),
        ([1], "no such dtype"),
    ],
    ids=repr,
)
def test_no_value_is_changed_to_fit_a_dtype(given, dtype):
    with pytest.raises(RecordingError, match="'odd one'") as caught:
        as_array("odd one", given, dtype)
    assert caught.value.hint


# -- torch, which need not be installed: what counts of it is mimicked


def tensor(values, dtype, *, plain):
    """Make what a torch tensor is to the recorder: numpy() fails for dtypes that numpy lacks."""

    def numpy():
        if not plain:
            raise TypeError("Got unsupported ScalarType")
        return values

    def view(pattern):
        return tensor(values.view(pattern), "int16", plain=True)

    kind = type("Tensor", (SimpleNamespace,), {"__module__": "torch", "__array__": None})
    made = kind(dtype=f"torch.{dtype}", numpy=numpy, view=view, cpu=lambda: made, contiguous=lambda: made)
    made.detach = lambda: made
    return made


@pytest.fixture
def torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(uint8=np.uint8, int16=np.int16))


@pytest.mark.usefixtures("torch")
def test_torch_tensors_come_through_numpy_or_their_bits():
    assert as_array("x", tensor(VALUES, "float32", plain=True)) is VALUES
    brain = np.array([1.5, -2], ml_dtypes.bfloat16)
    found = as_array("x", tensor(brain, "bfloat16", plain=False))
    assert (found.dtype, found.tobytes()) == (brain.dtype, brain.tobytes())
    eighth = np.array([0.125], ml_dtypes.float8_e5m2)
    assert as_array("x", tensor(eighth, "float8_e5m2", plain=False)).dtype == ml_dtypes.float8_e5m2


@pytest.mark.usefixtures("torch")
def test_a_torch_format_without_name_is_refused():
    with pytest.raises(RecordingError, match="'odd one'"):
        as_array("odd one", tensor(np.zeros(1, np.int8), "qint8", plain=False))


@pytest.mark.parametrize("name", ["", None, 3, b"x", ("a",)], ids=repr)
def test_a_name_is_text_that_is_not_empty(name):
    with pytest.raises(RecordingError, match="expected a non-empty string"):
        as_array(name, VALUES)


def test_bits_that_could_be_numbers_are_asked_about():
    with pytest.raises(RecordingError, match="bit patterns or numbers") as caught:
        as_array("x", np.array([0x3C00], np.uint16), "float16")
    assert "view" in caught.value.hint


@pytest.mark.parametrize(("bits", "dtype"), [(16, "float4_e2m1fn"), (64, "float6_e2m3fn"), (255, "float6_e3m2fn")])
def test_bits_beyond_a_small_float_are_refused(bits, dtype):
    with pytest.raises(RecordingError, match=f"contains {bits}"):
        as_array("x", np.array([0, bits], np.uint8), dtype)


def test_masked_elements_have_no_value():
    with pytest.raises(RecordingError, match="masked"):
        as_array("x", np.ma.array([1, 2], mask=[False, True]))
    assert as_array("x", np.ma.array([1, 2])).tolist() == [1, 2]


class LikeTorch:
    """A tensor of a subclass in the user's own module."""

    def __init__(self, values, dtype="torch.float32"):
        self._values = values
        self.dtype = dtype
        self.steps = []

    def detach(self):
        self.steps.append("detach")
        return self

    def cpu(self):
        self.steps.append("cpu")
        return self

    def numpy(self):
        if self.steps != ["detach", "cpu"]:
            raise RuntimeError("Can't call numpy() on a tensor that requires grad")
        if self._values is None:
            raise TypeError("can't convert a sparse tensor to numpy")
        return self._values


def test_a_tensor_like_torchs_is_known_by_what_it_can_do():
    assert as_array("x", LikeTorch(VALUES)) is VALUES


@pytest.mark.parametrize("dtype", ["torch.float32", "torch.quint8", "torch.bfloat16"])
def test_a_tensor_that_gives_no_array_is_refused(dtype):
    with pytest.raises(RecordingError, match="cannot be converted to an array"):
        as_array("x", LikeTorch(None, dtype))


def test_an_array_protocol_that_fails_is_refused():
    class Broken:
        def __array__(self, dtype=None, copy=None):
            raise AttributeError("lost")

    with pytest.raises(RecordingError, match="lost"):
        as_array("x", Broken())


@pytest.mark.parametrize("error", [KeyError("boom"), SystemError("boom"), ZeroDivisionError()], ids=repr)
def test_an_array_that_fails_to_give_its_elements_is_named(error):
    class Failing:
        def __array__(self, dtype=None, copy=None):
            raise error

    with pytest.raises(
        RecordingError,
        match=r"Tensor 'x' is a Failing that cannot be converted to an array: .*(boom|ZeroDivisionError)",
    ):
        as_array("x", Failing())
