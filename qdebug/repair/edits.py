"""Changes that may restore a quantized network's outputs, node by node, with the cost of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated

import numpy as np

from qdebug.compare.attribute.backend_replay import real_values, replay
from qdebug.compare.attribute.plan import PlannedNode
from qdebug.compare.graph_checks.graph_check import GraphCheck
from qdebug.compare.graph_checks.quant_mismatch import bias_in_other_units
from qdebug.compare.own_error import own_error
from qdebug.errors import KernelError, NotRecordedError, UsageError
from qdebug.model import Node, QuantParams, operators
from qdebug.model.json_object import JsonObject, SchemaPart
from qdebug.model.thresholds.patterns import OTHER_ROUNDING_LEAST
from qdebug.numerics.affine import quantize
from qdebug.repair.biases import ChangedBias, changed_biases, min_weight_scale
from qdebug.repair.edited_replay import Change, merge_changes
from qdebug.repair.scales import equalize_channels, fit_codes, round_to_codes, separate_scale, weight_codes, widen_codes
from qdebug.repair.units import ChangeableNode, ChangeableNodes, Constants
from qdebug.replay.real_form import real_form

__all__ = ["KINDS", "Edit", "EditCatalog"]

KINDS: Mapping[str, str] = {
    "bias-unit": "the codes of the bias get the scale of the accumulator",
    "bias": "the bias corrects the recorded mean error of each channel",
    "range": "the codes of the result get the range with the smallest squared error",
    "equalize": "each channel is scaled so that this weight and the next have the same range",
    "wide-sum": "the sums are exact, as with 32 bits, where narrow sums of the backend overflow",
    "rounding": "the result is rounded to the nearest code, where the backend rounds differently",
    "split": "a branch gets its own scale, and the joined result is rounded to 16 bits",
    "per-channel": "the weights get a scale for each output channel",
    "16-bit": "the result is rounded to 16 bits, which hold twice the range of its values",
    "float": "the node is computed in float, and its result stays float if only float nodes read it",
}
"""Kinds of edits, cheapest first, with a description."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Edit(JsonObject):
    """One change of one node.

    Args:
        kind: One of `KINDS`.
        unit: The node.
        change: The change, without tensors that stay float, because those depend on their readers.
        macs: Multiply-adds in float, as a share of all.
        size: Additional bytes of weights, or of an activation.
        reference_node: The reference's node, or None if unknown.
        reference_tensor: The reference's tensor that the codes of the result represent, or "".
        reference_weight: The reference's weight, or "".
        codes: Codes in which constants are stored, by node and name. Other changed constants are in float.
        exact: The kind of edit that it includes if the backend's sums overflow, have a bias with a different scale or
            are not rounded to the nearest code, because a changed node is computed exactly. "" in other cases.
    """

    json_keys = "kind node=unit.node.name op=unit.node.op tensor reference_node=reference_node.name macs bytes=size"

    kind: Annotated[str, SchemaPart(enum=[*KINDS])]
    unit: ChangeableNode
    change: Change
    macs: float
    size: int
    reference_node: Node | None
    reference_tensor: str
    reference_weight: str
    codes: Mapping[tuple[str, str], QuantParams] = field(default_factory=dict)
    exact: str = ""

    @property
    def name(self) -> str:
        """The kind and the node."""
        return f"{self.kind} {self.unit.node.name}"

    @property
    def tensor(self) -> str:
        """The tensor that the node computes."""
        return self.unit.tensor or self.unit.node.outputs[0]

    @property
    def other_codes(self) -> QuantParams | None:
        """The new codes of the result, or None if they are unchanged."""
        return self.change.quants.get(self.unit.tensor) if self.kind in ("16-bit", "range") else None

    def replaces(self, other: Edit) -> bool:
        """Return whether this edit replaces an earlier one, because both set the same constant or the same codes.

        An edit that leaves a node in float replaces all other edits of that node.
        """
        own_change, other_change = self.change, other.change
        if self.kind == "float" and self.unit.node.name == other.unit.node.name:
            return True
        return not (
            own_change.constants.keys().isdisjoint(other_change.constants)
            and own_change.quants.keys().isdisjoint(other_change.quants)
        )


