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
    x, w, *bias = (given.values for given in case.given)
    scale, axis = case.given[1].scales, case.given[1].axis
    quant = QuantParams(dtype="int8", scale=scale, zero_point=np.zeros_like(scale), axis=axis)
    real = real_weight(case)
    held = {"x": x, "w": w if codes else real, **({"b": bias[0]} if bias else {})}
    roles = {"x": Role.INPUT, "w": Role.CONSTANT, "b": Role.CONSTANT}
    infos = [
        TensorInfo(
            name=name, role=roles[name], shape=values.shape, dtype=str(values.dtype),
            quant=quant if codes and name == "w" else None,
        )
        for name, values in held.items()
    ]  # fmt: skip
    infos.append(TensorInfo(name="y", role=Role.OUTPUT, shape=case.out.values.shape, dtype="float32"))
    node = Node(name="fc", op=case.builtin, inputs=tuple(held), outputs=("y",), attrs=case.attrs)
    graph = Graph([node], tensors=infos, inputs=("x",), outputs=("y",))
    return MemoryRecording.single(graph, {**held, "y": out})


def real_weight(case):
    weight = case.given[1]
    shape = [1] * weight.values.ndim
    if weight.axis is not None:
        shape[weight.axis] = -1
    return (weight.values * weight.scales.reshape(shape)).astype(np.float32)


def rounded(case, kernels):
    """Return how a set of kernels rounds data: a convolution does not say it, and that of one scale is symmetric."""
    if kernels == "default" and case.builtin != "DEPTHWISE_CONV_2D":  # XNNPACK's
        return "asymmetric"
    if "CONV" in case.builtin:
        return "symmetric" if case.given[1].axis is None else "asymmetric"
    return "asymmetric" if case.attrs["asymmetric_quantize_inputs"] else "symmetric"


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
    right = rounded(case, kernels)
    assert off[right] < 4e-6
    assert min(value for how, value in off.items() if how != right) > 1e-3
    if kernels == "optimized" or (kernels == "reference" and (right == "symmetric" or "CONV" not in case.builtin)):
        assert off[right] == 0


@pytest.mark.parametrize("kernels", ["reference", "default"])
def test_it_is_explained_and_compared_as_a_product_that_rounds_its_data(kernels):
    for name, case in CASES.items():
        backend = recording(case, golden(name, kernels))
        found = explain_recording(backend)
        assert [(node.status, node.on_codes) for node in found.nodes] == [("in_band", True)], name
        exact = run_exact(case)
        reference = recording(case, exact, codes=False)
        assert DiffSession(reference, backend).result().exit_code == 0, name


def run_exact(case):
    """Compute a case in real numbers."""
    plain = with_understood_graph(recording(case, np.empty(case.out.values.shape, np.float32), codes=False))
    (node,) = plain.graph.nodes
    return run_node(node, {each: plain.load(each) for each in node.inputs if each}, plain.graph.opset)["y"]


def test_one_wrong_row_is_found():
    case = CASES["4"]
    out = golden("4", "default").copy()
    out[0, 1] = out[0, 0]
    backend = recording(case, out)
    assert explain_recording(backend).exit_code == 1
