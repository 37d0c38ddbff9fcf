"""What is written comes back, bit for bit: values of every dtype, names of any kind, graph and facts."""

import math
import struct

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from sweeps import drawn

from qdebug.errors import RecordingError
from qdebug.model import Fidelity, Graph, Node, QuantParams, Role, RunInfo, TensorInfo
from qdebug.model.dtypes import LOGICAL_DTYPES, logical_dtype
from qdebug.recording.reading.read import FileRecording
from qdebug.recording.writing.write import RecordingWriter

INFO = RunInfo(backend="test")
VALID_BITS = {"bool": 1, "int4": 15, "uint4": 15, "int2": 3, "uint2": 3, "float4_e2m1fn": 15} | dict.fromkeys(
    ("float6_e2m3fn", "float6_e3m2fn"), 63
)


def write(path, arrays, graph=None, info=INFO, **keys):
    writer = RecordingWriter(path, force=True)
    for name, array in arrays.items():
        writer.append(name, array, **keys)
    writer.close(graph or Graph(), info)
    return FileRecording(path)


def reread(path, graph, info=INFO):
    with write(path, {"x": np.zeros(1)}, graph, info) as recording:
        return recording.graph, recording.info


def bits(array):
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).tobytes()


@st.composite
def arrays(draw):
    """Draw an array of any logical dtype and any bits that it has, in any memory and byte order."""
    logical = draw(st.sampled_from(LOGICAL_DTYPES))
    dtype = logical_dtype(logical)
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    size = math.prod(shape) * dtype.itemsize
    data = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), dtype=np.uint8)
    array = (data & VALID_BITS.get(logical, 255)).astype(np.uint8).view(dtype).reshape(shape)
    order = draw(st.sampled_from(["C", "F", "strided", "reversed", "swapped"]))
    if order == "F":
        return np.asfortranarray(array)
    if order == "strided" and shape:
        return np.repeat(array, 2, axis=-1)[..., ::2]
    if order == "reversed" and shape:
        return array[::-1].copy()[::-1]
    if order == "swapped" and dtype.kind in "iufc" and dtype.itemsize > 1 and logical in np.sctypeDict:
        return array.byteswap().view(dtype.newbyteorder())
    return array


def native(array):
    return array if array.dtype.isnative else array.byteswap().view(array.dtype.newbyteorder())


def check_values(tmp_path_factory, given_arrays):
    path = tmp_path_factory.mktemp("values") / "run.h5"
    named = {f"t{number}": array for number, array in enumerate(given_arrays)}
    with write(path, named) as recording:
        assert recording.names == tuple(named)
        for name, array in named.items():
            back = recording.load(name)
            assert back.dtype == native(array).dtype
            assert back.shape == array.shape
            assert bits(back) == bits(native(array))
            assert not back.flags.writeable


@drawn(120)
@given(st.lists(arrays(), min_size=1, max_size=4))
def test_values_come_back_bit_for_bit(tmp_path_factory, given_arrays):
    check_values(tmp_path_factory, given_arrays)


@pytest.mark.slow
@drawn(300)
@given(st.lists(arrays(), min_size=1, max_size=4))
def test_many_values_come_back_bit_for_bit(tmp_path_factory, given_arrays):
    check_values(tmp_path_factory, given_arrays)


@pytest.mark.parametrize("logical", LOGICAL_DTYPES)
def test_every_dtype_comes_back_scalar_and_empty_and_full(tmp_path, logical):
    dtype = logical_dtype(logical)
    some = np.array([0, 1, 1, 0, 1, 0], dtype=np.uint8).astype(dtype)
    named = {"scalar": some[1], "empty": some[:0].reshape(0, 3), "full": some.reshape(2, 3)}
    named = {name: np.asarray(array) for name, array in named.items()}
    with write(tmp_path / "run.h5", named) as recording:
        for name, array in named.items():
            back = recording.load(name)
            assert (back.dtype, back.shape, bits(back)) == (dtype, array.shape, bits(array))


def test_nan_payloads_signs_of_zero_and_denormals_stay(tmp_path):
    patterns = np.array([0x7FC00001, 0xFFC12345, 0x7F800001, 0x80000000, 1, 0x7F800000], dtype=np.uint32)
    with write(tmp_path / "run.h5", {"x": patterns.view(np.float32)}) as recording:
        assert recording.load("x").view(np.uint32).tolist() == patterns.tolist()


@pytest.mark.parametrize("ndim", [8, 9, 32])
def test_many_dimensions(tmp_path, ndim):
    array = np.arange(6.0).reshape((1,) * (ndim - 2) + (2, 3))
    with write(tmp_path / "run.h5", {"x": array}) as recording:
        assert np.array_equal(recording.load("x"), array)


NAMES = [
    *("a/b", "/", "//", ".", "..", "./x", "trail/", "a\\b", " ", "\t\n", "-rf", "%s{}", "../../etc/passwd"),
    *("\x00", "a\x00b", "\x1b[31mred", "日本語", "e\u0301", "é", "\U0001f600", "\ud800", "x\udcffy", "\u202egnp"),
    *("t", "index", "t/00000000", "00000000", "n" * 5000, "ü" * 5000),
]


