"""Unpack weights whose codes of a few bits are packed into bytes, with a scale per block. Begin at `blockwise_weight`.

The layouts are those of com.microsoft (onnxruntime, docs/ContribOperators.md). MatMulNBits stores its weight column by
column. Each column is split into blocks of `block_size` rows, packed lowest bits first. The zero points of a column's
blocks are packed in the same way. MatMulBnb4 stores indices into 16 levels, and GatherBlockQuantized a lookup table.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from qdebug.errors import KernelError
from qdebug.model import Node, operators
from qdebug.model.dtypes import logical_name

__all__ = [
    "blockwise_weight",
    "can_round_data",
    "max_rounding_errors",
    "packed_inputs",
    "round_in_blocks",
    "unpack_codes",
]

_INT8_ACCURACY_LEVEL = 4
"""Accuracy level at which data may be rounded to 8-bit codes."""
_LARGEST = 127


def can_round_data(node: Node) -> bool:
    """Return whether a node is a MatMulNBits that may round its data to 8-bit codes block by block.

    Its accuracy level permits it; whether it happens depends on the runtime and the CPU.
    """
    return operators.of(node.op).packed is not None and node.attrs.get("accuracy_level") == _INT8_ACCURACY_LEVEL


def round_in_blocks(x: np.ndarray, block: int) -> np.ndarray:
    """Quantize data to 8-bit codes, with each block's largest magnitude as code 127, and dequantize them again."""
    blocks = -(-x.shape[-1] // block)
    padded = np.zeros((*x.shape[:-1], blocks * block), np.float32)
    padded[..., : x.shape[-1]] = x
    parts = padded.reshape(*x.shape[:-1], blocks, block)
    largest = np.max(np.abs(parts), axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        codes = np.rint(parts * np.where(largest == 0, np.float32(0), np.float32(_LARGEST) / largest))
    return np.asarray((codes * (largest / np.float32(_LARGEST))).reshape(padded.shape)[..., : x.shape[-1]])


def packed_inputs(node: Node) -> tuple[str, ...]:
    """Return the names of the constants of a packed weight: codes, scales and zero points, if any."""
    packed = operators.of(node.op).packed
    positions = packed.inputs if packed else ()
    return tuple(
        node.inputs[position] for position in positions if position < len(node.inputs) and node.inputs[position]
    )


def blockwise_weight(node: Node, values: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Unpack the weight of a matrix product or of a table lookup.

    Args:
        node: A node whose operator packs its weight.
        values: Its constants by name.

    Returns:
        Codes minus their zero point, or levels, and their scales, both as float32: shaped [K, N] like the weight for a
        product, shaped like the table for a lookup.

    Raises:
        KernelError: The constants do not match the attributes, or columns are grouped by an index.
    """
    row = operators.of(node.op).packed
    required = () if row is None else row.inputs[:2]
    is_complete = all(position < len(node.inputs) and node.inputs[position] for position in required)
    if not is_complete or any(name not in values for name in packed_inputs(node)):
        raise KernelError(f"Node {node.name!r} has a weight, a scale or a zero point without values.")
    return _READERS[_layout(node)](node, values)


def _layout(node: Node) -> str:
    packed = operators.of(node.op).packed
    return packed.layout if packed else ""


def max_rounding_errors(node: Node, codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Return the maximum rounding error of each element of a packed weight.

    Args:
        node: The node.
        codes: Codes or levels, from `blockwise_weight`.
        scales: Their scales.
    """
    if _layout(node) == "levels":
        return np.asarray(np.abs(scales) * _half_gaps(_levels(node))[np.searchsorted(np.sort(_levels(node)), codes)])
    half = np.abs(scales) / 2
    # Without zero points there is one more negative code than positive ones. A value at the highest code may therefore
    # have been clipped, with an error of up to one step.
    if len(packed_inputs(node)) < 3:
        half = np.where(codes == np.max(-codes, initial=1) - 1, 2 * half, half)
    return np.asarray(half)


def _half_gaps(levels: np.ndarray) -> np.ndarray:
    """Return, for each level in ascending order, half the wider of the gaps to its neighbours."""
    ordered = np.sort(levels)
    gaps = np.diff(ordered)
    return np.asarray(np.maximum(np.append(gaps, 0), np.insert(gaps, 0, 0)) / 2, np.float32)


def _unpack_columns(node: Node, values: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Unpack the weight of a MatMulNBits."""
    rows, columns, block = (_extent(node, name) for name in ("K", "N", "block_size"))
    names = (*node.inputs, "", "")
    if len(node.inputs) > 4 and names[4]:
        raise KernelError(f"Node {node.name!r} groups its rows by an index, which qdebug does not support.")
    blocks = -(-rows // block)
    bits = _extent(node, "bits")
    packed, scale = values[names[1]], values[names[2]]
    if bits not in (1, 2, 4, 8) or packed.dtype != np.uint8 or scale.size != columns * blocks:
        raise KernelError(f"Node {node.name!r} has a weight of {packed.shape} and {scale.size} scales.")
    codes = unpack_codes(packed.reshape(columns, -1), bits)
    if codes.shape[1] < blocks * block:
        raise KernelError(f"Node {node.name!r} has {codes.shape[1]} codes per column; expected {blocks * block}.")
    # Packed as [columns, blocks, block] with each column padded to whole blocks (ContribOperators.md, MatMulNBits).
    codes = codes[:, : blocks * block].reshape(columns, blocks, block)
    centred = codes.astype(np.float32) - _zero_points(node, values.get(names[3]), (columns, blocks), bits)[..., None]
    scales = np.broadcast_to(scale.astype(np.float32).reshape(columns, blocks, 1), centred.shape)
    flat = (array.reshape(columns, -1)[:, :rows].T for array in (centred, scales))
    return next(flat), next(flat)


_FP4 = (0.0, 5.208333333e-03, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
_NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
"""The 16 levels of 4-bit codes. Source: onnxruntime, blockwise_quant_block_bnb4.h; Dettmers et al. 2023, QLoRA."""
_LEVELS = tuple(np.array(levels, np.float32) for levels in ((*_FP4, *(-level for level in _FP4)), _NF4))


def _levels(node: Node) -> np.ndarray:
    kind = node.attrs.get("quant_type")
    if kind not in (0, 1):
        raise KernelError(f"Node {node.name!r} has quant_type {kind!r}; expected 0 (FP4) or 1 (NF4).")
    return _LEVELS[int(kind)]


def _unpack_levels(node: Node, values: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Unpack the weight of a MatMulBnb4: 4-bit levels, two per byte with the first in the high bits.

    Blocks of the transposed weight, each scaled by its largest magnitude, may cross row ends. Source: onnxruntime,
    DequantizeBlockBnb4 (blockwise_quant_block_bnb4.h).
    """
    rows, columns, block = (_extent(node, name) for name in ("K", "N", "block_size"))
    if not node.attrs.get("transB", 1):
        raise KernelError(
            f"Node {node.name!r} does not store its weight transposed; qdebug supports only transposed weights."
        )
    packed, largest = values[node.inputs[1]].reshape(-1), values[node.inputs[2]].reshape(-1)
    count = rows * columns
    if packed.dtype != np.uint8 or largest.size != -(-count // block):
        raise KernelError(f"Node {node.name!r} has a weight of {packed.dtype} and {largest.size} scales.")
    codes = np.stack([packed >> 4, packed & np.uint8(15)], axis=-1).reshape(-1)[:count]
    if codes.size < count:
        raise KernelError(f"Node {node.name!r} has {codes.size} codes; expected {count}.")
    scales = np.repeat(largest.astype(np.float32), block)[:count]
    flat = (array.reshape(columns, rows).T for array in (_levels(node)[codes], scales))
    return next(flat), next(flat)


def _unpack_table(node: Node, values: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Unpack the table of a GatherBlockQuantized, with blocks along one axis; the last block may be shorter.

    Integer tensors of 4 bits are not packed; a byte of other tensors holds 1, 2 or 4 codes along the last axis, lowest
    bits first. Source: onnxruntime, gather_block_quantized.cc.
    """
    data, scale = values[node.inputs[0]], values[node.inputs[2]].astype(np.float32)
    bits, block, axis = (
        _int_attribute(node, *name_and_default)
        for name_and_default in (("bits", 4), ("block_size", 128), ("quantize_axis", 1))
    )
    zero_points = values.get(node.inputs[3]) if len(node.inputs) > 3 else None
    if data.dtype == np.uint8:
        if bits not in (2, 4, 8):
            raise KernelError(f"Node {node.name!r} has bits {bits!r}; expected 2, 4 or 8.")
        codes, zero = unpack_codes(data, bits), np.float32(2 ** (bits - 1))
        zero_points = None if zero_points is None else unpack_codes(zero_points, bits)[..., : scale.shape[-1]]
    elif logical_name(data.dtype) in ("int4", "uint4"):
        codes, zero = data, np.float32(0)
    else:
        raise KernelError(f"Node {node.name!r} has codes of {data.dtype}; expected integers of 8 or 4 bits.")
    if not -codes.ndim <= axis < codes.ndim or block < 1:
        raise KernelError(
            f"Node {node.name!r} has axis {axis} and block size {block}, which do not fit codes of shape {codes.shape}."
        )
    if scale.ndim != codes.ndim or scale.shape[axis] != -(-codes.shape[axis] // block):
        raise KernelError(f"Node {node.name!r} has codes of {codes.shape} and scales of {scale.shape}.")
    index = np.arange(codes.shape[axis]) // block
    points = np.broadcast_to(zero if zero_points is None else zero_points.astype(np.float32), scale.shape)
    steps, zeros = (np.take(array, index, axis=axis) for array in (scale, points))
    return codes.astype(np.float32) - zeros, steps


_READERS = MappingProxyType({"columns": _unpack_columns, "levels": _unpack_levels, "table": _unpack_table})


def _int_attribute(node: Node, name: str, default: int) -> int:
    value = node.attrs.get(name, default)
    if not isinstance(value, int):
        raise KernelError(f"Node {node.name!r} has {name} {value!r}; expected an integer.")
    return value


def _extent(node: Node, name: str) -> int:
    value = node.attrs.get(name, 4 if name == "bits" else 0)
    if not isinstance(value, int) or value < 1:
        raise KernelError(f"Node {node.name!r} has {name} {value!r}; expected a positive number.")
    return value


def unpack_codes(packed: np.ndarray, bits: int) -> np.ndarray:
    """Split bytes along the last axis into codes, lowest bits first. Raise ValueError for any other dtype."""
    if packed.dtype not in (np.uint8, np.int8):
        raise ValueError(f"packed codes are {packed.dtype}, not bytes")
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = (packed.view(np.uint8)[..., None] >> shifts) & np.uint8(2**bits - 1)
    return np.asarray(codes.reshape(*packed.shape[:-1], -1))


def _zero_points(node: Node, zero_points: np.ndarray | None, shape: tuple[int, int], bits: int) -> np.ndarray:
    """Return the zero point of each block: the middle code by default. Float zero points are returned unchanged."""
    columns, blocks = shape
    if zero_points is None:
        return np.full(shape, 2.0 ** (bits - 1), np.float32)
    if zero_points.dtype == np.uint8:
        zero_points = unpack_codes(zero_points.reshape(columns, -1), bits)
    if zero_points.size < columns * blocks:
        raise KernelError(f"Node {node.name!r} has {zero_points.size} zero points; expected {columns * blocks}.")
    return np.asarray(zero_points.reshape(columns, -1)[:, :blocks], np.float32)
