"""What `import qdebug` offers: results that print themselves, and give what the command line gives."""

import json

import numpy as np

import qdebug
from qdebug.testing import random_recording


def pair():
    return tuple(random_recording(np.random.default_rng(1)) for _ in range(2))


def test_a_comparison_prints_its_report_and_reads_as_json():
    result = qdebug.diff(*pair())
    assert isinstance(result, qdebug.DiffResult)
    lines = str(result).splitlines()
    assert lines[0].startswith("IDENTICAL")
    assert max(map(len, lines)) <= 100
    assert json.loads(result.to_json())["verdict"]["status"] == "identical"
    assert "<table" in result._repr_html_()


def test_an_explanation_prints_its_report_and_reads_as_json():
    with qdebug.Recorder(None, backend="mine") as rec:
        rec.put("x", np.arange(-8, 8, dtype=np.int8), scale=0.5, zero_point=0)
        rec.put("y", np.maximum(np.arange(-8, 8), 0).astype(np.int8), op="Relu", inputs=("x",), scale=0.5, zero_point=0)
    found = qdebug.explain(rec.recording)
    assert isinstance(found, qdebug.Explanation)
    assert "1" in str(found)
    assert json.loads(found.to_json())["format"] == "qdebug.explain"
