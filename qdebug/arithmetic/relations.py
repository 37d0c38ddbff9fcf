"""How a wrong real or integer result is related to the right one, whatever the operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from qdebug.model.thresholds.explanation import (
    CAUSE_MIN_DISTINCT_REALS,
    CAUSE_MIN_DISTINCT_VALUES,
    FURTHER_CAUSE_MIN_EQUAL_CODES,
    OUTLIER_ERROR_RATIO,
)
from qdebug.model.thresholds.patterns import SCALED_ROUNDING_SLACK
from qdebug.model.thresholds.rounding import FLOAT32_UNIT_ROUNDOFF

__all__ = ["Line", "Result", "line_of_codes", "relation_by_index", "relation_of", "share_of"]


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

    def fits(self, made: np.ndarray, times: float = 1.0) -> bool:
        """Return whether values equal the recorded ones, up to rounding.

        Args:
            made: The values.
            times: How many times larger they are than the right result, if more than once.
        """
        if made.shape != self.recorded.shape:
            return False
        off = self.recorded.astype(np.float64) - made.astype(np.float64)
        return bool(np.linalg.norm(off.reshape(-1)) <= self.allowed * max(1.0, abs(times)))


def relation_of(result: Result) -> str | None:
    """Return how all elements of a wrong result follow from the right ones, or None if no simple relation is known.

    Args:
        result: The result, with finite numbers only.
    """
    return _first_relation(result, _FINDERS)


def _first_relation(result: Result, finders: Sequence[Finder]) -> str | None:
    """Return the first relation found by any of several searches, or None."""
    right, recorded = result.right.astype(np.float64), result.recorded.astype(np.float64)
    if min(np.unique(recorded).size, np.unique(right).size) < CAUSE_MIN_DISTINCT_VALUES:
        return None
    return next((relation for find in finders for relation in find(result, right, recorded)), None)


def relation_by_index(result: Result) -> str | None:
    """Return the constant for each index of an axis by which a wrong result differs from the right one, or None.

    Args:
        result: The result, with finite numbers only.
    """
    right, recorded = result.right.astype(np.float64), result.recorded.astype(np.float64)
    return next(_by_index(result, right, recorded), None)


Finder = Callable[[Result, np.ndarray, np.ndarray], Iterator[str]]
"""Yields relations of a result, given the right and the recorded values in float64."""


class Line(NamedTuple):
    """Codes as rounded multiples of real numbers, plus a zero point.

    Args:
        factor: Codes per unit.
        zero: The zero point.
    """

    factor: float
    zero: int


def line_of_codes(exact: np.ndarray, codes: np.ndarray, span: tuple[int, int]) -> Line | None:
    """Return the line that codes lie on up to rounding, ignoring the ends of their range, or None.

    A device may use less than the range of the type, so the ends are the extreme codes that occur.

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
    own = np.vdot(exact[inside], exact[inside])
    factor = float(np.vdot(exact[inside], codes[inside] - zero) / own)  # fit the factor again with the known zero point
    off = np.abs(np.clip(factor * exact + zero, *span) - codes)
    if off.max() > 1 or np.count_nonzero(off <= 0.5 + SCALED_ROUNDING_SLACK) < _MOSTLY * codes.size:
        return None
    return Line(factor=factor, zero=int(zero))


def share_of(result: Result, without: np.ndarray) -> str | None:
    """Return how often an operand counts in a result that is linear in it, or None if once or not linear.

    Args:
        result: The result.
        without: The result if the operand were 0.
    """
    if without.shape != result.right.shape or result.right.dtype.kind != "f":
        return None
    right, recorded, base = (each.astype(np.float64) for each in (result.right, result.recorded, without))
    own = right - base
    power = float(np.vdot(own, own))
    if not power or not np.isfinite(power) or np.unique(own).size < CAUSE_MIN_DISTINCT_REALS:
        return None
    share = float(np.vdot(own, recorded - base)) / power
    if not share or _written(share) == "1" or not result.fits(base + share * own, share):
        return None
    return _written(share)


def _operand(result: Result, right: np.ndarray, recorded: np.ndarray) -> Iterator[str]:
    """Find a result that is one of the operands."""
    del right, recorded
    for name, array in result.operands.items():
        if array.dtype.kind in "fiu" and result.fits(array):
            yield f"it returns {name!r} unchanged"


def _line(result: Result, right: np.ndarray, recorded: np.ndarray) -> Iterator[str]:
    """Find a factor, an added constant, or both."""
    power = float(np.vdot(right, right))
    factor = float(np.vdot(right, recorded)) / power if power else 0.0
    if factor and result.fits(factor * right, factor):
        said = "of the opposite sign" if _written(factor) == "-1" else f"{_written(factor)} times what it should be"
        yield f"every element is {said}{_known_factor(result, factor)}"
    shift = float(np.mean(recorded - right))
    if shift and result.fits(right + shift):
        yield f"every element is {_written(abs(shift))} {'more' if shift > 0 else 'less'} than it should be"
    slope, offset = np.polyfit(right.reshape(-1), recorded.reshape(-1), 1)
    if slope and result.fits(slope * right + offset, slope):
        yield f"every element is {_written(slope)} times what it should be, plus {_written(offset)}"


