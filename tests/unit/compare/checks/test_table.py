"""Every kind of fault gives a finding of its kind, and its healthy twin gives none."""

import numpy as np
import pytest

from qdebug.api import diff
from qdebug.compare.result.finding import FindingKind, FindingRole
from qdebug.compare.result.result import Status
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.replay import run_node

RNG = np.random.default_rng(77)
X = RNG.normal(size=(4, 16)).astype(np.float32)
W = RNG.normal(size=(16, 8)).astype(np.float32)
B = RNG.normal(size=8).astype(np.float32)


def node(op, inputs, output, **attrs):
    return Node(name=f"n_{output}", op=op, inputs=tuple(inputs.split()), outputs=(output,), attrs=attrs)


def recorded(nodes, constants, *, quants=None, change=None):
    """Run nodes and record everything, with some values changed on the way."""
    values = {"x": X, **constants}
    for each in nodes:
        values.update(run_node(each, values, {"": 18}))
        if change is not None and each.outputs[0] in change:
            values[each.outputs[0]] = change[each.outputs[0]](values[each.outputs[0]].copy())
    known = quants or {}
    roles = dict.fromkeys(constants, Role.CONSTANT) | {"x": Role.INPUT}
    infos = [TensorInfo(name=name, role=role, quant=known.get(name)) for name, role in roles.items()]
    infos += [TensorInfo(name=name, quant=quant) for name, quant in known.items() if name not in roles]
    graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=nodes[-1].outputs, opset={"": 18})
    return MemoryRecording.single(graph, values)


def product(*, w=W, b=B, alpha=0.1, last="LeakyRelu", change=None):
    attrs = {"alpha": alpha} if last == "LeakyRelu" else {}
    nodes = (
        [node("Gemm", "x w b", "h"), node("Tanh", "h", "t"), node(last, "t", "y", **attrs)]
        if last
        else [node("Gemm", "x w b", "t"), node("LeakyRelu", "t", "y", alpha=alpha)]
    )
    return recorded(nodes, {"w": w, "b": b}, change=change)


def joined(*, operand="p"):
    nodes = (node("Tanh", "x", "t"), node("Sin", "x", "p"), node("Mul", f"t {operand}", "y"))
    return recorded(nodes, {})


def coded(scale=1 / 127, *, change=None):
    """Tanh(x), in codes of some scale."""
    quant = QuantParams(dtype="int8", scale=scale)
    nodes = (node("Tanh", "x", "t"), node("QuantizeLinear", "t s z", "t_q"), node("DequantizeLinear", "t_q s z", "y"))
    constants = {"s": np.float32(scale), "z": np.int8(0)}
    return recorded(nodes, constants, quants={"t_q": quant}, change=change)


def bumped(array, at, by):
    changed = array.copy()
    changed[at] += np.asarray(by, array.dtype)
    return changed


PLAIN = recorded((node("Tanh", "x", "y"),), {})
OFF = {"t": lambda array: bumped(array, (1, 1), 0.01)}
HALF = {"h": lambda array: array.astype(np.float16).astype(np.float32)}


