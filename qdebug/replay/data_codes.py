"""How products quantize their data at run time: as the node states, or as a runtime may do instead.

ONNX Runtime uses one scale for all data of a DynamicQuantizeMatMul. A FULLY_CONNECTED of TensorFlow Lite on real data
with a quantized weight uses one scale per row. TensorFlow Lite's own kernels round symmetrically unless the node states
otherwise; XNNPACK, which replaces them by default, never does; a delegate may compute with real data. A
DynamicQuantizeLSTM of ONNX Runtime uses one scale for the states of all samples of a thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from qdebug.model import AttrValue, Node, operators
from qdebug.replay.blockwise_weight import can_round_data
from qdebug.replay.kernels.quantize import dynamic_quantize

__all__ = [
    "ASYMMETRIC",
    "BY_ROW",
    "NO_CODES",
    "ROW_GROUPS",
    "SYMMETRIC",
    "describe_assumed_rounding",
    "quantize_data",
    "roundings",
]

BY_ROW = "data_codes"
"""Attribute of a product with one scale per row of its data; its value names the rounding."""
SYMMETRIC, ASYMMETRIC, NO_CODES = "symmetric", "asymmetric", "none"
ROW_GROUPS = "row_groups"
"""Attribute of a recurrent layer: number of sample groups, each with one scale for its state."""
_GROUPS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128)
_LOW, _HIGH = -128, 127


def roundings(node: Node) -> tuple[Node, ...]:
    """Return a copy of a node for each way that a runtime may round its data to codes, the stated one first."""
    if can_round_data(node):
        other_attrs = {name: value for name, value in node.attrs.items() if name != "accuracy_level"}
        return node, replace(node, attrs=other_attrs)
    stated_rounding = node.attrs.get(BY_ROW)
    if operators.plain(node).recurrent and operators.of(node.op).chooses_scale:
        return node, *(replace(node, attrs={**node.attrs, ROW_GROUPS: count}) for count in _GROUPS)
    if stated_rounding is None or not operators.of(node.op).chooses_scale:
        return (node,)
    other_roundings = [rounding for rounding in (SYMMETRIC, ASYMMETRIC, NO_CODES) if rounding != stated_rounding]
    return node, *(replace(node, attrs={**node.attrs, BY_ROW: rounding}) for rounding in other_roundings)


def describe_assumed_rounding(node: Node, stated: Node) -> str | None:
    """Describe in one clause how a node from `roundings` rounds its data; None if its recorded attributes state it.

    Args:
        node: The node that reproduces the recorded output.
        stated: The node as it was recorded.
    """
    if can_round_data(node):
        return "data rounded to int8 block by block, as accuracy_level 4 allows"
    if node is not stated and (groups := node.attrs.get(ROW_GROUPS)):
        return f"samples in {groups} groups, one per thread, each state with its own scale"
    rounding = node.attrs.get(BY_ROW)
    if node is stated or rounding is None:
        return None
    return "data not rounded to codes" if rounding == NO_CODES else f"data rounded to {rounding} codes"


def quantize_data(attrs: Mapping[str, AttrValue], x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Quantize data by their range.

    Args:
        attrs: Attributes of the product.
        x: float32, (..., K).

    Returns:
        Codes, scale and zero point. If the node does not round its data, the real data with a scale of 1.
    """
    rounding = attrs.get(BY_ROW)
    if rounding is None:
        return dynamic_quantize(x)
    if rounding == NO_CODES:
        return x, np.ones((), np.float32), np.zeros((), np.int8)
    return _quantize_symmetric(x) if rounding == SYMMETRIC else _quantize_asymmetric(x)


def _quantize_symmetric(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Round each row with the scale that maps its largest magnitude to 127; ties go away from zero.

    Source: PortableSymmetricQuantizeFloats (tensorflow/lite/kernels/internal/reference/portable_tensor_utils.cc).
    """
    largest = np.max(np.abs(x), axis=-1, keepdims=True, initial=0)
    empty = largest == 0
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.asarray(x * np.where(empty, np.float32(0), np.float32(_HIGH) / largest), np.float32)
    codes = np.clip(np.trunc(steps + np.copysign(np.float32(0.5), steps)), -_HIGH, _HIGH).astype(np.int8)
    scale = np.where(empty, np.float32(1), largest / np.float32(_HIGH)).astype(np.float32)
    return codes, scale, np.zeros(scale.shape, np.int8)


def _quantize_asymmetric(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Round each row with the scale and zero point that map its range, widened to include 0, to all codes.

    Source: PortableAsymmetricQuantizeFloats, same file.
    """
    low, high = (extreme(x, axis=-1, keepdims=True, initial=0) for extreme in (np.min, np.max))
    exact = (high - low).astype(np.float64) / (_HIGH - _LOW)  # the runtime rounds the width to float32 (measured)
    empty = exact == 0
    step = np.where(empty, 1.0, exact)
    from_low, from_high = _LOW - low / step, _HIGH - high / step
    nearer = abs(_LOW) + np.abs(low / step) < abs(_HIGH) + np.abs(high / step)
    zero = np.clip(np.floor(np.where(nearer, from_low, from_high) + 0.5), _LOW, _HIGH)
    zero = np.where(empty, 0, zero).astype(np.int8)
    scale = np.where(empty, 1.0, exact).astype(np.float32)
    steps = np.asarray(x * np.where(empty, np.float32(0), np.float32(1) / scale) + zero.astype(np.float32))
    away = np.trunc(steps + np.copysign(np.float32(0.5), steps))
    return np.clip(away, _LOW, _HIGH).astype(np.int8), scale, zero
