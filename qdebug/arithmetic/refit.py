"""The scale and the zero point by which each operand of a sum or a product acts, from what was recorded.

What is recorded of a sum of two codes is linear in them, but for rounding: y = (sa a + sb b) / sy + c. Least squares
give the factor of each operand and the constant. A factor that is not the recorded scale's, or a constant that another
zero point makes, is then tried: the node is computed with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qdebug.arithmetic.search import channels_first
from qdebug.errors import KernelError, UsageError
from qdebug.model.thresholds.patterns import REFIT_MIN_DEVIATIONS, REFIT_MIN_SHARE
from qdebug.replay.evaluate import compute
from qdebug.replay.unit import Operand, Unit
from qdebug.replay.variant import Variant

__all__ = ["Refit", "refit"]

_NAMES = ("first", "second")
_TRIED = 17
"""Scales that are tried at once around the best one so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refit:
    """Another parameter of one operand, by which a node was computed.

    Args:
        pattern: A key of `qdebug.arithmetic.patterns.residual.PATTERNS`.
        likely: The parameter in words.
        equal: Elements that are reproduced with it; of the others, none is off by more than one code.
        total: All elements.
    """

    pattern: str
    likely: str
    equal: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """The factor of each operand, the constant, and how sure the factors are.

    Args:
        factors: Codes of the output for one code of each operand.
        constant: What is added.
        deviations: Standard deviation of each factor.
    """

    factors: tuple[float, float]
    constant: float
    deviations: tuple[float, float]


def refit(units: Sequence[Unit], recorded: Sequence[np.ndarray], variant: Variant) -> Refit | None:
    """Find the scale or the zero point of one operand that reproduces a node which its own do not.

    Args:
        units: The node in each sample.
        recorded: Its recorded codes in each, channels first.
        variant: How it would be right.

    Returns:
        None for other operators than sums and products of two operands with one scale each, and where no other
        parameter of one of them reproduces nearly all elements.
    """
    unit = units[0]
    if unit.kind not in ("add", "sub", "mul") or any(side.codes.dtype.kind not in "iu" for side in unit.operands):
        return None
    scales = [*(side.scale for side in unit.operands), unit.out.scale]
    if len(unit.operands) != len(_NAMES) or any(scale.size > 1 for scale in scales):
        return None
    found = [_tried(units, recorded, variant, each) for each in _zero_points(units, recorded)]
    exact = [each for each in found if each is not None and each.equal == each.total]
    if exact:  # two of them may be the same function of the codes
        return replace(exact[0], likely=", or ".join(dict.fromkeys(each.likely for each in exact)))
    return None if unit.kind == "mul" else _other_scale(units, recorded, variant)


def _zero_points(units: Sequence[Unit], recorded: Sequence[np.ndarray]) -> Iterator[tuple[int, int]]:
    """Yield operands with the zero points that the constant terms say they have, where these are others."""
    unit = units[0]
    said = [int(side.zero_point.reshape(-1)[0]) for side in unit.operands]
    zero, y_scale = int(unit.out.zero_point.reshape(-1)[0]), _scale(unit.out.scale)
    scales = [_scale(side.scale) for side in unit.operands]
    if unit.kind == "mul":
        solved = _solved(units, recorded, lambda a, b: (a * b, a, b))
        if solved is None or not solved[0][0]:
            return
        (both, first, second, _), _ = solved
        likely = (-second / both, -first / both)
    else:
        line = _line(units, recorded)
        if line is None:
            return
        own = (scales[0] / y_scale, scales[1] / y_scale * (-1 if unit.kind == "sub" else 1))
        rest = line.constant - (zero - own[0] * said[0] - own[1] * said[1])
        likely = (said[0] - rest / own[0], said[1] - rest / own[1])
    for position, value in enumerate(likely):
        if abs(value) <= np.iinfo(np.int32).max and round(value) != said[position]:  # no NaN
            yield position, round(value)


def _tried(
    units: Sequence[Unit], recorded: Sequence[np.ndarray], variant: Variant, which: tuple[int, int]
) -> Refit | None:
    """Compute a node with another zero point of one operand."""
    position, value = which
    said = int(units[0].operands[position].zero_point.reshape(-1)[0])
    counts = _counted(units, recorded, variant, position, zero_point=np.asarray(value, np.int32))
    if counts is None:
        return None
    likely = f"the {_NAMES[position]} operand's zero point is taken as {value}, not {said}"
    return Refit(pattern="constant", likely=likely, equal=counts[0], total=counts[1])


