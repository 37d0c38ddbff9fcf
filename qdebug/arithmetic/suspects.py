"""Known kernel mistakes on codes, each as the unit that a kernel with the mistake computes.

If a mistake reproduces every recorded element, it is the likely cause, and more informative than any pattern of the
wrong elements. Begin at `suspects`. `qdebug.arithmetic.mistakes.known` contains the mistakes on real numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from qdebug.arithmetic.mistakes.known import other_dilations
from qdebug.arithmetic.patterns.wrong_places import layout_of
from qdebug.arithmetic.search import count_products
from qdebug.arithmetic.suspect import Suspect, with_operand
from qdebug.arithmetic.zero_point_suspects import zero_point_suspects
from qdebug.model import operators
from qdebug.model.thresholds.explanation import SEQUENTIAL_SUMS_MAX_PRODUCTS
from qdebug.model.thresholds.patterns import KERNEL_BLOCKS
from qdebug.replay.precision import integer_limits
from qdebug.replay.registry import Call
from qdebug.replay.unit import Unit
from qdebug.replay.variant import parse_variant

__all__ = ["flip_sign_bit", "suspects"]

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
    yield from zero_point_suspects(unit)
    yield from _scale_mistakes(unit)
    yield from _convention_mistakes(unit)
    yield from _padding_mistakes(unit)
    yield from _dilation_mistakes(unit)
    yield from _sign_mistakes(unit)
    yield from _narrowed_codes(unit)
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
                unit=with_operand(unit, position, mistaken_operand),
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
                unit=with_operand(unit, position, replace(operand, scale=np.asarray(1 / operand.scale))),
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
            unit=replace(with_operand(unit, 0, padded), attrs={**unit.attrs, "pads": no_pads}),
        )
    edge_padded = replace(x, codes=np.pad(x.codes, extents, mode="edge"))
    yield Suspect(
        name="edge padding",
        pattern="borders",
        likely="the padding repeats the outermost values",
        unit=replace(with_operand(unit, 0, edge_padded), attrs={**unit.attrs, "pads": no_pads}),
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
                unit=with_operand(unit, position, mistaken),
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
                unit=with_operand(unit, 0, replace(operand, codes=table_codes)),
            )
    for function in sorted(operators.confusable_functions(unit.function)):
        yield Suspect(
            name=f"table of {function}",
            pattern="scattered",
            likely=f"it computes {function}, not {unit.function}",
            unit=replace(unit, function=function, attrs={}, domain=""),
        )


def _narrowed_codes(unit: Unit) -> Iterator[Suspect]:
    """Yield mistakes in which codes of an operand are clipped to a narrower range or lose their lowest bit."""
    for position, (operand, name) in enumerate(zip(unit.operands, ("first", "second"), strict=False)):
        codes = operand.codes
        if codes.dtype.kind not in "iu" or not codes.size:
            continue
        ends = np.iinfo(codes.dtype)
        ranges = [(max(-ends.max, ends.min), ends.max), (ends.min // 2, ends.max // 2)]
        narrowed = {
            f"are clipped to {low} to {high}": np.clip(codes, low, high).astype(codes.dtype) for low, high in ranges
        }
        narrowed["lose their lowest bit"] = codes & codes.dtype.type(-2 if codes.dtype.kind == "i" else ends.max - 1)
        for text, other in narrowed.items():
            if not np.array_equal(other, codes):
                yield Suspect(
                    name=f"{text} {position}",
                    pattern="scattered",
                    likely=f"the {name} operand's codes {text}",
                    unit=with_operand(unit, position, replace(operand, codes=other)),
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
                name=name, pattern="scattered", likely=likely, unit=with_operand(unit, 1, replace(weight, codes=codes))
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
