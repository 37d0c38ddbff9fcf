"""How a wrong result of real numbers or integers follows from the right one, whatever the operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations
from types import MappingProxyType

import numpy as np

__all__ = ["Result", "relation_of", "share_of"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Result:
    """A node's result beside what it should be.

    Args:
        right: What it should be.
        recorded: What was recorded, of the same shape.
        allowed: The norm that their difference may have; 0 if nothing is rounded.
        operands: What the node reads, by name.
    """

    right: np.ndarray
    recorded: np.ndarray
    allowed: float
    operands: Mapping[str, np.ndarray]

    def fits(self, made: np.ndarray, times: float = 1.0) -> bool:
        """Tell whether values are those that were recorded, up to rounding.

        Args:
            made: The values.
            times: How much larger they are than the right result, if that is more than once.
        """
        if made.shape != self.recorded.shape:
            return False
        off = self.recorded.astype(np.float64) - made.astype(np.float64)
        return bool(np.linalg.norm(off.reshape(-1)) <= self.allowed * max(1.0, abs(times)))


def relation_of(result: Result) -> str | None:
    """Say how all elements of a wrong result follow from the right ones; None if no simple way is known.

    Args:
        result: The result, of finite numbers.
    """
    right, recorded = result.right.astype(np.float64), result.recorded.astype(np.float64)
    if np.unique(recorded).size < _TELLING or np.unique(right).size < _TELLING:
        return None
    return next(
        (said for find in (_operand, _line, _function, _order, _clamp, _sum) for said in find(result, right, recorded)),
        None,
    )


def share_of(result: Result, without: np.ndarray) -> str | None:
    """Return how often an operand counts in a result that is linear in it; None if it counts once, or not so.

    Args:
        result: The result.
        without: What it would be if the operand were 0.
    """
    if without.shape != result.right.shape or result.right.dtype.kind != "f":
        return None
    right, recorded, base = (each.astype(np.float64) for each in (result.right, result.recorded, without))
    own = right - base
    power = float(np.vdot(own, own))
    if not power or not np.isfinite(power) or np.unique(own).size < _FEW:
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
            yield f"it hands on {name!r} as it is"


def _line(result: Result, right: np.ndarray, recorded: np.ndarray) -> Iterator[str]:
    """Find a factor, a constant that is added, or both."""
    power = float(np.vdot(right, right))
    factor = float(np.vdot(right, recorded)) / power if power else 0.0
    if factor and result.fits(factor * right, factor):
        said = "of the opposite sign" if _written(factor) == "-1" else f"{_written(factor)} times what it should be"
        yield f"every element is {said}"
    shift = float(np.mean(recorded - right))
    if shift and result.fits(right + shift):
        yield f"every element is {_written(abs(shift))} {'more' if shift > 0 else 'less'} than it should be"
    slope, offset = np.polyfit(right.reshape(-1), recorded.reshape(-1), 1)
    if slope and result.fits(slope * right + offset, slope):
        yield f"every element is {_written(slope)} times what it should be, plus {_written(offset)}"


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
    """Find the right elements in another order."""
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
                    yield f"the result is moved by {places} {'on' if way > 0 else 'back'} along axis {axis}"
    for order in permutations(range(right.ndim)) if 1 < right.ndim <= _MOST_AXES else ():
        if order != tuple(range(right.ndim)) and result.fits(right.transpose(order).reshape(right.shape)):
            yield f"the result is stored with its axes in the order {', '.join(map(str, order))}"
    yield "its elements are those that it should have, in another order"


def _clamp(result: Result, right: np.ndarray, recorded: np.ndarray) -> Iterator[str]:
    """Find results that are held to a range."""
    low, high = float(recorded.min()), float(recorded.max())
    beyond = (right < low) | (right > high)
    if np.count_nonzero(beyond) >= _TELLING and result.fits(np.clip(right, low, high)):
        ends = [f"below {_written(low)}"] * bool((right < low).any())
        ends += [f"above {_written(high)}"] * bool((right > high).any())
        yield f"the result is cut off {' and '.join(ends)}"


def _sum(result: Result, right: np.ndarray, recorded: np.ndarray) -> Iterator[str]:
    """Find how often each of several operands of the result's shape counts."""
    names = [name for name, each in result.operands.items() if each.dtype.kind == "f" and each.ndim <= right.ndim]
    try:
        columns = [np.broadcast_to(result.operands[name], right.shape).reshape(-1) for name in names]
    except ValueError:
        return
    if not 1 < len(columns) <= _MOST_OPERANDS or right.size < _TELLING * len(columns):
        return
    table = np.stack(columns, axis=1).astype(np.float64)
    own, found = (np.linalg.lstsq(table, each.reshape(-1), rcond=None)[0] for each in (right, recorded))
    if not np.linalg.norm(table @ own - right.reshape(-1)) <= result.allowed:
        return  # it is no sum of them
    if result.fits((table @ found).reshape(right.shape), float(np.abs(found).max())):
        changed = [at for at in range(len(names)) if _written(found[at]) != _written(own[at])]
        said = [f"{names[at]!r} counts {_written(found[at])} times, not {_written(own[at])}" for at in changed]
        yield ", and ".join(said)


_TELLING = 8
"""Different values that no relation gives by chance."""
_FEW = 3
_MOST_STEPS = 9
_MOST_AXES = 4
_MOST_OPERANDS = 6
