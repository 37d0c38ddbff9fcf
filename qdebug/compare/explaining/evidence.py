"""What a node that nothing reproduces was recorded with, against the most credible replay, over all samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from qdebug.compare.explaining.neighbours import channels_last
from qdebug.compare.explaining.search import Finding
from qdebug.compare.explaining.suspects import Suspect, suspects, turned_sign
from qdebug.compare.explaining.trials import channels_first
from qdebug.compare.patterns.residual import Residual, residual
from qdebug.compare.patterns.wrong_evidence import Evidence, stretches
from qdebug.compare.patterns.wrong_places import Layout
from qdebug.errors import KernelError, UsageError
from qdebug.model.thresholds.patterns import PATTERN_MAX_ELEMENTS, TIE_DISTANCE_PARTS
from qdebug.replay.candidates import candidates
from qdebug.replay.columns import Columns
from qdebug.replay.evaluate import accumulate, finish
from qdebug.replay.given import GIVEN
from qdebug.replay.unit import Target, Unit
from qdebug.replay.variant import Sums, Variant

__all__ = ["distance_to_ties", "layout_of", "residual_of"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Part:
    """One sample of a node, channels first."""

    unit: Unit
    expected: np.ndarray
    recorded: np.ndarray
    distance: np.ndarray | None
    magnitude: np.ndarray | None
    sums: np.ndarray | None


def residual_of(finding: Finding, variant: Variant) -> Residual | None:
    """Find the pattern of what a variant leaves of a node; None if there is nothing to compare.

    Args:
        finding: The search for a node that no variant reproduces.
        variant: What the node should be computed by: its siblings' arithmetic, or the closest. The simplest takes its
            place where a known mistake then reproduces every element.
    """
    left, culprit, unit = _left(finding, variant)
    simplest = None if unit is None else candidates(unit)[0]
    if culprit is None and left is not None and left.pattern != "one_code" and simplest not in (None, variant):
        # What comes closest may make up for a part of a mistake, which the simplest variant does not.
        other, culprit, _ = _left(finding, simplest)
        left = left if culprit is None else other
    if left is None or culprit is None:
        return left
    return replace(left, pattern=culprit.pattern, likely=f"{culprit.likely}: that reproduces every element")


def _left(finding: Finding, variant: Variant) -> tuple[Residual | None, Suspect | None, Unit | None]:
    """Give the pattern of what a variant leaves, the mistake that reproduces every element, and the first unit."""
    parts: list[_Part] = []
    for place in finding.source.places:
        part = _part(finding, place, variant)
        if part is None:
            return None, None, None
        if not parts or part.expected.shape == parts[0].expected.shape:
            parts.append(part)
        if sum(known.expected.size for known in parts) > PATTERN_MAX_ELEMENTS:
            break
    unit, shape = parts[0].unit, parts[0].expected.shape
    layout = layout_of(unit, max(len(shape), 2) - 1, last=_last(finding, unit))
    found = residual(
        Evidence(
            expected=_together([part.expected for part in parts]),
            recorded=_together([part.recorded for part in parts]),
            layout=replace(layout, first=_counted(shape, len(parts))),
            zero_point=int(unit.out.zero_point.reshape(-1)[0]),
            span=unit.out.limits,
            distance=_all_or_none([part.distance for part in parts]),
            magnitude=_all_or_none([part.magnitude for part in parts]),
            sums=_all_or_none([part.sums for part in parts]),
        )
    )
    if found is None:
        return None, None, unit
    found = replace(_in_own_order(found, unit, shape), against=str(variant))
    culprit = _culprit(parts, variant) if found.pattern != "one_code" else None  # many mistakes saturate throughout
    return found, culprit, unit


def _part(finding: Finding, place: tuple[int, int], variant: Variant) -> _Part | None:
    unit = finding.source.unit(place)
    if unit.out.dtype.kind not in "iu":
        return None
    columns = accumulate(unit, variant.sums)
    whole = columns.values[0] if unit.kind in ("conv", "linear") else None
    return _Part(
        unit=unit,
        expected=finish(unit, columns, variant).reshape(columns.shape),
        recorded=channels_first(finding.source.codes(place), unit),
        distance=distance_to_ties(unit, columns, variant),
        magnitude=_magnitudes(unit),
        sums=None if whole is None else np.abs(whole).reshape(columns.shape),
    )


def _culprit(parts: Sequence[_Part], variant: Variant) -> Suspect | None:
    """Find the mistake that gives every recorded code of every sample."""
    for suspect in suspects(parts[0].unit):
        if all(_gives(_same(suspect, part.unit), part.recorded, variant) for part in parts):
            return suspect
    return None


def _same(suspect: Suspect, unit: Unit) -> Suspect | None:
    return next((other for other in suspects(unit) if other.name == suspect.name), None)


def _gives(suspect: Suspect | None, recorded: np.ndarray, variant: Variant) -> bool:
    if suspect is None:
        return False
    unit, variant = suspect.unit, suspect.variant(variant)
    try:
        with np.errstate(all="ignore"):  # a mistaken scale may be beyond float32
            columns = accumulate(unit, variant.sums)
            if columns.shape != recorded.shape:
                return False
            codes = finish(unit, columns, variant).reshape(columns.shape)
    except (KernelError, UsageError):
        return False
    if not suspect.resigned:
        return np.array_equal(codes, recorded)
    if recorded.dtype.kind not in "iu" or recorded.dtype.itemsize != codes.dtype.itemsize:
        return False
    bits = np.ascontiguousarray(recorded).view(codes.dtype)
    return np.array_equal(codes, bits) or np.array_equal(codes, turned_sign(bits))


def _counted(shape: tuple[int, ...], parts: int) -> str:
    """Name what the samples and the entries of their batches come to, one after the other."""
    if len(shape) < 2 or shape[0] == 1:
        return "sample"
    return "batch row" if parts == 1 else "sample or batch row"


def _all_or_none(arrays: Sequence[np.ndarray | None]) -> np.ndarray | None:
    known = [array for array in arrays if array is not None]
    return _together(known) if len(known) == len(arrays) else None


def _together(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Put the arrays of all samples together; the batch within a recorded sample counts as more samples."""
    if arrays[0].ndim > 1:
        return np.concatenate([array.reshape(-1, *array.shape[1:]) for array in arrays])
    return np.stack(arrays)


