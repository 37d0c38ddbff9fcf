"""Requantizer arithmetic, exact in int64: rounding shifts, high multiplies and fixed-point multipliers.

A rounding is a name in `rounding.ROUNDINGS`. Values may have a magnitude of up to 2**62, which a product of two 32-bit
integers never exceeds. Real numbers are rounded exactly, except with "plus". They are not rounded by adding one half
and rounding down, which is wrong for 0.49999999999999994 and every odd integer above 2**52.
"""

from __future__ import annotations

import numpy as np

from qdebug.errors import UsageError
from qdebug.numerics.rounding import ROUNDINGS, unknown_rounding

__all__ = [
    "divide",
    "glow_parameters",
    "mantissa_multiplier",
    "multiply_high",
    "power_of_two",
    "quantize_multiplier",
    "round_values",
    "saturate_to",
    "shift_left",
    "shift_right",
    "wrap_to",
]


def round_values(values: np.ndarray, rounding: str = "even") -> np.ndarray:
    """Round real values to integers, in their original dtype.

    Args:
        values: Any shape; floating point with at least 16 bits, or integers (returned unchanged).
        rounding: A name in `rounding.ROUNDINGS`.

    Returns:
        A new array of the same shape and dtype; 0-d stays 0-d.

    Raises:
        UsageError: The rounding does not exist.
    """
    row = ROUNDINGS.get(rounding)
    if row is None or row.real is None:
        raise unknown_rounding(rounding, "real")
    values = np.asarray(values)
    if values.dtype.kind in "iub":
        return values.copy()
    with np.errstate(all="ignore"):
        rounded = row.real(values, None)
    return rounded.astype(values.dtype, copy=False)


_WORD = 64
_SIGN = 63
_MAX_SHIFT = 62
_COLLECTED_SHIFT = 61
_GLOW_POST, _GLOW_MULTIPLIER = 15, 255


def shift_right(
    values: np.ndarray, bits: np.ndarray | int, rounding: str = "floor", *, out: np.ndarray | None = None
) -> np.ndarray:
    """Divide integers by powers of two: round(value / 2**bits).

    Args:
        values: Integers of any shape.
        bits: Bits to shift by, at least 0; broadcasts to the values.
        rounding: A name in `rounding.ROUNDINGS`.
        out: int64 array for the result, which may be `values` itself; None allocates one.

    Returns:
        int64 in the broadcast shape.

    Raises:
        UsageError: A shift is negative, or the rounding does not exist.
    """
    row = ROUNDINGS.get(rounding)
    if row is None or row.nudge is None:
        raise unknown_rounding(rounding, "nudge")
    wide, shift = _as_int64(values), np.asarray(bits, np.int64)
    if shift.size and int(shift.min()) < 0:
        raise UsageError(f"A right shift by {int(shift.min())} bits is invalid.", hint="Shift to the left instead.")
    if row.ahead is not None:
        wide = wide + row.ahead(wide, shift)
    if shift.size and int(shift.max()) > _MAX_SHIFT:
        wide, shift = _shift_and_collect(wide, shift)
    nudge = row.nudge(wide, shift)
    if nudge is None:
        return np.asarray(np.right_shift(wide, shift, out=out))
    nudged = np.add(wide, nudge, out=out)
    return np.asarray(np.right_shift(nudged, shift, out=nudged if isinstance(nudged, np.ndarray) else None))


