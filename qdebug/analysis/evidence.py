"""What a node that nothing reproduces was recorded with, against its best replay, over all samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from qdebug.analysis.residual import Residual, residual
from qdebug.analysis.search import Finding, channels_first
from qdebug.analysis.wrong_places import Layout
from qdebug.analysis.wrong_values import Evidence
from qdebug.errors import KernelError
from qdebug.replay.columns import Columns
from qdebug.replay.evaluate import accumulate, finish
from qdebug.replay.unit import Target, Unit
from qdebug.replay.variant import Sums, Variant

__all__ = ["distance_to_ties", "layout_of", "residual_of"]

_FINE = 1 << 12
"""Steps that one code is divided into, to see how close to a tie it was rounded."""
_MOST = 1 << 24
"""Elements that are looked at; more samples than that are left out of the pattern."""

_Part = tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]
"""Expected and recorded codes of one sample, distances from ties, magnitudes of the summed products."""


def residual_of(finding: Finding) -> Residual | None:
    """Find the pattern of what the best variant leaves of a node; None if there is nothing to compare.

    Args:
        finding: The search for a node that no variant reproduces.
    """
    if finding.best is None:
        return None
    parts: list[_Part] = []
    seen = 0
    for place in finding.source.places:
        unit = finding.source.unit(place)
        if unit.out.dtype.kind not in "iu":
            return None
        columns = accumulate(unit, finding.best.sums)
        expected = finish(unit, columns, finding.best).reshape(columns.shape)
        recorded = channels_first(finding.source.codes(place), unit)
        if not parts or expected.shape == parts[0][0].shape:
            parts.append((expected, recorded, distance_to_ties(unit, columns, finding.best), magnitudes(unit)))
        seen += expected.size
        if seen > _MOST:
            break
    shape = parts[0][0].shape
    distances = [distance for _, _, distance, _ in parts if distance is not None]
    sums = [magnitude for _, _, _, magnitude in parts if magnitude is not None]
    found = residual(
        Evidence(
            expected=_together([expected for expected, _, _, _ in parts]),
            recorded=_together([recorded for _, recorded, _, _ in parts]),
            layout=layout_of(unit, max(len(shape), 2) - 1),
            zero_point=int(unit.out.zero_point.reshape(-1)[0]),
            span=unit.out.limits,
            distance=_together(distances) if len(distances) == len(parts) else None,
            magnitude=_together(sums) if len(sums) == len(parts) else None,
        )
    )
    return None if found is None else _in_own_order(found, unit, shape)


def _together(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Put the arrays of all samples together; the batch within a recorded sample counts as more samples."""
    if arrays[0].ndim > 1:
        return np.concatenate([array.reshape(-1, *array.shape[1:]) for array in arrays])
    return np.stack(arrays)


def layout_of(unit: Unit, axes: int) -> Layout:
    """Say which axes of an output mean what, its first axis left aside, channels first.

    Args:
        unit: What is computed.
        axes: Number of the other axes.
    """
    if unit.kind == "linear" or (axes == 2 and unit.kind != "conv"):
        return Layout(channel=axes - 1, spatial=tuple(range(axes - 1)))
    if axes == 0:
        return Layout()
    return Layout(channel=0, spatial=tuple(range(1, axes)))


def distance_to_ties(unit: Unit, columns: Columns, variant: Variant) -> np.ndarray | None:
    """Give each element's distance from the nearest tie, in codes, at most a half; None if it cannot be told.

    The variant computes the same with an output scale so fine that its codes show what was rounded away.

    Args:
        unit: What is computed.
        columns: Its columns, all of them.
        variant: A variant with the columns' sums.
    """
    if unit.out.dtype.kind not in "iu":
        return None
    fine = Target(dtype=np.dtype(np.int32), scale=unit.out.scale / _FINE, zero_point=np.zeros((), np.int32))
    if variant.multiplier.number == "f32":
        variant = replace(variant, multiplier=replace(variant.multiplier, number="f64"))
    try:
        codes = finish(replace(unit, out=fine), columns, variant).astype(np.int64)
    except KernelError:
        return None
    return np.asarray(np.abs((codes & (_FINE - 1)) - _FINE // 2) / _FINE).reshape(columns.shape)


def magnitudes(unit: Unit) -> np.ndarray | None:
    """Give for each element the sum of its products' magnitudes; None if nothing is summed."""
    if unit.kind not in ("conv", "linear"):
        return None
    zero = np.zeros((), np.int16)
    operands = tuple(replace(operand, codes=np.abs(operand.centred), zero_point=zero) for operand in unit.operands)
    try:
        columns = accumulate(replace(unit, operands=operands, bias=None), Sums())
    except KernelError:
        return None
    return columns.values[0].reshape(columns.shape)


def _in_own_order(found: Residual, unit: Unit, shape: tuple[int, ...]) -> Residual:
    """Give the indices of wrong elements in the recorded tensor's own order, the sample's number first."""
    if len(shape) < 2:
        return found
    turned = []
    for sample, *rest in found.elements:
        place, within = divmod(sample, shape[0])
        order = [*rest[1:], rest[0]] if unit.channels_last else rest
        turned.append((place, within, *order))
    return replace(found, elements=tuple(turned))
