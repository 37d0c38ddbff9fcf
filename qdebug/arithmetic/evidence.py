"""What a node that nothing reproduces was recorded with, against the most credible replay, over all samples.

Known mistakes as units: if computing a node with one of them gives what was recorded, it is the likely cause. Each
suspect is the node as it would be if its kernel left out or confused one of its parameters. A suspect that reproduces
every recorded element says more than any pattern of the wrong ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qdebug.arithmetic.candidates import candidates
from qdebug.arithmetic.patterns.residual import Residual, residual
from qdebug.arithmetic.patterns.wrong_evidence import Evidence, stretches
from qdebug.arithmetic.patterns.wrong_places import Layout
from qdebug.arithmetic.presets import is_known
from qdebug.arithmetic.search import SearchResult, channels_first, products
from qdebug.arithmetic.units import Place, channels_last
from qdebug.arithmetic.vector_tail import vector_tail
from qdebug.errors import KernelError, UsageError
from qdebug.model.thresholds.explanation import SEQUENTIAL_SUMS_MAX_PRODUCTS
from qdebug.model.thresholds.patterns import PATTERN_MAX_ELEMENTS, TIE_DISTANCE_PARTS
from qdebug.replay.columns import Columns, HeavyPart
from qdebug.replay.evaluate import accumulate, finish
from qdebug.replay.registry import Call
from qdebug.replay.scaling import GIVEN
from qdebug.replay.steps import Step
from qdebug.replay.unit import Operand, Target, Unit
from qdebug.replay.variant import Variant, describe

__all__ = ["Suspect", "distance_to_ties", "layout_of", "residual_of", "suspects", "turned_sign"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A mistake.

    Args:
        name: Tells it from the others.
        pattern: The pattern that it makes: a key of `qdebug.arithmetic.patterns.residual.PATTERNS`.
        likely: The mistake in words.
        unit: The node with the mistake.
        accumulate: How products are summed, besides; "" for as they should be.
        wraps: Whether codes wrap around instead of saturating, besides.
        resigned: Whether the recorded codes are those of the other signedness, besides.
    """

    name: str
    pattern: str
    likely: str
    unit: Unit
    accumulate: str = ""
    wraps: bool = False
    resigned: bool = False

    def variant(self, variant: Variant) -> Variant:
        """Return the variant that the mistake makes of the right one."""
        if self.accumulate:
            variant = replace(variant, accumulate=self.accumulate)
        if not self.wraps:
            return variant
        ends = tuple(Step(op="wrap") if step.op == "sat" else step for step in variant.requantize)
        return replace(variant, requantize=ends)


def suspects(unit: Unit) -> Iterator[Suspect]:
    """Yield the mistakes that a kernel could make with a unit, and that would show."""
    yield from _of_bias(unit)
    yield from _of_zero_points(unit)
    yield from _of_scales(unit)
    yield from _of_conventions(unit)
    yield from _of_padding(unit)
    yield from _of_signs(unit)
    yield from _of_kernel(unit)
    yield from _of_sums(unit)
    if unit.out.dtype.kind in "iu":
        likely = "codes beyond the range wrap around instead of saturating"
        yield Suspect(name="wrapped codes", pattern="wrapped", likely=likely, unit=unit, wraps=True)
    if unit.out.clamp is not None:
        free = replace(unit, out=replace(unit.out, clamp=None))
        yield Suspect(name="no clamp", pattern="clamp", likely="the activation's range is not applied", unit=free)


def _of_bias(unit: Unit) -> Iterator[Suspect]:
    bias = unit.bias
    if bias is None or not np.any(bias):
        return
    pattern = "constant_per_channel"
    yield Suspect(name="no bias", pattern=pattern, likely="the bias is dropped", unit=replace(unit, bias=None))
    if bias.dtype.kind not in "iu":
        return
    short = np.clip(bias, -(2**15), 2**15 - 1)
    if np.any(short != bias):
        yield Suspect(
            name="short bias", pattern=pattern, likely="the bias is clipped to 16 bits", unit=replace(unit, bias=short)
        )
    moved = np.roll(bias, 1)
    yield Suspect(
        name="moved bias", pattern=pattern, likely="the bias is read one channel off", unit=replace(unit, bias=moved)
    )


