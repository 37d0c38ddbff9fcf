"""A comparison says which arithmetic reproduces each differing node, and counts that in its derived limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qdebug.arithmetic.presets import preset
from qdebug.arithmetic.reproduce import ReproductionCheck
from qdebug.compare.result.limits import Limits
from qdebug.compare.result.result import Status
from qdebug.errors import KernelError, NotRecordedError
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, TensorInfo
from qdebug.present.sentences import arithmetic_sentence
from qdebug.replay.evaluate import compute
from qdebug.replay.unit import Operand, Target, Unit
from qdebug.replay.variant import parse_variant
from qdebug.session import DiffSession

COARSE = "m=pow2:xw/y steps=shr.floor,zp,sat"
"""A legitimate way of few bits, which introduces many steps where the multiplier is no power of two."""

SUM = Node(name="fc", op="MatMul", inputs=("x", "w"), outputs=("y",))
X = QuantParams(dtype="int8", scale=np.float32(0.05), zero_point=0)
W = QuantParams(dtype="int8", scale=np.float32(0.013), zero_point=0)
Y = QuantParams(dtype="int8", scale=np.float32(0.05), zero_point=-3)


def sides(variant, *, columns=64, most=60, fault=None, y=Y, step=Y.scale):
    """Return a float run and a run on codes by a variant, of one matrix product."""
    rng = np.random.default_rng(3)
    x = rng.integers(-most, most, (4, 24), dtype=np.int8)
    w = rng.integers(-30, 30, (24, columns), dtype=np.int8) if most < 127 else np.full((24, columns), 127, np.int8)
    zero = np.zeros((), np.int8)
    operands = (
        Operand(codes=x, scale=X.scale.reshape(()), zero_point=zero),
        Operand(codes=w, scale=W.scale.reshape(()), zero_point=zero),
    )
    out = Target(dtype=np.dtype(np.int8), scale=step.reshape(()), zero_point=np.asarray(-3, np.int8))
    codes = compute(Unit(kind="linear", operands=operands, out=out, op="MatMul"), parse_variant(variant))
    codes = codes if fault is None else fault(codes.copy())
    real = {"x": x * np.float32(0.05), "w": w * np.float32(0.013)}
    exact = (real["x"] @ real["w"]).astype(np.float32)
    ref = MemoryRecording.single(Graph([SUM], inputs=["x", "w"], outputs=["y"]), {**real, "y": exact})
    quants = {"x": X, "w": W, "y": y}
    tensors = [TensorInfo(name=name, dtype="int8", quant=quant) for name, quant in quants.items()]
    graph = Graph([SUM], tensors=tensors, inputs=["x", "w"], outputs=["y"])
    return ref, MemoryRecording.single(graph, {"x": x, "w": w, "y": codes})


def compared(*runs, **limits):
    result = DiffSession(*runs, limits=Limits(**limits)).result()
    return next(node for node in result.nodes if node.tensor == "y")


def test_a_node_is_within_if_a_known_arithmetic_gives_its_codes():
    node = compared(*sides(COARSE), min_output_sqnr=10)
    assert node.introduced.max_lsb > 5
    assert node.reproduced is True
    assert "power of two" in node.explained
    assert node.status is Status.WITHIN
    assert node.samples[0].status is Status.WITHIN


def test_what_a_known_arithmetic_costs_is_said_and_diverges_where_it_alone_ruins_the_output():
    node = compared(*sides(COARSE), min_output_sqnr=10)
    (cost,) = node.findings
    assert (cost.kind, cost.role, cost.limit, cost.unit) == ("arithmetic", "cost", 1.5, "LSB")
    assert cost.amount == node.judged.amount > 20
    assert cost.sentence.startswith(f"every bit is reproduced by {node.explained}; ")
    short, enough = (DiffSession(*sides(COARSE), limits=Limits(min_output_sqnr=db)).result() for db in (20, 10))
    assert (enough.status, enough.origin) == (Status.WITHIN, None)
    assert enough.verdict.remarks[-1] == f"At MatMul 'fc', {cost.sentence}."
    assert (short.status, short.first_divergence, short.origin) == (Status.DIVERGED, "fc", "fc")
    assert short.verdict.sentence.startswith(f"The backend diverges first at MatMul 'fc' (tensor 'y'): {cost.sentence}")
    assert "nearly all of the error of the output 'y'" in short.verdict.sentence
    (row,) = (each for each in short.nodes if each.tensor == "y")
    assert (row.status, row.samples[0].status) == (Status.DIVERGED, Status.DIVERGED)
    assert short.verdict.contributors[0].node == "fc"


def test_what_a_known_arithmetic_ruins_is_not_accused_where_inputs_differ():
    runs = []
    for sign, side in zip((1, -1), sides(COARSE), strict=True):
        graph = Graph(side.graph.nodes, tensors=side.graph.tensors.values(), inputs=["x", "w", "other"], outputs=["y"])
        arrays = {name: side.load(name) for name in ("x", "w", "y")}
        runs.append(MemoryRecording.single(graph, {**arrays, "other": np.full(8, sign, np.float32)}))
    result = DiffSession(*runs, limits=Limits(min_output_sqnr=20)).result()
    assert (result.status, result.origin) == (Status.INCOMPLETE, None)
    assert "No node is blamed" in result.verdict.sentence
    assert [node.tensor for node in result.nodes if node.status is Status.DIVERGED] == []


@pytest.mark.parametrize("columns", [2, 64])
def test_sums_that_saturate_are_believed_in_small_nodes_too(columns):
    wide = QuantParams(dtype="int8", scale=np.float32(1.5), zero_point=-3)
    node = compared(*sides("acc=pairsat16:hwc", columns=columns, most=127, y=wide, step=wide.scale), min_output_sqnr=0)
    assert node.judged.amount > 1.5
    assert (node.status, node.findings[0].role) == (Status.WITHIN, "cost")


def test_an_arithmetic_that_rounds_once_costs_nothing():
    assert not compared(*sides("")).findings


def test_without_the_search_the_same_node_diverges():
    node = compared(*sides(COARSE), explain=False)
    assert node.status is Status.DIVERGED
    assert node.reproduced is None
    assert node.explained is None


def test_a_wrong_code_is_not_reproduced():
    def fault(codes):
        codes[2, 5:9] += 40
        return codes

    node = compared(*sides("", fault=fault))
    assert node.reproduced is False
    assert node.explained is None
    assert node.status is Status.DIVERGED


def test_limits_that_are_given_hold_whatever_reproduces():
    node = compared(*sides(COARSE), max_lsb=2.0)
    assert node.reproduced is True
    assert node.status is Status.DIVERGED


def test_a_few_elements_prove_nothing():
    """Eight codes may fit one of a hundred ways by chance: named, but no excuse."""
    node = compared(*sides(COARSE, columns=2))
    assert node.reproduced is True
    assert node.status is Status.DIVERGED


def siblings(*runs):
    """Return a run on codes of several products, each of a run of its own, whatever their sizes."""
    nodes, arrays, tensors = [], {}, []
    for number, run in enumerate(runs):
        names = {name: f"{name}{number}" for name in ("x", "w", "y")}
        nodes.append(Node(name=f"fc{number}", op="MatMul", inputs=(names["x"], names["w"]), outputs=(names["y"],)))
        for name, new in names.items():
            arrays[new] = run.load(name)
            tensors.append(replace(run.graph.tensors[name], name=new))
    inputs = [name for node in nodes for name in node.inputs]
    graph = Graph(nodes, tensors=tensors, inputs=inputs, outputs=[node.outputs[0] for node in nodes])
    return MemoryRecording.single(graph, arrays)


def answers(run, order):
    looked = ReproductionCheck(run)
    return {at: looked.reproduce(run.graph.nodes[at], f"y{at}") for at in order}


def test_a_small_sibling_of_a_large_node_is_believed():
    small, large = (sides(COARSE, columns=columns)[1] for columns in (2, 64))
    found = answers(siblings(small, large), (0, 1))
    assert [found[at].firm for at in (0, 1)] == [True, True]
    assert found[0].variant == found[1].variant
    assert not answers(siblings(small), (0,))[0].firm
    assert not answers(siblings(small, sides("acc=pairsat16:hwc", most=127)[1]), (0,))[0].firm


def test_of_several_arithmetics_that_fit_the_one_of_all_siblings_is_named():
    text = "m=q31:d:xw/y steps=mul,shr.tosa,zp,sat"
    plain, telling = (sides(text, most=most)[1] for most in (5, 60))
    alone, together = answers(siblings(plain), (0,))[0], answers(siblings(plain, telling), (0, 1))
    assert alone.variant != parse_variant(text)
    assert {found.variant for found in together.values()} == {parse_variant(text)}


def test_a_large_node_that_nothing_reproduces_proves_nothing_of_its_small_sibling():
    def fault(codes):
        codes[2, 5:9] += 40
        return codes

    run = siblings(sides(COARSE, columns=2)[1], sides(COARSE, fault=fault)[1])
    found = answers(run, (0, 1))
    assert (found[0].by is not None, found[0].firm, found[1].by) == (True, False, None)


@pytest.mark.parametrize("texts", [(COARSE, "", COARSE), ("", COARSE, "acc=pairsat16:hwc"), ("m=f64", COARSE, "")])
def test_an_answer_does_not_depend_on_what_was_asked_before(texts):
    runs = [sides(text, columns=columns)[1] for text, columns in zip(texts, (2, 64, 48), strict=True)]
    run = siblings(*runs, sides(texts[1], columns=3)[1])
    alone = {at: answers(run, (at,))[at] for at in range(4)}
    assert answers(run, (0, 1, 2, 3)) == alone
    assert answers(run, (3, 2, 1, 0)) == alone


def test_values_that_are_missing_are_not_looked_for():
    ref, backend = sides("")
    bare = MemoryRecording.single(backend.graph, {name: backend.load(name) for name in ("x", "y")})
    assert ReproductionCheck(bare).reproduce(SUM, "y") is None
    assert ReproductionCheck(ref).reproduce(SUM, "y") is None


@pytest.mark.parametrize("name", ["ort-mlas", "tflite-reference", "glow-cpu", "onednn"])
def test_known_backends_are_reproduced(name):
    assert compared(*sides(str(preset(name).variant("linear")))).reproduced is True


def test_the_report_sums_up_what_reproduces(made):
    by_float, by_q31 = "float32 multiplier, ties to even", "31-bit multiplier"
    nodes = [
        *(made.node(i, explained=by_float, reproduced=True) for i in range(3)),
        made.node(3, explained=by_q31, reproduced=True),
        made.node(4, reproduced=False),
        made.node(5),
    ]
    said = arithmetic_sentence(nodes)
    assert said.startswith("4 of 5 differing quantized nodes reproduced bit for bit: ")
    assert f"3 nodes: {by_float}; 1 node: {by_q31}; 1 unexplained" in said
    assert arithmetic_sentence([made.node(0)]) is None


@pytest.mark.parametrize(
    ("text", "columns", "named", "firmly"),
    [
        ("", 16, True, True),  # 4 rows of 16 columns are 64 elements
        ("", 15, True, False),
        ("steps=mul,shr.floor,bias,zp,sat m=q15", 64, False, False),
        ("acc=pairsat16:hwc", 2, True, True),  # sums of few bits are far off where they say
    ],
)
def test_an_arithmetic_that_is_asked_for_firmly_fits_many_elements_or_is_none(text, columns, named, firmly):
    most = 127 if text.startswith("acc") else 60
    step = np.float32(1.5) if text.startswith("acc") else Y.scale
    quant = QuantParams(dtype="int8", scale=step, zero_point=-3)
    _, backend = sides("" if not named else text, columns=columns, most=most, y=quant, step=step)
    if not named:
        codes = np.random.default_rng(0).integers(-9, 9, (4, columns), dtype=np.int8)
        arrays = {name: backend.load(name) for name in ("x", "w")}
        backend = MemoryRecording.single(backend.graph, arrays | {"y": codes})
    looked = ReproductionCheck(backend)
    assert (looked.variant(SUM, "y") is not None) == named
    assert (looked.variant(SUM, "y", firmly=True) is not None) == firmly
    first = parse_variant("acc=pairsat16:hwc" if named and firmly and most == 127 else "")
    assert looked.variant(SUM, "y", first, firmly=True) == (first if firmly else None)
    answer = looked.reproduce(SUM, "y")
    assert (answer.by is not None, answer.firm) == (named, firmly)


def test_a_node_is_computed_by_an_arithmetic_whether_or_not_it_was_asked_for_before():
    ref, backend = sides("")
    coarse = parse_variant(COARSE)
    expected = sides(COARSE)[1].load("y")
    check = ReproductionCheck(backend)
    np.testing.assert_array_equal(check.compute(SUM, "y", (0, 0), coarse), expected)
    assert check.reproduce(SUM, "y").by is not None
    np.testing.assert_array_equal(check.compute(SUM, "y", (0, 0), coarse), expected)
    with pytest.raises(KernelError, match="not a quantized unit"):
        ReproductionCheck(ref).compute(SUM, "y", (0, 0), coarse)


def test_samples_that_are_computed_together_are_given_one_by_one():
    _, be = sides(COARSE)
    codes = {name: be.load(name) for name in ("x", "w", "y")}
    arrays = {(name, at, 0): np.roll(codes[name], at, axis=1) for name in ("x", "y") for at in range(5)}
    check = ReproductionCheck(MemoryRecording(be.graph, {("w", at, 0): codes["w"] for at in range(5)} | arrays))
    coarse, places = parse_variant(COARSE), [(0, 0), (2, 0), (4, 0)]
    each = dict(check.compute_each(SUM, "y", places, coarse))
    assert [*each] == places
    for place, values in each.items():
        np.testing.assert_array_equal(values, check.compute(SUM, "y", place, coarse).reshape(-1))
    with pytest.raises(NotRecordedError):
        next(check.compute_each(SUM, "y", [(7, 0)], coarse))
