"""Whether the network's answer is unchanged: ranks of the reference's winners in outputs that may hold scores.

The *winner* is the entry with the highest score in the reference. Entries that share this score are all winners,
represented by the one with the highest score in the backend. Its *rank* is the number of other entries, winners
excluded, that are not strictly below it in the backend: 0 if it alone is on top. So a tie in the backend counts against
it, as does a NaN: a backend that gives every entry the same score has lost the winner, whichever entry an argmax would
pick. A tensor compared with itself always has rank 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from qdebug.compare.attribute.plan import PlannedNode
from qdebug.compare.result.result import OutputRanking
from qdebug.model import Graph, operators

__all__ = ["PairLoader", "Rank", "rank_outputs", "winner_rank"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """Where the reference's winner ranks in the backend.

    Args:
        rank: Number of other entries of the backend that are at least as high, or NaN.
        tied: Whether one of them has exactly the winner's score.
    """

    rank: int
    tied: bool


def winner_rank(reference: np.ndarray, backend: np.ndarray) -> Rank | None:
    """Find where the reference's winner ranks among the backend's scores.

    Args:
        reference: Scores, one dimension.
        backend: Scores of the same entries.

    Returns:
        The rank, or None if the reference has no winner: fewer than two entries, a NaN, or all entries equal.

    Raises:
        ValueError: The two are not one-dimensional arrays of the same shape.
    """
    if reference.ndim != 1 or reference.shape != backend.shape:
        raise ValueError(
            f"scores must be one-dimensional and of equal length, but have shapes {reference.shape} and {backend.shape}"
        )
    if reference.size < 2 or np.isnan(reference).any():
        return None
    winners = reference == reference.max()
    if winners.all():
        return None
    best = backend[winners].max()  # a NaN winner makes every comparison below false
    other_scores = backend[~winners]
    return Rank(rank=int(np.count_nonzero(~(other_scores < best))), tied=bool((other_scores == best).any()))


PairLoader = Callable[[str, int, int], tuple[np.ndarray, np.ndarray]]
"""Returns the real values of the reference and of the backend for a backend tensor, sample and step."""

_LEAST_ENTRIES = 2


def rank_outputs(
    graph: Graph,
    planned: Sequence[PlannedNode],
    places: Callable[[PlannedNode], Iterable[tuple[int, int]]],
    load: PairLoader,
) -> tuple[OutputRanking, ...]:
    """Rank the reference's winners in every compared output that may hold scores.

    Such an output is a vector of numbers for each sample (not an image or a table) from an operator that classifiers
    end in, as far as operators are known. No graph declares that the numbers are scores, so no report may claim it.

    Args:
        graph: The backend's graph.
        planned: The tensors to compare.
        places: Returns the samples and steps of a compared tensor that both sides recorded.
        load: Returns the values.
    """
    outputs = [entry for entry in planned if entry.tensor in graph.outputs and _may_be_vector(entry.shape)]
    rankings = (_rank_output(entry, places(entry), load) for entry in outputs if _may_be_scores(graph, entry.tensor))
    return tuple(ranking for ranking in rankings if ranking is not None)


def _may_be_scores(graph: Graph, tensor: str) -> bool:
    """Return whether a tensor comes from an operator that computes scores. An unknown operator may."""
    for _ in range(len(graph.nodes)):
        node = graph.producer(tensor)
        if node is None or not node.op:
            return True
        varying = [name for name in node.inputs if name and not graph.is_constant(name)]
        row = operators.of(node.op)
        adds_bias = row.adds_term and len(varying) == 1
        if not (row.keeps_values or row.casts or row.arranges or adds_bias) or not varying:
            return operators.named(operators.plain(node).name).gives_scores
        tensor = varying[0]
    return True


def _may_be_vector(shape: tuple[int | None, ...] | None) -> bool:
    """Return whether a tensor with the declared shape can be a vector. A variable extent may turn out to be 1."""
    return shape is None or sum(extent is not None and extent != 1 for extent in shape) <= 1


def _rank_output(entry: PlannedNode, places: Iterable[tuple[int, int]], load: PairLoader) -> OutputRanking | None:
    """Rank one output, or return None if it turns out not to be a vector of real numbers."""
    ranks: list[tuple[int, Rank]] = []
    place_count, entries = 0, 0
    for sample, step in places:
        reference, backend = (np.squeeze(values) for values in load(entry.tensor, sample, step))
        if not _vectors(reference, backend):
            return None
        place_count, entries = place_count + 1, reference.size
        rank = winner_rank(reference, backend)
        if rank is not None:
            ranks.append((sample, rank))
    if not place_count:
        return None
    count = len(ranks)
    worst = max(ranks, key=lambda item: item[1].rank, default=None)
    return OutputRanking(
        tensor=entry.tensor,
        entries=entries,
        samples=count,
        unranked=place_count - count,
        top1_agreement=_share(ranks, 1),
        top5_agreement=_share(ranks, 5) if entries > 5 else None,
        tied=sum(rank.tied for _, rank in ranks),
        worst_rank=None if worst is None else worst[1].rank,
        worst_sample=None if worst is None else worst[0],
    )


def _vectors(reference: np.ndarray, backend: np.ndarray) -> bool:
    if reference.ndim != 1 or reference.shape != backend.shape or reference.size < _LEAST_ENTRIES:
        return False
    return all(values.dtype.kind in "iuf" for values in (reference, backend))


def _share(ranks: Sequence[tuple[int, Rank]], first: int) -> float | None:
    return sum(rank.rank < first for _, rank in ranks) / len(ranks) if ranks else None
