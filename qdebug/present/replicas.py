"""Differences of replicated tensors between ranks, in words."""

from __future__ import annotations

from collections.abc import Sequence

from qdebug.present import numbers
from qdebug.present.text import safe_text
from qdebug.recording.reading.shards import ReplicaDifference

__all__ = ["replica_lines"]

_MAX_LINES = 20


def replica_lines(differences: Sequence[ReplicaDifference]) -> list[str]:
    """Return lines about replicated tensors that differ between ranks, the first tensors first."""
    tensor_count = len({difference.tensor for difference in differences})
    lines = [f"FAIL: {numbers.counted(tensor_count, 'replicated tensor')} differ between the ranks"]
    if tensor_count == 1:
        lines = ["FAIL: 1 replicated tensor differs between the ranks"]
    lines += [f"  {_difference_sentence(difference)}" for difference in differences[:_MAX_LINES]]
    if len(differences) > _MAX_LINES:
        lines.append(f"  and {len(differences) - _MAX_LINES} more")
    return [*lines, "if a rank has only a slice of it: give its axis with --axis 'NAME=AXIS,...'"]


def _difference_sentence(difference: ReplicaDifference) -> str:
    stats = difference.stats
    amount = f"max_abs {numbers.metric('max_abs', stats.max_abs)}, rel_l2 {numbers.metric('rel_l2', stats.rel_l2)}"
    elements = f"{numbers.grouped(stats.mismatches)} of {numbers.grouped(stats.count)} elements"
    if stats.nonfinite:
        elements += f", {numbers.grouped(stats.nonfinite)} of them not finite"
    if not stats.count:
        amount, elements = "the hashes differ", "only part of the values was kept"
    sample, step = difference.places[0]
    place_text = f"first at sample {sample}, step {step}"
    names = f"{safe_text(str(difference.path))} differs from {safe_text(str(difference.reference))}"
    return f"rank {difference.rank}: {safe_text(difference.tensor)} of {names}: {amount}, {elements}, {place_text}"
