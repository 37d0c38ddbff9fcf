"""Changes that may bring a quantized net's outputs back, node by node, with what each costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from qdebug.compare.attribute.backend_replay import real_values
from qdebug.compare.attribute.band import sum_terms
from qdebug.compare.attribute.code_spans import folded_clamp
from qdebug.compare.attribute.plan import PlannedNode
from qdebug.compare.attribute.rounding import scales_by_constants
from qdebug.compare.attribute.segments import main_node
from qdebug.compare.graph_checks.folded_constants import fold, output_axis
from qdebug.compare.graph_checks.graph_check import GraphCheck
from qdebug.compare.own_error import own_error
from qdebug.errors import KernelError, RecordingError
from qdebug.model import Node, QuantParams, Recording, operators
from qdebug.model.dtypes import is_integer
from qdebug.model.outline import shape_of
from qdebug.numerics.affine import dequantize, quantize
from qdebug.replay.real_form import real_form
from qdebug.workflow.edited_replay import Change, merged
from qdebug.workflow.scales_rescaled import handed_on, hands_on

__all__ = ["KINDS", "ChangeableNode", "Edit", "EditCatalog"]

KINDS: Mapping[str, str] = {
    "bias": "the bias takes back the mean error of each channel",
    "per-channel": "the weights get a scale for each output channel",
    "16-bit": "the result is rounded to 16 bits",
    "float": "the node is computed in float, and its result stays float where float nodes alone read it",
}
"""Kinds of edits, the cheapest first, and what each does."""

_WIDE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeableNode:
    """A node that can be changed.

    Args:
        node: The backend node.
        tensor: The codes that its result is rounded to, by itself or by a quantizer behind it; "" for none.
        rounder: The node that makes them.
        tensors: They, and what nodes that do not compute hand them on as.
        readers: Names of the nodes that compute with these codes.
    """

    node: Node
    tensor: str
    rounder: str
    tensors: frozenset[str]
    readers: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Edit:
    """One change of one node.

    Args:
        kind: One of `KINDS`.
        unit: The node.
        change: What is changed, but for results that stay float: that depends on who reads them.
        macs: Multiply-adds in higher precision, as a share of all.
        size: Bytes that weights, or an activation, take more.
        reference_node: The reference's node; "" if it is not known.
        reference_tensor: The reference's tensor of the result; "" likewise.
        reference_weight: The reference's weight; "" likewise.
        scales: Scales of the codes that the weight is kept in; None if it is in float, or as it was.
        axis: The dimension of the weight that they go along.
    """

    kind: str
    unit: ChangeableNode
    change: Change
    macs: float
    size: int
    reference_node: str
    reference_tensor: str
    reference_weight: str
    scales: np.ndarray | None = None
    axis: int | None = None

    def constants(self) -> Sequence[np.ndarray]:
        """Return the weight, and the bias if it is another one too, that the node gets; nothing if it keeps them."""
        return list(self.change.constants.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the edit as plain values."""
        return {
            "kind": self.kind,
            "node": self.unit.node.name,
            "op": self.unit.node.op,
            "tensor": self.unit.tensor or self.unit.node.outputs[0],
            "reference_node": self.reference_node or None,
            "macs": self.macs,
            "bytes": self.size,
        }


