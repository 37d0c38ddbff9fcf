"""Known mistakes with zero points of kernels on codes, and with the sums that take their place in products.

A product of codes with zero points is usually computed as x w - zx sum(w) - zw sum(x) + K zx zw, where K is the number
of terms (Jacob et al., "Quantization and Training of Neural Networks", 2018, section 2.3). Begin at
`zero_point_suspects`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from qdebug.arithmetic.suspect import Suspect, with_operand
from qdebug.model.thresholds.patterns import KERNEL_BLOCKS
from qdebug.replay.unit import Operand, Unit

__all__ = ["zero_point_suspects"]


def zero_point_suspects(unit: Unit) -> Iterator[Suspect]:
    """Yield the mistakes that a kernel could make with the zero points of a unit.

    Args:
        unit: The unit.
    """
    yield from _wrong_zero_points(unit)
    yield from _zero_points_of_other_channels(unit)
    yield from _wrong_corrections(unit)
    yield from _early_zero_point_mistakes(unit)


def _wrong_zero_points(unit: Unit) -> Iterator[Suspect]:
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
                unit=with_operand(unit, position, replace(operand, zero_point=zero_point)),
            )
        wrapped = _wrapped_to_8_bits(operand)
        if wrapped is not None:
            wrapped_operands[position] = wrapped
            yield Suspect(
                name=f"wrapped {position}",
                pattern="growing",
                likely=f"the difference from {name} wraps around in 8 bits",
                unit=with_operand(unit, position, wrapped),
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
                else with_operand(unit, 0, replace(unit.operands[0], zero_point=neighbour))
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


def _zero_points_of_other_channels(unit: Unit) -> Iterator[Suspect]:
    """Yield mistakes in which channels have the zero points of other channels."""
    for position, operand in enumerate(unit.operands):
        zero = operand.zero_point
        if np.unique(zero).size == 1 or not zero.size:
            continue
        flat = zero.reshape(-1)
        for name, mistaken, likely in (
            (
                "first zero point",
                np.full_like(flat, flat[0]),
                "the first channel's zero point is used for all channels",
            ),
            ("moved zero point", np.roll(flat, 1), "the zero points are shifted by one channel"),
            ("zero point moved back", np.roll(flat, -1), "each channel has the zero point of the next channel"),
        ):
            yield Suspect(
                name=f"{name} {position}",
                pattern="constant_per_channel",
                likely=likely,
                unit=with_operand(unit, position, replace(operand, zero_point=mistaken.reshape(zero.shape).copy())),
            )


def _wrong_corrections(unit: Unit) -> Iterator[Suspect]:
    """Yield mistakes in the terms of a product that the zero points add to the sum of the products of codes."""
    if unit.kind not in ("conv", "linear") or unit.transposed or len(unit.operands) != len(("x", "w")):
        return
    data, weight = unit.operands
    is_integer_bias = unit.bias is None or (unit.bias.dtype.kind in "iu" and unit.bias_scale is None)
    codes = weight.codes.astype(np.int64)
    filters = codes.reshape(len(codes), -1) if unit.kind == "conv" else codes.T
    if data.codes.dtype.kind not in "iu" or data.zero_point.size != 1 or not is_integer_bias or filters.ndim != 2:
        return
    zero = int(data.zero_point.reshape(-1)[0])
    weight_zeros = np.broadcast_to(weight.zero_point.reshape(-1).astype(np.int64), len(filters))
    own_bias = np.zeros(len(filters), np.int64) if unit.bias is None else unit.bias.astype(np.int64)
    if own_bias.shape != (len(filters),):
        return
    for name, likely, extra in _extra_terms(filters, zero, weight_zeros):
        if np.any(extra):
            changed = np.clip(own_bias + extra, -(2**31), 2**31 - 1).astype(np.int32)
            yield Suspect(name=name, pattern="constant_per_channel", likely=likely, unit=replace(unit, bias=changed))


def _extra_terms(filters: np.ndarray, zero: int, weight_zeros: np.ndarray) -> Iterator[tuple[str, str, np.ndarray]]:
    """Yield what wrong corrections add to the sums of each channel: name, words and integers.

    Args:
        filters: The codes of the weights, (channels, terms of a sum).
        zero: The zero point of the first operand.
        weight_zeros: The zero point of each channel's weights.
    """
    product = filters.shape[1] * zero * weight_zeros
    yield "no product of zeros", "the product of both zero points, once for each term of a sum, is not added", -product
    yield "two products of zeros", "the product of both zero points is added twice for each term of a sum", product
    sums = filters.sum(1)
    text = "the correction for the first operand's zero point is {}"
    for name, likely, other in (
        ("next", "that of the next channel", np.roll(sums, -1)),
        ("previous", "that of the previous channel", np.roll(sums, 1)),
        ("first", "that of the first channel in all channels", np.full_like(sums, sums[0])),
        ("twofold", "subtracted twice", 2 * sums),
        ("magnitudes", "computed from the weights without their signs", np.abs(filters).sum(1)),
    ):
        yield f"{name} correction", text.format(likely), zero * (sums - other)
    for tile in KERNEL_BLOCKS:
        rest = filters.shape[1] % tile
        if 0 < rest < filters.shape[1]:
            likely = text.format(f"computed without the last {rest} weights, the rest of blocks of {tile}")
            yield f"correction without rest {tile}", likely, zero * filters[:, -rest:].sum(1)
