"""Products of real data and a weight of codes are those of LiteRT's kernels, and explained as such."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from qdebug.compare.explaining.explain import explain_recording
from qdebug.compare.measure.recordings import with_understood_graph
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.replay.data_codes import BY_ROW, roundings
from qdebug.replay.registry import run_node
from qdebug.session import DiffSession

HERE = Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("make_litert_hybrid", HERE / "make_litert_hybrid.py")
maker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(maker)
GOLDEN = json.loads(maker.FILE.read_text(encoding="utf-8"))
CASES = dict(maker.cases())


def recording(case, out, *, codes=True):
    x, w, b = (given.values for given in case.given)
    scale = case.given[1].scales
    quant = QuantParams(dtype="int8", scale=scale, zero_point=np.zeros_like(scale), axis=0 if scale.size > 1 else None)
    real = (w * scale.reshape(-1, 1)).astype(np.float32)
    infos = [
        TensorInfo(name="x", role=Role.INPUT, shape=x.shape, dtype="float32"),
        TensorInfo(name="w", role=Role.CONSTANT, shape=w.shape, quant=quant if codes else None),
        TensorInfo(name="b", role=Role.CONSTANT, shape=b.shape),
        TensorInfo(name="y", role=Role.OUTPUT, shape=case.out.values.shape, dtype="float32"),
    ]
    node = Node(name="fc", op="FULLY_CONNECTED", inputs=("x", "w", "b"), outputs=("y",), attrs=case.attrs)
    graph = Graph([node], tensors=infos, inputs=("x",), outputs=("y",))
    return MemoryRecording.single(graph, {"x": x, "w": w if codes else real, "b": b, "y": out})


def golden(name, kernels):
    return np.array(GOLDEN[name][kernels], np.float32).reshape(CASES[name].out.values.shape)


@pytest.mark.parametrize("kernels", ["reference", "optimized", "default"])
@pytest.mark.parametrize("name", CASES)
def test_every_set_of_kernels_is_reproduced(name, kernels):
    case, out = CASES[name], golden(name, kernels)
    run = with_understood_graph(recording(case, out))
    (node,) = run.graph.nodes
    values = {each: run.load(each) for each in node.inputs if each}
    off = {way.attrs[BY_ROW]: np.abs(run_node(way, values)["y"] - out).max() for way in roundings(node)}
    asymmetric = case.attrs["asymmetric_quantize_inputs"] or kernels == "default"
    right = "asymmetric" if asymmetric else "symmetric"
    assert off[right] < 4e-6
    assert min(value for how, value in off.items() if how != right) > 1e-3
    assert right == "asymmetric" or off[right] == 0


@pytest.mark.parametrize("kernels", ["reference", "default"])
def test_it_is_explained_and_compared_as_a_product_that_rounds_its_data(kernels):
    for name, case in CASES.items():
        backend = recording(case, golden(name, kernels))
        found = explain_recording(backend)
        assert [(node.status, node.on_codes) for node in found.nodes] == [("in_band", True)], name
        x, w, b = (given.values for given in case.given)
        exact = x @ (w * case.given[1].scales.reshape(-1, 1)).T + b
        reference = recording(
            case, np.maximum(exact, 0) if case.attrs["fused_activation_function"] == "RELU" else exact, codes=False
        )
        assert DiffSession(reference, backend).result().exit_code == 0, name


def test_one_wrong_row_is_found():
    case = CASES["4"]
    out = golden("4", "default").copy()
    out[0, 1] = out[0, 0]
    backend = recording(case, out)
    assert explain_recording(backend).exit_code == 1
