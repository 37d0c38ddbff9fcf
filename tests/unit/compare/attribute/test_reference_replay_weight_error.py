"""What is known of a weight's error leaves less room than what rounding may make of it."""

import numpy as np
import pytest

from qdebug.api import diff
from qdebug.compare.result.result import Status
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.replay import run_node

RNG = np.random.default_rng(12)
X = RNG.normal(size=(16, 48)).astype(np.float32)
W = RNG.normal(size=(48, 24)).astype(np.float32) * np.float32(0.02)
STEP = np.float32(np.abs(W).max() / 20)
"""A step so coarse that rounding to it may change the product by as much as the values below."""
CODES = np.rint(W / STEP).astype(np.int8)


def node(op, inputs, outputs):
    return Node(name=f"n_{outputs}", op=op, inputs=tuple(inputs.split()), outputs=(outputs,))


def recorded(nodes, weight, *, off=1.0):
    """Record a product with a weight, which is in codes if it holds integers, of a scale that may be off.

    With a factor for each column of the weight, there is a scale for each.
    """
    coded = weight.dtype == np.int8
    step, axis = STEP * np.float32(off), 1 if np.ndim(off) else None
    values = {"x": X, "s": step, "z": np.zeros(np.shape(step), np.int8), "w_q" if coded else "w": weight}
    nodes = ((node("DequantizeLinear", "w_q s z", "w"),) if coded else ()) + nodes
    for each in nodes:
        values.update(run_node(each, values, {"": 18}))
    constants = [name for name in values if name in ("s", "z", "w_q") or (name == "w" and not coded)]
    quant = QuantParams(dtype="int8", scale=step, axis=axis)
    infos = [TensorInfo(name=n, role=Role.CONSTANT, quant=quant if n == "w_q" else None) for n in constants]
    graph = Graph(
        nodes,
        tensors=[TensorInfo(name="x", role=Role.INPUT), *infos],
        inputs=("x",),
        outputs=nodes[-1].outputs,
        opset={"": 18},
    )
    return MemoryRecording.single(graph, {name: np.asarray(array) for name, array in values.items()})


PRODUCT = (node("MatMul", "x w", "p"),)
BENT = (node("MatMul", "x w", "p"), node("Tanh", "p", "y"))


def test_nothing_is_allowed_for_where_both_round_alike():
    """Rounding the weight could bend the result by more than the missing Tanh does; but no weight was rounded anew."""
    missing = recorded((node("MatMul", "x w", "y"),), CODES)
    result = diff(recorded(BENT, CODES), missing)
    assert result.origin == "n_y", result.verdict.sentence
    assert (
        "the reference's Tanh is missing here; without Tanh, the reference's nodes reproduce the recorded values"
        in result.verdict.sentence
    )
    assert diff(recorded(BENT, CODES), recorded(BENT, CODES)).status is Status.IDENTICAL


def test_rounding_as_such_is_still_none_of_its_business():
    result = diff(recorded(PRODUCT, W), recorded(PRODUCT, CODES))
    assert [entry.declared for entry in result.nodes if entry.tensor == "p"] == [None]
    assert result.status is Status.WITHIN, result.verdict.sentence


def test_a_weight_that_no_rounding_makes_needs_less_to_be_named():
    """The bound of rounding is for what cannot be told from it; a scale that is a little off can."""
    result = diff(recorded(PRODUCT, W), recorded(PRODUCT, CODES, off=1.12))
    assert result.origin == "n_p", result.verdict.sentence
    assert "the scale 's' of its weight 'w' is 1.12 times the reference's" in result.verdict.sentence


def test_a_channel_of_nothing_is_no_other_weight():
    """A channel of 1e-35 has no codes but 0: what other channels are rounded by is held to the usual bound."""
    scales = np.abs(W).max(0) / np.float32(20) / STEP
    weight, codes = W.copy(), np.rint(W / (STEP * scales)).astype(np.int8)
    weight[:, 5] *= np.float32(1e-34)
    wrong = diff(recorded(PRODUCT, weight), recorded(PRODUCT, codes, off=scales))
    assert "of weight 'w' differ from the reference" in str(wrong.nodes[-1].declared)
    codes[:, 5], scales[5] = 0, 1 / STEP
    result = diff(recorded(PRODUCT, weight), recorded(PRODUCT, codes, off=scales))
    assert [entry.declared for entry in result.nodes if entry.tensor == "p"] == [None]