def _known_factor(result: Result, factor: float) -> str:
    """Return a clause that names the scalar input whose value, or reciprocal, is the factor, or "" if none is."""
    for name, array in {**result.operands, **result.numbers}.items():
        value = float(array.reshape(-1)[0]) if array.size == 1 and array.dtype.kind == "f" else 0.0
        if value and _written(value) == _written(factor):
            return f", as if {name!r} counted once more"
        if value and _written(1 / value) == _written(factor):
            return f", as if {name!r} did not count"
    return ""


def _written(number: float) -> str:
    return f"{number:.4g}"


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
        "rounded to a whole number from": np.rint,
        "cut to a whole number from": np.trunc,
    }
)


def _function(result: Result, right: np.ndarray, recorded: np.ndarray) -> Iterator[str]:
    """Find a function of the right result."""
    del recorded
    for name, function in _FUNCTIONS.items():
        with np.errstate(all="ignore"):
            made = function(right)
        if np.isfinite(made).all() and result.fits(made):
            yield f"every element is {name} what it should be"


def _order(result: Result, right: np.ndarray, recorded: np.ndarray) -> Iterator[str]:
    """Find the right elements in a different order."""
    ordered = [np.sort(each, axis=None) for each in (right, recorded)]
    if not np.linalg.norm(ordered[0] - ordered[1]) <= result.allowed:
        return
    axes = [axis for axis in range(right.ndim) if right.shape[axis] > 1]
    for axis in axes:
        if result.fits(np.flip(right, axis)):
            yield f"the result is in reverse along axis {axis}"
        for step in range(1, min(right.shape[axis], _MOST_STEPS)):
            for way in (step, -step):
                if result.fits(np.roll(right, way, axis)):
                    places = "1 place" if step == 1 else f"{step} places"
                    yield f"the result is shifted {'forward' if way > 0 else 'back'} by {places} along axis {axis}"
    for order in permutations(range(right.ndim)) if 1 < right.ndim <= _MOST_AXES else ():
        if order != tuple(range(right.ndim)) and result.fits(right.transpose(order).reshape(right.shape)):
            yield f"the result is stored with its axes in the order {', '.join(map(str, order))}"


def _of_part(result: Result, right: np.ndarray, recorded: np.ndarray) -> Iterator[str]:
    """Find a relation in a single part along an axis that contains all wrong elements."""
    slack = OUTLIER_ERROR_RATIO * result.allowed / np.sqrt(max(right.size, 1))
    wrong = ~(np.abs(recorded - right) <= slack)
    for axis in range(right.ndim if right.ndim > 1 else 0):
        places = np.flatnonzero(wrong.any(axis=tuple(other for other in range(right.ndim) if other != axis)))
        if not 0 < places.size < right.shape[axis] or places[-1] - places[0] + 1 != places.size:
            continue
        part = replace(
            result, right=result.right.take(places, axis), recorded=result.recorded.take(places, axis), operands={}
        )
        found = _first_relation(part, (_line, _function, _order))
        if found is not None:
            where = f"at index {places[0]}" if places.size == 1 else f"at indices {places[0]} to {places[-1]}"
            yield f"{where} of axis {axis}, {found}"


def _shuffled(result: Result, right: np.ndarray, recorded: np.ndarray) -> Iterator[str]:
    """Find the right elements in an order that is not one of the usual ones."""
    ordered = [np.sort(each, axis=None) for each in (right, recorded)]
    if np.linalg.norm(ordered[0] - ordered[1]) <= result.allowed:
        yield "its elements are right, but in another order"


def _clamp(result: Result, right: np.ndarray, recorded: np.ndarray) -> Iterator[str]:
    """Find results that are clamped to a range."""
    low, high = float(recorded.min()), float(recorded.max())
    beyond = (right < low) | (right > high)
    if np.count_nonzero(beyond) >= CAUSE_MIN_DISTINCT_VALUES and result.fits(np.clip(right, low, high)):
        ends = [f"below {_written(low)}"] * bool((right < low).any())
        ends += [f"above {_written(high)}"] * bool((right > high).any())
        yield f"the result is clipped {' and '.join(ends)}"


