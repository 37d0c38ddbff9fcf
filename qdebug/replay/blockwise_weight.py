"""Weights of MatMulNBits: codes of a few bits, packed into bytes, of which a block of each column shares a scale.

The layout is that of com.microsoft.MatMulNBits (onnxruntime, docs/ContribOperators.md): columns first, then blocks of
`block_size` rows, each packed with the lowest bits first. Zero points are packed likewise, block by block of a column.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qdebug.errors import KernelError
from qdebug.model import Node, operators

__all__ = ["blockwise_weight", "rounded_in_blocks", "rounds_data"]

_INT8 = 4
"""Accuracy level at which data may be rounded to codes of 8 bits."""
_LARGEST = 127


def rounds_data(node: Node) -> bool:
    """Tell whether a node is a MatMulNBits that may round its data to codes of 8 bits, block by block.

    Its accuracy level says so; whether it does depends on the runtime and the CPU.
    """
    return operators.of(node.op).packs_weight and node.attrs.get("accuracy_level") == _INT8


def rounded_in_blocks(x: np.ndarray, block: int) -> np.ndarray:
    """Round data to codes of 8 bits, whose scale gives the largest magnitude of a block 127; give them as real numbers.

    That is how MLAS quantizes what it multiplies with packed weights (onnxruntime, sqnbitgemm, QuantizeARow), ties to
    even.

    Args:
        x: float32, (..., K).
        block: Elements along the last axis that share a scale.
    """
    blocks = -(-x.shape[-1] // block)
    padded = np.zeros((*x.shape[:-1], blocks * block), np.float32)
    padded[..., : x.shape[-1]] = x
    parts = padded.reshape(*x.shape[:-1], blocks, block)
    largest = np.max(np.abs(parts), axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        codes = np.rint(parts * np.where(largest == 0, np.float32(0), np.float32(_LARGEST) / largest))
    return np.asarray((codes * (largest / np.float32(_LARGEST))).reshape(padded.shape)[..., : x.shape[-1]])


def blockwise_weight(node: Node, values: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Unpack the weight of a MatMulNBits.

    Args:
        node: The node.
        values: Its constants by name.

    Returns:
        Codes less their zero point, and the scale of each, both as float32 [K, N].

    Raises:
        KernelError: The constants do not fit the attributes, or columns are grouped by an index.
    """
    rows, columns, block = (_extent(node, name) for name in ("K", "N", "block_size"))
    names = (*node.inputs, "", "")
    if len(node.inputs) > 4 and names[4]:
        raise KernelError(f"Node {node.name!r} groups its rows by an index, which is not computed here.")
    blocks = -(-rows // block)
    bits = _extent(node, "bits")
    if names[1] not in values or names[2] not in values or (names[3] and names[3] not in values):
        raise KernelError(f"Node {node.name!r} has a weight, a scale or a zero point that is not known.")
    packed, scale = values[names[1]], values[names[2]]
    if bits not in (1, 2, 4, 8) or packed.dtype != np.uint8 or scale.size != columns * blocks:
        raise KernelError(f"Node {node.name!r} has a weight of {packed.shape} and {scale.size} scales.")
    codes = _unpacked(packed.reshape(columns, -1), bits)
    if codes.shape[1] < blocks * block:
        raise KernelError(f"Node {node.name!r} has {codes.shape[1]} codes a column; expected {blocks * block}.")
    codes = codes[:, : blocks * block].reshape(columns, blocks, block)
    centred = codes.astype(np.float32) - _zero_points(node, values.get(names[3]), (columns, blocks), bits)[..., None]
    scales = np.broadcast_to(scale.astype(np.float32).reshape(columns, blocks, 1), centred.shape)
    flat = (array.reshape(columns, -1)[:, :rows].T for array in (centred, scales))
    return next(flat), next(flat)


def _extent(node: Node, name: str) -> int:
    value = node.attrs.get(name, 4 if name == "bits" else 0)
    if not isinstance(value, int) or value < 1:
        raise KernelError(f"Node {node.name!r} has {name} {value!r}; expected a positive number.")
    return value


def _unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    """Split bytes along the last axis into codes, lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = (packed[..., None] >> shifts) & np.uint8(2**bits - 1)
    return np.asarray(codes.reshape(*packed.shape[:-1], -1))


def _zero_points(node: Node, given: np.ndarray | None, shape: tuple[int, int], bits: int) -> np.ndarray:
    """Return the code of real 0 of each block: in the middle if none is given; floats are as they are."""
    columns, blocks = shape
    if given is None:
        return np.full(shape, 2.0 ** (bits - 1), np.float32)
    if given.dtype == np.uint8:
        given = _unpacked(given.reshape(columns, -1), bits)
    if given.size < columns * blocks:
        raise KernelError(f"Node {node.name!r} has {given.size} zero points; expected {columns * blocks}.")
    return np.asarray(given.reshape(columns, -1)[:, :blocks], np.float32)
