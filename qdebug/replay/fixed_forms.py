"""Forms for activations that some backends compute in integer-only fixed point.

Sources: TensorFlow Lite, kernels/internal/reference/hard_swish.h and softmax.h and integer_ops/logistic.h,
kernels/activations.cc and elementwise.cc.

Exponential and reciprocal follow gemmlowp (gemmlowp/fixedpoint/fixedpoint.h, with its constants), and give equal
results on every processor. A number with `bits` integer bits is stored as an integer times 2**-(width - 1 - bits).
TensorFlow Lite's reference kernels and CMSIS-NN use them with 32 bits for softmax, and with 16 bits for sigmoid and
tanh of 16-bit codes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from qdebug.model import operators
from qdebug.numerics.fixedpoint import multiply_high, quantize_multiplier, saturate_to, shift_left, shift_right
from qdebug.replay.columns import Columns, Operation, Start
from qdebug.replay.scaling import Fixed, scales_of
from qdebug.replay.unit import Operand, Unit
from qdebug.replay.variant import Variant

__all__ = [
    "exp_of_negative",
    "fixed_probabilities",
    "hard_swish",
    "inverse_root",
    "inverse_root_of",
    "logistic_of",
    "reciprocal_of_one_plus",
    "sigmoid_or_tanh",
    "tanh_of",
]

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
"""48/17 and -32/17 with two integer bits: the best initial guess for Newton's iteration on [1/2, 1]."""

_ROUNDS = 3


def _narrow_constant(value: int, width: int) -> np.ndarray:
    """Round a 32-bit constant to fewer bits."""
    return shift_right(np.asarray(value), _WIDE - width, "away")


def _product(left: np.ndarray, right: np.ndarray, width: int) -> np.ndarray:
    return multiply_high(left, right, "up", bits=width - 1)


def _largest_integer(width: int) -> int:
    return (1 << (width - 1)) - 1


def _exp_series(values: np.ndarray, width: int) -> np.ndarray:
    """Compute exp on [-1/4, 0) by its fourth-order series around -1/8, without integer bits."""
    x = values + (1 << (width - 4))
    square = _product(x, x, width)
    cube, fourth = _product(square, x, width), _product(square, square, width)
    high = _product(shift_right(fourth, 2, "away") + cube, _narrow_constant(_THIRD, width), width) + square
    start = _narrow_constant(_EXP_MINUS_EIGHTH, width)
    return saturate_to(start + _product(start, x + shift_right(high, 1, "away"), width), width)


def exp_of_negative(values: np.ndarray, bits: int, *, width: int = _WIDE) -> np.ndarray:
    """Compute exp(x) for numbers up to 0.

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
    result = _exp_series(shift_left(inner, bits, width=width), width)
    remainder = inner - values
    for exponent, power in _POWERS:
        if exponent < bits:
            chosen = (remainder & (1 << (fraction + exponent))) != 0
            result = np.where(chosen, _product(result, _narrow_constant(power, width), width), result)
    return np.where(values == 0, _largest_integer(width), result)


def reciprocal_of_one_plus(values: np.ndarray, *, width: int = _WIDE) -> np.ndarray:
    """Compute 1 / (1 + x) for numbers from 0 to 1, without integer bits, by Newton's iteration."""
    total = values + _largest_integer(width)
    half = shift_right(total, 1, "away")
    x = _narrow_constant(_GUESS, width) + _product(half, _narrow_constant(_SLOPE, width), width)
    for _ in range(_ROUNDS):
        error = (1 << (width - 3)) - _product(half, x, width)
        x = x + shift_left(_product(x, error, width), 2, width=width)
    return shift_left(x, 1, width=width)


def logistic_of(values: np.ndarray, bits: int, *, width: int) -> np.ndarray:
    """Compute 1 / (1 + exp(-x)) for numbers with `bits` integer bits. The result has no integer bits."""
    positive = reciprocal_of_one_plus(exp_of_negative(-np.abs(values), bits, width=width), width=width)
    result = np.where(values > 0, positive, _largest_integer(width) - positive)
    return np.where(values == 0, 1 << (width - 2), result)


def tanh_of(values: np.ndarray, bits: int, *, width: int) -> np.ndarray:
    """Compute tanh(x) for numbers with `bits` integer bits, as (1 - e) / (1 + e) with e = exp(-2 |x|)."""
    # With one more integer bit, the same integer stands for twice the number.
    exponential = exp_of_negative(-np.abs(values), bits + 1, width=width)
    half = shift_right(exponential + _largest_integer(width), 1, "away")
    x = _narrow_constant(_GUESS, width) + _product(half, _narrow_constant(_SLOPE, width), width)
    for _ in range(_ROUNDS):
        error = (1 << (width - 3)) - _product(half, x, width)
        x = x + shift_left(_product(x, error, width), 2, width=width)
    # 2 / (1 + e) - 1, with two integer bits until the last shift.
    positive = shift_left(x - (1 << (width - 3)), 2, width=width)
    return np.where(values == 0, 0, np.where(values > 0, positive, -positive))


