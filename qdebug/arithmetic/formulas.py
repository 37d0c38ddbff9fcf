"""Finds the formula of a wrong result: of its operands, or of the right result's digits. Begin at `formula_of`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from qdebug.arithmetic.relations import Result
from qdebug.model import Node, operators
from qdebug.model.thresholds.explanation import CAUSE_MIN_DISTINCT_REALS

__all__ = ["fixed_point_relation_of", "formula_of"]


def formula_of(node: Node, result: Result) -> str | None:
    """Return a clause with the formula of a wrong result in its operands, and that of the right one, or None.

    Tried are sums of up to three products and quotients of the operands, with simple coefficients. The right result has
    to have such a formula as well.

    Args:
        node: The node's real form, which computes element by element.
        result: The result.
    """
    row, axis = operators.of(node.op), node.attrs.get("axis")
    names = [name for name in dict.fromkeys(node.inputs) if name and result.operands[name].size > 1]
    if (
        not (row.dequantizes or row.elementwise)
        or not 1 < len(names) <= _MAX_OPERANDS
        or result.right.dtype.kind != "f"
    ):
        return None
    arrays = {
        name: _aligned(result.operands[name], result.right.shape, axis if isinstance(axis, int) else 1)
        for name in names
    }
    aligned = {name: array for name, array in arrays.items() if array is not None}
    if len(aligned) < len(names) or result.right.size < _MIN_EQUATIONS:
        return None
    terms = list(_terms(aligned))
    right, recorded = (_fit(terms, values, result) for values in (result.right, result.recorded))
    if right is None or recorded in (None, right):
        return None
    return f"it computes {recorded}, not {right} (reproduces every element)"


_MAX_OPERANDS = 3
_MIN_EQUATIONS = 256
"""Minimum number of elements for a formula to be fitted, several for each of the at most 27 terms."""
_MAX_TERMS = 3
_EQUATIONS = 2048
_COEFFICIENT_DIGITS = 3


@dataclass(frozen=True, slots=True, eq=False)
class _Term:
    """A product of operands and reciprocals of operands, in words and as an array."""

    text: str
    values: np.ndarray


def _terms(operands: Mapping[str, np.ndarray]) -> Iterator[_Term]:
    """Yield all products of operands in which each occurs at most once, as a factor or as a divisor."""
    exponents = [(0, 1, -1) if array.all() else (0, 1) for array in operands.values()]
    for powers in product(*exponents):
        factors = [repr(name) for name, power in zip(operands, powers, strict=True) if power == 1]
        divisors = [repr(name) for name, power in zip(operands, powers, strict=True) if power == -1]
        text = " / ".join([" * ".join(factors) or "1", *divisors])
        values = np.ones(())
        for array, power in zip(operands.values(), powers, strict=True):
            values = values * array if power == 1 else values / array if power == -1 else values
        yield _Term(text, values)


def _aligned(array: np.ndarray, shape: tuple[int, ...], axis: int) -> np.ndarray | None:
    """Return an operand in the shape of the result: broadcast, or one number for each channel or block; or None."""
    numbers = array.astype(np.float64)
    if array.ndim == 1 and array.ndim < len(shape) and -len(shape) <= axis < len(shape) and array.size == shape[axis]:
        numbers = numbers.reshape([-1 if at == axis % len(shape) else 1 for at in range(len(shape))])
    elif array.ndim == len(shape):
        for at, (extent, whole) in enumerate(zip(array.shape, shape, strict=True)):
            if 1 < extent < whole and whole % extent == 0:
                numbers = np.repeat(numbers, whole // extent, at)
    try:
        return np.broadcast_to(numbers, shape)
    except ValueError:
        return None


def _fit(terms: list[_Term], values: np.ndarray, result: Result) -> str | None:
    """Return the formula of values in words, or None if there is no simple one or more than one."""
    places = np.linspace(0, values.size - 1, min(values.size, _EQUATIONS)).astype(int)
    columns = [np.broadcast_to(term.values, values.shape).reshape(-1)[places] for term in terms]
    table, target = np.stack(columns, axis=1), values.reshape(-1)[places].astype(np.float64)
    norms = np.linalg.norm(table, axis=0)
    if not np.isfinite(table).all() or not np.all(norms) or np.linalg.matrix_rank(table / norms) < len(terms):
        return None
    counts = np.round(np.linalg.lstsq(table / norms, target, rcond=None)[0] / norms, _COEFFICIENT_DIGITS) + 0.0
    used = np.flatnonzero(counts)
    if not 0 < used.size <= _MAX_TERMS:
        return None
    formula = np.zeros(())
    for at in used:
        formula = formula + counts[at] * terms[at].values
    difference = values.astype(np.float64) - formula
    slack = max(result.allowed, float(np.linalg.norm(values)) * float(np.finfo(np.float32).eps))
    if float(np.linalg.norm(difference)) > slack:
        return None
    return _sum_text([(float(counts[at]), terms[at].text) for at in used])


def _sum_text(parts: list[tuple[float, str]]) -> str:
    words = ""
    for count, text in sorted(parts, key=lambda part: part[0] < 0):
        number = "" if abs(count) == 1 else f"{abs(count):g} * "
        sign = (" - " if count < 0 else " + ") if words else ("-" if count < 0 else "")
        words += f"{sign}{number}{text}".removesuffix(" * 1")
    return words


def fixed_point_relation_of(result: Result) -> str | None:
    """Return a clause if the recorded numbers are the right ones cut to fixed point or wrapped around, or None.

    Args:
        result: The result, with finite numbers only.
    """
    right, recorded = result.right.astype(np.float64), result.recorded.astype(np.float64)
    if result.right.dtype.kind != "f" or np.unique(recorded).size < CAUSE_MIN_DISTINCT_REALS:
        return None
    return _cut_digits(result, right, recorded) or _wrapped_numbers(result, right, recorded)


def _cut_digits(result: Result, right: np.ndarray, recorded: np.ndarray) -> str | None:
    """Return a clause if all numbers are rounded in one direction to multiples of a power of two, or None."""
    for exponent in range(_MAX_FRACTION_BITS + 1):
        scaled = np.ldexp(recorded, exponent)
        if not np.array_equal(scaled, np.rint(scaled)):
            continue
        for text, direction in (("down", np.floor), ("toward 0", np.trunc), ("up", np.ceil), ("away from 0", _away)):
            if result.fits(np.ldexp(direction(np.ldexp(right, exponent)), -exponent)):
                return f"its results are rounded {text} to multiples of {2.0**-exponent:g} (reproduces every element)"
        return None
    return None


def _away(values: np.ndarray) -> np.ndarray:
    return np.asarray(np.copysign(np.ceil(np.abs(values)), values))


def _wrapped_numbers(result: Result, right: np.ndarray, recorded: np.ndarray) -> str | None:
    """Return a clause if numbers beyond a range of a power of two wrap around, or None."""
    errors = np.abs(recorded - right)
    period = 2.0 ** np.rint(np.log2(errors.max())) if errors.max() > 0 else 0.0
    for span in (period, period / 2, period / 4):
        for low in (-span / 2, 0.0) if span else ():
            if result.fits((right - low) % span + low):
                return f"its results wrap around beyond {low:g} to {low + span:g} (reproduces every element)"
    return None


_MAX_FRACTION_BITS = 15
"""Most bits after the binary point of the fixed-point formats that are tried."""
