"""Finds how a wrong real or integer result is related to the right one, for any operator. Begin at `relation_of`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from qdebug.arithmetic.copies import copied_elements
from qdebug.arithmetic.mistakes.mistake import Mistake
from qdebug.model import Node
from qdebug.model.thresholds.explanation import (
    CAUSE_MIN_DISTINCT_REALS,
    CAUSE_MIN_DISTINCT_VALUES,
    FURTHER_CAUSE_MIN_EQUAL_CODES,
    OUTLIER_ERROR_RATIO,
)
from qdebug.model.thresholds.patterns import SCALED_ROUNDING_SLACK, SMOOTH_MAX_CHANGE, TABLE_MAX_ENTRY_SHARE
from qdebug.model.thresholds.rounding import FLOAT32_UNIT_ROUNDOFF
from qdebug.numerics.short_formats import SHORT_FORMATS

__all__ = [
    "Line",
    "Result",
    "coarse_relation_of",
    "fit_line_of_codes",
    "functions_as_mistakes",
    "offsets_of_codes",
    "relation_by_index",
    "relation_of",
    "results_beyond_thresholds",
    "weight_of_operand",
]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Result:
    """A node's recorded result, together with the right one.

    Args:
        right: The right result.
        recorded: The recorded result, in the same shape.
        allowed: Norm of the difference that rounding explains, or 0 without rounding.
        operands: The node's inputs, by name.
        numbers: Its scalar parameters, such as a scale, by name.
    """

    right: np.ndarray
    recorded: np.ndarray
    allowed: float
    operands: Mapping[str, np.ndarray]
    numbers: Mapping[str, np.ndarray] = field(default_factory=dict)

    def fits(self, values: np.ndarray, factor: float = 1.0) -> bool:
        """Return whether values equal the recorded ones, up to rounding.

        Args:
            values: The values.
            factor: Factor between them and the right result. If it is above 1, more rounding error is allowed.
        """
        if values.shape != self.recorded.shape:
            return False
        difference = self.recorded.astype(np.float64) - values.astype(np.float64)
        return bool(np.linalg.norm(difference.reshape(-1)) <= self.allowed * max(1.0, abs(factor)))

    def part(self, mask: np.ndarray) -> Result:
        """Return some elements as a flat result, with the operands that have the result's shape."""
        operands = {name: array[mask] for name, array in self.operands.items() if array.shape == mask.shape}
        return replace(self, right=self.right[mask], recorded=self.recorded[mask], operands=operands)

    def joined(self, other: Result) -> Result:
        """Return the elements of two results as one flat result, with the operands that have the result's shape."""
        shapes = self.right.shape, other.right.shape
        operands = {
            name: np.concatenate([array.reshape(-1), other.operands[name].reshape(-1)])
            for name, array in self.operands.items()
            if array.shape == shapes[0] and other.operands[name].shape == shapes[1]
        }
        right, recorded = (
            np.concatenate([array.reshape(-1) for array in arrays])
            for arrays in ((self.right, other.right), (self.recorded, other.recorded))
        )
        allowed = float(np.hypot(self.allowed, other.allowed))
        return replace(self, right=right, recorded=recorded, allowed=allowed, operands=operands)


def relation_of(result: Result) -> str | None:
    """Return a clause on how all elements of a wrong result follow from the right ones, or None.

    Args:
        result: The result, with finite numbers only.
    """
    return _first_relation(result, _FINDERS)


def _first_relation(result: Result, finders: Sequence[Finder]) -> str | None:
    """Return the first relation that any of several finders yields, in order, or None."""
    right, recorded = result.right.astype(np.float64), result.recorded.astype(np.float64)
    if min(np.unique(recorded).size, np.unique(right).size) < CAUSE_MIN_DISTINCT_VALUES:
        return None
    return next((relation for find in finders for relation in find(result, right, recorded)), None)


def coarse_relation_of(result: Result) -> str | None:
    """Return a relation that several mistakes may cause, as a clause, or None.

    A mistake that reproduces the result reveals more about the cause, so it should be tried before this.

    Args:
        result: The result, with finite numbers only.
    """
    return _first_relation(result, _COARSE_FINDERS)


