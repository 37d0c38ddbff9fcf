"""Known kernel mistakes on codes, each as the unit that a kernel with the mistake computes.

If a mistake reproduces every recorded element, it is the likely cause, and more informative than any pattern of the
wrong elements. Begin at `suspects`. `qdebug.arithmetic.mistakes.known` contains the mistakes on real numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from qdebug.arithmetic.mistakes.known import other_dilations
from qdebug.arithmetic.patterns.wrong_places import layout_of
from qdebug.arithmetic.search import count_products
from qdebug.model import operators
from qdebug.model.thresholds.explanation import SEQUENTIAL_SUMS_MAX_PRODUCTS
from qdebug.model.thresholds.patterns import KERNEL_BLOCKS
from qdebug.replay.evaluate import accumulate, finish
from qdebug.replay.precision import integer_limits
from qdebug.replay.registry import Call
from qdebug.replay.unit import Operand, Unit
from qdebug.replay.variant import Variant, parse_variant

__all__ = ["Suspect", "flip_sign_bit", "suspects"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A mistake of a kernel on codes.

    Args:
        name: Unique name.
        pattern: The pattern that it causes: a key of `qdebug.arithmetic.patterns.residual.PATTERNS`.
        likely: The mistake in words.
        unit: The unit that a kernel with the mistake computes.
        accumulate: A wrong way of summing products, or "" for the right one.
        casts: How results are cast before and after the zero point is added, see `_CASTS`.
        has_opposite_signedness: Whether the recorded codes have the opposite signedness.
        arithmetic: The arithmetic with the mistake, or None for the right one.
        late: Axis (channels first) and number of positions by which results are written late, or None. The first or
            last index of the axis is then undetermined.
    """

    name: str
    pattern: str
    likely: str
    unit: Unit
    accumulate: str = ""
    casts: tuple[str, str] = ("", "sat")
    has_opposite_signedness: bool = False
    arithmetic: Variant | None = None
    late: tuple[int, int] | None = None

    def determined_codes(self, recorded: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the recorded codes with a late write undone, flat, and the positions that the mistake determines.

        Args:
            recorded: The codes, channels first.
        """
        if self.late is None:
            return recorded.reshape(-1), np.arange(recorded.size)
        axis, distance = self.late
        is_determined = np.ones(recorded.shape, bool)
        np.moveaxis(is_determined, axis, 0)[-1 if distance > 0 else 0] = False
        return np.roll(recorded, -distance, axis).reshape(-1), np.flatnonzero(is_determined)

    def codes(self, variant: Variant) -> np.ndarray:
        """Compute the node with the mistake, channels first.

        Args:
            variant: The right arithmetic.

        Raises:
            KernelError: The unit does not support the variant.
            UsageError: The variant has no multiplier for the unit's scales.
        """
        variant = self.arithmetic or variant
        variant = replace(variant, accumulate=self.accumulate) if self.accumulate else variant
        columns, out = accumulate(self.unit, variant.sums), self.unit.out
        if self.casts == ("", "sat"):
            return finish(self.unit, columns, variant).reshape(columns.shape)
        zero = out.zero_point.astype(np.int32)
        wide_output = replace(out, dtype=np.dtype(np.int32), zero_point=zero, low=None, high=None, clamp=None)
        codes: np.ndarray = (
            finish(replace(self.unit, out=wide_output), columns, variant).astype(np.int64).reshape(columns.shape)
        )
        cast_before_zero_point, cast_after_zero_point = self.casts
        low, high = out.clamp or out.limits
        if cast_before_zero_point:
            codes = _cast_integers(codes - zero, cast_before_zero_point, out.dtype) + zero
        if cast_after_zero_point != "sat":
            codes = _cast_integers(codes, cast_after_zero_point, out.dtype)
        return np.asarray(np.clip(codes, low, high).astype(out.dtype))


def _cast_integers(values: np.ndarray, cast: str, dtype: np.dtype) -> np.ndarray:
    """Cast integers to a type, or to 16 bits with the same signedness, by saturating or wrapping.

    Args:
        values: The integers.
        cast: "sat", "wrap", "sat16" or "wrap16". "abs" only drops the sign.
        dtype: The type.
    """
    if cast == "abs":
        return np.asarray(np.abs(values))
    target = np.dtype(f"{dtype.kind}2") if cast.endswith("16") else dtype
    if cast.startswith("wrap"):
        return np.asarray(values.astype(target).astype(np.int64))
    return np.asarray(np.clip(values, np.iinfo(target).min, np.iinfo(target).max))


_CASTS = {
    "wrapped codes": (("", "wrap"), "codes beyond the range wrap around instead of saturating"),
    "early wrap": (("wrap", "sat"), "results wrap around in the output's type before the zero point is added"),
    "early wrap in 16 bits": (("wrap16", "sat"), "results wrap around in 16 bits before the zero point is added"),
    "early clamp": (("sat", "sat"), "results saturate before the output's zero point is added"),
    "early clamp, late wrap": (
        ("sat", "wrap"),
        "results saturate before the output's zero point is added, and wrap around after",
    ),
    "magnitudes": (("", "abs"), "negative codes lose their sign instead of becoming 0"),
}
"""Casts of results before and after the zero point is added, and the mistake in words, by name of the mistake."""


def suspects(unit: Unit) -> Iterator[Suspect]:
    """Yield the mistakes that a kernel could make in computing a unit and that would change its codes."""
    yield from _bias_mistakes(unit)
    yield from _zero_point_mistakes(unit)
    yield from _early_zero_point_mistakes(unit)
    yield from _scale_mistakes(unit)
    yield from _convention_mistakes(unit)
    yield from _padding_mistakes(unit)
    yield from _dilation_mistakes(unit)
    yield from _sign_mistakes(unit)
    yield from _filter_layout_mistakes(unit)
    yield from _sum_width_mistakes(unit)
    yield from _narrow_pool_mistakes(unit)
    yield from _cast_mistakes(unit)
    yield from _misplaced_writes(unit)
    yield from _table_mistakes(unit)
    if unit.out.clamp is not None:
        free = replace(unit, out=replace(unit.out, clamp=None))
        yield Suspect(name="no clamp", pattern="clamp", likely="the activation's range is not applied", unit=free)
    yield from _rounded_clip_bounds(unit)


def _rounded_clip_bounds(unit: Unit) -> Iterator[Suspect]:
    """Yield mistakes in which a Clip clamps its input codes, so that its bounds are rounded to codes of the input.

    Like the clamp in OpenVINO's low precision transformations (src/common/low_precision_transformations/src/clamp.cpp).
    """
    clamp, operand, out = unit.out.clamp, unit.operands[0], unit.out
    parameters = (operand.scale, operand.zero_point, out.scale, out.zero_point)
    if clamp is None or unit.kind != "requantize" or any(np.size(parameter) != 1 for parameter in parameters):
        return
    step, zero, out_step, out_zero = (float(np.reshape(parameter, -1)[0]) for parameter in parameters)
    if operand.codes.dtype.kind not in "iu" or step <= 0 or out_step <= 0:
        return
    lowest, highest = integer_limits(operand.codes.dtype)
    reals = (np.arange(lowest, highest + 1) - zero) * step
    input_codes = np.clip(np.rint(reals / out_step + out_zero), *out.limits)
    sides = []
    for code in clamp:
        near = np.abs(reals - (code - out_zero) * out_step) < step + out_step / 2
        sides.append(
            sorted({code, *(int(input_code) for input_code in input_codes[near])}) if code != out_zero else [code]
        )
    for low, high in product(*sides):
        if low <= high and (low, high) != clamp:
            yield Suspect(
                name=f"whole bounds {low} {high}",
                pattern="clamp",
                likely=f"the bounds are truncated to codes of the input: codes from {low} to {high}, not from "
                f"{clamp[0]} to {clamp[1]}",
                unit=replace(unit, out=replace(out, clamp=(low, high))),
            )


def _cast_mistakes(unit: Unit) -> Iterator[Suspect]:
    """Yield mistakes in which results are cast to their type in a wrong way, or before the zero point is added."""
    if unit.out.dtype.kind not in "iu":
        return
    has_zero_point = unit.out.zero_point.size == 1 and np.any(unit.out.zero_point)
    for name, (casts, likely) in _CASTS.items():
        shows = unit.out.dtype.kind == "u" if "abs" in casts else has_zero_point or not casts[0]
        if shows:
            yield Suspect(name=name, pattern="wrapped", likely=likely, unit=unit, casts=casts)


def _misplaced_writes(unit: Unit) -> Iterator[Suspect]:
    """Yield mistakes in which products are written one row, column or channel too late or too early."""
    if unit.kind not in ("conv", "linear"):
        return
    layout = layout_of(unit, unit.operands[0].codes.ndim - 1)
    names = {axis + 1: name for axis, (name, _) in zip(layout.spatial, layout.spatial_names, strict=True)}
    if unit.kind == "linear" and not names:
        names[0] = "row"
    if layout.channel is not None:
        names[layout.channel + 1] = layout.channel_name
    for axis, name in names.items():
        for timing, distance in (("late", 1), ("early", -1)):
            likely = f"each {name} is written one {name} {timing}"
            yield Suspect(name=f"{timing} {name}", pattern="stale", likely=likely, unit=unit, late=(axis, distance))


def _bias_mistakes(unit: Unit) -> Iterator[Suspect]:
    bias = unit.bias
    if bias is None or not np.any(bias):
        return
    pattern = "constant_per_channel"
    if unit.bias_scale is not None:
        bias_scale = float(unit.bias_scale.reshape(-1)[0])
        yield Suspect(
            name="bias unit",
            pattern=pattern,
            likely=(
                "the codes of the bias are added to the sums without rescaling, although their scale is "
                f"{bias_scale:.4g}"
            ),
            unit=replace(unit, bias=bias.astype(np.int32), bias_scale=None),
        )
    yield Suspect(name="no bias", pattern=pattern, likely="the bias is dropped", unit=replace(unit, bias=None))
    if bias.dtype.kind not in "iu":
        return
    out_scale = float(np.max(unit.out.scale))
    for name, likely, real_bias in (
        ("real bias", "the integers of the bias are added as real numbers, without their scale", bias),
        ("late bias", "the integers of the bias are added to the scaled result, without their scale", bias * out_scale),
    ):
        real_unit = replace(unit, bias=real_bias.astype(np.float32), bias_scale=None)
        yield Suspect(name=name, pattern=pattern, likely=likely, unit=real_unit)
    clipped_bias = np.clip(bias, -(2**15), 2**15 - 1)
    if np.any(clipped_bias != bias):
        yield Suspect(
            name="short bias",
            pattern=pattern,
            likely="the bias is clipped to 16 bits",
            unit=replace(unit, bias=clipped_bias),
        )
    shifted_bias = np.roll(bias, 1)
    yield Suspect(
        name="moved bias",
        pattern=pattern,
        likely="the bias is shifted by one channel",
        unit=replace(unit, bias=shifted_bias),
    )


def _zero_point_mistakes(unit: Unit) -> Iterator[Suspect]:
    names = ("the first operand's zero point", "the second operand's zero point")
    wrapped_operands: dict[int, Operand] = {}
    for position, (operand, name) in enumerate(zip(unit.operands, names, strict=False)):
        if operand.codes.dtype.kind not in "iu" or not np.any(operand.zero_point):
            continue
        for suspect, likely, zero_point in (
            (f"no zero point {position}", "is dropped", np.zeros_like(operand.zero_point)),
            (f"zero point {position} added", "is added, not subtracted", -operand.zero_point.astype(np.int32)),
        ):
            yield Suspect(
                name=suspect,
                pattern="constant_per_channel" if unit.kind in ("conv", "linear") else "constant",
                likely=f"{name} {likely}",
                unit=_with_operand(unit, position, replace(operand, zero_point=zero_point)),
            )
        wrapped = _wrapped_to_8_bits(operand)
        if wrapped is not None:
            wrapped_operands[position] = wrapped
            yield Suspect(
                name=f"wrapped {position}",
                pattern="growing",
                likely=f"the difference from {name} wraps around in 8 bits",
                unit=_with_operand(unit, position, wrapped),
            )
    if len(wrapped_operands) > 1:
        both = replace(unit, operands=(wrapped_operands[0], wrapped_operands[1], *unit.operands[2:]))
        likely = "the differences from the zero points of both operands wrap around in 8 bits"
        yield Suspect(name="wrapped both", pattern="growing", likely=likely, unit=both)
    yield from _zero_points_off_by_one(unit)
    yield from _swapped_zero_points(unit)
    zero = unit.out.zero_point
    if unit.out.dtype.kind in "iu" and np.any(zero):
        bare_out = replace(unit.out, zero_point=np.zeros_like(zero))
        yield Suspect(
            name="no output zero point",
            pattern="constant",
            likely="the output's zero point is not added",
            unit=replace(unit, out=bare_out),
        )


def _swapped_zero_points(unit: Unit) -> Iterator[Suspect]:
    """Yield the mistake of swapping the zero points of a product's operands."""
    if unit.kind not in ("conv", "linear") or len(unit.operands) != len(("first", "second")):
        return
    zeros = [np.asarray(operand.zero_point, np.int32) for operand in unit.operands]
    if all(zero.size == 1 for zero in zeros) and zeros[0].reshape(-1)[0] != zeros[1].reshape(-1)[0]:
        operands = tuple(
            replace(operand, zero_point=zero.reshape(operand.zero_point.shape))
            for operand, zero in zip(unit.operands, zeros[::-1], strict=True)
        )
        likely = "the operands' zero points are swapped"
        exchanged = replace(unit, operands=operands)
        yield Suspect(name="exchanged zero points", pattern="constant_per_channel", likely=likely, unit=exchanged)


def _early_zero_point_mistakes(unit: Unit) -> Iterator[Suspect]:
    """Yield the mistake of adding the output's zero point to the sums, so that it gets scaled as well."""
    zero = unit.out.zero_point
    is_integer_bias = unit.bias is None or (unit.bias.dtype.kind in "iu" and unit.bias_scale is None)
    if unit.kind not in ("conv", "linear") or not is_integer_bias or zero.size > 1 or not np.any(zero):
        return
    weight = unit.operands[1].codes
    count = weight.shape[1] * unit.groups if unit.transposed else weight.shape[0 if unit.kind == "conv" else -1]
    bias = (np.zeros(count, np.int32) if unit.bias is None else unit.bias) + zero.astype(np.int32).reshape(())
    yield Suspect(
        name="early zero point",
        pattern="constant",
        likely="the output's zero point is added before scaling",
        unit=replace(unit, bias=bias, out=replace(unit.out, zero_point=np.zeros_like(zero))),
    )


def _zero_points_off_by_one(unit: Unit) -> Iterator[Suspect]:
    """Yield zero points that are off by one, as from another rounding. Weights are left out: they usually have none."""
    sides = (("output", unit.out.dtype, unit.out.zero_point), ("first operand", None, unit.operands[0].zero_point))
    for name, dtype, zero_array in sides:
        code_dtype = np.dtype(dtype or unit.operands[0].codes.dtype)
        if code_dtype.kind not in "iu" or np.size(zero_array) != 1:
            continue
        zero_point = int(np.asarray(zero_array).reshape(-1)[0])
        for value in (zero_point - 1, zero_point + 1):
            if not np.iinfo(code_dtype).min <= value <= np.iinfo(code_dtype).max:
                continue
            neighbour = np.full_like(zero_array, value)
            mistaken_unit = (
                replace(unit, out=replace(unit.out, zero_point=neighbour))
                if dtype is not None
                else _with_operand(unit, 0, replace(unit.operands[0], zero_point=neighbour))
            )
            yield Suspect(
                name=f"{name} zero point {value - zero_point:+d}",
                pattern="constant",
                likely=f"the {name}'s zero point is {value}, not {zero_point}",
                unit=mistaken_unit,
            )


def _wrapped_to_8_bits(operand: Operand) -> Operand | None:
    """Return an operand whose codes minus zero point wrap around in 8 bits, or None if they fit."""
    if operand.codes.dtype.itemsize > 1:
        return None
    centred = operand.centred
    wrapped_codes = centred.astype(np.int8)
    if np.array_equal(wrapped_codes, centred):
        return None
    return replace(operand, codes=wrapped_codes, zero_point=np.zeros(np.shape(operand.zero_point), np.int8))


def _scale_mistakes(unit: Unit) -> Iterator[Suspect]:
    yield from _unrescaled_concatenations(unit)
    yield from _confused_operand_parameters(unit)
    yield from _requantization_mistakes(unit)
    for position, operand in enumerate(unit.operands):
        scale = operand.scale
        if np.unique(scale).size < 2:
            continue
        flat = scale.reshape(-1)
        for name, mistaken, likely in (
            ("one scale", np.full_like(flat, flat[0]), "the first channel's scale is used for all channels"),
            ("mean scale", np.full_like(flat, flat.max()), "the largest channel's scale is used for all channels"),
            ("moved scale", np.roll(flat, 1), "the scales are shifted by one channel"),
            ("scale moved back", np.roll(flat, -1), "each channel has the scale of the next channel"),
            ("turned scale", flat[::-1], "the scales are read in reverse order"),
            *_scales_confused_with_groups(unit, flat),
            *_scales_reused_cyclically(flat),
        ):
            mistaken_operand = replace(operand, scale=mistaken.reshape(scale.shape).copy())
            yield Suspect(
                name=f"{name} {position}",
                pattern="factor_per_channel",
                likely=likely,
                unit=_with_operand(unit, position, mistaken_operand),
            )


def _scales_reused_cyclically(scales: np.ndarray) -> Iterator[tuple[str, np.ndarray, str]]:
    """Yield mistakes in which only the first scales, as many as a kernel holds at once, are used over and over."""
    for count in (block for block in KERNEL_BLOCKS if block < scales.size):
        yield (
            f"scale modulo {count}",
            np.resize(scales[:count], scales.size),
            f"the first {count} scales are used cyclically",
        )


def _scales_confused_with_groups(unit: Unit, scales: np.ndarray) -> Iterator[tuple[str, np.ndarray, str]]:
    """Yield mistakes in which per-channel scales are indexed by group, or those of the first group are repeated."""
    groups = unit.groups
    if unit.kind != "conv" or groups < _MIN_GROUPS or scales.size % groups or scales.size == groups:
        return
    group_size = scales.size // groups
    yield "group scale", np.repeat(scales[:groups], group_size), "the scales are indexed by group, not by channel"
    yield "same scales", np.tile(scales[:group_size], groups), "the scales of the first group are used for all groups"


_MIN_GROUPS = 2
"""Minimum number of groups that can be confused."""


def _requantization_mistakes(unit: Unit) -> Iterator[Suspect]:
    """Yield mistakes in which the result has the scale or zero point of the operand, or both."""
    if len(unit.operands) != 1 or unit.out.dtype != unit.operands[0].codes.dtype or unit.out.dtype.kind not in "iu":
        return
    out, operand = unit.out, unit.operands[0]
    if out.scale.size != 1 or operand.scale.size != 1:
        return
    scale, zero = operand.scale.reshape(out.scale.shape), np.reshape(operand.zero_point, np.shape(out.zero_point))
    for name, mistaken_fields in (
        ("scale and zero point", {"scale": scale, "zero_point": zero}),
        ("scale", {"scale": scale}),
        ("zero point", {"zero_point": zero}),
    ):
        mistaken = replace(out, **mistaken_fields)
        if not any(np.array_equal(getattr(out, key), value) for key, value in mistaken_fields.items()):
            likely = f"the result has the {name} of the operand, not of the output"
            yield Suspect(name=f"own {name}", pattern="factor", likely=likely, unit=replace(unit, out=mistaken))


def _unrescaled_concatenations(unit: Unit) -> Iterator[Suspect]:
    """Yield concatenations in which one operand, or all, keep their codes although the output has another scale."""
    out = unit.out
    if unit.kind != "concat" or out.scale.size != 1:
        return
    for position in (*range(len(unit.operands)), None):
        chosen = range(len(unit.operands)) if position is None else (position,)
        operands = tuple(
            replace(operand, scale=out.scale.reshape(1), zero_point=out.zero_point.astype(operand.zero_point.dtype))
            if at in chosen
            else operand
            for at, operand in enumerate(unit.operands)
        )
        title = "all operands" if position is None else f"operand {position}"
        likely = f"the codes of {title} are passed on unchanged, not rescaled to the output's scale and zero point"
        yield Suspect(name=f"codes of {title}", pattern="factor", likely=likely, unit=replace(unit, operands=operands))


def _confused_operand_parameters(unit: Unit) -> Iterator[Suspect]:
    """Yield operands with swapped or shared scales and zero points. Products are left out: they do not reveal this."""
    scales = [operand.scale for operand in unit.operands]
    if unit.kind not in ("add", "sub", "div", "concat") or len(scales) < 2 or any(scale.size > 1 for scale in scales):
        return
    if len({float(scale.reshape(-1)[0]) for scale in scales}) == 1:
        return
    zeros = [operand.zero_point for operand in unit.operands]
    dtypes = {zero.dtype for zero in zeros}
    for name, numbers, likely in (
        ("first numbers", list(zip(scales, zeros, strict=True))[:1] * len(scales), "the first operand's"),
        ("last numbers", list(zip(scales, zeros, strict=True))[-1:] * len(scales), "the last operand's"),
        ("swapped numbers", list(zip(scales, zeros, strict=True))[::-1], "swapped"),
    ):
        if len({int(np.reshape(zero, -1)[0]) for zero in zeros}) == 1 or len(dtypes) > 1:
            break  # zero points are equal, or cannot be exchanged, so only the scales are
        operands = tuple(
            replace(operand, scale=scale, zero_point=zero)
            for operand, (scale, zero) in zip(unit.operands, numbers, strict=True)
        )
        words = f"{likely} scale and zero point are used for all operands"
        if likely == "swapped":
            words = "the operands' scales and zero points are swapped"
        yield Suspect(name=name, pattern="factor", likely=words, unit=replace(unit, operands=operands))
    for name, mistaken, likely in (
        ("first scale", scales[:1] * len(scales), "the first operand's scale is used for all operands"),
        ("last scale", scales[-1:] * len(scales), "the last operand's scale is used for all operands"),
        ("swapped scales", scales[::-1], "the operands' scales are swapped"),
    ):
        operands = tuple(replace(operand, scale=scale) for operand, scale in zip(unit.operands, mistaken, strict=True))
        yield Suspect(name=name, pattern="factor", likely=likely, unit=replace(unit, operands=operands))


def _convention_mistakes(unit: Unit) -> Iterator[Suspect]:
    """Yield scales and zero points in other conventions: offsets that are added, or reciprocal scales."""
    sides = [operand for operand in unit.operands if operand.codes.dtype.kind in "iu"]
    if any(np.any(side.zero_point) for side in sides) or (unit.out.dtype.kind in "iu" and np.any(unit.out.zero_point)):
        negated = tuple(replace(side, zero_point=-side.zero_point.astype(np.int32)) for side in unit.operands)
        out = replace(unit.out, zero_point=-np.asarray(unit.out.zero_point, np.int32))
        likely = "the zero points have the opposite sign, like offsets that are added to the codes"
        yield Suspect(name="offsets", pattern="constant", likely=likely, unit=replace(unit, operands=negated, out=out))
    for position, (operand, name) in enumerate(zip(unit.operands, ("first", "second"), strict=False)):
        if np.all(operand.scale > 1):
            yield Suspect(
                name=f"reciprocal {position}",
                pattern="factor",
                likely=f"the {name} operand's scale is the reciprocal of what it should be",
                unit=_with_operand(unit, position, replace(operand, scale=np.asarray(1 / operand.scale))),
            )
    if np.all(unit.out.scale > 1):
        reciprocal = replace(unit.out, scale=np.asarray(1 / unit.out.scale))
        likely = "the output's scale is the reciprocal of what it should be"
        yield Suspect(name="reciprocal output", pattern="factor", likely=likely, unit=replace(unit, out=reciprocal))


def _padding_mistakes(unit: Unit) -> Iterator[Suspect]:
    call = Call(inputs=(), attrs=unit.attrs)
    counts_padding = unit.kind == "average_pool" and call.integer("count_include_pad") and not call.integer("ceil_mode")
    pads = call.integers("pads") or ()
    if not any(pads) or not (counts_padding or (unit.kind == "conv" and not unit.transposed)):
        return
    x = unit.operands[0]
    half = len(pads) // 2
    extents = [(0, 0), (0, 0), *zip(pads[:half], pads[half:], strict=True)]
    no_pads: tuple[int, ...] = (0,) * len(pads)
    if np.any(x.zero_point):
        padded = replace(x, codes=np.pad(x.codes, extents))
        yield Suspect(
            name="zero padding",
            pattern="borders",
            likely="the padding is code 0 instead of the zero point",
            unit=replace(_with_operand(unit, 0, padded), attrs={**unit.attrs, "pads": no_pads}),
        )
    edge_padded = replace(x, codes=np.pad(x.codes, extents, mode="edge"))
    yield Suspect(
        name="edge padding",
        pattern="borders",
        likely="the padding repeats the outermost values",
        unit=replace(_with_operand(unit, 0, edge_padded), attrs={**unit.attrs, "pads": no_pads}),
    )
    yield from _shifted_padding(unit, pads)


def _dilation_mistakes(unit: Unit) -> Iterator[Suspect]:
    """Yield mistakes in which dilations are ignored or confused."""
    if unit.kind != "conv" or unit.transposed:
        return
    for number, (likely, attrs) in enumerate(other_dilations(unit.attrs, unit.operands[1].codes.shape[2:])):
        yield Suspect(name=f"dilations {number}", pattern="scattered", likely=likely, unit=replace(unit, attrs=attrs))


def _shifted_padding(unit: Unit, pads: Sequence[int]) -> Iterator[Suspect]:
    """Yield paddings with the same total per axis, but distributed differently between begin and end."""
    half = len(pads) // 2
    sums = [begin + end for begin, end in zip(pads[:half], pads[half:], strict=True)]
    for name, begins in (("end", [0] * half), ("start", sums), ("swapped", list(pads[half:]))):
        shifted = (*begins, *(total - begin for total, begin in zip(sums, begins, strict=True)))
        if shifted != tuple(pads):
            yield Suspect(
                name=f"padding {name}",
                pattern="borders",
                likely=f"the padding is {list(shifted)}, not {list(pads)}",
                unit=replace(unit, attrs={**unit.attrs, "pads": shifted}),
            )


def _sign_mistakes(unit: Unit) -> Iterator[Suspect]:
    """Yield mistakes of signedness: bits are read as the other type, or codes are off by half their range."""
    for position, (operand, name) in enumerate(zip(unit.operands, ("first", "second"), strict=False)):
        dtype = operand.codes.dtype
        if dtype.kind not in "iu":
            continue
        other_dtype = np.dtype(f"{'i' if dtype.kind == 'u' else 'u'}{dtype.itemsize}")
        zero_point = operand.zero_point.astype(np.int32)
        shift_text = f"the {name} operand's codes are off by half their range: {other_dtype} read as {dtype}"
        for mistake_kind, codes, likely in (
            ("read", operand.codes.view(other_dtype), f"the {name} operand's {dtype} codes are read as {other_dtype}"),
            ("moved", flip_sign_bit(operand.codes), shift_text),
        ):
            mistaken = replace(operand, codes=codes, zero_point=zero_point)
            yield Suspect(
                name=f"sign {mistake_kind} {position}",
                pattern="signedness",
                likely=likely,
                unit=_with_operand(unit, position, mistaken),
            )
    if unit.out.dtype.kind in "iu":
        likely = "the signedness of the recorded output contradicts its quantization"
        yield Suspect(name="output sign", pattern="signedness", likely=likely, unit=unit, has_opposite_signedness=True)


def _table_mistakes(unit: Unit) -> Iterator[Suspect]:
    """Yield lookup tables that are read one code off on one side of real 0, and tables of other functions."""
    if unit.kind != "lookup" or unit.operands[0].codes.dtype.kind not in "iu":
        return
    operand = unit.operands[0]
    codes, zero = operand.codes.astype(np.int64), operand.zero_point.astype(np.int64)
    low, high = integer_limits(operand.codes.dtype)
    for is_on_side, side_text in ((codes > zero, " for codes above real 0"), (codes < zero, " for codes below real 0")):
        for step, direction in ((-1, "before"), (1, "after")):
            shifted_codes = codes + step * is_on_side
            table_codes = np.clip(shifted_codes, low, high).astype(operand.codes.dtype)
            yield Suspect(
                name=f"table {direction}{side_text}",
                pattern="scattered",
                likely=f"the table is read one code {direction} the right one{side_text}",
                unit=_with_operand(unit, 0, replace(operand, codes=table_codes)),
            )
    for function in sorted(operators.confusable_functions(unit.function)):
        yield Suspect(
            name=f"table of {function}",
            pattern="scattered",
            likely=f"it computes {function}, not {unit.function}",
            unit=replace(unit, function=function, attrs={}, domain=""),
        )


def flip_sign_bit(codes: np.ndarray) -> np.ndarray:
    """Flip the highest bit of codes, which maps signed codes to unsigned codes in the same order, and back."""
    unsigned = codes.view(np.dtype(f"u{codes.dtype.itemsize}"))
    top = unsigned.dtype.type(1 << (8 * codes.dtype.itemsize - 1))
    return np.asarray((unsigned ^ top).view(codes.dtype))


def _filter_layout_mistakes(unit: Unit) -> Iterator[Suspect]:
    """Yield mistakes in which filters are transposed or mirrored."""
    if unit.kind != "conv" or unit.operands[1].codes.ndim != 4:
        return
    weight = unit.operands[1]
    for name, codes, likely in (
        ("turned kernel", np.swapaxes(weight.codes, 2, 3), "rows and columns of the filters are swapped"),
        ("mirrored kernel", weight.codes[:, :, ::-1, ::-1], "the filters are mirrored, as in a true convolution"),
    ):
        if codes.shape == weight.codes.shape and not np.array_equal(codes, weight.codes):
            yield Suspect(
                name=name, pattern="scattered", likely=likely, unit=_with_operand(unit, 1, replace(weight, codes=codes))
            )


def _sum_width_mistakes(unit: Unit) -> Iterator[Suspect]:
    """Yield mistakes in which sums of products are kept in 16 bits."""
    if unit.kind not in ("conv", "linear") or unit.transposed or count_products(unit) > SEQUENTIAL_SUMS_MAX_PRODUCTS:
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
    for order, order_text in orders:
        likely = f"the sums saturate at 16 bits after each product{order_text}"
        name = f"sums saturate {order}"
        yield Suspect(name=name, pattern="growing", likely=likely, unit=unit, accumulate=f"sat16:{order}")


def _narrow_pool_mistakes(unit: Unit) -> Iterator[Suspect]:
    """Yield mistakes in which the sum of codes in an average is kept in 16 bits, which a large window exceeds."""
    if unit.kind not in _INTEGER_MEANS or unit.operands[0].codes.dtype.itemsize > 1:
        return
    for number, text in enumerate(_INTEGER_MEANS[unit.kind]):
        for accumulate_text, verb in (("wrap16", "wraps around"), ("sat16", "saturates")):
            yield Suspect(
                name=f"sum of window {accumulate_text} {number}",
                pattern="growing",
                likely=f"the sum over a window {verb} in 16 bits",
                unit=unit,
                accumulate=accumulate_text,
                arithmetic=parse_variant(text),
            )


_INTEGER_MEANS = {
    "average_pool": ("form=raw m=q31 steps=avg.away,sat", "m=f32:x/(y*n)"),
    "global_average_pool": ("m=f32:x/(y*n)",),
    "reduce_mean": ("m=f32:x/(y*n)",),
}
"""Variants of averages that sum codes, by kind."""


def _with_operand(unit: Unit, position: int, operand: Operand) -> Unit:
    operands = list(unit.operands)
    operands[position] = operand
    return replace(unit, operands=tuple(operands))
