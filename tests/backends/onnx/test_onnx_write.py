"""Graphs written as ONNX models: read back alike, and run."""

import numpy as np
import pytest

from qdebug.backends import load_reader, write_model
from qdebug.errors import BackendError, UsageError
from qdebug.model import Graph, Node, Role, TensorInfo
from qdebug.probe.models import probe_models

pytest.importorskip("onnx")

W = np.array([[1, -2], [3, 4]], np.int8)


def graph(**changes):
    nodes = [Node(name="n", op="Gather", inputs=("w", "x"), outputs=("y",), attrs={"axis": 1})]
    info = {"name": "x", "shape": (1,), "dtype": "int64", "role": Role.INPUT} | changes
    return Graph(
        nodes,
        inputs=["x"],
        outputs=["y"],
        tensors=[TensorInfo(**info), TensorInfo(name="w", role=Role.CONSTANT), TensorInfo(name="y", dtype="int8")],
        name="tiny",
        opset={"": 13},
    )


def test_a_graph_is_read_back_as_it_was(tmp_path):
    write_model(graph(), {"w": W}, tmp_path / "tiny.onnx")
    source = load_reader(tmp_path / "tiny.onnx")
    (node,) = source.graph.nodes
    assert (node.name, node.op, node.inputs, node.outputs) == ("n", "Gather", ("w", "x"), ("y",))
    assert node.attrs["axis"] == 1
    assert source.graph.opset == {"": 13}
    np.testing.assert_array_equal(source.constant("w"), W)
    assert source.graph.tensors["x"].shape == (1,)
    assert source.graph.tensors["x"].dtype == "int64"


@pytest.mark.parametrize("model", list(probe_models(["add", "average_pool", "sub"])), ids=lambda model: model.title)
def test_every_probe_is_read_back(model, tmp_path):
    write_model(model.graph, model.constants, tmp_path / "probe.onnx")
    graph = load_reader(tmp_path / "probe.onnx").graph
    assert graph.outputs == model.graph.outputs
    assert [(node.op, node.domain, node.inputs) for node in graph.nodes] == [
        (node.op, node.domain, node.inputs) for node in model.graph.nodes
    ]
    assert {graph.tensors[name].dtype for name in graph.outputs} == {model.title.rpartition(" ")[2]}


def test_what_cannot_be_written_is_said(tmp_path):
    with pytest.raises(UsageError, match=r"'tiny\.pb' cannot be written; known extensions: \.onnx"):
        write_model(graph(), {"w": W}, tmp_path / "tiny.pb")
    with pytest.raises(BackendError, match="'x' lacks a dtype"):
        write_model(graph(dtype=None), {"w": W}, tmp_path / "tiny.onnx")
    with pytest.raises(BackendError, match="cannot be written"):
        write_model(graph(), {"w": W}, tmp_path / "nowhere" / "tiny.onnx")
