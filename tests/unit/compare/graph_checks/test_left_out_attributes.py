"""An attribute that one side leaves out is named with both values where its default is another one."""

import numpy as np
import pytest

import qdebug
from qdebug.errors import AlignmentError
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.replay import run_node

RNG = np.random.default_rng(1)
X = RNG.normal(size=(1, 4, 8, 8)).astype(np.float32)
F32 = np.float32
CONSTANTS = {
    "scale": F32([1, 2, 3, 4]),
    "bias": np.zeros(4, F32),
    "mean": np.zeros(4, F32),
    "var": np.full(4, 1e-3, F32),
    "w": (RNG.normal(size=(4, 4, 3, 3)) / 5).astype(F32),
}
NORM, CONV = "x scale bias mean var", "x w"


def run(op, inputs, attrs, *, first=None):
    """Record one node, perhaps behind another."""
    nodes = [] if first is None else [Node(name="f", op=first, inputs=("x",), outputs=("f",))]
    names = tuple(inputs.split()) if first is None else ("f", *inputs.split()[1:])
    nodes.append(Node(name="n", op=op, inputs=names, outputs=("y",), attrs=attrs))
    values = {"x": X, **{name: CONSTANTS[name] for name in names[1:]}}
    for node in nodes:
        values.update(run_node(node, values, {"": 18}))
    infos = [TensorInfo(name="x", role=Role.INPUT), *(TensorInfo(name=n, role=Role.CONSTANT) for n in names[1:])]
    graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=("y",), opset={"": 18})
    return MemoryRecording.single(graph, values)


def reason(reference, backend):
    result = qdebug.diff(reference, backend)
    row = next(each for each in result.nodes if each.tensor == "y")
    return row.findings[0].kind.value if row.findings else None, row.reason


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "stated", "default"),
    [
        ("BatchNormalization", NORM, {"epsilon": 0.001}, "0.001", "the default 1e-05"),
        ("BatchNormalization", NORM, {"epsilon": float(F32(0.001))}, "0.001", "the default 1e-05"),
        ("LeakyRelu", "x", {"alpha": 0.2}, "0.2", "the default 0.01"),
        ("Elu", "x", {"alpha": 2.0}, "2", "the default 1"),
        ("Softmax", "x", {"axis": 1}, "1", "the default -1"),
    ],
)
def test_both_values_are_named(op, inputs, attrs, stated, default):
    name = next(iter(attrs))
    one, other = run(op, inputs, {}), run(op, inputs, attrs)
    assert reason(one, other) == ("attribute", f"its {name} is {stated}; the reference's is {default}")
    assert reason(other, one) == ("attribute", f"its {name} is {default}; the reference's is {stated}")


def test_a_list_that_one_side_leaves_out_is_named_without_its_default():
    with pytest.raises(AlignmentError, match=r"its dilations is the default; the reference's is \(2, 2\)"):
        qdebug.diff(run("Conv", CONV, {"dilations": (2, 2)}), run("Conv", CONV, {}))


def test_a_default_that_one_side_states_is_no_difference():
    plain, stated = run("BatchNormalization", NORM, {}), run("BatchNormalization", NORM, {"epsilon": 1e-5})
    assert reason(plain, stated) == (None, None)
    wrong = MemoryRecording.single(
        stated.graph, {**{n: stated.load(n) for n in stated.names}, "y": stated.load("y") * 2}
    )
    assert reason(plain, wrong)[0] == "arithmetic"


@pytest.mark.parametrize("stated", [1e-5, float(F32(1e-5))], ids=["64 bits", "32 bits"])
def test_a_number_is_the_same_in_the_digits_of_another_format(stated, monkeypatch):
    """ONNX keeps 1e-05 in 32 bits, other formats in 64: what is wrong is the scale."""
    plain = run("BatchNormalization", NORM, {"epsilon": float(F32(1e-5))})
    monkeypatch.setitem(CONSTANTS, "scale", CONSTANTS["scale"] * 2)
    assert reason(plain, run("BatchNormalization", NORM, {"epsilon": stated}))[0] == "constant"


def test_an_attribute_that_a_harness_does_not_know_is_not_called_its_default():
    """Its values are those of neither slope."""
    stated, unsaid = run("LeakyRelu", "x", {"alpha": 0.3}), run("LeakyRelu", "x", {})
    computed = run("LeakyRelu", "x", {"alpha": 0.2}).load("y")
    kind, said = reason(stated, MemoryRecording.single(unsaid.graph, {"x": X, "y": computed}))
    assert kind == "operator"
    assert "default" not in said


@pytest.mark.parametrize("first", ["Relu", "Tanh"])
def test_nodes_are_named_in_their_order(first):
    """What comes before is said before."""
    lacking = run("Conv", CONV, {"pads": (1, 1, 1, 1)})
    kind, said = reason(run("Conv", CONV, {"pads": (1, 1, 1, 1)}, first=first), lacking)
    right = f"without {first}, the reference's nodes reproduce the recorded values"
    assert (kind, said) == ("missing_node", f"the reference's {first} before it is missing here; {right}")
    fused = run("Conv", CONV, {"pads": (1, 1, 1, 1)})
    graph = Graph(
        [
            Node(
                name="n",
                op="Conv",
                inputs=("x", "w"),
                outputs=("y",),
                attrs={"pads": (1, 1, 1, 1), "activation": "Relu"},
            )
        ],
        tensors=fused.graph.tensors.values(),
        inputs=("x",),
        outputs=("y",),
        opset={"": 18},
    )
    values = {name: fused.load(name) for name in fused.names}
    other = MemoryRecording.single(graph, {**values, "y": np.maximum(values["y"], 0)})
    kind, said = reason(run("Conv", CONV, {"pads": (1, 1, 1, 1)}, first=first), other)
    assert (kind, said) == ("operator", f"its operator does not compute what the reference's {first} + Conv computes")
