"""A front end on codes (square, add, root) in a float net is repaired at its quantizers."""

import numpy as np
import pytest

import qdebug
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.numerics.affine import dequantize, quantize
from qdebug.repair.find import RepairOptions, find_repair
from qdebug.session import DiffSession

RNG = np.random.default_rng(4)
BASIS = RNG.standard_normal((16, 8)).astype(np.float32) / 4
WEIGHT = RNG.standard_normal((4, 3)).astype(np.float32)
SCALES = {"s": 0.02, "p": 0.04, "r": 0.04, "a": 0.05, "b": 0.012}
"""Scales of the spectrum, both squares, their sum and its root."""


def nodes(coded):
    """Return a spectrum, its magnitude and a product; with quantizers if asked, the halves moved between two."""
    made = []

    def add(op, inputs, name, code=None, **attrs):
        made.append(Node(name=name, op=op, inputs=inputs, outputs=(name,), attrs=attrs))
        if not coded or code is None:
            return name
        scale, zero = f"{code}.scale", f"{code}.zero"
        made.append(Node(name=f"{name}.q", op="QuantizeLinear", inputs=(name, scale, zero), outputs=(f"{name}.c",)))
        made.append(
            Node(name=f"{name}.dq", op="DequantizeLinear", inputs=(f"{name}.c", scale, zero), outputs=(f"{name}.r",))
        )
        return f"{name}.r"

    spectrum = add("MatMul", ("x", "basis"), "spectrum", "s")
    halves = [add("Slice", (spectrum, f"start{half}", f"end{half}", "axis"), f"half{half}", "s") for half in (0, 1)]
    squares = [add("Mul", (half, half), f"square{at}", "pr"[at]) for at, half in enumerate(halves)]
    root = add("Sqrt", (add("Add", tuple(squares), "sum", "a"),), "root", "b")
    add("MatMul", (root, "weight"), "y")
    return made


def run(coded, samples=12):
    graph_nodes = nodes(coded)
    constants = {"basis": BASIS, "weight": WEIGHT, "axis": np.array([1])}
    for half in (0, 1):
        constants |= {f"start{half}": np.array([4 * half]), f"end{half}": np.array([4 * half + 4])}
    for code, scale in SCALES.items() if coded else ():
        constants |= {f"{code}.scale": np.float32(scale), f"{code}.zero": np.int8(0 if code == "s" else -128)}
    infos = [TensorInfo(name=name, role=Role.CONSTANT) for name in constants]
    quants = {}
    for node in graph_nodes:
        if node.op == "QuantizeLinear":
            code = node.inputs[1].partition(".")[0]
            quant = QuantParams(dtype="int8", scale=SCALES[code], zero_point=int(constants[f"{code}.zero"]))
            quants[node.outputs[0]] = quant
            infos.append(TensorInfo(name=node.outputs[0], dtype="int8", quant=quant))
    graph = Graph(graph_nodes, tensors=infos, inputs=("x",), outputs=("y",), opset={"": 17})
    arrays = {(name, 0, 0): array for name, array in constants.items()}
    for sample in range(samples):
        loud = np.random.default_rng(sample)
        values = {"x": (loud.standard_normal((3, 16)) * 10 ** loud.uniform(-2, 0)).astype(np.float32), **constants}
        for node in graph_nodes:
            values[node.outputs[0]] = computed(node, values, quants)
        arrays |= {(name, sample, 0): array for name, array in values.items() if name not in constants}
    return MemoryRecording(graph, arrays)


def computed(node, values, quants):
    read = [values[name] for name in node.inputs]
    if node.op == "QuantizeLinear":
        return quantize(read[0], quants[node.outputs[0]])
    if node.op == "DequantizeLinear":
        return dequantize(read[0], quants[node.inputs[0]])
    if node.op == "Slice":
        return read[0][:, int(read[1][0]) : int(read[2][0])]
    functions = {"MatMul": np.matmul, "Mul": np.multiply, "Add": np.add, "Sqrt": np.sqrt}
    return functions[node.op](*read)


@pytest.fixture(scope="module")
def runs():
    return run(coded=False), run(coded=True)


def test_it_is_repaired_at_its_quantizers_and_float_readers_cost_nothing(runs):
    found = find_repair(DiffSession(*runs), RepairOptions(within=35))
    assert found.reached
    assert found.search.before < 15 < 30 < found.held_out.after
    assert "float root" in {edit.name for edit in found.edits}
    assert "y" not in {edit.unit.node.name for edit in found.edits}  # it computes on real numbers already
    assert sum(edit.macs for edit in found.edits) < 0.15


def test_codes_that_are_handed_on_get_16_bits_wherever_they_are_made_anew(runs):
    session = DiffSession(*runs)
    found = find_repair(session, RepairOptions(within=35, minutes=0, start=["16-bit spectrum"]))
    (edit,) = found.edits
    assert set(edit.change.quants) == {"spectrum.c", "half0.c", "half1.c"}
    top = max(float(np.abs(runs[0].load("spectrum", sample)).max()) for sample in range(12))
    wide = edit.change.quants["half0.c"]
    assert float(wide.scale.reshape(())) * 2**15 > 1.5 * top  # room for what no sample had


def test_the_budget_says_what_nodes_make_together(runs):
    (output,) = qdebug.budget(*runs).outputs
    shares = [node.together for node in output.nodes]
    assert shares[0] == pytest.approx(output.nodes[0].share)
    assert shares[-1] == pytest.approx(1, abs=0.1)
    assert abs(output.shares - 1) > abs(shares[-1] - 1)
