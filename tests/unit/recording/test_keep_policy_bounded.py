"""Recordings that keep less than all: what was kept comes back, the rest is refused by name, and nothing is made up."""

import math

import ml_dtypes
import numpy as np
import pytest
from recording_parts import count_sound

import qdebug
from qdebug.cli.main import main
from qdebug.errors import RecordingError, UsageError
from qdebug.model.kept import EXPONENT_BINS, LOWEST_EXPONENT
from qdebug.model.quant import QuantParams
from qdebug.numerics.summary import take_statistics
from qdebug.recording.keep_policy import FULL, Keep, choose_positions, make_partial_record, parse_size, policy_of
from qdebug.recording.reading.read import FileRecording
from qdebug.recording.writing.recovery import recover

VALUES = np.random.default_rng(0).standard_normal((4, 50, 50)).astype(np.float32)


@pytest.fixture(params=["file", "memory", "recovered", "followed"])
def record(request, tmp_path):
    """Run a function on a recorder and give its recording, come by in one of four ways."""
    opened = []

    def run(body, **keys):
        path = tmp_path / "run.h5"
        recorder = qdebug.Recorder(None if request.param == "memory" else path, backend="test", **keys)
        body(recorder)
        if request.param == "recovered":
            recorder._sink.leave()
            recover(path)
        elif request.param == "followed":
            opened.append(qdebug.open_recording(path, follow=True))
            recorder.discard()
            return opened[0]
        else:
            recorder.close()
        if request.param == "memory":
            return recorder.recording
        count_sound(path)
        opened.append(FileRecording(path))
        return opened[0]

    yield run
    for recording in opened:
        recording.close()


def test_statistics_alone(record):
    recording = record(lambda rec: rec.put("x", VALUES), keep="stats")
    assert recording.names == ("x",)
    assert not recording.has("x")
    with pytest.raises(RecordingError, match="Only part of the values") as caught:
        recording.load("x")
    assert "--keep full" in caught.value.hint
    kept = recording.kept("x")
    found = kept.statistics
    assert (kept.dtype, kept.shape, kept.positions, kept.values, kept.truncated) == (
        *("float32", VALUES.shape, None, None, False),
    )
    assert (found.count, found.nan, found.inf, found.zero) == (10_000, 0, 0, 0)
    assert (found.low, found.high) == (float(VALUES.min()), float(VALUES.max()))
    exact = VALUES.astype(np.float64)
    assert found.mean == pytest.approx(exact.mean(), rel=1e-9)
    assert found.std == pytest.approx(exact.std(), rel=1e-12)
    assert found.l2 == pytest.approx(np.linalg.norm(exact), rel=1e-12)
    assert found.absmax == np.abs(exact).max()
    assert int(found.negative.sum()) == np.count_nonzero(VALUES < 0)
    at = math.floor(math.log2(abs(float(VALUES.max())))) - LOWEST_EXPONENT
    assert found.positive[at] > 0
    assert not found.positive[at + 1 :].any()
    assert recording.kept("y") is None


def test_some_elements(record):
    recording = record(lambda rec: rec.put("x", VALUES), keep="elements:80")
    kept = recording.kept("x")
    assert 80 <= kept.positions.size <= 90
    assert np.array_equal(kept.values, VALUES.reshape(-1)[kept.positions])
    assert int(np.argmax(np.abs(VALUES))) in kept.positions
    assert kept.statistics.count == 10_000


def test_elements_of_any_dtype(record):
    dtypes = ("int8", "bfloat16", "int4", "bool", "float8_e4m3fn", "complex64", "uint64")
    drawn = np.random.default_rng(1).integers(0, 2, 5000)
    arrays = {dtype: drawn.astype(np.dtype(getattr(ml_dtypes, dtype, dtype))) for dtype in dtypes}
    recording = record(lambda rec: [rec.put(*each) for each in arrays.items()], keep="elements:20")
    for dtype, array in arrays.items():
        kept = recording.kept(dtype)
        assert kept.dtype == dtype
        assert np.array_equal(kept.values, array[kept.positions])


def test_two_runs_keep_the_same_places():
    one = make_partial_record(VALUES, None, element_count=200)
    other = make_partial_record(-VALUES[::-1].copy(), None, element_count=200)
    shared = np.intersect1d(one.positions, other.positions)
    assert shared.size >= 200
    assert np.diff(np.sort(shared)).max() < 150  # all over the tensor


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 1000])
@pytest.mark.parametrize("elements", [1, 8, 500])
def test_positions_are_in_order_and_inside(size, elements):
    found = choose_positions(np.ones(size), None, elements)
    assert (np.diff(found) > 0).all()
    assert found[0] >= 0
    assert found[-1] < size
    assert found.size >= min(size, elements)


