"""Known mistakes of kernels that unpack low-bit weights. Begin at `packed_mistakes`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import ml_dtypes
import numpy as np

from qdebug.arithmetic.mistakes.mistake import Mistake, without_inputs
from qdebug.model import Node, operators

__all__ = ["packed_mistakes"]


def packed_mistakes(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield the mistakes that a kernel could make in unpacking codes and applying their scales and zero points.

    Args:
        node: The node's real form.
        values: Its inputs.
    """
    packed = operators.of(node.op).packed
    slots = packed.inputs[1:] if packed else (1, 2) if node.attrs.get("block_size") else ()
    names = [node.inputs[slot] for slot in slots if slot < len(node.inputs) and node.inputs[slot]]
    yield from _wrong_packed_zero_points(node, values)
    yield from _misread_packed_codes(node, values)
    yield from _wrong_row_pitches(node, values)
    yield from _wrong_signedness(node, values)
    yield from _wrong_float_formats(node, values)
    yield from _misread_scales(node, names[:1], values)
    for name in names[:1]:
        for shift, side in ((1, "previous"), (-1, "next")):
            moved = np.roll(values[name], shift, -1)
            if values[name].ndim and not np.array_equal(moved, values[name]):
                yield Mistake(likely=f"the scale of the {side} block is used", node=node, values={name: moved})
        columns = node.attrs.get("N")
        rows = values[name].reshape(columns, -1).copy() if isinstance(columns, int) and columns else np.zeros((0, 0))
        if rows.shape[-1] > 1:
            rows[:, -1] = rows[:, -2]
            likely = "the last block of each row has the scale of the previous block"
            yield Mistake(likely=likely, node=node, values={name: rows.reshape(values[name].shape)})


