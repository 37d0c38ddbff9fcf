"""Provides the quantized nodes of a recording as units, with recorded operands and outputs. Begin at `Units.find`.

A node is a unit if its operator reads scales (QLinearConv), if it is a float operator on recorded codes (as in dumps of
accelerators), or if it ends a group of a QDQ graph that the backend computed as one node.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property

import numpy as np

from qdebug.errors import KernelError
from qdebug.model import Graph, Node, QuantParams, Recording, operators
from qdebug.model.dtypes import is_integer, logical_name
from qdebug.model.operators import Sums
from qdebug.model.quant import is_same_scale
from qdebug.model.thresholds.explanation import LAYOUT_SEARCH_MAX_NODES
from qdebug.replay.columns import Columns
from qdebug.replay.evaluate import accumulate, finish
from qdebug.replay.extents import recorded_limits
from qdebug.replay.groups import Group, find_groups
from qdebug.replay.node_units import (
    Coded,
    unit_of_call,
    unit_of_codes,
    with_recorded_scale,
    with_stated_bias,
)
from qdebug.replay.real_form import describe_real_tensor
from qdebug.replay.registry import Call, has_kernel, refuse_large
from qdebug.replay.stacked import is_stack
from qdebug.replay.unit import Unit
from qdebug.replay.variant import Arithmetic

__all__ = ["Place", "UnitSource", "Units", "channels_last"]

Place = tuple[int, int]
"""A sample and a step."""


class _LastUnit:
    """Caches the last unit, because a search requests the unit of its first sample several times."""

    def __init__(self) -> None:
        self._cached: tuple[tuple[str, tuple[Place, ...]], Unit] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return _LastUnit, ()  # pickle an empty cache, because its arrays would be copied to every process

    def get(self, tensor: str, places: tuple[Place, ...], make: Callable[[], Unit]) -> Unit:
        """Return the unit of a tensor for given samples and steps, making it if it is not cached."""
        cached = self._cached
        if cached is None or cached[0] != (tensor, places):
            cached = self._cached = (tensor, places), make()
        return cached[1]


@dataclass(frozen=True, kw_only=True, eq=False)
class UnitSource:
    """A quantized node of a recording, from which its units are made.

    Args:
        recording: The backend's recording.
        node: The node.
        computed: The node that is computed: the node itself, or the group that it ends.
        tensor: The output.
        places: Samples and steps for which all inputs and the output were recorded.
        last: Cache shared by all sources of the recording.
    """

    recording: Recording
    node: Node
    computed: Node
    tensor: str
    places: tuple[Place, ...]
    last: _LastUnit = field(default_factory=_LastUnit, repr=False)

    def unit(self, place: Place, *further_places: Place) -> Unit:
        """Return the unit of a sample and step, or of a batch from `batches`.

        Raises:
            KernelError: The node is not a quantized unit, or its operands do not fit it.
            RecordingError: An operand cannot be read.
        """
        return self.last.get(self.tensor, (place, *further_places), lambda: self._make(place, *further_places))

    def _make(self, place: Place, *further_places: Place) -> Unit:
        reason = describe_real_tensor(self.node, self.recording.graph)
        if reason is not None:
            raise KernelError(f"{reason[0].upper()}{reason[1:]}.")
        names = [name for name in self.computed.inputs if name]
        try:
            values = {name: self._load(name, place, *further_places) for name in dict.fromkeys(names)}
            unit = _unit_with_scales(self.recording, self.computed, values) or _unit_on_codes(
                self.recording, self.computed, self.tensor, values
            )
        except (ValueError, ArithmeticError) as error:
            raise KernelError(f"The operands of node {self.node.name!r} do not fit it: {error}.") from error
        if unit is None:
            raise KernelError(_reason_for_no_unit(self.recording, self.computed))
        node, completed_values = with_recorded_scale(self.computed, values, self.recording.graph.tensors)
        with recorded_limits(self.recording, place, times=1 + len(further_places)):
            refuse_large(
                node, [completed_values[name] if name else None for name in node.inputs], self.recording.graph.opset
            )
        quant = self.recording.graph.tensors[self.tensor].quant
        if quant is None or (quant.multiplier is None and quant.shift is None):
            return unit
        return replace(unit, out=replace(unit.out, multiplier=quant.multiplier, shift=quant.shift))

    @property
    def only_moves_codes(self) -> bool:
        """Whether the node passes codes on with an unchanged scale and zero point."""
        unit = self.unit(self.places[0])
        if unit.kind not in ("requantize", "max_pool") or unit.out.clamp is not None or self.computed is not self.node:
            return False
        operand = unit.operands[0]
        return is_same_scale(operand.scale, unit.out.scale) and np.array_equal(operand.zero_point, unit.out.zero_point)

    @property
    def bad_scale_text(self) -> str | None:
        """A clause on a scale with which the node cannot be computed, or None."""
        unit = self.unit(self.places[0])
        for position, operand in enumerate(unit.operands):
            nonfinite_scales = operand.scale[~np.isfinite(operand.scale)]
            if nonfinite_scales.size:
                scale = nonfinite_scales.reshape(-1)[0]
                return f"a scale of {_ordinal_text(position)} is {scale:g}, so nothing can be computed"
        bad_scales = unit.out.scale[~(np.isfinite(unit.out.scale) & (unit.out.scale > 0))]
        return (
            f"the scale of its output is {bad_scales.reshape(-1)[0]:g}, so nothing can be computed"
            if bad_scales.size
            else None
        )

    @property
    def zero_scales_text(self) -> str | None:
        """A clause on an operand whose scales are all 0, or None."""
        operands = self.unit(self.places[0]).operands
        empty = next((at for at, operand in enumerate(operands) if not np.any(operand.scale)), None)
        return None if empty is None else f"every scale of {_ordinal_text(empty)} is 0, so that all its values are 0"

    def codes(self, place: Place, *further_places: Place) -> np.ndarray:
        """Load the recorded output of one sample and step, or of a batch, in the node's own layout."""
        return self._load(self.tensor, place, *further_places)

    def _load(self, name: str, place: Place, *further_places: Place) -> np.ndarray:
        if not further_places or self.recording.graph.is_constant(name):
            return self.recording.load(name, *place)
        return np.concatenate([self.recording.load(name, *sample_place) for sample_place in (place, *further_places)])

    @cached_property
    def batches(self) -> tuple[tuple[Place, ...], ...]:
        """Groups of samples and steps that are computed together, concatenated along their first axis.

        All samples of a group have the same shapes. A trial on the first and last sample shows whether concatenation
        leaves the results unchanged. If it does not, each sample is a group.
        """
        alone = tuple((place,) for place in self.places)
        names = [name for name in (*self.computed.inputs, self.tensor) if name]
        varying = [name for name in dict.fromkeys(names) if not self.recording.graph.is_constant(name)]
        if len(self.places) <= _PROBED_SAMPLES or self.tensor not in varying:
            return alone
        groups: list[list[Place]] = []
        shapes: object = None
        remaining_elements = 0
        for place in self.places:
            outlines = [self._outline(name, place) for name in varying]
            if outlines != shapes or remaining_elements <= 0:
                groups.append([])
                shapes, remaining_elements = outlines, _BATCH_ELEMENTS
            groups[-1].append(place)
            remaining_elements -= sum(math.prod(shape) for _, shape in outlines)
        are_joinable = len(groups) < len(self.places) and self._are_independent(self.places[0], self.places[-1])
        return tuple(map(tuple, groups)) if are_joinable else alone

    def _outline(self, name: str, place: Place) -> tuple[str, tuple[int, ...]]:
        """Return dtype and shape of a tensor."""
        outline = self.recording.outline(name, *place)
        if outline is not None:
            return outline.dtype, outline.shape
        array = self.recording.load(name, *place)
        return array.dtype.name, array.shape

    def _are_independent(self, first: Place, last: Place) -> bool:
        """Return whether two samples give the same results concatenated along their first axis as separately."""
        try:
            together, *parts = [
                (unit, *_compute_by_default(unit))
                for unit in (self.unit(first, last), self.unit(first), self.unit(last))
            ]
        except KernelError:
            return False
        if any(len(columns.values) != len(together[1].values) for _, columns, _ in parts):
            return False
        numbers = zip(together[1].values, *(columns.values for _, columns, _ in parts), strict=True)
        pairs = [*numbers, (together[2], *(codes for _, _, codes in parts))]
        return all(is_stack(joined, *separate) for joined, *separate in pairs)


