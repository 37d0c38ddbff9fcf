"""Profiles of recordings: merged in any order, through both kinds of file, and counted without storing anything."""

import json
from pathlib import Path

import numpy as np
import pytest

import qdebug
from qdebug.errors import FormatVersionError, NotARecordingError, OutputExistsError, RecordingError
from qdebug.present.reports.scales import profile_document
from qdebug.recording.profile_recorder import ProfileRecorder
from qdebug.recording.scale_profile import read_profile, write_profile
from qdebug.scales.choose import choose_scales
from qdebug.scales.make_profile import profile_files, profile_model


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
    assert "not quantized codes" in both.left_out["shape"]


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


@pytest.fixture
def statistics(tmp_path):
    path = tmp_path / "stats.h5"
    fill(qdebug.Recorder(path, backend="npu", keep="stats"), [0, 1])
    return path


def test_of_statistics_range_zeros_and_signs_are_told(files, statistics, tmp_path):
    whole, known = profile_files(files[:1]), profile_files([statistics])
    assert known.tensors.keys() == whole.tensors.keys()
    write_profile(known, tmp_path / "calib.h5")
    for name, tensor in read_profile(tmp_path / "calib.h5").tensors.items():
        exact, found = whole.tensors[name].histogram, tensor.histogram
        assert found.coarse
        assert not exact.coarse
        assert (found.low, found.high, found.zeros, found.total) == (exact.low, exact.high, exact.zeros, exact.total)
        assert np.array_equal(found.ranges, exact.ranges)
        assert found.counts.tolist() == [exact.counts[: -exact.first].sum(), exact.counts[-exact.first :].sum()]


def test_statistics_and_values_together_tell_what_statistics_do(files, statistics):
    both = profile_files([files[1], statistics, files[0]]).tensors["x"].histogram
    expected = np.concatenate([values(sample) for sample in (2, 0, 1, 0, 1)])
    assert both.coarse
    assert both.counts.tolist() == [(expected < 0).sum(), (expected >= 0).sum()]
    assert (both.low, both.high) == (expected.min(), expected.max())


def test_calibrators_that_ask_for_more_than_a_range_say_that_statistics_do_not_tell(statistics):
    asked = ["minmax", "moving-average", "percentile:99.9", "mse", "entropy"]
    found = choose_scales(qdebug.open_recording(statistics), calibrators=asked)
    row = next(row for row in found.rows if row.tensor == "x")
    whole = [each for sample in (0, 1) for each in (values(sample).min(), values(sample).max())]
    assert [choice.quant is not None for choice in row.choices] == [True, True, False, False, False]
    assert float(row.choices[0].quant.scale[0]) == np.float32((max(whole) - min(whole)) / 255)
    assert "statistics do not provide" in row.choices[2].reason
    assert {choice.error for choice in row.choices} == {None}
    assert any("2 of 2 tensors have statistics only" in note for note in found.notes)
    assert "statistics" in [fact.label for fact in profile_document(profile_files([statistics]))[0].facts]


def test_of_some_statistics_no_range_is_told(tmp_path):
    with qdebug.Recorder(tmp_path / "odd.h5", backend="npu", keep="stats") as rec:
        rec.put("infinite", np.array([1, np.inf], np.float32))
        rec.put("scales", np.zeros((2, 2), np.int8), scale=[1.0, 2.0], axis=0)
        rec.put("nothing", np.array([np.nan], np.float32))
        rec.put("zeros", np.zeros(3, np.float32))
        rec.put("shape", np.arange(3))
    found = profile_files([tmp_path / "odd.h5"])
    assert found.left_out["infinite"] == "it has infinite values, and only statistics were kept"
    assert found.left_out["scales"] == "it has several scales, and only statistics were kept"
    assert found.left_out["shape"] == "its elements are int64, not quantized codes"
    assert (found.tensors["nothing"].histogram.nan, found.tensors["nothing"].histogram.total) == (1, 0)
    assert (found.tensors["zeros"].histogram.zeros, found.tensors["zeros"].histogram.coarse) == (3, False)


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
    with pytest.raises(NotARecordingError, match="not a profile"):
        read_profile(files[0])
    with pytest.raises(RecordingError, match="no file"):
        read_profile(tmp_path / "none.h5")
    path = tmp_path / "calib.json"
    write_profile(profile_files(files), path)
    with pytest.raises(FormatVersionError, match="version 9"):
        read_profile(spoiled(path, lambda plain: plain.update(version=9)))