class EditCatalog:
    """Knows what can be changed of a run.

    Args:
        graphs: Holds the two graphs against each other.
        plan: What is compared.
        places: Samples and steps that a bias correction is fitted to.
    """

    def __init__(self, graphs: GraphCheck, plan: Sequence[PlannedNode], places: Sequence[tuple[int, int]]) -> None:
        self._graphs, self._places = graphs, places
        self._ref, self._be = graphs.replays.ref, graphs.replays.be
        self._by_tensor = {entry.tensor: entry for entry in plan}
        self._known: dict[str, list[Edit]] = {}

    @property
    def _run(self) -> Recording:
        return self._be.recording

    @cached_property
    def units(self) -> Mapping[str, ChangeableNode]:
        """The nodes that can be changed, by name."""
        found = {}
        for node in self._run.graph.nodes:
            row = operators.of(node.op)
            result = next(iter(node.outputs), "")
            if row.dequantizes or hands_on(node) or not result or self._be.folds(result):
                continue
            unit = self._unit(node)
            quantizes_result = row.quantizes and self._maker(node) is not None
            if unit is not None and not quantizes_result:
                found[node.name] = unit
        return found

    def unit_of(self, name: str) -> ChangeableNode | None:
        """Return what a node belongs to: itself, or the node whose result it quantizes; None if that is nothing."""
        if name in self.units:
            return self.units[name]
        return next((unit for unit in self.units.values() if unit.rounder == name), None)

    def _maker(self, quantizer: Node) -> Node | None:
        maker = self._run.graph.producer(quantizer.inputs[0])
        return None if maker is None or operators.of(maker.op).dequantizes else maker

    def _unit(self, node: Node) -> ChangeableNode | None:
        graph, tensor = self._run.graph, node.outputs[0]
        rounder = node
        for _ in range(3):  # an activation and a quantizer behind it
            quant = graph.tensors[tensor].quant
            if quant is not None and is_integer(quant.dtype):
                tensors = handed_on(graph, tensor)
                return ChangeableNode(
                    node=node, tensor=tensor, rounder=rounder.name, tensors=tensors, readers=self._readers(tensors)
                )
            readers = graph.consumers(tensor)
            if len(readers) != 1 or not (
                operators.of(readers[0].op).quantizes or operators.of(readers[0].op).activation
            ):
                break
            rounder, tensor = readers[0], readers[0].outputs[0]
        if not self._weight(node):
            return None
        return ChangeableNode(node=node, tensor="", rounder="", tensors=frozenset(), readers=frozenset())

    def _readers(self, tensors: frozenset[str]) -> frozenset[str]:
        """Return the nodes that compute with codes, be they dequantized or handed on first."""
        graph, found = self._run.graph, set[str]()
        for codes in tensors:
            for node in graph.consumers(codes):
                behind = graph.consumers(node.outputs[0]) if operators.of(node.op).dequantizes else (node,)
                found.update(each.name for each in behind if not hands_on(each))
        return frozenset(found)

    def _weight(self, node: Node) -> str:
        """Return the constant that a product multiplies with; "" if it is no product of one."""
        form, _ = real_form(node, self._run.graph.opset)
        if not operators.plain(form).product:
            return ""
        name = operators.titled_input(form, 1)
        return name if name and self._be.folds(name) and self._run.has(name) else ""

    # -- edits -------------------------------------------------------------------------------------------------------

    def edits_of(self, name: str) -> list[Edit]:
        """List what can be done about a node, the cheapest first."""
        if name not in self._known:
            self._known[name] = sorted(self._edits(self.units[name]), key=lambda edit: list(KINDS).index(edit.kind))
        return self._known[name]

    def _edits(self, unit: ChangeableNode) -> Iterator[Edit]:
        node = unit.node
        weights = self._reference_constants(node)
        macs, elements = self._macs(node) / self.all_macs if self.all_macs else 0.0, self._elements(node)
        entry = self._entry(unit)
        main = None if entry is None else self._reference_node(entry)

        def edit(kind: str, change: Change, *, macs: float = 0.0, size: int = 0) -> Edit:
            return Edit(
                kind=kind,
                unit=unit,
                change=change,
                macs=macs,
                size=size,
                reference_node="" if main is None else main.name,
                reference_tensor="" if entry is None else entry.reference_tensor,
                reference_weight="" if main is None or not self._weight(node) else operators.titled_input(main, 1),
            )

        only = frozenset({node.name})
        if weights and (channels := self._by_channel(node, weights)):
            values, fine = channels
            found = edit("per-channel", Change(nodes=only, constants=values), size=4 * fine.scale.size)
            yield replace(found, scales=fine.scale, axis=fine.axis)
        takes_bias = operators.of(real_form(node, self._run.graph.opset)[0].op).bias is not None
        shift = self._shift(node) if self._weight(node) and takes_bias else None
        if shift is not None:
            yield edit("bias", Change(nodes=only, shifts={node.name: shift}))
        if unit.tensor:
            quant = _wide(self._run.graph.tensors[unit.tensor].quant)
            if quant is not None:
                yield edit(
                    "16-bit", Change(nodes=frozenset({unit.rounder}), quants={unit.tensor: quant}), size=elements
                )
        if weights or not self._weight(node):
            size = 3 * sum(array.size for array in weights.values())
            yield edit("float", Change(nodes=only, constants=weights), macs=macs, size=size)

    def change(self, edits: Sequence[Edit]) -> Change:
        """Return all that some edits change together."""
        floats = {edit.unit.node.name for edit in edits if edit.kind == "float"}
        kept: dict[str, tuple[float | None, float | None]] = {}
        for edit in edits:
            if edit.kind == "float" and edit.unit.tensor and edit.unit.readers <= floats:
                entry = self._by_tensor.get(edit.unit.tensor)
                span = None if entry is None else folded_clamp(self._ref.recording, self._run, entry)
                kept |= dict.fromkeys(edit.unit.tensors, span or (None, None))
        rounders = {edit.unit.rounder for edit in edits if edit.unit.tensor in kept}
        whole = merged(*(edit.change for edit in edits))
        return replace(whole, floats=kept, nodes=whole.nodes | rounders)

    # -- what edits are made of --------------------------------------------------------------------------------------

    def _entry(self, unit: ChangeableNode) -> PlannedNode | None:
        return self._by_tensor.get(unit.node.outputs[0]) or self._by_tensor.get(unit.tensor)

    def _reference_node(self, entry: PlannedNode) -> Node | None:
        check = self._graphs.of(entry)
        if check is None:
            return None
        return main_node(check.node, check.segment) or (check.segment.nodes[-1] if check.segment.nodes else None)

    def _reference_constants(self, node: Node) -> dict[tuple[str, str], np.ndarray]:
        """Return the reference's weight and bias for a backend node, with what is folded into them; none if unlike."""
        weight = self._weight(node)
        entry = next((self._by_tensor[name] for name in self._behind(node) if name in self._by_tensor), None)
        check = None if entry is None or not weight else self._graphs.of(entry)
        if check is None:
            return {}
        form, _ = real_form(node, self._run.graph.opset)
        main = next((each for each in check.segment.nodes if operators.same_family(each, node)), None)
        if main is None or sum(operators.plain(each).product for each in check.segment.nodes) != 1:
            return {}
        theirs, _ = real_form(main, self._ref.recording.graph.opset)
        try:
            found = self._constants_of(theirs, check.segment.beside(main))
        except RecordingError:
            return {}
        if found is None:
            return {}
        values, bias = found
        if bool(form.attrs.get("transB")) != bool(theirs.attrs.get("transB")):
            values = np.swapaxes(values, -1, -2)
        mine = real_values(self._run, weight)
        if mine.shape != values.shape:
            return {}
        made = {(node.name, weight): values}
        name = operators.titled_input(form, 2)
        if name and bias is not None and self._run.has(name) and self._run.load(name).size == bias.size:
            made[node.name, name] = bias.reshape(self._run.load(name).shape)
        return made

    def _constants_of(self, theirs: Node, others: Sequence[Node]) -> tuple[np.ndarray, np.ndarray | None] | None:
        if scales_by_constants(self._ref, others):
            folded = fold(self._ref, theirs, others)
            return None if folded is None else (folded.weight, folded.bias)
        name = operators.titled_input(theirs, 1)
        if not name or not self._ref.folds(name):
            return None
        bias = operators.titled_input(theirs, 2)
        known = real_values(self._ref.recording, bias) if bias and self._ref.recording.has(bias) else None
        return real_values(self._ref.recording, name), known

    def _behind(self, node: Node) -> Iterator[str]:
        yield node.outputs[0]
        unit = self.units.get(node.name)
        if unit is not None and unit.tensor:
            yield unit.tensor

    def _by_channel(
        self, node: Node, weights: Mapping[tuple[str, str], np.ndarray]
    ) -> tuple[dict[tuple[str, str], np.ndarray], QuantParams] | None:
        """Return the reference's weight in int8 codes with a scale for each output channel; None if it has these."""
        form, _ = real_form(node, self._run.graph.opset)
        name, axis = self._weight(node), output_axis(form)
        quant = self._weight_quant(name)
        if axis is None or quant is None or quant.per_channel or not is_integer(quant.dtype):
            return None
        values = weights[node.name, name]
        axis %= values.ndim
        others = tuple(at for at in range(values.ndim) if at != axis)
        scale = np.abs(values).max(axis=others).astype(np.float32) / np.float32(127)
        scale[scale == 0] = 1
        fine = QuantParams(dtype="int8", scale=scale, zero_point=np.zeros(scale.shape, np.int8), axis=axis)
        return {(node.name, name): dequantize(quantize(values.astype(np.float32), fine), fine)}, fine

    def _weight_quant(self, name: str) -> QuantParams | None:
        graph = self._run.graph
        known = graph.tensors[name].quant
        maker = graph.producer(name)
        if known is None and maker is not None and operators.of(maker.op).dequantizes:
            return graph.tensors[maker.inputs[0]].quant
        return known

    def _shift(self, node: Node) -> np.ndarray | None:
        """Return what takes back the mean own error of each channel of a product; None where that is not known."""
        entry = self._by_tensor.get(node.outputs[0])
        if entry is None or entry.pair.backend_view is not None or entry.pair.reference_view is not None:
            return None
        total, count = None, 0
        matrix = output_axis(real_form(node, self._run.graph.opset)[0]) in (-1, -2)
        for place in self._places:
            try:
                error = own_error(self._graphs, entry, place)
            except (KernelError, RecordingError):
                return None
            axis = error.ndim - 1 if matrix else 1
            if error.ndim <= axis or not np.isfinite(error).all():
                return None
            mean = error.mean(axis=tuple(at for at in range(error.ndim) if at != axis), keepdims=True)
            total, count = mean if total is None else total + mean, count + 1
        return None if total is None else np.asarray(-total / count, np.float32)

    @cached_property
    def all_macs(self) -> float:
        """Multiply-adds of all nodes that can be changed, for one sample."""
        return sum(self._macs(unit.node) for unit in self.units.values())

    def _macs(self, node: Node) -> float:
        form, _ = real_form(node, self._run.graph.opset)
        if not operators.plain(form).product:
            return float(self._elements(node))
        try:
            shapes = {name: shape_of(self._run, name, *self._at(name)) for name in form.inputs if name}
            made = shape_of(self._run, form.outputs[0], *self._at(form.outputs[0]))
            return math.prod(made) * max(sum_terms(form, shapes, made) - 1, 1)
        except (RecordingError, IndexError, KeyError, ZeroDivisionError):
            return float(self._elements(node))

    def _elements(self, node: Node) -> int:
        try:
            return math.prod(shape_of(self._run, node.outputs[0], *self._at(node.outputs[0])))
        except (RecordingError, KeyError):
            return 0

    def _at(self, name: str) -> tuple[int, int]:
        return (0, 0) if self._be.folds(name) or not self._places else self._places[0]


def _wide(quant: QuantParams | None) -> QuantParams | None:
    """Return 16-bit codes of the same range; None if there are no narrower ones."""
    if quant is None or quant.per_channel or quant.qmin is None or quant.qmax is None:
        return None
    if not is_integer(quant.dtype) or quant.qmax - quant.qmin >= 2**_WIDE - 1:
        return None
    dtype = "uint16" if quant.dtype.startswith("u") else "int16"
    factor = 2**_WIDE / 2 ** math.ceil(math.log2(quant.qmax - quant.qmin + 1))
    low = -(2 ** (_WIDE - 1)) if dtype == "int16" else 0
    return QuantParams(
        dtype=dtype,
        scale=(quant.scale / factor).astype(np.float32),
        zero_point=np.clip(np.rint(quant.zero_point * factor), low, low + 2**_WIDE - 1).astype(dtype),
    )