_BATCH_ELEMENTS = 1 << 18
"""Maximum number of elements of a batch, inputs and output together, to limit memory."""
_PROBED_SAMPLES = 2
"""Number of samples that are computed to find out whether samples can be concatenated."""


def _compute_by_default(unit: Unit) -> tuple[Columns, np.ndarray]:
    """Return the columns and the codes of a unit, computed with the default arithmetic."""
    variant = Arithmetic().variant(unit)
    columns = accumulate(unit, variant.sums)
    return columns, finish(unit, columns, variant).reshape(columns.shape)


def _ordinal_text(position: int) -> str:
    names = ("its first operand", "its second operand")
    return names[position] if position < len(names) else f"its operand {position + 1}"


class Units:
    """The quantized nodes of a recording.

    Args:
        recording: The backend's recording.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._last = _LastUnit()
        self._is_recorded_by_name: dict[str, bool] = {}
        self._places: dict[str, tuple[Place, ...]] = {}
        groups = [
            group
            for group in find_groups(recording.graph, _load_clip_bounds(recording))
            if not self._has_recorded_inside(group)
        ]
        self._ends = {group.members[-1].outputs[0]: group for group in groups}
        self._inside = {name: group.node.name for group in groups for name in group.interior}

    def computed(self, node: Node, tensor: str) -> Node:
        """Return the node that computes an output: the node itself, or the group that it ends."""
        return self._ends[tensor].node if tensor in self._ends else node

    def missing(self, node: Node, tensor: str) -> str | None:
        """Return a clause on a tensor of a node that was not recorded in any sample, or None."""
        if tensor in self._inside:
            return f"it is computed inside {self._inside[tensor]!r}, not on its own"
        for name in self.computed(node, tensor).inputs:
            if name and not self._is_recorded(name):
                constant = self._recording.graph.is_constant(name)
                return self._missing_text(name, f"its {'constant' if constant else 'input'}")
        if not self._is_recorded(tensor):
            return self._missing_text(tensor, "its output")
        return None if self.places(node, tensor) else "no sample has both its inputs and its output"

    def places(self, node: Node, tensor: str) -> tuple[Place, ...]:
        """Return the samples and steps for which a node's inputs and output were recorded."""
        if tensor not in self._places:
            needed = [tensor, *(name for name in self.computed(node, tensor).inputs if name)]
            varying = next((name for name in needed if not self._recording.graph.is_constant(name)), tensor)
            places = self._recording.places(varying)
            self._places[tensor] = tuple(p for p in places if all(self._recording.has(name, *p) for name in needed))
        return self._places[tensor]

    def find(self, node: Node, tensor: str, computed: Node | None = None) -> UnitSource | str:
        """Return the unit that a node computes, or the reason why there is none.

        Args:
            node: A node whose values were recorded.
            tensor: One of its outputs.
            computed: The node that is computed: the node itself, or a group that it ends. None to determine it.

        Raises:
            RecordingError: A value cannot be read.
        """
        source = UnitSource(
            recording=self._recording,
            node=node,
            computed=computed or self.computed(node, tensor),
            tensor=tensor,
            places=self.places(node, tensor),
            last=self._last if computed is None else _LastUnit(),
        )
        try:
            if not source.places or not all(map(self._is_recorded, filter(None, source.computed.inputs))):
                return "its inputs were not recorded."
            source.unit(source.places[0])
        except KernelError as error:
            return error.message
        return source

    def quantized(self, node: Node, tensor: str) -> bool:
        """Return whether a node outputs integer codes or has a quantized operator, and so is not a float node."""
        info = self._recording.graph.tensors[tensor]
        if operators.of(node.op).real is not None:
            return True
        return (
            info.quant is not None and is_integer(info.quant.dtype) and (info.dtype is None or is_integer(info.dtype))
        )

    def _has_recorded_inside(self, group: Group) -> bool:
        return any(self._is_recorded(name) for name in group.interior)

    def _missing_text(self, name: str, title: str) -> str:
        """Return a clause on why a tensor has no values: not recorded, or kept as statistics or some elements only."""
        partial_payloads = (self._recording.kept(name, *place) for place in self._recording.places(name))
        payload = next((payload for payload in partial_payloads if payload is not None), None)
        if payload is None:
            skip_reason = self._recording.info.skipped.get(name)
            return f"{title} {name!r} was not recorded{f': {skip_reason}' if skip_reason else ''}"
        if payload.positions is None:
            return f"{title} {name!r} was kept as statistics only"
        return f"{title} {name!r} was kept with only {payload.positions.size} of {payload.statistics.count} elements"

    def _is_recorded(self, name: str) -> bool:
        if name not in self._is_recorded_by_name:
            self._is_recorded_by_name[name] = any(
                self._recording.has(name, *place) for place in self._recording.places(name)
            )
        return self._is_recorded_by_name[name]


