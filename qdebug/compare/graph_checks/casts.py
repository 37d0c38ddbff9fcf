"""Counts the numbers that a cast to integers changes: fractions, and numbers outside the type's range."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qdebug.model import Node, Recording

__all__ = ["ChangedByCast", "changed_by_cast"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedByCast:
    """How many elements a cast to integers changes.

    Args:
        dtype: The integer type.
        count: Number of changed elements.
        total: Total number of elements.
        before: The first changed element, or 0 if there is none.
        after: Its value after the cast.
    """

    dtype: str
    count: int
    total: int
    before: float = 0.0
    after: float = 0.0

    @property
    def sentence(self) -> str:
        """What the cast changes, as a clause without its subject."""
        first = f"{self.before:.6g} to {self.after:.6g}"
        return f"cast to {self.dtype} changes {self.count} of {self.total} elements, the first from {first}"


def changed_by_cast(recording: Recording, node: Node) -> ChangedByCast | None:
    """Count the elements that a recorded cast changes, in all samples and steps.

    Args:
        recording: The run.
        node: One of its nodes, which casts its first input.

    Returns:
        The count, or None if the cast is not to integers, or its input or result was not recorded or holds codes.
    """
    if not node.inputs[:1] or not node.inputs[0]:
        return None
    source, target = node.inputs[0], node.outputs[0]
    if any(recording.graph.tensors[name].quant is not None for name in (source, target)):
        return None
    dtype, total, first_changes = "", 0, list[tuple[float, float]]()
    count = 0
    for place in recording.places(target):
        if not (recording.has(target, *place) and recording.has(source, *place)):
            continue
        source_values, target_values = recording.load(source, *place), recording.load(target, *place)
        if (
            target_values.dtype.kind not in "iu"
            or source_values.dtype.kind not in "iuf"
            or source_values.shape != target_values.shape
        ):
            return None
        # A cast changes an element if the integer cannot hold it: a fraction, a number out of range, or NaN.
        is_changed = source_values != target_values
        dtype, total, count = (
            target_values.dtype.name,
            total + target_values.size,
            count + int(np.count_nonzero(is_changed)),
        )
        if not first_changes and is_changed.any():
            first_changes.append((float(source_values[is_changed][0]), float(target_values[is_changed][0])))
    if not dtype:
        return None
    first = first_changes[0] if first_changes else (0.0, 0.0)
    return ChangedByCast(dtype=dtype, count=count, total=total, before=first[0], after=first[1])