_INPUT_SHIFT = 7
_SHORT = 16
_SHORT_END = 2**15 - 1
_FUNCTIONS: Mapping[str, Callable[..., np.ndarray]] = MappingProxyType({"Sigmoid": logistic_of, "Tanh": tanh_of})
_THREE = np.float32(3 / 32768)
_DIFFERENCE_BITS, _SUM_BITS = 5, 12
_WORD = 31


def _short_multiplier(real: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a 16-bit multiplier and its exponent, rounded from the 32-bit multiplier."""
    multiplier, exponent = quantize_multiplier(real.astype(np.float64), bits=_WORD, rounding="away")
    return np.minimum(shift_right(multiplier, _SHORT, "up"), _SHORT_END), exponent


def hard_swish(unit: Unit, columns: Columns, variant: Variant) -> Start:
    """Compute x * relu6(x + 3) / 6 in 16 bits: x at 128 times its scale, times a factor in [0, 1].

    The program shifts right to the output's scale.
    """
    del columns, variant
    operand = unit.operands[0]
    if unit.kind != "lookup" or "hswish16" not in operators.of(unit.function).forms or operand.codes.dtype.itemsize > 1:
        raise ValueError("16-bit fixed point supports only HardSwish on 8-bit codes")
    fine = np.asarray(np.float32(1 / 2**_INPUT_SHIFT) * operand.scale.astype(np.float32))
    to_output, last = _short_multiplier(np.asarray(fine / unit.out.scale.astype(np.float32)))
    to_three, shift = _short_multiplier(np.asarray(fine / _THREE))

    def apply(numbers: Any, out: Any, *arguments: np.ndarray) -> np.ndarray:
        del out
        zero, scaled, third, shift_by = arguments
        x = (numbers[0].astype(np.int64) - zero) << _INPUT_SHIFT
        before = multiply_high(x, scaled, "up", bits=_SHORT - 1)
        up = np.maximum(shift_by, 0)
        factor = shift_left(x, np.maximum(up - 1, 0), width=_SHORT)
        factor = multiply_high(factor, third, "up", bits=_SHORT - 1)
        factor = shift_left(factor, np.minimum(up, 1), width=_SHORT)
        factor = shift_right(factor, np.maximum(-shift_by, 0), "away")
        return multiply_high((factor + 2 ** (_SHORT - 1)) >> 1, before, "trunc", bits=_SHORT - 1)

    operation = Operation(apply=apply, parameters=(operand.zero_point.astype(np.int64), to_output, to_three, shift))
    ones = np.ones_like(last)
    fixed = Fixed(multiplier=ones, bits=0, exponent=last, pre=0 * ones)
    return Start(operation=operation, dtype=np.int64, scales=scales_of(unit), whole=fixed, tag="hswish16")


_HALF_ROOT_2 = 1518500250
"""sqrt(2) / 2, without integer bits."""
_ROOT_ROUNDS, _ROOT_SHIFT, _ROOT_BITS = 5, 11, 20


def inverse_root_of(values: np.ndarray) -> np.ndarray:
    """Compute 1 / sqrt(x) for integers above 0 by Newton's iteration, with 20 fractional bits.

    Source: GetInvSqrtQuantizedMultiplierExp (tensorflow/lite/kernels/internal/quantization_util.h).
    """
    positive = np.maximum(values, 1).astype(np.int64)
    pairs = (_WORD - np.frexp(positive.astype(np.float64))[1].astype(np.int64)) // 2 - 1
    half = shift_right((positive << (2 * pairs)) >> 1, 1, "away")
    x = np.full(positive.shape, 1 << (_WORD - 3), np.int64)
    three_halves = np.asarray(3 << (_WORD - 4))
    for _ in range(_ROOT_ROUNDS):
        cube = shift_left(_product(_product(x, x, _WIDE), x, _WIDE), 6)
        x = shift_left(_product(three_halves, x, _WIDE) - _product(half, cube, _WIDE), 3)
    x = _product(x, np.asarray(_HALF_ROOT_2), _WIDE)
    shift = _ROOT_SHIFT - pairs
    is_one = positive == 1
    mantissa = np.where(is_one, _largest_integer(_WIDE), x << np.maximum(-shift, 0))
    exponent = _ROOT_BITS - np.where(is_one, 0, np.maximum(shift, 0))
    high = multiply_high(np.int64(1) << np.maximum(exponent, 0), mantissa, "up", bits=_WORD)
    return shift_right(high, np.maximum(-exponent, 0), "away")


def inverse_root(unit: Unit, columns: Columns, variant: Variant) -> Start:
    """Compute 1 / sqrt(x) of centered codes. The program then scales it to the output.

    0 becomes the largest code. Negative codes, which the runtime refuses, become the lowest code. Source:
    RsqrtEvalQuantized (tensorflow/lite/kernels/elementwise.cc).
    """
    del columns, variant
    operand = unit.operands[0]
    if unit.kind != "lookup" or "root31" not in operators.of(unit.function).forms or operand.scale.size > 1:
        raise ValueError("a reciprocal root in fixed point needs a single scale")
    real_multiplier = 1 / (np.sqrt(operand.scale.astype(np.float64)) * unit.out.scale.astype(np.float64))
    multiplier, exponent = quantize_multiplier(real_multiplier, bits=_WORD, rounding="away")

    def apply(numbers: Any, out: Any, zero: np.ndarray) -> np.ndarray:
        del out
        centred = numbers[0].astype(np.int64) - zero
        beyond = np.where(centred < 0, -_largest_integer(_WIDE), _largest_integer(_WIDE))
        return np.where(centred > 0, inverse_root_of(centred), beyond)

    operation = Operation(apply=apply, parameters=(operand.zero_point.astype(np.int64),))
    fixed = Fixed(multiplier=multiplier, bits=_WORD, exponent=exponent - _ROOT_BITS, pre=0 * exponent)
    return Start(operation=operation, dtype=np.int64, scales=scales_of(unit), whole=fixed, tag="root31")


def sigmoid_or_tanh(unit: Unit, columns: Columns, variant: Variant) -> Start:
    """Compute Sigmoid or Tanh: in 16 bits for inputs below 8, in 32 bits for inputs below 16.

    The scales are powers of two, and the program shifts right to the output's scale.
    """
    del columns
    compute = _FUNCTIONS.get(unit.function)
    width = _SHORT if variant.form == "fixed16" else _WORD + 1
    operand = unit.operands[0]
    if compute is None or unit.kind != "lookup" or (operand.codes.dtype.itemsize == 1) == (width == _SHORT):
        raise ValueError("fixed point supports only Sigmoid and Tanh; 16-bit codes require the 16-bit form")
    whole_bits = 3 if width == _SHORT else 4
    finest = width - 1 + _exponent_of(unit.out.scale)
    if width == _SHORT:
        multiplier, exponent = np.asarray(0), np.asarray(_exponent_of(operand.scale) + _SHORT - 1 - whole_bits)
        if int(exponent) < 0:
            raise ValueError("the input has more fraction bits than the fixed-point form keeps")
    else:
        real = operand.scale.astype(np.float64) * 2.0 ** (_WORD - whole_bits)
        multiplier, exponent = quantize_multiplier(real, bits=_WORD, rounding="away")

    def apply(numbers: Any, out: Any, *arguments: np.ndarray) -> np.ndarray:
        del out
        zero, factor, shift = arguments
        x = shift_left(numbers[0].astype(np.int64) - zero, np.maximum(shift, 0), width=width)
        if width > _SHORT:
            x = shift_right(multiply_high(x, factor, "up", bits=_WORD), np.maximum(-shift, 0), "away")
        return compute(x, whole_bits, width=width)

    operation = Operation(apply=apply, parameters=(operand.zero_point.astype(np.int64), multiplier, exponent))
    ones = np.ones((), np.int64)
    fixed = Fixed(multiplier=ones, bits=finest, exponent=0 * ones, pre=0 * ones)
    return Start(operation=operation, dtype=np.int64, scales=scales_of(unit), whole=fixed, tag=variant.form)


def _exponent_of(scale: np.ndarray) -> int:
    """Return the exponent of a scale that is a power of two.

    Raises:
        ValueError: The scale is not a power of two.
    """
    fraction, exponent = np.frexp(scale.astype(np.float64))
    if scale.size != 1 or float(fraction.reshape(-1)[0]) != 0.5:
        raise ValueError("fixed point needs scales that are powers of two")
    return int(exponent.reshape(-1)[0]) - 1


def fixed_probabilities(operand: Operand, codes: np.ndarray, bits: int) -> np.ndarray:
    """Compute a softmax along the last axis in 31-bit fixed point.

    Args:
        operand: The operand of the codes.
        codes: Codes, with the axis last.
        bits: Fractional bits of the result.

    Returns:
        Probabilities as integers with a scale of 2**-bits.
    """
    real_multiplier = min(float(operand.scale) * 2.0 ** (_WORD - _DIFFERENCE_BITS), 2.0**_WORD - 1)
    multiplier, exponent = quantize_multiplier(np.asarray(real_multiplier), bits=_WORD, rounding="away")
    lowest_difference = -np.floor((2**_DIFFERENCE_BITS - 1) * 2.0 ** (_WORD - _DIFFERENCE_BITS) / 2.0 ** int(exponent))
    wide = codes.astype(np.int64)
    difference = wide - wide.max(axis=-1, keepdims=True, initial=-(2**15))
    scaled = multiply_high(difference << max(int(exponent), 0), multiplier, "up", bits=_WORD)
    power = np.where(difference >= lowest_difference, exp_of_negative(np.minimum(scaled, 0), _DIFFERENCE_BITS), 0)
    total = shift_right(power, _SUM_BITS, "away").sum(axis=-1, keepdims=True)
    free = _WORD - np.floor(np.log2(np.maximum(total, 1))).astype(np.int64)
    inverse = reciprocal_of_one_plus((total << free) - 2**_WORD)
    product = multiply_high(inverse, power, "up", bits=_WORD)
    result = shift_right(product, _SUM_BITS - free + _WORD - bits, "away")
    return np.where(difference >= lowest_difference, saturate_to(result, _WORD), 0)
