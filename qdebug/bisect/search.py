"""Find where along an ordered row of candidates the result changes, by halving: `find_changes`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import pairwise

__all__ = ["find_changes"]

Classify = Callable[[int], Hashable | None]
"""Returns the class of the candidate at a position; None if it cannot be tried."""


def find_changes(anchors: Sequence[int], classify: Classify, *, every: bool = False) -> list[tuple[int, int]]:
    """Return the pairs of neighbours between which the class changes.

    Candidates between two anchors of the same class are assumed to be of that class. A candidate of a third class
    splits its range in two, and both are searched. Candidates that cannot be tried are skipped, so the two positions
    of a pair need not be adjacent.

    Args:
        anchors: Positions between which to search, in ascending order. Their classes are not None.
        classify: Returns the class of a candidate. It is called several times for the same position.
        every: Whether to try all candidates.
    """
    if every:
        tried_positions = [
            position for position in range(anchors[0], anchors[-1] + 1) if classify(position) is not None
        ]
        return [pair for pair in pairwise(tried_positions) if classify(pair[0]) != classify(pair[1])]
    return [pair for low, high in pairwise(anchors) for pair in _changes_between(low, high, classify)]


def _changes_between(low: int, high: int, classify: Classify) -> Iterator[tuple[int, int]]:
    if classify(low) == classify(high):
        return
    for middle in sorted(range(low + 1, high), key=lambda position: abs(2 * position - low - high)):
        if classify(middle) is not None:
            yield from _changes_between(low, middle, classify)
            yield from _changes_between(middle, high, classify)
            return
    yield low, high
