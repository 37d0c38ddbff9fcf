"""By which factor the wrong elements of a tensor are off: one for all, or in each channel another."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qdebug.compare.patterns.wrong_evidence import Evidence, Trait, by_channel, free_elements, stretches
from qdebug.compare.patterns.wrong_places import chance
from qdebug.model.thresholds.patterns import (
    CONSTANT_ERROR_MIN_FLATNESS,
    SCALED_CHANNEL_MIN_WRONG,
    SCALED_MIN_CODES,
    SCALED_MIN_DEVIATION,
    SCALED_MIN_FACTOR,
    SCALED_MIN_FITTING_SHARE,
    SCALED_ROUNDING_SLACK,
    TRAIT_MIN_SHARE,
)

__all__ = ["factors"]


def factors(evidence: Evidence) -> Iterator[Trait]:
    """Find recorded = zero point + factor * (expected - zero point), with one factor or one for each channel."""
    arrays = evidence.expected, evidence.recorded, free_elements(evidence)
    every = _Codes(arrays, evidence.zero_point)
    whole = every.factor()
    if whole is not None and every.grow(whole):
        digits = 4 if abs(whole - 1) >= 0.001 else 7
        yield Trait(pattern="factor", detail=f"the elements are {whole:.{digits}g} times what they should be")
        return
    wrong = by_channel(evidence.wrong, evidence.layout)
    if np.count_nonzero(wrong) < SCALED_CHANNEL_MIN_WRONG * np.count_nonzero(wrong.any(axis=1)):
        return  # a single wrong code is a factor too
    found = []
    for rows in zip(*(by_channel(array, evidence.layout) for array in arrays), strict=True):
        channel = _Codes(rows, evidence.zero_point)
        if not channel.telling:
            continue
        factor = channel.factor()
        if factor is None:
            return
        found.append(factor)
    if found and max(abs(factor - 1) for factor in found) >= SCALED_MIN_DEVIATION:
        span = f"{min(found):.3g} to {max(found):.3g}"
        yield Trait(pattern="factor_per_channel", detail=f"each channel is a constant times what it should be, {span}")


class _Codes:
    """Expected and recorded codes that nothing cuts off, less their zero point, read piece by piece.

    Args:
        arrays: Expected codes, recorded codes, and which of them count.
        zero_point: The code of real 0.
    """

    def __init__(self, arrays: tuple[np.ndarray, ...], zero_point: int) -> None:
        self._arrays, self._zero_point = arrays, zero_point
        self._many, self._largest, self._power, self._product = 0, 0, 0.0, 0.0
        for x, y in self._centred():
            real = x.astype(np.float64)
            self._many += x.size
            self._largest = max(self._largest, int(np.abs(x).max(initial=0)))
            self._power += float(real @ real)
            self._product += float(real @ y.astype(np.float64))

    def _centred(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for expected, recorded, free in stretches(*self._arrays):
            yield (
                expected[free].astype(np.int64) - self._zero_point,
                recorded[free].astype(np.int64) - self._zero_point,
            )

    @property
    def telling(self) -> bool:
        """Whether a factor could be told from them."""
        return self._many >= SCALED_MIN_CODES and self._largest >= SCALED_MIN_CODES

    def factor(self) -> float | None:
        """Give the factor between them; None if there is none that accounts for all but their rounding."""
        if not self.telling:
            return None
        factor = self._product / self._power
        if factor < SCALED_MIN_FACTOR:
            return None
        most = 0.5 + 0.5 * factor + SCALED_ROUNDING_SLACK
        fitting = sum(int(np.count_nonzero(np.abs(y - factor * x) <= most)) for x, y in self._centred())
        return factor if fitting >= SCALED_MIN_FITTING_SHARE * self._many else None

    def grow(self, factor: float) -> bool:
        """Tell whether a factor that few codes show is one: errors go its way, and grow with the codes."""
        many = same = 0
        for x, y in self._centred():
            wrong = x != y
            many += int(np.count_nonzero(wrong))
            same += int(np.count_nonzero(np.sign((y - x)[wrong]) == np.sign((factor - 1) * x[wrong])))
        if not many or same / many < TRAIT_MIN_SHARE or chance(0.5, many):
            return False
        middle = self._median_size()
        errors, counts = np.zeros(2), np.zeros(2)  # of codes up to the median, and beyond it
        for x, y in self._centred():
            far = np.abs(x) > middle
            for at, part in enumerate((~far, far)):
                errors[at] += float(np.abs(y - x)[part].sum())
                counts[at] += int(np.count_nonzero(part))
        return bool(counts.all() and errors[0] / counts[0] < CONSTANT_ERROR_MIN_FLATNESS * errors[1] / counts[1])

    def _median_size(self) -> float:
        """Give the median of the expected codes' magnitudes."""
        if self._largest >= 1 << 17:  # wider than any quantized code
            return float(np.median(np.concatenate([np.abs(x) for x, _ in self._centred()])))
        counts = np.zeros(self._largest + 1, np.int64)
        for x, _ in self._centred():
            counts += np.bincount(np.abs(x), minlength=counts.size)
        below = np.cumsum(counts)
        low, high = (int(np.searchsorted(below, at, side="right")) for at in ((self._many - 1) // 2, self._many // 2))
        return (low + high) / 2
