"""Finds code ranges that replace a Relu or Clip, on either side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from qdebug.compare.align.context import Context
from qdebug.compare.align.expand import has_unknown_inputs
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.pairs import Pair, Transform
from qdebug.model import Node, operators
from qdebug.model.dtypes import is_integer
from qdebug.model.operators import clamp_bounds, is_foreign, operands, same_family

__all__ = [
    "bounds_of",
    "clamp_to_next_codes",
    "code_span",
    "find_clamp_replaced_by_codes",
    "is_clamped_by_codes",
    "is_clamped_inside",
    "is_clamped_later",
    "is_codes_without_scale",
    "lies_within",
    "match_code_form",
    "note_clamp_after",
    "select_code_form",
]


def bounds_of(run: IndexedRecording, node: Node) -> tuple[float, float] | None:
    """Return the interval that a Relu or Clip clamps to, or None if unknown."""
    recording = run.recording
    constants = {name: recording.load(name) for name in node.inputs[1:] if name and recording.has(name)}
    return clamp_bounds(node, constants)


def is_clamped_by_codes(run: IndexedRecording, tensor: str, bounds: tuple[float, float] | None) -> bool:
    """Return whether the code range of a tensor has the effect of clamping to an interval.

    Args:
        run: The run that contains the tensor.
        tensor: Its name. A tensor without integer codes does not clamp.
        bounds: The interval, or None if unknown. An unknown interval is never replaced.
    """
    quant, span = run.graph.tensors[tensor].quant, code_span(run, tensor)
    if quant is None or span is None or bounds is None:
        return False
    step = float(np.max(quant.real_scale))
    return span[0] >= bounds[0] - step / 2 and span[1] <= bounds[1] + step / 2


def is_clamped_inside(
    run: IndexedRecording, tensor: str, other_run: IndexedRecording, unclamped: str, bounds: tuple[float, float] | None
) -> bool:
    """Return whether a tensor's values show that its node includes a Relu or Clip of the other run.

    A harness may omit operators fused into its convolutions. Recordings with complete graphs are not searched.

    Args:
        run: The run in which the node of the tensor may include a Relu or Clip.
        tensor: The tensor.
        other_run: The other run.
        unclamped: The input of the Relu or Clip in the other run.
        bounds: The interval that it clamps to.
    """
    node = run.recording.graph.producer(tensor)
    if bounds is None or node is None or not (is_foreign(node) or has_unknown_inputs(node)):
        return False
    if not (run.has(tensor) and other_run.has(unclamped)):
        return False
    return lies_within(run, tensor, bounds) and not lies_within(other_run, unclamped, bounds)


def lies_within(run: IndexedRecording, tensor: str, bounds: tuple[float, float]) -> bool:
    """Return whether all real values of a tensor lie in an interval; False if the tensor has no values.

    Args:
        run: The run that contains the tensor.
        tensor: The tensor.
        bounds: The interval.
    """
    values = run.values(tensor)
    return bool(values.size) and bool(np.min(values) >= bounds[0]) and bool(np.max(values) <= bounds[1])


def code_span(run: IndexedRecording, tensor: str) -> tuple[float, float] | None:
    """Return the smallest and the largest real value of a tensor's integer codes, or None without codes."""
    quant = run.graph.tensors[tensor].quant
    return None if quant is None else quant.span


def is_codes_without_scale(run: IndexedRecording, tensor: str) -> bool:
    """Return whether a tensor holds codes that a product sums directly and whose scale was not recorded.

    The scale may be part of a constant that multiplies the sums. In that case the real values are unknown.
    """
    info = run.graph.tensors[tensor]
    if info.quant is not None or info.dtype is None or not is_integer(info.dtype):
        return False
    waiting, visited = [tensor], {tensor}
    while waiting:
        name = waiting.pop()
        for node in run.graph.consumers(name):
            row = operators.of(node.op)
            if row.sums_codes and name in node.inputs[:2]:
                return True
            moved = set(node.outputs) - visited - {""} if row.moves and name in operands(node) else set()
            waiting += moved
            visited |= moved
    return False


