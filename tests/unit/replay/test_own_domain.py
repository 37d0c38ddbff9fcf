"""An operator of somebody's own domain is computed between codes, folded and fused as one of ONNX is."""

import numpy as np
import pytest

import qdebug
from qdebug.model import Graph, Node, QuantParams, Role, TensorInfo, operators
from qdebug.model.operators import queries
from qdebug.replay import registry, run_graph
from qdebug.replay.groups import find_groups
from qdebug.replay.kernels.activation import activate

DOMAIN, CAP = "com.example", 2.0
STEP = np.float32(0.05)
X = np.random.default_rng(3).normal(size=(4, 32)).astype(np.float32) * 3


def softcap(call):
    x, cap = call.array(0), np.float32(call.real("cap", 1.0))
    return cap * np.tanh(x / cap)


@pytest.fixture(autouse=True)
def _known(monkeypatch):
    registry.known_kernels()
    monkeypatch.setitem(registry._KERNELS, (DOMAIN, "Softcap"), softcap)
    row = operators.Operator(
        name="Softcap", plain="Softcap", family="Softcap", unit="lookup", folds=True, activation=True, data=(0,),
        parameters=("cap",),
    )  # fmt: skip
    monkeypatch.setitem(queries._ROWS, "Softcap", row)
    monkeypatch.setitem(queries._PLAIN, "Softcap", row)


def coded_graph():
    quant = QuantParams(dtype="int8", scale=STEP, zero_point=3)
    node = Node(name="cap", op="Softcap", domain=DOMAIN, inputs=("x_q",), outputs=("y_q",), attrs={"cap": CAP})
    tensors = [TensorInfo(name="x_q", role=Role.INPUT, quant=quant), TensorInfo(name="y_q", quant=quant)]
    return Graph([node], tensors=tensors, inputs=("x_q",), outputs=("y_q",))


def test_it_is_computed_between_the_real_numbers_of_its_codes():
    codes = np.clip(np.rint(X / STEP) + 3, -128, 127).astype(np.int8)
    real = CAP * np.tanh((codes.astype(np.float32) - 3) * STEP / CAP)
    expected = np.clip(np.rint(real / STEP) + 3, -128, 127).astype(np.int8)
    (found,) = run_graph(coded_graph(), {"x_q": codes}, {}).values()
    np.testing.assert_array_equal(found, expected)


def test_it_is_explained(tmp_path):
    codes = np.clip(np.rint(X / STEP) + 3, -128, 127).astype(np.int8)
    (made,) = run_graph(coded_graph(), {"x_q": codes}, {}).values()
    with qdebug.Recorder(tmp_path / "run.h5", backend="own") as recorder:
        recorder.put("x_q", codes, scale=STEP, zero_point=3)
        recorder.put(
            "y_q", made, node="cap", op="Softcap", domain=DOMAIN, inputs=("x_q",), attrs={"cap": CAP}, scale=STEP,
            zero_point=3,
        )  # fmt: skip
    (node,) = qdebug.explain(tmp_path / "run.h5").nodes
    assert node.status == "explained"


def test_it_is_folded_with_its_quantization():
    nodes = [
        Node(name="d", op="DequantizeLinear", inputs=("x_q", "s", "z"), outputs=("x",)),
        Node(name="cap", op="Softcap", domain=DOMAIN, inputs=("x",), outputs=("y",), attrs={"cap": CAP}),
        Node(name="q", op="QuantizeLinear", inputs=("y", "s", "z"), outputs=("y_q",)),
    ]
    quant = QuantParams(dtype="int8", scale=STEP, zero_point=3)
    tensors = [TensorInfo(name="s", role=Role.CONSTANT), TensorInfo(name="z", role=Role.CONSTANT)]
    tensors += [TensorInfo(name="x_q", role=Role.INPUT, quant=quant), TensorInfo(name="y_q", quant=quant)]
    graph = Graph(nodes, tensors=tensors, inputs=("x_q",), outputs=("y_q",))
    (group,) = find_groups(graph)
    assert (group.node.op, group.node.domain) == ("Softcap", DOMAIN)


def test_fused_into_another_node_it_gets_its_parameters():
    np.testing.assert_allclose(activate(X, "Softcap", (CAP,)), CAP * np.tanh(X / CAP), rtol=1e-6)
