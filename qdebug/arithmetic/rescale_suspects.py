"""Known mistakes of kernels on codes in rescaling integer sums by an integer multiplier and a shift.

The right result is round(sum * multiplier / 2**shift), whose product needs 64 bits. Kernels without 64-bit integers cut
it to 32 (https://github.com/iree-org/iree/issues/8731), take the shift modulo the width of a register, or shift without
the sign (https://github.com/ARM-software/CMSIS_5/issues/1047). Begin at `rescale_suspects`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import numpy as np

from qdebug.arithmetic.suspect import Suspect
from qdebug.errors import KernelError, UsageError
from qdebug.numerics.fixedpoint import wrap_to
from qdebug.replay.columns import Columns, HeavyPart
from qdebug.replay.evaluate import accumulate
from qdebug.replay.scaling import Multiplier, integer_multiplier, scales_of
from qdebug.replay.unit import Unit

__all__ = ["rescale_suspects"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rescale:
    """A rescaling of integer sums.

    Args:
        sums: The sums, int64.
        multiplier: The multiplier of each, int64; broadcasts to the sums.
        shift: The right shift of the product, int64; broadcasts to the sums.
        channel_multipliers: The multipliers as they are stored, before they are broadcast.
        channel_shifts: The shifts as they are stored.
        spread: Broadcasts stored parameters to the sums.
    """

    sums: np.ndarray
    multiplier: np.ndarray
    shift: np.ndarray
    channel_multipliers: np.ndarray
    channel_shifts: np.ndarray
    spread: Callable[[np.ndarray], np.ndarray]

    @property
    def product(self) -> np.ndarray:
        """The products, which fit in 64 bits."""
        return np.asarray(self.sums * self.multiplier)


_Round = Callable[[_Rescale], np.ndarray]
_Compute = Callable[[_Rescale, np.ndarray], np.ndarray]


def rescale_suspects(unit: Unit) -> Iterator[Suspect]:
    """Yield the mistakes that a kernel could make in rescaling the sums of a unit.

    Args:
        unit: The unit.
    """
    if (
        unit.kind not in _KINDS
        or unit.out.dtype.kind not in "iu"
        or any(operand.codes.dtype.kind not in "iu" for operand in unit.operands)
    ):
        return
    for number in _NUMBERS:
        for likely, computes in _MISTAKES.items():
            for at, compute in enumerate(computes):
                for rounding, constant in _ROUNDINGS.items():
                    yield Suspect(
                        name=f"{likely} {at} {number} {rounding}",
                        pattern="overflow",
                        likely=likely,
                        unit=unit,
                        rescale=_codes_of(unit, number, compute, constant),
                    )


_KINDS = ("conv", "linear", "mul", "requantize")
"""Kinds of units whose result is one integer times a quotient of scales."""
_NUMBERS = ("q31", "q15", "given")
"""Formats of the multiplier."""


def _codes_of(
    unit: Unit, number: str, compute: _Compute, constant: _Round
) -> Callable[[np.ndarray | None], np.ndarray]:
    def codes(positions: np.ndarray | None = None) -> np.ndarray:
        rescale = _rescale_of(unit, number, positions)
        low, high = unit.out.clamp or unit.out.limits
        right, wrong = (
            np.clip(each + unit.out.zero_point.astype(np.int64), low, high)
            for each in ((rescale.product + constant(rescale)) >> rescale.shift, compute(rescale, constant(rescale)))
        )
        if positions is None and np.abs(wrong - right).max(initial=0) <= 1:
            raise KernelError("The mistake changes less than another rounding does.")
        return np.asarray(wrong.astype(unit.out.dtype))

    return codes


def _rescale_of(unit: Unit, number: str, positions: np.ndarray | None) -> _Rescale:
    """Return the rescaling of a unit's sums, all of them or those at flat positions.

    Raises:
        KernelError: The unit has no integer sums or multiplier.
    """
    columns = _sums_of(unit)
    try:
        fixed = integer_multiplier(unit, scales_of(unit), Multiplier(number=number, expression="d:xw/y"))
    except (UsageError, ValueError) as error:
        raise KernelError(f"The scales have no integer multiplier: {error}") from error
    multiplier, shift = np.asarray(fixed.multiplier), np.asarray(fixed.bits + fixed.pre - fixed.exponent)
    if np.any(shift < 1) or np.any(shift > _MAX_SHIFT):
        raise KernelError("The multiplier needs a shift to the left, or a too long one.")
    chosen = columns if positions is None else columns.take(positions)
    sums = chosen.values[0].astype(np.int64)
    return _Rescale(
        sums=sums if positions is not None else sums.reshape(columns.shape),
        multiplier=chosen.spread(multiplier),
        shift=chosen.spread(shift),
        channel_multipliers=multiplier,
        channel_shifts=shift,
        spread=chosen.spread,
    )


_MAX_SHIFT = 62


@lru_cache(maxsize=2)
def _sums_of(unit: Unit) -> Columns:
    return accumulate(unit, HeavyPart())


def _half(rescale: _Rescale) -> np.ndarray:
    return np.asarray(np.int64(1) << (rescale.shift - 1))


def _half_and_sign(rescale: _Rescale) -> np.ndarray:
    """Return the rounding constant of TOSA's double rounding."""
    sign = np.where(rescale.sums >= 0, 1, -1) * np.int64(1 << 30)
    return np.asarray(_half(rescale) + np.where(rescale.shift > _WORD - 1, sign, 0))


