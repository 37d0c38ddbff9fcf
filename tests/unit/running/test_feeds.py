"""Inputs are checked against the model before anything runs."""

from __future__ import annotations

import os
import zipfile
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from qdebug.errors import InputError, UsageError
from qdebug.model import QuantParams, Role, TensorInfo
from qdebug.running.feeds import ArrayFeeds, read_inputs


def info(shape=(1, 3), dtype="float32", name="x") -> TensorInfo:
    return TensorInfo(name=name, shape=shape, dtype=dtype, role=Role.INPUT)


def zeros(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.arange(np.prod(shape), dtype=dtype).reshape(shape)


def test_arrays_of_the_models_shape_are_one_sample():
    array = zeros(1, 3)
    feeds = ArrayFeeds({"x": array}, [info()])
    assert (feeds.samples, feeds.steps) == (1, 1)
    np.testing.assert_array_equal(feeds.feed(0)["x"], array)


def test_the_leading_axis_is_samples_and_the_next_is_steps():
    array = zeros(4, 2, 1, 3)
    feeds = ArrayFeeds({"x": array}, [info()], samples=4, steps=2)
    assert (feeds.samples, feeds.steps) == (4, 2)
    np.testing.assert_array_equal(feeds.feed(3, 1)["x"], array[3, 1])
    only_steps = ArrayFeeds({"x": array[0]}, [info()], steps=2)
    np.testing.assert_array_equal(only_steps.feed(0, 1)["x"], array[0, 1])


@pytest.mark.parametrize("batch", [None, 1])
def test_a_missing_batch_axis_is_added(batch):
    array = zeros(4, 3)
    feeds = ArrayFeeds({"x": array}, [info((batch, 3))], samples=4)
    assert feeds.feed(2)["x"].shape == (1, 3)
    np.testing.assert_array_equal(feeds.feed(2)["x"][0], array[2])


def test_a_batch_axis_is_added_after_steps():
    array = zeros(4, 2, 3)
    feeds = ArrayFeeds({"x": array}, [info((None, 3))], samples=4, steps=2)
    np.testing.assert_array_equal(feeds.feed(3, 1)["x"], array[3, 1][None])


def test_a_batch_axis_is_not_added_where_it_is_not_what_is_missing():
    with pytest.raises(InputError, match=r"shape \[3\] for each sample; expected \[2, 3\]"):
        ArrayFeeds({"x": zeros(4, 3)}, [info((2, 3))], samples=4)
    with pytest.raises(InputError, match=r"shape \[3\]; expected \[1, 3\]"):
        ArrayFeeds({"x": zeros(3)}, [info((1, 3))])


def test_fewer_samples_than_there_are_may_be_asked_for():
    feeds = ArrayFeeds({"x": zeros(4, 1, 3)}, [info()], samples=2)
    assert feeds.samples == 2


def test_scalars_stay_scalars():
    feeds = ArrayFeeds({"x": zeros(2)}, [info(())], samples=2)
    assert feeds.feed(1)["x"].shape == ()
    assert feeds.feed(1)["x"] == 1


def test_an_input_of_unknown_shape_takes_any():
    feeds = ArrayFeeds({"x": zeros(2, 5, 7)}, [info(None)], samples=2)
    assert feeds.feed(0)["x"].shape == (5, 7)


def test_what_is_fed_is_contiguous_and_in_native_byte_order():
    array = zeros(2, 1, 3).astype(">f4")
    fed = ArrayFeeds({"x": array}, [info()], samples=2).feed(1)["x"]
    assert fed.dtype == np.dtype("float32")
    assert fed.dtype.isnative
    assert fed.flags.c_contiguous
    np.testing.assert_array_equal(fed, array[1])
    turned = np.asfortranarray(zeros(1, 3, 4))
    assert ArrayFeeds({"x": turned}, [info((1, 3, 4))]).feed(0)["x"].flags.c_contiguous


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "missing 'x'; found none, expected 'x'"),
        ({"y": zeros(1, 3)}, "missing 'x', unknown 'y'; found 'y', expected 'x'"),
        ({"x": zeros(1, 3), "y": zeros(1)}, "unknown 'y'"),
    ],
)
def test_wrong_names_say_found_and_expected(arrays, message):
    with pytest.raises(InputError, match=message) as caught:
        ArrayFeeds(arrays, [info()])
    assert caught.value.hint


@pytest.mark.parametrize("shape", [(3,), (2, 3), (1, 4), (1, 1, 3), ()])
def test_wrong_shapes_say_found_and_expected(shape):
    found = "[" + ", ".join(map(str, shape)) + "]"
    with pytest.raises(InputError) as caught:
        ArrayFeeds({"x": zeros(*shape)}, [info()])
    assert found in caught.value.message
    assert "[1, 3]" in caught.value.message
    assert "--samples" in caught.value.hint


@pytest.mark.parametrize(("shape", "axis"), [((2, 1, 3), 0), ((), 0)])
def test_too_few_samples_say_how_many_there_are(shape, axis):
    with pytest.raises(InputError, match=f"4 samples were requested along axis {axis}"):
        ArrayFeeds({"x": zeros(*shape)}, [info()], samples=4)