def _shift_and_collect(wide: np.ndarray, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shift until at most 61 bits of shift remain, and set the lowest bit if any lost bit was set.

    This sticky bit preserves the result of every rounding.
    """
    ahead = np.clip(shift - _COLLECTED_SHIFT, 0, _SIGN)
    has_lost_bits = (wide & ~(np.int64(-1) << ahead)) != 0
    return np.asarray((wide >> ahead) | has_lost_bits), np.minimum(shift, _COLLECTED_SHIFT)


def shift_left(
    values: np.ndarray, bits: np.ndarray | int, *, width: int = 32, overflow: str = "saturate"
) -> np.ndarray:
    """Multiply integers by powers of two in a register of a given width.

    Args:
        values: Integers of any shape.
        bits: Bits to shift by, at least 0; broadcasts to the values.
        width: Bits of the signed register, up to 32.
        overflow: "saturate" to clamp to the nearest end, or "wrap" to drop the upper bits.

    Returns:
        int64 in the broadcast shape, within the register's range.

    Raises:
        UsageError: A shift is negative, the register is too wide, or the overflow is unknown.
    """
    shift = np.asarray(bits, np.int64)
    if shift.size and int(shift.min()) < 0:
        raise UsageError(f"A left shift by {int(shift.min())} bits is invalid.", hint="Shift to the right instead.")
    _check_width(width)
    if overflow == "wrap":
        return wrap_to(np.left_shift(_as_int64(values), shift), width)
    if overflow != "saturate":
        raise UsageError(f"Overflow is {overflow!r}; expected saturate or wrap.", hint="Choose one of these names.")
    # A value beyond the register saturates for any shift; one within it cannot leave int64.
    return saturate_to(np.left_shift(saturate_to(values, width), np.minimum(shift, width)), width)


def saturate_to(values: np.ndarray, width: int, *, out: np.ndarray | None = None) -> np.ndarray:
    """Clamp integers to the range of a signed register.

    Args:
        values: Integers of any shape.
        width: Bits of the register.
        out: int64 array for the result; None allocates one.
    """
    end = 1 << (width - 1)
    return np.asarray(np.clip(_as_int64(values), -end, end - 1, out=out))


def wrap_to(values: np.ndarray, width: int) -> np.ndarray:
    """Wrap integers to a signed two's complement register.

    Args:
        values: Integers of any shape.
        width: Bits of the register, up to 64.

    Returns:
        int64 in the same shape.
    """
    wide = _as_int64(values)
    if width in (8, 16, 32):
        return np.asarray(wide.astype(f"i{width // 8}").astype(np.int64))
    dropped_bits = _WORD - width
    return np.asarray((wide << dropped_bits) >> dropped_bits)


def multiply_high(
    values: np.ndarray,
    multiplier: np.ndarray | int,
    rounding: str = "up",
    *,
    bits: int = 31,
    saturating: bool = True,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Multiply by a fixed-point fraction: round(value * multiplier / 2**bits).

    With 31 bits, ties up and saturation, this is the saturating rounding doubling high multiply of gemmlowp
    (fixedpoint/fixedpoint.h) and of ARM's vqrdmulh; with "floor", vqdmulh.

    Args:
        values: Integers of up to 32 bits, any shape.
        multiplier: Integers of up to 32 bits; broadcasts to the values.
        rounding: A name in `rounding.ROUNDINGS`.
        bits: Bits of the fraction.
        saturating: Whether -2**bits times -2**bits, the only product that overflows, becomes the largest value instead
            of 2**bits.
        out: int64 array for the result, which may be `values` itself; None allocates one.

    Returns:
        int64 in the broadcast shape.

    Raises:
        UsageError: The rounding does not exist.
    """
    factor = np.asarray(multiplier, np.int64)
    product = np.asarray(np.multiply(_as_int64(values), factor, out=out))
    result = shift_right(product, bits, rounding, out=product)
    if saturating and factor.size and int(factor.min()) <= -(1 << bits):
        np.minimum(result, (1 << bits) - 1, out=result)
    return result


def divide(values: np.ndarray, divisor: np.ndarray | int, rounding: str = "floor") -> np.ndarray:
    """Divide integers: round(value / divisor).

    Args:
        values: Integers of any shape.
        divisor: Positive integers; broadcasts to the values.
        rounding: A name in `rounding.ROUNDINGS`.

    Returns:
        int64 in the broadcast shape.

    Raises:
        UsageError: A divisor is not positive, or the rounding does not exist.
    """
    row = ROUNDINGS.get(rounding)
    if row is None or row.rises is None:
        raise unknown_rounding(rounding, "rises")
    wide, divisors = _as_int64(values), np.asarray(divisor, np.int64)
    if divisors.size and int(divisors.min()) <= 0:
        raise UsageError(f"Cannot divide by {int(divisors.min())}.", hint="Give divisors above 0.")
    quotient = np.asarray(np.floor_divide(wide, divisors))
    rest = wide - quotient * divisors
    gap = divisors - rest  # distance to the next integer; compared without doubling, which could overflow
    return np.asarray(quotient + row.rises(wide, quotient, rest, gap))


def quantize_multiplier(
    real: np.ndarray | float, *, bits: int = 31, rounding: str = "away"
) -> tuple[np.ndarray, np.ndarray]:
    """Return real multipliers as normalized integers with shifts: real ~ multiplier * 2**(shift - bits).

    For positive numbers, the multiplier lies in [2**(bits-1), 2**bits). With 31 bits, this is TensorFlow Lite's
    QuantizeMultiplier (kernels/internal/quantization_util.cc). With 15 bits, it is the multiplier of a 16-bit
    requantizer.

    Args:
        real: Finite numbers, converted to float64.
        bits: Bits of the fraction.
        rounding: How the significand is rounded: a name in `rounding.ROUNDINGS`.

    Returns:
        Multipliers and shifts, both int64 in the shape of `real`; 0 and 0 for 0.

    Raises:
        UsageError: A number is not finite, or the rounding does not exist.
    """
    fraction, exponent = np.frexp(_require_finite(real))
    multiplier = round_values(np.ldexp(fraction, bits), rounding).astype(np.int64)
    carried = np.abs(multiplier) == 1 << bits  # a fraction rounded up to 1: halve it and raise the exponent
    return np.asarray(np.where(carried, multiplier >> 1, multiplier)), np.asarray(exponent.astype(np.int64) + carried)


def mantissa_multiplier(real: np.ndarray | float, *, bits: int = 24) -> tuple[np.ndarray, np.ndarray]:
    """Return the significand of float32 multipliers as integers: float32(real) == multiplier * 2**(shift - bits).

    QNNPACK (src/qnnpack/requantization.h) uses this form widened to 31 bits; XNNPACK's rndnu uses 24 bits.

    Args:
        real: Finite numbers; rounded to float32 first.
        bits: Bits of the fraction, at least 24.

    Returns:
        Multipliers and shifts, both int64 in the shape of `real`.

    Raises:
        UsageError: A number is not finite.
    """
    return quantize_multiplier(np.asarray(real, np.float32), bits=bits, rounding="even")


def power_of_two(real: np.ndarray | float, rounding: str = "even") -> np.ndarray:
    """Return the exponent of the power of two that approximates a number.

    Args:
        real: Positive finite numbers.
        rounding: "floor" and "trunc" give the largest power not above the number, "up" the smallest not below it; any
            other name gives the nearest, measured in exponents.

    Returns:
        Exponents, int64 in the shape of `real`.

    Raises:
        UsageError: A number is not finite or not positive, or the rounding does not exist.
    """
    if rounding not in ROUNDINGS:
        raise unknown_rounding(rounding, "words")
    fraction, exponent = np.frexp(_require_positive(real))
    # The fraction is in [0.5, 1). With 0.5, the number is exactly 2**(exponent - 1).
    threshold = {"floor": 1.0, "trunc": 1.0, "up": np.nextafter(0.5, 1.0)}.get(rounding, np.sqrt(0.5))
    return np.asarray(exponent.astype(np.int64) - (fraction < threshold))


def glow_parameters(scale: np.ndarray | float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return both shifts and the multiplier of Glow's CPU backend: scale ~ multiplier * 2**-(pre + post).

    The multiplier is doubled until it has about 8 bits, first in exchange for the shift after the product, then for the
    shift before it (quantizeScaleOffset32To8 in glow/lib/Quantization/Base/Base.cpp). Powers of two are exact.

    Args:
        scale: Positive finite numbers; rounded to float32 first.

    Returns:
        The shift before the product, the shift after it, and the multiplier, all int64 in the shape of `scale`.

    Raises:
        UsageError: A number is not finite or not positive.
    """
    rest = np.array(_require_positive(np.asarray(scale, np.float32)))
    pre, post = np.zeros(rest.shape, np.int64), np.zeros(rest.shape, np.int64)
    fraction, exponent = np.frexp(rest)
    exact = fraction == 0.5  # doubling never changes the fraction, so all of this is exact in float64 too
    inverse = exact & (exponent <= 1)
    post[inverse] = 1 - exponent[inverse]
    rest[inverse] = 1.0
    while (grow := ~exact & ((rest < 0.5) | ((rest < _GLOW_MULTIPLIER + 1) & (post < _GLOW_POST)))).any():
        rest[grow] *= 2.0
        post[grow] += 1
    while (grow := ~exact & (rest < _GLOW_MULTIPLIER) & (pre < post // 2)).any():
        rest[grow] *= 2.0
        pre[grow] += 1
    return pre, post, round_values(rest, "away").astype(np.int64)


def _as_int64(values: np.ndarray) -> np.ndarray:
    return np.asarray(values).astype(np.int64, copy=False)


def _require_finite(real: np.ndarray | float) -> np.ndarray:
    wide = np.asarray(real, np.float64)
    if not np.isfinite(wide).all():
        raise UsageError("A multiplier is not finite.", hint="Check the scales that it is computed from.")
    return wide


def _require_positive(real: np.ndarray | float) -> np.ndarray:
    wide = _require_finite(real)
    if not (wide > 0).all():
        raise UsageError("A multiplier is not above 0.", hint="Check the scales that it is computed from.")
    return wide


def _check_width(width: int) -> None:
    if not 0 < width <= _WORD // 2:
        raise UsageError(f"A register of {width} bits is not supported.", hint="Give 1 to 32 bits.")
