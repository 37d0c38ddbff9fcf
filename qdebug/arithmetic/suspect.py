"""One mistake that a kernel on codes may make in computing a unit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from qdebug.replay.evaluate import accumulate, finish
from qdebug.replay.unit import Operand, Unit
from qdebug.replay.variant import Variant

__all__ = ["Suspect", "with_operand"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A mistake of a kernel on codes.

    Args:
        name: Unique name.
        pattern: The pattern that it causes: a key of `qdebug.arithmetic.patterns.residual.PATTERNS`.
        likely: The mistake in words.
        unit: The unit that a kernel with the mistake computes.
        accumulate: A wrong way of summing products, or "" for the right one.
        casts: How results are cast before and after the zero point is added, see `_CASTS`.
        has_opposite_signedness: Whether the recorded codes have the opposite signedness.
        arithmetic: The arithmetic with the mistake, or None for the right one.
        late: Axis (channels first) and number of positions by which results are written late, or None. The first or
            last index of the axis is then undetermined.
        rescale: Computes the codes at flat positions (channels first), or all for None. None if the mistake does not
            lie in rescaling integer sums.
    """

    name: str
    pattern: str
    likely: str
    unit: Unit
    accumulate: str = ""
    casts: tuple[str, str] = ("", "sat")
    has_opposite_signedness: bool = False
    arithmetic: Variant | None = None
    late: tuple[int, int] | None = None
    rescale: Callable[[np.ndarray | None], np.ndarray] | None = None

    def determined_codes(self, recorded: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the recorded codes with a late write undone, flat, and the positions that the mistake determines.

        Args:
            recorded: The codes, channels first.
        """
        if self.late is None:
            return recorded.reshape(-1), np.arange(recorded.size)
        axis, distance = self.late
        is_determined = np.ones(recorded.shape, bool)
        np.moveaxis(is_determined, axis, 0)[-1 if distance > 0 else 0] = False
        return np.roll(recorded, -distance, axis).reshape(-1), np.flatnonzero(is_determined)

    def codes(self, variant: Variant) -> np.ndarray:
        """Compute the node with the mistake, channels first.

        Args:
            variant: The right arithmetic.

        Raises:
            KernelError: The unit does not support the variant.
            UsageError: The variant has no multiplier for the unit's scales.
        """
        if self.rescale is not None:
            return self.rescale(None)
        variant = self.arithmetic or variant
        variant = replace(variant, accumulate=self.accumulate) if self.accumulate else variant
        columns, out = accumulate(self.unit, variant.sums), self.unit.out
        if self.casts == ("", "sat"):
            return finish(self.unit, columns, variant).reshape(columns.shape)
        zero = out.zero_point.astype(np.int32)
        wide_output = replace(out, dtype=np.dtype(np.int32), zero_point=zero, low=None, high=None, clamp=None)
        codes: np.ndarray = (
            finish(replace(self.unit, out=wide_output), columns, variant).astype(np.int64).reshape(columns.shape)
        )
        cast_before_zero_point, cast_after_zero_point = self.casts
        low, high = out.clamp or out.limits
        if cast_before_zero_point:
            codes = _cast_integers(codes - zero, cast_before_zero_point, out.dtype) + zero
        if cast_after_zero_point != "sat":
            codes = _cast_integers(codes, cast_after_zero_point, out.dtype)
        return np.asarray(np.clip(codes, low, high).astype(out.dtype))


def _cast_integers(values: np.ndarray, cast: str, dtype: np.dtype) -> np.ndarray:
    """Cast integers to a type, or to 16 bits with the same signedness, by saturating or wrapping.

    Args:
        values: The integers.
        cast: "sat", "wrap", "sat16" or "wrap16". "abs" only drops the sign.
        dtype: The type.
    """
    if cast == "abs":
        return np.asarray(np.abs(values))
    target = np.dtype(f"{dtype.kind}2") if cast.endswith("16") else dtype
    if cast.startswith("wrap"):
        return np.asarray(values.astype(target).astype(np.int64))
    return np.asarray(np.clip(values, np.iinfo(target).min, np.iinfo(target).max))


def with_operand(unit: Unit, position: int, operand: Operand) -> Unit:
    """Return a unit with one operand replaced.

    Args:
        unit: The unit.
        position: Position of the operand.
        operand: The new operand.
    """
    operands = list(unit.operands)
    operands[position] = operand
    return replace(unit, operands=tuple(operands))
