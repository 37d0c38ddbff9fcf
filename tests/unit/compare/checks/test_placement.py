"""Where nodes ran, and that it is not where they were asked to."""

import json

import numpy as np
import pytest

import qdebug
from qdebug.model import Graph, Node


def run(placement, asked=None):
    node = Node(name="act", op="Relu", inputs=("x",), outputs=("y",), placement=placement)
    options = {} if asked is None else {"asked_for": asked}
    graph = Graph([node], inputs=("x",), outputs=("y",))
    with qdebug.Recorder(None, backend="npu", graph=graph, options=options) as recorder:
        x = np.linspace(-1, 1, 5, dtype=np.float32)
        recorder.put("x", x)
        recorder.put("y", np.maximum(x, 0))
    return recorder.recording


@pytest.mark.parametrize(
    ("placement", "asked", "said"),
    [
        ("CPU: ref_any_f32", "GPU", "it ran on CPU, although GPU was requested"),
        ("CPU: ref_any_f32", "CPU", None),
        ("CPU", None, None),
        ("", "GPU", None),
    ],
)
def test_a_node_that_ran_elsewhere_is_a_note(placement, asked, said):
    result = qdebug.diff(run("CPU", "CPU"), run(placement, asked))
    (node,) = (each for each in result.nodes if each.node == "act")
    found = [each for each in node.findings if each.kind == "placement"]
    assert [each.sentence for each in found] == ([said] if said else [])
    assert result.status == "identical"
    assert node.placement == (placement or None)
    entry = next(each for each in json.loads(result.to_json())["nodes"] if each["node"] == "act")
    assert entry["placement"] == (placement or None)