def relation_by_index(result: Result) -> str | None:
    """Return a clause if a result is off by one factor or addend for each index of an axis, or None.

    Args:
        result: The result, with finite numbers only.
    """
    right, recorded = result.right.astype(np.float64), result.recorded.astype(np.float64)
    return next(_find_constants_by_index(result, right, recorded), None)


Finder = Callable[[Result, np.ndarray, np.ndarray], Iterator[str]]
"""Yields relations of a result as clauses. Called with the result, and its right and recorded values in float64."""


class Line(NamedTuple):
    """Codes as a linear function of real numbers: round(factor * number) + zero.

    Args:
        factor: The reciprocal of the scale.
        zero: The zero point.
    """

    factor: float
    zero: int


def fit_line_of_codes(exact: np.ndarray, codes: np.ndarray, span: tuple[int, int]) -> Line | None:
    """Return the line that codes lie on up to rounding and clipping, or None.

    A device may not use the whole range of the type, so codes are taken as clipped at the extreme codes that occur.

    Args:
        exact: Real numbers, flat.
        codes: Their codes, flat.
        span: Lowest and highest code.
    """
    span = max(span[0], codes.min()), min(span[1], codes.max())
    inside = (codes > span[0]) & (codes < span[1])
    if (
        np.unique(codes[inside]).size < CAUSE_MIN_DISTINCT_VALUES
        or np.unique(exact[inside]).size < CAUSE_MIN_DISTINCT_VALUES
    ):
        return None
    factor, zero = np.polyfit(exact[inside], codes[inside], 1)
    zero = float(np.rint(zero))
    power = np.vdot(exact[inside], exact[inside])
    # Fit the factor again with the known zero point.
    factor = float(np.vdot(exact[inside], codes[inside] - zero) / power)
    errors = np.abs(np.clip(factor * exact + zero, *span) - codes)
    if errors.max() > 1 or np.count_nonzero(errors <= 0.5 + SCALED_ROUNDING_SLACK) < _MIN_ROUNDED_SHARE * codes.size:
        return None
    return Line(factor=factor, zero=int(zero))


def weight_of_operand(result: Result, without: np.ndarray) -> str | None:
    """Return the weight of an operand in the recorded result, as text, or None.

    None if the weight is 0 or 1, or the result is not linear in the operand.

    Args:
        result: The result.
        without: The right result if the operand were 0.
    """
    if without.shape != result.right.shape or result.right.dtype.kind != "f":
        return None
    right, recorded, base = (array.astype(np.float64) for array in (result.right, result.recorded, without))
    operand_effect = right - base
    power = float(np.vdot(operand_effect, operand_effect))
    if not power or not np.isfinite(power) or np.unique(operand_effect).size < CAUSE_MIN_DISTINCT_REALS:
        return None
    weight = round(float(np.vdot(operand_effect, recorded - base)) / power, _WEIGHT_DIGITS)
    if result.fits(base) or _number_text(weight) == "1" or not result.fits(base + weight * operand_effect, weight):
        return None
    return _number_text(weight)


def _find_unchanged_operand(result: Result, right: np.ndarray, recorded: np.ndarray) -> Iterator[str]:
    """Find a result that is one of the operands."""
    del right, recorded
    for name, array in result.operands.items():
        if array.dtype.kind in "fiu" and result.fits(array):
            yield f"it returns {name!r} unchanged"


def _find_linear_relation(result: Result, right: np.ndarray, recorded: np.ndarray) -> Iterator[str]:
    """Find a factor, an added constant, or both."""
    power = float(np.vdot(right, right))
    factor = float(np.vdot(right, recorded)) / power if power else 0.0
    if factor and _number_text(factor) != "1" and result.fits(factor * right, factor):
        clause = (
            "of the opposite sign"
            if _number_text(factor) == "-1"
            else f"{_number_text(factor)} times what it should be"
        )
        yield f"every element is {clause}{_clause_of_factor(result, factor)}"
    shift = float(np.mean(recorded - right))
    if shift and result.fits(right + shift):
        yield f"every element is {_number_text(abs(shift))} {'more' if shift > 0 else 'less'} than it should be"
    slope, offset = np.polyfit(right.reshape(-1), recorded.reshape(-1), 1)
    if slope and result.fits(slope * right + offset, slope):
        yield f"every element is {_number_text(slope)} times what it should be, plus {_number_text(offset)}"


