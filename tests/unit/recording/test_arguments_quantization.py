"""Facts of a quantization are kept as they are, and refused where they cannot be."""

import ml_dtypes
import numpy as np
import pytest

import qdebug
from qdebug.errors import RecordingError, UsageError
from qdebug.model import QuantParams
from qdebug.recording.arguments import QuantFacts
from qdebug.testing import assert_close

CODES = np.zeros((4, 2, 3), dtype=np.int8)


def test_nothing_said_is_no_quantization():
    assert QuantFacts().to_params("x", CODES) is None


def test_what_is_said_is_kept():
    found = QuantFacts(scale=np.float32([0.5, 0.25]), zero_point=[1, 2], axis=1, qmin=-127, multiplier=[3, 4], shift=5)
    assert found.to_params("x", CODES) == QuantParams(
        dtype="int8", scale=np.float32([0.5, 0.25]), zero_point=[1, 2], axis=1, qmin=-127, multiplier=[3, 4], shift=5
    )


def test_axes_are_counted_from_the_front():
    assert QuantFacts(scale=[1.0, 2.0, 3.0], axis=-1).to_params("x", CODES).axis == 2


def test_an_impossible_scale_is_a_fact_too():
    for scale in (0.0, -1.0, float("nan")):
        assert str(QuantFacts(scale=scale).to_params("x", CODES).scale[0]) == str(scale)


def test_blocks_may_share_scales():
    found = QuantFacts(scale=np.ones((4, 1, 3)), axis=1, block_size=2).to_params("x", CODES)
    assert (found.scale.shape, found.block_size) == ((4, 1, 3), 2)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"zero_point": 1}, "without a scale"),
        ({"axis": 0}, "without a scale"),
        ({"qmax": 3}, "without a scale"),
        ({"scale": [1.0, 2.0]}, "axis"),
        ({"scale": [1.0, 2.0], "axis": 0}, "2 scales along axis 0, which has 4 elements"),
        ({"scale": [1.0, 2.0], "axis": 3}, "axis 3 of a tensor with 3 dimensions"),
        ({"scale": 1.0, "zero_point": [1, 2]}, "shape"),
        ({"scale": 1.0, "zero_point": 0.5}, "integers"),
        ({"scale": 1.0, "qmin": -129}, "qmin -129"),
        ({"scale": 1.0, "qmax": 128}, "qmax 128"),
        ({"scale": "wide"}, "is invalid"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused_by_name(facts, said):
    with pytest.raises(RecordingError, match="'odd one'") as caught:
        QuantFacts(**facts).to_params("odd one", CODES)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"qmin": -0.5}, "qmin must be an integer"),
        ({"qmin": 5, "qmax": 1}, "qmin 5 above qmax 1"),
        ({"axis": 0.5}, "axis must be an integer"),
        ({"axis": 0, "block_size": 0}, "block_size 0"),
        ({"zero_point": 2**63}, "zero_point must be integers"),
        ({"zero_point": [None]}, "zero_point must be integers"),
        ({"multiplier": "a"}, "multiplier must be integers"),
        ({"shift": []}, "shift must be integers"),
        ({"scale": []}, "scale must be numeric"),
        ({"scale": [None]}, "scale must be numeric"),
        ({"scale": "0.1"}, "scale must be numeric"),
        ({"scale": 1j}, "scale must be numeric"),
    ],
    ids=str,
)
def test_numbers_that_are_none_are_refused(said, message):
    with pytest.raises(RecordingError, match=message):
        QuantFacts(**{"scale": 0.5, **said}).to_params("x", np.zeros((4, 8), np.int8))


@pytest.mark.parametrize("scale", [2, np.float64(2), np.uint8(2), ml_dtypes.bfloat16(2), True])
def test_a_scale_may_be_any_kind_of_real_number(scale):
    assert QuantFacts(scale=scale).to_params("x", CODES).scale.tolist() == [float(scale)]


@pytest.mark.parametrize("shape", [(4, 2), (2,)], ids=str)
def test_blocks_along_an_axis(shape):
    quant = QuantFacts(scale=np.ones(shape), axis=-1, block_size=4).to_params("x", np.zeros((4, 8), np.int8))
    assert (quant.axis, quant.block_size, quant.scale.shape) == (1, 4, shape)


@pytest.mark.parametrize("shape", [(4, 3), (8, 2), (3,), (2, 4)], ids=str)
def test_blocks_that_do_not_fit(shape):
    with pytest.raises(RecordingError, match="in blocks of 4"):
        QuantFacts(scale=np.ones(shape), axis=1, block_size=4).to_params("x", np.zeros((4, 8), np.int8))


@pytest.mark.parametrize(
    ("scale", "doubt"),
    [
        (0.0, "its scale is 0"),
        (-0.5, "its scale is negative"),
        (np.nan, "its scale is not finite"),
        ([1.0, np.inf, 2.0], "1 of its 3 scales are not finite"),
        ([1.0, 0.0, -1.0], "1 of its 3 scales are 0"),
        (0.5, None),
    ],
)
def test_a_scale_that_can_hardly_be_meant_is_kept_and_said(tmp_path, scale, doubt):
    with qdebug.Recorder(tmp_path / "run.h5", backend="b") as rec:
        rec.put("a", np.zeros(3, np.int8), scale=scale, axis=0 if np.ndim(scale) else None)
    recording = qdebug.open_recording(tmp_path / "run.h5")
    assert np.array_equal(recording.graph.tensors["a"].quant.scale, np.atleast_1d(scale), equal_nan=True)
    assert dict(recording.info.doubts) == ({} if doubt is None else {"a": doubt})
    assert recording.info.to_dict()["doubts"] == dict(recording.info.doubts)


@pytest.mark.parametrize("scale", [0.0, [0.5, 0.0, 0.5]], ids=str)
def test_a_scale_of_zero_is_refused_for_codes_that_are_not_the_zero_point(scale):
    facts, codes = QuantFacts(scale=scale, zero_point=2, axis=2 if np.ndim(scale) else None), CODES + np.int8(2)
    assert np.array_equal(facts.to_params("x", codes).scale, np.atleast_1d(scale))
    codes[1, 1, 1] = 7
    with pytest.raises(RecordingError, match="scale of 0, but 1 of its 24 codes differ from the zero point") as caught:
        facts.to_params("x", codes)
    assert "above 0" in caught.value.hint


@pytest.mark.parametrize(("zero", "given"), [(128, 128), ([0, -129, 200], -129)], ids=str)
def test_a_zero_point_that_no_code_can_be_is_refused(zero, given):
    said = f"zero_point {given} is outside the range of int8, -128 to 127"
    facts = {"scale": np.ones(np.size(zero)), "zero_point": zero, "axis": 2}
    with pytest.raises(RecordingError, match=said):
        QuantFacts(**facts).to_params("x", CODES)
    graph = qdebug.Graph(tensors=[qdebug.TensorInfo(name="x", quant=QuantParams(dtype="int8", **facts))])
    with pytest.raises(RecordingError, match=said):
        qdebug.Recorder(None, backend="b", graph=graph)
    with pytest.raises(UsageError, match=said):
        assert_close(np.zeros(CODES.shape), CODES, max_lsb=1, **facts)
