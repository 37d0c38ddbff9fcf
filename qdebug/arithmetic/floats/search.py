"""Searches for the placement of roundings that reproduces a float node bit for bit.

All placements are tried on a few rows, and those that fit are tried on all elements. The exact value of an element
before its rounding is known as an interval. A placement fits if every recorded element is among the numbers that its
interval rounds to. So an element decides only if its interval rounds to a single number. Begin at `search_placements`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations, islice, product
from operator import itemgetter
from typing import Any

import numpy as np

from qdebug.arithmetic.floats.steps import UNROUNDED, Evaluation, Step, edges_of
from qdebug.errors import KernelError, UsageError
from qdebug.model.thresholds.explanation import (
    PLACEMENT_MIN_EVIDENCE,
    PLACEMENT_MIN_VALUES,
    PLACEMENT_ROWS_ELEMENTS,
    PLACEMENTS_TRIED,
)
from qdebug.numerics.checkpoint import checkpoint
from qdebug.numerics.float_rounding import FLOAT_ROUNDINGS, OVERFLOWS, round_float
from qdebug.numerics.intervals import Interval
from qdebug.numerics.short_formats import ShortFormat

_BLOCK = 1 << 19
"""Number of elements examined at once. Each end of their intervals takes 4 MB."""

Edges = tuple[tuple[str, str], ...]
"""Unusual edges, each with its word."""

__all__ = ["Observation", "Placement", "PlacementFinding", "parse_placement", "placement_clauses", "search_placements"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where and how a node rounds.

    Args:
        rounding: The rounding of its result, a name in `FLOAT_ROUNDINGS`.
        edges: Each inner edge that is not treated as usual, with its word.
        flush: Whether results below the smallest normal number become 0.
        overflow: What results beyond the largest number become, a name in `OVERFLOWS`.
    """

    rounding: str
    edges: tuple[tuple[str, str], ...] = ()
    flush: bool = False
    overflow: str = "inf"

    def __str__(self) -> str:
        words = [f"{edge}={word}" for edge, word in self.edges]
        words += [f"result={self.rounding}", *(["flush"] if self.flush else [])]
        return ";".join([*words, *([self.overflow] if self.overflow != "inf" else [])])

    @property
    def is_usual(self) -> bool:
        """Whether the result is rounded to nearest even, and every edge is treated as usual."""
        return self.rounding == "even" and not self.edges and not self.flush


_WORDS = "|".join((*FLOAT_ROUNDINGS, UNROUNDED))
_PART = re.compile(
    rf"\s*(?:(?P<end>flush|{'|'.join(OVERFLOWS)})|(?P<step>.+?)\s*=\s*(?P<word>{_WORDS}))\s*(?:;|$)", re.DOTALL
)
"""Matches a part of a placement's text. A step may contain the name of a tensor, with any characters."""


def parse_placement(text: str) -> Placement:
    """Parse the text of a placement.

    Raises:
        UsageError: The text is not a placement.
    """
    edges: list[tuple[str, str]] = []
    rounding, flush, overflow, at = "", False, "inf", 0
    while at < len(text):
        part = _PART.match(text, at)
        groups: Mapping[str, str] = {} if part is None else {k: v for k, v in part.groupdict().items() if v is not None}
        name, word = groups.get("step", "").strip(), groups.get("word", "")
        if part is None or (name == "result" and (rounding or word not in FLOAT_ROUNDINGS)):
            raise UsageError(
                f"{text[at:]!r} cannot be parsed as a placement of roundings.",
                hint=f"Write STEP=WORD or result=WORD, separated by ';'; words: {', '.join(FLOAT_ROUNDINGS)}.",
            )
        if name == "result":
            rounding = word
        elif name:
            edges.append((name, word))
        elif groups["end"] == "flush":
            flush = True
        else:
            overflow = groups["end"]
        at = part.end()
    if not rounding:
        raise UsageError(f"{text!r} does not state how results are rounded.", hint="Add result=even, for example.")
    return Placement(rounding=rounding, edges=tuple(edges), flush=flush, overflow=overflow)


_INDISTINGUISHABLE_ROUNDINGS = ({"even", "away"}, {"zero", "down"}, {"zero", "up"}, {"out", "up"}, {"out", "down"})
"""Sets of roundings that differ only at ties, or only for results of one sign."""
_NEAREST = "rounded to nearest"


