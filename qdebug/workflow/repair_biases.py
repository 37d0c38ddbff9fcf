"""Biases under edits: one that a net holds in codes of its sums is rounded anew where a scale of the sums changes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qdebug.compare.attribute.backend_replay import real_values
from qdebug.model import Node, QuantParams, operators
from qdebug.model.dtypes import is_integer
from qdebug.numerics.affine import dequantize, quantize
from qdebug.replay.real_form import real_form
from qdebug.workflow.edited_replay import Change
from qdebug.workflow.repair_units import ChangeableNodes, Constants

__all__ = ["changed_biases", "least_weight_scale"]

_ROOM = 2**20
"""Codes that a bias gets at most by a finer scale of the weight: 16 bits of input then have room within 32."""


def changed_biases(
    nodes: ChangeableNodes, change: Change, weight_codes: Mapping[tuple[str, str], QuantParams | None]
) -> Constants:
    """Return the biases that some edits change, as the changed net holds them.

    Args:
        nodes: The nodes of the run.
        change: What is changed.
        weight_codes: The codes of changed weights, by node and name; None for one in float.

    Returns:
        Real values, float32, by node and name.
    """
    carriers = {tensor: unit.tensor for unit in nodes.units.values() for tensor in unit.tensors}
    found = {}
    for name, unit in nodes.units.items():
        form, _ = real_form(unit.node, nodes.run.graph.opset)
        bias = operators.titled_input(form, 2) if operators.of(form.op).bias is not None else ""
        if not bias or not nodes.run.has(bias):
            continue
        source = nodes.codes_behind(form.inputs[0])
        held_in = carriers.get(source, source)
        weight = (name, nodes.weight(unit.node))
        if (
            change.constants.keys().isdisjoint({(name, bias), weight})
            and name not in change.shifts
            and held_in not in change.quants
        ):
            continue
        real = np.asarray(change.constants.get((name, bias), real_values(nodes.run, bias)), np.float32)
        if name in change.shifts:
            real = real + change.shifts[name].reshape(real.shape)
        of_input = None if source in change.floats else change.quants.get(held_in) or nodes.quant_of(source)
        of_weight = weight_codes.get(weight) if weight in change.constants else nodes.quant_of(weight[1])
        codes = _codes_of_sums(of_input, of_weight, real) if _is_coded(nodes, bias) else None
        found[name, bias] = real if codes is None else np.asarray(dequantize(quantize(real, codes), codes), np.float32)
    return found


def least_weight_scale(nodes: ChangeableNodes, node: Node) -> np.ndarray | float:
    """Return the least scale of a weight, one for each channel, with which its bias has room in 32 bits; 0 for any.

    A channel of all but zero weights would else have no codes for its bias. ONNX Runtime's quantizer does the same:
    https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/python/tools/quantization/base_quantizer.py
    """
    form, _ = real_form(node, nodes.run.graph.opset)
    bias = operators.titled_input(form, 2) if operators.of(form.op).bias is not None else ""
    of_input = nodes.quant_of(nodes.codes_behind(form.inputs[0]))
    if not bias or not nodes.run.has(bias) or of_input is None or not _is_coded(nodes, bias):
        return 0.0
    return np.abs(real_values(nodes.run, bias).ravel().astype(np.float64)) / (_ROOM * float(of_input.scale.max()))


def _is_coded(nodes: ChangeableNodes, bias: str) -> bool:
    quant = nodes.quant_of(bias)
    return is_integer(quant.dtype) if quant is not None else nodes.run.load(bias).dtype.kind == "i"


def _codes_of_sums(of_input: QuantParams | None, of_weight: QuantParams | None, bias: np.ndarray) -> QuantParams | None:
    """Return the codes of a bias: input scale x weight scale, zero point 0.

    None if what is multiplied is in float, or if these have no room for the bias.

    The formula: https://onnx.ai/onnx/operators/onnx__QLinearConv.html, input "B".
    """
    known = [each for each in (of_input, of_weight) if each is not None and is_integer(each.dtype)]
    if len(known) < 2 or known[0].scale.size > 1 or known[1].scale.size not in (1, bias.size):
        return None
    scale = (known[0].scale.astype(np.float32) * known[1].scale.astype(np.float32)).reshape(-1)
    axis = None if scale.size == 1 else int(np.argmax(bias.shape))
    if (np.abs(bias.ravel()) > np.iinfo(np.int32).max * scale.astype(np.float64)).any():
        return None
    return QuantParams(dtype="int32", scale=scale, zero_point=np.zeros(scale.shape, np.int32), axis=axis)
