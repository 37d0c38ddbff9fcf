"""Quantized nodes of a recording as units: operands and output as they were recorded, sample by sample.

A node is a unit if its operator carries scales of its own (QLinearConv), or if it is a plain operator on recorded codes
(what accelerators dump), or if it ends a group of a QDQ graph between whose nodes nothing was recorded, since the
backend computed it as one.
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
from qdebug.replay.extents import recorded_room
from qdebug.replay.groups import Group, find_groups
from qdebug.replay.node_units import (
    Coded,
    unit_of_call,
    unit_of_codes,
    with_recorded_scale,
    with_stated_bias,
)
from qdebug.replay.real_form import not_in_codes
from qdebug.replay.registry import Call, has_kernel, refuse_large
from qdebug.replay.unit import Unit
from qdebug.replay.variant import Arithmetic

__all__ = ["Place", "UnitSource", "Units", "channels_last"]

_UNSAID = "Unknown"
"""Operator of a tensor that was recorded without saying what made it."""
Place = tuple[int, int]
"""A sample and a step."""


class _LastUnit:
    """The unit that was made last: a search asks several times for that of its first sample."""

    def __init__(self) -> None:
        self._known: tuple[tuple[str, tuple[Place, ...]], Unit] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return _LastUnit, ()  # its arrays do not travel

    def get(self, tensor: str, places: tuple[Place, ...], make: Callable[[], Unit]) -> Unit:
        """Return the unit of a tensor in some samples and steps; make it if it is not the last."""
        known = self._known
        if known is None or known[0] != (tensor, places):
            known = self._known = (tensor, places), make()
        return known[1]


@dataclass(frozen=True, kw_only=True, eq=False)
class UnitSource:
    """A quantized node of a recording.

    Args:
        recording: The backend's recording.
        node: The node.
        computed: What it stands for: the node itself, or the group that it ends.
        tensor: The output that is looked at.
        places: Samples and steps for which all that is needed was recorded.
        last: The last unit of any source of the same recording.
    """

    recording: Recording
    node: Node
    computed: Node
    tensor: str
    places: tuple[Place, ...]
    last: _LastUnit = field(default_factory=_LastUnit, repr=False)

    def unit(self, place: Place, *others: Place) -> Unit:
        """Make the unit of one sample and step, or of several of a batch of `batches`, one after the other.

        Raises:
            KernelError: The node is no quantized unit, or its operands do not fit it.
            RecordingError: An operand cannot be read.
        """
        return self.last.get(self.tensor, (place, *others), lambda: self._made(place, *others))

    def _made(self, place: Place, *others: Place) -> Unit:
        real = not_in_codes(self.node, self.recording.graph)
        if real is not None:
            raise KernelError(f"{real[0].upper()}{real[1:]}.")
        names = [name for name in self.computed.inputs if name]
        try:
            values = {name: self._loaded(name, place, *others) for name in dict.fromkeys(names)}
            unit = _of_call(self.recording, self.computed, values) or _of_codes(
                self.recording, self.computed, self.tensor, values
            )
        except (ValueError, ArithmeticError) as error:
            raise KernelError(f"The operands of node {self.node.name!r} do not fit it: {error}.") from error
        if unit is None:
            raise KernelError(_why_none(self.recording, self.computed))
        node, read = with_recorded_scale(self.computed, values, self.recording.graph.tensors)
        with recorded_room(self.recording, place, times=1 + len(others)):
            refuse_large(node, [read[name] if name else None for name in node.inputs], self.recording.graph.opset)
        quant = self.recording.graph.tensors[self.tensor].quant
        if quant is None or (quant.multiplier is None and quant.shift is None):
            return unit
        return replace(unit, out=replace(unit.out, multiplier=quant.multiplier, shift=quant.shift))

    @property
    def moves(self) -> bool:
        """Whether the node hands on codes by the scale and zero point that they came with."""
        unit = self.unit(self.places[0])
        if unit.kind not in ("requantize", "max_pool") or unit.out.clamp is not None or self.computed is not self.node:
            return False
        given = unit.operands[0]
        return is_same_scale(given.scale, unit.out.scale) and np.array_equal(given.zero_point, unit.out.zero_point)

    @property
    def flaw(self) -> str | None:
        """Say which scale nothing can be computed with; None if all can."""
        unit = self.unit(self.places[0])
        for position, operand in enumerate(unit.operands):
            odd = operand.scale[~np.isfinite(operand.scale)]
            if odd.size:
                return f"a scale of {_ordinal(position)} is {odd.reshape(-1)[0]:g}, so nothing can be computed"
        bad = unit.out.scale[~(np.isfinite(unit.out.scale) & (unit.out.scale > 0))]
        return f"the scale of its output is {bad.reshape(-1)[0]:g}, so nothing can be computed" if bad.size else None

    @property
    def void(self) -> str | None:
        """Say which operand stands for nothing but 0; None if none does."""
        operands = self.unit(self.places[0]).operands
        empty = next((at for at, operand in enumerate(operands) if not np.any(operand.scale)), None)
        return None if empty is None else f"every scale of {_ordinal(empty)} is 0, so that all its values are 0"

    def codes(self, place: Place, *others: Place) -> np.ndarray:
        """Load the recorded output of one sample and step, or of a batch, in the node's own layout."""
        return self._loaded(self.tensor, place, *others)

    def _loaded(self, name: str, place: Place, *others: Place) -> np.ndarray:
        if not others or self.recording.graph.is_constant(name):
            return self.recording.load(name, *place)
        return np.concatenate([self.recording.load(name, *each) for each in (place, *others)])

    @cached_property
    def batches(self) -> tuple[tuple[Place, ...], ...]:
        """Samples and steps in groups that can be computed as one: joined along their first axis, they do not mix.

        Whether they do is tried on the first and the last. The shapes in a group are the same.
        """
        alone = tuple((place,) for place in self.places)
        names = [name for name in (*self.computed.inputs, self.tensor) if name]
        varying = [name for name in dict.fromkeys(names) if not self.recording.graph.is_constant(name)]
        if len(self.places) <= _TRIED or self.tensor not in varying:
            return alone
        found: list[list[Place]] = []
        shapes: object = None
        room = 0
        for place in self.places:
            own = [self._form(name, place) for name in varying]
            if own != shapes or room <= 0:
                found.append([])
                shapes, room = own, _BATCH_ELEMENTS
            found[-1].append(place)
            room -= sum(math.prod(shape) for _, shape in own)
        joined = len(found) < len(self.places) and self._apart(self.places[0], self.places[-1])
        return tuple(map(tuple, found)) if joined else alone

    def _form(self, name: str, place: Place) -> tuple[str, tuple[int, ...]]:
        """Return dtype and shape of a tensor."""
        known = self.recording.outline(name, *place)
        if known is not None:
            return known.dtype, known.shape
        array = self.recording.load(name, *place)
        return array.dtype.name, array.shape

    def _apart(self, first: Place, last: Place) -> bool:
        """Tell whether two samples give the same joined along their first axis as each alone."""
        try:
            whole, *parts = [
                (unit, *_computed(unit)) for unit in (self.unit(first, last), self.unit(first), self.unit(last))
            ]
        except KernelError:
            return False
        if any(len(columns.values) != len(whole[1].values) for _, columns, _ in parts):
            return False
        numbers = zip(whole[1].values, *(columns.values for _, columns, _ in parts), strict=True)
        pairs = [*numbers, (whole[2], *(codes for _, _, codes in parts))]
        return all(_is_joined(joined, *separate) for joined, *separate in pairs)


