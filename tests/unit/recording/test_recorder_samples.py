"""What may change from one sample to the next."""

import numpy as np
import pytest

import qdebug
from qdebug.model.recording import quant_of
from qdebug.recording.reading.read import FileRecording


@pytest.fixture(params=["file", "memory"])
def record(request, tmp_path):
    """Run a function on a recorder, of a file and in memory, and give the recording."""

    def run(body):
        path = tmp_path / "run.h5"
        with qdebug.Recorder(path if request.param == "file" else None, backend="test") as recorder:
            body(recorder)
        return recorder.recording if request.param == "memory" else FileRecording(path)

    return run


def test_a_quantization_may_change_with_the_sample(record):
    def body(rec):
        for sample, (scale, zero_point) in enumerate([(0.5, 0), (0.25, 0), (0.5, 0), (0.25, 3)]):
            rec.at(sample)
            rec.put("a", np.full(2, sample, np.int8), scale=scale, zero_point=zero_point)
        rec.next_sample()
        rec.put("a", np.full(2, 9, np.int8))

    recording = record(body)
    found = [quant_of(recording, "a", sample) for sample in range(5)]
    assert [(float(quant.scale[0]), int(quant.zero_point[0])) for quant in found] == [
        *((0.5, 0), (0.25, 0), (0.5, 0), (0.25, 3), (0.5, 0)),
    ]
    assert recording.graph.tensors["a"].quant == found[0]
    assert quant_of(recording, "nobody") is None
