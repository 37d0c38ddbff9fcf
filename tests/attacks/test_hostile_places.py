"""Samples and steps of any number cost nothing: walks go over what was recorded alone."""

import itertools
import json

import numpy as np
import pytest
from sweeps import sweep

from qdebug.errors import RecordingError
from qdebug.model import Graph, Node, QuantParams, RunInfo, TensorInfo
from qdebug.recording.reading.opening import open_recording
from qdebug.recording.writing.write import RecordingWriter

LAST = 2**32 - 2


def recording(path, places):
    quant = QuantParams(dtype="int8", scale=0.5, zero_point=1)
    graph = Graph(
        [Node(name="n", op="Relu", inputs=("x",), outputs=("y",))],
        tensors=[TensorInfo(name=name, dtype="int8", quant=quant) for name in "xy"],
        inputs=("x",),
        outputs=("y",),
    )
    writer = RecordingWriter(path)
    for place in places:
        writer.append("x", np.arange(-4, 4, dtype=np.int8), place)
        writer.append("y", np.maximum(np.arange(-4, 4, dtype=np.int8), 1), place)
    writer.close(graph, RunInfo(backend="b"))
    return path


def manifest(path, first):
    recording(path.with_name("part.h5"), [(0, 0)])
    parts = [{"path": "part.h5", "first_sample": first}]
    path.write_text(json.dumps({"format": "qdebug.manifest", "version": 1, "parts": parts}))
    return path


FAR = ("sample", "step", "first_sample")


@pytest.fixture(params=FAR)
def far(request, tmp_path):
    """A recording with one place of the largest number."""
    if request.param == "first_sample":
        return manifest(tmp_path / "far.json", LAST)
    return recording(tmp_path / "far.h5", [(LAST, 0) if request.param == "sample" else (0, LAST)])


def test_its_places_are_those_recorded(far):
    with open_recording(far) as run:
        (place,) = run.places()
        assert max(place) == LAST
        assert run.places("x") == (place,)
        assert not run.places("z")


WORDS = [
    ["info", "FILE", "--tensors"],
    ["diff", "FILE", "FILE"],
    ["diff", "NEAR", "FILE"],
    ["diff", "FILE", "FILE", "--node", "n"],
    ["explain", "FILE"],
    ["scales", "choose", "NEAR", "FILE"],
    ["scales", "profile", "FILE"],
    ["scales", "try", "FILE", "--node", "n", "--scale", "1"],
    ["export", "csv", "FILE", "FILE", "-o", "out.csv"],
    ["file", "verify", "FILE"],
]


@pytest.mark.parametrize(("words", "far"), sweep(itertools.product(WORDS, FAR), 12), indirect=["far"], ids=str)
def test_no_verb_counts_through_the_numbers(run_verb, far, tmp_path, words):
    files = {"FILE": str(far), "NEAR": str(recording(tmp_path / "near.h5", [(0, 0)]))}
    assert run_verb(*(files.get(word, word) for word in words)).code in (0, 1, 2, 3)


def test_more_samples_than_there_are_rows_of_are_refused(tmp_path):
    path = recording(tmp_path / "run.h5", [(0, 0)])
    content = path.read_bytes()
    assert content.count(b'"samples": 1,') == 1
    path.write_bytes(content.replace(b'"samples": 1,', b'"samples": 9,'))
    with pytest.raises(RecordingError, match="samples or steps of the index"):
        open_recording(path)