def _wrong_packed_zero_points(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which the zero points of a packed weight are ignored, off by one, or not the default."""
    packed = operators.of(node.op).packed
    if packed is None or packed.layout != "columns" or len(packed.inputs) < 3:
        return
    slot = packed.inputs[2]
    if slot < len(node.inputs) and node.inputs[slot]:
        yield Mistake(likely="the zero points of the weight are ignored", node=without_inputs(node, slot), values={})
        yield from _shifted_packed_zero_points(node, node.inputs[slot], values)
        yield from _misread_packed_zero_points(node, node.inputs[slot], values)
        return
    inputs = (*node.inputs, *[""] * (slot + 1 - len(node.inputs)))
    name = f"{node.name} zero points"
    shifted = replace(node, inputs=(*inputs[:slot], name, *inputs[slot + 1 :]))
    bits = node.attrs.get("bits", 4)
    usual = 2 ** (bits - 1) if isinstance(bits, int) else 8
    readings = {
        0: "is not subtracted",
        usual - 1: f"is {usual - 1}, not {usual}",
        usual + 1: f"is {usual + 1}, not {usual}",
    }
    for zero, words in readings.items():
        zeros = np.full(values[node.inputs[slot - 1]].shape, zero, np.float32)  # one zero point per scale
        yield Mistake(likely=f"the zero point of the weight {words}", node=shifted, values={name: zeros})


def _shifted_packed_zero_points(node: Node, name: str, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield zero points that are off by 1, as between two file versions of a quantizer."""
    packed, bits = values[name], node.attrs.get("bits", 4)
    if packed.dtype != np.uint8 or not isinstance(bits, int) or bits not in (2, 4, 8):
        return
    lanes = np.arange(0, 8, bits, dtype=np.uint8)
    zeros = (packed[..., None] >> lanes) & np.uint8(2**bits - 1)
    for step, word in ((1, "too large"), (-1, "too small")):
        shifted = np.mod(zeros.astype(np.int16) + step, 2**bits).astype(np.uint8)
        repacked = (shifted << lanes).sum(-1, dtype=np.uint8)
        likely = f"the zero points of the weight are 1 {word}"
        yield Mistake(likely=likely, node=node, values={name: repacked}, about="zero point")


def _misread_scales(node: Node, names: Sequence[str], values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield scales that are read in another 16-bit float format."""
    for name in names:
        scale = values[name]
        for dtype in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)):
            is_other = scale.dtype != dtype and scale.dtype in (np.float32, np.float16, ml_dtypes.bfloat16)
            other = (
                scale.reshape(-1).view(dtype)[: scale.size].reshape(scale.shape) if is_other and scale.size else scale
            )
            if is_other and np.isfinite(other.astype(np.float32)).all():
                likely = f"the scales {name!r} are read as {dtype.name}, not {scale.dtype.name}"
                yield Mistake(likely=likely, node=node, values={name: other.astype(scale.dtype)})


def _misread_packed_zero_points(node: Node, name: str, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield zero points that are read as other numbers, in another order, or with another row pitch.

    Numbers of more bits than the packed ones are read beyond the end of the array. What lies there is unknown: 0, or
    any number, so that only the first columns of the result are determined. (https://github.com/ROCm/hip-ep/pull/967)
    """
    packed, bits = values[name], node.attrs.get("bits", 4)
    terms, columns, block = (node.attrs.get(key) for key in ("K", "N", "block_size"))
    if packed.dtype != np.uint8 or not (isinstance(terms, int) and isinstance(columns, int) and isinstance(block, int)):
        return
    blocks, of_weight = -(-terms // block), f"the packed zero points {name!r}"
    count, memory = columns * blocks, packed.reshape(-1)
    for dtype in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32), np.dtype(np.uint8)):
        own = memory[: memory.size // dtype.itemsize * dtype.itemsize].view(dtype).astype(np.float32)[:count]
        zeros = np.append(own, np.zeros(count - own.size, np.float32)).reshape(columns, blocks)
        if not np.isfinite(zeros).all():
            continue
        likely = f"{of_weight} are read as {dtype.name}, one for each block"
        yield Mistake(likely=likely, node=node, values={name: zeros}, about="zero point")
        if own.size < count and own.size // blocks:
            known = (..., slice(0, own.size // blocks))
            yield Mistake(likely=likely, node=node, values={name: zeros}, determined=known, about="zero point")
    if bits != _NIBBLE or memory.size != columns * -(-blocks // 2):
        return
    low, high = memory & 15, memory >> 4
    stream = np.stack([low, high], axis=-1).reshape(columns, -1)
    tight = stream.reshape(-1)[:count]
    others = {
        "have the two of each byte swapped": np.stack([high, low], axis=-1).reshape(columns, -1)[:, :blocks],
        "are read by block, then by column": stream[:, :blocks].reshape(blocks, columns).T,
        "are taken to be stored by block, then by column": stream[:, :blocks].T.reshape(columns, blocks),
        "are read in two's complement": ((stream ^ 8).astype(np.int16) - 8)[:, :blocks],
        "are read with rows that are not padded to whole bytes": tight.reshape(columns, blocks),
        "are those of the first block in each row": np.repeat(stream[:, :1], blocks, axis=1),
        "are those of the first column in all columns": np.repeat(stream[:1, :blocks], columns, axis=0),
    }
    for words, zeros in others.items():
        if not np.array_equal(zeros, stream[:, :blocks]):
            array = np.ascontiguousarray(zeros, np.float32)
            yield Mistake(likely=f"{of_weight} {words}", node=node, values={name: array}, about="zero point")


_NIBBLE = 4


def _misread_packed_codes(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which the codes of a packed weight are unpacked in another order or in two's complement."""
    packed = operators.of(node.op).packed
    name = node.inputs[packed.inputs[0]] if packed is not None else ""
    if packed is None or packed.layout != "columns" or node.attrs.get("bits", 4) != 4:
        return
    codes = values[name]
    if codes.dtype != np.uint8 or codes.ndim < 2 or codes.shape[-1] < 2:
        return
    low, high = codes & 15, codes >> 4
    halves = np.concatenate([low, high], axis=-1)
    evens = np.stack([low, high], axis=-1).reshape(*codes.shape[:-1], -1)
    for likely, order in (
        ("the two codes of each byte of {} are swapped", np.stack([high, low], axis=-1).reshape(evens.shape)),
        ("each block of {} is read as all low codes and then all high codes, not alternately", halves),
        (
            "the codes of each block of {} are read alternately, although its low codes come first",
            np.stack(np.split(evens, 2, axis=-1), axis=-1).reshape(evens.shape),
        ),
        ("the codes of {} are read in two's complement", evens ^ 8),
        ("the codes of {} are read in reverse order in each block", evens[..., ::-1]),
    ):
        repacked = (order[..., ::2] | (order[..., 1::2] << 4)).astype(np.uint8)
        yield Mistake(likely=likely.format(repr(name)), node=node, values={name: repacked})


def _wrong_signedness(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which unsigned codes are read in two's complement, or signed codes without their sign."""
    name = node.inputs[0] if operators.of(node.op).dequantizes and node.inputs else ""
    array = values.get(name)
    bits = None if array is None else _UNSIGNED_BITS.get(array.dtype.name)
    if array is not None and bits is not None:
        turned = (array.astype(np.uint8) ^ np.uint8(1 << bits - 1)).astype(array.dtype)
        likely = f"the codes of {name!r} are read in two's complement"
        yield Mistake(likely=likely, node=node, values={name: turned}, about=name)
    unsigned = None if array is None else _UNSIGNED_TYPES.get(array.dtype.name)
    if array is not None and unsigned is not None:
        codes = array.astype(np.int8).astype(np.uint8) & np.uint8(2 ** _UNSIGNED_BITS[unsigned.name] - 1)
        likely = f"the codes of {name!r} are read without their sign, as {unsigned.name}"
        yield Mistake(likely=likely, node=node, values={name: codes.astype(unsigned)}, about=name)


_UNSIGNED_TYPES = MappingProxyType({"int2": np.dtype(ml_dtypes.uint2), "int4": np.dtype(ml_dtypes.uint4)})
_UNSIGNED_BITS = MappingProxyType({"uint2": 2, "uint4": 4, "uint8": 8})


def _wrong_float_formats(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which 8-bit floats are read in another format, or their subnormal numbers are misread."""
    name = node.inputs[0] if operators.of(node.op).dequantizes and node.inputs else ""
    array = values.get(name)
    own = "" if array is None else array.dtype.name
    if array is None or own not in _FRACTION_BITS:
        return
    codes, real_values = array.view(np.uint8), array.astype(np.float32)
    for other in (each for each in _FRACTION_BITS if each != own):
        likely = f"the codes of {name!r} are read as {other}, not {own}"
        yield Mistake(likely=likely, node=node, values={name: codes.view(getattr(ml_dtypes, other))}, about=name)
    fraction_bits = _FRACTION_BITS[own]
    fraction, exponent = codes & (2**fraction_bits - 1), (codes & 127) >> fraction_bits
    smallest = np.array([2**fraction_bits], np.uint8).view(array.dtype).astype(np.float32)
    implicit = np.copysign(smallest / 2 * (1 + fraction / 2**fraction_bits), real_values)
    for words, subnormal in (
        ("with an implicit leading 1", np.where(fraction == 0, real_values, implicit)),
        ("with an implicit leading 1, and so is 0", implicit),
        ("as 0", np.zeros_like(real_values)),
    ):
        likely = f"subnormal numbers of {name!r} are read {words}"
        other_values = np.where(exponent == 0, subnormal, real_values).astype(np.float32)
        yield Mistake(likely=likely, node=node, values={name: other_values}, about=name)


_FRACTION_BITS = MappingProxyType({"float8_e4m3fn": 3, "float8_e4m3fnuz": 3, "float8_e5m2": 2, "float8_e5m2fnuz": 2})
"""Number of fraction bits of each 8-bit float format of ONNX."""


def _wrong_row_pitches(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which rows of a packed weight or its scales are read as if their last block had no padding."""
    packed = operators.of(node.op).packed
    terms, block, bits = (node.attrs.get(name) for name in ("K", "block_size", "bits"))
    if packed is None or packed.layout != "columns" or not isinstance(terms, int) or not isinstance(block, int):
        return
    blocks = -(-terms // block)
    names = [node.inputs[slot] for slot in packed.inputs if slot < len(node.inputs) and node.inputs[slot]]
    for name, pitch in zip(names, (terms * (bits if isinstance(bits, int) else 4) // 8, terms // block), strict=False):
        array = values[name]
        rows = array.size // max(blocks * (array.shape[-1] if name == names[0] else 1), 1)
        length = array.size // max(rows, 1)
        if not 0 < pitch < length or rows * length != array.size:
            continue
        memory = array.reshape(-1)
        moved = np.stack([memory[row * pitch : row * pitch + length] for row in range(rows)]).reshape(array.shape)
        unit = "bytes" if name == names[0] else "scales"
        likely = (
            f"the rows of {name!r} are read {pitch} {unit} apart, not {length}, as if the last block were not padded"
        )
        yield Mistake(likely=likely, node=node, values={name: moved})