def test_too_few_steps_are_named():
    with pytest.raises(InputError, match="5 steps were requested along axis 1, found 2"):
        ArrayFeeds({"x": zeros(4, 2, 1, 3)}, [info()], samples=4, steps=5)


@pytest.mark.parametrize("dtype", ["float64", "int32", "bool", "float16"])
def test_wrong_dtypes_say_found_and_expected(dtype):
    with pytest.raises(InputError, match=f"dtype {dtype}; expected float32") as caught:
        ArrayFeeds({"x": np.zeros((1, 3), dtype)}, [info()])
    assert "astype" in caught.value.hint


def test_the_hint_for_an_input_of_codes_makes_codes_of_real_values():
    quant = QuantParams(dtype="int8", scale=np.float32(1 / 255), zero_point=-128)
    array = np.array([[0.0, 0.25, 1.5]], np.float32)
    with pytest.raises(InputError) as caught:
        ArrayFeeds({"x": array}, [replace(info(dtype="int8"), quant=quant)])
    made = eval(caught.value.hint.rpartition(": ")[2].rstrip("."), {"np": np, "array": array})  # noqa: S307
    np.testing.assert_array_equal(made, np.array([[-128, -64, 127]], np.int8), strict=True)


def test_the_hint_for_a_missing_input_can_be_typed_whatever_it_is_called():
    with pytest.raises(InputError) as caught:
        ArrayFeeds({"y": zeros(1, 3)}, [info(name="a:0")])
    assert "**{'a:0': array}" in caught.value.hint


def test_text_and_objects_are_no_inputs():
    with pytest.raises(InputError, match="expected float32"):
        ArrayFeeds({"x": np.array([["a", "b", "c"]])}, [info()])
    with pytest.raises(InputError, match="does not take numbers"):
        ArrayFeeds({"x": np.array([["a", "b", "c"]])}, [info(dtype=None)])


@pytest.mark.parametrize("counts", [{"samples": 0}, {"samples": -1}, {"steps": 0}])
def test_less_than_one_sample_or_step_is_no_run(counts):
    with pytest.raises(UsageError, match="expected at least 1"):
        ArrayFeeds({"x": zeros(1, 3)}, [info()], **counts)


def test_an_npz_file_is_read(tmp_path):
    path = tmp_path / "inputs.npz"
    np.savez(path, x=zeros(1, 3), n=np.int64(4))
    arrays = read_inputs(path)
    assert list(arrays) == ["x", "n"]
    np.testing.assert_array_equal(arrays["x"], zeros(1, 3))
    assert read_inputs(str(path))["n"] == 4


def test_short_floats_survive_npz(tmp_path):
    values = np.array([[1, 2, 3]], ml_dtypes.bfloat16)
    np.savez(tmp_path / "inputs.npz", x=values)
    feeds = ArrayFeeds(read_inputs(tmp_path / "inputs.npz"), [info(dtype="bfloat16")])
    assert feeds.feed(0)["x"].dtype == values.dtype
    np.testing.assert_array_equal(feeds.feed(0)["x"], values)


def _npz(path, **arrays):
    np.savez(path, **arrays)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: None, "There is no input file"),
        (lambda path: path.mkdir(), "cannot be read"),
        (lambda path: path.write_bytes(b""), "damaged, or another kind of file"),
        (lambda path: path.write_bytes(b"hello, world"), "cannot be read as .npz"),
        (lambda path: path.write_bytes(b"PK\x03\x04" + bytes(40)), "damaged, or another kind of file"),
        (lambda path: _npz(path, x=np.array([{}], dtype=object)), "Python objects"),
        (lambda path: np.save(path.open("wb"), zeros(3)), "array without a name"),
        (lambda path: np.save(path.open("wb"), np.array([{}], dtype=object)), "Python objects"),
    ],
)
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_bad_input_files_are_one_sentence(tmp_path, write, message):
    path = tmp_path / "inputs.npz"
    write(path)
    with pytest.raises(InputError, match=message) as caught:
        read_inputs(path)
    assert caught.value.hint
    assert "\n" not in str(caught.value)


def test_a_truncated_or_flipped_npz_is_one_sentence(tmp_path):
    path = tmp_path / "inputs.npz"
    np.savez_compressed(path, x=np.random.default_rng(0).normal(size=(10, 30)).astype(np.float32))
    whole = path.read_bytes()
    for cut in (20, len(whole) // 2, len(whole) - 5):
        path.write_bytes(whole[:cut])
        with pytest.raises(InputError):
            read_inputs(path)
    for at in range(60, len(whole) - 80, 97):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        with pytest.raises(InputError):
            read_inputs(path)


def test_a_pipe_as_input_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="not a regular file"):
        read_inputs(tmp_path / "pipe")


def test_an_archive_that_says_to_be_far_larger_than_its_file_is_refused(tmp_path):
    bomb = zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED)
    with bomb:
        with bomb.open("x.npy", "w") as part:
            np.lib.format.write_array_header_1_0(part, {"descr": "|i1", "fortran_order": False, "shape": (1100 << 20,)})
            part.write(bytes(1 << 20))
        bomb.filelist[0].file_size = (1100 << 20) + 128  # what the list of the archive says is what counts
    with pytest.raises(InputError, match="claims to contain 1 arrays of 11534"):
        read_inputs(tmp_path / "bomb.npz")
