import numpy as np
import pytest

from qdebug.compare.result.result import Status
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, TensorInfo
from qdebug.model.kept import Kept
from qdebug.numerics.summary import take_statistics
from qdebug.session import DiffSession
from qdebug.tui.drawing.glyphs import UNICODE
from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.reading.answers import Answers, recorded_facts
from qdebug.tui.reading.glimpse import OpenPairs
from qdebug.tui.reading.messages import DetailRequest
from qdebug.tui.reading.plan_rows import describe_comparison
from qdebug.tui.views.elements import waiting_lines
from qdebug.tui.views.recorded import recorded_bins, recorded_rows
from qdebug.tui.views.tensor import detail_lines
from qdebug.tui.views.view import Scene

QUANT = QuantParams(dtype="int8", scale=0.5, zero_point=-2)
BY_CHANNEL = QuantParams(dtype="int8", scale=[0.5, 1.0], zero_point=[0, 0], axis=1)
REAL = np.array([[-4.0, 0.0, 0.5, 3.0]], dtype=np.float32)
CODES = np.array([[-10, -2, -1, 127]], dtype=np.int8)


def kept(array, quant=None, positions=None):
    some = None if positions is None else np.array(positions, dtype=np.int64)
    return Kept(
        dtype=str(array.dtype),
        shape=array.shape,
        digest=bytes(16),
        statistics=take_statistics(array, quant),
        positions=some,
        values=None if some is None else array.reshape(-1)[some],
    )


def recording(array, *, quant=None, whole=False, samples=2, positions=None):
    graph = Graph(
        [Node(name="n", op="Relu", inputs=("x",), outputs=("y",))],
        tensors=[TensorInfo(name="y", shape=array.shape, dtype=str(array.dtype), quant=quant)],
        inputs=("x",),
    )
    places = [("y", sample, 0) for sample in range(samples)]
    if whole:
        return MemoryRecording(graph, dict.fromkeys(places, array))
    return MemoryRecording(graph, {}, partly=dict.fromkeys(places, kept(array, quant, positions)))


def told(reference, backend, *, sample=None, width=80, glyphs=UNICODE):
    """Return the scene of the one pair, and the lines that the tensor's screen shows."""
    source = DiffSession(reference, backend, cache=False)
    opened = describe_comparison(source)
    results = {result.tensor: result for result in source.results()}
    for result in results.values():
        opened.table.put(result)
    navigator = Navigator(opened.table, samples=opened.samples)
    navigator.go(opened.table.row_of("y"))
    request = DetailRequest(row=navigator.cursor, tensor="y", sample=sample or 0, wants_elements=True)
    *_, ready = Answers(OpenPairs()).answer(source, request, results["y"], lambda: False)
    scene = Scene(navigator=navigator, opened=opened, result=source.result(), ready=ready, glyphs=glyphs)
    shown = detail_lines(scene, width)
    return scene, ["".join(text for text, _ in line).rstrip() for line in shown]


def line(lines, label):
    return next(each for each in lines if each.startswith(label))[20:].split("  ")


def test_a_tensor_of_statistics_alone_shows_them_beside_the_reason():
    scene, lines = told(recording(REAL), recording(CODES, quant=QUANT))
    assert scene.outcome.status is Status.DIVERGED  # the means alone prove it
    assert any("values of sample 0 cannot be shown" in each for each in lines)
    assert [part.strip() for part in line(lines, "min .. max") if part] == ["-4.000 .. 3.000", "-4.000 .. 64.50"]
    assert [part.strip() for part in line(lines, "values kept") if part] == ["0 of 4", "0 of 4"]
    assert [part.strip() for part in line(lines, "at qmin, qmax") if part] == ["-", "0, 1"]
    said = next(each for each in lines if each.startswith("mean, std"))
    assert f"{REAL.mean():.4g}" in said
    assert "15.25" in said  # of real values, not of codes
    assert next(each for each in lines if each.endswith(" backend")).startswith("sample 0")