def _clause_of_factor(result: Result, factor: float) -> str:
    """Return a clause with the scalar input whose value or reciprocal equals the factor, or ""."""
    for name, array in {**result.operands, **result.numbers}.items():
        value = float(array.reshape(-1)[0]) if array.size == 1 and array.dtype.kind == "f" else 0.0
        if value and _number_text(value) == _number_text(factor):
            return f", as if {name!r} counted once more"
        if value and _number_text(1 / value) == _number_text(factor):
            return f", as if {name!r} did not count"
    return ""


def _number_text(number: float) -> str:
    """Format a number with 4 digits, or with 7 if it would read as 1."""
    text = f"{number:.4g}"
    return f"{number:.7g}" if text == "1" else text


_FUNCTIONS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = MappingProxyType(
    {
        "the magnitude of": np.abs,
        "the square of": np.square,
        "the root of": np.sqrt,
        "the reciprocal of": np.reciprocal,
        "the exponential of": np.exp,
        "the logarithm of": np.log,
        "1 minus": lambda x: 1 - x,
        "the Relu of": lambda x: np.maximum(x, 0),
        "the sigmoid of": lambda x: 1 / (1 + np.exp(-x)),
        "the hyperbolic tangent of": np.tanh,
        "rounded down from": np.floor,
        "rounded up from": np.ceil,
        "rounded to an integer from": np.rint,
        "rounded, with halves away from 0, from": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
        "rounded, with halves up, from": lambda x: np.floor(x + 0.5),
        "rounded, with halves down, from": lambda x: np.ceil(x - 0.5),
        "truncated to an integer from": np.trunc,
    }
)


def _find_function_of_right(result: Result, right: np.ndarray, recorded: np.ndarray) -> Iterator[str]:
    """Find a function of the right result."""
    del recorded
    for name, function in _FUNCTIONS.items():
        with np.errstate(all="ignore"):
            candidate = function(right)
        if np.isfinite(candidate).all() and result.fits(candidate):
            yield f"every element is {name} what it should be"


def _find_function_of_operand(result: Result, right: np.ndarray, recorded: np.ndarray) -> Iterator[str]:
    """Find a function of one operand."""
    del recorded
    for operand, array in result.operands.items():
        for name, function in _FUNCTIONS.items() if array.shape == right.shape and array.dtype.kind == "f" else ():
            with np.errstate(all="ignore"):
                candidate = function(array.astype(np.float64))
            if np.isfinite(candidate).all() and result.fits(candidate):
                yield f"every element is {name} {operand!r}"


def functions_as_mistakes(
    node: Node, right: np.ndarray, recorded: np.ndarray, operands: Mapping[str, np.ndarray]
) -> Iterator[Mistake]:
    """Yield mistakes in which a node returns a function of the right result or of an operand, or clips its result.

    Args:
        node: The node's real form.
        right: Its right result.
        recorded: Its recorded result, which shows the bounds.
        operands: Its inputs.
    """
    if right.dtype.kind == "f" and np.unique(recorded).size > 1:
        low, high = float(recorded.min()), float(recorded.max())
        text = f"the result is clipped below {_number_text(low)} and above {_number_text(high)}"
        yield _as_mistake(node, text, np.clip(right, low, high))
    sources = {"what it should be": right}
    sources |= {repr(name): array for name, array in operands.items() if array.shape == right.shape}
    for source, array in sources.items():
        if array.dtype.kind != "f":
            continue
        if array is not right:
            yield _as_mistake(node, f"it returns {source} unchanged", array)
        for name, function in _FUNCTIONS.items():
            with np.errstate(all="ignore"):
                result = function(array.astype(np.float64))
            if np.isfinite(result).all():
                yield _as_mistake(node, f"every element is {name} {source}", result)


