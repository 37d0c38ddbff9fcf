"""Finds the reference tensor that holds the values of a backend tensor, where the graphs lead to none.

The last resort, and only where a harness said its part of a graph in words of its own, or nothing of it: what qdebug
recorded itself is matched by what its nodes do. Values tell less than a graph: behind an error that is large there is
no tensor alike any more, and then none is taken. A name that both sides have, with one shape, tells more than values
that are merely near.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qdebug.compare.align.clamps import settled
from qdebug.compare.align.context import Context, paired
from qdebug.compare.align.indexed_recording import same_kind
from qdebug.compare.align.names import is_claimed, namesake, spellings
from qdebug.compare.align.nearness import distance, in_turn, stage
from qdebug.compare.align.pairs import Match, Pair
from qdebug.compare.align.undeclared_quantization import is_loose
from qdebug.model import Node
from qdebug.model.operators import is_unknown
from qdebug.model.thresholds.alignment import (
    VALUE_MATCH_MAX_MOMENT_DIFFERENCE,
    VALUE_MATCH_MAX_REL_ERROR,
    VALUE_MATCH_MIN_ELEMENTS,
    VALUE_MATCH_MIN_RUNNER_UP_RATIO,
    VALUE_MATCH_OTHER_PARTNER_RATIO,
    VALUE_MATCH_SURE_REL_ERROR,
    VALUES_READ_MAX_ELEMENTS,
)

__all__ = ["name_or_values"]

Sketch = tuple[float, float]
"""What is the same in every order of a tensor's elements: its mean and the root of its mean square."""


def name_or_values(context: Context, tensor: str, node: Node) -> Pair | None:
    """Pair a tensor by a name that no graph bears out, or with the reference tensor whose values are its own.

    The name counts only where a harness says the node in words of its own, and the graphs lead nowhere else. It is
    wrong where the values are plainly those of another tensor.
    """
    named = _left_name(context, tensor, node)
    pair = _by_values(context, tensor, named)
    if pair is not None or named is None:
        return pair
    reason = "same name and shape, and nothing leads to another tensor"
    return settled(context, paired(tensor, named, Match.EXACT, reason))


def _left_name(context: Context, tensor: str, node: Node) -> str | None:
    """Return the reference tensor of a tensor's name and shape that no other tensor has a claim to."""
    if not (is_loose(node) or is_unknown(node)) or tensor in context.withdrawn or tensor in context.undecided:
        return None
    named = namesake(context, tensor)
    if named is None or is_claimed(context, named, tensor):
        return None
    return named if same_kind(context.ref, named, context.be, tensor) else None


def _by_values(context: Context, tensor: str, named: str | None) -> Pair | None:
    """Pair a tensor with the reference tensor whose values are its own, if one stands out.

    Args:
        context: What is known.
        tensor: The backend tensor.
        named: The reference tensor of its name; None if there is none to speak of.
    """
    ref, be = context.ref, context.be
    if not context.loose:
        return None
    context.undecided.discard(tensor)  # the values tell: not one of several nodes that fit is the one
    size = be.size(tensor) if be.has(tensor) else 0
    candidates = _of_size(context, size) if VALUE_MATCH_MIN_ELEMENTS <= size <= VALUES_READ_MAX_ELEMENTS else []
    free = [name for name in candidates if not _is_named(context, name) and not is_claimed(context, name, tensor)]
    if not free:
        return None
    ours = be.values(tensor)
    found = _ranked(context, free, ours)
    if not found:
        return None
    error, _, best = found[0]
    if error > VALUE_MATCH_SURE_REL_ERROR:
        others = _ranked(context, [name for name in candidates if name not in free], ours)
        if others and others[0][0] < VALUE_MATCH_OTHER_PARTNER_RATIO * error:
            return None  # it has the values of another's partner
    rivals = [name for other, _, name in found[1:] if other < VALUE_MATCH_MIN_RUNNER_UP_RATIO * error]
    nearest = ref.values(best)
    if any(distance(nearest, ref.values(name)) > error for name in rivals):
        return None
    first = min((best, *rivals), key=free.index)
    if stage(context, tensor, first) != first:
        return None
    reason = f"no name and no node leads to it; its values are nearest to those of {first!r}"
    if named is not None:
        if not _disproved(context, named, first, ours, error):
            return None
        reason = f"its values are those of {first!r}, and not at all those of its namesake"
    return settled(context, paired(tensor, first, Match.DATA, reason))


def _is_named(context: Context, reference: str) -> bool:
    """Tell whether the backend has a tensor of a reference tensor's name."""
    return any(name in context.be.graph.tensors for name in spellings(reference))


def _disproved(context: Context, named: str, nearest: str, ours: np.ndarray, error: float) -> bool:
    """Tell whether values prove a name wrong: another tensor is far nearer, and not one that the named is made of."""
    ref = context.ref
    if not ref.has(named) or nearest in in_turn(ref, named) or named in in_turn(ref, nearest):
        return False
    return error < VALUE_MATCH_OTHER_PARTNER_RATIO * distance(ref.values(named), ours)


def _ranked(context: Context, names: Sequence[str], ours: np.ndarray) -> list[tuple[float, int, str]]:
    """Return the reference tensors that are near some values, with their distance and place, the nearest first."""
    found: list[tuple[float, int, str]] = []
    own = _sketched(ours)
    for place, name in enumerate(names if own is not None else ()):
        if name not in context.sketches:
            context.sketches[name] = _sketched(context.ref.values(name))
        if _like(own, context.sketches[name]):
            found.append((distance(context.ref.values(name), ours), place, name))
    return [entry for entry in sorted(found) if entry[0] < VALUE_MATCH_MAX_REL_ERROR]


def _sketched(values: np.ndarray) -> Sketch | None:
    """Sketch a tensor; None where its values tell nothing: they are all one, or not finite."""
    if not np.isfinite(values).all() or np.ptp(values) == 0:
        return None
    return float(np.mean(values)), float(np.sqrt(np.mean(np.square(values))))


def _like(one: Sketch | None, other: Sketch | None) -> bool:
    """Tell whether two tensors can be alike."""
    if one is None or other is None or one[1] <= 0:
        return False
    return max(abs(one[1] - other[1]), abs(one[0] - other[0])) <= VALUE_MATCH_MAX_MOMENT_DIFFERENCE * other[1]


def _of_size(context: Context, size: int) -> list[str]:
    """Return the recorded reference tensors of as many elements, in the order that they were recorded in."""
    ref = context.ref
    if not context.by_size:
        for name in ref.recording.names:
            if name in ref.recorded and ref.has(name) and not ref.of_shape(name):
                context.by_size.setdefault(ref.size(name), []).append(name)
    return context.by_size.get(size, [])
