"""Dumps of frameworks: files that they wrote themselves, and damaged and hostile ones."""

import json
import os
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from qdebug import open_recording
from qdebug.errors import QdebugError
from qdebug.importing.dumps import read_dump
from qdebug.importing.import_dump import import_dump

FILES = Path(__file__).parent / "files"
VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


def tensors(path):
    with read_dump(path) as (form, dump):
        return form, {(each.name, each.place[0]): each.load() for each in dump.tensors}, dump


def test_tensors_of_a_torch_file_have_the_keys_that_lead_to_them():
    form, found, dump = tensors(FILES / "nested.pt")
    expected = {
        "layers.0.out": VALUES,
        "layers.1.out": VALUES + 1,
        "turned": VALUES.T,
        "row": VALUES[1],
        "expanded": np.ones((4, 3), np.float32),
        "parameter": VALUES,
        "codes": np.uint8(VALUES / 0.5 + 3),
        "whole": np.int64([1, 2, 3]),
        "state.weight": VALUES.astype(np.float64),
        "state.flag": np.array([True, False]),
        "output.logits": VALUES * 2,
    }
    assert form == "arrays"
    for name, values in expected.items():
        np.testing.assert_array_equal(found.pop((name, 0)), values, strict=True)
    assert {name: str(values.dtype) for (name, _), values in found.items()} == {
        "layers.0.half": "bfloat16",
        "float8": "float8_e4m3fn",
    }
    codes = next(each for each in dump.tensors if each.name == "codes")
    assert dict(codes.facts) == {"scale": 0.5, "zero_point": 3}


def test_a_tensor_alone_has_the_name_of_its_file():
    assert [*tensors(FILES / "alone.pt")[1]] == [("alone", 0)]


def test_tensors_of_a_safetensors_file_are_read():
    _, found, _ = tensors(FILES / "three.safetensors")
    np.testing.assert_array_equal(found["a", 0], VALUES)
    np.testing.assert_array_equal(found["b", 0].astype(np.float32), VALUES)
    np.testing.assert_array_equal(found["c", 0], np.int64([1, 2]), strict=True)


def test_an_iteration_of_polygraphy_is_a_sample():
    form, found, dump = tensors(FILES / "results.json")
    assert (form, dump.facts["backend"]) == ("polygraphy", "onnxrt-runner")
    for sample in range(2):
        np.testing.assert_array_equal(found["y", sample], np.full((2, 3), sample, np.float32), strict=True)
    form, found, _ = tensors(FILES / "inputs.json")
    assert (form, [*found]) == ("polygraphy", [("x", 0)])


def test_numbered_files_of_a_folder_are_steps_or_samples(tmp_path):
    for number in range(3):
        (tmp_path / f"sample{number:05}.pt").write_bytes((FILES / "nested.pt").read_bytes())
    _, found, dump = tensors(tmp_path)
    assert {sample for _, sample in found} == {0, 1, 2}
    assert "3 samples" in dump.remarks[0]


@pytest.mark.parametrize("suffix", [".npy", ".pt"])
def test_calls_of_msprobe_are_nodes_in_their_order(tmp_path, suffix):
    def value(name):
        file = name + suffix
        folder = tmp_path / "step0" / "rank0" / "dump_tensor_data"
        folder.mkdir(parents=True, exist_ok=True)
        if suffix == ".npy":
            np.save(folder / file, VALUES if name.endswith("input.0") and "conv" in name else VALUES + 1)
        else:
            (folder / file).write_bytes((FILES / "alone.pt").read_bytes())
        return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3], "data_name": file}

    conv, relu = "Functional.conv2d.0.forward", "Module.act.ReLU.forward.0"
    data = {
        conv: {
            "input_args": [value(f"{conv}.input.0"), {"type": "int", "value": 1}],
            "parameters": {"weight": value(f"{conv}.parameters.weight")},
            "output": [value(f"{conv}.output.0")],
        },
        relu: {"input_args": [value(f"{relu}.input.0")], "output": value(f"{relu}.output.0")},
        "Functional.conv2d.0.backward": {"input": []},
        "Torch.sum.0.forward": {"output": [{"type": "torch.Tensor", "Max": 1.0}]},
    }
    text = json.dumps({"task": "tensor", "level": "mix", "dump_data_dir": "/gone/dump_tensor_data", "data": data})
    folder = tmp_path / "step0" / "rank0"
    (folder / "dump.json").write_text(text)
    form, found, dump = tensors(folder)
    assert form == "msprobe"
    assert {f"{conv}.input.0", f"{conv}.output.0", f"{relu}.output.0"} <= {name for name, _ in found}
    assert f"{relu}.input.0" not in {name for name, _ in found}  # it is the output of the call before
    assert set(dump.ignored) == {"Functional.conv2d.0.backward", "Torch.sum.0.forward.output"}
    import_dump(folder, tmp_path / "out.h5")
    with open_recording(tmp_path / "out.h5") as recording:
        nodes = {node.op: node for node in recording.graph.nodes}
        assert nodes["ReLU"].inputs[0] in {*nodes["conv2d"].inputs, *nodes["conv2d"].outputs}


