"""The divergence of two vectors of scores as probability distributions.

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
    """The divergence of the backend's distribution from the reference's, for one vector of scores.

    p is the softmax of the reference's scores, and q that of the backend's.

    Args:
        kl: sum p log(p/q), in nats. Infinite if the backend rules out an entry that the reference does not.
        squared_log_ratio: sum p (log p - log q)^2, in nats squared: its mean over entries drawn with probability p.
        top_overlap: Share of the reference's five highest scores that are among the backend's five highest. Among equal
            scores, the first ones count. None with five entries or fewer.
    """

    kl: float
    squared_log_ratio: float
    top_overlap: float | None


def score_divergence(reference: np.ndarray, backend: np.ndarray, *, probabilities: bool = False) -> Divergence | None:
    """Return the divergence of two vectors of scores; None if the reference's scores do not define a distribution.

    A backend with a NaN or a positive infinity has a divergence of NaN and a top overlap of 0.

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
        # sum p log(p/q) = sum (p log(p/q) - p + q), whose terms are never negative, so that nothing cancels
        kl = np.sum(p[possible] * (ratio + np.expm1(-ratio))) + np.sum(np.exp(log_q[~possible]))
        squared = np.sum(p[possible] * ratio**2)
    overlap = None
    if reference.size > TOP:
        overlap = len(np.intersect1d(_highest_scores(reference), _highest_scores(backend), assume_unique=True)) / TOP
    return Divergence(kl=float(kl), squared_log_ratio=float(squared), top_overlap=overlap)


def _log_probabilities(scores: np.ndarray, *, probabilities: bool) -> np.ndarray:
    """Return the logarithms of probabilities that sum to 1; NaN where they are undefined."""
    logs = np.asarray(scores, np.float64)
    if probabilities:
        logs = np.log(logs)
    shifted = logs - logs.max(initial=-np.inf)
    return np.asarray(shifted - np.log(np.sum(np.exp(shifted))))


def _highest_scores(scores: np.ndarray) -> np.ndarray:
    """Return the positions of the five highest scores. Among equal scores, the first ones win."""
    lowest = np.partition(scores, -TOP)[-TOP]
    above = np.flatnonzero(scores > lowest)
    return np.concatenate([above, np.flatnonzero(scores == lowest)[: TOP - above.size]])
