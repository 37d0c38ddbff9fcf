"""Biases under edits. The scale of a quantized bias is that of its sums, so it is requantized if that scale changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qdebug.compare.attribute.backend_replay import real_values
from qdebug.model import Node, QuantParams
from qdebug.model.dtypes import is_integer
from qdebug.model.thresholds.rounding import LSB_SLACK
from qdebug.numerics.affine import dequantize, quantize
from qdebug.repair.edited_replay import Change
from qdebug.repair.units import ChangeableNodes
from qdebug.replay.real_form import real_form

__all__ = ["ChangedBias", "changed_biases", "min_weight_scale"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChangedBias:
    """A bias of a changed network.

    Args:
        values: Real values, float32, in the recorded shape.
        codes: Quantization of the bias, or None for a float bias.
        is_changed: Whether the values differ from the recorded ones.
    """

    values: np.ndarray
    codes: QuantParams | None
    is_changed: bool


def changed_biases(
    nodes: ChangeableNodes, change: Change, weight_codes: Mapping[tuple[str, str], QuantParams | None]
) -> Mapping[tuple[str, str], ChangedBias]:
    """Return the biases with changed values or codes, by node and name.

    Args:
        nodes: The nodes of the run.
        change: The change.
        weight_codes: The codes of changed weights, by node and name. None for a float weight.
    """
    unit_tensors = {tensor: unit.tensor for unit in nodes.units.values() for tensor in unit.tensors}
    biases = {}
    for name, unit in nodes.units.items():
        bias = nodes.bias(unit.node)
        if not bias:
            continue
        weight = name, nodes.weight(unit.node)
        real_node, _ = real_form(unit.node, nodes.run.graph.opset)
        source = nodes.codes_of(real_node.inputs[0])
        unit_tensor = unit_tensors.get(source, source)
        has_new_scale = name in change.shifts or unit_tensor in change.quants
        if not has_new_scale and change.constants.keys().isdisjoint({(name, bias), weight}):
            continue
        recorded_values = np.asarray(real_values(nodes.run, bias), np.float32)
        new_values = change.constants.get((name, bias))
        if new_values is None:
            new_values = _prefer_unrounded(nodes, unit.node, bias, recorded_values)
        new_values = np.asarray(new_values, np.float32).reshape(recorded_values.shape)
        if name in change.shifts:  # the shift applies to the result, but a Gemm multiplies its bias by beta
            beta = np.asarray(real_node.attrs.get("beta", 1.0), np.float32)
            new_values = np.asarray(new_values + change.shifts[name].reshape(recorded_values.shape) / beta)
        input_quant = None if source in change.floats else change.quants.get(unit_tensor) or nodes.quant_of(source)
        weight_quant = weight_codes.get(weight) if weight in change.constants else nodes.quant_of(weight[1])
        codes = _sum_scale_codes(input_quant, weight_quant, new_values) if _is_coded(nodes, bias) else None
        values = new_values if codes is None else np.asarray(dequantize(quantize(new_values, codes), codes))
        values = values.astype(np.float32)
        is_changed = not np.array_equal(values, recorded_values, equal_nan=True)
        biases[name, bias] = ChangedBias(values=values, codes=codes, is_changed=is_changed)
    return biases


def _prefer_unrounded(nodes: ChangeableNodes, node: Node, bias: str, values: np.ndarray) -> np.ndarray:
    """Return the reference's bias if the recorded values are that bias rounded to codes, else the recorded values.

    A new scale would otherwise round the bias a second time.
    """
    quant = nodes.quant_of(bias)
    original = None if quant is None else nodes.reference_constants(node).get((node.name, bias))
    if quant is None or original is None:
        return values
    rounded = dequantize(quantize(np.asarray(original, np.float32).reshape(values.shape), quant), quant)
    return original if np.allclose(rounded, values, rtol=0, atol=float(quant.scale.max()) * LSB_SLACK) else values


def min_weight_scale(nodes: ChangeableNodes, node: Node) -> np.ndarray | float:
    """Return the smallest weight scale, for each channel, with which the bias fits 32 bits, or 0 if any scale does.

    Without this minimum, a channel of nearly zero weights would have no codes for its bias. ONNX Runtime's quantizer
    does the same: `_adjust_weight_scale_for_int32_bias` in onnxruntime/python/tools/quantization/onnx_quantizer.py.
    """
    bias = nodes.bias(node)
    input_quant = nodes.quant_of(nodes.codes_of(real_form(node, nodes.run.graph.opset)[0].inputs[0]))
    if not bias or input_quant is None or not _is_coded(nodes, bias) or not input_quant.scale.all():
        return 0.0
    bias_magnitudes = np.abs(real_values(nodes.run, bias).ravel().astype(np.float64))
    return np.nan_to_num(bias_magnitudes) / (np.iinfo(np.int32).max * float(input_quant.scale.min()))


def _is_coded(nodes: ChangeableNodes, bias: str) -> bool:
    quant = nodes.quant_of(bias)
    return is_integer(quant.dtype) if quant is not None else nodes.run.load(bias).dtype.kind == "i"


def _sum_scale_codes(
    input_quant: QuantParams | None, weight_quant: QuantParams | None, bias: np.ndarray
) -> QuantParams | None:
    """Return int32 codes of a bias at the scale of the sums: input scale x weight scale, with zero point 0.

    Return None if a factor is in float, or if these codes cannot represent the bias.

    The formula: https://onnx.ai/onnx/operators/onnx__QLinearConv.html, input "B".
    """
    factors = [quant for quant in (input_quant, weight_quant) if quant is not None and is_integer(quant.dtype)]
    if len(factors) < 2 or factors[0].scale.size > 1 or factors[1].scale.size not in (1, bias.size):
        return None
    scale = (factors[0].scale.astype(np.float32) * factors[1].scale.astype(np.float32)).reshape(-1)
    max_bias = np.iinfo(np.int32).max * scale.astype(np.float64)
    if not scale.all() or not (np.abs(bias.ravel()) <= max_bias).all():
        return None
    axis = None if scale.size == 1 else int(np.argmax(bias.shape))
    return QuantParams(dtype="int32", scale=scale, zero_point=np.zeros(scale.shape, np.int32), axis=axis)
