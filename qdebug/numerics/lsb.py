"""Differences in LSB, and in units in the last place (ULP) of a float type.

An LSB is one step of a scale. Differences are exact if both sides lie on the lattice of that scale. If a real value x
is the real value of the code k steps from the zero point, its position on the lattice is the integer k. Otherwise its
position is x / s for scale s. So two codes with equal quantization differ by exactly their integer difference, although
their real values are rounded to float32.

A distance in ULP is the number of floats of the type between two floats. The bits of a float, sign and magnitude, are
mapped to integers in the order of the numbers, with +0 and -0 equal; the distance is the difference of the integers
(Dawson, "Comparing Floating Point Numbers", 2012). Floats of two types are compared in the coarser type, to which the
finer side is rounded first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import ml_dtypes
import numpy as np
import numpy.typing as npt

from qdebug.errors import UsageError
from qdebug.model.quant import QuantParams
from qdebug.numerics.affine import ScaleMap
from qdebug.numerics.blocks import Scratch

__all__ = [
    "LsbSizes",
    "UlpCounter",
    "UlpErrors",
    "difference_in_lsb",
    "lsb_between",
    "shared_type",
    "sum_in_lsb",
    "ulp_distance",
    "whole_lsb",
]


class LsbSizes:
    """The size of an LSB for each element of a tensor.

    Args:
        quant: Quantization of the tensor, whose scale is the step; None if it is not quantized.
        shape: Its shape.
        step: A size for all elements, used instead of the scale; None uses the scale.
        whole: Whether both sides are integer codes on one lattice, so that every difference is a whole number of steps.
        coded: Whether any side is codes, whose real values are rounded.

    Raises:
        UsageError: The parameters do not match the shape.
    """

    __slots__ = ("_map", "_scale", "coded", "uniform", "whole")

    def __init__(
        self,
        quant: QuantParams | None,
        shape: tuple[int, ...],
        step: float | None = None,
        *,
        whole: bool = False,
        coded: bool = True,
    ) -> None:
        self.whole, self.coded = whole, coded
        self._map: ScaleMap | None = None
        self.uniform: float | None = None
        if step is None and quant is not None:
            if quant.scale.size == 1:
                step = float(quant.real_scale.reshape(-1)[0])
            else:
                self._map = ScaleMap(quant, shape)
                self._scale = quant.real_scale
        if step is not None and np.isfinite(step) and step > 0:
            self.uniform = step

    @property
    def is_known(self) -> bool:
        """Whether differences can be measured in LSB."""
        return self.uniform is not None or self._map is not None

    def of(self, start: int, stop: int) -> np.ndarray | float:
        """Return the step of each element from start to stop, or the step that all share; NaN where it is undefined."""
        if self._map is None:
            return np.nan if self.uniform is None else self.uniform
        return _positive_or_nan(self._map.expand(self._scale, start, stop))

    def at(self, positions: np.ndarray) -> np.ndarray | float:
        """Return the step of each element at flat indices, or the step that all share; NaN where it is undefined."""
        if self._map is None:
            return np.nan if self.uniform is None else self.uniform
        return _positive_or_nan(self._map.at(self._scale, positions))


def _positive_or_nan(scale: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(scale) & (scale > 0), scale, np.nan)


def whole_lsb(difference: np.ndarray, step: np.ndarray | float) -> np.ndarray:
    """Return differences in LSB between codes on one lattice.

    Args:
        difference: backend - reference in real units, float64.
        step: Step for all elements, or for each; where the step is NaN, the result is NaN.
    """
    return np.asarray(np.rint(difference / step))


def difference_in_lsb(reference: np.ndarray, backend: np.ndarray, step: np.ndarray | float) -> np.ndarray:
    """Return backend - reference in LSB.

    Args:
        reference: Real values, float64.
        backend: Real values, float64, same shape.
        step: Step for all elements, or for each; where the step is NaN, the result is NaN.

    Returns:
        Signed differences, float64.
    """
    lsb = np.asarray(_lattice_position(backend, step) - _lattice_position(reference, step))
    is_undefined = np.isnan(lsb)
    if is_undefined.any():  # both positions overflow float64; their difference may not
        lsb = np.where(is_undefined, (backend - reference) / step, lsb)
    return lsb


def lsb_between(reference: float, backend: float, step: float) -> float:
    """Return backend - reference in LSB for two finite numbers, as `difference_in_lsb` does."""
    low, high = reference / step, backend / step
    if not math.isfinite(high - low):
        return float(difference_in_lsb(np.array([reference]), np.array([backend]), step)[0])
    return _scalar_lattice_position(backend, high, step) - _scalar_lattice_position(reference, low, step)


def _scalar_lattice_position(value: float, quotient: float, step: float) -> float:
    nearest = round(quotient)
    real = nearest * step
    return float(nearest) if value in (real, float(np.float32(real))) else quotient


def sum_in_lsb(mantissa: np.ndarray, exponent: np.ndarray, step: np.ndarray | float) -> tuple[float, int, int]:
    """Sum signed differences of any magnitude in LSB.

    Args:
        mantissa: Mantissas of the differences from `numpy.frexp`, float64; finite.
        exponent: Their exponents.
        step: Step for all elements, or for each; elements with a step of NaN are left out.

    Returns:
        The sum as a float, the power of two to multiply it by, and the number of nonzero differences.
    """
    positions = np.flatnonzero((mantissa != 0.0) & ~np.isnan(step))
    if not positions.size:
        return 0.0, 0, 0
    step_mantissa, step_exponent = np.frexp(step[positions] if isinstance(step, np.ndarray) else step)
    shift = exponent[positions] - step_exponent
    highest = int(shift.max())  # terms below float64 precision relative to the largest are negligible
    total = np.ldexp(mantissa[positions] / step_mantissa, shift - highest).sum()
    return float(total), highest, int(positions.size)


def _lattice_position(values: np.ndarray, step: np.ndarray | float) -> np.ndarray:
    quotient = values / step
    nearest = np.rint(quotient)
    real = nearest * step
    # The lattice is the set of real values of codes: float32, or float64 for codes kept as float64.
    on_lattice = (real == values) | (real.astype(np.float32).astype(np.float64) == values)
    return np.where(on_lattice, nearest, quotient)


_COARSE_TO_FINE = (ml_dtypes.bfloat16, np.float16, np.float32, np.float64)
_TYPES = tuple(map(np.dtype, _COARSE_TO_FINE))
_BIAS, _SINGLE_BIAS = 1023, 127
_EXACT_IN_SINGLE = 2**24
_FEW = 1024
"""Maximum number of elements with opposite signs that are handled separately."""
_ALL_BUT_SIGN = np.int32(2**31 - 1)
_BITS = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UlpErrors:
    """Distances of two float tensors in units in the last place.

    Args:
        dtype: Logical dtype of the units.
        max_ulp: Largest distance; None if no element is finite on both sides.
        counts: Elements by distance, int64, read-only: entry 0 counts distance 0, entry k distances from 2**(k-1) to
            2**k - 1; without trailing zeros.
    """

    dtype: str
    max_ulp: int | None
    counts: npt.NDArray[np.int64]


@cache
def shared_type(first: np.dtype, second: np.dtype) -> np.dtype | None:
    """Return the coarser of two float types; None unless both are float16, bfloat16, float32 or float64."""
    first, second = first.newbyteorder("="), second.newbyteorder("=")
    if first not in _TYPES or second not in _TYPES:
        return None
    return min(first, second, key=_TYPES.index)


def ulp_distance(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the distance of each element in units in the last place.

    Args:
        first: float16, bfloat16, float32 or float64.
        second: The same dtype, with a shape that broadcasts to the first. Infinities are next to the largest floats.
            NaN is not allowed.

    Returns:
        uint32, or uint64 for float64.

    Raises:
        UsageError: The dtypes differ or are not such floats.
    """
    if first.dtype != second.dtype or first.dtype not in _TYPES:
        raise UsageError(f"ULP distance needs two floats of the same type, found {first.dtype} and {second.dtype}.")
    first_order, second_order = _to_ordered_integers(first), _to_ordered_integers(second)
    distance = np.maximum(first_order, second_order)
    # The largest distance needs one bit more than the signed type has; the unsigned type has it.
    np.subtract(distance, np.minimum(first_order, second_order, out=first_order), out=distance)
    return np.asarray(distance.view(np.uint64 if distance.itemsize == 8 else np.uint32))


