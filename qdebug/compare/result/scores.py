"""Whether the network's answer is unchanged: ranks of the reference's winners in outputs that may hold scores.

The *winner* is the entry with the highest score in the reference. Entries that share this score are all winners,
represented by the one with the highest score in the backend. Its *rank* is the number of other entries, winners
excluded, that are not strictly below it in the backend: 0 if it alone is on top. So a tie in the backend counts against
it, as does a NaN: a backend that gives every entry the same score has lost the winner, whichever entry an argmax would
pick. A tensor compared with itself always has rank 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qdebug.compare.attribute.plan import PlannedNode
from qdebug.compare.result.result import OutputRanking
from qdebug.model import Graph, operators
from qdebug.model.thresholds.verdict import VOCABULARY_MIN_ENTRIES
from qdebug.numerics.divergence import Divergence, score_divergence

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

_MIN_ENTRIES = 2
_LOGITS_NAME = "logit"


def rank_outputs(
    graph: Graph,
    planned: Sequence[PlannedNode],
    places: Callable[[PlannedNode], Iterable[tuple[int, int]]],
    load: PairLoader,
    *,
    named: Callable[[str], bool] = lambda _: False,
) -> tuple[OutputRanking, ...]:
    """Rank the reference's winners in every compared output that may hold scores.

    Such an output is a vector of numbers for each sample (not an image or a table). If its operator is known, it must
    be one in which classifiers end. No graph declares that the numbers are scores, so no report may claim it.

    An output is taken for logits of a language model if the user names it, or if its name says so and it has as many
    entries as a vocabulary. Then its last axis holds the scores, for as many vectors as the other axes have, and the
    distributions are compared too.

    Args:
        graph: The backend's graph.
        planned: The tensors to compare.
        places: Returns the samples and steps of a compared tensor that both sides recorded.
        load: Returns the values.
        named: Whether the user says that a backend's output holds logits.
    """
    rankings = []
    for entry in planned:
        if entry.tensor not in graph.outputs:
            continue
        is_named = named(entry.tensor)
        has_logits_name = any(_LOGITS_NAME in name.lower() for name in (entry.tensor, entry.pair.reference))
        if not (is_named or has_logits_name or _may_be_vector(entry.shape)):
            continue
        operator = _score_operator(graph, entry.tensor)
        if is_named or operator is None or operator.gives_scores:
            vectors = _Vectors(
                is_named=is_named,
                is_called_logits=has_logits_name,
                probabilities=operator is not None and operator.gives_probabilities,
            )
            rankings.append(_rank_output(entry, places(entry), load, vectors))
    return tuple(ranking for ranking in rankings if ranking is not None)


def _score_operator(graph: Graph, tensor: str) -> operators.Operator | None:
    """Return the operator that computes the values of a tensor, looking through casts and biases; None if unknown."""
    for _ in range(len(graph.nodes)):
        node = graph.producer(tensor)
        if node is None or not node.op:
            return None
        varying = [name for name in node.inputs if name and not graph.is_constant(name)]
        row = operators.of(node.op)
        adds_bias = row.adds_term and len(varying) == 1
        if not (row.keeps_values or row.casts or row.arranges or adds_bias) or not varying:
            return operators.named(operators.plain(node).name)
        tensor = varying[0]
    return None


def _may_be_vector(shape: tuple[int | None, ...] | None) -> bool:
    """Return whether a tensor with the declared shape can be a vector. A variable extent may turn out to be 1."""
    return shape is None or sum(extent is not None and extent != 1 for extent in shape) <= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Vectors:
    """Which score vectors an output holds.

    Args:
        is_named: Whether the user says that it holds logits.
        is_called_logits: Whether its name says so.
        probabilities: Whether its values are probabilities.
    """

    is_named: bool
    is_called_logits: bool
    probabilities: bool

    def split(self, reference: np.ndarray, backend: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]] | None:
        """Return the pairs of score vectors at one place, or None if the values are not scores."""
        if not all(values.dtype.kind in "iuf" for values in (reference, backend)):
            return None
        flat = np.squeeze(reference), np.squeeze(backend)
        if flat[0].ndim == 1 and flat[0].shape == flat[1].shape and flat[0].size >= _MIN_ENTRIES:
            return [flat]
        is_table = reference.ndim > 0 and reference.shape == backend.shape and reference.shape[-1] >= _MIN_ENTRIES
        if not is_table or not reference.size or not self.are_logits(reference.shape[-1]):
            return None
        tables = (values.reshape(-1, values.shape[-1]) for values in (reference, backend))
        return list(zip(*tables, strict=True))

    def are_logits(self, entries: int) -> bool:
        """Return whether vectors of this length are assumed to be logits of a language model."""
        return self.is_named or (self.is_called_logits and entries >= VOCABULARY_MIN_ENTRIES)


def _rank_output(
    entry: PlannedNode, places: Iterable[tuple[int, int]], load: PairLoader, vectors: _Vectors
) -> OutputRanking | None:
    """Rank one output, or return None if it turns out to hold no vectors of real numbers."""
    ranks: list[tuple[int, Rank]] = []
    divergences: list[tuple[int, Divergence]] = []
    vector_count, entries = 0, 0
    for sample, step in places:
        pairs = vectors.split(*load(entry.tensor, sample, step))
        if pairs is None:
            return None
        for reference, backend in pairs:
            vector_count, entries = vector_count + 1, reference.size
            rank = winner_rank(reference, backend)
            if rank is not None:
                ranks.append((sample, rank))
            if vectors.are_logits(entries):
                divergence = score_divergence(reference, backend, probabilities=vectors.probabilities)
                divergences += [] if divergence is None else [(sample, divergence)]
    if not vector_count:
        return None
    worst = max(ranks, key=lambda item: item[1].rank, default=None)
    ranking = OutputRanking(
        tensor=entry.tensor,
        entries=entries,
        samples=len(ranks),
        unranked=vector_count - len(ranks),
        top1_agreement=_share_below_rank(ranks, 1),
        top5_agreement=_share_below_rank(ranks, 5) if entries > 5 else None,
        tied=sum(rank.tied for _, rank in ranks),
        worst_rank=None if worst is None else worst[1].rank,
        worst_sample=None if worst is None else worst[0],
    )
    return _with_divergences(ranking, divergences)


def _with_divergences(ranking: OutputRanking, divergences: Sequence[tuple[int, Divergence]]) -> OutputRanking:
    """Return a ranking with the divergences of the score distributions."""
    if not divergences:
        return ranking
    # NaN counts as the worst divergence
    worst_sample, worst = max(divergences, key=lambda item: math.inf if math.isnan(item[1].kl) else item[1].kl)
    overlaps = [divergence.top_overlap for _, divergence in divergences if divergence.top_overlap is not None]
    return replace(
        ranking,
        logprob_rms=math.sqrt(_mean([divergence.squared_log_ratio for _, divergence in divergences])),
        kl=_mean([divergence.kl for _, divergence in divergences]),
        worst_kl=worst.kl,
        worst_kl_sample=worst_sample,
        top5_overlap=_mean(overlaps) if overlaps else None,
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _share_below_rank(ranks: Sequence[tuple[int, Rank]], max_rank: int) -> float | None:
    return sum(rank.rank < max_rank for _, rank in ranks) / len(ranks) if ranks else None
