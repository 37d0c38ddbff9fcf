"""Whether the network's answer is still the same: ranks of the reference's winners in outputs that may hold scores.

Where the reference's winner stands among the backend's scores. The *winner* is the entry with the highest score of the
reference; entries that share it are all winners, and the one that the backend likes best stands for them. Its *rank* is
the number of other entries that are not strictly below it in the backend, winners left out: 0 if it is on top alone. So
a tie in the backend counts against it (a backend that gives every entry one score has lost the winner, whichever entry
an argmax would pick), as does a NaN, and a tensor compared with itself always has rank 0.
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
        raise ValueError(
            f"scores must be one-dimensional and of equal length, but have shapes {reference.shape} and {backend.shape}"
        )
    if reference.size < 2 or np.isnan(reference).any():
        return None
    winners = reference == reference.max()
    if winners.all():
        return None
    best = backend[winners].max()  # a NaN winner makes every comparison below false
    others = backend[~winners]
    return Rank(rank=int(np.count_nonzero(~(others < best))), tied=bool((others == best).any()))


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

    That is a vector of numbers for each sample (an image or a table is none) that comes from an operator which
    classifiers end in, as far as operators are known. No graph says that they are scores, so neither may a report.

    Args:
        graph: The backend's graph.
        planned: What is compared.
        places: Gives the samples and steps that both sides hold of a compared tensor.
        load: Gives the values.
    """
    outputs = [entry for entry in planned if entry.tensor in graph.outputs and _may_be_vector(entry.shape)]
    found = (_rank_output(entry, places(entry), load) for entry in outputs if _may_be_scores(graph, entry.tensor))
    return tuple(ranking for ranking in found if ranking is not None)


def _may_be_scores(graph: Graph, tensor: str) -> bool:
    """Tell whether a tensor comes from an operator that gives scores; where operators are unknown, it may."""
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
    """Tell from a declared shape whether it can be a vector; an extent that varies may turn out to be 1."""
    return shape is None or sum(extent is not None and extent != 1 for extent in shape) <= 1


def _rank_output(entry: PlannedNode, places: Iterable[tuple[int, int]], load: PairLoader) -> OutputRanking | None:
    """Rank one output; None if it turns out to be no vector of real numbers."""
    ranks: list[tuple[int, Rank]] = []
    seen, entries = 0, 0
    for sample, step in places:
        reference, backend = (np.squeeze(values) for values in load(entry.tensor, sample, step))
        if not _vectors(reference, backend):
            return None
        seen, entries = seen + 1, reference.size
        rank = winner_rank(reference, backend)
        if rank is not None:
            ranks.append((sample, rank))
    if not seen:
        return None
    count = len(ranks)
    worst = max(ranks, key=lambda item: item[1].rank, default=None)
    return OutputRanking(
        tensor=entry.tensor,
        entries=entries,
        samples=count,
        unranked=seen - count,
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
