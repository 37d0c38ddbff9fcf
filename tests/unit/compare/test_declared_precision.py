"""A run is judged in the precision that it states, and what its format cannot hold is named."""

from __future__ import annotations

import numpy as np
import pytest

import qdebug
from qdebug.model import Graph, Node
from qdebug.replay.registry import run_node

RNG = np.random.default_rng(4)
X = np.abs(RNG.standard_normal((1, 4, 12, 12))).astype(np.float32)
X[:, :, :3] = 0
W = (0.2 * RNG.standard_normal((4, 4, 3, 3))).astype(np.float32)


def half(values):
    with np.errstate(over="ignore"):
        return values.astype(np.float16).astype(np.float32)


def recorded(nodes, constants, *, precision=None, kept=(), held=None, spoil=0.0):
    """Record nodes; of a run that states float16 each operand and result is rounded to that."""
    rounded = half if precision == "f16" else np.asarray
    held = {name: rounded(array) for name, array in {**constants, **(held or {})}.items()}
    values, options = {"x": rounded(X), **held}, {} if precision is None else {"effective_precision": precision}
    graph = Graph(nodes, inputs=["x"], outputs=[nodes[-1].outputs[0]])
    with qdebug.Recorder(None, backend="b", graph=graph, options=options) as rec:
        for name, array in constants.items():
            rec.constant(name, array)
        rec.put("x", X)
        for node in nodes:
            with np.errstate(all="ignore"):
                made = run_node(node, {name: values[name] for name in node.inputs})
            values |= {name: rounded(array) for name, array in made.items()}
            for name in node.outputs:
                if kept and name not in kept:
                    rec.skip(name, "fused", because="fused")
                else:
                    rec.put(name, values[name] + np.float32(spoil if name == nodes[-1].outputs[0] else 0))
    return rec.recording


def node(op, *names, **attrs):
    *inputs, output = names
    return Node(name=f"n_{output}", op=op, inputs=tuple(inputs), outputs=(output,), attrs=attrs)


CONV = node("Conv", "x", "w", "c", pads=(1, 1, 1, 1), kernel_shape=(3, 3))
CHAIN = [CONV, node("Relu", "c", "r"), node("Sigmoid", "r", "s"), node("Conv", "s", "w", "y", pads=(1, 1, 1, 1))]


@pytest.mark.parametrize("kept", [(), ("y",)])
def test_honest_rounding_is_no_divergence(kept):
    reference = recorded(CHAIN, {"w": W})
    assert qdebug.diff(reference, recorded(CHAIN, {"w": W}, precision="f16", kept=kept)).status == "within"


def test_an_error_beyond_the_stated_precision_is_one_still():
    reference = recorded(CHAIN, {"w": W})
    assert qdebug.diff(reference, recorded(CHAIN, {"w": W}, precision="f16", spoil=0.5)).status == "diverged"


def first_reason(nodes, constants, *, held, kept=()):
    reference = recorded(nodes, constants)
    result = qdebug.diff(reference, recorded(nodes, constants, precision="f16", held=held, kept=kept))
    (found,) = (each for each in result.nodes if each.node == result.first_divergence)
    assert "precision" in [finding.kind for finding in found.findings]
    return found.reason


def test_a_constant_beyond_the_largest_number_is_named_with_what_it_becomes():
    ones, variance = np.ones(4, np.float32), np.array([1, 1, 1, 9.8e7], np.float32)
    constants = {"w": W, "s": np.array([1, 1, 1, 1e4], np.float32), "o": 0 * ones, "m": 0 * ones, "v": variance}
    nodes = [CONV, node("BatchNormalization", *"csomv", "b"), node("Relu", "b", "y")]
    clamped = {"v": np.array([1, 1, 1, 65504], np.float32)}
    for kept in ((), ("y",)):
        said = "1 of 4 elements of constant 'v' of BatchNormalization 'n_b'"
        reason = first_reason(nodes, constants, held=clamped, kept=kept)
        assert f"{said} is beyond 65504, the largest float16 value: 9.8e+07, which becomes 65504" in reason


def test_an_epsilon_that_underflows_is_named():
    nodes = [node("Relu", "x", "r"), node("Add", "r", "e", "a"), node("Log", "a", "y")]
    constants = {"e": np.float32(1e-10)}
    reason = first_reason(nodes, constants, held={"e": np.float32(0)}, kept=("r", "y"))
    assert "constant 'e' of Add 'n_a' is 1e-10, below 5.96e-08, the smallest float16 value, and becomes 0" in reason
