"""What a node that nothing reproduces was recorded with, against the most credible replay, over all samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from qdebug.arithmetic.candidates import candidates
from qdebug.arithmetic.patterns.residual import Residual, residual
from qdebug.arithmetic.patterns.wrong_evidence import CodesOfTensor, stretches
from qdebug.arithmetic.patterns.wrong_places import Layout, layout_of
from qdebug.arithmetic.presets import is_known
from qdebug.arithmetic.refit import refit
from qdebug.arithmetic.search import SearchResult, all_codes, channels_first, known_variants, products
from qdebug.arithmetic.suspects import Suspect, suspects, turned_sign
from qdebug.arithmetic.units import Place, channels_last
from qdebug.arithmetic.vector_tail import vector_tail
from qdebug.errors import KernelError, UsageError
from qdebug.model.thresholds.explanation import OTHER_SUMS_MAX_PRODUCTS, VARIANT_MIN_ELEMENTS
from qdebug.model.thresholds.patterns import PATTERN_MAX_ELEMENTS, TIE_DISTANCE_PARTS
from qdebug.numerics.rounding import ROUNDINGS
from qdebug.replay.columns import Columns, HeavyPart
from qdebug.replay.evaluate import accumulate, finish
from qdebug.replay.scaling import GIVEN
from qdebug.replay.unit import Target, Unit
from qdebug.replay.variant import Variant, describe

__all__ = ["distance_to_ties", "residual_of"]


def residual_of(finding: SearchResult, variant: Variant) -> Residual | None:
    """Find the pattern of what a variant leaves of a node; None if there is nothing to compare.

    Args:
        finding: The search for a node that no variant reproduces.
        variant: What the node should be computed by: its siblings' arithmetic, or the closest. The simplest takes its
            place where a known mistake then reproduces every element.
    """
    try:
        left, culprit, unit = _left(finding, variant)
    except KernelError:  # that of its siblings does not know what this node asks for
        variant = candidates(finding.source.unit(_looked_at(finding)[0]))[0]
        left, culprit, unit = _left(finding, variant)
    simplest = None if unit is None else candidates(unit)[0]
    if culprit is None and left is not None and left.pattern != "one_code" and simplest not in (None, variant):
        # What comes closest may make up for a part of a mistake, which the simplest variant does not.
        other, culprit, _ = _left(finding, simplest)
        left = left if culprit is None else other
    if left is None or unit is None:
        return left
    if culprit is None and left.pattern != "one_code":
        culprit = _culprit_in_any(finding, unit)
    if culprit is not None:
        likely = f"{culprit.likely}: that reproduces every element"
        return replace(left, pattern=culprit.pattern, likely=likely, reproduces=True)
    return _of_two(left, finding, unit) or _of_operands(left, finding, variant) or _of_codes(left, finding, variant)


def _looked_at(finding: SearchResult) -> list[Place]:
    """Return the samples and steps that patterns are looked for in: the first, up to some number of elements."""
    places: list[Place] = []
    total = 0
    for place in finding.source.places:
        places.append(place)
        total += finding.source.codes(place).size
        if total > PATTERN_MAX_ELEMENTS:
            break
    return places


def _of_two(left: Residual, finding: SearchResult, unit: Unit) -> Residual | None:
    """Say that two known arithmetics give every element together, one of them what vectors leave over."""
    found = vector_tail(finding.source, _looked_at(finding), [each for each in candidates(unit) if is_known(each)])
    if found is None:
        return None
    likely = (
        f"{found.where} are computed apart: {describe(found.tail)}; the others: {describe(found.body)} "
        f"({found.elements} elements tell them apart): that reproduces every element"
    )
    return replace(left, pattern="tail", likely=likely, reproduces=True)


def _of_operands(left: Residual, finding: SearchResult, variant: Variant) -> Residual | None:
    """Say that one operand acts by another scale or zero point, and how many elements that reproduces."""
    places = _looked_at(finding)
    units = [finding.source.unit(place) for place in places]
    recorded = [channels_first(finding.source.codes(place), unit) for place, unit in zip(places, units, strict=True)]
    found = refit(units, recorded, variant)
    if found is None:
        return None
    all_of_it = found.equal == found.total
    share = "every element" if all_of_it else f"{found.equal} of {found.total} elements, and the others within one code"
    likely = f"{found.likely}: that reproduces {share}"
    return replace(left, pattern=found.pattern, likely=likely, reproduces=all_of_it)


def _of_codes(left: Residual, finding: SearchResult, variant: Variant) -> Residual:
    """Say of a function of one code or sum whether each always gives the same code, as a table does."""
    if left.pattern not in _VAGUE or finding.kind in _OF_SEVERAL:
        return left
    pairs, total, word = [], 0, "sum"
    for place in _looked_at(finding):
        unit = finding.source.unit(place)
        columns = accumulate(unit, variant.sums)
        recorded = channels_first(finding.source.codes(place), unit)
        if len(columns.values) != 1 or columns.size != recorded.size:
            return left
        word = "input code" if columns.sums.columns == "codes" or finding.kind in _ONE_CODE else "sum"
        given = columns.values[0].reshape(columns.shape)
        beside = [part for part in (columns.count, columns.member) if part is not None]
        if unit.per_channel and unit.kind in ("conv", "linear"):
            axis = 1 if unit.kind == "conv" else -1
            channels = np.arange(columns.shape[axis])
            beside.append(channels.reshape([-1, *[1] * (given.ndim - 2)]) if axis == 1 else channels)
        keys = [np.broadcast_to(part, given.shape).reshape(-1) for part in (given, *beside)]
        pairs.append(np.unique(np.stack([*keys, recorded.reshape(-1)]).astype(np.float64), axis=1))
        total += recorded.size
    each = np.unique(np.concatenate(pairs, axis=1), axis=1)
    _, counts = np.unique(each[:-1], axis=1, return_counts=True)
    if total < 2 * counts.size:
        return left  # most occur once, and tell nothing
    several = np.count_nonzero(counts > 1)
    if several:
        return replace(left, detail=f"{left.detail}; {several} of {counts.size} {word}s give more than one code")
    if word == "sum":
        said = f"the sums are right, and what makes codes of them is not: each of {counts.size} sums gives one code"
        return replace(left, likely=said)
    likely = f"another function of the code, as a table of its own: each of {counts.size} input codes gives one code"
    return replace(left, likely=likely)


_OF_SEVERAL = ("softmax", "resize", "where", "quantize")
"""Kinds whose output is made of several codes that are no sum, or of real numbers."""
_ONE_CODE = ("lookup", "requantize", "max_pool", "pad", "concat")
_VAGUE = ("scattered", "off_by_one", "ties_only", "altered")
"""Patterns that say little of the cause."""


def _left(finding: SearchResult, variant: Variant) -> tuple[Residual | None, Suspect | None, Unit | None]:
    """Return the pattern of what a variant leaves, the mistake that reproduces every element, and the first unit."""
    units: list[Unit] = []
    parts: list[CodesOfTensor] = []
    for place in _looked_at(finding):
        unit = finding.source.unit(place)
        if unit.out.dtype.kind not in "iu":
            return None, None, None
        part = _part(unit, finding.source.codes(place), variant)
        if not parts or part.expected.shape == parts[0].expected.shape:
            units.append(unit)
            parts.append(part)
    unit, shape = units[0], parts[0].expected.shape
    layout = layout_of(unit, max(len(shape), 2) - 1, last=_last(finding, unit))
    together: dict[str, Any] = {name: _together([getattr(part, name) for part in parts]) for name in _ARRAYS}
    found = residual(
        replace(
            parts[0],
            layout=replace(layout, first=_counted(shape, len(parts))),
            zero_point=int(unit.out.zero_point.reshape(-1)[0]),
            span=unit.out.limits,
            **together,
        )
    )
    if found is None:
        return None, None, unit
    found = replace(_in_own_order(found, unit, shape), against=str(variant))
    recorded = [part.recorded for part in parts]
    culprit = (
        _culprit(units, recorded, variant) if found.pattern != "one_code" else None
    )  # many mistakes saturate throughout
    return found, culprit, unit


_ARRAYS = ("expected", "recorded", "distance", "magnitude", "sums")


def _part(unit: Unit, recorded: np.ndarray, variant: Variant) -> CodesOfTensor:
    """Hold one sample of a node against a variant, channels first."""
    columns = accumulate(unit, variant.sums)
    whole = columns.values[0] if unit.kind in ("conv", "linear") else None
    return CodesOfTensor(
        layout=Layout(),
        expected=finish(unit, columns, variant).reshape(columns.shape),
        recorded=channels_first(recorded, unit),
        distance=distance_to_ties(unit, columns, variant),
        magnitude=_magnitudes(unit),
        sums=None if whole is None else np.abs(whole).reshape(columns.shape),
    )


def _culprit(units: Sequence[Unit], recorded: Sequence[np.ndarray], variant: Variant) -> Suspect | None:
    """Find the mistake that gives every recorded code of every sample."""
    for suspect in suspects(units[0]):
        if all(_gives(_same(suspect, unit), codes, variant) for unit, codes in zip(units, recorded, strict=True)):
            return suspect
    return None


def _culprit_in_any(finding: SearchResult, unit: Unit) -> Suspect | None:
    """Find the only mistake that gives every recorded code together with some known arithmetic.

    A kernel that is wrong may round as no sibling does. Few elements rule out most pairs of mistake and arithmetic.

    Args:
        finding: The search for the node.
        unit: Its first sample.
    """
    places = _looked_at(finding)
    units = [finding.source.unit(place) for place in places]
    recorded = [channels_first(finding.source.codes(place), each) for place, each in zip(places, units, strict=True)]
    if sum(codes.size for codes in recorded) < VARIANT_MIN_ELEMENTS:
        return None
    known = known_variants(unit)
    if products(unit) > OTHER_SUMS_MAX_PRODUCTS:
        known = tuple(variant for variant in known if variant.sums == known[0].sums)
    found: dict[str, Suspect] = {}
    for suspect in suspects(unit):
        for variant in _passing(suspect, recorded[0], known):
            if all(_gives(_same(suspect, each), codes, variant) for each, codes in zip(units, recorded, strict=True)):
                found[suspect.likely] = suspect
                break
    return next(iter(found.values())) if len(found) == 1 else None


def _passing(suspect: Suspect, recorded: np.ndarray, known: Sequence[Variant]) -> Iterator[Variant]:
    """Yield the arithmetics that give a few recorded codes together with a mistake."""
    if suspect.accumulate or suspect.resigned or suspect.casts != ("", "sat"):
        return
    codes, told = suspect.told(recorded)
    few = told[:: max(1, told.size // _FEW)]
    for sums in dict.fromkeys(variant.sums for variant in known):
        try:
            columns = accumulate(suspect.unit, sums)
        except KernelError:
            continue
        if columns.size != codes.size:
            continue
        own = [variant for variant in known if variant.sums == sums]
        with np.errstate(all="ignore"):  # a mistaken scale may be beyond float32
            found = [*all_codes(suspect.unit, columns.take(few), own)]
        for variant, made in found:
            if np.array_equal(made, codes[few]):
                yield variant


_TOLD_LEAST = 3
"""Rows, columns or channels of which a mistake must tell all but one."""
_FEW = 512
"""Elements that rule out most pairs of a mistake and an arithmetic."""


def _same(suspect: Suspect, unit: Unit) -> Suspect | None:
    return next((other for other in suspects(unit) if other.name == suspect.name), None)


def _gives(suspect: Suspect | None, recorded: np.ndarray, variant: Variant) -> bool:
    if suspect is None:
        return False
    try:
        with np.errstate(all="ignore"):  # a mistaken scale may be beyond float32
            codes = suspect.codes(variant)
    except (KernelError, UsageError):
        return False
    if codes.shape != recorded.shape:
        return False
    if suspect.late is not None:
        own, told = suspect.told(recorded)
        return codes.shape[suspect.late[0]] > _TOLD_LEAST and np.array_equal(codes.reshape(-1)[told], own[told])
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


def _together(arrays: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """Put the arrays of all samples together; the batch within a recorded sample counts as more samples."""
    known = [array for array in arrays if array is not None]
    if len(known) < len(arrays):
        return None
    if known[0].ndim > 1:
        return np.concatenate([array.reshape(-1, *array.shape[1:]) for array in known])
    return np.stack(known)


def _last(finding: SearchResult, unit: Unit) -> bool:
    """Tell whether a node that has no layout of its own, as an addition, computes on channels that come last."""
    own = unit.kind in ("conv", "linear") or unit.kind.endswith("_pool")
    return not own and channels_last(finding.source.recording.graph, finding.source.node)


def distance_to_ties(unit: Unit, columns: Columns, variant: Variant) -> np.ndarray | None:
    """Return each element's distance from the nearest tie, in codes, at most a half; None if it cannot be told.

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
    return bool(roundings) and ROUNDINGS[roundings[-1]].cuts


def _magnitudes(unit: Unit) -> np.ndarray | None:
    """Return for each element the sum of its products' magnitudes; None if nothing is summed."""
    if unit.kind not in ("conv", "linear"):
        return None
    zero = np.zeros((), np.int16)
    operands = tuple(replace(operand, codes=np.abs(operand.centred), zero_point=zero) for operand in unit.operands)
    try:
        columns = accumulate(replace(unit, operands=operands, bias=None), HeavyPart())
    except KernelError:
        return None
    return columns.values[0].reshape(columns.shape)


def _in_own_order(found: Residual, unit: Unit, shape: tuple[int, ...]) -> Residual:
    """Return the indices of wrong elements in the recorded tensor's own order, the sample's number first."""
    if len(shape) < 2:
        return found
    turned = []
    for sample, *rest in found.elements:
        place, within = divmod(sample, shape[0])
        order = [*rest[1:], rest[0]] if unit.channels_last else rest
        turned.append((place, within, *order))
    return replace(found, elements=tuple(turned))
