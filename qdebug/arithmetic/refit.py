"""Fits the scale and zero point that an operand of a sum or product effectively has, from recorded codes.

A recorded sum of two codes is linear in them up to rounding: y = (sa a + sb b) / sy + c. Least squares give the factor
of each operand and the constant. If one of them contradicts the recorded parameters, the node is computed with the
fitted parameter as a check. Begin at `refit`.
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

_OPERAND_NAMES = ("first", "second")
_SCALES_PER_ROUND = 17
"""Number of scales tried in each round around the best one so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refit:
    """Another scale or zero point of one operand that explains the recorded codes.

    Args:
        pattern: A key of `qdebug.arithmetic.patterns.residual.PATTERNS`.
        likely: The parameter in words.
        equal: Number of elements that it reproduces. All others are off by at most one code.
        total: Number of elements.
    """

    pattern: str
    likely: str
    equal: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _LinearFit:
    """A least-squares fit of output codes as a linear function of the codes of both operands.

    Args:
        factors: Factor of each operand's codes.
        constant: The constant term, in output codes.
        deviations: Standard deviation of each factor.
    """

    factors: tuple[float, float]
    constant: float
    deviations: tuple[float, float]


def refit(units: Sequence[Unit], recorded: Sequence[np.ndarray], variant: Variant) -> Refit | None:
    """Find another scale or zero point of one operand that reproduces a node.

    Args:
        units: The node in each sample.
        recorded: Its recorded codes in each sample, channels first.
        variant: The expected arithmetic.

    Returns:
        The parameter, or None if no parameter reproduces nearly all elements, or the operator is not a sum or product
            of two operands with one scale each.
    """
    unit = units[0]
    if unit.kind not in ("add", "sub", "mul") or any(side.codes.dtype.kind not in "iu" for side in unit.operands):
        return None
    scales = [*(side.scale for side in unit.operands), unit.out.scale]
    if len(unit.operands) != len(_OPERAND_NAMES) or any(scale.size > 1 for scale in scales):
        return None
    candidates = [
        _refit_zero_point(units, recorded, variant, candidate) for candidate in _fit_zero_points(units, recorded)
    ]
    exact = [candidate for candidate in candidates if candidate is not None and candidate.equal == candidate.total]
    if exact:  # another zero point of either operand may give the same codes, so all are reported
        return replace(exact[0], likely=", or ".join(dict.fromkeys(candidate.likely for candidate in exact)))
    return None if unit.kind == "mul" else _fit_scale(units, recorded, variant)


def _fit_zero_points(units: Sequence[Unit], recorded: Sequence[np.ndarray]) -> Iterator[tuple[int, int]]:
    """Yield the index of each operand with its fitted zero point, if that differs from the recorded one."""
    unit = units[0]
    recorded_zeros = [int(side.zero_point.reshape(-1)[0]) for side in unit.operands]
    zero, y_scale = int(unit.out.zero_point.reshape(-1)[0]), _first_scale(unit.out.scale)
    scales = [_first_scale(side.scale) for side in unit.operands]
    if unit.kind == "mul":
        solved = _solve_least_squares(units, recorded, lambda a, b: (a * b, a, b))
        if solved is None or not solved[0][0]:
            return
        (product_factor, first_factor, second_factor, _), _ = solved
        fitted = (-second_factor / product_factor, -first_factor / product_factor)
    else:
        line = _fit_line(units, recorded)
        if line is None:
            return
        factors = (scales[0] / y_scale, scales[1] / y_scale * (-1 if unit.kind == "sub" else 1))
        excess = line.constant - (zero - factors[0] * recorded_zeros[0] - factors[1] * recorded_zeros[1])
        fitted = (recorded_zeros[0] - excess / factors[0], recorded_zeros[1] - excess / factors[1])
    for position, value in enumerate(fitted):
        if abs(value) <= np.iinfo(np.int32).max and round(value) != recorded_zeros[position]:  # false for NaN
            yield position, round(value)


def _refit_zero_point(
    units: Sequence[Unit], recorded: Sequence[np.ndarray], variant: Variant, change: tuple[int, int]
) -> Refit | None:
    """Compute a node with another zero point of one operand, and return how well it explains the recorded codes.

    Args:
        units: The node in each sample.
        recorded: Its recorded codes in each sample.
        variant: The expected arithmetic.
        change: Index of the operand, and its zero point.

    Returns:
        The parameter, or None if any code is off by more than one.
    """
    position, value = change
    recorded_zero = int(units[0].operands[position].zero_point.reshape(-1)[0])
    counts = _count_equal(units, recorded, variant, position, zero_point=np.asarray(value, np.int32))
    if counts is None:
        return None
    likely = f"the {_OPERAND_NAMES[position]} operand's zero point is {value}, not {recorded_zero}"
    return Refit(pattern="constant", likely=likely, equal=counts[0], total=counts[1])


