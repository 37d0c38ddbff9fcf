"""What `import qdebug` offers: results that print themselves, and give what the command line gives."""

import json
from copy import copy
from dataclasses import replace

import numpy as np

import qdebug
from qdebug.testing import random_recording


def pair():
    return tuple(random_recording(np.random.default_rng(1)) for _ in range(2))


def test_a_comparison_prints_its_report_and_reads_as_json():
    result = qdebug.diff(*pair())
    assert isinstance(result, qdebug.DiffResult)
    lines = str(result).splitlines()
    assert lines[0].startswith("PASS  identical")
    assert max(map(len, lines)) <= 100
    assert json.loads(result.to_json())["verdict"]["status"] == "identical"
    assert "<table" in result._repr_html_()


def test_a_result_is_found_by_each_of_its_names_and_so_it_is_in_a_copy():
    result = qdebug.diff(*pair())
    for found in (result, copy(result), replace(result, nodes=result.nodes)):
        for node in result:
            assert found[node.tensor].tensor == found.node(node.tensor).tensor == node.tensor
            assert node.node in found
            assert found[node.node].node == node.node
    assert result.nodes[-1].tensor not in replace(result, nodes=result.nodes[:1])


def test_an_explanation_prints_its_report_and_reads_as_json():
    with qdebug.Recorder(None, backend="mine") as rec:
        rec.put("x", np.arange(-8, 8, dtype=np.int8), scale=0.5, zero_point=0)
        rec.put("y", np.maximum(np.arange(-8, 8), 0).astype(np.int8), op="Relu", inputs=("x",), scale=0.5, zero_point=0)
    found = qdebug.explain(rec.recording)
    assert isinstance(found, qdebug.Explanation)
    assert "1" in str(found)
    assert json.loads(found.to_json())["format"] == "qdebug.explain"