@pytest.mark.parametrize(
    ("kind", "reference", "backend", "where", "unit"),
    [
        ("weight", product(), product(w=bumped(W, (2, 3), 1.0)), "n_h", "elements"),
        ("bias", product(), product(b=bumped(B, 1, 1.0)), "n_h", "elements"),
        ("attribute", product(), product(alpha=0.3), "n_y", None),
        ("operator", product(), product(last="Sin"), "n_y", None),
        ("missing_node", product(), product(last=None), "n_t", None),
        ("operand", joined(), joined(operand="t"), "n_y", None),
        ("arithmetic", product(), product(change=OFF), "n_t", "times the rounding bound"),
        ("arithmetic", PLAIN, coded(change={"t_q": lambda a: bumped(a, (0, 0), -9)}), "n_t_q", "LSB"),
        ("dead_zone", PLAIN, coded(change={"t_q": lambda a: np.where(np.abs(a) < 40, 0, a)}), "n_t_q", "LSB"),
        ("dead_zone", product(), product(change={"h": lambda a: np.where(abs(a) < 2, 0, a)}), "n_h", "absolute value"),
        ("saturation", PLAIN, coded(0.002), "n_t_q", "dB"),
        ("scale", PLAIN, coded(0.9), "n_t_q", "dB"),
        ("nonfinite", product(), product(change={"t": lambda a: bumped(a, (0, 0), np.nan)}), "n_t", "elements"),
    ],
)
def test_a_fault_gives_a_finding_of_its_kind_and_its_healthy_twin_none(kind, reference, backend, where, unit):
    result = diff(reference, backend)
    entry = next(entry for entry in result.nodes if entry.node == where)
    found = [each for each in entry.findings if each.kind == kind]
    assert found, [str(each) for each in entry.findings]
    if found[0].role is FindingRole.COST:  # no node is at fault, and the output has too little left
        assert (entry.status, result.status, result.origin) == (Status.WITHIN, Status.ACCUMULATED, where)
    else:
        assert found[0].role in (FindingRole.DIFFERENCE, FindingRole.BREACH, FindingRole.CAUSE)
        assert entry.status in (Status.DIVERGED, Status.NONFINITE)
    assert found[0].sentence in entry.reason
    said = next(each for each in found if each.unit == unit)
    assert said.node == where
    assert unit is None or said.amount is not None is not said.limit
    healthy = diff(PLAIN, coded()) if reference is PLAIN else diff(reference, reference)
    assert healthy.exit_code == 0
    assert not [each for row in healthy.nodes for each in row.findings]


def test_precision_is_worth_saying_and_decides_nothing_by_itself():
    entry = next(row for row in diff(product(), product(change=HALF)).nodes if row.tensor == "h")
    (found,) = (each for each in entry.findings if each.kind == FindingKind.PRECISION)
    assert (found.role, found.evidence, entry.precision) == (FindingRole.NOTE, "float16", "float16")


@pytest.mark.parametrize(
    "change",
    [
        lambda a: np.where((np.abs(a) < 40) & (np.arange(a.size).reshape(a.shape) % 2 == 0), 0, a),  # half
        lambda a: np.where(np.abs(a) < 40, 0, a + np.where(a > 90, 7, 0)),  # wrong elsewhere too
        lambda a: np.where(a < 0, 0, a),  # a Relu
        lambda a: np.where(np.arange(a.size).reshape(a.shape) < 4, 0, a),  # by place, not by value
    ],
)
def test_zeros_that_are_no_dead_zone_are_not_called_one(change):
    result = diff(PLAIN, coded(change={"t_q": change}))
    entry = next(entry for entry in result.nodes if entry.node == "n_t_q")
    assert entry.status is Status.DIVERGED
    assert not [each for each in entry.findings if each.kind == FindingKind.DEAD_ZONE]


def test_codes_that_lose_too_much_are_named_beside_a_fault_above_them():
    reference = recorded((node("Identity", "x", "h"), node("Tanh", "h", "t")), {})
    quant = QuantParams(dtype="int8", scale=0.9)
    nodes = (
        node("Identity", "x", "h"),
        node("Tanh", "h", "t"),
        node("QuantizeLinear", "t s z", "t_q"),
        node("DequantizeLinear", "t_q s z", "y"),
    )
    backend = recorded(nodes, {"s": np.float32(0.9), "z": np.int8(0)}, quants={"t_q": quant}, change={"h": np.negative})
    result = diff(reference, backend)
    entry = next(entry for entry in result.nodes if entry.node == "n_t_q")
    (found,) = (each for each in entry.findings if each.role is FindingRole.COST)
    assert (entry.status, entry.reason) == (Status.WITHIN, found.sentence)
    assert found.amount < found.limit
    assert found.sentence.endswith("its inputs already have as large an error")
    assert [each.node for each in result.diagnosis] == [result.first_divergence, "n_t_q"]
