"""Weights of packed codes are known for what they stand for: rounding is told from a wrong weight, row or scale."""

import numpy as np
import pytest

from qdebug.compare.explaining.explain import explain_recording
from qdebug.compare.result.finding import FindingKind
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.replay.blockwise_weight import blockwise_weight
from qdebug.session import DiffSession

RNG = np.random.default_rng(8)
NODES = {
    "MatMulBnb4": {"K": 64, "N": 64, "block_size": 16, "quant_type": 1},
    "GatherBlockQuantized": {"bits": 4, "block_size": 32, "gather_axis": 0, "quantize_axis": 1},
}


def nf4(weight):
    node = Node(name="n", op="MatMulBnb4", inputs=("x", "w", "s"), outputs=("y",), attrs=NODES["MatMulBnb4"])
    blocks = np.ascontiguousarray(weight.T).reshape(-1, 16)
    largest = np.abs(blocks).max(1).astype(np.float32)
    ladder = blockwise_weight(node, {"w": np.repeat(np.arange(16, dtype=np.uint8), 128), "s": np.ones(256, np.float32)})
    levels = np.unique(ladder[0])
    codes = np.abs(blocks[..., None] / largest[:, None, None] - levels).argmin(2).astype(np.uint8).reshape(-1)
    return (codes[0::2] << 4) | codes[1::2], largest


def four_bits(table):
    blocks = np.pad(table, ((0, 0), (0, 24))).reshape(len(table), 3, 32)
    scales = (np.abs(blocks).max(2) / 7).astype(np.float32)
    codes = (np.rint(blocks / scales[..., None]) + 8).astype(np.uint8).reshape(len(table), -1)[:, : table.shape[1]]
    return codes[:, 0::2] | (codes[:, 1::2] << 4), scales


CASES = {
    "MatMulBnb4": ("MatMul", RNG.normal(size=(64, 64)).astype(np.float32), RNG.normal(size=(8, 64)).astype(np.float32)),
    "GatherBlockQuantized": (
        "Gather",
        RNG.normal(size=(40, 72)).astype(np.float32),
        RNG.integers(0, 40, (1, 9)),
    ),
}


def run(op, inputs, values, attrs=None, domain=""):
    node = Node(name="n", op=op, domain=domain, inputs=inputs, outputs=("y",), attrs=attrs or {})
    infos = [
        TensorInfo(
            name=name, role=Role.INPUT if name == "x" else Role.CONSTANT, dtype=array.dtype.name, shape=array.shape
        )
        for name, array in values.items()
        if name != "y"
    ]
    infos.append(TensorInfo(name="y", role=Role.OUTPUT))
    graph = Graph([node], tensors=infos, inputs=("x",), outputs=("y",), opset={"": 17, "com.microsoft": 1})
    return MemoryRecording.single(graph, values)


def case(op, *, damaged=None, wrong=None):
    """Return a float run and one of packed codes; what the codes were made of may be damaged, or the result wrong."""
    plain, weight, x = CASES[op]
    product = plain == "MatMul"
    read = ("x", "r") if product else ("r", "x")
    reference = run(plain, read, {"x": x, "r": weight, "y": x @ weight if product else weight[x]})
    made = weight.copy()
    if damaged is not None:
        damaged(made)
    codes, scales = nf4(made) if product else four_bits(made)
    inputs = ("x", "w", "s") if product else ("w", "x", "s")
    node = Node(name="n", op=op, inputs=inputs, outputs=("y",), attrs=NODES[op])
    level, factor = blockwise_weight(node, {"w": codes, "s": scales})
    real = level * factor
    y = (x @ real if product else real[x]).astype(np.float32)
    if wrong is not None:
        wrong(y)
    return reference, run(op, inputs, {"x": x, "w": codes, "s": scales, "y": y}, NODES[op], "com.microsoft")


@pytest.mark.parametrize("op", CASES)
def test_rounding_to_codes_accuses_nobody(op):
    reference, backend = case(op)
    result = DiffSession(reference, backend).result()
    assert (result.exit_code, result.verdict.first_divergence) == (0, None)
    found = explain_recording(backend)
    assert ([node.status for node in found.nodes], found.exit_code) == (["in_band"], 0)


@pytest.mark.parametrize("op", CASES)
def test_a_weight_that_is_another_is_found_as_such(op):
    def damaged(weight):
        weight[3:9] = weight[12:18]

    reference, backend = case(op, damaged=damaged)
    result = DiffSession(reference, backend).result()
    assert result.verdict.first_divergence == "n"
    assert {found.kind for found in result.nodes[-1].findings} & {FindingKind.WEIGHT, FindingKind.CONSTANT}
    assert explain_recording(backend).exit_code == 0, "the node computes rightly with what it has"


@pytest.mark.parametrize("op", CASES)
def test_a_wrong_result_is_found(op):
    def wrong(y):
        y[..., -1, :16] *= 1.5

    reference, backend = case(op, wrong=wrong)
    result = DiffSession(reference, backend).result()
    assert result.verdict.first_divergence == "n"
    assert explain_recording(backend).exit_code == 1