def placement_clauses(placement: Placement, short: str, *, ties: bool = True) -> tuple[str, ...]:
    """Describe a placement in words: one clause for the result, and one for each unusual edge.

    Args:
        placement: The placement.
        short: Name of the node's format.
        ties: Whether the rounding of ties is known.
    """
    words = FLOAT_ROUNDINGS[placement.rounding].words
    clauses = [f"results {words if ties or not words.startswith(_NEAREST) else _NEAREST} to {short}"]
    for edge, word in placement.edges:
        if word == UNROUNDED:
            clauses.append(f"{edge} read before its rounding")
        else:
            how = FLOAT_ROUNDINGS[word].words
            clauses.append(f"{edge} {_NEAREST if how.startswith(_NEAREST) else how} as well")
    if placement.flush:
        clauses.append("subnormal results become 0")
    if placement.overflow != "inf":
        clauses.append(OVERFLOWS[placement.overflow])
    return tuple(clauses)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Observation:
    """The expression and the recorded result of a node in one sample and step.

    Args:
        build: Builds the expression of the node's result for the rows with the given indices, or for all rows if None.
        recorded: Its recorded result: (rows, length) if rows are independent, else of any shape.
        by_rows: Whether rows are independent.
    """

    build: Callable[[np.ndarray | None], Step]
    recorded: np.ndarray
    by_rows: bool = True
    _all_rows: list[_RowBlock] = field(default_factory=list)
    """Cache of the block with all rows, because a product of tensors is costly. Empty until it is needed."""

    def free_cache(self) -> None:
        """Free the cached expression of all rows."""
        self._all_rows.clear()

    def blocks(self) -> Iterator[np.ndarray | None]:
        """Yield the indices of the rows in each block, or None for a single block with all rows."""
        if not self.by_rows or self.recorded.size <= _BLOCK:
            yield None
            return
        rows, length = self.recorded.shape
        step = max(_BLOCK // length, 1)
        for start in range(0, rows, step):
            yield np.arange(start, min(start + step, rows))

    def block_of_rows(self, rows: np.ndarray | None, short: ShortFormat) -> _RowBlock:
        """Return the expression of some rows, or of all rows if None, with their recorded result."""
        if rows is not None:
            return _RowBlock(self.build(rows), self.recorded[rows].astype(np.float64), short)
        if not self._all_rows:
            self._all_rows.append(_RowBlock(self.build(None), self.recorded.astype(np.float64), short))
        return self._all_rows[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementFinding:
    """The placements that reproduce a node, and the evidence for them.

    Args:
        short: Name of the node's format.
        fitting: The placements that reproduce all elements, simplest first.
        tried: Number of placements that were tried.
        elements: Number of elements.
        witnesses: Number of elements that the runner-up gets wrong.
        runner_up: The best placement that does not reproduce all elements, or None.
        decided: Whether the elements rule out that the simplest fitting placement fits by chance, or with another
            rounding of an unusual edge. For example, the factor of a row has only one value per row.
    """

    short: str
    fitting: tuple[Placement, ...] = ()
    tried: int = 0
    elements: int = 0
    witnesses: int = 0
    runner_up: Placement | None = None
    decided: bool = True

    @property
    def named(self) -> Placement | None:
        """The simplest fitting placement if the evidence suffices, or None.

        It does if some placement was refuted, and all equally simple ones round the result the same way, or in ways
        that results of one sign, or without ties, cannot distinguish.
        """
        if not self.fitting or self.runner_up is None or not self.decided:
            return None
        return self.fitting[0] if self._is_unanimous or self._roundings in _INDISTINGUISHABLE_ROUNDINGS else None

    @property
    def _roundings(self) -> set[str]:
        """The roundings of the result in the fitting placements with the fewest unusual edges."""
        fewest = min((len(placement.edges) for placement in self.fitting), default=0)
        return {placement.rounding for placement in self.fitting if len(placement.edges) == fewest}

    @property
    def _is_unanimous(self) -> bool:
        return len(self._roundings) == 1

    @property
    def clauses(self) -> tuple[str, ...]:
        """The named placement in words. Empty if none is named."""
        return () if self.named is None else placement_clauses(self.named, self.short, ties=self._is_unanimous)

    @property
    def words(self) -> str:
        """The named placement as one text."""
        return ", ".join(self.clauses)


def search_placements(observations: Sequence[Observation], short: ShortFormat) -> PlacementFinding:
    """Find the placements that reproduce a node in all samples.

    Args:
        observations: The node's samples and steps; at least one.
        short: The format of its result.

    Raises:
        KernelError: Its expression cannot be computed.
    """
    ends = _ends_of_range(_all_blocks(observations, short))
    some = observations[0].block_of_rows(_few_rows(observations[0]), short)
    counts = [(some.count_wrong(placement), placement) for placement in some.placements(**ends)]
    fitting = [placement for wrong, placement in counts if not wrong]
    refuted = min(((wrong, placement) for wrong, placement in counts if wrong), key=itemgetter(0), default=None)
    watched = [] if refuted is None else [refuted[1]]
    misses = dict.fromkeys((*fitting, *watched), 0)
    for part in _all_blocks(observations, short) if fitting else ():
        for placement in (*fitting, *watched):
            misses[placement] += part.count_wrong(placement)
        fitting = [placement for placement in fitting if not misses[placement]]
        if not fitting:
            break
    refuted_placements = [placement for placement, wrong in misses.items() if wrong]
    runner_up = min(refuted_placements, key=misses.__getitem__, default=None)
    elements = sum(observation.recorded.size for observation in observations)
    return PlacementFinding(
        short=short.name,
        fitting=tuple(fitting),
        tried=len(counts),
        elements=elements,
        witnesses=0 if runner_up is None else misses[runner_up],
        runner_up=runner_up,
        decided=bool(fitting) and _is_decided(fitting, some, observations, short),
    )


def _is_decided(
    fitting: Sequence[Placement], some: _RowBlock, observations: Sequence[Observation], short: ShortFormat
) -> bool:
    """Return whether the simplest fitting placement is neither chance nor confused with roundings that are not tried.

    Args:
        fitting: The placements that reproduce all elements, simplest first.
        some: The block that all placements were tried on.
        observations: The node's samples and steps.
        short: The format of its result.
    """
    elements = sum(observation.recorded.size for observation in observations)
    shares = some.values_per_element()
    counts = [shares[edge] * elements for edge, _ in fitting[0].edges]
    fewest = min(counts, default=elements)
    if fewest >= max(PLACEMENT_MIN_EVIDENCE, PLACEMENT_MIN_VALUES * len(counts)):
        return True
    deciding = some.share_deciding(fitting[0]) * elements
    evidence = min((count * math.log2(1 + deciding / count) for count in counts), default=0)
    if fewest < PLACEMENT_MIN_VALUES * len(counts) or evidence < PLACEMENT_MIN_EVIDENCE:
        return False
    rivals = (rival for rival in _rivals(fitting, edges_of(some.step)) if not some.count_wrong(rival))
    return all(any(part.count_wrong(rival) for part in _all_blocks(observations, short)) for rival in rivals)


def _rivals(fitting: Sequence[Placement], words: Mapping[str, tuple[str, ...]]) -> Iterator[Placement]:
    """Yield placements as simple as the simplest fitting one, with roundings that the search does not try.

    A bias of one step may make the next one round to nearest where a kernel rounds up, in almost all rows.

    Args:
        fitting: The placements that reproduce all elements, simplest first.
        words: The words of each edge that were tried, the usual one first.
    """
    more_words = {edge: (*tried, *(_MORE_WORDS if "even" in tried else ())) for edge, tried in words.items()}
    for edges in islice(_enumerate_edges(more_words, len(fitting[0].edges)), PLACEMENTS_TRIED):
        is_tried = all(word in words[edge] for edge, word in edges)
        is_equivalent = any(_are_equivalent(edges, placement.edges) for placement in fitting)
        if not is_tried and not is_equivalent:
            yield replace(fitting[0], edges=edges)


_MORE_WORDS = ("up", "out", "down")


def _are_equivalent(edges: Edges, others: Edges) -> bool:
    """Return whether edges are rounded in the same way, if their values are above 0."""
    return len(edges) == len(others) and all(
        edge == other and (word == other_word or {word, other_word} == {"zero", "down"})
        for (edge, word), (other, other_word) in zip(edges, others, strict=True)
    )


def _all_blocks(observations: Sequence[Observation], short: ShortFormat) -> Iterator[_RowBlock]:
    """Yield all observations, one block of rows at a time."""
    for number, observation in enumerate(observations):
        for rows in observation.blocks():
            checkpoint()
            yield observation.block_of_rows(rows, short)
        if number:  # only the first observation stays cached, so memory does not grow with the number of samples
            observation.free_cache()


def _ends_of_range(parts: Iterator[_RowBlock]) -> Mapping[str, Any]:
    """Return how a node treats results beyond its format's range, as fields of `Placement`."""
    small, large = (
        np.concatenate(ends) for ends in zip(*(part.recorded_beyond_range() for part in parts), strict=True)
    )
    flush = bool(small.size) and not np.any(small)
    if not large.size or np.isinf(large).any():
        return {"flush": flush}
    return {"flush": flush, "overflow": "nan" if np.isnan(large).all() else "sat"}


def _few_rows(observation: Observation) -> np.ndarray | None:
    """Return the indices of evenly spread rows to try all placements on, or None for all rows."""
    if not observation.by_rows or observation.recorded.size <= PLACEMENT_ROWS_ELEMENTS:
        return None
    rows, length = observation.recorded.shape
    count = max(PLACEMENT_ROWS_ELEMENTS // length, 1)
    return None if count >= rows else np.unique(np.linspace(0, rows - 1, count).astype(np.int64))


def _enumerate_placements(words: Mapping[str, tuple[str, ...]], **ends: Any) -> Iterator[Placement]:
    """Yield placements up to a limit, those with the fewest unusual edges first.

    Args:
        words: The possible words of each edge, the usual one first.
        ends: Fields that all placements share.
    """
    for edges in islice(_enumerate_edges(words, len(words)), max(PLACEMENTS_TRIED // len(FLOAT_ROUNDINGS), 1)):
        for rounding in FLOAT_ROUNDINGS:
            yield Placement(rounding=rounding, edges=edges, **ends)


def _enumerate_edges(words: Mapping[str, tuple[str, ...]], most: int) -> Iterator[Edges]:
    """Yield choices of up to a number of unusual edges, with a word for each; those with the fewest edges first."""
    return (
        tuple(zip(edges, choice, strict=True))
        for count in range(most + 1)
        for edges in combinations(words, count)
        for choice in product(*(words[edge][1:] for edge in edges))
    )


@dataclass(slots=True)
class _RowBlock:
    """The expression of a block of rows, with their recorded result."""

    step: Step
    recorded: np.ndarray
    short: ShortFormat
    evaluation: Evaluation = field(init=False)
    usual: dict[str, str] = field(init=False)
    last: tuple[tuple[tuple[str, str], ...], Interval] | None = None

    def __post_init__(self) -> None:
        self.evaluation = Evaluation(self.step, self.short)
        self.usual = {edge: words[0] for edge, words in edges_of(self.step).items()}

    def placements(self, **ends: Any) -> Iterator[Placement]:
        """Yield the placements to try, see `_enumerate_placements`."""
        return _enumerate_placements(edges_of(self.step), **ends)

    def recorded_beyond_range(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the recorded values of results below the smallest normal number, and of those beyond the largest."""
        with np.errstate(all="ignore"):
            size = np.broadcast_to(np.abs(self.evaluation.evaluate(self.usual).low), self.recorded.shape)
        is_small = (size < self.short.normal * (1 - self.short.unit)) & (size > self.short.subnormal)
        return self.recorded[is_small], self.recorded[(size >= self.short.beyond) & np.isfinite(size)]

    def values_per_element(self) -> Mapping[str, float]:
        """Return the number of values of each edge, divided by the number of elements of the result."""
        sizes = self.evaluation.sizes(self.usual)
        return {edge: size / max(self.recorded.size, 1) for edge, size in sizes.items()}

    def count_wrong(self, placement: Placement) -> int:
        """Return the number of elements that a placement does not reproduce."""
        low, high = self._possible_results(placement)
        inside = (low <= self.recorded) & (self.recorded <= high)
        inside |= np.isnan(self.recorded) & (np.isnan(low) | np.isnan(high))
        return int(np.count_nonzero(~inside))

    def share_deciding(self, placement: Placement) -> float:
        """Return the share of elements for which a placement leaves a single result."""
        low, high = self._possible_results(placement)
        return float(np.mean(low == high))

    def _possible_results(self, placement: Placement) -> tuple[np.ndarray, np.ndarray]:
        """Return the least and the largest number that each element's interval rounds to."""
        if self.last is None or self.last[0] != placement.edges:
            with np.errstate(all="ignore"):
                interval = self.evaluation.evaluate(self.usual | dict(placement.edges))
            if np.broadcast_shapes(interval.low.shape, self.recorded.shape) != self.recorded.shape:
                raise KernelError(f"the replay has shape {interval.low.shape}, the result {self.recorded.shape}")
            self.last = placement.edges, interval
        rounding = partial(
            round_float,
            short=self.short,
            rounding=placement.rounding,
            flush=placement.flush,
            overflow=placement.overflow,
        )
        low, high = self.last[1].mapped(rounding).ends
        return low, high
