"""Graphs in PyTorch's words written as programs: read back alike, and run."""

import numpy as np
import pytest
from sweeps import sweep

from qdebug.backends import load_backend, write_model
from qdebug.errors import BackendError
from qdebug.model import Graph, Node, Role, TensorInfo
from qdebug.probe.dialects import translate_to_pt2e
from qdebug.probe.models import probe_models

pytest.importorskip("torch", reason="needs the extra torch")
pytest.importorskip("torchao", reason="needs the extra torch")

X = np.array([[1.0, -2.0, 3.0]], np.float32)
W = np.array([[1, -2, 5], [3, 4, -7]], np.int8)
SCALES = {"scale": 0.5, "zero_point": 3, "quant_min": -128, "quant_max": 127, "dtype": "int8"}


def graph(nodes, **changes):
    info = {"name": "x", "shape": X.shape, "dtype": "float32", "role": Role.INPUT} | changes
    made = [TensorInfo(name=node.outputs[0]) for node in nodes]
    return Graph(
        nodes,
        inputs=["x"],
        outputs=[nodes[-1].outputs[0]],
        tensors=[TensorInfo(**info), TensorInfo(name="w", role=Role.CONSTANT), *made],
        name="tiny",
    )


def linear(op="aten.linear.default", **attrs):
    return [
        Node(name="d", op="quantized_decomposed.dequantize_per_tensor.default", inputs=("w",), outputs=("real",),
             attrs=SCALES),
        Node(name="l", op=op, inputs=("x", "real"), outputs=("y",), attrs=attrs),
        Node(name="c", op="aten.cat.default", inputs=("y", "y"), outputs=("z",), attrs={"dim": 1}),
    ]  # fmt: skip


def test_a_graph_is_read_back_as_it_was_and_runs(tmp_path):
    write_model(graph(linear()), {"w": W}, tmp_path / "tiny.pt2")
    run = load_backend("torch").open(tmp_path / "tiny.pt2", options={})
    assert [node.op for node in run.graph.nodes] == [node.op for node in linear()]
    scaled = run.graph.nodes[0]
    assert {name: scaled.attrs[name] for name in SCALES} == SCALES
    assert run.graph.tensors[scaled.inputs[0]].quant.scale == np.float32(0.5)
    assert run.graph.nodes[1].inputs == ("x", scaled.outputs[0])
    assert run.graph.nodes[2].inputs == (run.graph.nodes[1].outputs[0],) * 2
    (found,) = run.plain({"x": X}).values()
    np.testing.assert_array_equal(found, np.tile(X @ ((W.astype(np.float32) - 3) * 0.5).T, 2))


@pytest.mark.parametrize("model", sweep(probe_models(["conv", "concat", "requantize"]), 4), ids=lambda m: m.title)
def test_every_probe_is_read_back_with_its_scales(model, tmp_path):
    said = translate_to_pt2e(model)
    write_model(said.graph, said.constants, tmp_path / "probe.pt2")
    run = load_backend("torch").open(tmp_path / "probe.pt2", options={})
    assert [node.op for node in run.graph.nodes] == [node.op for node in said.graph.nodes]
    assert [info.shape for info in run.inputs] == [array.shape for array in said.feed.values()]
    for ours, theirs in zip(said.graph.nodes, run.graph.nodes, strict=True):
        assert {name: theirs.attrs[name] for name in ours.attrs} == dict(ours.attrs)


def test_what_cannot_be_written_is_said(tmp_path):
    path = tmp_path / "tiny.pt2"
    for nodes, changes, said in (
        (linear(), {"shape": None}, "the input 'x' has no dtype or no shape"),
        (linear(op="aten.no_such_thing.default"), {}, "no_such_thing"),
        (linear(op="aten.relu.default"), {}, "aten.relu.default of node 'l' does not accept real"),
        (linear(op="aten.avg_pool2d.default"), {}, "node 'l' lacks the argument 'kernel_size'"),
    ):
        with pytest.raises(BackendError, match=f"cannot be written as an exported program: .*{said}"):
            write_model(graph(nodes, **changes), {"w": W}, path)
        assert not path.exists()
    with pytest.raises(BackendError, match="cannot be written"):
        write_model(graph(linear()), {"w": W}, tmp_path / "nowhere" / "tiny.pt2")
