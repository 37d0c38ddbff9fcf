"""Find results that are too large or too small for the float format they were rounded to.

A result that is too large becomes infinite or the largest number. A result below the smallest normal number loses
digits or becomes 0. Processors that flush subnormal numbers to zero always give 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from qdebug.numerics.short_formats import ShortFormat

__all__ = ["OutOfRange", "out_of_range"]

_STRETCH = 1 << 20
"""Number of elements examined at once, so that large tensors need no copy in float64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeLoss:
    """Elements whose results were lost in one way, such as overflow.

    Args:
        count: Their number.
        exact: The exact result of the first element.
        stored: Its recorded value.
    """

    count: int
    exact: float
    stored: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfRange:
    """Results outside the range of a float format.

    Args:
        short: The format.
        total: Number of results.
        lost: The lost elements by kind, a key of `_LOSS_TEXTS`.
    """

    short: ShortFormat
    total: int
    lost: Mapping[str, RangeLoss]

    def merge(self, other: OutOfRange) -> OutOfRange:
        """Return the losses merged with those of other results in the same format."""
        merged = {
            kind: RangeLoss(count=first.count + more.count, exact=first.exact, stored=first.stored)
            for kind, first in self.lost.items()
            if (more := other.lost.get(kind)) is not None
        }
        lost = MappingProxyType({**other.lost, **self.lost, **merged})
        return OutOfRange(short=self.short, total=self.total + other.total, lost=lost)

    @property
    def sentence(self) -> str | None:
        """Clauses about the lost elements; None if there are none."""
        clauses = []
        for kind, words in _LOSS_TEXTS.items():
            if (lost := self.lost.get(kind)) is not None:
                effect = words.format(each=self.short, are="is" if lost.count == 1 else "are")
                example = f"{lost.exact:.6g} became {lost.stored:.6g}"
                more = example if lost.count == 1 else f"the first, {lost.exact:.6g}, became {lost.stored:.6g}"
                clauses.append(f"{lost.count} of {self.total} results {effect}; {more}")
        return "; ".join(clauses) or None


_LOSS_TEXTS = MappingProxyType(
    {
        "beyond": "{are} beyond {each.largest:.6g}, the largest {each.name} value",
        "flushed": "{are} subnormal in {each.name}, below {each.normal:.6g}, and flushed to zero",
        "below": "{are} below {each.subnormal:.6g}, the smallest {each.name} value",
    }
)


def out_of_range(
    short: ShortFormat, exact: np.ndarray, recorded: np.ndarray, *, noise: float = 0.0
) -> tuple[OutOfRange, np.ndarray]:
    """Find results whose recorded values are explained by the range of their format.

    Args:
        short: The format that they were rounded to.
        exact: The exact results.
        recorded: The recorded results, of the same shape.
        noise: Error bound of the exact results. Results up to this size may also be 0.

    Returns:
        The losses, and a mask of the elements for which infinity, the largest number or 0 is correct.
    """
    recorded = np.asarray(recorded)
    # Only zeros and the largest magnitudes can be out of range, and most tensors have neither.
    suspects = np.concatenate(
        [
            start + np.flatnonzero((values == 0) | (np.abs(values) >= short.largest))
            for start, values in _stretches(recorded)
        ]
        or [np.empty(0, np.intp)]
    )
    is_explained = np.zeros(recorded.shape, bool)
    if not suspects.size:
        return OutOfRange(short=short, total=recorded.size, lost=MappingProxyType({})), is_explained
    recorded_suspects, exact_suspects = (
        np.asarray(array).reshape(-1)[suspects].astype(np.float64) for array in (recorded, exact)
    )
    size, is_finite = np.abs(exact_suspects), np.isfinite(exact_suspects)
    with np.errstate(invalid="ignore"):
        # Just below the largest number, the order of summation decides whether a result overflows.
        overflowed = (
            is_finite & (size > short.largest * (1 - short.unit)) & (np.abs(recorded_suspects) >= short.largest)
        )
        overflowed &= np.sign(recorded_suspects) == np.sign(exact_suspects)
        underflowed = is_finite & (recorded_suspects == 0) & (size > noise) & (size < short.normal)
        flushes_subnormals = not (
            underflowed.any()
            and any(np.any((values != 0) & (np.abs(values) < short.normal)) for _, values in _stretches(recorded))
        )
        # Results up to half the smallest number round to 0. Larger ones would be subnormal, so they were flushed.
        flushed = underflowed & (size > short.subnormal / 2) if flushes_subnormals else np.zeros_like(underflowed)
        masks = {
            "beyond": overflowed & ((size >= short.beyond) | np.isinf(recorded_suspects)),
            "flushed": flushed,
            "below": underflowed & (size > 0) & (size <= short.subnormal / 2),
        }
    lost = {
        kind: _summarize_loss(mask, exact_suspects, recorded_suspects) for kind, mask in masks.items() if mask.any()
    }
    is_explained.reshape(-1)[suspects] = overflowed | flushed
    return OutOfRange(short=short, total=recorded.size, lost=MappingProxyType(lost)), is_explained


def _stretches(array: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the values of an array in float32 or float64, a stretch at a time, with the index of the first element."""
    flat = array.reshape(-1)
    for start in range(0, flat.size, _STRETCH):
        values = flat[start : start + _STRETCH]
        yield start, values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)


def _summarize_loss(mask: np.ndarray, exact: np.ndarray, stored: np.ndarray) -> RangeLoss:
    first = np.flatnonzero(mask)[0]
    return RangeLoss(
        count=int(np.count_nonzero(mask)),
        exact=float(exact.reshape(-1)[first]),
        stored=float(stored.reshape(-1)[first]) + 0.0,
    )
