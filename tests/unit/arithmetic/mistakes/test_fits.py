"""Numbers that a kernel takes differently are solved for, as is how often each part of an operand counts."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pytest

from qdebug.arithmetic.mistakes.fits import dials, miscounted_blocks, partitions, solve
from qdebug.model import Node, QuantParams
from qdebug.replay.registry import run_node

OPSET = {"": 21}
RNG = np.random.default_rng(3)


def real(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def computing(node, values):
    def compute(mistake):
        return mistake.after(run_node(mistake.node, {**values, **mistake.values}, OPSET)[node.outputs[0]])

    return compute


def node(op, inputs, **attrs):
    return Node(name="n", op=op, inputs=tuple(inputs.split()), outputs=("y",), attrs=attrs)


def solved(form, values, recorded, quants=MappingProxyType({})):
    """Return the text of each number with which the node comes close to the recorded result."""
    compute, close = computing(form, values), []
    asked = {}
    run_node(form, values, OPSET, defaults=asked)
    for dial in dials(form, values, asked, OPSET, quants):
        value = solve(dial, recorded, compute)
        if value is not None and np.allclose(compute(dial.mistake(value)), recorded, rtol=1e-4, atol=1e-5):
            close.append(dial.mistake(value).likely)
    return close


X = real(8, 40)


@pytest.mark.parametrize(
    ("form", "values", "recorded", "said"),
    [
        (node("Elu", "x", alpha=1.0), {"x": X}, np.where(X > 0, X, 1.7 * np.expm1(X)), "alpha acts as 1.7, not 1"),
        (node("Softmax", "x"), {"x": X}, None, "'x' is multiplied by 0.25 first"),
        (node("Tanh", "x"), {"x": X}, np.tanh(X - 0.5), "-0.5 is added to 'x' first"),
        (node("Pow", "x e"), {"x": np.abs(X) + 0.1, "e": np.float32(2)}, None, "'e' acts as 3.5, not 2"),
        (
            node("HardSwish", "x"),
            {"x": 3 * X},
            3 * X * np.clip(3 * X / 6 + 0.25, 0, 1),
            "beta of its HardSigmoid acts as 0.25, not 0.5",
        ),
    ],
)
def test_a_number_is_solved_for(form, values, recorded, said):
    if recorded is None:
        changed = {"x": values["x"] * np.float32(0.25)} if form.op == "Softmax" else {"e": np.float32(3.5)}
        recorded = run_node(form, {**values, **changed}, OPSET)["y"]
    assert said in solved(form, values, np.asarray(recorded, np.float32))


def test_a_zero_point_is_solved_for_among_real_values():
    quant = QuantParams(dtype="int8", scale=np.float32(0.02), zero_point=-128)
    codes = RNG.integers(-128, 128, (8, 40))
    values = {"x": np.float32(0.02) * (codes + 128).astype(np.float32), "w": real(40, 8)}
    recorded = (np.float32(0.02) * (codes - 1).astype(np.float32)) @ values["w"]
    assert "the zero point of 'x' acts as 1, not -128" in solved(node("MatMul", "x w"), values, recorded, {"x": quant})


def test_no_number_is_solved_for_in_unrelated_values():
    assert not solved(node("Tanh", "x"), {"x": X}, real(8, 40))


def miscounts(form, values, name, recorded, axis=0):
    """Return the mistakes in the weights of blocks along an axis of an operand."""
    partition = list(partitions(form, name, values[name]))[axis]
    decisive = np.ones(recorded.shape, bool)
    return [*miscounted_blocks(form, partition, values, recorded, computing(form, values), decisive=decisive)]


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({(16, 32): 2.0}, "elements 16 to 31 of 'w' along axis 0 count 2 times"),
        ({(0, 4): 0.0, (28, 32): -1.0}, "elements 0 to 3 of 'w' along axis 0 count 0 times, and elements 28 to 31"),
        ({(8, 16): 0.5}, "elements 8 to 15 of 'w' along axis 0 count 0.5 times"),
        ({(29, 32): 0.0}, "elements 29 to 31 of 'w' along axis 0 count 0 times"),
    ],
)
def test_parts_of_an_operand_that_count_otherwise_are_found(counts, said):
    form, values = node("MatMul", "x w"), {"x": real(24, 32), "w": real(32, 20)}
    factors = np.ones((32, 1), np.float32)
    for (begin, end), count in counts.items():
        factors[begin:end] = count
    recorded = values["x"] @ (values["w"] * factors)
    mistakes = miscounts(form, values, "w", recorded)
    assert any(said in mistake.likely for mistake in mistakes)
    assert any(np.allclose(computing(form, values)(mistake), recorded, atol=1e-4) for mistake in mistakes)


def test_channels_that_are_added_without_their_weights_count_as_one():
    form, values = node("ConvTranspose", "x w"), {"x": real(1, 7, 9, 9), "w": real(7, 6, 3, 3)}
    wrong_weights = values["w"].copy()
    wrong_weights[4:] = 1
    recorded = run_node(form, {**values, "w": wrong_weights}, OPSET)["y"]
    mistakes = miscounts(form, values, "w", recorded)
    assert "elements 4 to 6 of 'w' along axis 0 count as 1" in {mistake.likely for mistake in mistakes}


def test_the_products_of_a_filter_beyond_a_block_are_found():
    form, values = node("Conv", "x w"), {"x": real(1, 5, 10, 10), "w": real(8, 5, 3, 3)}
    cut = values["w"].reshape(8, -1).copy()
    cut[:, 40:] = 0
    recorded = run_node(form, {**values, "w": cut.reshape(8, 5, 3, 3)}, OPSET)["y"]
    mistakes = miscounts(form, values, "w", recorded, axis=4)
    assert "elements 40 to 44 of 'w' in each filter count 0 times" in {mistake.likely for mistake in mistakes}


def test_right_sums_and_many_different_counts_are_no_mistake():
    form, values = node("MatMul", "x w"), {"x": real(24, 32), "w": real(32, 20)}
    assert not miscounts(form, values, "w", values["x"] @ values["w"])
    factors = RNG.uniform(2, 9, (32, 1)).astype(np.float32)
    assert not miscounts(form, values, "w", values["x"] @ (values["w"] * factors))


def test_an_operand_with_a_nonlinear_effect_or_a_result_of_another_shape_is_left_alone():
    form, values = node("Tanh", "x"), {"x": X}
    mistakes = miscounts(form, values, "x", np.tanh(X * 2))
    assert not any(np.allclose(computing(form, values)(mistake), np.tanh(X * 2), atol=1e-4) for mistake in mistakes)
    assert not miscounts(form, values, "x", real(3))


def test_the_number_in_the_padding_is_solved_for_as_a_code():
    quant = QuantParams(dtype="int8", scale=np.float32(0.02), zero_point=-9)
    values = {"x": real(1, 5, 9, 8), "w": real(6, 5, 3, 3)}
    recorded = run_node(
        node("Conv", "x w"),
        {**values, "x": np.pad(values["x"], ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=np.float32(-2.38))},
        OPSET,
    )["y"]
    form = node("Conv", "x w", pads=(1, 1, 1, 1))
    assert "the padding acts as code -128, not -9" in solved(form, values, recorded, {"x": quant})
    assert "the padding acts as -2.38, not 0" in solved(form, values, recorded)


def test_a_zero_point_that_is_read_as_signed():
    values = {
        "a": RNG.integers(0, 255, (6, 9), dtype=np.uint8),
        "b": RNG.integers(-128, 128, (9, 5), dtype=np.int8),
        "za": np.uint8(137),
        "zb": np.int8(4),
    }
    product = (values["a"].astype(np.int32) - (137 - 256)) @ (values["b"].astype(np.int32) - 4)
    texts = solved(node("MatMulInteger", "a b za zb"), values, product.astype(np.int32))
    assert texts == ["the zero point 'za' acts as -119, not 137"]
