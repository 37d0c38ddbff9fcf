"""Confidence intervals of a proportion, and of the difference between two proportions over the same samples."""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["paired_loss", "proportion", "samples_needed"]

_Z = 1.959963984540054
"""The 97.5 % quantile of the normal distribution, for 95 % intervals."""
_HALVINGS = 60
"""Number of bisection steps: more than the bits of a float64 between -1 and 1."""
_MAX_SAMPLES = 1 << 40
"""Largest number of samples that is considered."""


def proportion(right: float, count: float) -> tuple[float, float]:
    """Return the 95 % score interval of a proportion.

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927).

    Args:
        right: Number of correct samples.
        count: Number of samples, at least 1.
    """
    share, spread = right / count, _Z * _Z / count
    middle = (share + spread / 2) / (1 + spread)
    half = math.sqrt(share * (1 - share) * spread + spread * spread / 4) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)


def paired_loss(lost: float, won: float, count: float) -> tuple[float, float]:
    """Return the 95 % score interval of (lost - won) / count, the difference of two paired proportions.

    Its ends are the differences d at which the score statistic of the hypothesis "the difference is d" is +-1.96. Its
    coverage stays correct for few samples, and even if no samples differ.

    Source: T. Tango, "Equivalence test and confidence interval for the difference in proportions for the paired-sample
    design", Statistics in Medicine 17 (1998), equations 11 to 14.

    Args:
        lost: Samples that only the reference gets right.
        won: Samples that only the other side gets right.
        count: All samples, at least 1.
    """

    def score(loss: float) -> float:
        # q: maximum-likelihood share of won samples under this loss
        b = -lost - won + (2 * count - lost + won) * loss
        q = (math.sqrt(max(b * b + 8 * count * won * loss * (1 - loss), 0.0)) - b) / (4 * count)
        variance = count * (2 * q + loss * (1 - loss))
        away = lost - won - count * loss
        return away / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, away) if away else 0.0

    observed = (lost - won) / count
    low = -1.0 if observed <= -1 else _bisect(lambda loss: score(loss) > _Z, -1.0, observed)
    high = 1.0 if observed >= 1 else _bisect(lambda loss: score(loss) > -_Z, observed, 1.0)
    return low, high


def _bisect(predicate: Callable[[float], bool], low: float, high: float) -> float:
    """Return the point where a predicate that is true at the lower end becomes false."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if predicate(middle) else (low, middle)
    return (low + high) / 2


def samples_needed(lost: float, won: float, count: float, margin: float) -> int | None:
    """Return how many samples with the same proportions would decide whether a loss exceeds a margin.

    Args:
        lost: Samples that only the reference gets right.
        won: Samples that only the other side gets right.
        count: All samples, at least 1.
        margin: The largest allowed loss.

    Returns:
        The smallest number of samples for which the interval of `paired_loss` excludes the margin; None if no number
        suffices because the loss equals the margin.
    """

    def decided(samples: int) -> bool:
        low, high = paired_loss(lost * samples / count, won * samples / count, samples)
        return high <= margin or low > margin

    low = high = max(int(count), 1)
    while not decided(high):
        low, high = high, 2 * high
        if high > _MAX_SAMPLES:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decided(middle) else (middle, high)
    return high
