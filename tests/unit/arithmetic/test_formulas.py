"""Formulas of wrong results in their operands, fixed-point numbers and numbers that wrap around."""

from __future__ import annotations

import numpy as np
import pytest

from qdebug.arithmetic.formulas import fixed_point_relation_of, formula_of
from qdebug.arithmetic.relations import Result
from qdebug.model import Node

RNG = np.random.default_rng(11)


def real(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def result(right, recorded, **operands):
    right, recorded = np.asarray(right, np.float32), np.asarray(recorded, np.float32)
    allowed = 1e-6 * float(np.linalg.norm(right))
    return Result(right=right, recorded=recorded, allowed=allowed, operands=operands)


def node(op, inputs, **attrs):
    return Node(name="n", op=op, inputs=tuple(inputs.split()), outputs=("y",), attrs=attrs)


def test_the_formula_of_a_dequantization_by_blocks_that_adds_its_zero_points():
    x, s, z = RNG.integers(0, 16, (9, 32)), RNG.random((9, 4)) + 0.1, RNG.integers(3, 12, (9, 4))
    scale, zero = np.repeat(s, 8, 1), np.repeat(z, 8, 1)
    form = node("DequantizeLinear", "x s z", axis=1, block_size=8)
    clause = formula_of(form, result((x - zero) * scale, x * scale + zero, x=x, s=s, z=z))
    assert clause == "it computes 'z' + 'x' * 's', not 'x' * 's' - 's' * 'z' (reproduces every element)"


@pytest.mark.parametrize(
    ("op", "right", "wrong", "text"),
    [
        ("Sub", lambda a, b: a - b, lambda a, b: b - a, "'b' - 'a', not 'a' - 'b'"),
        ("Div", lambda a, b: a / b, lambda a, b: b / a, "'b' / 'a', not 'a' / 'b'"),
        ("Mul", lambda a, b: a * b, lambda a, b: a * b + a, "'a' + 'a' * 'b', not 'a' * 'b'"),
        ("Add", lambda a, b: a + b, lambda a, b: 0.25 * a + b, "'b' + 0.25 * 'a', not 'b' + 'a'"),
    ],
)
def test_formulas_of_two_operands_that_are_broadcast(op, right, wrong, text):
    a, b = real(6, 5, 20) + 3, real(5, 1) + 4
    clause = formula_of(node(op, "a b"), result(right(a, b), wrong(a, b), a=a, b=b))
    assert clause == f"it computes {text} (reproduces every element)"


def test_no_formula_for_noise_the_right_result_or_operands_that_cannot_be_told_apart():
    a, b = real(30, 20), real(30, 20)
    assert formula_of(node("Add", "a b"), result(a + b, a + b + 0.1 * real(30, 20), a=a, b=b)) is None
    assert formula_of(node("Add", "a b"), result(a + b, a + b, a=a, b=b)) is None
    assert formula_of(node("Add", "a b"), result(3 * a, 2 * a, a=a, b=2 * a)) is None


@pytest.mark.parametrize(
    ("cut", "text"),
    [
        (lambda y: np.floor(y * 64) / 64, "its results are rounded down to multiples of 0.015625"),
        (lambda y: np.trunc(y * 16) / 16, "its results are rounded toward 0 to multiples of 0.0625"),
        (lambda y: (y + 2) % 4 - 2, "its results wrap around beyond -2 to 2"),
        (lambda y: (y + 4) % 8 - 4, "its results wrap around beyond -4 to 4"),
    ],
)
def test_results_in_fixed_point(cut, text):
    right = 3 * real(40, 30)
    assert fixed_point_relation_of(result(right, cut(right))) == f"{text} (reproduces every element)"


def test_rounding_to_nearest_and_noise_are_not_fixed_point_mistakes():
    right = 3 * real(40, 30)
    assert fixed_point_relation_of(result(right, np.rint(right * 64) / 64)) is None
    assert fixed_point_relation_of(result(right, right + 0.01 * real(40, 30))) is None
    assert fixed_point_relation_of(result(right, right)) is None