def test_a_side_that_has_all_values_shows_statistics_of_them():
    _, lines = told(recording(REAL, whole=True), recording(CODES, quant=QUANT))
    assert [part.strip() for part in line(lines, "values kept") if part] == ["4 of 4", "0 of 4"]
    assert [part.strip() for part in line(lines, "min .. max") if part] == ["-4.000 .. 3.000", "-4.000 .. 64.50"]


def test_a_sample_that_one_side_lacks_says_so():
    reference, backend = recording(REAL, samples=2), recording(CODES, quant=QUANT, samples=3)
    source = DiffSession(reference, backend, cache=False)
    (result,) = (each for each in source.results() if each.tensor == "y")
    facts = recorded_facts(source, result, sample=2, step=0)
    assert facts[0].statistics is None
    assert recorded_rows(facts)[0] == ("values kept", "nothing kept", "0 of 4")


def test_codes_are_shown_where_there_is_a_scale_for_each_channel():
    array = np.array([[-7, 9]], dtype=np.int8)
    both = recording(array, quant=BY_CHANNEL)
    _, lines = told(both, recording(array + np.int8(1), quant=BY_CHANNEL))
    assert [part.strip() for part in line(lines, "min .. max") if part] == ["codes -7 .. 9", "codes -6 .. 10"]


def test_no_statistics_are_read_of_what_was_kept_in_full():
    scene, lines = told(recording(REAL, whole=True), recording(REAL + 1, whole=True))
    assert scene.ready.recorded is None
    assert scene.ready.values is not None
    assert not [each for each in lines if each.startswith("values kept")]


def test_nan_and_infinite_values_are_counted():
    odd = np.array([[np.nan, np.inf, -np.inf, 1.0]], dtype=np.float32)
    _, lines = told(recording(odd), recording(REAL))
    assert [part.strip() for part in line(lines, "NaN, inf") if part] == ["1, 2", "0, 0"]
    assert [part.strip() for part in line(lines, "min .. max") if part] == ["-inf .. inf", "-4.000 .. 3.000"]


@pytest.mark.parametrize("values", [np.zeros((1, 4)), np.full((1, 4), np.nan), np.zeros((1, 0))])
def test_nothing_but_zero_or_nan_needs_no_histogram(values):
    array = values.astype(np.float32)
    source = DiffSession(recording(array), recording(REAL[:, : array.shape[1]]), cache=False)
    result = next(each for each in source.results() if each.tensor == "y")
    facts = recorded_facts(source, result, sample=0, step=0)
    assert recorded_bins((facts[0], facts[0])) is None


def bins(reference, backend):
    source = DiffSession(recording(reference), recording(backend), cache=False)
    result = next(each for each in source.results() if each.tensor == "y")
    return recorded_bins(recorded_facts(source, result, sample=0, step=0))


def test_the_histogram_has_zero_between_negative_and_positive_powers_of_2():
    signed = np.array([[-4.0, -4.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]], dtype=np.float32)
    found = bins(signed, np.abs(signed))
    assert [side.tolist() for side in found.sides] == [[2, 0, 0, 7, 1, 0, 0], [0, 0, 0, 7, 1, 0, 2]]
    assert (found.low, found.high, found.zero) == ("-2^3", "2^3", 0.5)


def test_a_histogram_without_negative_values_begins_with_zero():
    found = bins(np.abs(REAL), np.abs(REAL) * 2)
    assert (found.low, found.high, found.zero) == ("0, 2^-1", "2^4", None)
    assert [count > 0 for count in found.sides[0]] == [True, True, False, True, True, False]


def test_the_screens_of_elements_say_where_the_statistics_are():
    scene, _ = told(recording(REAL), recording(CODES, quant=QUANT))
    said = "".join(text for each in waiting_lines(scene, [], 70) for text, _ in each)
    assert "4 shows the statistics that were recorded" in said


@pytest.mark.parametrize("width", [40, 58, 80, 120])
def test_the_statistics_keep_to_the_width(width):
    _, lines = told(recording(REAL, positions=[1, 3]), recording(CODES, quant=QUANT), width=width)
    assert max(map(len, lines)) <= width