def _last(finding: Finding, unit: Unit) -> bool:
    """Tell whether a node that has no layout of its own, as an addition, computes on channels that come last."""
    own = unit.kind in ("conv", "linear") or unit.kind.endswith("_pool")
    return not own and channels_last(finding.source.recording.graph, finding.source.node)


def layout_of(unit: Unit, axes: int, *, last: bool = False) -> Layout:
    """Say which axes of an output mean what, its first axis left aside, channels first.

    Args:
        unit: What is computed.
        axes: Number of the other axes.
        last: Whether the channels come last after all.
    """
    if unit.kind == "linear" or (axes == 2 and unit.kind != "conv"):
        return Layout(channel=axes - 1, spatial=tuple(range(axes - 1)))
    if axes == 0:
        return Layout()
    if last:
        return Layout(channel=axes - 1, spatial=tuple(range(axes - 1)))
    return Layout(channel=0, spatial=tuple(range(1, axes)))


def distance_to_ties(unit: Unit, columns: Columns, variant: Variant) -> np.ndarray | None:
    """Give each element's distance from the nearest tie, in codes, at most a half; None if it cannot be told.

    The variant computes the same with an output scale so fine that its codes show what was rounded away. Of one that
    cuts off, the distance is that from the nearest whole number: there its codes change.

    Args:
        unit: What is computed.
        columns: Its columns, all of them.
        variant: A variant with the columns' sums.
    """
    if unit.out.dtype.kind not in "iu":
        return None
    fine = Target(
        dtype=np.dtype(np.int32), scale=unit.out.scale / TIE_DISTANCE_PARTS, zero_point=np.zeros((), np.int32)
    )
    if variant.multiplier.real or variant.multiplier.number == GIVEN:
        variant = replace(variant, multiplier=replace(variant.multiplier, number="f64"))
    try:
        codes = finish(replace(unit, out=fine), columns, variant)
    except (KernelError, UsageError):
        return None
    limit = 0 if _cuts(variant) else TIE_DISTANCE_PARTS // 2
    distance = np.empty(codes.size)
    for fine_codes, out in stretches(codes, distance):
        beyond = (fine_codes.astype(np.int64) - limit) & (TIE_DISTANCE_PARTS - 1)
        np.divide(np.minimum(beyond, TIE_DISTANCE_PARTS - beyond), TIE_DISTANCE_PARTS, out=out)
    return distance.reshape(columns.shape)


def _cuts(variant: Variant) -> bool:
    """Tell whether the last rounding of a program cuts off, rather than to round to the nearest."""
    roundings = [step.rounding for step in variant.requantize if step.op in ("round", "shr", "avg")]
    return bool(roundings) and roundings[-1] in ("floor", "trunc")


def _magnitudes(unit: Unit) -> np.ndarray | None:
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
