"""The probe on ExecuTorch: what XNNPACK computes on codes is explained, what runs in floating point is said (slow)."""

import numpy as np
import pytest

import qdebug
from qdebug.backends import write_model
from qdebug.model import Graph, Node, Role, TensorInfo
from qdebug.probe.run import run_probe
from qdebug.running.record import record_run

pytest.importorskip("executorch", reason="needs the extra executorch")

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("kind", "title", "variant"),
    [
        ("linear", "linear int8 x int8", "m=f32:xw/y"),
        ("sub", "sub int8", "form=common20 steps=shr.up,zp,sat"),
        ("average_pool", "average_pool int8", "form=nines steps=inv,even,zp,sat"),
        ("requantize", "requantize int8", "steps=scale,div,zp,even,sat"),
    ],
)
def test_what_xnnpack_computes_is_explained(kind, title, variant):
    entries = {entry.title: entry for entry in run_probe("executorch", kinds=[kind]).entries}
    assert entries[title].status == "explained"
    assert entries[title].variants == (variant,)
    others = [entry for entry in entries.values() if entry.title != title]
    if kind != "average_pool":  # which runs in floating point, between codes of any type
        refused = ("ExecuTorch refused the program", "ExecuTorch cannot lower the program")
        assert all(entry.reason.startswith(refused) for entry in others)


def test_codes_that_are_interpolated_as_real_numbers_are_explained():
    entries = run_probe("executorch", kinds=["resize"]).entries
    assert {(entry.status, entry.variants) for entry in entries} == {
        ("explained", ("form=real-lerp steps=inv,even,zp,sat",))
    }


def test_portable_kernels_compute_in_floating_point():
    result = run_probe("executorch", options={"delegate": "portable"}, kinds=("sub", "quantize"))
    assert {entry.kind: entry.status for entry in result.entries} == {"sub": "unfused", "quantize": "explained"}
    assert {entry.variants for entry in result.entries if entry.kind == "quantize"} == {("steps=inv,even,zp,sat",)}


def test_a_relu_between_two_scales_is_one_node_on_codes(tmp_path):
    def scaled(name, word, source, out, scale, zero):
        attrs = {"scale": scale, "zero_point": zero, "quant_min": -128, "quant_max": 127, "dtype": "int8"}
        op = f"quantized_decomposed.{word}_per_tensor.default"
        return Node(name=name, op=op, inputs=(source,), outputs=(out,), attrs=attrs)

    nodes = [
        scaled("q", "quantize", "x", "codes", 2.0**-5, 3),
        scaled("d", "dequantize", "codes", "real", 2.0**-5, 3),
        Node(name="r", op="aten.relu.default", inputs=("real",), outputs=("positive",)),
        scaled("q1", "quantize", "positive", "out", 2.0**-4, -5),
        scaled("d1", "dequantize", "out", "y", 2.0**-4, -5),
    ]
    x = (np.arange(-128, 128, dtype=np.float32).reshape(1, 256) - 3) * 2.0**-5
    infos = [TensorInfo(name="x", shape=x.shape, dtype="float32", role=Role.INPUT)]
    infos += [TensorInfo(name=node.outputs[0]) for node in nodes]
    graph = Graph(nodes, inputs=["x"], outputs=["y"], tensors=infos, name="relu")
    write_model(graph, {}, tmp_path / "relu.pt2")
    summary = record_run(tmp_path / "relu.pt2", backend="executorch", inputs={"x": x}, out=tmp_path / "relu.h5")
    assert summary.fidelity == "bit_equal"  # a tap on the real numbers would change the ties
    recording = qdebug.open_recording(tmp_path / "relu.h5")
    (relu,) = [node for node in recording.graph.nodes if node.op == "aten.relu.default"]
    assert [recording.graph.tensors[name].dtype for name in (*relu.inputs, *relu.outputs)] == ["int8", "int8"]
    (found,) = [node for node in qdebug.explain(recording).nodes if node.op == "aten.relu.default"]
    assert found.status == "explained"
    assert found.witnesses > 0
