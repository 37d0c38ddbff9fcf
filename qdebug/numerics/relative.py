"""The error of each element relative to its own reference, with zero references apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qdebug.numerics.exponents import ExponentCounter, ExponentHistogram

__all__ = ["RelativeCounter", "RelativeErrors"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RelativeErrors:
    """abs(difference)/abs(reference) of each element that is finite on both sides.

    Args:
        quotients: By binary exponent, where the reference is not 0: `zeros` are equal elements; a quotient beyond
            float64 counts as 2**1024.
        zero_refs: Elements whose reference is 0: they have no quotient.
        zero_refs_hit: Of these, the ones whose backend is 0 too.
    """

    quotients: ExponentHistogram
    zero_refs: int
    zero_refs_hit: int


class RelativeCounter:
    """Counts relative errors stretch by stretch."""

    def __init__(self) -> None:
        self._quotients = ExponentCounter()
        self._zero_refs = self._hit = 0

    def add(
        self,
        magnitudes: np.ndarray,
        reference: np.ndarray,
        *,
        out: np.ndarray | None = None,
        index: np.ndarray | None = None,
        equal: int | None = None,
    ) -> None:
        """Count a stretch of elements that are finite on both sides.

        Args:
            magnitudes: Absolute differences, 1-D float64.
            reference: Reference values, 1-D float64; neither is written to.
            out: A float64 buffer at least as long, to be overwritten; None for a new one.
            index: An int64 buffer likewise.
            equal: How many of the differences are 0; None to count them.
        """
        quotients = np.divide(magnitudes, reference, out=None if out is None else out[: magnitudes.size])
        np.absolute(quotients, out=quotients)
        infinite = self._quotients.infinite
        small = self._quotients.count(quotients, index=index)
        if equal is None:
            equal = int(np.count_nonzero(np.equal(magnitudes, 0.0)))
        self._settle(quotients, reference, small, equal, undefined=self._quotients.infinite != infinite)

    def add_counts(self, counts: np.ndarray, quotients: np.ndarray, reference: np.ndarray, equal: int) -> None:
        """Count a stretch as `add` does, from how many quotients have each biased exponent.

        Args:
            counts: These counts.
            quotients: Absolute differences over absolute references, float64.
            reference: The references.
            equal: How many of the differences are 0.
        """
        small = self._quotients.add_counts(counts)
        self._settle(quotients, reference, small, equal, undefined=counts.item(-1) > 0)

    def _settle(self, quotients: np.ndarray, reference: np.ndarray, small: int, equal: int, *, undefined: bool) -> None:
        """Take back what is no quotient from a stretch that was counted, and tell its `small` ones apart."""
        hit = 0
        if undefined:
            zeros = int(np.count_nonzero(np.equal(reference, 0.0)))  # several times faster than to count what is not 0
            hit = int(np.count_nonzero(np.isnan(quotients)))  # 0/0
            self._zero_refs += zeros
            self._hit += hit
            self._quotients.forget_infinite(zeros)  # x/0, and 0/0 has the exponent of infinity too
        self._quotients.split_small(quotients, small, equal - hit)

    def errors(self) -> RelativeErrors:
        """Give the counts so far."""
        return RelativeErrors(quotients=self._quotients.histogram(), zero_refs=self._zero_refs, zero_refs_hit=self._hit)
