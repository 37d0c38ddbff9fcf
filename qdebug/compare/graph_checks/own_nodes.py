"""Finds backend nodes whose recorded outputs do not follow from their recorded inputs, one node at a time.

A wrong row can hide among the errors that quantizing the data causes. But the codes are recorded or follow from the
data, each of their sums has one right integer value, and scaling rounds only once. So each node with recorded inputs is
recomputed on codes, and its recorded elements are compared with the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from qdebug.arithmetic.presets import other_sums
from qdebug.compare.attribute.backend_replay import inputs_of
from qdebug.compare.attribute.band import beyond_own_terms, minus
from qdebug.compare.attribute.code_spans import uniform_span
from qdebug.compare.attribute.declared_format import declared_format
from qdebug.compare.graph_checks.tensor_facts import TensorFacts
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole
from qdebug.errors import KernelError, NotRecordedError
from qdebug.model import Node, Recording, operators
from qdebug.model.thresholds.attribution import DYNAMIC_TIE_REL_DISTANCE, DYNAMIC_WRONG_MAX_SHARE
from qdebug.model.thresholds.rounding import ELEMENTWISE_ROUNDOFFS, FLOAT32_UNIT_ROUNDOFF, LSB_SLACK
from qdebug.model.thresholds.verdict import DERIVED_LSB
from qdebug.numerics.affine import dequantize
from qdebug.replay.data_codes import quantize_data, roundings
from qdebug.replay.extents import recorded_limits
from qdebug.replay.precision import integer_limits
from qdebug.replay.real_form import real_form
from qdebug.replay.registry import has_kernel, run_node
from qdebug.replay.segment import run_form
from qdebug.replay.variant import Arithmetic

__all__ = ["WrongElements", "find_inconsistent_node", "limited_sums", "tensors_with_short_sums", "wrong_elements"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongElements:
    """A node with elements that do not follow from its recorded inputs.

    Args:
        node: The node.
        wrong: Number of wrong elements. If it is at most half, the arithmetic is right, because a different one would
            change most elements.
        count: Total number of elements.
    """

    node: Node
    wrong: int
    count: int

    def finding(self, last: Node) -> Finding:
        """Return a finding about the node, which lies in a region that ends with the given node."""
        element_kind = "sums" if operators.of(self.node.op).sums_codes else "elements"
        node_text = "the node" if self.node is last else f"{self.node.op} {self.node.name!r}"
        return Finding(
            kind=FindingKind.ARITHMETIC,
            role=FindingRole.DIFFERENCE,
            node=self.node.name,
            sentence=(
                f"{self.wrong} of {self.count} {element_kind} differ from a replay of {node_text} "
                "on its recorded inputs"
            ),
            amount=float(self.wrong),
            limit=0.0,
            unit="elements",
        )


def wrong_elements(facts: TensorFacts, places: Iterable[tuple[int, int]]) -> Finding | None:
    """Find the node with elements that do not follow from its recorded inputs, although most elements do.

    Their error counts even if quantizing the data causes far larger errors, because the right value follows from the
    codes.
    """
    inconsistent = filter(None, (find_inconsistent_node(facts, place) for place in places))
    rare_errors = (error for error in inconsistent if error.wrong <= DYNAMIC_WRONG_MAX_SHARE * error.count)
    return next((error.finding(facts.node) for error in rare_errors), None)


def find_inconsistent_node(facts: TensorFacts, place: tuple[int, int]) -> WrongElements | None:
    """Return the first node of a segment whose recorded inputs do not account for its output, or None.

    Nodes with unrecorded inputs or outputs, or without a kernel, are skipped.
    """
    for node in facts.segment.own:
        wrong_elements_of_node, sums = _count_wrong_elements(facts.backend, node, place)
        if wrong_elements_of_node is not None and sums is None and not _is_reproduced_by_known_arithmetic(facts, node):
            return wrong_elements_of_node
    return None


def _is_reproduced_by_known_arithmetic(facts: TensorFacts, node: Node) -> bool:
    """Return whether a known arithmetic reproduces a node's codes bit for bit, on too many elements for chance."""
    output = next(name for name in node.outputs if name)
    if facts.backend.graph.tensors[output].quant is None:
        return False
    return facts.reproducer.variant(node, output, firmly=True) is not None


