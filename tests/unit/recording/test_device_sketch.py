"""Sketches made where a tensor is, tried with torch on the CPU."""

import numpy as np
import pytest

import qdebug
from qdebug.numerics.sketch import squared_error, take_sketch
from qdebug.numerics.summary import take_statistics
from qdebug.recording import device_sketch

torch = pytest.importorskip("torch", reason="needs the extra torch")
DTYPES = ["float32", "float64", "float16", "bfloat16"]
SIZES = [1, 63, 4096, 4097, 3 * 4096 * 64 + 11]


def random_tensor(size, dtype, seed=0):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(getattr(torch, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_it_is_what_numpy_computes(dtype, size, monkeypatch):
    monkeypatch.setattr(device_sketch, "_PIECE_ELEMENTS", 1 << 18)
    tensor = random_tensor(size, dtype)
    if size > 100:
        tensor[[5, 70]], tensor[9] = float("nan"), float("-inf")
    record = device_sketch.take_device_record(tensor)
    array = tensor.to(torch.float64).numpy()
    usual = take_sketch(array, None)
    np.testing.assert_allclose(record.sketch, usual, rtol=2e-7, atol=1e-6)
    expected = take_statistics(array, None)
    for name in ("count", "nan", "inf", "zero", "low", "high", "absmax"):
        assert getattr(record.statistics, name) == getattr(expected, name), name
    for name in ("mean", "std", "l2"):
        assert getattr(record.statistics, name) == pytest.approx(getattr(expected, name), rel=1e-12, abs=1e-15)
    assert (record.dtype, record.shape) == (dtype, tuple(tensor.shape))


def test_the_error_between_a_device_and_numpy_is_within_its_interval():
    first = random_tensor(100_000, "float32")
    second = first + 1e-3 * random_tensor(100_000, "float32", seed=1)
    error = squared_error(take_sketch(first.numpy(), None), device_sketch.take_device_record(second).sketch)
    true = float((second.double() - first.double()).square().sum())
    assert error.low <= true <= error.high


@pytest.mark.parametrize("place", [0, 7, 8, 4999])
def test_the_hash_tells_a_bit_and_a_place(place):
    tensor = random_tensor(5000, "float32")
    other, swapped = tensor.clone(), tensor.clone()
    other.view(torch.int32)[place] ^= 1
    swapped[[place, 100]] = tensor[[100, place]]
    digests = {device_sketch.take_device_record(each).digest for each in (tensor, other, swapped)}
    assert len(digests) == 3
    assert device_sketch.take_device_record(tensor.reshape(50, 100)).digest in digests


def test_the_recorder_sketches_a_tensor_where_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr("qdebug.recording.recorder.is_on_device", lambda value: isinstance(value, torch.Tensor))
    for name, noise in (("ref.h5", 0.0), ("be.h5", 0.1)):
        with qdebug.Recorder(tmp_path / name, backend="device", keep=["sketch", "whole=full"]) as rec:
            rec.put("equal", random_tensor((64, 64), "bfloat16"))
            rec.put("off", random_tensor((64, 64), "float32") + noise * random_tensor((64, 64), "float32", seed=2))
            rec.put("whole", random_tensor((64, 64), "float32"))
            rec.put("tokens", torch.arange(500))
    result = qdebug.diff(tmp_path / "ref.h5", tmp_path / "be.h5")
    assert result["equal"].status == "identical"
    assert result["off"].basis == "sketch"
    assert result["off"].metrics.sqnr_db == pytest.approx(20, abs=3)
    with qdebug.open_recording(tmp_path / "be.h5") as recording:
        assert recording.has("whole")
        assert recording.kept("off").sketch is not None
        assert recording.graph.tensors["equal"].dtype == "bfloat16"