def test_names_of_any_kind_come_back(tmp_path):
    with write(tmp_path / "run.h5", {name: np.array(number) for number, name in enumerate(NAMES)}) as recording:
        assert recording.names == tuple(NAMES)
        assert [int(recording.load(name)) for name in NAMES] == list(range(len(NAMES)))
        assert not recording.has("A/B")


@drawn(75)
@given(st.lists(st.text(st.characters(), min_size=1), min_size=1, max_size=5, unique=True))
def test_any_text_is_a_name(tmp_path_factory, names):
    path = tmp_path_factory.mktemp("names") / "run.h5"
    graph = Graph([Node(name=name, op=name, inputs=(f"in{name}",), outputs=(name,), origin=(name,)) for name in names])
    with write(path, {name: np.zeros(1) for name in names}, graph) as recording:
        assert recording.names == tuple(names)
        assert recording.graph.nodes == graph.nodes


def test_the_graph_comes_back(tmp_path, graph):
    back, _ = reread(tmp_path / "run.h5", graph)
    assert back.nodes == graph.nodes
    assert (back.inputs, back.outputs, back.name, dict(back.opset)) == (("x",), ("z",), "small", dict(graph.opset))
    assert {name: info for name, info in back.tensors.items() if name in graph.tensors} == dict(graph.tensors)
    assert back.nodes[1].origin == ("a", "b")
    assert back.nodes[0].inputs == ("x", "w", "")


def test_tensor_facts_come_back(tmp_path):
    tensors = [
        TensorInfo(name="a", shape=None, dtype=None),
        TensorInfo(name="b", shape=(), dtype="bfloat16", layout="", stands_for=""),
        TensorInfo(name="c", shape=(None, 0, 2**40), dtype="int4", layout="NCHW16c", stands_for="a"),
        TensorInfo(name="d", role=Role.CONSTANT, stands_for="not in the graph"),
    ]
    back, _ = reread(tmp_path / "run.h5", Graph(tensors=tensors))
    assert [back.tensors[tensor.name] for tensor in tensors] == tensors


ATTRS = {
    "int": -(2**63),
    "huge": 2**70,
    "float": 0.1,
    "inf": math.inf,
    "minus_inf": -math.inf,
    "minus_zero": -0.0,
    "text": "ü\x00\ud800",
    "empty_text": "",
    "yes": True,
    "ints": (1, -2),
    "floats": (0.1, math.inf, 5e-324),
    "texts": ("a", ""),
    "none": (),
    "array": np.array([[1.5, math.nan]], dtype=np.float32),
    "scalar_array": np.array(7, dtype=np.uint64),
    "empty_array": np.zeros((0, 2), dtype=np.int8),
    "codes": np.array([-1, 7, -8]).astype(logical_dtype("int4")),
    "brain": np.array([1.5]).astype(logical_dtype("bfloat16")),
    "": 1,
}


@pytest.mark.parametrize("key", ATTRS)
def test_attributes_of_every_kind_come_back(tmp_path, key):
    node = Node(name="n", op="Op", outputs=("y",), attrs={key: ATTRS[key]})
    back, _ = reread(tmp_path / "run.h5", Graph([node]))
    assert back.nodes == (node,)
    assert math.copysign(1, back.nodes[0].attrs[key]) == -1 if key == "minus_zero" else True


def test_a_nan_attribute_comes_back(tmp_path):
    back, _ = reread(
        tmp_path / "run.h5", Graph([Node(name="n", op="Op", attrs={"x": math.nan, "xs": (math.nan, 1.0)})])
    )
    attrs = back.nodes[0].attrs
    assert math.isnan(attrs["x"])
    assert math.isnan(attrs["xs"][0])
    assert attrs["xs"][1] == 1.0


@pytest.mark.parametrize(
    "value", [None, object(), {"a": 1}, (1, "a"), np.array(["x"]), b"x", 1j], ids=lambda value: type(value).__name__
)
def test_an_attribute_that_cannot_be_stored_is_named(tmp_path, value):
    writer = RecordingWriter(tmp_path / "run.h5")
    writer.append("y", np.zeros(1))
    with pytest.raises(RecordingError, match=r"'odd'.*'the node'"):
        writer.close(Graph([Node(name="the node", op="Op", outputs=("y",), attrs={"odd": value})]), INFO)
    assert not (tmp_path / "run.h5").exists()


def _float32(pattern):
    return np.frombuffer(struct.pack("<I", pattern), dtype=np.float32)