def _of_zero_points(unit: Unit) -> Iterator[Suspect]:
    names = ("the first operand's zero point", "the second operand's zero point")
    for position, (operand, name) in enumerate(zip(unit.operands, names, strict=False)):
        if operand.codes.dtype.kind not in "iu" or not np.any(operand.zero_point):
            continue
        bare = replace(operand, zero_point=np.zeros_like(operand.zero_point))
        yield Suspect(
            name=f"no zero point {position}",
            pattern="constant_per_channel" if unit.kind in ("conv", "linear") else "constant",
            likely=f"{name} is dropped",
            unit=_with(unit, position, bare),
        )
        wrapped = _wrapped(operand)
        if wrapped is not None:
            yield Suspect(
                name=f"wrapped {position}",
                pattern="growing",
                likely=f"the difference from {name} wraps around in 8 bits",
                unit=_with(unit, position, wrapped),
            )
    yield from _zero_points_off_by_one(unit)
    zero = unit.out.zero_point
    if unit.out.dtype.kind in "iu" and np.any(zero):
        bare_out = replace(unit.out, zero_point=np.zeros_like(zero))
        yield Suspect(
            name="no output zero point",
            pattern="constant",
            likely="the output's zero point is not added",
            unit=replace(unit, out=bare_out),
        )


def _zero_points_off_by_one(unit: Unit) -> Iterator[Suspect]:
    """Yield zero points that are the next code, as one that was rounded in another way is; weights mostly have none."""
    sides = (("output", unit.out.dtype, unit.out.zero_point), ("first operand", None, unit.operands[0].zero_point))
    for name, dtype, zero in sides:
        own = np.dtype(dtype or unit.operands[0].codes.dtype)
        if own.kind not in "iu" or np.size(zero) != 1:
            continue
        said = int(np.asarray(zero).reshape(-1)[0])
        for value in (said - 1, said + 1):
            if not np.iinfo(own).min <= value <= np.iinfo(own).max:
                continue
            next_to = np.full_like(zero, value)
            moved = (
                replace(unit, out=replace(unit.out, zero_point=next_to))
                if dtype is not None
                else _with(unit, 0, replace(unit.operands[0], zero_point=next_to))
            )
            yield Suspect(
                name=f"{name} zero point {value - said:+d}",
                pattern="constant",
                likely=f"the {name}'s zero point is {value}, not {said}",
                unit=moved,
            )


def _wrapped(operand: Operand) -> Operand | None:
    """Return an operand whose codes minus zero point are held in 8 bits; None if they fit."""
    if operand.codes.dtype.itemsize > 1:
        return None
    centred = operand.centred
    short = centred.astype(np.int8)
    if np.array_equal(short, centred):
        return None
    return replace(operand, codes=short, zero_point=np.zeros(np.shape(operand.zero_point), np.int8))


def _of_scales(unit: Unit) -> Iterator[Suspect]:
    yield from _of_operand_scales(unit)
    for position, operand in enumerate(unit.operands):
        scale = operand.scale
        if np.unique(scale).size < 2:
            continue
        flat = scale.reshape(-1)
        for name, other, likely in (
            ("one scale", np.full_like(flat, flat[0]), "the first channel's scale is used for all channels"),
            ("mean scale", np.full_like(flat, flat.max()), "the largest channel's scale is used for all channels"),
            ("moved scale", np.roll(flat, 1), "the scales are read one channel off"),
            ("turned scale", flat[::-1], "the scales are read in reverse"),
        ):
            changed = replace(operand, scale=other.reshape(scale.shape).copy())
            yield Suspect(
                name=f"{name} {position}",
                pattern="factor_per_channel",
                likely=likely,
                unit=_with(unit, position, changed),
            )


def _of_operand_scales(unit: Unit) -> Iterator[Suspect]:
    """Yield the scales of operands that are taken for one another; a product does not show it."""
    scales = [operand.scale for operand in unit.operands]
    if unit.kind not in ("add", "sub", "div", "concat") or len(scales) < 2 or any(scale.size > 1 for scale in scales):
        return
    if len({float(scale.reshape(-1)[0]) for scale in scales}) == 1:
        return
    for name, taken, likely in (
        ("first scale", scales[:1] * len(scales), "the first operand's scale is used for all operands"),
        ("last scale", scales[-1:] * len(scales), "the last operand's scale is used for all operands"),
        ("swapped scales", scales[::-1], "the operands' scales are exchanged"),
    ):
        operands = tuple(replace(each, scale=scale) for each, scale in zip(unit.operands, taken, strict=True))
        yield Suspect(name=name, pattern="factor", likely=likely, unit=replace(unit, operands=operands))


