"""Results outside the range of the float format that they were rounded to: too large for it, or too small.

What is too large becomes infinite, or the largest number. What is below the smallest normal number has fewer digits,
or becomes 0: in a format without subnormal numbers all of it does, as on processors that flush these to zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from qdebug.numerics.short_formats import ShortFormat

__all__ = ["OutOfRange", "out_of_range"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Elements that were lost in one way.

    Args:
        count: How many.
        exact: The exact result of the first.
        given: What it became.
    """

    count: int
    exact: float
    given: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfRange:
    """What the range of a format has taken from results.

    Args:
        short: The format.
        total: Number of results.
        lost: By a key of `_WAYS`, what was lost so.
    """

    short: ShortFormat
    total: int
    lost: Mapping[str, Lost]

    def with_more(self, other: OutOfRange) -> OutOfRange:
        """Return this with what other results have lost."""
        both = {
            way: Lost(count=first.count + more.count, exact=first.exact, given=first.given)
            for way, first in self.lost.items()
            if (more := other.lost.get(way)) is not None
        }
        lost = MappingProxyType({**other.lost, **self.lost, **both})
        return OutOfRange(short=self.short, total=self.total + other.total, lost=lost)

    @property
    def sentence(self) -> str | None:
        """What was lost, in words; None if nothing was."""
        said = []
        for way, words in _WAYS.items():
            if (lost := self.lost.get(way)) is not None:
                what = words.format(each=self.short, are="is" if lost.count == 1 else "are")
                one = f"{lost.exact:.6g} became {lost.given:.6g}"
                more = one if lost.count == 1 else f"the first is {lost.exact:.6g} and became {lost.given:.6g}"
                said.append(f"{lost.count} of {self.total} results {what}; {more}")
        return "; ".join(said) or None


_WAYS = MappingProxyType(
    {
        "beyond": "{are} beyond {each.largest:.6g}, the largest {each.name}",
        "flushed": "{are} subnormal in {each.name}, below {each.normal:.6g}, and flushed to zero",
        "below": "{are} below {each.subnormal:.6g}, the smallest {each.name}",
    }
)


def out_of_range(
    short: ShortFormat, exact: np.ndarray, recorded: np.ndarray, *, noise: float = 0.0
) -> tuple[OutOfRange, np.ndarray]:
    """Find the results that the range of their format accounts for.

    Args:
        short: The format that they were rounded to.
        exact: The results before.
        recorded: What was recorded, of the same shape.
        noise: By how much the exact results may be off: what is as small may as well be 0.

    Returns:
        What was lost, and which elements are infinite, the largest number or flushed to 0 and rightly so.
    """
    shown = np.asarray(recorded)
    shown = shown if shown.dtype in (np.float32, np.float64) else shown.astype(np.float64)
    # All others were kept: of most tensors nothing is left to be looked at.
    odd = np.flatnonzero((shown == 0) | (np.abs(shown) >= short.largest))
    taken = np.zeros(shown.shape, bool)
    if not odd.size:
        return OutOfRange(short=short, total=shown.size, lost=MappingProxyType({})), taken
    ours, wide = (np.asarray(array).reshape(-1)[odd].astype(np.float64) for array in (recorded, exact))
    size, known = np.abs(wide), np.isfinite(wide)
    with np.errstate(invalid="ignore"):
        # Just below the end, the order of a sum decides.
        ended = known & (size > short.largest * (1 - short.unit)) & (np.abs(ours) >= short.largest)
        ended &= np.sign(ours) == np.sign(wide)
        gone = known & (ours == 0) & (size > noise) & (size < short.normal)
        none_kept = not (gone.any() and np.any((shown != 0) & (np.abs(shown) < short.normal)))
        # Half of the smallest number is 0 by rounding to even; the rest would be a subnormal number.
        flushed = gone & (size > short.subnormal / 2) if none_kept else np.zeros_like(gone)
        ways = {
            "beyond": ended & ((size >= short.beyond) | np.isinf(ours)),
            "flushed": flushed,
            "below": gone & (size > 0) & (size <= short.subnormal / 2),
        }
    lost = {way: _lost(mask, wide, ours) for way, mask in ways.items() if mask.any()}
    taken.reshape(-1)[odd] = ended | flushed
    return OutOfRange(short=short, total=shown.size, lost=MappingProxyType(lost)), taken


def _lost(mask: np.ndarray, exact: np.ndarray, given: np.ndarray) -> Lost:
    first = np.flatnonzero(mask)[0]
    return Lost(
        count=int(np.count_nonzero(mask)),
        exact=float(exact.reshape(-1)[first]),
        given=float(given.reshape(-1)[first]) + 0.0,
    )