def _sum(result: Result, right: np.ndarray, recorded: np.ndarray) -> Iterator[str]:
    """Find how often each of several operands in the result's shape counts."""
    names = [name for name, each in result.operands.items() if each.dtype.kind == "f" and each.ndim <= right.ndim]
    try:
        columns = [np.broadcast_to(result.operands[name], right.shape).reshape(-1) for name in names]
    except ValueError:
        return
    if not 1 < len(columns) <= _MOST_OPERANDS or right.size < CAUSE_MIN_DISTINCT_VALUES * len(columns):
        return
    table = np.stack(columns, axis=1).astype(np.float64)
    own, found = (np.linalg.lstsq(table, each.reshape(-1), rcond=None)[0] for each in (right, recorded))
    if not np.linalg.norm(table @ own - right.reshape(-1)) <= result.allowed:
        return  # the node does not compute a weighted sum of these inputs
    if result.fits((table @ found).reshape(right.shape), float(np.abs(found).max())):
        changed = [at for at in range(len(names)) if _written(found[at]) != _written(own[at])]
        said = [f"{names[at]!r} counts {_written(found[at])} times, not {_written(own[at])}" for at in changed]
        yield ", and ".join(said)


def _by_index(result: Result, right: np.ndarray, recorded: np.ndarray) -> Iterator[str]:
    """Find a factor or an added constant for each index of an axis, and the operand that it matches."""
    for axis in range(right.ndim if right.ndim > 1 else 0):
        if right.shape[axis] < CAUSE_MIN_DISTINCT_REALS or right.size < CAUSE_MIN_DISTINCT_VALUES * right.shape[axis]:
            continue
        others = tuple(other for other in range(right.ndim) if other != axis)
        power = np.square(right).sum(others, keepdims=True)
        with np.errstate(all="ignore"):
            factors = np.where(power > 0, (right * recorded).sum(others, keepdims=True) / power, 1.0)
        shifts = (recorded - right).mean(others, keepdims=True)
        for made, own, said, none in (
            (factors * right, factors, "times what it should be", 1.0),
            (right + shifts, shifts, "more than it should be", 0.0),
        ):
            most = float(np.abs(own - none).max())
            if np.median(np.abs(own - none)) < _CLOSE * most:
                continue  # few elements differ, so their positions tell more than a factor
            if result.fits(made, float(np.abs(factors).max()) if own is factors else 1.0):
                low, high = _written(float(own.min())), _written(float(own.max()))
                yield f"each index along axis {axis} is a constant {said}, {low} to {high}{_like(result, own)}"


def _like(result: Result, found: np.ndarray) -> str:
    """Return a clause on the operand that is proportional to the per-index constants, or to their reciprocals."""
    flat = found.reshape(-1)
    for name, array in result.operands.items():
        if array.size != flat.size or array.dtype.kind != "f" or np.unique(array).size < CAUSE_MIN_DISTINCT_REALS:
            continue
        own = array.reshape(-1).astype(np.float64)
        for one, said in ((own, "in proportion to"), (1 / own if own.all() else own, "in inverse proportion to")):
            scale = float(np.vdot(one, flat) / np.vdot(one, one))
            off = np.linalg.norm(flat - scale * one)
            if off <= _CLOSE * np.linalg.norm(flat):
                return f", {said} {name!r}"
    return ""


def _apart(result: Result, right: np.ndarray, recorded: np.ndarray) -> Iterator[str]:
    """Find wrong elements that are all off by the same amount."""
    del result
    off = recorded - right
    wrong = np.abs(off) > FLOAT32_UNIT_ROUNDOFF * np.abs(right).max() * CAUSE_MIN_DISTINCT_VALUES
    if np.count_nonzero(wrong) < CAUSE_MIN_DISTINCT_VALUES or wrong.all():
        return
    shift = float(np.median(off[wrong]))
    if (
        np.allclose(off[wrong], shift, rtol=_CLOSE, atol=0)
        and np.unique(recorded[wrong]).size >= CAUSE_MIN_DISTINCT_REALS
    ):
        first, last = (np.argwhere(wrong)[at] for at in (0, -1))
        whole = wrong.ndim == 1 and np.count_nonzero(wrong) == last[0] - first[0] + 1
        where = f" from place {first[0]} to {last[0]}" if whole else ""
        way = "more" if shift > 0 else "less"
        yield f"{np.count_nonzero(wrong)} elements{where} are {_written(abs(shift))} {way} than they should be"


def _narrowed(result: Result, right: np.ndarray, recorded: np.ndarray) -> Iterator[str]:
    """Find integers that were truncated to fewer bits along the way."""
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


_FINDERS = (_operand, _narrowed, _line, _function, _order, _clamp, _apart, _sum, _of_part, _shuffled)
"""Searches for a relation, in order."""
_CLOSE = FLOAT32_UNIT_ROUNDOFF * 1024
_MOSTLY = FURTHER_CAUSE_MIN_EQUAL_CODES
_MOST_STEPS = 9
_MOST_AXES = 4
_MOST_OPERANDS = 6
