"""Recordings that earlier versions of qdebug wrote stay readable: made once by golden/make.py, and kept."""

import importlib.util
import shutil
from pathlib import Path

import numpy as np
import pytest
from recording_parts import count_sound

from qdebug.model import Role
from qdebug.model.dtypes import LOGICAL_DTYPES
from qdebug.model.recording import quant_of
from qdebug.recording.reading.read import FileRecording
from qdebug.recording.writing.recovery import recover

GOLDEN = Path(__file__).parents[1] / "golden"
_SPEC = importlib.util.spec_from_file_location("golden_make", GOLDEN / "make.py")
make = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(make)


@pytest.fixture(params=["recording-1", "packed-1", "unfinished-1", "recording-2", "packed-2"])
def path(request, tmp_path):
    if request.param.startswith("unfinished"):
        for what in ("part", "journal"):
            shutil.copy(GOLDEN / f"{request.param}-{what}.h5", tmp_path / f"{request.param}.h5.{what}")
        assert recover(tmp_path / f"{request.param}.h5").lost == ()
        return tmp_path / f"{request.param}.h5"
    return GOLDEN / f"{request.param}.h5"


def test_all_of_it_is_read(path):
    count_sound(path)
    with FileRecording(path) as recording:
        info = recording.info
        assert (info.backend, info.model, info.cpu_flags, dict(info.options)) == ("golden", "net", ("fma",), {"opt": 1})
        assert dict(info.skipped) == {"z": "too large"}
        assert info.complete is ("unfinished" not in path.name)
        assert (recording.samples, recording.steps) == (2, 1)
        (node,) = [each for each in recording.graph.nodes if each.name == "fc"]
        assert (node.op, node.inputs, node.outputs, node.origin) == ("Gemm", ("x", "w"), ("y",), ("src",))
        assert dict(node.attrs) == {"alpha": 1.5, "k": (1, 2)}
        tensors = recording.graph.tensors
        assert (tensors["w"].role, tensors["y"].role) == (Role.CONSTANT, Role.OUTPUT)
        assert tensors["w"].quant.scale.tolist() == [0.5, 0.25]
        assert [float(quant_of(recording, "y", sample).scale[0]) for sample in range(2)] == [
            *(float(np.float32(0.1)), float(np.float32(0.1) * 2)),
        ]
        assert (int(tensors["y"].quant.multiplier[0]), int(tensors["y"].quant.shift[0])) == (7, 2)


def test_all_values_are_read(path):
    with FileRecording(path) as recording:
        for sample in range(2):
            assert recording.load("x", sample).tolist() == [[1.5 + sample] * 3]
            assert recording.load("y", sample).tolist() == [[-3 + sample] * 2]
        assert recording.load("w").tolist() == [[0, 1, 2], [3, 4, 5]]
        for logical in LOGICAL_DTYPES[:30]:
            found = recording.load(f"dtype {logical}", 1)
            assert found.tobytes() == make.values(logical).tobytes()
        assert recording.load("long", 1).tolist() == [number // 10 for number in range(2000)]
        assert recording.load("scalar", 1) == 2.5
        assert recording.load("empty", 1).shape == (0, 4)
        assert recording.has("naïve/../\x1b[31m name", 1)
        assert recording.kept("statistics", 1).statistics.mean == 499.5
        kept = recording.kept("elements", 1)
        assert np.array_equal(kept.values, kept.positions.astype(float))
        assert kept.positions.size >= 16


@pytest.mark.parametrize("name", ["digits.float.h5", "digits.int8.h5"])
def test_the_recordings_of_the_package_are_read(name):
    import qdebug.data

    assert count_sound(Path(qdebug.data.__file__).with_name(name)) > 20
