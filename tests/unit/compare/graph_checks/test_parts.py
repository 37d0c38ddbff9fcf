"""What is wrong inside a part of several nodes is named: a summand, a table, a factor, a scale that is read."""

import numpy as np
import pytest

from qdebug.api import diff
from qdebug.arithmetic.presets import other_sums
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.replay.run import run_graph

RNG = np.random.default_rng(3)
X = RNG.normal(size=(3, 8)).astype(np.float32)
IDS = np.array([3, 1, 4, 1, 5])
CONSTANTS = {
    "w": (RNG.normal(size=(8, 6)) * 0.4).astype(np.float32),
    "b": RNG.normal(size=6).astype(np.float32),
    "t": RNG.normal(size=(9, 8)).astype(np.float32),
    "k": np.float32(1.4),
    "low": np.array([3, 2, 4]),
}


def node(op, inputs, output, *, domain="", **attrs):
    return Node(name=f"n_{output}", op=op, inputs=tuple(inputs.split()), outputs=(output,), attrs=attrs, domain=domain)


def recorded(nodes, *, kept, feeds=None, quants=(), arithmetic=None, **other):
    """Run nodes and record some of their results."""
    feeds = feeds or {"x": X}
    read = {name for each in nodes for name in each.inputs}
    constants = {name: np.asarray(array) for name, array in (CONSTANTS | other).items() if name in read}
    known = dict(quants)
    infos = [TensorInfo(name=name, role=Role.CONSTANT, quant=known.pop(name, None)) for name in constants]
    infos += [TensorInfo(name=name, quant=quant) for name, quant in known.items()]
    graph = Graph(nodes, tensors=infos, inputs=tuple(feeds), outputs=("y",), opset={"": 17})
    arrays = {**feeds, **constants}

    def keep(name, array):
        arrays.setdefault(name, np.array(array))

    run_graph(graph, feeds, constants, on_tensor=keep, arithmetic=arithmetic)
    names = {*feeds, *constants, *kept}
    return MemoryRecording.single(graph, {name: array for name, array in arrays.items() if name in names})


LINEAR = (node("Gemm", "x w b", "g"), node("Tanh", "g", "y"))
APART = (node("MatMul", "x w", "p"), node("Add", "p b", "q"), node("Tanh", "q", "y"))
LOOKUP = (node("Gather", "t x", "e"), node("MatMul", "e w", "p"), node("Tanh", "p", "y"))
SCALED = (node("Mul", "x k", "m"), node("Transpose", "m", "y", perm=[1, 0]))
TURNED = (node("Transpose", "x", "m", perm=[1, 0]), node("Mul", "m k", "y"))


@pytest.mark.parametrize(
    ("reference", "backend", "wrong", "feeds", "named"),
    [
        (LINEAR, APART, {"b": np.roll(CONSTANTS["b"], 1)}, None, ("n_q", "bias", "b")),
        (LINEAR, APART, {"b": np.float32(0)}, None, ("n_q", "bias", "b")),
        (LOOKUP, LOOKUP, {"t": np.roll(CONSTANTS["t"], 1, axis=0)}, {"x": IDS}, ("n_e", "constant", "t")),
        (SCALED, TURNED, {"k": np.float32(2.0)}, None, ("n_y", "constant", "k")),
    ],
    ids=["summand", "one number as summand", "table", "factor"],
)
def test_a_wrong_constant_beside_a_weight_is_named(reference, backend, wrong, feeds, named):
    healthy = recorded(reference, kept="y", feeds=feeds)
    assert diff(healthy, recorded(backend, kept="y", feeds=feeds)).exit_code == 0
    result = diff(healthy, recorded(backend, kept="y", feeds=feeds, **wrong))
    first = result.nodes[-1].findings[0]
    assert (result.origin, str(first.kind), first.evidence) == named, result.verdict.sentence


def test_codes_of_which_nobody_says_what_they_stand_for_are_no_other_constant():
    table = np.rint(CONSTANTS["t"] * 40).astype(np.int8)
    nodes = (
        node("Gather", "t x", "e"),
        node("Cast", "e", "f", to=1),
        node("MatMul", "f w", "p"),
        node("Tanh", "p", "y"),
    )
    result = diff(recorded(LOOKUP, kept="y", feeds={"x": IDS}), recorded(nodes, kept="y", feeds={"x": IDS}, t=table))
    assert all(found.evidence != "t" for row in result.nodes for found in row.findings)


