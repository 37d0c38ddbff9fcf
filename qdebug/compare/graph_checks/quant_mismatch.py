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

__all__ = ["bias_in_other_units", "contradicted", "quant_mismatch"]


def quant_mismatch(recording: Recording, node: Node) -> Finding | None:
    """Find codes that a node reads, or passes on, with parameters other than those they were written with.

    Args:
        recording: The run.
        node: One of its nodes. A node without scales passes codes on unchanged.

    Returns:
        A cause, or None if there is no such input.
    """
    found = (_by_other_numbers(node, *read) for read in _read(recording, node))
    return next(filter(None, found), None) or bias_in_other_units(recording, node) or _handed_on(recording, node)


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
    bias, data, weight = (tensors[each].quant for each in (name, *form.inputs[:2]))
    if bias is None or data is None or weight is None or data.scale.size > 1:
        return None
    own = bias.scale.astype(np.float64).reshape(-1)
    sums = float(data.scale.reshape(-1)[0]) * weight.scale.astype(np.float64).reshape(-1)
    if 1 not in (own.size, sums.size) and own.size != sums.size:
        return None
    if np.allclose(own, sums, rtol=SCALE_MAX_REL_DIFFERENCE, atol=0):
        return None
    said = f"its bias {name!r} has scale {_short(own)}, but the accumulator has scale {_short(sums)}"
    return replace(_cause(FindingKind.SCALE, node, said, name, (own, sums)), kind=FindingKind.BIAS)


def contradicted(recording: Recording, node: Node) -> Finding | None:
    """Find codes that a node reads with parameters other than those of the node that produces them.

    One of the two is wrong whatever the effect: an error of one input code may be far less than one output code. Scales
    that only differ in their rounding do not contradict each other.

    Args:
        recording: The run.
        node: One of its nodes.

    Returns:
        A difference, or None if the two sets of parameters differ by less than half a step for all codes.
    """
    for tensor, quant, scale, zero_point in _read(recording, node):
        found = _by_other_numbers(node, tensor, quant, scale, zero_point)
        if found and recording.graph.producer(tensor) is not None and _tells(quant, scale, zero_point):
            return replace(found, role=FindingRole.DIFFERENCE)
    return None


def _by_other_numbers(
    node: Node, tensor: str, quant: QuantParams, scale: np.ndarray, zero_point: np.ndarray
) -> Finding | None:
    """Find the parameters with which a tensor is read, if it was written with others."""
    if not np.allclose(scale, quant.scale, rtol=SCALE_MAX_REL_DIFFERENCE, atol=0):
        said = (
            f"it reads {tensor!r} with scale {_short(scale)}, but {tensor!r} was written with scale "
            f"{_short(quant.scale)}"
        )
        return _cause(FindingKind.SCALE, node, said, tensor, (scale, quant.scale))
    if not np.array_equal(zero_point, quant.zero_point):
        found, written = _short(zero_point), _short(quant.zero_point)
        said = f"it reads {tensor!r} with zero point {found}, but {tensor!r} was written with zero point {written}"
        return _cause(FindingKind.ZERO_POINT, node, said, tensor, (zero_point, quant.zero_point))
    return None


def _cause(kind: FindingKind, node: Node, sentence: str, tensor: str, numbers: tuple[ArrayLike, ArrayLike]) -> Finding:
    """Make a finding whose amount is the largest difference between numbers: relative for scales, or in codes."""
    found, written = (np.asarray(each, np.float64).reshape(-1) for each in numbers)
    scale, alike = kind is FindingKind.SCALE, found.size == written.size or 1 in (found.size, written.size)
    off = np.abs(found - written) / (written if scale else 1.0) if alike else np.zeros(0)
    return Finding(
        kind=kind,
        role=FindingRole.CAUSE,
        node=node.name,
        sentence=sentence,
        amount=float(off.max()) if off.size else None,
        limit=SCALE_MAX_REL_DIFFERENCE if scale else 0.0,
        unit="of the scale" if scale else "codes",
        evidence=tensor,
    )


def _tells(quant: QuantParams, scale: np.ndarray, zero_point: np.ndarray) -> bool:
    """Return whether any code stands for values at least half a step apart under the two sets of parameters."""
    if quant.qmin is None or quant.qmax is None:
        return False
    codes = np.array([[quant.qmin], [quant.qmax]], np.float64)
    written = np.asarray(quant.scale, np.float64).reshape(-1)
    read = scale.astype(np.float64) * (codes - zero_point)
    off = np.abs(read - written * (codes - np.asarray(quant.zero_point, np.float64).reshape(-1)))
    return bool(np.any(off >= written / 2))


def _handed_on(recording: Recording, node: Node) -> Finding | None:
    """Find whether codes passed on by a node without scales are read with a different scale than they came with."""
    row = operators.of(node.op)
    hands_on = (row.moves and row.data == (0,)) or row.unit == "max_pool"  # joining several scales may requantize
    if not hands_on or not (node.inputs and node.inputs[0]):
        return None
    tensors = recording.graph.tensors
    source, target = tensors[node.inputs[0]].quant, tensors[node.outputs[0]].quant
    if source is None or target is None:
        return None
    for kind, title, same, one, other in (
        (FindingKind.SCALE, "scale", is_same_scale, source.scale, target.scale),
        (FindingKind.ZERO_POINT, "zero point", np.array_equal, source.zero_point, target.zero_point),
    ):
        if not same(one, other):
            said = f"its codes are written with {title} {_short(one)}, but read with {title} {_short(other)}"
            return _cause(kind, node, said, node.outputs[0], (other, one))
    return None


def _read(recording: Recording, node: Node) -> Iterator[tuple[str, QuantParams, np.ndarray, np.ndarray]]:
    """Yield a node's quantized inputs with their quantization, and the scale and zero point that the node uses."""
    form, _ = real_form(node, recording.graph.opset)
    if form is node:
        return
    for tensor in form.inputs:
        quant = recording.graph.tensors[tensor].quant if tensor else None
        place = node.inputs.index(tensor) if quant is not None else len(node.inputs)
        if quant is None or place + 2 >= len(node.inputs) or quant.dtype == "int32":
            continue  # a bias has no scale of its own
        scale, zero_point = (_small(recording, name) for name in node.inputs[place + 1 : place + 3])
        if scale is not None and zero_point is not None and scale.size == np.size(quant.scale) == zero_point.size:
            yield tensor, quant, scale, zero_point.astype(np.int64)


def _small(recording: Recording, name: str) -> np.ndarray | None:
    if not name or not recording.graph.is_constant(name) or not recording.has(name):
        return None
    return recording.load(name).reshape(-1)


def _short(values: np.ndarray) -> str:
    flat = np.asarray(values).reshape(-1)
    shown = ", ".join(f"{value:g}" for value in flat[:3])
    return shown if flat.size == 1 else f"[{shown}{', ...' if flat.size > 3 else ''}]"
