"""A comparison says which arithmetic reproduces each differing node, and counts that in its derived limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdebug.arithmetic.presets import preset
from qdebug.arithmetic.reproduce import ReproductionCheck, Trial
from qdebug.compare.result.limits import Limits
from qdebug.compare.result.result import Status
from qdebug.errors import KernelError
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, TensorInfo
from qdebug.model.thresholds.explanation import VARIANTS_TRIED_FIRST
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
    node = compared(*sides(COARSE))
    assert node.introduced.max_lsb > 5
    assert node.reproduced is True
    assert "power of two" in node.explained
    assert node.status is Status.WITHIN
    assert node.samples[0].status is Status.WITHIN


def test_what_a_known_arithmetic_costs_is_said_and_is_the_origin_where_the_output_suffers():
    node = compared(*sides(COARSE))
    (cost,) = node.findings
    assert (cost.kind, cost.role, cost.limit, cost.unit) == ("arithmetic", "cost", 1.5, "LSB")
    assert cost.amount == node.judged.amount > 20
    assert cost.sentence.endswith(f"a known arithmetic gives the same bits: {node.explained}")
    short, enough = (DiffSession(*sides(COARSE), limits=Limits(min_output_sqnr=db)).result() for db in (20, 10))
    assert (enough.status, enough.origin) == (Status.WITHIN, None)
    assert (short.status, short.origin) == (Status.ACCUMULATED, "fc")
    assert cost.sentence in short.verdict.sentence


@pytest.mark.parametrize("columns", [2, 64])
def test_sums_that_saturate_are_believed_in_small_nodes_too(columns):
    wide = QuantParams(dtype="int8", scale=np.float32(1.5), zero_point=-3)
    node = compared(*sides("acc=pairsat16:hwc", columns=columns, most=127, y=wide, step=wide.scale))
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


def test_a_small_sibling_of_a_large_node_is_believed():
    _, backend = sides(COARSE)
    small = sides(COARSE, columns=2)[1]
    looked = ReproductionCheck(backend)
    assert looked.reproduce(SUM, "y").firm
    looked._recording = small
    looked._units = None
    assert looked.reproduce(SUM, "y").firm


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
    assert looked.last.enough == (columns >= 16)


KNOWN = tuple(map(parse_variant, ("", "m=f64", "m=q31", "m=q15", "m=pow2", "m=bf16")))
KEY = ("MatMul", ("int8", "int8", "int8"))


def learnt(order):
    """Return a check that tries some variants first, in this order."""
    check, first = ReproductionCheck(MemoryRecording.single(Graph([]), {})), ()
    for variant in reversed(order):
        assert check.adopt(Trial(key=KEY, first=first, found=variant, enough=False, firm=False))
        first = (variant, *first)
    return check


@given(
    st.lists(st.sampled_from(KNOWN), unique=True, max_size=VARIANTS_TRIED_FIRST),
    st.lists(st.sampled_from(KNOWN), unique=True, max_size=VARIANTS_TRIED_FIRST),
    st.sets(st.sampled_from(KNOWN)),
)
def test_what_somebody_else_found_counts_only_where_a_search_here_finds_the_same(here, there, fitting):
    def search(first):
        return next((variant for variant in (*first, *KNOWN) if variant in fitting), None)

    found = search(there)
    trial = Trial(key=KEY, first=tuple(there), found=found, enough=False, firm=False)
    adopted = learnt(here).adopt(trial)
    assert adopted <= (search(here) == found)
    assert adopted >= (here == there)
    assert adopted >= (found is not None and here[:1] == [found])
    assert adopted >= (set(here) <= set(there) and found not in there)


def test_what_was_found_last_is_tried_first_and_few_are_remembered():
    """A check that tried the same first agrees with whatever was found; one that tried another does not."""
    check, order = learnt(KNOWN[:VARIANTS_TRIED_FIRST]), KNOWN[:VARIANTS_TRIED_FIRST]
    for found in (KNOWN[2], KNOWN[-1], None, KNOWN[-1]):
        assert not check.adopt(Trial(key=KEY, first=(KNOWN[-2],), found=KNOWN[-2], enough=False, firm=False))
        assert check.adopt(Trial(key=KEY, first=order, found=found, enough=False, firm=False))
        if found is not None:
            order = (found, *(other for other in order if other != found))[:VARIANTS_TRIED_FIRST]


@pytest.mark.parametrize("text", ["", "acc=pairsat16:hwc"])
def test_a_variant_is_firm_from_a_node_with_many_elements_on(text):
    found = parse_variant(text)
    check = learnt([found]) if not text else ReproductionCheck(MemoryRecording.single(Graph([]), {}))
    first = () if text else (found,)

    def adopts(*, enough, firm, key=KEY):
        return check.adopt(Trial(key=key, first=first if key is KEY else (), found=found, enough=enough, firm=firm))

    limited = bool(text)
    assert not adopts(enough=False, firm=not limited)
    assert not adopts(enough=True, firm=False)
    assert adopts(enough=True, firm=True)
    first = (found,)
    assert not adopts(enough=False, firm=False)
    assert adopts(enough=False, firm=True)
    other = ("Conv", KEY[1])
    assert adopts(enough=False, firm=limited, key=other)
    nothing = Trial(key=KEY, first=first, found=None, enough=True, firm=False)
    assert check.adopt(nothing)


def test_a_node_is_computed_by_an_arithmetic_whether_or_not_it_was_asked_for_before():
    ref, backend = sides("")
    coarse = parse_variant(COARSE)
    expected = sides(COARSE)[1].load("y")
    check = ReproductionCheck(backend)
    np.testing.assert_array_equal(check.compute(SUM, "y", (0, 0), coarse), expected)
    assert check.reproduce(SUM, "y").by is not None
    np.testing.assert_array_equal(check.compute(SUM, "y", (0, 0), coarse), expected)
    with pytest.raises(KernelError, match="no quantized unit"):
        ReproductionCheck(ref).compute(SUM, "y", (0, 0), coarse)