def _of_conventions(unit: Unit) -> Iterator[Suspect]:
    """Yield scales and zero points as other formats mean them: an offset that is added, steps per unit."""
    sides = [operand for operand in unit.operands if operand.codes.dtype.kind in "iu"]
    if any(np.any(side.zero_point) for side in sides) or (unit.out.dtype.kind in "iu" and np.any(unit.out.zero_point)):
        turned = tuple(replace(side, zero_point=-side.zero_point.astype(np.int32)) for side in unit.operands)
        out = replace(unit.out, zero_point=-np.asarray(unit.out.zero_point, np.int32))
        likely = "the zero points are of the opposite sign, as offsets that are added to the codes"
        yield Suspect(name="offsets", pattern="constant", likely=likely, unit=replace(unit, operands=turned, out=out))
    for position, (operand, name) in enumerate(zip(unit.operands, ("first", "second"), strict=False)):
        if np.all(operand.scale > 1):
            yield Suspect(
                name=f"reciprocal {position}",
                pattern="factor",
                likely=f"the {name} operand's scale is the reciprocal of what it should be",
                unit=_with(unit, position, replace(operand, scale=np.asarray(1 / operand.scale))),
            )
    if np.all(unit.out.scale > 1):
        own = replace(unit.out, scale=np.asarray(1 / unit.out.scale))
        likely = "the output's scale is the reciprocal of what it should be"
        yield Suspect(name="reciprocal output", pattern="factor", likely=likely, unit=replace(unit, out=own))


def _of_padding(unit: Unit) -> Iterator[Suspect]:
    if unit.kind != "conv" or unit.transposed:
        return
    pads = Call(inputs=(), attrs=unit.attrs).integers("pads") or ()
    if not any(pads):
        return
    x = unit.operands[0]
    half = len(pads) // 2
    around = [(0, 0), (0, 0), *zip(pads[:half], pads[half:], strict=True)]
    none: tuple[int, ...] = (0,) * len(pads)
    if np.any(x.zero_point):
        padded = replace(x, codes=np.pad(x.codes, around))
        yield Suspect(
            name="zero padding",
            pattern="borders",
            likely="the padding holds the code 0 in place of the zero point",
            unit=replace(_with(unit, 0, padded), attrs={**unit.attrs, "pads": none}),
        )
    repeated = replace(x, codes=np.pad(x.codes, around, mode="edge"))
    yield Suspect(
        name="edge padding",
        pattern="borders",
        likely="the padding repeats the outermost values",
        unit=replace(_with(unit, 0, repeated), attrs={**unit.attrs, "pads": none}),
    )
    yield from _shifted(unit, pads)


def _shifted(unit: Unit, pads: Sequence[int]) -> Iterator[Suspect]:
    """Yield paddings of the same total with more at the other end."""
    half = len(pads) // 2
    sums = [begin + end for begin, end in zip(pads[:half], pads[half:], strict=True)]
    for name, begins in (("end", [0] * half), ("start", sums), ("swapped", list(pads[half:]))):
        other = (*begins, *(total - begin for total, begin in zip(sums, begins, strict=True)))
        if other != tuple(pads):
            yield Suspect(
                name=f"padding {name}",
                pattern="borders",
                likely=f"the padding is {other}, not {tuple(pads)}",
                unit=replace(unit, attrs={**unit.attrs, "pads": other}),
            )


def _of_signs(unit: Unit) -> Iterator[Suspect]:
    """Yield codes whose signedness was mistaken: their bits read as the other type, or half of their range away."""
    for position, (operand, name) in enumerate(zip(unit.operands, ("first", "second"), strict=False)):
        dtype = operand.codes.dtype
        if dtype.kind not in "iu":
            continue
        other = np.dtype(f"{'i' if dtype.kind == 'u' else 'u'}{dtype.itemsize}")
        zero_point = operand.zero_point.astype(np.int32)
        away = f"the {name} operand's codes are half their range away: {other} taken for {dtype}"
        for how, codes, likely in (
            ("read", operand.codes.view(other), f"the {name} operand's {dtype} codes are read as {other}"),
            ("moved", turned_sign(operand.codes), away),
        ):
            held = replace(operand, codes=codes, zero_point=zero_point)
            yield Suspect(
                name=f"sign {how} {position}", pattern="signedness", likely=likely, unit=_with(unit, position, held)
            )
    if unit.out.dtype.kind in "iu":
        likely = "the recorded output is of the other signedness than its quantization says"
        yield Suspect(name="output sign", pattern="signedness", likely=likely, unit=unit, resigned=True)


