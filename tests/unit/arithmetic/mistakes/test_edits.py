"""Definitions of operators compute what the kernels compute, and their edits are mistakes."""

from __future__ import annotations

import numpy as np
import pytest

from qdebug.arithmetic.definitions.catalogue import definition_of
from qdebug.arithmetic.definitions.definition import parse
from qdebug.arithmetic.mistakes.edits import edited_definitions
from qdebug.arithmetic.mistakes.mistake import MISFITS
from qdebug.model import Node
from qdebug.replay.registry import run_node

DRAWN = np.random.default_rng(5)
OPSET = {"": 23, "com.microsoft": 1}


def real(*shape):
    return DRAWN.normal(size=shape).astype(np.float32)


def node(op, *arrays, domain="", outputs=("y",), **attrs):
    """Return a node with arrays as its inputs, None where one is left out, and their values."""
    names = tuple("" if array is None else f"i{at}" for at, array in enumerate(arrays))
    values = {name: array for name, array in zip(names, arrays, strict=True) if array is not None}
    return Node(name="n", op=op, inputs=names, outputs=outputs, attrs=attrs, domain=domain), values


def layer(op, gates, *more, **attrs):
    directions = 2 if attrs.get("direction") == "bidirectional" else 1
    weights = [real(directions, gates * 6, size) for size in (5, 6)]
    return node(op, real(7, 2, 5), *weights, real(directions, 2 * gates * 6), *more, hidden_size=6, **attrs)


X, CHANNELS, HEADS = real(2, 6, 5), (real(6), real(6)), [real(2, 4, 5, 8) for _ in range(3)]
NODES = {
    "attention": node("Attention", *HEADS, is_causal=1, softcap=3.0),
    "attention with a mask": node("Attention", *HEADS, real(5, 5), scale=0.3),
    "attention with a cache": node("Attention", *HEADS, real(5, 8) > 0, *[real(2, 4, 3, 8) for _ in range(2)]),
    "attention of flat heads": node(
        "Attention", real(2, 5, 32), real(2, 5, 16), real(2, 5, 16), q_num_heads=4, kv_num_heads=2
    ),
    "batchnorm": node("BatchNormalization", X, *CHANNELS, real(6), np.abs(real(6)) + np.float32(0.1)),
    "gelu": node("Gelu", X, approximate="tanh"),
    "groupnorm": node("GroupNormalization", X, *CHANNELS, num_groups=3),
    "gru": layer("GRU", 3, None, real(1, 2, 6)),
    "gru after": layer("GRU", 3, linear_before_reset=1, direction="reverse"),
    "instancenorm": node("InstanceNormalization", X, *CHANNELS),
    "layernorm": node("LayerNormalization", X, real(5), real(5)),
    "logsoftmax": node("LogSoftmax", X, axis=1),
    "lrn": node("LRN", X, size=3, alpha=0.4),
    "lstm": layer("LSTM", 4, np.array([7, 4], np.int32), real(1, 2, 6), real(1, 2, 6), real(1, 18), clip=2.0),
    "lstm both": layer("LSTM", 4, direction="bidirectional"),
    "mod": node("Mod", np.arange(-9, 9), np.array(5)),
    "reducelogsumexp": node("ReduceLogSumExp", X, np.array([1, 2])),
    "rmsnorm": node("RMSNormalization", X, real(5)),
    "rnn": layer("RNN", 1),
    "rotary": node("RotaryEmbedding", HEADS[0], real(9, 4), real(9, 4), np.tile(np.arange(2, 7), (2, 1))),
    "softmax": node("Softmax", X),
}


def edits_of(form, values):
    right = run_node(form, values, OPSET)[form.outputs[0]]
    definition = definition_of(form, values, OPSET, form.outputs[0])
    assert definition is not None
    np.testing.assert_allclose(definition.result(definition.evaluate(definition.lines)), right, rtol=1e-4, atol=1e-5)
    return right, list(edited_definitions(form, definition, right))


@pytest.mark.parametrize(("form", "values"), NODES.values(), ids=NODES)
def test_edits_can_be_computed_and_most_change_the_result(form, values):
    right, edits = edits_of(form, values)
    assert len({mistake.likely for mistake in edits}) == len(edits) > 10
    changed = 0
    for mistake in edits:
        try:
            result = mistake.after(right)
        except MISFITS:
            continue
        changed += result.shape == right.shape and not np.allclose(result, right, rtol=1e-3, atol=1e-4)
    assert changed > len(edits) / 4


def softmax_without_last(values):
    powers = np.exp(values["i0"].astype(np.float64))
    return powers / powers[..., :-1].sum(-1, keepdims=True)


def attention_with_scale_twice(values):
    queries, keys, data = (values[f"i{at}"].astype(np.float64) for at in range(3))
    scores = queries @ keys.swapaxes(2, 3) / 8
    powers = np.exp(3 * np.tanh(scores / 3)) * np.tri(5)
    return powers / powers.sum(-1, keepdims=True) @ data


def gru_without_old_state(values):
    x, weight, recurrence, bias, _, hidden = (values.get(f"i{at}", np.zeros(1)).astype(np.float64) for at in range(6))
    state, results = hidden[0], []
    for step in x:
        read, kept = step @ weight[0].T + bias[0, :18], recurrence[0].T
        update, reset = (
            1 / (1 + np.exp(-(read[:, part] + state @ kept[:, part] + bias[0, 18:][part])))
            for part in (slice(0, 6), slice(6, 12))
        )
        candidate = np.tanh(read[:, 12:] + (reset * state) @ kept[:, 12:] + bias[0, 30:])
        state = (1 - update) * candidate
        results.append(state)
    return np.stack(results)[:, None]


@pytest.mark.parametrize(
    ("name", "wrong", "text"),
    [
        ("softmax", softmax_without_last, "the last element is left out of 'total'"),
        ("attention", attention_with_scale_twice, "'root' is applied twice"),
        ("gru", gru_without_old_state, "'update * hidden' is left out"),
    ],
)
def test_a_wrong_step_is_one_of_the_edits(name, wrong, text):
    form, values = NODES[name]
    right, edits = edits_of(form, values)
    expected = wrong(values)
    fitting = [
        mistake.likely
        for mistake in edits
        if mistake.likely.startswith(text) and np.allclose(mistake.after(right), expected, rtol=1e-5, atol=1e-6)
    ]
    assert fitting


def test_a_node_that_does_not_fit_its_definition_is_not_edited():
    form, values = NODES["softmax"]
    definition = definition_of(form, values, OPSET, "y")
    assert not list(edited_definitions(form, definition, 2 * run_node(form, values, OPSET)["y"]))
    assert definition_of(node("Conv", X, X)[0], {"i0": X, "i1": X}, OPSET, "y") is None


def test_only_assignments_are_lines():
    with pytest.raises(TypeError, match="not an assignment"):
        parse("exp(x)")
