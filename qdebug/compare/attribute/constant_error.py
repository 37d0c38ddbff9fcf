"""By how much a backend's constants really are off the reference's, where the two can be held against each other.

Half a step is what rounding to codes may change. Where the reference's weight is at hand, its error is known: none at
all if the reference was rounded alike. A bound made of what is known leaves less room for what was not rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from qdebug.compare.align.value_classes import Run
from qdebug.compare.attribute.rounding import real_values
from qdebug.compare.attribute.segments import Segment
from qdebug.model import Node, operators
from qdebug.model.thresholds.rounding import FLOAT32_STORED_REL_ERROR, FLOAT32_UNIT_ROUNDOFF, LSB_SLACK

__all__ = ["hair", "known_errors", "scales_by_constants", "shared_constants"]


def hair(real: np.ndarray) -> np.ndarray:
    """Give the error of each element of a constant that says nothing of how the constant was made.

    That of keeping it in float32, of the element and of the largest one: a channel that training has left at nothing,
    of 1e-35 beside others of 1, has codes that are all 0 and a scale made up for it, of 1 or of what its bias needs.
    """
    size = np.abs(real)
    largest = np.max(size, where=np.isfinite(size), initial=0)
    return np.asarray(FLOAT32_STORED_REL_ERROR * size + FLOAT32_UNIT_ROUNDOFF * largest)


def known_errors(
    sides: tuple[Run, Run],
    nodes: tuple[Node, Node],
    others: Sequence[Node],
    half_steps: Callable[[str], np.ndarray],
) -> Mapping[str, np.ndarray]:
    """Give the error of each element of the weight of a backend node, if all of it lies within half a step.

    Args:
        sides: The reference run and the backend run.
        nodes: The reference's product, and the backend node's form on real numbers.
        others: What else of the reference leads to the compared tensor.
        half_steps: Gives half a step of each element of a backend constant.

    Returns:
        By the name of the weight in the backend's form; empty where it is not known.
    """
    (ref, be), (theirs, ours) = sides, nodes
    names = [node.inputs[1] if len(node.inputs) > 1 else "" for node in (theirs, ours)]
    if scales_by_constants(ref, others):
        return {}
    for run, name in zip(sides, names, strict=True):
        if not name or not run.classes.folds(name) or not run.recording.has(name):
            return {}
    real, mine = (real_values(run.recording, name) for run, name in zip((ref, be), names, strict=True))
    if bool(ours.attrs.get("transB")) != bool(theirs.attrs.get("transB")) and real.ndim > 1:
        real = np.swapaxes(real, -1, -2)
    if mine.shape != real.shape:
        return {}
    small = hair(real)
    error = np.abs(mine.astype(np.float64) - real) + FLOAT32_STORED_REL_ERROR * np.abs(real)
    half = half_steps(names[1])
    if np.any(error > (1 + LSB_SLACK) * half + 2 * small):
        return {}
    return {names[1]: np.minimum(error, half).astype(half.dtype)}


def scales_by_constants(run: Run, nodes: Sequence[Node]) -> bool:
    """Tell whether constants of nodes may be folded into the weight of the product that they stand beside."""
    scaling = [node for node in nodes if not operators.plain(node).leaves_scale]
    return any(run.classes.folds(name) for node in scaling for name in node.inputs if name)


def shared_constants(sides: tuple[Run, Run], segment: Segment) -> frozenset[str]:
    """Give the constants of a segment's reference nodes that its backend nodes use bit for bit, turned or not.

    Whatever such a constant was rounded from, it was rounded once and for both.
    """
    real, mine = (_constants(run, nodes) for run, nodes in zip(sides, (segment.nodes, segment.own), strict=True))
    return frozenset(name for name, array in real.items() if any(_same(array, other) for other in mine.values()))


def _constants(run: Run, nodes: Sequence[Node]) -> dict[str, np.ndarray]:
    names = {name for node in nodes for name in node.inputs if name and run.classes.folds(name)}
    arrays = {name: real_values(run.recording, name) for name in names if run.recording.has(name)}
    return {name: array for name, array in arrays.items() if array.dtype.kind == "f"}


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    turned = one.ndim == 2 and np.array_equal(one.T, other)
    return turned or np.array_equal(one, other)
