"""A name that two graphs share is believed only as far as the graphs bear it out."""

from dataclasses import replace

import numpy as np
import pytest

from qdebug.api import diff
from qdebug.compare.align.align import align
from qdebug.compare.result.result import Status
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.replay import run_node

RNG = np.random.default_rng(11)
X = RNG.normal(size=(1, 3, 6, 6)).astype(np.float32)
WEIGHTS = {f"w{i}": RNG.normal(size=(3, 3, 3, 3)).astype(np.float32) / 5 for i in range(4)}


def node(op, inputs, output, **attrs):
    return Node(name=f"n_{output}", op=op, inputs=tuple(inputs.split()), outputs=(output,), attrs=attrs)


def run(*nodes, weights=WEIGHTS, outputs=()):
    """Run nodes on X and record everything."""
    values = {"x": X, **weights}
    for entry in nodes:
        values.update(run_node(entry, values, {"": 18}))
    tensors = [
        TensorInfo(name="x", role=Role.INPUT),
        *(TensorInfo(name=name, role=Role.CONSTANT) for name in weights),
    ]
    graph = Graph(nodes, tensors=tensors, inputs=("x",), outputs=outputs or nodes[-1].outputs, opset={"": 18})
    return MemoryRecording.single(graph, values)


def conv(source, weight, output):
    return node("Conv", f"{source} {weight}", output, pads=(1, 1, 1, 1))


def numbered(first, *, before=()):
    """Return Conv, Relu, Conv, Relu, Conv, Relu with outputs numbered from a start, after some other nodes."""
    nodes, source = list(before), before[-1].outputs[0] if before else "x"
    for place in range(3):
        nodes.append(conv(source, f"w{place}", f"t{first + 2 * place}"))
        nodes.append(node("Relu", f"t{first + 2 * place}", f"t{first + 2 * place + 1}"))
        source = nodes[-1].outputs[0]
    return run(*nodes)


def partners(reference, backend):
    return {pair.backend: pair.reference for pair in align(reference, backend).pairs}


@pytest.mark.parametrize(("reference", "backend"), [(1, 3), (3, 1), (1, 2), (2, 1), (1, 5)])
def test_numbers_that_shift_between_exports_pair_nothing_wrongly(reference, backend):
    one, other = numbered(reference), numbered(backend)
    expected = {f"t{backend + i}": f"t{reference + i}" for i in range(6)}
    assert {t: s for t, s in partners(one, other).items() if t != "x"} == expected
    assert diff(one, other).exit_code == 0


@pytest.mark.parametrize("shift", [1, 2])
def test_nodes_in_front_shift_the_numbers_of_all_that_follow(shift):
    extra = (node("Transpose", "x", "t1", perm=(0, 1, 3, 2)), node("Transpose", "t1", "t2", perm=(0, 1, 3, 2)))
    found = partners(numbered(1), numbered(1 + shift, before=extra[:shift]))
    # the last output of both nets has another number: what is in the middle must not be taken for it
    assert {found.get(f"t{1 + shift + i}") for i in range(6)} <= {f"t{1 + i}" for i in range(6)} | {None}
    assert all(found.get(f"t{1 + shift + i}") in (f"t{1 + i}", None) for i in range(6))


def test_another_operator_under_the_same_name_is_a_finding_there():
    good = run(conv("x", "w0", "a"), node("Relu", "a", "b"), conv("b", "w1", "y"))
    bad = run(conv("x", "w0", "a"), node("LeakyRelu", "a", "b", alpha=0.3), conv("b", "w1", "y"))
    assert partners(good, bad)["b"] == "b"
    assert diff(good, bad).first_divergence == "n_b"


def test_an_input_from_elsewhere_under_the_same_name_is_a_finding_there():
    good = run(conv("x", "w0", "a"), node("Relu", "a", "b"), conv("b", "w1", "c"), node("Relu", "c", "y"))
    bad = run(conv("x", "w0", "a"), node("Relu", "a", "b"), conv("a", "w1", "c"), node("Relu", "c", "y"))
    assert partners(good, bad)["c"] == "c"
    assert diff(good, bad).first_divergence == "n_c"


def test_an_operand_that_is_taken_twice_is_a_finding_and_is_named():
    parts = conv("x", "w0", "a"), conv("x", "w1", "c")
    good, bad = run(*parts, node("Add", "a c", "y")), run(*parts, node("Add", "a a", "y"))
    verdict = diff(good, bad).verdict
    assert verdict.first_divergence == "n_y"
    assert "it reads 'a', but the reference reads 'c'" in verdict.sentence


