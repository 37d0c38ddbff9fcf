"""Errors that accumulate: an output beyond its limit though no node is, and what each node contributes to it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.compare.contributions import contributions
from qdebug.compare.graph_checks.graph_check import GraphCheck
from qdebug.compare.result.finding import FindingRole, Status
from qdebug.compare.result.limits import Acknowledgement, LimitRule, Limits
from qdebug.compare.result.result_table import ResultTable
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.numerics.affine import quantize
from qdebug.session import DiffSession

QUANT = QuantParams(dtype="int8", scale=0.25, zero_point=0)
"""So coarse that values of standard deviation 0.5 keep about 17 dB."""


def three(rng, errors=(0.0, 0.0, 0.0), op="Relu"):
    """Return a net of a product, an activation and a product, run with an error after each; and its weights."""
    x, first, second = (rng.standard_normal(shape) for shape in ((4, 8), (8, 16), (16, 3)))
    hidden = x @ first + errors[0]
    active = np.maximum(hidden, 0) + errors[1]
    graph = Graph(
        [
            Node(name="first", op="MatMul", inputs=("x", "a"), outputs=("h",)),
            Node(name="active", op=op, inputs=("h",), outputs=("r",)),
            Node(name="second", op="MatMul", inputs=("r", "b"), outputs=("y",)),
        ],
        tensors=[TensorInfo(name=name, role=Role.CONSTANT) for name in "ab"],
        inputs=("x",),
        outputs=("y",),
    )
    values = {"x": x, "a": first, "b": second, "h": hidden, "r": active, "y": active @ second + errors[2]}
    return MemoryRecording.single(graph, values)


def found(reference, backend, most=None):
    session = DiffSession(reference, backend)
    of, plan = ResultTable(tuple(session.results())), session.entries()
    graphs = GraphCheck(reference, backend, session.alignment.pairs)
    return contributions(graphs, plan, of, next(each for each in plan if each.tensor == "y"), max_work=most)


@drawn(25)
@given(st.integers(0, 2**32), st.tuples(*[st.floats(1e-3, 1.0)] * 3))
def test_each_contribution_is_what_the_error_alone_makes_of_the_output(seed, sizes):
    def drawn():
        return np.random.default_rng(seed)

    noise = np.random.default_rng(seed + 1)
    errors = [
        size * noise.standard_normal(shape) for size, shape in zip(sizes, ((4, 16), (4, 16), (4, 3)), strict=True)
    ]
    reference, backend = three(drawn()), three(drawn(), errors)
    y, b, h = (reference.load(name) for name in "ybh")
    alone = {
        "first": np.maximum(h + errors[0], 0) @ b,
        "active": (np.maximum(h, 0) + errors[1]) @ b,
        "second": y + errors[2],
    }
    known = {name: 10 * math.log10(np.sum(y**2) / np.sum((made - y) ** 2)) for name, made in alone.items()}
    made = found(reference, backend)
    assert (made.unknown, {each.how for each in made.nodes}) == (0, {"exact"})
    assert {each.node: each.sqnr_db for each in made.nodes} == pytest.approx(known, abs=1e-3)
    assert [each.node for each in made.nodes] == sorted(known, key=known.get)


def test_what_only_ruins_an_output_together_is_told_and_what_is_left_without_it():
    """Each of three errors leaves more than 20 dB; all of one sign, they leave less, and without them all is there."""
    x = np.random.default_rng(7).standard_normal((1, 400)).astype(np.float32)
    names = ("a", "b", "c", "y")
    nodes = [
        Node(name=name, op="Add", inputs=("x" if name == "a" else names[at - 1], "none"), outputs=(name,))
        for at, name in enumerate(names)
    ]
    infos = [TensorInfo(name="none", role=Role.CONSTANT)]
    graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=("y",))
    none = {"none": np.zeros(1, np.float32)}
    reference = MemoryRecording.single(graph, {"x": x, **dict.fromkeys(names, x), **none})
    share = np.float32(0.06)
    values, sums = {}, x
    for name, off in zip(names, (share, share, share, share / 100), strict=True):
        sums = sums + off * x
        values[name] = sums
    backend = MemoryRecording.single(graph, {"x": x, **values, **none})
    made = found(reference, backend)
    assert made.together is not None
    assert set(made.together.nodes) == {"a", "b", "c"}
    assert min(each.sqnr_db for each in made.nodes) > 20
    assert made.together.sqnr_db == pytest.approx(-20 * math.log10(0.18), abs=0.01)
    assert made.together.without_db == pytest.approx(-20 * math.log10(0.0006), abs=0.01)


def test_where_it_is_too_much_work_or_a_kernel_is_missing_the_contribution_is_a_bound_and_it_is_said_why():
    rng = np.random.default_rng
    errors = [0.1 * rng(2).standard_normal((4, 16)), 0.0, 0.0]
    late = found(three(rng(1)), three(rng(1), errors), most=100.0)
    assert [(each.node, each.how) for each in late.nodes] == [("first", "bounded")]
    assert late.why == ("replaying all nodes would take too long",)
    odd = found(three(rng(1), op="Mystery"), three(rng(1), errors, op="Mystery"))
    assert [(each.node, each.how) for each in odd.nodes] == [("first", "bounded")]
    assert {"Mystery" in reason for reason in odd.why} == {True}


def coarse(*, dtype="int8"):
    """Return a sum of two inputs and one that is rounded to few codes, each of which is right."""
    rng = np.random.default_rng(3)
    one, other = (rng.normal(0, 0.35, (1, 500)).astype(np.float32) for _ in range(2))
    node = Node(name="sum", op="Add", inputs=("x", "z"), outputs=("y",))

    def run(values, quant=None):
        info = [TensorInfo(name="y", quant=quant)]
        graph = Graph([node], tensors=info, inputs=("x", "z"), outputs=("y",))
        return MemoryRecording.single(graph, {"x": one, "z": other, "y": values})

    return run(one + other), run(quantize(one + other, QUANT), QUANT)


def test_an_output_below_20_db_fails_though_no_node_is_beyond_its_limit():
    result = DiffSession(*coarse()).result()
    (made,) = [node for node in result.nodes if node.tensor == "y"]
    assert (made.status, made.metrics.max_lsb <= 0.5) == (Status.WITHIN, True)
    assert (result.status, result.exit_code, result.first_divergence) == (Status.ACCUMULATED, 1, None)
    assert f"'y' has an SQNR of {made.metrics.sqnr_db:.3g} dB, below 20 dB" in result.verdict.sentence
    said = "Costliest node, with the output's SQNR if only that node had an error: 'sum' "
    assert said in result.verdict.sentence
    (contributor,) = result.verdict.contributors
    assert (contributor.node, contributor.how) == ("sum", "exact")
    assert contributor.sqnr_db == pytest.approx(made.metrics.sqnr_db, abs=0.01)
    assert result.to_dict()["verdict"]["contributors"] == [contributor.to_dict()]


@pytest.mark.parametrize(
    ("limits", "status"),
    [
        (Limits(min_output_sqnr=10), Status.WITHIN),
        (Limits(min_output_sqnr=-math.inf), Status.WITHIN),
        (Limits(max_lsb=1), Status.WITHIN),  # the user's limits judge alone
        (Limits(max_lsb=1, min_output_sqnr=20), Status.ACCUMULATED),
        (Limits(rules=(LimitRule(tensor="y", max_lsb=1),)), Status.WITHIN),
        (Limits(rules=(LimitRule(tensor="y", max_lsb=1),), min_output_sqnr=20), Status.ACCUMULATED),
        (Limits(acknowledged=(Acknowledgement(node="sum", reason="8 levels"),)), Status.WITHIN),
    ],
)
def test_the_limit_of_outputs_can_be_set_and_gives_way(limits, status):
    assert DiffSession(*coarse(), limits=limits).result().status is status


def test_a_node_beyond_its_limit_comes_first():
    reference, backend = coarse()
    codes = backend.load("y").copy()
    codes[0, 0] += 9
    wrong = MemoryRecording.single(backend.graph, {name: backend.load(name) for name in "xz"} | {"y": codes})
    result = DiffSession(reference, wrong).result()
    assert (result.status, result.verdict.contributors) == (Status.DIVERGED, ())


def lossy(step=None, *, kept="xqdmy", wrong=0.0):
    """Run a chain whose middle is in codes of a step, if any, and whose output hardly depends on it."""
    x = np.random.default_rng(3).uniform(-1, 1, (4, 16)).astype(np.float32)
    constants = {"a": np.float32(0.01), "b": np.float32(1)}
    nodes = [
        Node(name="m", op="Mul", inputs=("x" if step is None else "d", "a"), outputs=("m",)),
        Node(name="y", op="Add", inputs=("m", "b"), outputs=("y",)),
    ]
    arrays, infos = {"x": x, "d": x}, []
    if step is not None:
        constants |= {"s": np.float32(step), "z": np.int8(0)}
        arrays["q"] = np.rint(x / constants["s"]).astype(np.int8)
        arrays["d"] = arrays["q"] * constants["s"]
        nodes.insert(0, Node(name="q", op="QuantizeLinear", inputs=("x", "s", "z"), outputs=("q",)))
        nodes.insert(1, Node(name="d", op="DequantizeLinear", inputs=("q", "s", "z"), outputs=("d",)))
        infos.append(TensorInfo(name="q", quant=QuantParams(dtype="int8", scale=constants["s"], zero_point=0)))
    arrays["m"] = arrays["d"] * constants["a"]
    arrays["y"] = arrays["m"] + constants["b"] + np.float32(wrong)
    infos += [TensorInfo(name=name, role=Role.CONSTANT) for name in constants]
    graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=("y",), opset={"": 17})
    tensors = {name: arrays[name] for name in kept if graph.producer(name) is not None or name == "x"}
    return MemoryRecording.single(graph, tensors | constants)


def test_codes_that_do_not_fit_count_only_if_an_output_suffers():
    result = DiffSession(lossy(), lossy(1.5), limits=Limits(allow_uncompared=9)).result()
    found = [found for node in result.nodes for found in node.findings if found.role is FindingRole.COST]
    assert found
    assert found[0].sentence.startswith("rounding the reference's values to its codes leaves an SQNR of")
    assert (result.status, result.origin, result.exit_code) == (Status.WITHIN, None, 0)


def test_codes_that_do_not_fit_count_where_no_output_was_compared():
    result = DiffSession(lossy(), lossy(1.5, kept="xqdm"), limits=Limits(allow_uncompared=9)).result()
    assert (result.status, result.origin, result.exit_code) == (Status.ACCUMULATED, "q", 1)
    assert "No output that depends on it was compared." in result.verdict.sentence


def test_a_wrong_node_comes_before_codes_that_do_not_fit():
    result = DiffSession(lossy(), lossy(1.5, wrong=0.5), limits=Limits(allow_uncompared=9)).result()
    assert (result.status, result.origin) == (Status.DIVERGED, "y")


def test_what_an_accepted_node_makes_of_an_output_is_accepted_too_unless_outputs_have_a_limit_of_the_user():
    rng = np.random.default_rng
    wrong = three(rng(1), [np.zeros((4, 16)), 3 * rng(2).standard_normal((4, 16)), 0.0])
    known = (Acknowledgement(node="active", reason="its table has 16 entries"),)
    result = DiffSession(three(rng(1)), wrong, limits=Limits(acknowledged=known)).result()
    assert result.nodes[-1].metrics.sqnr_db < 20
    assert (result.status, result.exit_code) == (Status.WITHIN, 0)
    strict = Limits(acknowledged=known, min_output_sqnr=20)
    assert DiffSession(three(rng(1)), wrong, limits=strict).result().status is Status.ACCUMULATED


def test_integers_that_are_no_codes_have_no_sqnr_to_speak_of():
    rng = np.random.default_rng(5)
    values = rng.standard_normal((6, 10)).astype(np.float32)
    node = Node(name="best", op="ArgMax", inputs=("x",), outputs=("y",), attrs={"axis": 1, "keepdims": 0})
    graph = Graph([node], tensors=[TensorInfo(name="y", dtype="int64")], inputs=("x",), outputs=("y",))
    sides = [
        MemoryRecording.single(graph, {"x": each, "y": each.argmax(1)})
        for each in (values, values + 1.5 * rng.standard_normal((6, 10)).astype(np.float32))
    ]
    result = DiffSession(*sides, limits=Limits(rules=(LimitRule(tensor="x", min_sqnr=-100),))).result()
    assert result.nodes[-1].metrics.sqnr_db < 20
    assert result.status is Status.WITHIN