def turned_sign(codes: np.ndarray) -> np.ndarray:
    """Turn the highest bit of codes, which takes signed to unsigned ones of the same order."""
    unsigned = codes.view(np.dtype(f"u{codes.dtype.itemsize}"))
    top = unsigned.dtype.type(1 << (8 * codes.dtype.itemsize - 1))
    return np.asarray((unsigned ^ top).view(codes.dtype))


def _of_kernel(unit: Unit) -> Iterator[Suspect]:
    """Yield filters that are laid out in another way."""
    if unit.kind != "conv" or unit.operands[1].codes.ndim != 4:
        return
    weight = unit.operands[1]
    for name, codes, likely in (
        ("turned kernel", np.swapaxes(weight.codes, 2, 3), "rows and columns of the filters are exchanged"),
        ("mirrored kernel", weight.codes[:, :, ::-1, ::-1], "the filters are mirrored, as in a true convolution"),
    ):
        if codes.shape == weight.codes.shape and not np.array_equal(codes, weight.codes):
            yield Suspect(
                name=name, pattern="scattered", likely=likely, unit=_with(unit, 1, replace(weight, codes=codes))
            )


def _of_sums(unit: Unit) -> Iterator[Suspect]:
    """Yield sums that are held in 16 bits throughout."""
    if unit.kind not in ("conv", "linear") or unit.transposed or products(unit) > SEQUENTIAL_SUMS_MAX_PRODUCTS:
        return
    orders = (
        (("chw", ", channels before taps"), ("hwc", ", taps before channels"))
        if unit.kind == "conv"
        else (("hwc", ""),)
    )
    yield Suspect(
        name="sums wrap", pattern="growing", likely="the sums wrap around in 16 bits", unit=unit, accumulate="wrap16"
    )
    likely = "the sums saturate at 16 bits when they are complete"
    yield Suspect(name="complete sums saturate", pattern="growing", likely=likely, unit=unit, accumulate="sat16")
    for order, said in orders:
        likely = f"the sums saturate at 16 bits after each product{said}"
        name = f"sums saturate {order}"
        yield Suspect(name=name, pattern="growing", likely=likely, unit=unit, accumulate=f"sat16:{order}")


def _with(unit: Unit, position: int, operand: Operand) -> Unit:
    operands = list(unit.operands)
    operands[position] = operand
    return replace(unit, operands=tuple(operands))


def residual_of(finding: SearchResult, variant: Variant) -> Residual | None:
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
    if left is None or unit is None:
        return left
    if culprit is not None:
        return replace(left, pattern=culprit.pattern, likely=f"{culprit.likely}: that reproduces every element")
    return _of_two(left, finding, unit) or _of_codes(left, finding)


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
    return replace(left, pattern="tail", likely=likely)


def _of_codes(left: Residual, finding: SearchResult) -> Residual:
    """Say of a function of one code whether each code always gives the same one, as a table does."""
    if left.pattern not in _VAGUE or finding.kind not in ("lookup", "requantize"):
        return left
    pairs = []
    for place in _looked_at(finding):
        unit = finding.source.unit(place)
        given, recorded = unit.operands[0].codes, channels_first(finding.source.codes(place), unit)
        if given.size != recorded.size or given.dtype.itemsize > 1:
            return left
        pairs.append(np.unique(np.stack([given.reshape(-1), recorded.reshape(-1)]).astype(np.int64), axis=1))
    _, counts = np.unique(np.unique(np.concatenate(pairs, axis=1), axis=1)[0], return_counts=True)
    several = np.count_nonzero(counts > 1)
    if several:
        return replace(left, detail=f"{left.detail}; {several} of {counts.size} input codes give more than one code")
    likely = f"another function of the code, as a table of its own: each of {counts.size} input codes gives one code"
    return replace(left, likely=likely)


_VAGUE = ("scattered", "off_by_one", "ties_only", "altered")
"""Patterns that say little of the cause."""


def _left(finding: SearchResult, variant: Variant) -> tuple[Residual | None, Suspect | None, Unit | None]:
    """Return the pattern of what a variant leaves, the mistake that reproduces every element, and the first unit."""
    units: list[Unit] = []
    parts: list[Evidence] = []
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


def _part(unit: Unit, recorded: np.ndarray, variant: Variant) -> Evidence:
    """Hold one sample of a node against a variant, channels first."""
    columns = accumulate(unit, variant.sums)
    whole = columns.values[0] if unit.kind in ("conv", "linear") else None
    return Evidence(
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
    return bool(roundings) and roundings[-1] in ("floor", "trunc")


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
