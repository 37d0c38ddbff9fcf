"""Exponential and reciprocal in fixed point, as gemmlowp computes them: integers alone, the same on every processor.

A number of `bits` integer bits is stored as an integer times 2**-(width - 1 - bits). TensorFlow Lite's reference
kernels and CMSIS-NN use these for softmax, in 32 bits, and for sigmoid and tanh of 16-bit codes, in 16.
Source: gemmlowp/fixedpoint/fixedpoint.h, whose constants these are.
"""

from __future__ import annotations

import numpy as np

from qdebug.numerics.fixedpoint import multiply_high, saturate_to, shift_left, shift_right

__all__ = ["exp_of_negative", "logistic_of", "reciprocal_of_one_plus", "tanh_of"]

_WIDE = 32
_EXP_MINUS_EIGHTH, _THIRD = 1895147668, 715827883
_POWERS = (
    (-2, 1672461947),
    (-1, 1302514674),
    (0, 790015084),
    (1, 290630308),
    (2, 39332535),
    (3, 720401),
    (4, 242),
)
"""exp(-2**n) for each n, as numbers below 1."""

_GUESS, _SLOPE = 1515870810, -1010580540
"""48/17 and -32/17 with two integer bits: the start of Newton's iteration that is best on [1/2, 1]."""

_ROUNDS = 3


def _constant(value: int, width: int) -> np.ndarray:
    """Give a constant of 32 bits in a width of fewer."""
    return shift_right(np.asarray(value), _WIDE - width, "away")


def _product(left: np.ndarray, right: np.ndarray, width: int) -> np.ndarray:
    return multiply_high(left, right, "up", bits=width - 1)


def _one(width: int) -> int:
    return (1 << (width - 1)) - 1


def _exp_near(values: np.ndarray, width: int) -> np.ndarray:
    """Compute exp on [-1/4, 0) by its series of fourth order around -1/8; no integer bits."""
    x = values + (1 << (width - 4))
    square = _product(x, x, width)
    cube, fourth = _product(square, x, width), _product(square, square, width)
    high = _product(shift_right(fourth, 2, "away") + cube, _constant(_THIRD, width), width) + square
    start = _constant(_EXP_MINUS_EIGHTH, width)
    return saturate_to(start + _product(start, x + shift_right(high, 1, "away"), width), width)


def exp_of_negative(values: np.ndarray, bits: int, *, width: int = _WIDE) -> np.ndarray:
    """Compute exp(x) of numbers up to 0.

    Args:
        values: Numbers with `bits` integer bits, as integers.
        bits: Integer bits, up to 5.
        width: Bits of the registers.

    Returns:
        Numbers without integer bits.
    """
    fraction = width - 1 - bits
    quarter = 1 << (fraction - 2)
    inner = (values & (quarter - 1)) - quarter
    result = _exp_near(shift_left(inner, bits, width=width), width)
    rest = inner - values
    for exponent, power in _POWERS:
        if exponent < bits:
            chosen = (rest & (1 << (fraction + exponent))) != 0
            result = np.where(chosen, _product(result, _constant(power, width), width), result)
    return np.where(values == 0, _one(width), result)


def reciprocal_of_one_plus(values: np.ndarray, *, width: int = _WIDE) -> np.ndarray:
    """Compute 1 / (1 + x) of numbers from 0 to 1, without integer bits, by Newton's iteration."""
    total = values + _one(width)
    half = shift_right(total, 1, "away")
    x = _constant(_GUESS, width) + _product(half, _constant(_SLOPE, width), width)
    for _ in range(_ROUNDS):
        error = (1 << (width - 3)) - _product(half, x, width)
        x = x + shift_left(_product(x, error, width), 2, width=width)
    return shift_left(x, 1, width=width)


def logistic_of(values: np.ndarray, bits: int, *, width: int) -> np.ndarray:
    """Compute 1 / (1 + exp(-x)) of numbers with `bits` integer bits; the result has none."""
    positive = reciprocal_of_one_plus(exp_of_negative(-np.abs(values), bits, width=width), width=width)
    found = np.where(values > 0, positive, _one(width) - positive)
    return np.where(values == 0, 1 << (width - 2), found)


def tanh_of(values: np.ndarray, bits: int, *, width: int) -> np.ndarray:
    """Compute tanh(x), as (1 - e) / (1 + e) of e = exp(-2 |x|), of numbers with `bits` integer bits."""
    lost = exp_of_negative(-np.abs(values), bits + 1, width=width)  # the same integer, read as twice the number
    half = shift_right(lost + _one(width), 1, "away")
    x = _constant(_GUESS, width) + _product(half, _constant(_SLOPE, width), width)
    for _ in range(_ROUNDS):
        error = (1 << (width - 3)) - _product(half, x, width)
        x = x + shift_left(_product(x, error, width), 2, width=width)
    # 2 / (1 + e) - 1, with two integer bits until the last shift.
    positive = shift_left(x - (1 << (width - 3)), 2, width=width)
    return np.where(values == 0, 0, np.where(values > 0, positive, -positive))