def test_branches_with_each_others_numbers_are_told_apart_by_their_inputs():
    last = node("Add", "t3 t4", "y")
    one = run(node("Relu", "x", "t1"), node("Abs", "x", "t2"), node("Neg", "t1", "t3"), node("Exp", "t2", "t4"), last)
    two = run(node("Abs", "x", "t1"), node("Relu", "x", "t2"), node("Exp", "t1", "t3"), node("Neg", "t2", "t4"), last)
    assert partners(one, two) == {"x": "x", "t1": "t2", "t2": "t1", "t3": "t4", "t4": "t3", "y": "y"}
    assert diff(one, two).exit_code == 0


LINEAR = {"w": RNG.normal(size=(8, 108)) / 9, "v": RNG.normal(size=(8, 8)), "b": RNG.normal(size=8)}
LINEAR = {name: array.astype(np.float32) for name, array in LINEAR.items()} | {"one": np.float32(1)}


def turned(inputs, output):
    return replace(node("FusedMatMul", inputs, output, transB=1), domain="com.microsoft")


def test_a_product_without_its_bias_is_not_the_one_that_has_it():
    """The backend adds the bias in a node of its own; what reads the sum is not what reads the reference's."""
    reference = run(
        node("Flatten", "x", "h"),
        node("Gemm", "h w b", "g", transB=1),
        node("Relu", "g", "r"),
        node("Gemm", "r v b", "y", transB=1),
        weights=LINEAR,
    )
    backend = run(
        node("Flatten", "x", "h"),
        turned("h w", "p"),
        node("Mul", "p one", "m"),
        node("Add", "m b", "g"),
        turned("g v", "q"),
        node("Add", "q b", "y"),
        weights=LINEAR,
    )
    assert partners(reference, backend) == {"x": "x", "h": "h", "g": "g", "y": "y"}
    result = diff(reference, backend)
    assert result.origin == "n_y"
    assert "the reference's Relu 'n_r' is missing" in result.nodes[-1].reason


def test_a_sum_of_a_product_and_its_bias_that_reads_another_tensor_keeps_its_name():
    reference = run(
        conv("x", "w0", "h"),
        node("Add", "x h", "s"),
        node("Conv", "s w1 k", "c", pads=(1, 1, 1, 1)),
        node("Relu", "c", "y"),
        weights=WEIGHTS | {"k": np.ones(3, np.float32)},
    )
    backend = run(
        conv("x", "w0", "h"),
        conv("h", "w1", "p"),
        node("Add", "p k", "c"),
        node("Relu", "c", "y"),
        weights=WEIGHTS | {"k": np.ones((1, 3, 1, 1), np.float32)},
    )
    assert partners(reference, backend) == {"x": "x", "h": "h", "c": "c", "y": "y"}
    assert diff(reference, backend).origin == "n_c"


def test_a_column_is_not_a_row():
    """Two shapes of one rank that differ by where an extent of 1 stands are in another order of dimensions."""
    nodes = [node("Relu", "x", "r"), node("Relu", "r", "y")]
    graph = Graph(nodes, inputs=("x",), outputs=("y",))
    column, row = np.ones((2, 1), np.float32), np.ones((1, 2), np.float32)
    one = MemoryRecording.single(graph, {"x": row, "r": row, "y": column})
    other = MemoryRecording.single(graph, {"x": row, "r": row, "y": row})
    result = diff(one, other)
    entry = next(found for found in result.nodes if found.tensor == "y")
    assert entry.status is Status.INCOMPARABLE
    assert "shape (2, 1)" in entry.reason
    assert result.exit_code != 0


def test_a_function_that_one_side_expands_keeps_the_name_of_its_result():
    """A runtime without a kernel for a normalization computes it in several nodes, a reshape the last of them."""
    weights = {"g": np.ones(3, np.float32), "w": WEIGHTS["w0"], "shape": np.array([1, 3, 6, 6])}
    whole = run(
        node("Relu", "x", "r"),
        node("InstanceNormalization", "r g g", "n"),
        conv("n", "w", "y"),
        weights=weights,
        outputs=("y",),
    )
    expanded = run(
        node("Relu", "x", "r"),
        node("ReduceMean", "r", "mean", axes=(2, 3), keepdims=1),
        node("Sub", "r mean", "centred"),
        node("Mul", "centred centred", "squares"),
        node("ReduceMean", "squares", "variance", axes=(2, 3), keepdims=1),
        node("Sqrt", "variance", "deviation"),
        node("Div", "centred deviation", "quotient"),
        node("Reshape", "quotient shape", "n"),
        conv("n", "w", "y"),
        weights=weights,
        outputs=("y",),
    )
    assert partners(expanded, whole)["n"] == "n"
    assert partners(whole, expanded)["n"] == "n"
