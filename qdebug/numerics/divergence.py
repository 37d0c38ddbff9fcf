"""How far apart two vectors of scores are as probability distributions.

S. Kullback, R. A. Leibler, "On Information and Sufficiency", Annals of Mathematical Statistics 22 (1951).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["TOP", "Divergence", "score_divergence"]

TOP = 5
"""Number of highest scores whose agreement is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """How far the backend's distribution is from the reference's, for one vector of scores.

    With p of the reference and q of the backend, both the softmax of their scores:

    Args:
        kl: sum p log(p/q), in nats. Infinite if the backend rules out an entry that the reference does not.
        squared_log_ratio: sum p (log p - log q)^2, in nats squared: what entries drawn by the reference show.
        top_overlap: Share of the reference's five highest scores that are among the backend's; of equal scores, the
            first counts. None with five entries or fewer.
    """

    kl: float
    squared_log_ratio: float
    top_overlap: float | None


def score_divergence(reference: np.ndarray, backend: np.ndarray, *, probabilities: bool = False) -> Divergence | None:
    """Return how far two vectors of scores are apart, or None if the reference's are no distribution.

    A backend with a NaN or a positive infinity has a divergence of NaN, and agrees in no high score.

    Args:
        reference: Scores, one dimension.
        backend: Scores of the same entries.
        probabilities: Whether the scores are probabilities, rather than their logarithms up to a constant.
    """
    with np.errstate(all="ignore"):
        log_p = _log_probabilities(reference, probabilities=probabilities)
        if not log_p.size or np.isnan(log_p).any():
            return None
        log_q = _log_probabilities(backend, probabilities=probabilities)
        if np.isnan(log_q).any():
            return Divergence(kl=np.nan, squared_log_ratio=np.nan, top_overlap=0.0 if reference.size > TOP else None)
        p = np.exp(log_p)
        possible = p > 0.0
        ratio = log_p[possible] - log_q[possible]
        # sum p log(p/q) = sum (p log(p/q) - p + q), whose terms are all positive: nothing cancels
        kl = np.sum(p[possible] * (ratio + np.expm1(-ratio))) + np.sum(np.exp(log_q[~possible]))
        squared = np.sum(p[possible] * ratio**2)
    overlap = None
    if reference.size > TOP:
        overlap = len(np.intersect1d(_first_maxima(reference), _first_maxima(backend), assume_unique=True)) / TOP
    return Divergence(kl=float(kl), squared_log_ratio=float(squared), top_overlap=overlap)


def _log_probabilities(scores: np.ndarray, *, probabilities: bool) -> np.ndarray:
    """Return the logarithms of probabilities that sum to 1; NaN where they are undefined."""
    logs = np.asarray(scores, np.float64)
    if probabilities:
        logs = np.log(logs)
    shifted = logs - logs.max(initial=-np.inf)
    return np.asarray(shifted - np.log(np.sum(np.exp(shifted))))


def _first_maxima(scores: np.ndarray) -> np.ndarray:
    """Return the positions of the highest scores; of equal scores, the first."""
    lowest = np.partition(scores, -TOP)[-TOP]
    above = np.flatnonzero(scores > lowest)
    return np.concatenate([above, np.flatnonzero(scores == lowest)[: TOP - above.size]])