def results_beyond_thresholds(
    right: np.ndarray, recorded: np.ndarray, wrong: np.ndarray
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield results in which everything beyond a threshold becomes one number, each after a clause on it.

    Results that are merely clipped at the threshold are left out.

    Args:
        right: The right results of all samples.
        recorded: The recorded results, which show the number and the threshold.
        wrong: Mask of the wrong results.
    """
    for title, sides in (("from {} on", (1.0,)), ("from {} down", (-1.0,)), ("of magnitude from {} on", (1.0, -1.0))):
        result, thresholds, largest_right, ends = right.copy(), list[float](), list[float](), list[float]()
        for side in sides:
            is_wrong = wrong if len(sides) == 1 else wrong & (side * right > 0)
            numbers = np.unique(recorded[is_wrong])
            if numbers.size != 1:
                break
            threshold, end = float((side * right)[is_wrong].min()), side * float(numbers[0])
            is_beyond = side * right >= threshold
            below = float((side * right)[~is_beyond].max(initial=-np.inf))
            if below <= end <= threshold:
                break  # it is only clipped
            result[is_beyond] = side * end
            thresholds.append(threshold)
            largest_right.append(below)
            ends.append(end)
        if len(ends) == len(sides) and np.unique(right[result != right]).size >= CAUSE_MIN_DISTINCT_VALUES:
            end_text = f"{'' if len(sides) == 1 or not any(ends) else '±'}{_number_text(sides[0] * max(ends))}"
            threshold_text = title.format(f"{sides[0] * min(thresholds):.3g}")
            threshold_text += _clause_of_overflow(max(largest_right), min(thresholds))
            yield f"every result {threshold_text} becomes {end_text}", result


def _clause_of_overflow(largest_right: float, threshold: float) -> str:
    """Return a clause with the short format that overflows between two numbers, or "" if none does."""
    overflowing = (short for short in SHORT_FORMATS if largest_right <= short.largest <= threshold)
    return next((f", beyond the range of {short.name}," for short in overflowing), "")


def _as_mistake(node: Node, likely: str, result: np.ndarray) -> Mistake:
    return Mistake(likely=likely, node=node, values={}, after=lambda _: result.astype(np.float32))


def _has_right_elements(result: Result, right: np.ndarray, recorded: np.ndarray) -> bool:
    """Return whether the recorded elements equal the right ones in some order."""
    return bool(np.linalg.norm(np.sort(right, axis=None) - np.sort(recorded, axis=None)) <= result.allowed)


def _find_reordering(result: Result, right: np.ndarray, recorded: np.ndarray) -> Iterator[str]:
    """Find the right elements reversed, shifted or with permuted axes."""
    if not _has_right_elements(result, right, recorded):
        return
    axes = [axis for axis in range(right.ndim) if right.shape[axis] > 1]
    for axis in axes:
        if result.fits(np.flip(right, axis)):
            yield f"the result is in reverse along axis {axis}"
        for step in range(1, min(right.shape[axis], _SHIFTS_END)):
            for shift in (step, -step):
                if result.fits(np.roll(right, shift, axis)):
                    distance = "1 place" if step == 1 else f"{step} places"
                    yield f"the result is shifted {'forward' if shift > 0 else 'back'} by {distance} along axis {axis}"
    for order in permutations(range(right.ndim)) if 1 < right.ndim <= _MAX_AXES else ():
        if order != tuple(range(right.ndim)) and result.fits(right.transpose(order).reshape(right.shape)):
            yield f"the result is stored with its axes in the order {', '.join(map(str, order))}"


def _find_relation_of_part(result: Result, right: np.ndarray, recorded: np.ndarray) -> Iterator[str]:
    """Find a relation in a single part along an axis that contains all wrong elements."""
    slack = OUTLIER_ERROR_RATIO * result.allowed / np.sqrt(max(right.size, 1))
    is_wrong = ~(np.abs(recorded - right) <= slack)
    for axis in range(right.ndim if right.ndim > 1 else 0):
        positions = np.flatnonzero(
            is_wrong.any(axis=tuple(dimension for dimension in range(right.ndim) if dimension != axis))
        )
        if not 0 < positions.size < right.shape[axis] or positions[-1] - positions[0] + 1 != positions.size:
            continue
        part_result = replace(
            result,
            right=result.right.take(positions, axis),
            recorded=result.recorded.take(positions, axis),
            operands={},
        )
        relation = _first_relation(part_result, (_find_linear_relation, _find_function_of_right, _find_reordering))
        if relation is not None:
            place_clause = (
                f"at index {positions[0]}" if positions.size == 1 else f"at indices {positions[0]} to {positions[-1]}"
            )
            yield f"{place_clause} of axis {axis}, {relation}"


def _find_shuffling(result: Result, right: np.ndarray, recorded: np.ndarray) -> Iterator[str]:
    """Find the right elements in any other order."""
    if _has_right_elements(result, right, recorded):
        yield "its elements are right, but in a different order"


def _find_copied_elements(result: Result, right: np.ndarray, recorded: np.ndarray) -> Iterator[str]:
    """Find wrong elements that are copies of other elements of an operand."""
    wrong = right != recorded
    if result.recorded.dtype == result.right.dtype:
        yield from copied_elements(result.right, result.recorded, result.operands, wrong)


def _find_clipping(result: Result, right: np.ndarray, recorded: np.ndarray) -> Iterator[str]:
    """Find results that are clamped to a range."""
    low, high = float(recorded.min()), float(recorded.max())
    is_out_of_range = (right < low) | (right > high)
    if np.count_nonzero(is_out_of_range) >= CAUSE_MIN_DISTINCT_VALUES and result.fits(np.clip(right, low, high)):
        ends = [f"below {_number_text(low)}"] * bool((right < low).any())
        ends += [f"above {_number_text(high)}"] * bool((right > high).any())
        yield f"the result is clipped {' and '.join(ends)}"


def _find_operand_weights(result: Result, right: np.ndarray, recorded: np.ndarray) -> Iterator[str]:
    """Find wrong weights of operands in a weighted sum."""
    names = [name for name, array in result.operands.items() if array.dtype.kind == "f" and array.ndim <= right.ndim]
    try:
        columns = [np.broadcast_to(result.operands[name], right.shape).reshape(-1) for name in names]
    except ValueError:
        return
    if not 1 < len(columns) <= _MAX_OPERANDS or right.size < CAUSE_MIN_DISTINCT_VALUES * len(columns):
        return
    table = np.stack(columns, axis=1).astype(np.float64)
    right_weights, recorded_weights = (
        np.linalg.lstsq(table, array.reshape(-1), rcond=None)[0] for array in (right, recorded)
    )
    if not np.linalg.norm(table @ right_weights - right.reshape(-1)) <= result.allowed:
        return  # the node does not compute a weighted sum of these inputs
    if result.fits((table @ recorded_weights).reshape(right.shape), float(np.abs(recorded_weights).max())):
        changed_positions = [
            at for at in range(len(names)) if _number_text(recorded_weights[at]) != _number_text(right_weights[at])
        ]
        clauses = [
            f"{names[at]!r} counts {_number_text(recorded_weights[at])} times, not {_number_text(right_weights[at])}"
            for at in changed_positions
        ]
        yield ", and ".join(clauses)


def offsets_of_codes(exact: np.ndarray, codes: np.ndarray, span: tuple[int, int], axis: int) -> np.ndarray | None:
    """Return one offset for each index of an axis that together explain all codes, or None.

    A code that is rounded to nearest bounds the offset from both sides. A code at an end of the range bounds it from
    one side.

    Args:
        exact: The right codes before rounding, with the zero point.
        codes: The recorded codes.
        span: Lowest and highest code.
        axis: The axis.

    Returns:
        The offsets in LSB, or None if no offset explains the codes of some index.
    """
    other_axes = tuple(dimension for dimension in range(codes.ndim) if dimension != axis)
    differences = codes - exact
    at_most = np.where(codes < span[1], differences + 0.5, np.inf).min(other_axes)
    at_least = np.where(codes > span[0], differences - 0.5, -np.inf).max(other_axes)
    if not np.isfinite(at_most + at_least).all() or np.any(at_least - at_most > SCALED_ROUNDING_SLACK):
        return None
    return np.asarray((at_least + at_most) / 2)


def _find_constants_by_index(result: Result, right: np.ndarray, recorded: np.ndarray) -> Iterator[str]:
    """Find a factor or an added constant for each index of an axis, and the operand that it matches."""
    for axis in range(right.ndim if right.ndim > 1 else 0):
        if right.shape[axis] < CAUSE_MIN_DISTINCT_REALS or right.size < CAUSE_MIN_DISTINCT_VALUES * right.shape[axis]:
            continue
        other_axes = tuple(dimension for dimension in range(right.ndim) if dimension != axis)
        power = np.square(right).sum(other_axes, keepdims=True)
        with np.errstate(all="ignore"):
            factors = np.where(power > 0, (right * recorded).sum(other_axes, keepdims=True) / power, 1.0)
        shifts = (recorded - right).mean(other_axes, keepdims=True)
        for candidate, constants, comparison, neutral_constant in (
            (factors * right, factors, "times what it should be", 1.0),
            (right + shifts, shifts, "more than it should be", 0.0),
        ):
            largest_deviation = float(np.abs(constants - neutral_constant).max())
            if np.median(np.abs(constants - neutral_constant)) < _CLOSE_RATIO * largest_deviation:
                continue  # few indices differ, so their positions reveal more than a constant
            if result.fits(candidate, float(np.abs(factors).max()) if constants is factors else 1.0):
                low, high = _number_text(float(constants.min())), _number_text(float(constants.max()))
                source = _clause_of_proportional_operand(result, constants)
                yield f"each index along axis {axis} is a constant {comparison}, {low} to {high}{source}"


def _clause_of_proportional_operand(result: Result, constants: np.ndarray) -> str:
    """Return a clause with the operand that is proportional to per-index constants or their reciprocals, or ""."""
    flat = constants.reshape(-1)
    for name, array in result.operands.items():
        if array.size != flat.size or array.dtype.kind != "f" or np.unique(array).size < CAUSE_MIN_DISTINCT_REALS:
            continue
        operand_values = array.reshape(-1).astype(np.float64)
        for proportional_values, relation in (
            (operand_values, "in proportion to"),
            (1 / operand_values if operand_values.all() else operand_values, "in inverse proportion to"),
        ):
            scale = float(np.vdot(proportional_values, flat) / np.vdot(proportional_values, proportional_values))
            error = np.linalg.norm(flat - scale * proportional_values)
            if error <= _CLOSE_RATIO * np.linalg.norm(flat):
                return f", {relation} {name!r}"
    return ""


def _find_common_shift(result: Result, right: np.ndarray, recorded: np.ndarray) -> Iterator[str]:
    """Find wrong elements that are all off by the same amount."""
    del result
    differences = recorded - right
    is_wrong = np.abs(differences) > FLOAT32_UNIT_ROUNDOFF * np.abs(right).max() * CAUSE_MIN_DISTINCT_VALUES
    if np.count_nonzero(is_wrong) < CAUSE_MIN_DISTINCT_VALUES or is_wrong.all():
        return
    shift = float(np.median(differences[is_wrong]))
    if (
        np.allclose(differences[is_wrong], shift, rtol=_CLOSE_RATIO, atol=0)
        and np.unique(recorded[is_wrong]).size >= CAUSE_MIN_DISTINCT_REALS
    ):
        first, last = (np.argwhere(is_wrong)[at] for at in (0, -1))
        is_contiguous = is_wrong.ndim == 1 and np.count_nonzero(is_wrong) == last[0] - first[0] + 1
        place_clause = f" from place {first[0]} to {last[0]}" if is_contiguous else ""
        way = "more" if shift > 0 else "less"
        amount = f"{_number_text(abs(shift))} {way}"
        yield f"{np.count_nonzero(is_wrong)} elements{place_clause} are {amount} than they should be"


def _find_fewer_bits(result: Result, right: np.ndarray, recorded: np.ndarray) -> Iterator[str]:
    """Find numbers with fewer significant bits than the right ones, off by at most one unit in the last bit."""
    if result.recorded.dtype != np.float32 or recorded.size < _MIN_ELEMENTS:
        return
    bits, own_bits = _significant_bits(result.recorded), _significant_bits(result.right)
    if (
        1 < bits < min(own_bits, _MIN_BITS_OF_FLOAT32)
        and (np.abs(recorded - right) <= 2.0 ** (1 - bits) * np.abs(right)).all()
    ):
        yield f"its results have {bits} significant bits"


def _significant_bits(values: np.ndarray) -> int:
    """Return the largest number of significant bits of any element."""
    fractions = np.frexp(values[values != 0].astype(np.float64))[0] * 2.0**_FLOAT32_BITS
    if not fractions.size:
        return 0
    mantissas = fractions.astype(np.int64)
    return _FLOAT32_BITS + 1 - int(np.log2((mantissas & -mantissas).min()) + 1)


def _find_steps_of_table(result: Result, right: np.ndarray, recorded: np.ndarray) -> Iterator[str]:
    """Find a result that is constant over each range of the only operand, as if it were read from a coarse table."""
    operands = [array for array in result.operands.values() if array.shape == right.shape]
    if len(result.operands) != 1 or not operands or recorded.size < _MIN_ELEMENTS:
        return
    order = np.argsort(operands[0], axis=None)
    ranges, own_ranges = (1 + np.count_nonzero(np.diff(array.reshape(-1)[order])) for array in (recorded, right))
    if CAUSE_MIN_DISTINCT_VALUES <= ranges <= TABLE_MAX_ENTRY_SHARE * own_ranges:
        yield f"it has only {ranges} different results, each for a range of inputs, like a table without interpolation"


def _find_smooth_error(result: Result, right: np.ndarray, recorded: np.ndarray) -> Iterator[str]:
    """Find an error that is a smooth function of the only operand."""
    operands = [array for array in result.operands.values() if array.shape == right.shape]
    is_real = result.recorded.dtype.kind == "f"
    if len(result.operands) != 1 or not operands or recorded.size < _MIN_ELEMENTS or not is_real:
        return
    order = np.argsort(operands[0], axis=None)
    errors = (recorded - right).reshape(-1)[order]
    if float(np.abs(np.diff(errors)).sum()) <= SMOOTH_MAX_CHANGE * float(np.abs(errors).sum()):
        yield "its error depends smoothly on its input alone, like that of an approximation"


def _find_narrowing(result: Result, right: np.ndarray, recorded: np.ndarray) -> Iterator[str]:
    """Find integers that wrapped around or saturated in fewer bits along the way."""
    del recorded
    if result.right.dtype.kind not in "iu":
        return
    for dtype in map(np.dtype, ("uint8", "int8", "uint16", "int16", "int32")):
        ends = np.iinfo(dtype)
        if dtype.itemsize < result.right.dtype.itemsize:
            if result.fits(result.right.astype(dtype)):
                yield f"integers beyond {dtype.name} wrap around: they are kept in {8 * dtype.itemsize} bits"
            elif result.fits(np.clip(right, ends.min, ends.max)):
                yield f"integers beyond {dtype.name} saturate"


_FINDERS = (
    _find_unchanged_operand,
    _find_narrowing,
    _find_linear_relation,
    _find_function_of_right,
    _find_reordering,
    _find_clipping,
    _find_operand_weights,
    _find_function_of_operand,
)
"""Finders of `relation_of`, in order."""
_COARSE_FINDERS = (
    _find_common_shift,
    _find_steps_of_table,
    _find_fewer_bits,
    _find_relation_of_part,
    _find_shuffling,
    _find_copied_elements,
    _find_smooth_error,
)
"""Finders of `coarse_relation_of`, in order."""
_MIN_ELEMENTS = 64
"""Minimum number of elements for a property of all of them to rule out chance."""
_FLOAT32_BITS = 24
_MIN_BITS_OF_FLOAT32 = 20
"""Number of significant bits from which numbers may as well be float32."""
_CLOSE_RATIO = FLOAT32_UNIT_ROUNDOFF * 1024
_MIN_ROUNDED_SHARE = FURTHER_CAUSE_MIN_EQUAL_CODES
_SHIFTS_END = 9
_WEIGHT_DIGITS = 7
"""Decimal places that a weight is rounded to. Float32 does not resolve more."""
_MAX_AXES = 4
_MAX_OPERANDS = 6
