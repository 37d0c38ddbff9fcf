"""Recurrent layers with mistakes in their states and buffers compute what loops with these mistakes compute."""

from __future__ import annotations

import numpy as np
import pytest

from qdebug.arithmetic.definitions.catalogue import definition_of
from qdebug.arithmetic.mistakes.state_edits import edited_states
from qdebug.model import Node
from qdebug.replay.registry import run_node

DRAWN = np.random.default_rng(8)
OPSET = {"": 21}
STEPS, SAMPLES, UNITS = 5, 2, 6


def layer(op, gates, *, directions=1, **attrs):
    shapes = ((STEPS, SAMPLES, 4), (directions, gates * UNITS, 4), (directions, gates * UNITS, UNITS))
    arrays = [*shapes, (directions, 2 * gates * UNITS)]
    values = {f"i{at}": DRAWN.normal(size=shape).astype(np.float32) / 2 for at, shape in enumerate(arrays)}
    node = Node(name="n", op=op, inputs=tuple(values), outputs=("y",), attrs={"hidden_size": UNITS, **attrs})
    right = run_node(node, values, OPSET)["y"]
    return right, list(edited_states(node, definition_of(node, values, OPSET, "y"), right, values)), values


def result_of(edits, right, words):
    (edit,) = [edit for edit in edits if edit.likely.startswith(words)]
    return edit.after(right)


@pytest.mark.parametrize(
    ("op", "gates", "attrs"),
    [
        ("RNN", 1, {}),
        ("GRU", 3, {}),
        ("GRU", 3, {"linear_before_reset": 1, "direction": "reverse"}),
        ("LSTM", 4, {"direction": "bidirectional", "directions": 2}),
    ],
)
def test_every_edit_changes_the_result_and_has_other_words(op, gates, attrs):
    right, edits, _ = layer(op, gates, **attrs)
    assert len({edit.likely for edit in edits}) == len(edits) > 20
    for edit in edits:
        result = edit.after(right)
        assert (result.shape, result.dtype) == (right.shape, right.dtype)
        assert np.abs(result - right).max() > 1e-3, edit.likely


def test_a_state_in_place_is_read_by_later_units():
    right, edits, values = layer("RNN", 1)
    x, w, r, b = (each.astype(np.float64) for each in values.values())
    h, states = np.zeros((SAMPLES, UNITS)), []
    for step in range(STEPS):
        for unit in range(UNITS):
            h[:, unit] = np.tanh(x[step] @ w[0, unit] + h @ r[0, unit] + b[0].reshape(2, UNITS)[:, unit].sum())
        states.append(h[None].copy())
    result = result_of(edits, right, "the hidden state is updated in place: each unit")
    np.testing.assert_allclose(result, np.stack(states), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kept", [("product",), ("product", "input bias"), ("input bias", "recurrent bias")])
def test_a_buffer_that_is_not_cleared_adds_up(kept):
    right, edits, values = layer("RNN", 1)
    x, w, r, b = (each.astype(np.float64) for each in values.values())
    h, buffer, states = np.zeros((SAMPLES, UNITS)), 0, []
    for step in range(STEPS):
        terms = {"x": x[step] @ w[0].T, "product": h @ r[0].T}
        terms |= dict(zip(("input bias", "recurrent bias"), b[0].reshape(2, UNITS), strict=True))
        buffer = buffer + sum(terms[name] for name in kept)
        h = np.tanh(buffer + sum(term for name, term in terms.items() if name not in kept))
        states.append(h[None])
    names = ("product", "recurrent bias", "input bias")
    titles = {"product": "product with the recurrent weight"}
    terms = " and the ".join(titles.get(name, name) for name in names if name in kept)
    result = result_of(edits, right, f"the buffer of the {terms} of")
    np.testing.assert_allclose(result, np.stack(states), rtol=1e-5, atol=1e-6)