def test_codes_read_by_another_scale_inside_a_part_are_named_however_little_comes_of_it():
    """Both sides end in a Softmax that hides most of it; between them nothing was compared."""
    quant = QuantParams(dtype="uint8", scale=np.float32(0.05), zero_point=128)
    nodes = (
        node("QuantizeLinear", "x s z", "c"),
        node("Reshape", "c low", "r"),
        node("DequantizeLinear", "r s2 z", "d"),
        node("Softmax", "d", "y", axis=-1),
    )
    shape, small = np.array([3, 2, 4]), (X * np.float32(0.1)).astype(np.float32)
    plain = (node("Reshape", "x low", "r"), node("Softmax", "r", "y", axis=-1))

    def run(scale):
        made = recorded(
            nodes, kept="cy", feeds={"x": small}, s=quant.scale[0], s2=np.float32(scale), z=np.uint8(128), low=shape
        )
        infos = [*made.graph.tensors.values()]
        infos = [
            TensorInfo(name=info.name, role=info.role, quant=quant) if info.name in "cr" else info for info in infos
        ]
        graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=("y",), opset={"": 17})
        return MemoryRecording.single(graph, {name: made.load(name) for name in made.names})

    reference = recorded(plain, kept="y", feeds={"x": small})
    assert diff(reference, run(0.05)).exit_code == 0
    result = diff(reference, run(0.06))
    assert result.origin == "n_d", result.verdict.sentence
    assert "it reads 'r' with scale 0.06, but 'r' was written with scale 0.05" in result.verdict.sentence


@pytest.mark.parametrize("shape", [(), (1, 1)])
@pytest.mark.parametrize(("op", "attrs"), [("Pow", {}), ("Power", {"auto_broadcast": "numpy"})])
def test_another_number_is_named_in_any_words_and_whatever_its_shape(op, attrs, shape):
    def run(op, number, **attrs):
        graph = Graph(
            [node(op, "x k", "y", **attrs)],
            tensors=[TensorInfo(name="k", role=Role.CONSTANT)],
            inputs=("x",),
            outputs=("y",),
            opset={"": 17},
        )
        return MemoryRecording.single(graph, {"x": X, "k": number, "y": X ** float(number.max())})

    result = diff(run("Pow", np.array([2], np.float32)), run(op, np.full(shape, 3, np.float32), **attrs))
    found = result.nodes[-1].findings[0]
    assert (result.origin, found.kind, found.evidence) == ("n_y", "constant", "k")


@pytest.mark.parametrize("size", [4, 8])
def test_a_weight_that_is_kept_turned_is_no_other_attribute(size):
    def run(weight, **attrs):
        graph = Graph(
            [node("Gemm", "x w", "y", **attrs)],
            tensors=[TensorInfo(name="w", role=Role.CONSTANT)],
            inputs=("x",),
            outputs=("y",),
            opset={"": 17},
        )
        whole = weight.T if attrs.get("transB") else weight
        return MemoryRecording.single(graph, {"x": X, "w": np.ascontiguousarray(weight), "y": X @ whole})

    weight = RNG.normal(size=(8, size)).astype(np.float32)
    wrong = weight.copy()
    wrong[3, 2] += 1
    assert diff(run(weight), run(weight.T, transB=1)).exit_code == 0
    result = diff(run(weight), run(wrong.T, transB=1))
    assert (result.origin, result.nodes[-1].findings[0].kind) == ("n_y", "weight")
    forgotten = diff(run(np.resize(weight, (8, 8)), transB=1), run(np.resize(weight, (8, 8)), transB=0))
    assert forgotten.nodes[-1].findings[0].evidence == "transB"


CODED = (
    node("QuantizeLinear", "x one zero", "q"),
    node("Reshape", "q flat", "f"),
    node("QGemm", "f one zero w one signed c step middle", "m", domain="com.microsoft"),
    node("Reshape", "m whole", "n"),
    node("DequantizeLinear", "n step middle", "y"),
)


def test_sums_in_sixteen_bits_inside_a_part_are_no_other_computation():
    """Their arithmetic is said of them; the graphs declare the same. A wrong weight beside them is still found."""
    rng, step = np.random.default_rng(6), np.float32(2000)
    weight = rng.choice([-127, 127], size=(16, 6), p=[0.4, 0.6]).astype(np.int8)
    pixels, bias = rng.integers(0, 255, size=(1, 8, 16)).astype(np.float32), rng.integers(-9000, 9000, size=6)
    constants = {"one": np.float32(1), "zero": np.uint8(0), "middle": np.uint8(128), "signed": np.int8(0), "step": step}
    constants |= {"c": bias.astype(np.int32), "flat": np.array([8, 16]), "whole": np.array([1, 8, 6])}
    quants = [(name, QuantParams(dtype="uint8", scale=np.float32(1), zero_point=np.uint8(0))) for name in "qf"]
    quants += [(name, QuantParams(dtype="uint8", scale=step, zero_point=np.uint8(128))) for name in "mn"]
    quants.append(("w", QuantParams(dtype="int8", scale=np.float32(1), zero_point=np.int8(0))))
    plain = (node("MatMul", "x w", "p"), node("Add", "p b", "y"))
    feeds = {"x": pixels}
    reference = recorded(plain, kept="y", feeds=feeds, w=weight.astype(np.float32), b=bias.astype(np.float32))

    def compared(held, arithmetic):
        kept = "qfmny"
        return diff(
            reference,
            recorded(CODED, kept=kept, feeds=feeds, quants=quants, arithmetic=arithmetic, w=held, **constants),
        )

    for words, arithmetic in other_sums().items():
        said = {node.node: str([f.sentence for f in node.findings]) for node in compared(weight, arithmetic).nodes}
        assert words in said["n_m"], said
        assert "does not do" not in str(said), said
        wrong = compared(np.roll(weight, 1, axis=0), arithmetic)
        (first,) = [each.findings[0] for each in wrong.nodes if each.findings and each.findings[0].node == "n_m"]
        assert (wrong.origin, str(first.kind)) == ("n_m", "weight"), wrong.verdict.sentence


