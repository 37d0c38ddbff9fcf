"""Where the reference's winner stands among the backend's scores.

The *winner* is the entry with the highest score of the reference; entries that share it are all winners, and the one
that the backend likes best stands for them. Its *rank* is the number of other entries that are not strictly below it
in the backend, winners left out: 0 if it is on top alone. So a tie in the backend counts against it (a backend that
gives every entry one score has lost the winner, whichever entry an argmax would pick), as does a NaN, and a tensor
compared with itself always has rank 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Rank", "winner_rank"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """Where the reference's winner stands in the backend.

    Args:
        rank: Other entries of the backend that are at least as high, or NaN.
        tied: Whether one of them has exactly the winner's score.
    """

    rank: int
    tied: bool


def winner_rank(reference: np.ndarray, backend: np.ndarray) -> Rank | None:
    """Find where the reference's winner stands among the backend's scores.

    Args:
        reference: Scores, one dimension.
        backend: Scores of the same entries.

    Returns:
        The rank; None if the reference has no winner: fewer than two entries, a NaN, or all entries equal.

    Raises:
        ValueError: The two are not of one shape with one dimension.
    """
    if reference.ndim != 1 or reference.shape != backend.shape:
        raise ValueError(f"scores need one shape with one dimension, found {reference.shape} and {backend.shape}")
    if reference.size < 2 or np.isnan(reference).any():
        return None
    winners = reference == reference.max()
    if winners.all():
        return None
    best = backend[winners].max()  # NaN if one of them is NaN: then nothing is strictly below it
    others = backend[~winners]
    return Rank(rank=int(np.count_nonzero(~(others < best))), tied=bool((others == best).any()))