class _Call:
    def __init__(self, function, *arguments):
        self._made = function, arguments

    def __reduce__(self):
        return self._made


def torch_file(path, content, storages=None, pickled=None):
    """Write an archive as torch does, with any content."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", pickle.dumps(content, 2) if pickled is None else pickled)
        for key, values in (storages or {}).items():
            archive.writestr(f"a/data/{key}", values.tobytes())
    return path


def test_nothing_of_a_pickle_is_run(tmp_path):
    marker = tmp_path / "ran"
    content = {"a": _Call(os.system, f"touch {marker}"), "b": _Call(eval, f"open({str(marker)!r}, 'w')"), "c": 1}
    torch_file(tmp_path / "bad.pt", content)
    with pytest.raises(QdebugError, match="no readable tensor"):
        tensors(tmp_path / "bad.pt")
    assert not marker.exists()


def test_containers_that_share_each_other_are_refused_in_bounded_time(tmp_path):
    values = [1.0]
    for _ in range(40):
        values = [values] * 10
    with pytest.raises(QdebugError, match="too many values"):
        tensors(torch_file(tmp_path / "bad.pt", values))


@pytest.mark.parametrize(
    ("pickled", "reason"),
    [
        (b"", "damaged"),
        (b"\x80\x02]q\x00.", "no readable tensor"),
        (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)R.", "damaged"),
        (b"\x80\x02cos\nsystem\n\x93.", "damaged"),
        (pickle.dumps(list(range(10)))[:-5], "damaged"),
    ],
)
def test_damaged_pickles_get_one_sentence(tmp_path, pickled, reason):
    with pytest.raises(QdebugError, match=reason):
        tensors(torch_file(tmp_path / "bad.pt", None, pickled=pickled))


@pytest.mark.parametrize(
    ("offset", "shape", "strides", "reason"),
    [
        (0, (5,), (1,), "beyond its storage"),
        (3, (2,), (1,), "beyond its storage"),
        (0, (2, 2), (1,), "beyond its storage"),
        (0, (1 << 40,), (0,), "repeats its storage"),
        (1 << 61, (1,), (1,), "beyond its storage"),
    ],
)
def test_views_beyond_a_storage_are_refused(tmp_path, offset, shape, strides, reason):
    def number(value):
        return b"\x8a\x08" + value.to_bytes(8, "little")

    def numbers(values):
        return b"(" + b"".join(map(number, values)) + b"t"

    pickled = (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(("
        b"X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04tQ"
        + number(offset) + numbers(shape) + numbers(strides) + b"\x89N" + b"tR."
    )  # fmt: skip
    path = torch_file(tmp_path / "bad.pt", None, {"0": np.zeros(4, np.float32)}, pickled=pickled)
    with pytest.raises(QdebugError, match=reason):
        tensors(path)


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, "4 bytes, not 8"),
        ({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}, "ends after the file"),
        ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}, "ends after the file"),
        ({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, "no offsets"),
        ({"a": {"dtype": "F32", "shape": [1]}}, "no offsets"),
        ({"a": 3}, "no offsets"),
        ([], "not a table"),
        ({"a": {"dtype": "F4", "shape": [1], "data_offsets": [0, 4]}}, "no readable tensor"),
        (
            {
                "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                "b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]},
            },
            "overlaps",
        ),
    ],
)
def test_damaged_safetensors_get_one_sentence(tmp_path, header, reason):
    text = json.dumps(header).encode()
    (tmp_path / "bad.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))
    with pytest.raises(QdebugError, match=reason):
        tensors(tmp_path / "bad.safetensors")


@pytest.mark.parametrize("content", [b"", b"\xff" * 8, struct.pack("<Q", 1 << 40) + b"{}"])
def test_a_header_longer_than_its_file_is_refused(tmp_path, content):
    (tmp_path / "bad.safetensors").write_bytes(content)
    with pytest.raises(QdebugError, match="damaged"):
        tensors(tmp_path / "bad.safetensors")


@pytest.mark.parametrize(
    "content",
    [
        '{"lst": 3, "polygraphy_class": "RunResults"}',
        '{"lst": [["r", [{"outputs": {"y": {"array": "!!"}}}]]], "polygraphy_class": "RunResults"}',
        '[{"x": {"array": "k05VTVBZAQB2AA==", "polygraphy_class": "ndarray"}}]',
    ],
)
def test_damaged_results_of_polygraphy_get_one_sentence(tmp_path, content):
    (tmp_path / "bad.json").write_text(content)
    with pytest.raises(QdebugError, match="damaged"):
        tensors(tmp_path / "bad.json")