def _other_scale(units: Sequence[Unit], recorded: Sequence[np.ndarray], variant: Variant) -> Refit | None:
    """Find the one operand that acts by another scale."""
    unit, line = units[0], _line(units, recorded)
    if line is None:
        return None
    y_scale, best = _scale(unit.out.scale), None
    for position, (own, deviation) in enumerate(zip(line.factors, line.deviations, strict=True)):
        factor = -own if position and unit.kind == "sub" else own
        said = _scale(unit.operands[position].scale)
        if factor <= 0 or abs(factor - said / y_scale) <= REFIT_MIN_DEVIATIONS * deviation:
            continue
        scale, width, counts = factor * y_scale, REFIT_MIN_DEVIATIONS * deviation * y_scale, None
        for _ in range(3):  # narrower each time
            for each in np.linspace(scale - width, scale + width, _TRIED):
                tried = _counted(units, recorded, variant, position, scale=np.asarray(each, np.float32))
                if tried is not None and (counts is None or tried[0] > counts[0]):
                    counts, scale = tried, float(each)
            width /= _TRIED // 2
        if counts is None or counts[0] < REFIT_MIN_SHARE * counts[1]:
            continue
        if best is None or counts[0] > best.equal:
            likely = f"the {_NAMES[position]} operand's scale acts as {scale:.6g}, not {said:.6g}"
            best = Refit(pattern="factor", likely=likely, equal=counts[0], total=counts[1])
    return best


def _counted(
    units: Sequence[Unit], recorded: Sequence[np.ndarray], variant: Variant, position: int, **changes: np.ndarray
) -> tuple[int, int] | None:
    """Count the elements that another parameter reproduces, of all; None where one is off by more than one code."""
    equal = total = 0
    for unit, codes in zip(units, recorded, strict=True):
        operands: list[Operand] = list(unit.operands)
        operands[position] = replace(operands[position], **changes)
        try:
            with np.errstate(all="ignore"):
                made = channels_first(compute(replace(unit, operands=tuple(operands)), variant), unit)
        except (KernelError, UsageError):
            return None
        if made.shape != codes.shape:
            return None
        off = np.abs(np.subtract(made, codes, dtype=np.int64))
        if off.max(initial=0) > 1:
            return None
        equal += int(np.count_nonzero(off == 0))
        total += off.size
    return equal, total


def _line(units: Sequence[Unit], recorded: Sequence[np.ndarray]) -> _Line | None:
    """Fit what was recorded as a sum of multiples of both operands."""
    solved = _solved(units, recorded, lambda a, b: (a, b))
    if solved is None:
        return None
    (first, second, constant), (one, two, _) = solved
    return _Line(factors=(float(first), float(second)), constant=float(constant), deviations=(float(one), float(two)))


def _solved(
    units: Sequence[Unit],
    recorded: Sequence[np.ndarray],
    terms: Callable[[np.ndarray, np.ndarray], Sequence[np.ndarray]],
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return factors of terms and of 1 by least squares, and their standard deviations; None if they are not told.

    What is at an end of the range may have been cut off there, and takes no part.
    """
    low, high = units[0].out.clamp or units[0].out.limits
    rows, given = [], []
    for unit, codes in zip(units, recorded, strict=True):
        a, b = (np.broadcast_to(side.codes, codes.shape).astype(np.float64) for side in unit.operands)
        inside = (codes > low) & (codes < high)
        columns = [term[inside] for term in terms(a, b)]
        rows.append(np.stack([*columns, np.ones(int(inside.sum()))], axis=-1))
        given.append(codes[inside].astype(np.float64))
    matrix, wanted = np.concatenate(rows), np.concatenate(given)
    if len(matrix) <= matrix.shape[1] or np.linalg.matrix_rank(matrix) < matrix.shape[1]:
        return None
    factors = np.linalg.lstsq(matrix, wanted, rcond=None)[0]
    off = wanted - matrix @ factors
    spread = np.linalg.inv(matrix.T @ matrix).diagonal() * float(np.mean(off**2))
    return factors, np.sqrt(np.abs(spread))


def _scale(scale: np.ndarray) -> float:
    return float(np.asarray(scale).reshape(-1)[0])
