"""Recorded values as .npz: numpy reads them back, and no name of a tensor is the name of a file."""

import zipfile

import ml_dtypes
import numpy as np
import pytest

from qdebug.errors import UsageError
from qdebug.importing.formats.arrays import TENSOR_NAMES
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, TensorInfo
from qdebug.present.reports.exports import member_names, write_npz
from qdebug.testing import random_recording


def names_of(file):
    return dict(file[TENSOR_NAMES].tolist())


def test_values_come_back_under_their_names(tmp_path):
    recording = random_recording(np.random.default_rng(0), quantized=True)
    assert write_npz(recording, tmp_path / "a.npz", sample=1) == len(recording.names)
    with np.load(tmp_path / "a.npz") as file:
        assert set(names_of(file).values()) == set(recording.names)
        assert np.array_equal(file["fc1"], recording.load("fc1", 1))
        assert file["fc1"].dtype == np.int8


def test_real_values_and_patterns(tmp_path):
    recording = random_recording(np.random.default_rng(0), quantized=True)
    write_npz(recording, tmp_path / "a.npz", tensors=("fc?", "x"), real=True)
    with np.load(tmp_path / "a.npz") as file:
        assert set(file.files) == {TENSOR_NAMES, "x", "fc1", "fc2", "fc3"}
        assert file["fc1"].dtype == np.float32


def test_types_that_numpy_has_not_become_those_it_has(tmp_path):
    arrays = {"b": np.array([1.5], ml_dtypes.bfloat16), "i": np.array([-3], ml_dtypes.int4), "s": np.float32(2.0)}
    graph = Graph(
        [Node(name="n", op="X", inputs=(), outputs=tuple(arrays))],
        tensors=[TensorInfo(name="i", quant=QuantParams(dtype="int4", scale=0.5))],
    )
    write_npz(MemoryRecording.single(graph, {k: np.asarray(v) for k, v in arrays.items()}), tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:
        assert (file["b"].dtype, file["b"][0]) == (np.float32, 1.5)
        assert (file["i"].dtype, file["i"][0]) == (np.int8, -3)
        assert file["s"].shape == ()


def test_the_same_values_give_the_same_bytes(tmp_path):
    for name in ("a.npz", "b.npz"):
        write_npz(random_recording(np.random.default_rng(0)), tmp_path / name)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


@pytest.mark.parametrize(
    ("options", "said"),
    [({"tensors": ("none*",)}, "No tensor with values"), ({"sample": 99}, "no sample 99"), ({"step": 1}, "step 1")],
)
def test_nothing_to_write_is_an_error(options, said, tmp_path):
    with pytest.raises(UsageError, match=said):
        write_npz(random_recording(np.random.default_rng(0)), tmp_path / "a.npz", **options)


def test_no_member_leaves_the_folder_it_is_unpacked_into():
    names = [
        "../../x",
        "/abs",
        "C:\\x",
        "a/b",
        "A",
        "a",
        TENSOR_NAMES,
        "..",
        "a..b",
        "\x00",
        "x" * 5000,
        "\ud800",
        "",
        "con.npy",
    ]
    members = member_names(names)
    assert len({member.lower() for member in members.values()}) == len(names)
    for member in members.values():
        assert member.isascii()
        assert not set(member) & set("/\\:\x00")
        assert ".." not in member
        assert not member.startswith(".")
        assert len(member) <= 100
        assert member != TENSOR_NAMES
    assert members["A"] == "A"


def test_arrays_are_stored_one_after_the_other(tmp_path):
    write_npz(random_recording(np.random.default_rng(0)), tmp_path / "a.npz")
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        assert archive.testzip() is None
        assert archive.namelist()[0] == f"{TENSOR_NAMES}.npy"


def test_real_values_of_codes_that_float32_does_not_hold(tmp_path):
    info = TensorInfo(name="q", quant=QuantParams(dtype="int32", scale=np.float32(1.0)))
    graph = Graph([Node(name="n", op="X", inputs=(), outputs=("q",))], tensors=[info])
    recording = MemoryRecording.single(graph, {"q": np.int32([2**24, 2**24 + 1])})
    write_npz(recording, tmp_path / "a.npz", real=True)
    with np.load(tmp_path / "a.npz") as file:
        assert file["q"].tolist() == [2.0**24, 2.0**24 + 1]