_BATCH_ELEMENTS = 1 << 18
"""Elements of samples that are computed as one, inputs and output together: memory stays flat."""
_TRIED = 2
"""Samples that are computed to see whether they can be joined."""


def _computed(unit: Unit) -> tuple[Columns, np.ndarray]:
    """Return the numbers that programs start from, and the codes, in the usual arithmetic."""
    variant = Arithmetic().variant(unit)
    columns = accumulate(unit, variant.sums)
    return columns, finish(unit, columns, variant).reshape(columns.shape)


def _is_joined(joined: np.ndarray, first: np.ndarray, last: np.ndarray) -> bool:
    if not first.ndim or first.shape[1:] != last.shape[1:]:
        return False
    return np.array_equal(joined, np.concatenate([first, last]), equal_nan=joined.dtype.kind == "f")


def _ordinal(position: int) -> str:
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
        self._held: dict[str, bool] = {}
        self._places: dict[str, tuple[Place, ...]] = {}
        groups = [group for group in find_groups(recording.graph, _bounds(recording)) if not self._seen_inside(group)]
        self._ends = {group.members[-1].outputs[0]: group for group in groups}
        self._inside = {name: group.node.name for group in groups for name in group.interior}

    def computed(self, node: Node, tensor: str) -> Node:
        """Return what a node's output is computed by: the node, or the group that it ends."""
        return self._ends[tensor].node if tensor in self._ends else node

    def missing(self, node: Node, tensor: str) -> str | None:
        """Say which values of a node were recorded for no sample; None if nothing is missing."""
        if tensor in self._inside:
            return f"it is computed within {self._inside[tensor]!r} and not on its own"
        for name in self.computed(node, tensor).inputs:
            if name and not self._recorded(name):
                constant = self._recording.graph.is_constant(name)
                return self._absent(name, f"its {'constant' if constant else 'input'}")
        if not self._recorded(tensor):
            return self._absent(tensor, "its output")
        return None if self.places(node, tensor) else "inputs and output were recorded for no sample together"

    def places(self, node: Node, tensor: str) -> tuple[Place, ...]:
        """List the samples and steps of which a node's inputs and output were recorded."""
        if tensor not in self._places:
            needed = [tensor, *(name for name in self.computed(node, tensor).inputs if name)]
            varying = next((name for name in needed if not self._recording.graph.is_constant(name)), tensor)
            places = self._recording.places(varying)
            self._places[tensor] = tuple(p for p in places if all(self._recording.has(name, *p) for name in needed))
        return self._places[tensor]

    def find(self, node: Node, tensor: str, computed: Node | None = None) -> UnitSource | str:
        """Find the unit that a node computes, or say why there is none.

        Args:
            node: A node whose values were recorded.
            tensor: One of its outputs.
            computed: What it stands for; the node, or the group that it ends, if left out.

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
            if not source.places or not all(map(self._recorded, filter(None, source.computed.inputs))):
                return "its inputs were not recorded."
            source.unit(source.places[0])
        except KernelError as error:
            return error.message
        return source

    def quantized(self, node: Node, tensor: str) -> bool:
        """Tell whether a node gives codes, or carries scales: whether it is no float node."""
        info = self._recording.graph.tensors[tensor]
        if operators.of(node.op).real is not None:
            return True
        return (
            info.quant is not None and is_integer(info.quant.dtype) and (info.dtype is None or is_integer(info.dtype))
        )

    def _seen_inside(self, group: Group) -> bool:
        return any(self._recorded(name) for name in group.interior)

    def _absent(self, name: str, what: str) -> str:
        """Say what there is of a tensor in place of its values."""
        found = (self._recording.kept(name, *place) for place in self._recording.places(name))
        kept = next((kept for kept in found if kept is not None), None)
        if kept is None:
            why = self._recording.info.skipped.get(name)
            return f"{what} {name!r} was not recorded{f': {why}' if why else ''}"
        if kept.positions is None:
            return f"of {what} {name!r} only statistics were kept"
        return f"of {what} {name!r} only {kept.positions.size} of {kept.statistics.count} elements were kept"

    def _recorded(self, name: str) -> bool:
        if name not in self._held:
            self._held[name] = any(self._recording.has(name, *place) for place in self._recording.places(name))
        return self._held[name]


def _bounds(recording: Recording) -> Mapping[str, np.ndarray]:
    """Load the constants that a Clip may take its bounds from."""
    names = {
        name for node in recording.graph.nodes if operators.of(node.op).bounded for name in node.inputs[1:] if name
    }
    return {n: recording.load(n) for n in names if recording.graph.is_constant(n) and recording.has(n)}


def _why_none(recording: Recording, node: Node) -> str:
    """Say why a node is no unit: an operator of another name, or operands that are no codes."""
    if node.op == _UNSAID:
        return "nothing says which operator computes it."
    if not has_kernel(node.op, node.domain):
        plain = {op.lower(): op for op in operators.names_where(lambda row: row.unit)}
        near = get_close_matches(re.sub("[^a-z]", "", node.op.lower()), plain, n=1, cutoff=0.7)
        meant = operators.named(node.op)
        known = meant.name if meant.unit else (plain[near[0]] if near else None)
        hint = f"; ONNX has {known}" if known else ""
        return f"The operator {node.op} is computed in no known quantized way{hint}."
    if not any(node.inputs):
        return f"nothing says what {node.op} reads."
    data = [name for name in node.inputs[:2] if name]
    bare = next((name for name in data if recording.graph.tensors[name].quant is None), None)
    if operators.of(node.op).unit and bare is not None:
        return f"nothing says how the input {bare!r} of {node.op} is quantized."
    return f"The operator {node.op} is computed in no known quantized way."


def _of_call(recording: Recording, node: Node, values: Mapping[str, np.ndarray]) -> Unit | None:
    """Make the unit of an operator that carries its scales."""
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
    made = tensors.get(node.outputs[0])  # a node may leave its first output out
    unit, quant = unit_of_call(call), None if made is None else made.quant
    if unit is not None and unit.bias is not None:
        position = operators.of(node.op).bias
        name = node.inputs[position] if position is not None and position < len(node.inputs) else ""
        return unit if not name else with_stated_bias(unit, tensors[name].quant)
    if unit is None or completed is node or quant is None or not operators.of(node.op).quantizes:
        return unit
    return replace(unit, out=replace(unit.out, low=quant.qmin, high=quant.qmax))


def _of_codes(recording: Recording, node: Node, tensor: str, values: Mapping[str, np.ndarray]) -> Unit | None:
    """Make the unit of a plain operator on codes."""
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
    """Tell whether a node's output has its channels last, by the layout said of it or by the nodes before it.

    Args:
        graph: The graph.
        node: A node that has no layout of its own, such as an addition.
    """
    waiting, seen = [node], {node.name}
    while waiting and len(seen) <= LAYOUT_SEARCH_MAX_NODES:
        asked = waiting.pop(0)
        said = [graph.tensors[name].layout for name in asked.outputs if name in graph.tensors]
        if any(said):
            return any(layout is not None and layout.endswith("C") for layout in said)
        row = operators.plain(asked)
        if "channels_last" in asked.attrs or row.windowed:
            return bool(asked.attrs.get("channels_last")) or operators.of(asked.op).channels_last
        if row.arranges or row.sums is Sums.MATRIX:
            continue  # its output says nothing of the layout of its input
        before = [found for name in asked.inputs if (found := graph.producer(name)) and found.name not in seen]
        seen |= {found.name for found in before}
        waiting += before
    return False