def limited_sums(facts: TensorFacts) -> str | None:
    """Return how the nodes accumulate in fewer than 32 bits, if only that reproduces their outputs, or None."""
    method: str | None = None
    for place in facts.places:
        for node in facts.segment.own:
            inconsistent, sums = _count_wrong_elements(facts.backend, node, place)
            if inconsistent is not None and sums is None:
                return None
            method = method or sums
    return method


def tensors_with_short_sums(facts: TensorFacts) -> frozenset[str]:
    """Return the quantized tensors of a segment whose node provably accumulates in fewer than 32 bits."""
    tensors = set[str]()
    for node in facts.segment.own:
        name = next(filter(None, node.outputs), "")
        if not name or facts.backend.graph.tensors[name].quant is None:
            continue
        variant = facts.reproducer.variant(node, name, firmly=True)
        if variant is not None and variant.limited_sums is not None:
            tensors.add(name)
    return frozenset(tensors)


def _count_wrong_elements(
    recording: Recording, node: Node, place: tuple[int, int]
) -> tuple[WrongElements | None, str | None]:
    """Count the elements that do not follow from a node's recorded inputs, and find short sums that explain them.

    Returns:
        The count, or None if all elements are right or it is unknown; and the method of accumulation in words, or None.
    """
    outputs = [name for name in node.outputs if name and recording.has(name, *place)]
    if not outputs or recording.graph.is_constant(outputs[0]) or not (node.inputs and node.inputs[0]):
        return None, None
    is_on_codes = operators.of(node.op).takes_codes
    try:
        wrong_count = (_count_wrong_codes if is_on_codes else _count_wrong_reals)(recording, node, outputs[0], place)
        if not wrong_count:
            return None, None
        methods = other_sums().items() if is_on_codes else ()
        reproducing_methods = (
            words
            for words, arithmetic in methods
            if not _count_wrong_codes(recording, node, outputs[0], place, arithmetic=arithmetic)
        )
        counted = WrongElements(node=node, wrong=wrong_count, count=recording.load(outputs[0], *place).size)
        return counted, next(reproducing_methods, None)
    except (KernelError, NotRecordedError):
        return None, None


def _count_wrong_reals(recording: Recording, node: Node, output: str, place: tuple[int, int]) -> int:
    """Count the wrong elements of a real-valued node, or return 0 if no rounding bound is known."""
    recorded_values, quant = recording.load(output, *place), recording.graph.tensors[output].quant
    form, opset = real_form(node, recording.graph.opset)
    if quant is not None:
        span = uniform_span(quant)
        if span == (None, None) or quant.per_channel:
            return 0
        with recorded_limits(recording, place):
            replayed_values = np.clip(run_form(node, form, opset, inputs_of(recording, form, place))[output], *span)
        real_values = dequantize(recorded_values, quant)
        if replayed_values.shape != real_values.shape:
            return 0
        errors = np.nan_to_num(np.abs(minus(replayed_values, real_values)), nan=0.0)
        return int(np.count_nonzero(errors > (DERIVED_LSB + LSB_SLACK) * float(quant.scale[0])))
    if form is not node or recorded_values.dtype.kind != "f":
        return 0
    values = inputs_of(recording, form, place)
    with recorded_limits(recording, place):
        replayed_values = run_node(form, values, opset)[output]
    short_format = declared_format(recording)
    unit, normal = (FLOAT32_UNIT_ROUNDOFF, None) if short_format is None else (short_format.unit, short_format.normal)
    return beyond_own_terms(form, values, replayed_values, recorded_values, unit, normal=normal)