MANY = 1200
DARK = (RNG.uniform(3, 4, size=(16, MANY))).astype(np.float32)
FAINT = np.full((MANY, 24), 0.0042, np.float32)  # far below half a code beside those that the scale is for
FAINT[::25] = 3 * RNG.normal(size=FAINT[::25].shape)


def faint(*, coded=None, wrong=False, x=DARK):
    """Record a product whose weights are mostly rounded to 0, on data of one sign: the errors add up."""
    step = np.float32(np.abs(FAINT).max() / 127)
    codes = np.rint(FAINT / step).astype(np.int8)
    if wrong:
        codes[7] += 1
    quant = QuantParams(dtype="int8", scale=step, zero_point=0)
    product, values = node("MatMul", "x w", "p"), {"x": x}
    nodes = [product]
    if coded == "weight":
        nodes = [node("DequantizeLinear", "w_q s z", "w"), product]
    elif coded == "data":
        nodes = [
            Node(name="dql", op="DynamicQuantizeLinear", inputs=("x",), outputs=("x_q", "x_s", "x_z")),
            node("MatMulInteger", "x_q w_q x_z z", "acc"),
            Node(name="cast", op="Cast", inputs=("acc",), outputs=("real",), attrs={"to": 1}),
            node("Mul", "x_s s", "both"),
            node("Mul", "real both", "p"),
        ]
    given = {"w_q": codes, "s": np.asarray(step), "z": np.asarray(0, np.int8)} if coded else {"w": FAINT}
    values |= given
    for each in nodes:
        values.update(run_node(each, values, {"": 18}))
    infos = [
        TensorInfo(name=n, role=Role.CONSTANT, quant=quant if n == "w_q" else None, dtype=str(values[n].dtype))
        for n in given
    ]
    graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=nodes[-1].outputs, opset={"": 18})
    return MemoryRecording.single(graph, {name: np.asarray(array) for name, array in values.items()})


@pytest.mark.parametrize("coded", ["weight", "data"])
def test_errors_of_weights_that_add_up_are_rounding_all_the_same(coded):
    """That no more than half a code of each weight is off is known; no chance is in it."""
    real, codes = faint(), faint(coded=coded)
    off = np.abs(real.load("p") - codes.load("p")).mean()
    by_chance = 0.0042 * np.sqrt((DARK**2).sum(-1)).mean()
    assert off > 8 * by_chance
    assert diff(real, codes).first_divergence is None
    assert diff(real, faint(coded=coded, wrong=True)).status is Status.DIVERGED


DIM = RNG.normal(0.4, 3.5, size=DARK.shape).astype(np.float32)


def biased(*, coded=False, off=0.0):
    """Record a product as in `faint`, on data less of one sign, and a bias that may be off."""
    made = faint(coded="weight" if coded else None, x=DIM)
    nodes = [*(n for n in made.graph.nodes if n.op == "DequantizeLinear"), node("Gemm", "x w b", "p")]
    values = {name: made.load(name) for name in made.names if name != "p"}
    values["b"] = np.linspace(-2, 2, 24, dtype=np.float32) + np.float32(off)
    values.update(run_node(nodes[-1], values, {"": 18}))
    infos = [made.graph.tensors[name] for name in values if name in made.graph.tensors and name != "p"]
    infos.append(TensorInfo(name="b", role=Role.CONSTANT))
    graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=("p",), opset={"": 18})
    return MemoryRecording.single(graph, values)


def test_what_a_weight_s_rounding_makes_is_not_put_down_to_another_constant():
    """A bias that is off by next to nothing is no reason to hold what rounding makes of the sums against the node."""
    assert diff(biased(), biased(coded=True, off=1e-4)).status is Status.WITHIN
    assert diff(biased(), biased(coded=True, off=9.0)).status is Status.DIVERGED