def _fit_scale(units: Sequence[Unit], recorded: Sequence[np.ndarray], variant: Variant) -> Refit | None:
    """Find the operand that effectively has another scale, and that scale, or return None."""
    unit, line = units[0], _fit_line(units, recorded)
    if line is None:
        return None
    y_scale, best = _first_scale(unit.out.scale), None
    for position, (fitted_factor, deviation) in enumerate(zip(line.factors, line.deviations, strict=True)):
        factor = -fitted_factor if position and unit.kind == "sub" else fitted_factor
        recorded_scale = _first_scale(unit.operands[position].scale)
        if factor <= 0 or abs(factor - recorded_scale / y_scale) <= REFIT_MIN_DEVIATIONS * deviation:
            continue
        scale, width, counts = factor * y_scale, REFIT_MIN_DEVIATIONS * deviation * y_scale, None
        for _ in range(3):  # each round searches a narrower interval
            for trial_scale in np.linspace(scale - width, scale + width, _SCALES_PER_ROUND):
                trial_counts = _count_equal(
                    units, recorded, variant, position, scale=np.asarray(trial_scale, np.float32)
                )
                if trial_counts is not None and (counts is None or trial_counts[0] > counts[0]):
                    counts, scale = trial_counts, float(trial_scale)
            width /= _SCALES_PER_ROUND // 2
        if counts is None or counts[0] < REFIT_MIN_SHARE * counts[1]:
            continue
        if best is None or counts[0] > best.equal:
            likely = f"the {_OPERAND_NAMES[position]} operand's scale acts as {scale:.6g}, not {recorded_scale:.6g}"
            best = Refit(pattern="factor", likely=likely, equal=counts[0], total=counts[1])
    return best


def _count_equal(
    units: Sequence[Unit], recorded: Sequence[np.ndarray], variant: Variant, position: int, **changes: np.ndarray
) -> tuple[int, int] | None:
    """Count the elements that a changed operand reproduces, and all elements. None if any is off by more than one."""
    equal = total = 0
    for unit, codes in zip(units, recorded, strict=True):
        operands: list[Operand] = list(unit.operands)
        operands[position] = replace(operands[position], **changes)
        try:
            with np.errstate(all="ignore"):
                computed = channels_first(compute(replace(unit, operands=tuple(operands)), variant), unit)
        except (KernelError, UsageError):
            return None
        if computed.shape != codes.shape:
            return None
        difference = np.abs(np.subtract(computed, codes, dtype=np.int64))
        if difference.max(initial=0) > 1:
            return None
        equal += int(np.count_nonzero(difference == 0))
        total += difference.size
    return equal, total


def _fit_line(units: Sequence[Unit], recorded: Sequence[np.ndarray]) -> _LinearFit | None:
    """Fit recorded codes as a linear combination of both operands."""
    solved = _solve_least_squares(units, recorded, lambda a, b: (a, b))
    if solved is None:
        return None
    (first_factor, second_factor, constant), (first_deviation, second_deviation, _) = solved
    return _LinearFit(
        factors=(float(first_factor), float(second_factor)),
        constant=float(constant),
        deviations=(float(first_deviation), float(second_deviation)),
    )


def _solve_least_squares(
    units: Sequence[Unit],
    recorded: Sequence[np.ndarray],
    terms: Callable[[np.ndarray, np.ndarray], Sequence[np.ndarray]],
) -> tuple[np.ndarray, np.ndarray] | None:
    """Fit recorded codes by a linear combination of terms and a constant.

    Codes at the ends of the range are left out because they may be clipped.

    Args:
        units: The node in each sample.
        recorded: Its recorded codes in each sample.
        terms: Returns the terms, given the codes of both operands.

    Returns:
        The factors of the terms and the constant, and their standard deviations. None if they are underdetermined.
    """
    low, high = units[0].out.clamp or units[0].out.limits
    rows, targets = [], []
    for unit, codes in zip(units, recorded, strict=True):
        a, b = (np.broadcast_to(side.codes, codes.shape).astype(np.float64) for side in unit.operands)
        is_unclipped = (codes > low) & (codes < high)
        columns = [term[is_unclipped] for term in terms(a, b)]
        rows.append(np.stack([*columns, np.ones(int(is_unclipped.sum()))], axis=-1))
        targets.append(codes[is_unclipped].astype(np.float64))
    matrix, target = np.concatenate(rows), np.concatenate(targets)
    if len(matrix) <= matrix.shape[1] or np.linalg.matrix_rank(matrix) < matrix.shape[1]:
        return None
    factors = np.linalg.lstsq(matrix, target, rcond=None)[0]
    error = target - matrix @ factors
    spread = np.linalg.inv(matrix.T @ matrix).diagonal() * float(np.mean(error**2))
    return factors, np.sqrt(np.abs(spread))


def _first_scale(scale: np.ndarray) -> float:
    return float(np.asarray(scale).reshape(-1)[0])