def test_a_nan_is_kept_before_the_largest():
    flat = np.ones(5000, np.float32)
    flat[4321] = np.nan
    assert 4321 in choose_positions(flat, None, 8)


def test_the_largest_code_is_the_one_furthest_from_zero():
    flat = np.full(5000, 100, np.uint8)
    flat[1234] = 0
    assert 1234 in choose_positions(flat, QuantParams(dtype="uint8", scale=1.0, zero_point=100), 8)


def test_what_is_smaller_than_the_sample_is_kept_in_full(record):
    recording = record(lambda rec: rec.put("x", VALUES[0, 0]), keep="elements:50")
    assert np.array_equal(recording.load("x"), VALUES[0, 0])


def test_statistics_of_codes_are_of_their_real_values():
    codes = np.array([-128, -3, 0, 127, 127], np.int8)
    found = take_statistics(codes, QuantParams(dtype="int8", scale=0.5, zero_point=-3))
    assert (found.low, found.high, found.at_qmin, found.at_qmax, found.zero) == (-128, 127, 1, 2, 1)
    real = 0.5 * (codes.astype(float) + 3)
    assert (found.mean, found.absmax) == (real.mean(), 65.0)
    assert found.l2 == pytest.approx(np.linalg.norm(real))


def test_statistics_by_channel():
    codes = np.array([[1, 2], [3, 4]], np.int8)
    found = take_statistics(codes, QuantParams(dtype="int8", scale=[1.0, 10.0], axis=0))
    assert found.absmax == 40
    assert found.mean == (1 + 2 + 30 + 40) / 4


def test_statistics_of_what_is_not_finite():
    found = take_statistics(np.array([np.nan, np.inf, -np.inf, 0, -0.0, 2, -4], np.float32), None)
    assert (found.nan, found.inf, found.zero, found.low, found.high) == (1, 2, 2, -math.inf, math.inf)
    assert (found.absmax, found.mean) == (4, -0.5)


@pytest.mark.parametrize("array", [np.zeros(0, np.float32), np.full(3, np.nan), np.zeros(2, np.complex64)], ids=str)
def test_statistics_of_nothing(record, array):
    found = record(lambda rec: rec.put("x", array), keep="stats").kept("x").statistics
    assert math.isnan(found.mean)
    assert math.isnan(found.low)
    assert found.count == array.size
    assert found.negative.shape == (EXPONENT_BINS,)


def test_rules_by_name_operator_and_size(record):
    def body(rec):
        rec.constant("w", VALUES)
        rec.constant("secret", VALUES)
        rec.put("big", VALUES)
        rec.put("small", VALUES[0, 0])
        rec.put("conv1", VALUES, op="Conv")
        rec.put("gone", VALUES)

    keep = [">10k=stats", "op:Conv=elements:32", "gone=none", "secret=stats"]
    recording = record(body, keep=keep)
    assert recording.has("w")
    assert not recording.has("secret")
    assert not recording.has("big")
    assert recording.has("small")
    assert recording.kept("conv1").values is not None
    assert "gone" not in recording.names
    assert "gone" in recording.graph.tensors


def test_every_so_many_samples(record):
    def body(rec):
        for sample in range(5):
            rec.at(sample)
            rec.put("x", np.full(3, sample))

    recording = record(body, every=2)
    assert [recording.has("x", sample) for sample in range(5)] == [True, False, True, False, True]


def test_a_bound_on_all_of_it(record):
    def body(rec):
        for number in range(4):
            rec.put(f"t{number}", VALUES + np.float32(number))

    recording = record(body, max_bytes="100k")
    assert [recording.has(f"t{number}") for number in range(4)] == [True, True, False, False]
    kept = recording.kept("t3")
    assert kept.truncated
    assert kept.values.size >= 1024


def test_a_quantization_of_one_sample_is_that_of_its_statistics(record):
    def body(rec):
        rec.put("x", np.full(4, 2, np.int8), scale=1.0)
        rec.next_sample()
        rec.put("x", np.full(4, 2, np.int8), scale=10.0)

    recording = record(body, keep="stats")
    assert [recording.kept("x", sample).statistics.mean for sample in range(2)] == [2, 20]
    assert len(recording.event_quants) == 1


@pytest.mark.parametrize(
    ("text", "keep"),
    [("full", FULL), ("stats", Keep(keeps_values=False)), ("elements:7", Keep(keeps_values=False, element_count=7))],
)
def test_texts_are_understood(text, keep):
    assert policy_of(text).decide("a", "Conv", 5, sample=0) == keep
    assert policy_of([text, "full"]).decide("a", "Conv", 5, sample=0) == FULL
    assert policy_of(f"a*={text}").decide("abc", "", 5, sample=0) == keep
    assert policy_of(f"a*={text}").decide("bc", "", 5, sample=0) == FULL
    assert policy_of(text).decide("a", "", 5, sample=None) == FULL