def _to_ordered_integers(values: np.ndarray) -> np.ndarray:
    bits = np.ascontiguousarray(values).view(_BITS[values.dtype.itemsize])
    if bits.itemsize < 4:
        bits = bits.astype(np.int32) << (32 - 8 * bits.itemsize)
        return np.asarray(_to_twos_complement(bits) >> (32 - 8 * values.dtype.itemsize))
    return _to_twos_complement(bits)


def _to_twos_complement(bits: np.ndarray) -> np.ndarray:
    """Convert sign and magnitude to two's complement: (bits xor (sign and all but the top bit)) - sign."""
    sign = bits >> (8 * bits.itemsize - 1)
    ordered = np.bitwise_and(sign, 2 ** (8 * bits.itemsize - 1) - 1)
    np.bitwise_xor(ordered, bits, out=ordered)
    return np.asarray(np.subtract(ordered, sign, out=ordered))


class UlpCounter:
    """Counts the distances of a tensor's elements, range by range.

    Args:
        dtype: float16, bfloat16, float32 or float64.
    """

    def __init__(self, dtype: np.dtype) -> None:
        self._dtype = dtype
        self._counts = np.zeros(66, np.int64)
        # Counts by biased float64 exponent. float32 exponents are counted from entry _BIAS - _SINGLE_BIAS on, so that
        # equal exponents share an entry.
        self._exponents = np.zeros(_BIAS + 65, np.int64)
        self._max: int | None = None

    def add(self, reference: np.ndarray, backend: np.ndarray, buffers: Scratch | None = None) -> None:
        """Count a range of finite real values, float64 or of the counted type; 1-D, not empty.

        Args:
            reference: Values of the reference.
            backend: Values of the backend, of the same length.
            buffers: Scratch buffers; the last three float32 buffers, the last float64 buffer, the index and the first
                mask are used. None allocates arrays.
        """
        is_single = reference.dtype == backend.dtype == self._dtype == np.float32
        if is_single and buffers is not None and self._add_single(reference, backend, buffers):
            return
        distance = ulp_distance(_round_to_dtype(reference, self._dtype), _round_to_dtype(backend, self._dtype))
        self._update_max(int(distance.max()))
        if distance.itemsize == 8:
            # Clear the lower of two neighbouring bits. Rounding to float64 then cannot carry to the next power of two.
            distance &= ~(distance >> np.uint64(1))
        self._count(distance.astype(np.float64).view(np.int64))

    def _add_single(self, reference: np.ndarray, backend: np.ndarray, buffers: Scratch) -> bool:
        """Count float32 values. Return False without counting if many pairs have opposite signs."""
        n = reference.size
        reference_bits, backend_bits = reference.view(np.int32), backend.view(np.int32)
        distance, signs, single = (buffer[:n] for buffer in buffers.singles[2:])
        distance, signs = distance.view(np.int32), signs.view(np.int32)
        # The bits of floats with equal signs sort like the floats, or in reverse order if they are negative.
        np.subtract(reference_bits, backend_bits, out=distance)
        np.absolute(distance, out=distance)
        np.bitwise_xor(reference_bits, backend_bits, out=signs)
        if signs.item(signs.argmin()) < 0:
            positions = np.less(signs, 0, out=buffers.masks[0][:n]).nonzero()[0]
            if positions.size > _FEW:
                return False
            across = (reference_bits[positions] & _ALL_BUT_SIGN).astype(np.int64) + (
                backend_bits[positions] & _ALL_BUT_SIGN
            )
            distance[positions] = 0
            self._update_max(int(across.max()))
            self._count(across.astype(np.float64).view(np.int64))
            self._counts[0] -= positions.size
        max_distance = int(distance.item(distance.argmax()))
        self._update_max(max_distance)
        index = buffers.index[:n]
        if max_distance < _EXACT_IN_SINGLE:
            np.copyto(single, distance)
            np.copyto(index, np.right_shift(single.view(np.int32), 23, out=distance))
            np.add.at(self._exponents[_BIAS - _SINGLE_BIAS :], index, 1)
        else:
            real = buffers.doubles[3][:n]
            np.copyto(real, distance)
            self._count(real.view(np.int64))
        return True

    def distances(self, values: np.ndarray, out: np.ndarray) -> None:
        """Write the distances of a few elements to `out`, for `add_counts`.

        Args:
            values: Finite values of the reference and the backend as two rows of float32, which holds them exactly.
            out: float64 array of the same length.
        """
        ordered = _to_ordered_integers(_round_to_dtype(values, self._dtype))
        np.subtract(ordered[0], ordered[1], out=out, dtype=np.float64)
        np.absolute(out, out=out)

    def add_counts(self, counts: np.ndarray, distances: np.ndarray) -> None:
        """Count a range, given the number of `distances` with each biased float64 exponent."""
        self._update_max(int(distances.item(distances.argmax())))
        self._exponents += counts[: self._exponents.size]

    def _update_max(self, max_distance: int) -> None:
        self._max = max_distance if self._max is None else max(self._max, max_distance)

    def _count(self, bits: np.ndarray) -> None:
        """Count distances by the bits of their float64 form. The bits are overwritten."""
        np.right_shift(bits, 52, out=bits)
        np.add.at(self._exponents, bits, 1)

    def errors(self) -> UlpErrors:
        """Return the counts so far."""
        counts = self._counts[: 0 if self._max is None else self._max.bit_length() + 1].copy()
        if counts.size:
            counts[0] += self._exponents[0] + self._exponents[_BIAS - _SINGLE_BIAS]
            counts[1:] += self._exponents[_BIAS : _BIAS + counts.size - 1]
        counts.flags.writeable = False
        return UlpErrors(dtype=_dtype_name(self._dtype), max_ulp=self._max, counts=counts)


@cache
def _dtype_name(dtype: np.dtype) -> str:
    return dtype.name  # cached, because numpy builds this text at every access


def _round_to_dtype(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if values.dtype == dtype:
        return values
    if dtype == _TYPES[0] and values.dtype == np.float64:
        values = _round_to_odd(values)
    with np.errstate(all="ignore"):
        return np.asarray(values.astype(dtype))


def _round_to_odd(values: np.ndarray) -> np.ndarray:
    """Round float64 to float32 so that a second rounding to bfloat16 equals a single rounding.

    Inexact values are rounded to the neighbour with an odd last bit (Boldo and Melquiond, "Emulation of FMA and
    correctly rounded sums", 2008).
    """
    with np.errstate(all="ignore"):
        single = values.astype(np.float32)
    wrong = single.astype(np.float64) != values
    if not wrong.any():
        return single
    bits = single.view(np.int32)
    bits -= np.abs(single) > np.abs(values)  # decrementing the bits moves towards zero for either sign
    bits |= wrong & np.isfinite(single)
    return single
