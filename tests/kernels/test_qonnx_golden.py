"""Quantizers of QONNX give what the package gives, bit for bit."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from qdebug.compare.explaining.explain import explain_recording
from qdebug.errors import KernelError
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.replay.registry import run_node

HERE = Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("make_qonnx_golden", HERE / "make_qonnx_golden.py")
maker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(maker)
GOLDEN = json.loads(maker.FILE.read_text(encoding="utf-8"))
CASES = {name: rest for name, *rest in maker.cases()}
DOMAIN = "qonnx.custom_op.general"


def node_of(op, inputs, attrs, domain=DOMAIN):
    names = tuple(f"i{at}" for at in range(len(inputs)))
    return Node(name="n", op=op, domain=domain, inputs=names, outputs=("o",), attrs=attrs)


@pytest.mark.parametrize("domain", [DOMAIN, "finn.custom_op.general"])
@pytest.mark.parametrize("name", CASES)
def test_every_case_is_that_of_the_package(name, domain):
    op, inputs, attrs = CASES[name]
    node = node_of(op, inputs, attrs, domain)
    made = run_node(node, dict(zip(node.inputs, inputs, strict=True)))["o"]
    assert (made.dtype, made.shape) == (np.float32, inputs[0].shape)
    np.testing.assert_array_equal(made, np.array(GOLDEN[name], np.float32).reshape(made.shape))


def test_a_quantizer_is_explained_and_a_wrong_element_is_found():
    op, inputs, attrs = CASES["quant by channel"]
    node = node_of(op, inputs, attrs)
    infos = [
        TensorInfo(name=name, role=Role.INPUT if name == "i0" else Role.CONSTANT, dtype="float32")
        for name in node.inputs
    ]
    graph = Graph([node], tensors=infos, inputs=("i0",), outputs=("o",))
    out = np.array(GOLDEN["quant by channel"], np.float32).reshape(inputs[0].shape)
    arrays = dict(zip(node.inputs, inputs, strict=True))
    assert explain_recording(MemoryRecording.single(graph, {**arrays, "o": out})).exit_code == 0
    wrong = out.copy()
    wrong[0, 0, 0, :3] += 1
    assert explain_recording(MemoryRecording.single(graph, {**arrays, "o": wrong})).exit_code == 1


def test_what_nobody_defines_is_refused():
    op, inputs, attrs = CASES["quant of one bit"]
    node = node_of(op, inputs, attrs | {"rounding_mode": "STOCHASTIC"})
    with pytest.raises(KernelError, match="STOCHASTIC"):
        run_node(node, dict(zip(node.inputs, inputs, strict=True)))