QUANTS = {
    "tensor": QuantParams(dtype="int8", scale=0.1, zero_point=-128),
    "float32 scale": QuantParams(dtype="uint8", scale=np.float32(0.1), zero_point=255),
    "nan scale with payload": QuantParams(dtype="int8", scale=_float32(0x7FC01234)),
    "zero scale": QuantParams(dtype="int8", scale=-0.0),
    "channel": QuantParams(dtype="int8", scale=np.array([0.1, 0.2], np.float32), zero_point=[1, 2], axis=0),
    "last axis": QuantParams(dtype="int8", scale=np.array([0.1, 0.2]), axis=-1),
    "block": QuantParams(dtype="int4", scale=np.full((2, 3), 0.5, np.float32), axis=1, block_size=32),
    "limits": QuantParams(dtype="int8", scale=1.0, qmin=-127, qmax=127),
    "unsigned 64": QuantParams(dtype="uint64", scale=1.0),
    "signed 64": QuantParams(dtype="int64", scale=1.0),
    "float codes": QuantParams(dtype="float8_e4m3fn", scale=0.5),
    "fixed point": QuantParams(dtype="int8", scale=1.0, multiplier=np.array(2**31 - 1), shift=np.array(-3)),
    "fixed point per channel": QuantParams(
        dtype="int8", scale=np.ones(2), axis=0, multiplier=np.array([1, 2]), shift=np.array([3, 4])
    ),
}


@pytest.mark.parametrize("key", QUANTS)
def test_quantization_comes_back_bit_for_bit(tmp_path, key):
    quant = QUANTS[key]
    back, _ = reread(tmp_path / "run.h5", Graph(tensors=[TensorInfo(name="x", quant=quant)]))
    found = back.tensors["x"].quant
    assert found == quant
    for name in ("scale", "zero_point", "multiplier", "shift"):
        one, other = getattr(found, name), getattr(quant, name)
        assert (one is None) == (other is None)
        if one is not None:
            assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


def test_all_quantizations_come_back_together(tmp_path):
    tensors = [TensorInfo(name=key, quant=quant) for key, quant in QUANTS.items()]
    back, _ = reread(tmp_path / "run.h5", Graph(tensors=tensors))
    assert {key: back.tensors[key].quant for key in QUANTS} == QUANTS


def test_run_facts_come_back(tmp_path):
    info = RunInfo(
        backend="my-npu",
        model="m\ud800.onnx",
        model_sha256="ab" * 32,
        taps="faithful",
        fidelity=Fidelity.DIFFERS,
        fidelity_detail="by 1",
        created="2026-01-01T00:00:00+00:00",
        versions={"numpy": "2"},
        cpu_flags=("avx2", "fma"),
        options={"level": 3, "fast": True, "ratio": 0.5, "name": "é", "none": None, "list": [1, 2]},
        skipped={"k/v": "too large", "ü": ""},
    )
    _, back = reread(tmp_path / "run.h5", Graph(), info)
    assert back == info


def test_options_that_json_lacks_become_text(tmp_path):
    options = {"nan": math.nan, "np": np.int64(3), "path": tmp_path, "nested": {"a": (1, math.inf)}}
    _, back = reread(tmp_path / "run.h5", Graph(), RunInfo(backend="t", options=options))
    assert dict(back.options) == {"nan": "nan", "np": 3, "path": str(tmp_path), "nested": {"a": [1, "inf"]}}


def test_an_unfinished_run_says_so(tmp_path):
    _, back = reread(tmp_path / "run.h5", Graph(), RunInfo(backend="t", complete=False))
    assert back.complete is False


def test_samples_steps_and_constants(tmp_path):
    writer = RecordingWriter(tmp_path / "run.h5")
    graph = Graph(tensors=[TensorInfo(name="w", role=Role.CONSTANT)])
    writer.append("w", np.array(5), constant=True)
    for sample, step in [(2, 1), (0, 0), (0, 1)]:
        writer.append("x", np.array([sample, step]), (sample, step))
    writer.close(graph, INFO)
    with FileRecording(tmp_path / "run.h5") as recording:
        assert (recording.samples, recording.steps) == (3, 2)
        assert recording.names == ("w", "x")
        assert recording.load("x", 2, 1).tolist() == [2, 1]
        assert int(recording.load("w", 2, 1)) == 5
        assert recording.has("w", 99, 99)
        assert not recording.has("x", 1, 0)
        with pytest.raises(RecordingError, match="no values for sample 1, step 0"):
            recording.load("x", 1)
        with pytest.raises(RecordingError, match="no tensor 'v'"):
            recording.load("v")


def test_a_constant_that_no_graph_knows_still_is_one(tmp_path):
    with write(tmp_path / "run.h5", {"w": np.ones(2)}, constant=True) as recording:
        assert recording.graph.is_constant("w")
        assert recording.has("w", 7, 3)


def test_equal_values_are_stored_once(tmp_path):
    block = np.arange(1 << 16, dtype=np.float32)
    named = {f"copy{number}": block for number in range(8)}
    named |= {"shape": block.reshape(2, -1), "dtype": block.view(np.int32)}
    with write(tmp_path / "run.h5", named) as recording:
        assert len({event.payload for event in recording.events()}) == 3
        for name, array in named.items():
            assert np.array_equal(recording.load(name), array)
    assert (tmp_path / "run.h5").stat().st_size < 4 * block.nbytes


def test_many_tensors_share_no_limit(tmp_path):
    count = 3000
    with write(tmp_path / "run.h5", {f"t{number}": np.array([number]) for number in range(count)}) as recording:
        assert len(recording.names) == count
        assert int(recording.load(f"t{count - 1}")[0]) == count - 1
