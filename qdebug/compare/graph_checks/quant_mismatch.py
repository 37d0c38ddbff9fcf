"""Finds tensors that a node reads with a different scale or zero point than they were written with.

A quantized tensor has the quantization of its producer, and a replay reads it accordingly. A node that carries
different parameters for the same codes computes on different values, which explains the error it introduces.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from qdebug.compare.result.finding import Finding, FindingKind, FindingRole
from qdebug.model import Node, QuantParams, Recording, operators
from qdebug.model.quant import is_same_scale
from qdebug.model.thresholds.checks import SCALE_MAX_REL_DIFFERENCE
from qdebug.replay.real_form import real_form

__all__ = ["bias_in_other_units", "find_contradicted_codes", "quant_mismatch"]


def quant_mismatch(recording: Recording, node: Node) -> Finding | None:
    """Find codes that a node reads, or passes on, with parameters other than those they were written with.

    Args:
        recording: The run.
        node: One of its nodes. A node without scales passes codes on unchanged.

    Returns:
        A cause, or None if there is no such input.
    """
    causes = (_mismatch_of_parameters(node, *parameters) for parameters in _quantized_inputs(recording, node))
    return (
        next(filter(None, causes), None)
        or bias_in_other_units(recording, node)
        or _mismatch_of_passed_on_codes(recording, node)
    )


def bias_in_other_units(recording: Recording, node: Node) -> Finding | None:
    """Find bias codes whose declared scale differs from the scale of the sums they are added to.

    Args:
        recording: The run.
        node: One of its nodes.
    """
    form, _ = real_form(node, recording.graph.opset)
    position = operators.of(form.op).bias
    tensors = recording.graph.tensors
    if position is None or len(form.inputs) <= max(position, 1) or not form.inputs[position]:
        return None
    name = form.inputs[position]
    bias, data, weight = (tensors[input_name].quant for input_name in (name, *form.inputs[:2]))
    if bias is None or data is None or weight is None or data.scale.size > 1:
        return None
    bias_scales = bias.scale.astype(np.float64).reshape(-1)
    sum_scales = float(data.scale.reshape(-1)[0]) * weight.scale.astype(np.float64).reshape(-1)
    if 1 not in (bias_scales.size, sum_scales.size) and bias_scales.size != sum_scales.size:
        return None
    if np.allclose(bias_scales, sum_scales, rtol=SCALE_MAX_REL_DIFFERENCE, atol=0):
        return None
    clause = (
        f"its bias {name!r} has scale {_numbers_text(bias_scales)}, but the accumulator has scale "
        f"{_numbers_text(sum_scales)}"
    )
    return replace(_make_cause(FindingKind.SCALE, node, clause, name, (bias_scales, sum_scales)), kind=FindingKind.BIAS)


def find_contradicted_codes(recording: Recording, node: Node) -> Finding | None:
    """Find codes that a node reads with parameters other than those of the node that produces them.

    One of the two is wrong whatever the effect: an error of one input code may be far less than one output code. Scales
    that only differ in their rounding do not contradict each other.

    Args:
        recording: The run.
        node: One of its nodes.

    Returns:
        A difference, or None if the two sets of parameters differ by less than half a step for all codes.
    """
    for tensor, quant, scale, zero_point in _quantized_inputs(recording, node):
        finding = _mismatch_of_parameters(node, tensor, quant, scale, zero_point)
        if finding and recording.graph.producer(tensor) is not None and _has_effect(quant, scale, zero_point):
            return replace(finding, role=FindingRole.DIFFERENCE)
    return None


def _mismatch_of_parameters(
    node: Node, tensor: str, quant: QuantParams, scale: np.ndarray, zero_point: np.ndarray
) -> Finding | None:
    """Report that a node reads a tensor with a different scale or zero point than the tensor was written with."""
    if not np.allclose(scale, quant.scale.reshape(-1), rtol=SCALE_MAX_REL_DIFFERENCE, atol=0):
        clause = (
            f"it reads {tensor!r} with scale {_numbers_text(scale)}, but {tensor!r} was written with scale "
            f"{_numbers_text(quant.scale)}"
        )
        return _make_cause(FindingKind.SCALE, node, clause, tensor, (scale, quant.scale))
    if not np.array_equal(zero_point, quant.zero_point.reshape(-1)):
        zero_point_text, written_text = _numbers_text(zero_point), _numbers_text(quant.zero_point)
        clause = (
            f"it reads {tensor!r} with zero point {zero_point_text}, but {tensor!r} was written with zero point "
            f"{written_text}"
        )
        return _make_cause(FindingKind.ZERO_POINT, node, clause, tensor, (zero_point, quant.zero_point))
    return None


def _make_cause(
    kind: FindingKind, node: Node, sentence: str, tensor: str, numbers: tuple[ArrayLike, ArrayLike]
) -> Finding:
    """Make a finding whose amount is the largest difference between numbers: relative for scales, or in codes."""
    used_numbers, written_numbers = (np.asarray(parameter, np.float64).reshape(-1) for parameter in numbers)
    is_scale, is_comparable = (
        kind is FindingKind.SCALE,
        used_numbers.size == written_numbers.size or 1 in (used_numbers.size, written_numbers.size),
    )
    differences = (
        np.abs(used_numbers - written_numbers) / (written_numbers if is_scale else 1.0)
        if is_comparable
        else np.zeros(0)
    )
    return Finding(
        kind=kind,
        role=FindingRole.CAUSE,
        node=node.name,
        sentence=sentence,
        amount=float(differences.max()) if differences.size else None,
        limit=SCALE_MAX_REL_DIFFERENCE if is_scale else 0.0,
        unit="of the scale" if is_scale else "codes",
        evidence=tensor,
    )


def _has_effect(quant: QuantParams, scale: np.ndarray, zero_point: np.ndarray) -> bool:
    """Return whether any code stands for values at least half a step apart under the two sets of parameters."""
    if quant.qmin is None or quant.qmax is None:
        return False
    codes = np.array([[quant.qmin], [quant.qmax]], np.float64)
    written_scale = np.asarray(quant.scale, np.float64).reshape(-1)
    values_as_read = scale.astype(np.float64) * (codes - zero_point)
    differences = np.abs(
        values_as_read - written_scale * (codes - np.asarray(quant.zero_point, np.float64).reshape(-1))
    )
    return bool(np.any(differences >= written_scale / 2))


def _mismatch_of_passed_on_codes(recording: Recording, node: Node) -> Finding | None:
    """Report that a node without scales passes on codes with a different scale or zero point than it reads."""
    row = operators.of(node.op)
    passes_codes_on = (
        row.moves and row.data == (0,)
    ) or row.unit == "max_pool"  # a Concat of inputs with different scales may requantize
    if not passes_codes_on or not (node.inputs and node.inputs[0]):
        return None
    tensors = recording.graph.tensors
    source, target = tensors[node.inputs[0]].quant, tensors[node.outputs[0]].quant
    if source is None or target is None:
        return None
    for kind, title, is_equal, source_number, target_number in (
        (FindingKind.SCALE, "scale", is_same_scale, source.scale, target.scale),
        (FindingKind.ZERO_POINT, "zero point", np.array_equal, source.zero_point, target.zero_point),
    ):
        if not is_equal(source_number, target_number):
            clause = (
                f"its codes are written with {title} {_numbers_text(source_number)}, "
                f"but read with {title} {_numbers_text(target_number)}"
            )
            return _make_cause(kind, node, clause, node.outputs[0], (target_number, source_number))
    return None


def _quantized_inputs(recording: Recording, node: Node) -> Iterator[tuple[str, QuantParams, np.ndarray, np.ndarray]]:
    """Yield a node's quantized inputs with their quantization, and the scale and zero point that the node uses."""
    form, _ = real_form(node, recording.graph.opset)
    if form is node:
        return
    for tensor in form.inputs:
        quant = recording.graph.tensors[tensor].quant if tensor else None
        slot = node.inputs.index(tensor) if quant is not None else len(node.inputs)
        if quant is None or slot + 2 >= len(node.inputs) or quant.dtype == "int32":
            continue  # a bias has no scale of its own
        scale, zero_point = (_load_small_constant(recording, name) for name in node.inputs[slot + 1 : slot + 3])
        if scale is not None and zero_point is not None and scale.size == np.size(quant.scale) == zero_point.size:
            yield tensor, quant, scale, zero_point.astype(np.int64)


def _load_small_constant(recording: Recording, name: str) -> np.ndarray | None:
    if not name or not recording.graph.is_constant(name) or not recording.has(name):
        return None
    return recording.load(name).reshape(-1)


def _numbers_text(values: np.ndarray) -> str:
    flat = np.asarray(values).reshape(-1)
    numbers_text = ", ".join(f"{value:g}" for value in flat[:3])
    return numbers_text if flat.size == 1 else f"[{numbers_text}{', ...' if flat.size > 3 else ''}]"