def _load_clip_bounds(recording: Recording) -> Mapping[str, np.ndarray]:
    """Load the constants that may be bounds of a Clip."""
    names = {
        name for node in recording.graph.nodes if operators.of(node.op).bounded for name in node.inputs[1:] if name
    }
    return {n: recording.load(n) for n in names if recording.graph.is_constant(n) and recording.has(n)}


def _reason_for_no_unit(recording: Recording, node: Node) -> str:
    """Return a sentence on why a node is not a unit: its operator is unsupported, or its operands are not codes."""
    if node.op == operators.UNKNOWN_OP:
        return "The recording does not say which operator computes it."
    if not has_kernel(node.op, node.domain):
        op_by_lowercase = {op.lower(): op for op in operators.names_where(lambda row: row.unit)}
        near_names = get_close_matches(re.sub("[^a-z]", "", node.op.lower()), op_by_lowercase, n=1, cutoff=0.7)
        synonym = operators.named(node.op)
        onnx_op = synonym.name if synonym.unit else (op_by_lowercase[near_names[0]] if near_names else None)
        hint = f"; ONNX has {onnx_op}" if onnx_op else ""
        return f"No quantized arithmetic is known for the operator {node.op}{hint}."
    if not any(node.inputs):
        return f"The recording does not say what {node.op} reads."
    data = [name for name in node.inputs[:2] if name]
    bare = next((name for name in data if recording.graph.tensors[name].quant is None), None)
    if operators.of(node.op).unit and bare is not None:
        return f"The recording does not say how the input {bare!r} of {node.op} is quantized."
    return f"No quantized arithmetic is known for the operator {node.op}."