_WORD = 32
_ROUNDINGS: Mapping[str, _Round] = MappingProxyType(
    {"half": _half, "double": _half_and_sign, "floor": lambda _: np.zeros((), np.int64)}
)
"""What is added to a product before it is shifted."""


def _wrapped(values: np.ndarray) -> np.ndarray:
    return wrap_to(values, _WORD)


def _product_in_32_bits(rescale: _Rescale, constant: np.ndarray, shift: np.ndarray) -> np.ndarray:
    return np.asarray(_wrapped(_wrapped(rescale.product) + _wrapped(constant)) >> shift)


def _unsigned(values: np.ndarray) -> np.ndarray:
    return values.astype(np.int64).view(np.uint64)


def _logical_shift(rescale: _Rescale, constant: np.ndarray) -> np.ndarray:
    """Return products that are shifted as unsigned 64-bit numbers."""
    shifted = _unsigned(rescale.product + constant) >> rescale.shift.astype(np.uint64)
    return np.asarray(np.minimum(shifted, np.uint64(_LARGEST)).astype(np.int64))


_LARGEST = 2**31 - 1


def _logical_shift_of_high(rescale: _Rescale, constant: np.ndarray) -> np.ndarray:
    """Return the high halves of products, shifted further as unsigned 32-bit numbers."""
    del constant
    high, rest = (rescale.product + (1 << 30)) >> (_WORD - 1), np.maximum(rescale.shift - (_WORD - 1), 0)
    nudged = (high + (np.int64(1) << rest >> 1)) & (2**_WORD - 1)
    return _wrapped(nudged >> rest)


def _unsigned_sums(rescale: _Rescale, constant: np.ndarray) -> np.ndarray:
    product = (rescale.sums & (2**_WORD - 1)) * rescale.multiplier + constant
    return np.asarray(np.minimum(_unsigned(product) >> rescale.shift.astype(np.uint64), _LARGEST).astype(np.int64))


def _of_first_channel(values: np.ndarray) -> np.ndarray:
    return np.asarray(values.reshape(-1)[0])


def _of_next_channel(values: np.ndarray) -> np.ndarray:
    return np.roll(values.reshape(-1), -1).reshape(values.shape)


def _with_multipliers(change: Callable[[np.ndarray], np.ndarray]) -> _Compute:
    """Return a rescaling with other multipliers of channels."""

    def compute(rescale: _Rescale, constant: np.ndarray) -> np.ndarray:
        product = rescale.sums * rescale.spread(change(rescale.channel_multipliers))
        return np.asarray((product + constant) >> rescale.shift)

    return compute


def _with_shifts(change: Callable[[np.ndarray], np.ndarray]) -> _Compute:
    """Return a rescaling with other shifts of channels."""

    def compute(rescale: _Rescale, constant: np.ndarray) -> np.ndarray:
        del constant
        shift = rescale.spread(change(rescale.channel_shifts))
        return np.asarray((rescale.product + (np.int64(1) << (shift - 1))) >> shift)

    return compute


_MISTAKES: Mapping[str, tuple[_Compute, ...]] = MappingProxyType(
    {
        "the product of sum and multiplier is cut to 32 bits in the rescaling": (
            lambda rescale, constant: _product_in_32_bits(rescale, constant, rescale.shift % _WORD),
            lambda rescale, constant: _product_in_32_bits(rescale, constant, np.minimum(rescale.shift, _WORD - 1)),
            lambda rescale, constant: _product_in_32_bits(rescale, constant, np.maximum(rescale.shift - _WORD + 1, 0)),
        ),
        "negative sums are rescaled as unsigned numbers": (_logical_shift, _logical_shift_of_high, _unsigned_sums),
        "the shift of the rescaling is taken modulo 32": (
            lambda rescale, constant: np.asarray((rescale.product + constant) >> rescale.shift % _WORD),
            lambda rescale, constant: _wrapped((rescale.product + constant) >> rescale.shift % _WORD),
        ),
        "the shift of the rescaling is limited to 31 bits": (
            lambda rescale, constant: np.asarray((rescale.product + constant) >> np.minimum(rescale.shift, _WORD - 1)),
        ),
        "the multiplier of the first channel is used for all channels": (_with_multipliers(_of_first_channel),),
        "the shift of the first channel is used for all channels": (_with_shifts(_of_first_channel),),
        "each channel has the multiplier of the next": (_with_multipliers(_of_next_channel),),
        "each channel has the shift of the next": (_with_shifts(_of_next_channel),),
    }
)
"""The results of rescaling with each mistake, in words, in one or more forms."""