class EditCatalog:
    """The possible changes of a run.

    Args:
        graphs: Compares the two graphs.
        plan: The compared tensors.
        places: Samples and steps to which scales and biases are fitted.
    """

    def __init__(self, graphs: GraphCheck, plan: Sequence[PlannedNode], places: Sequence[tuple[int, int]]) -> None:
        self.nodes = ChangeableNodes(graphs, plan, places)
        self._edits: dict[tuple[str, str], Edit | None] = {}
        self._empty_edits: dict[str, tuple[Edit, Constants]] = {}
        self._inexactness: dict[str, str] = {}

    @property
    def units(self) -> Mapping[str, ChangeableNode]:
        """The changeable nodes, by name."""
        return self.nodes.units

    def edits_of(self, name: str, kinds: Sequence[str] = tuple(KINDS)) -> list[Edit]:
        """Return the edits of a node, cheapest first."""
        return [edit for edit in (self._find_edit(kind, name) for kind in KINDS if kind in kinds) if edit is not None]

    def edit_named(self, name: str) -> Edit:
        """Return an edit by its name."""
        kind, _, node = name.partition(" ")
        edit = self._find_edit(kind, node) if kind in KINDS and node in self.units else None
        if edit is None:
            raise UsageError(f"Node {node!r} has no edit {kind!r}.", hint="Use edits from a repair of this run.")
        return edit

    def change(self, edits: Sequence[Edit]) -> Change:
        """Return the combined change of several edits."""
        merged_change = self._merged_change(edits)
        biases = self._biases(merged_change, edits)
        bias_nodes = {node for node, _ in biases}
        return replace(
            merged_change,
            nodes=merged_change.nodes | {node for (node, _), bias in biases.items() if bias.is_changed},
            constants={**merged_change.constants, **{key: bias.values for key, bias in biases.items()}},
            shifts={name: shift for name, shift in merged_change.shifts.items() if name not in bias_nodes},
        )

    def biases(self, edits: Sequence[Edit]) -> Mapping[tuple[str, str], ChangedBias]:
        """Return the biases whose values or codes the given edits change, by node and name."""
        return self._biases(self._merged_change(edits), edits)

    def _biases(self, merged_change: Change, edits: Sequence[Edit]) -> Mapping[tuple[str, str], ChangedBias]:
        codes: dict[tuple[str, str], QuantParams | None] = {}
        for edit in edits:
            codes |= {key: edit.codes.get(key) for key in edit.change.constants}
        return changed_biases(self.nodes, merged_change, codes)

    def _merged_change(self, edits: Sequence[Edit]) -> Change:
        """Return the combined change of edits, before biases are adapted to the combined scales."""
        floats = {edit.unit.node.name for edit in edits if edit.kind == "float"}
        floats |= {name for edit in edits for name in edit.unit.readers if self.nodes.is_float(name)}
        float_spans: dict[str, tuple[float | None, float | None]] = {}
        for edit in edits:
            # A network output keeps its codes, since its readers are outside the network.
            has_inner_result = edit.unit.tensors.isdisjoint(self.nodes.run.graph.outputs)
            if edit.kind == "float" and edit.unit.tensor and has_inner_result and edit.unit.readers <= floats:
                float_spans |= dict.fromkeys(edit.unit.tensors, self.nodes.float_span(edit.unit))
        rounders = {edit.unit.rounder for edit in edits if edit.unit.tensor in float_spans}
        merged_change = merge_changes(*(edit.change for edit in edits))
        return replace(merged_change, floats=float_spans, nodes=merged_change.nodes | rounders)

    def _find_edit(self, kind: str, name: str) -> Edit | None:
        """Return an edit of a node, fitted on demand and cached, or None if there is none."""
        if (kind, name) not in self._edits:
            if name not in self._empty_edits:
                self._empty_edits[name] = self._make_empty_edit(self.units[name])
            empty_edit, weights = self._empty_edits[name]
            # If the bias has the wrong scale, only these edits help.
            is_applicable = kind in ("bias-unit", "float") or self._inexactness[name] != "bias-unit"
            edit = (
                (self._make_weight_edit(kind, empty_edit, weights) or self._make_result_edit(kind, empty_edit))
                if is_applicable
                else None
            )
            self._edits[kind, name] = edit
        return self._edits[kind, name]

    def _make_empty_edit(self, unit: ChangeableNode) -> tuple[Edit, Constants]:
        """Return an empty edit for a node, and the reference's constants for the node."""
        nodes, entry, name = self.nodes, self.nodes.entry(unit), unit.node.name
        self._inexactness[name] = self._find_inexactness(unit)
        reference_node = None if entry is None else nodes.reference_node(entry)
        result_entry = nodes.planned(unit.tensor) or entry  # prefer the codes, into which a clamp may be folded
        empty_edit = Edit(
            kind="",
            unit=unit,
            change=Change(nodes=frozenset({name})),
            macs=0.0,
            size=0,
            reference_node=reference_node,
            reference_tensor="" if result_entry is None else result_entry.reference_tensor,
            reference_weight=""
            if reference_node is None or not nodes.weight(unit.node)
            else operators.titled_input(reference_node, 1),
            exact=self._inexactness[name] if unit.rounder == name else "",
        )
        return empty_edit, nodes.reference_constants(unit.node)

    def _make_weight_edit(self, kind: str, empty_edit: Edit, weights: Constants) -> Edit | None:
        """Return an edit of a node's weight or bias, or the one that leaves the node in float; None for other kinds."""
        nodes, node, edit_with = self.nodes, empty_edit.unit.node, partial(replace, empty_edit, kind=kind)
        key = node.name, nodes.weight(node)
        if kind == self._inexactness[node.name] == "bias-unit" and (bias := nodes.bias(node)):
            return edit_with(
                change=replace(empty_edit.change, constants={(node.name, bias): real_values(nodes.run, bias)})
            )
        if kind == "bias" and key[1] and (shift := self._mean_error_shift(node)) is not None:
            return edit_with(change=replace(empty_edit.change, shifts={node.name: shift}))
        if kind == "per-channel" and weights and (channel_quant := self._per_channel_codes(node, weights[key])):
            change = replace(empty_edit.change, constants={key: round_to_codes(weights[key], channel_quant)})
            return edit_with(change=change, size=4 * channel_quant.scale.size, codes={key: channel_quant})
        if kind == "equalize" and weights and (equalized_change := equalize_channels(nodes, empty_edit.unit, weights)):
            return edit_with(change=equalized_change[0], codes=equalized_change[1])
        if kind == "float" and (weights or not key[1]):
            size = 3 * sum(array.size for array in weights.values())
            macs = nodes.macs(node) / nodes.all_macs if nodes.all_macs else 0.0
            return edit_with(change=replace(empty_edit.change, constants=weights), macs=macs, size=size, exact="")
        return None

    def _make_result_edit(self, kind: str, empty_edit: Edit) -> Edit | None:
        """Return an edit of the codes of a node's result; None for other kinds, or if the edit does not apply."""
        unit, nodes, inexactness = empty_edit.unit, self.nodes, self._inexactness[empty_edit.unit.node.name]
        # A node with new codes is computed exactly and rounded to nearest.
        edit_with = partial(replace, empty_edit, kind=kind, exact=inexactness)
        quant, elements, rounder = nodes.result_quant(unit), nodes.elements(unit.node), frozenset({unit.rounder})
        if quant is None:
            return None
        if kind == "16-bit" and (wide_quant := widen_codes(nodes.values(unit), quant)) is not None:
            return edit_with(
                change=Change(nodes=rounder, quants=dict.fromkeys(unit.tensors, wide_quant)), size=elements
            )
        if kind == "range" and (fitted_quant := fit_codes(nodes.values(unit), quant)) is not None:
            return edit_with(change=Change(nodes=rounder, quants=dict.fromkeys(unit.tensors, fitted_quant)))
        if kind == "split" and (split_change := separate_scale(nodes, unit)) is not None:
            joined_elements = sum(
                nodes.elements(other_unit.node)
                for other_unit in nodes.units.values()
                if other_unit.tensor in split_change.quants
            )
            return edit_with(change=split_change, size=joined_elements - elements)
        return edit_with(change=Change(nodes=rounder)) if inexactness and kind == inexactness else None

    # -- parts of edits --------------------------------------------------------------------------------------

    def _per_channel_codes(self, node: Node, values: np.ndarray) -> QuantParams | None:
        """Return int8 codes of the reference's weight, with a scale for each output channel.

        Return None if the backend's weight does not have a single scale, or if the node has no output channels.
        """
        axis = operators.output_axis(real_form(node, self.nodes.run.graph.opset)[0])
        if axis is None or not self.nodes.has_one_scale(self.nodes.weight(node)):
            return None
        min_scale = min_weight_scale(self.nodes, node)
        return weight_codes(values, axis % values.ndim, min_scale)

    def _find_inexactness(self, unit: ChangeableNode) -> str:
        """Return the kind of edit with which a node computes exact sums and rounds them to the nearest code.

        If a code is off by more than 1, this is "bias-unit" if the bias has another scale than the sums, else
        "wide-sum". If more codes are off by 1 than ties explain, it is "rounding". Otherwise, or if unknown, it is "".
        """
        run, quant = self.nodes.run, self.nodes.result_quant(unit)
        if quant is None or quant.qmin is None or quant.qmax is None:  # no codes, or float codes without a range
            return ""
        rounder = run.graph.producer(unit.tensor)
        if rounder is None:
            return ""
        off_by_one = count = 0
        for place in self.nodes.places:
            try:
                exact_codes = quantize(replay(run, rounder, unit.tensor, place), quant).astype(np.int64)
                recorded_codes = run.load(unit.tensor, *place).astype(np.int64)
            except (KernelError, NotRecordedError):
                return ""
            distance = np.abs(exact_codes.ravel() - recorded_codes.ravel())
            if distance.max(initial=0) > 1:
                if bias_in_other_units(run, unit.node) is not None:
                    return "bias-unit"
                return "wide-sum" if rounder is unit.node and self.nodes.weight(rounder) else ""
            off_by_one += int(distance.sum())
            count += int(((recorded_codes > quant.qmin) & (recorded_codes < quant.qmax)).sum())
        return "rounding" if off_by_one > OTHER_ROUNDING_LEAST * count > 0 else ""

    def _mean_error_shift(self, node: Node) -> np.ndarray | None:
        """Return the term that compensates for the mean own error of each channel of a product, or None if unknown."""
        real_node, _ = real_form(node, self.nodes.run.graph.opset)
        entry, bias = self.nodes.planned(node.outputs[0]), self.nodes.bias(node)
        if (
            operators.of(real_node.op).bias is None
            or entry is None
            or bias is None
            or not real_node.attrs.get("beta", 1.0)
        ):
            return None
        if entry.pair.backend_view is not None or entry.pair.reference_view is not None:
            return None
        total, count = None, 0
        is_matrix = operators.output_axis(real_node) in (-1, -2)
        for place in self.nodes.places:
            try:
                error = own_error(self.nodes.graphs, entry, place)
            except (KernelError, NotRecordedError):
                return None
            axis = error.ndim - 1 if is_matrix else 1
            if error.ndim <= axis or not np.isfinite(error).all():
                return None
            mean = error.mean(
                axis=tuple(other_axis for other_axis in range(error.ndim) if other_axis != axis), keepdims=True
            )
            total, count = mean if total is None else total + mean, count + 1
        if total is None or (bias and total.size != self.nodes.run.load(bias).size):
            return None
        return np.asarray(-total / count, np.float32)