def _unit_with_scales(recording: Recording, node: Node, values: Mapping[str, np.ndarray]) -> Unit | None:
    """Return the unit of an operator that reads its scales, or None for other operators."""
    tensors = recording.graph.tensors
    completed, values = with_recorded_scale(node, values, tensors)
    call = Call(
        inputs=tuple(values[name] if name else None for name in completed.inputs),
        attrs=completed.attrs,
        opset=recording.graph.opset.get(node.domain, 1000),
        outputs=len(node.outputs),
        op=node.op,
        node=node.name,
    )
    output_info = tensors.get(node.outputs[0])  # None if the node omits its first output
    unit, quant = unit_of_call(call), None if output_info is None else output_info.quant
    if unit is not None and unit.bias is not None:
        position = operators.of(node.op).bias
        name = node.inputs[position] if position is not None and position < len(node.inputs) else ""
        return unit if not name else with_stated_bias(unit, tensors[name].quant)
    if unit is None or completed is node or quant is None or not operators.of(node.op).quantizes:
        return unit
    return replace(unit, out=replace(unit.out, low=quant.qmin, high=quant.qmax))


def _unit_on_codes(recording: Recording, node: Node, tensor: str, values: Mapping[str, np.ndarray]) -> Unit | None:
    """Return the unit of a float operator on recorded codes, or None if its output is not quantized."""
    tensors = recording.graph.tensors
    quant = tensors[tensor].quant
    if quant is None or not is_integer(quant.dtype):
        return None
    inputs: Sequence[Coded | None] = [
        Coded(values=values[name], quant=_quant_of(recording, name, values[name])) if name else None
        for name in node.inputs
    ]
    return unit_of_codes(node, inputs, quant, opset=recording.graph.opset)


def _quant_of(recording: Recording, name: str, values: np.ndarray) -> QuantParams | None:
    quant = recording.graph.tensors[name].quant
    return quant if quant is not None and is_integer(logical_name(values.dtype)) else None


def channels_last(graph: Graph, node: Node) -> bool:
    """Return whether a node's output is channels-last, judging by its recorded layout or by the nodes upstream.

    Args:
        graph: The graph.
        node: A node without a layout of its own, such as an addition.
    """
    waiting, visited = [node], {node.name}
    while waiting and len(visited) <= LAYOUT_SEARCH_MAX_NODES:
        current = waiting.pop(0)
        layouts = [graph.tensors[name].layout for name in current.outputs if name in graph.tensors]
        if any(layouts):
            return any(layout is not None and layout.endswith("C") for layout in layouts)
        row = operators.plain(current)
        if "channels_last" in current.attrs or row.windowed:
            return bool(current.attrs.get("channels_last")) or operators.of(current.op).channels_last
        if row.arranges or row.sums is Sums.MATRIX:
            continue  # the output's layout does not determine the input's
        producers = [
            producer for name in current.inputs if (producer := graph.producer(name)) and producer.name not in visited
        ]
        visited |= {producer.name for producer in producers}
        waiting += producers
    return False
