"""Profiles of recordings: merged in any order, through both kinds of file, and counted without storing anything."""

import json
from pathlib import Path

import numpy as np
import pytest

import qdebug
from qdebug.errors import FormatVersionError, NotARecordingError, OutputExistsError, RecordingError, UsageError
from qdebug.recording.profile_recorder import ProfileRecorder
from qdebug.recording.scale_profile import read_profile, write_profile
from qdebug.workflow.scales_profile import profile_files, profile_model, profile_recording


def values(sample, shape=(1, 3, 4, 5)):
    return np.random.default_rng(sample).normal(size=shape, scale=1 + sample).astype(np.float32)


def fill(recorder, samples):
    with recorder as rec:
        for position, sample in enumerate(samples):
            if position:
                rec.next_sample()
            rec.put("x", values(sample))
            codes = np.clip(np.rint(values(sample) / 0.1) + 3, -128, 127).astype(np.int8)
            rec.put("q", codes, node="conv", op="Conv", inputs=("x",), scale=0.1, zero_point=3)
            rec.put("shape", np.arange(3), node="shape", op="Shape", inputs=("x",))
    return recorder


@pytest.fixture
def files(tmp_path):
    made = []
    for name, samples in (("a", [0, 1]), ("b", [2])):
        made.append(tmp_path / f"{name}.h5")
        fill(qdebug.Recorder(made[-1], backend="npu"), samples)
    return made


def facts(profile):
    return {
        name: (
            tensor.node,
            tensor.op,
            *((h.exponent, h.first, h.counts.tolist(), h.low, h.high) for h in (tensor.histogram, *tensor.channels)),
        )
        for name, tensor in profile.tensors.items()
    }


def test_the_order_of_recordings_changes_no_count(files):
    both = profile_files(files, per_channel=True)
    assert facts(both) == facts(profile_files(files[::-1], per_channel=True))
    assert [run["samples"] for run in both.runs] == [2, 1]
    x, q = both.tensors["x"], both.tensors["q"]
    assert x.histogram.total == 3 * 60
    assert x.histogram.low == min(values(sample).min() for sample in range(3))
    assert len(x.channels) == 3
    assert (q.node, q.op) == ("conv", "Conv")
    assert q.histogram.high == pytest.approx(x.histogram.high, abs=0.051)  # real values, not codes
    assert "no quantized codes" in both.left_out["shape"]


@pytest.mark.parametrize("ending", ["h5", "json"])
def test_a_profile_survives_its_file_and_merges_with_recordings(files, tmp_path, ending):
    path = tmp_path / f"calib.{ending}"
    write_profile(profile_files(files[:1], per_channel=True), path)
    assert facts(profile_files([path, files[1]], per_channel=True)) == facts(profile_files(files, per_channel=True))
    assert np.array_equal(read_profile(path).tensors["x"].histogram.ranges[1], [values(1).min(), values(1).max()])


def test_json_has_scale_and_offset_of_each_tensor(files, tmp_path):
    path = tmp_path / "calib.json"
    write_profile(profile_files(files), path)
    plain = json.loads(path.read_text())
    x = next(tensor for tensor in plain["tensors"] if tensor["name"] == "x")
    low, high = x["histogram"]["low"], x["histogram"]["high"]
    assert x["scale"] == pytest.approx((high - low) / 255)
    assert -128 <= x["offset"] <= 127
    assert x["histogram"]["percentiles"]["50"] == pytest.approx(0, abs=0.5)


def test_a_recorder_that_stores_nothing_counts_the_same(files, tmp_path):
    path = tmp_path / "direct.h5"
    recorder = fill(ProfileRecorder(path, backend="npu", per_channel=True), [0, 1, 2])
    expected = facts(profile_files(files, per_channel=True))
    assert facts(recorder.profile) == expected
    assert facts(read_profile(path)) == expected
    with pytest.raises(OutputExistsError):
        ProfileRecorder(path, backend="npu")


def test_values_that_were_not_kept_are_left_out_and_said(tmp_path):
    path = tmp_path / "stats.h5"
    fill(qdebug.Recorder(path, backend="npu", keep=["full", "x=stats"]), [0])
    assert profile_recording(qdebug.open_recording(path)).left_out["x"] == "not all of its values were kept"
    fill(qdebug.Recorder(tmp_path / "all.h5", backend="npu", keep="stats"), [0])
    with pytest.raises(UsageError, match="No tensor could be profiled"):
        profile_files([tmp_path / "all.h5"])


def test_a_model_is_run_and_counted(tmp_path):
    pytest.importorskip("onnx")
    digits = np.load("samples/digits/digits_test.npz")["x"][:3, np.newaxis]
    model = Path("samples/digits/digits.onnx")
    found = profile_model(model, backend="interpreter", inputs={"x": digits}, samples=3)
    assert found.runs[0] == {"backend": "interpreter", "model": "digits.onnx", "samples": 3}
    assert found.tensors["x"].histogram.total == digits.size
    assert "logits" in found.tensors
    assert "w0.weight" not in found.tensors


def spoiled(path, change):
    plain = json.loads(path.read_text())
    change(plain)
    path.write_text(json.dumps(plain))
    return path


@pytest.mark.parametrize(
    "change",
    [
        lambda plain: plain["tensors"][0]["histogram"].update(counts=[1]),
        lambda plain: plain["tensors"][0]["histogram"].update(first=5),
        lambda plain: plain["tensors"][0]["histogram"]["counts"].__setitem__(0, -1),
        lambda plain: plain["tensors"][0]["histogram"].update(low="x"),
        lambda plain: plain["tensors"][0]["histogram"].update(exponent=10**9),
        lambda plain: plain["tensors"][0].pop("name"),
        lambda plain: plain.update(bins=-1),
        lambda plain: plain.update(tensors=3),
    ],
)
def test_a_damaged_profile_is_refused(files, tmp_path, change):
    path = tmp_path / "calib.json"
    write_profile(profile_files(files), path)
    with pytest.raises(RecordingError, match="damaged"):
        read_profile(spoiled(path, change))


def test_what_is_no_profile_is_said(files, tmp_path):
    with pytest.raises(NotARecordingError, match="no profile"):
        read_profile(files[0])
    with pytest.raises(RecordingError, match="no file"):
        read_profile(tmp_path / "none.h5")
    path = tmp_path / "calib.json"
    write_profile(profile_files(files), path)
    with pytest.raises(FormatVersionError, match="version 9"):
        read_profile(spoiled(path, lambda plain: plain.update(version=9)))
