"""Counts the tensors that several backends get wrong in the same way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qdebug.compare.align.pairs import Alignment, Pair
from qdebug.compare.measure.pair_values import PairReader
from qdebug.errors import UsageError
from qdebug.model import Recording
from qdebug.numerics.agreement import Agreement, count_agreement

__all__ = ["agreements"]


def agreements(reference: Recording, backends: Sequence[tuple[Recording, Alignment]]) -> Mapping[str, Agreement]:
    """Count, for each reference tensor that several backends recorded, the elements that they all get wrong equally.

    Args:
        reference: The reference run.
        backends: Each backend run and its alignment with the reference.

    Returns:
        By reference tensor, in the order of the first backend that recorded it. If a backend recorded the same values
            before and after quantization, the later tensor counts. A tensor whose values cannot be compared is left
            out, with the reason in each comparison.
    """
    pairs: dict[str, list[tuple[Recording, Pair]]] = {}
    for recording, alignment in backends:
        for pair in {pair.reference: pair for pair in alignment.pairs}.values():
            pairs.setdefault(pair.reference, []).append((recording, pair))
    result: dict[str, Agreement] = {}
    for tensor, holders in pairs.items():
        agreement = _agreement(reference, holders) if len(holders) > 1 else None
        if agreement is not None:
            result[tensor] = agreement
    return result


def _agreement(reference: Recording, recorded_pairs: Sequence[tuple[Recording, Pair]]) -> Agreement | None:
    readers = [PairReader(reference, recording, pair) for recording, pair in recorded_pairs]
    shared = set.intersection(*(set(reader.places()) for reader in readers))
    total = Agreement()
    try:
        for sample, step in sorted(shared):
            total += count_agreement([reader.blocks(sample, step) for reader in readers])
    except UsageError:
        return None
    return total if shared else None