def test_a_policy_is_taken_as_it_is():
    policy = policy_of("stats")
    assert policy_of(policy) is policy


@pytest.mark.parametrize("text", ["", "ful", "elements", "elements:0", "elements:-1", "elements:x", "a=", ">x=stats"])
def test_texts_that_are_not(text):
    with pytest.raises(UsageError) as caught:
        policy_of(text)
    assert caught.value.hint


def test_every_nothing():
    with pytest.raises(UsageError):
        policy_of(None, every=0)


@pytest.mark.parametrize(("text", "size"), [("5", 5), ("1k", 1024), ("2 MB", 2 << 20), ("1.5GiB", 3 << 29)])
def test_sizes(text, size):
    assert parse_size(text) == size


def test_elements_that_rot_are_refused(tmp_path):
    with qdebug.Recorder(tmp_path / "run.h5", backend="b", keep="elements:64") as rec:
        rec.put("x", VALUES)
    content = (tmp_path / "run.h5").read_bytes()
    with FileRecording(tmp_path / "run.h5") as recording:
        kept = recording.kept("x")
    for part in (kept.values.tobytes(), kept.positions.astype("<i8").tobytes()):
        at = content.index(part)
        (tmp_path / "bad.h5").write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with (
            FileRecording(tmp_path / "bad.h5") as recording,
            pytest.raises(RecordingError, match="differ from what was recorded"),
        ):
            recording.kept("x")
        with pytest.raises(RecordingError, match="'x'"):
            count_sound(tmp_path / "bad.h5")


def test_what_info_says_of_it(tmp_path, capsys):
    with qdebug.Recorder(tmp_path / "run.h5", backend="b", keep=["s=stats", "f=full"]) as rec:
        rec.put("s", VALUES)
        rec.put("f", VALUES)
    assert main(["info", str(tmp_path / "run.h5"), "--tensors"]) == 0
    said = capsys.readouterr().out
    assert "2 with values, 0 of them constants, 1 with statistics or some values only" in said
    assert "partly" in said


def test_a_shape_that_the_index_cannot_hold_is_kept_with_its_values(record):
    array = np.zeros((1,) * 8 + (3, 2))
    assert record(lambda rec: rec.put("x", array), keep="stats").load("x").shape == array.shape


@pytest.mark.parametrize(("most", "used", "nbytes", "room"), [(10, 4, 6, True), (10, 4, 7, False), (0, 0, 0, True)])
def test_what_fits_to_the_last_byte_is_kept_in_full(most, used, nbytes, room):
    bounded, free = policy_of(None, max_bytes=most), policy_of(None)
    assert (bounded.limit_to_max_bytes(FULL, used, nbytes) == FULL) == room
    assert free.limit_to_max_bytes(FULL, used, nbytes) == FULL
    partly = Keep(keeps_values=False, element_count=7)
    assert bounded.limit_to_max_bytes(partly, used, nbytes) == partly


def test_what_has_no_more_elements_than_are_kept_is_kept_in_full(record):
    """So is what has more dimensions than the index has room for."""
    in_full, in_part = ((6,), (1,), (1,) * 8 + (7,)), ((7,), (0, 3), (7, 1, 1, 1, 1, 1, 1, 1))
    shapes = (*in_full, *in_part)
    recording = record(lambda rec: [rec.put(str(s), np.ones(s, np.float32)) for s in shapes], keep="elements:6")
    for shape in in_full:
        assert recording.has(str(shape))
    for shape in in_part:
        assert not recording.has(str(shape))
        kept = recording.kept(str(shape))
        assert (kept.shape, kept.values.size) == (shape, min(6, int(np.prod(shape))))


@pytest.mark.parametrize(("short", "room"), [(0, True), (1, False)])
def test_room_is_taken_by_what_is_kept_of_each_tensor(record, short, room):
    """A tensor in full, elements of another, statistics of a third: what is left is there for a fourth."""
    given = {"full": np.ones(4000, np.float32), "some": np.ones(10_000), "none": np.ones(10_000), "last": np.ones(5000)}
    kept = make_partial_record(given["some"], None, element_count=2000)
    most = given["full"].nbytes + kept.values.nbytes + given["last"].nbytes - short

    def body(rec):
        for name, array in given.items():
            rec.put(name, array)

    recording = record(body, keep=["some=elements:2000", "none=stats"], max_bytes=most)
    assert [recording.has(name) for name in given] == [True, False, False, room]
    assert [recording.kept(name).truncated for name in ("some", "none")] == [False, False]
    assert room or recording.kept("last").truncated