def find_clamp_replaced_by_codes(context: Context, tensor: str, reference: str) -> Node | None:
    """Return the Relu or Clip that computes a reference tensor if later codes replace it in the backend, or None."""
    ref, be = context.ref, context.be
    backend_node, reference_node = _node_before_moves(be, tensor), ref.graph.producer(reference)
    if backend_node is None or reference_node is None or not operators.of(reference_node.op).clamps:
        return None
    if be.is_after_codes(tensor) or same_family(backend_node, reference_node):
        return None
    before = ref.graph.producer(reference_node.inputs[0])
    while before is not None and not same_family(before, backend_node):
        row, fed = operators.of(before.op), ref.data_inputs(before)
        if not (row.goes_into_weights or row.keeps_values) or len(fed) != 1:
            return None
        before = ref.graph.producer(fed[0])
    return reference_node if before is not None and _is_followed_by_codes(context, tensor, reference_node) else None


def _node_before_moves(run: IndexedRecording, tensor: str) -> Node | None:
    """Return the node that computes the values of a tensor, looking through nodes that only move them."""
    node = run.graph.producer(tensor)
    while node is not None and operators.of(node.op).moves is not None and len(operands(node)) == 1:
        node = run.graph.producer(operands(node)[0])
    return node


def _is_followed_by_codes(context: Context, tensor: str, clamp: Node) -> bool:
    """Return whether all readers of a backend tensor quantize it to a code range that acts like a reference clamp."""
    bounds, quantizers = bounds_of(context.ref, clamp), _quantizers_of(context.be, tensor)
    return bool(quantizers) and all(is_clamped_by_codes(context.be, node.outputs[0], bounds) for node in quantizers)


def _quantizers_of(run: IndexedRecording, tensor: str) -> list[Node]:
    """Return the quantizers that read a tensor, directly or after moves; an empty list if other nodes read it."""
    quantizers, waiting = list[Node](), [tensor]
    while waiting:
        readers = run.graph.consumers(waiting.pop())
        if not readers:
            return []
        for node in readers:
            row = operators.of(node.op)
            if row.quantizes:
                quantizers.append(node)
            elif row.moves is not None and len(node.outputs) == 1 and len(operands(node)) == 1:
                waiting.append(node.outputs[0])
            else:
                return []
    return quantizers


def note_clamp_after(context: Context, pair: Pair) -> None:
    """Note the output of the reference's Relu or Clip if the codes of a backend tensor's readers replace that clamp."""
    readers = context.ref.consumers(pair.reference)
    if len(readers) != 1 or not operators.of(readers[0].op).clamps or context.be.is_after_codes(pair.backend):
        return
    if _is_followed_by_codes(context, pair.backend, readers[0]):
        context.clamped_later[pair.backend] = readers[0].outputs[0]


def match_code_form(context: Context, pair: Pair) -> Pair:
    """Return the pair with the reference in the same form as the backend: quantized codes or dequantized values."""
    note_clamp_after(context, pair)
    if not context.be.is_after_codes(pair.backend):
        return pair
    return replace(pair, reference=select_code_form(context, pair.backend, pair.reference))


def is_clamped_later(context: Context, tensor: str, reference: str, clamp: Node) -> bool:
    """Return whether the reference has codes that replace a Relu or Clip of the backend."""
    reference_node = context.ref.graph.producer(reference) if operators.of(clamp.op).clamps else None
    if reference_node is None or same_family(reference_node, clamp):
        return False
    form, bounds = select_code_form(context, tensor, reference), bounds_of(context.be, clamp)
    return form != reference and any(
        is_clamped_by_codes(context.ref, name, bounds) for name in context.ref.members(form)
    )


def select_code_form(context: Context, tensor: str, reference: str) -> str:
    """Return the quantized or dequantized form of a reference tensor that suits a backend tensor."""
    ref = context.ref
    forms = ref.forms_after_codes(reference)
    if not forms:
        return reference
    if ref.root(tensor) == ref.root(reference) and ref.is_after_codes(tensor):
        return tensor
    codes, real = forms
    return codes if context.be.graph.tensors[tensor].quant is not None else real


def clamp_to_next_codes(context: Context) -> Iterator[Pair]:
    """Clamp a tensor to the code range of the quantizers that read it, if its partner was already quantized."""
    be = context.be
    for pair in list(context.pair_map.values()):
        tensor, quantizers = pair.backend, _quantizers_of(be, pair.backend)
        if pair.backend_view is not None or tensor in be.graph.outputs:
            continue
        if be.is_after_codes(tensor) or not context.ref.is_after_codes(pair.reference):
            continue
        spans = {code_span(be, node.outputs[0]) for node in quantizers}
        if len(spans) == 1 and (span := spans.pop()) is not None:
            reason = f"{pair.reason}; clipped to the range of the next quantizer"
            yield replace(pair, reason=reason, backend_view=Transform(clamp_low=span[0], clamp_high=span[1]))