@pytest.mark.parametrize(("axis", "code"), [(1, 0), (2, 1)])
def test_axes_are_counted_in_the_references_shape_where_a_part_drops_one_element(axis, code):
    rng = np.random.default_rng(9)
    held = {"w": rng.normal(size=(8, 1)).astype(np.float32), "b": np.float32([0.3])}
    feeds = {"x": rng.normal(size=(1, 5, 8)).astype(np.float32)}
    plain = (node("MatMul", "x w", "p"), node("Add", "p b", "q"), node("Softmax", "q", "y", axis=1))
    flat = (
        *(node("Reshape", "x flat", "f"), node("Gemm", "f w b", "g"), node("Reshape", "g whole", "r")),
        node("Softmax", "r", "y", axis=axis),
    )
    shapes = {"flat": np.array([5, 8]), "whole": np.array([1, 5, 1])}
    result = diff(
        recorded(plain, kept="pqy", feeds=feeds, **held), recorded(flat, kept="fgry", feeds=feeds, **held, **shapes)
    )
    assert result.exit_code == code, result.verdict.sentence


def test_a_bias_in_codes_is_held_against_what_a_node_of_the_reference_adds():
    rng = np.random.default_rng(10)
    data, weight = rng.integers(0, 60, size=(7, 8)).astype(np.float32), rng.integers(-5, 5, size=(8, 6)).astype(np.int8)
    bias = rng.integers(-90, 90, size=6).astype(np.int32)
    plain = (node("MatMul", "x w", "p"), node("Add", "p b", "y"))
    coded = (
        node("QuantizeLinear", "x one zero", "q"),
        node("QGemm", "q one zero w one signed c step middle", "m", domain="com.microsoft"),
        node("DequantizeLinear", "m step middle", "y"),
    )
    constants = {"one": np.float32(1), "zero": np.uint8(0), "middle": np.uint8(128), "signed": np.int8(0)}
    scales = [("q", "uint8", 1, 0), ("m", "uint8", 16, 128), ("w", "int8", 1, 0), ("c", "int32", 1, 0)]
    quants = [(name, QuantParams(dtype=kind, scale=np.float32(size), zero_point=at)) for name, kind, size, at in scales]
    constants["step"] = np.float32(16)
    real = {"w": weight.astype(np.float32), "b": bias.astype(np.float32)}
    reference = recorded(plain, kept="y", feeds={"x": data}, **real)
    for held, code in ((bias, 0), (np.roll(bias, 1), 1)):
        backend = recorded(coded, kept="qmy", feeds={"x": data}, quants=quants, w=weight, c=held, **constants)
        result = diff(reference, backend)
        assert result.exit_code == code, result.verdict.sentence
    first = next(each.findings[0] for each in result.nodes if each.node == "n_m")
    assert (result.origin, str(first.kind), first.evidence) == ("n_m", "bias", "c")


def test_a_factor_that_both_sides_apply_is_folded_into_neither_weight():
    """A Relu that is missing in front of both is the difference, and no weight."""
    after = node("MatMul", "r w", "p"), node("Mul", "p n", "y")
    factor, w = {"n": RNG.uniform(1.5, 2, 6).astype(np.float32)}, np.roll(CONSTANTS["w"], 1)
    reference = recorded((node("Relu", "x", "r"), *after), kept="y", **factor)
    bare = node("MatMul", "x w", "p"), after[1]
    first = diff(reference, recorded(bare, kept="y", **factor)).nodes[-1].findings[0]
    assert first.sentence.startswith("the reference's Relu 'n_r' is missing")
    first = diff(reference, recorded((node("Relu", "x", "r"), *after), kept="y", w=w, **factor)).nodes[-1].findings[0]
    assert (first.kind, first.evidence) == ("weight", "w")
    assert "folded in" not in first.sentence
