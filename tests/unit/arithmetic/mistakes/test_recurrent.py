"""Recurrent layers with wrong directions, lengths, states and gates."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from qdebug.arithmetic.mistakes.recurrent import recurrent_mistakes
from qdebug.errors import KernelError
from qdebug.model import Node
from qdebug.replay import run_node

RNG = np.random.default_rng(13)
OPSET = {"": 21}
STEPS, BATCH, WIDTH, HIDDEN = 5, 3, 4, 2
LENGTHS = np.array([5, 2, 3], np.int32)


def inputs(gates, directions):
    shapes = {
        "x": (STEPS, BATCH, WIDTH), "w": (directions, gates * HIDDEN, WIDTH), "r": (directions, gates * HIDDEN, HIDDEN),
        "b": (directions, 2 * gates * HIDDEN), "h": (directions, BATCH, HIDDEN),
    }  # fmt: skip
    return {name: RNG.normal(size=shape).astype(np.float32) for name, shape in shapes.items()} | {"n": LENGTHS}


def layer(op, names, direction, outputs=("y", "state")):
    attrs = {"hidden_size": HIDDEN, "direction": direction}
    return Node(name="n", op=op, inputs=names, outputs=outputs, attrs=attrs)


def made(node, values, output="y"):
    results = {}
    for each in recurrent_mistakes(node, values, OPSET):
        with suppress(KernelError):  # some activations need parameters
            computed = run_node(each.node, {**values, **each.values}, OPSET)[output]
            results[each.likely] = each.after(computed)
    return results


def run(node, values, output="y"):
    return run_node(node, values, OPSET)[output]


def test_the_reverse_direction_reverses_samples_or_runs_forward():
    names = ("x", "w", "r", "b")
    values = inputs(4, 2)
    results = made(layer("LSTM", names, "bidirectional"), values)
    one, two = ({**values, **{name: values[name][at : at + 1] for name in "wrb"}} for at in (0, 1))
    forward = layer("LSTM", names, "forward")
    first, second = run(forward, one), run(forward, two)
    text = "the reverse direction runs forward, as if another axis than that of the steps were reversed"
    assert np.allclose(results[text], np.concatenate([first, second], 1), atol=1e-6)
    turned = run(forward, {**two, "x": values["x"][:, ::-1]})
    text = "the reverse direction reverses the order of the samples (axis 1), not of the steps (axis 0)"
    assert np.allclose(results[text], np.concatenate([first, turned], 1), atol=1e-6)


def test_a_reverse_layer_begins_with_the_padding():
    names = ("x", "w", "r", "b", "n")
    values = inputs(3, 1)
    results = made(layer("GRU", names, "reverse"), values)
    expected = run(layer("GRU", names[:4], "reverse"), values).copy()
    for at, length in enumerate(LENGTHS):
        expected[length:, :, at] = 0
    text = "the layer begins with the padding, at the last step, not at the end of each sequence"
    assert np.allclose(results[text], expected, atol=1e-6)


def test_a_final_state_that_is_read_from_the_padding():
    names = ("x", "w", "r", "b", "n")
    values = inputs(3, 1)
    node = layer("GRU", names, "forward")
    text = "the final state is read from the last step of the output, which is padding in shorter sequences"
    assert np.array_equal(made(node, values, "state")[text], run(node, values)[-1])


def test_an_initial_state_that_one_direction_ignores():
    node = layer("GRU", ("x", "w", "r", "b", "", "h"), "bidirectional")
    values = inputs(3, 2)
    state = np.stack([values["h"][0], np.zeros_like(values["h"][0])])
    result = made(node, values)["the reverse direction ignores its initial state"]
    assert np.allclose(result, run(node, {**values, "h": state}), atol=1e-6)


def test_gates_of_one_weight_in_another_order():
    node = layer("LSTM", ("x", "w", "r", "b"), "forward")
    values = inputs(4, 1)
    blocks = values["r"].reshape(4, HIDDEN, HIDDEN)[[0, 3, 1, 2]].reshape(values["r"].shape)
    text = "it assumes the gate order input, forget, cell, output in the recurrent weight 'r' alone"
    assert np.allclose(made(node, values)[text], run(node, {**values, "r": blocks}), atol=1e-6)