def _count_wrong_codes(
    recording: Recording, node: Node, output: str, place: tuple[int, int], *, arithmetic: Arithmetic | None = None
) -> int:
    """Count the wrong elements of a node on codes, or return 0 if they are not known exactly."""
    row = operators.of(node.op)
    if not (row.sums_codes or row.scales_sums or row.gives_scale) or not has_kernel(node.op, node.domain):
        return 0
    values = {name: recording.load(name, *place) for name in node.inputs if name}
    if row.gives_scale:
        return _count_wrong_chosen_codes(recording, node, values[node.inputs[0]], place)
    recorded_codes = recording.load(output, *place)
    if row.sums_codes and recorded_codes.dtype.kind != "i":
        return 0  # the recording holds real values instead of integer sums
    if not row.chooses_scale and values[node.inputs[0]].dtype.kind not in "iu":
        return 0
    wrong_counts = []
    for rounding in roundings(node):
        with recorded_limits(recording, place):
            replayed_values = run_node(rounding, values, recording.graph.opset, arithmetic=arithmetic)[output]
        if replayed_values.shape != recorded_codes.shape:
            return 0
        # Another check judges non-finite values.
        errors = np.nan_to_num(np.abs(minus(replayed_values, recorded_codes)), nan=0.0)
        wrong_counts.append(
            int(
                np.count_nonzero(
                    errors > (0.0 if row.sums_codes else _rounding_bound(rounding, values, replayed_values))
                )
            )
        )
    return min(wrong_counts)


def _count_wrong_chosen_codes(recording: Recording, node: Node, data: np.ndarray, place: tuple[int, int]) -> int:
    """Count the codes that do not follow from the data and the recorded scale. A tie may be broken either way."""
    names = node.outputs[:3]
    if len(names) < 3 or not all(recording.has(name, *place) for name in names):
        return 0
    codes, scale, zero = (recording.load(name, *place) for name in names)
    if codes.dtype.kind not in "iu" or not scale.size == zero.size == 1 or not float(scale.reshape(())):
        return 0
    steps = data.astype(np.float64) / float(scale.reshape(())) + int(zero.reshape(()))
    low, high = integer_limits(codes.dtype)
    errors = np.nan_to_num(np.abs(np.clip(steps, low, high) - codes.astype(np.float64)), nan=0.0)
    return int(np.count_nonzero(errors > 0.5 + DYNAMIC_TIE_REL_DISTANCE * (high - low + 1)))


def _rounding_bound(node: Node, values: Mapping[str, np.ndarray], replayed_values: np.ndarray) -> np.ndarray:
    """Bound the rounding error of scaling exact sums and adding a bias, plus the effect of codes near a tie."""
    row = operators.of(node.op)
    name = node.inputs[row.bias] if row.bias is not None and row.bias < len(node.inputs) else ""
    bias = values[name].astype(np.float64) if name else np.zeros(())
    bound = ELEMENTWISE_ROUNDOFFS * FLOAT32_UNIT_ROUNDOFF * (np.abs(replayed_values - bias) + np.abs(bias))
    return bound + _effect_of_ties(node, values) if row.chooses_scale else bound


def _effect_of_ties(node: Node, values: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return how much each element of a product may change if near-ties in its data are rounded either way."""
    data, weight, scales = (values[name] for name in node.inputs[:3])
    if node.attrs.get("flatten"):
        data = data.reshape(-1, len(weight))
    _, scale, _ = quantize_data(node.attrs, data)
    scale = np.where(scale == 0, 1.0, scale.astype(np.float64))
    steps = data.astype(np.float64) / scale
    is_near_tie = np.abs(np.abs(steps - np.floor(steps)) - 0.5) <= DYNAMIC_TIE_REL_DISTANCE * np.maximum(
        np.abs(steps), 1
    )
    name = node.inputs[3] if len(node.inputs) > 3 else ""
    zero = values[name].astype(np.float64) if name else np.zeros(())
    centred = np.abs(weight.astype(np.float64) - (zero.reshape(()) if zero.size == 1 else zero))
    return np.asarray(np.matmul(is_near_tie.astype(np.float64), centred) * scale * np.abs(scales.reshape(-1)))
