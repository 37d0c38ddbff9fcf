"""Forms of activations that some backends compute in fixed point, integers alone.

Sources: TensorFlow Lite, kernels/internal/reference/hard_swish.h and softmax.h and integer_ops/logistic.h,
kernels/activations.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from qdebug.model import operators
from qdebug.numerics.fixedpoint import multiply_high, quantize_multiplier, saturate_to, shift_left, shift_right
from qdebug.replay.columns import Columns
from qdebug.replay.fixed_math import exp_of_negative, logistic_of, reciprocal_of_one_plus, tanh_of
from qdebug.replay.operations import Operation, Start
from qdebug.replay.scaling import Fixed, scales_of
from qdebug.replay.unit import Operand, Unit
from qdebug.replay.variant import Variant

__all__ = ["fixed_probabilities", "hard_swish", "squashed"]

_FINER = 7
_SHORT = 16
_SHORT_END = 2**15 - 1
_SQUASHED: Mapping[str, Callable[..., np.ndarray]] = MappingProxyType({"Sigmoid": logistic_of, "Tanh": tanh_of})
_THREE = np.float32(3 / 32768)
_DIFFERENCE_BITS, _SUM_BITS = 5, 12
_WORD = 31


def _short_multiplier(real: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Give a multiplier of 16 bits with its exponent, rounded from the one of 32 bits."""
    whole, exponent = quantize_multiplier(real.astype(np.float64), bits=_WORD, rounding="away")
    return np.minimum(shift_right(whole, _SHORT, "up"), _SHORT_END), exponent


def hard_swish(unit: Unit, columns: Columns, variant: Variant) -> Start:
    """Compute x * relu6(x + 3) / 6 in 16 bits: x at 128 times its scale, times a factor in [0, 1].

    The program shifts right to the output's scale.
    """
    del columns, variant
    operand = unit.operands[0]
    if unit.kind != "lookup" or "hswish16" not in operators.of(unit.function).forms or operand.codes.dtype.itemsize > 1:
        raise ValueError("16-bit fixed point is for HardSwish of 8-bit codes")
    fine = np.asarray(np.float32(1 / 2**_FINER) * operand.scale.astype(np.float32))
    to_output, last = _short_multiplier(np.asarray(fine / unit.out.scale.astype(np.float32)))
    to_three, shift = _short_multiplier(np.asarray(fine / _THREE))

    def apply(numbers: Any, out: Any, *given: np.ndarray) -> np.ndarray:
        del out
        zero, scaled, third, left = given
        x = (numbers[0].astype(np.int64) - zero) << _FINER
        before = multiply_high(x, scaled, "up", bits=_SHORT - 1)
        up = np.maximum(left, 0)
        factor = shift_left(x, np.maximum(up - 1, 0), width=_SHORT)
        factor = multiply_high(factor, third, "up", bits=_SHORT - 1)
        factor = shift_left(factor, np.minimum(up, 1), width=_SHORT)
        factor = shift_right(factor, np.maximum(-left, 0), "away")
        return multiply_high((factor + 2 ** (_SHORT - 1)) >> 1, before, "trunc", bits=_SHORT - 1)

    operation = Operation(apply=apply, parameters=(operand.zero_point.astype(np.int64), to_output, to_three, shift))
    one = np.ones_like(last)
    whole = Fixed(multiplier=one, bits=0, exponent=last, pre=0 * one)
    return Start(operation=operation, dtype=np.int64, scales=scales_of(unit), whole=whole, tag="hswish16")


def squashed(unit: Unit, columns: Columns, variant: Variant) -> Start:
    """Compute Sigmoid or Tanh of numbers below 8 in 16 bits, or of numbers below 16 in 32, as powers of two allow.

    The program shifts right to the output's scale.
    """
    del columns
    compute = _SQUASHED.get(unit.function)
    width = _SHORT if variant.form == "fixed16" else _WORD + 1
    operand = unit.operands[0]
    if compute is None or unit.kind != "lookup" or (operand.codes.dtype.itemsize == 1) == (width == _SHORT):
        raise ValueError("fixed point is for Sigmoid and Tanh, of 16 bits for codes of 16 bits")
    whole_bits = 3 if width == _SHORT else 4
    finest = width - 1 + _power(unit.out.scale)
    if width == _SHORT:
        multiplier, exponent = np.asarray(0), np.asarray(_power(operand.scale) + _SHORT - 1 - whole_bits)
        if int(exponent) < 0:
            raise ValueError("the input has more bits of a fraction than fixed point keeps")
    else:
        real = operand.scale.astype(np.float64) * 2.0 ** (_WORD - whole_bits)
        multiplier, exponent = quantize_multiplier(real, bits=_WORD, rounding="away")

    def apply(numbers: Any, out: Any, *given: np.ndarray) -> np.ndarray:
        del out
        zero, factor, shift = given
        x = shift_left(numbers[0].astype(np.int64) - zero, np.maximum(shift, 0), width=width)
        if width > _SHORT:
            x = shift_right(multiply_high(x, factor, "up", bits=_WORD), np.maximum(-shift, 0), "away")
        return compute(x, whole_bits, width=width)

    operation = Operation(apply=apply, parameters=(operand.zero_point.astype(np.int64), multiplier, exponent))
    one = np.ones((), np.int64)
    whole = Fixed(multiplier=one, bits=finest, exponent=0 * one, pre=0 * one)
    return Start(operation=operation, dtype=np.int64, scales=scales_of(unit), whole=whole, tag=variant.form)


def _power(scale: np.ndarray) -> int:
    """Give the exponent of a scale that is a power of two.

    Raises:
        ValueError: It is none.
    """
    fraction, exponent = np.frexp(scale.astype(np.float64))
    if scale.size != 1 or float(fraction.reshape(-1)[0]) != 0.5:
        raise ValueError("fixed point has scales that are powers of two")
    return int(exponent.reshape(-1)[0]) - 1


def fixed_probabilities(operand: Operand, codes: np.ndarray, bits: int) -> np.ndarray:
    """Compute a softmax along the last axis in fixed point of 31 bits.

    Args:
        operand: What the codes are of.
        codes: Codes, with the axis last.
        bits: Bits of the result, all of them a fraction.

    Returns:
        Probabilities as integers, which stand for real ones at a scale of 2**-bits alone.
    """
    real = min(float(operand.scale) * 2.0 ** (_WORD - _DIFFERENCE_BITS), 2.0**_WORD - 1)
    whole, exponent = quantize_multiplier(np.asarray(real), bits=_WORD, rounding="away")
    least = -np.floor((2**_DIFFERENCE_BITS - 1) * 2.0 ** (_WORD - _DIFFERENCE_BITS) / 2.0 ** int(exponent))
    wide = codes.astype(np.int64)
    below = wide - wide.max(axis=-1, keepdims=True, initial=-(2**15))
    scaled = multiply_high(below << max(int(exponent), 0), whole, "up", bits=_WORD)
    power = np.where(below >= least, exp_of_negative(np.minimum(scaled, 0), _DIFFERENCE_BITS), 0)
    total = shift_right(power, _SUM_BITS, "away").sum(axis=-1, keepdims=True)
    free = _WORD - np.floor(np.log2(np.maximum(total, 1))).astype(np.int64)
    inverse = reciprocal_of_one_plus((total << free) - 2**_WORD)
    product = multiply_high(inverse, power, "up", bits=_WORD)
    found = shift_right(product, _SUM_BITS - free + _WORD - bits, "away")
    return np.where(below >= least, saturate_to(found, _WORD), 0)
