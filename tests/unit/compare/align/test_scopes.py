"""Names of hooked modules lead to the tensors that an exported graph says are of their scopes."""

import numpy as np
import pytest

import qdebug
from qdebug.compare.align.scopes import modules_of
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.replay import run_node

RNG = np.random.default_rng(6)
X = RNG.normal(size=(1, 4, 5, 5)).astype(np.float32)
WEIGHTS = {f"w{i}": RNG.normal(size=(4, 4, 3, 3)).astype(np.float32) / 6 for i in range(3)}
PADS = {"pads": (1, 1, 1, 1)}


def exported(*, twice=False):
    """Export a list of two blocks, the first of a convolution, with its normalization folded in, and a Tanh."""
    nodes = [
        Node(name="/a/a.0/c/Conv", op="Conv", inputs=("x", "w0"), outputs=("/a/a.0/c/Conv_output_0",), attrs=PADS),
        Node(name="/a/a.0/t/Tanh", op="Tanh", inputs=("/a/a.0/c/Conv_output_0",), outputs=("/a/a.0/t/Tanh_output_0",)),
        Node(
            name="/a/a.1/Conv",
            op="Conv",
            inputs=("/a/a.0/t/Tanh_output_0", "w1"),
            outputs=("/a/a.1/Conv_output_0",),
            attrs=PADS,
        ),
        Node(name="/s/Sigmoid", op="Sigmoid", inputs=("/a/a.1/Conv_output_0",), outputs=("/s/Sigmoid_output_0",)),
    ]
    last = "/s/Sigmoid_output_0"
    if twice:
        nodes.append(Node(name="/s_1/Sigmoid", op="Sigmoid", inputs=(last,), outputs=("/s_1/Sigmoid_output_0",)))
        last = "/s_1/Sigmoid_output_0"
    nodes.append(Node(name="out", op="Conv", inputs=(last, "w2"), outputs=("y",), attrs=PADS))
    values = {"x": X, **WEIGHTS}
    for node in nodes:
        values.update(run_node(node, values, {"": 17}))
    tensors = [TensorInfo(name="x", role=Role.INPUT), *(TensorInfo(name=n, role=Role.CONSTANT) for n in WEIGHTS)]
    return MemoryRecording.single(Graph(nodes, tensors=tensors, inputs=("x",), outputs=("y",), opset={"": 17}), values)


def hooked(values):
    with qdebug.Recorder(None, backend="torch") as rec:
        for name, array in {"x": X, **values}.items():
            rec.put(name, np.asarray(array, np.float32))
        rec.outputs("y")
    return rec.recording


def partners(result):
    return {node.tensor: node.reference_tensor for node in result.nodes if node.tensor not in ("x", "y")}


def wrong(*shape):
    """Return values that are near to none of the model's, as behind a fault."""
    return RNG.normal(size=shape) * 40


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("/a/a.1/b/b.2/Relu_output_0", ("a", "a.1", "a.1.b", "a.1.b.2")),
        ("/q.0/l1/Add_output_0", ("q.0", "q.0.l1")),
        ("/Relu_output_0", ()),
        ("a/b/Relu", ()),
    ],
)
def test_parts_of_sequences_repeat_the_name_of_the_whole(name, modules):
    assert modules_of(name) == modules


def test_what_no_values_lead_to_is_found_by_its_module():
    full = exported()
    values = {"a.0.t": wrong(*X.shape), "a.1": wrong(*X.shape), "s": wrong(*X.shape), "y": full.load("y")}
    expected = {"a.0.t": "/a/a.0/t/Tanh_output_0", "a.1": "/a/a.1/Conv_output_0", "s": "/s/Sigmoid_output_0"}
    result = qdebug.diff(full, hooked(values))
    assert partners(result) == expected
    assert (result.exit_code, result.first_divergence) == (1, "a.0.t")
    assert partners(qdebug.diff(hooked(values), full)) == {there: here for here, there in expected.items()}


def test_a_convolution_whose_normalization_is_folded_into_it_is_not_what_its_node_gives():
    full = exported()
    values = {"a.0.c": wrong(*X.shape), "a.0.n": wrong(*X.shape), "a.1": wrong(*X.shape), "y": full.load("y")}
    assert partners(qdebug.diff(full, hooked(values))) == {"a.1": "/a/a.1/Conv_output_0"}


def test_a_module_that_is_called_twice_is_led_nowhere():
    full = exported(twice=True)
    assert partners(qdebug.diff(full, hooked({"s": wrong(*X.shape), "y": full.load("y")}))) == {}


def test_a_module_that_gives_other_extents_than_its_scope_is_led_nowhere():
    full = exported()
    values = {"a.0.t": wrong(*X.shape), "s": wrong(1, 4, 5, 6), "y": full.load("y")}
    assert partners(qdebug.diff(full, hooked(values))) == {"a.0.t": "/a/a.0/t/Tanh_output_0"}
