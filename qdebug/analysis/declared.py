"""Checks what the two graphs say, before what they compute: other weights, another bias, stride or activation.

A replay with the backend's own constants looks clean even if these are wrong. So the reference's nodes that a backend
node stands for are replayed too, on the backend's recorded inputs and with the reference's constants. The two replays
may differ by what rounding each constant to its nearest code makes of them, and by nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qdebug.analysis.alignment import Pair
from qdebug.analysis.band import unit_roundoff
from qdebug.analysis.layouts import in_reference_order
from qdebug.analysis.ops import plain_op, same_family
from qdebug.analysis.unheld import unheld
from qdebug.analysis.value_classes import Run
from qdebug.errors import KernelError, RecordingError
from qdebug.model import Node, QuantParams, Recording
from qdebug.numerics.affine import dequantize
from qdebug.replay.real_form import real_form, takes_codes
from qdebug.replay.registry import has_kernel, run_node

__all__ = ["Declared", "Segment"]

_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_ELEMENTWISE = frozenset({"Add", "Sub", "Mul"})
_SHAPING = (
    "kernel_shape",
    "strides",
    "pads",
    "dilations",
    "group",
    "axis",
    "axes",
    "perm",
    "transA",
    "transB",
    "alpha",
)
_TITLES = {
    **dict.fromkeys(_PRODUCTS, ("input", "weight", "bias")),
    "BatchNormalization": ("input", "scale", "bias", "mean", "variance"),
    "LayerNormalization": ("input", "scale", "bias"),
}
"""What an operator's inputs are called where they are constants."""
_MOST_NODES = 64
"""A backend node that stands for more nodes than this is not checked; no known fusion is that large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The reference's nodes that one backend node stands for.

    Args:
        nodes: In topological order; none if the backend node only hands values on.
        feeds: Reference tensor to backend tensor, for what enters.
    """

    nodes: tuple[Node, ...]
    feeds: Mapping[str, str]


class Declared:
    """Compares what two graphs declare, node by node.

    Args:
        reference: The reference run.
        backend: The backend run.
        pairs: All pairs of the alignment.
    """

    def __init__(self, reference: Recording, backend: Recording, pairs: Iterable[Pair]) -> None:
        self._ref, self._be = Run.of(reference), Run.of(backend)
        self._reference, self._backend = reference, backend
        self._pairs = {pair.backend: pair for pair in pairs}

    def segment(self, pair: Pair) -> Segment | None:
        """Find the reference's nodes between the partners of a backend node's inputs and that of its output.

        Returns:
            None if an input has no partner, or if the reference's way there begins elsewhere.
        """
        node = self._backend.graph.producer(pair.backend)
        if node is None:
            return None
        feeds: dict[str, str] = {}
        for tensor in self._be.classes.data_inputs(node):
            partner = self._pairs.get(tensor)
            if partner is None:
                return None
            feeds[partner.reference] = tensor
        ends = {self._ref.classes.root(name): name for name in feeds}
        found = self._between(pair.reference, ends)
        return None if found is None else Segment(nodes=found, feeds=feeds)

    def _between(self, output: str, ends: Mapping[str, str]) -> tuple[Node, ...] | None:
        graph, classes = self._reference.graph, self._ref.classes
        found: dict[str, Node] = {}
        waiting = [output]
        while waiting:
            tensor = waiting.pop()
            if classes.root(tensor) in ends:
                continue
            node = graph.producer(tensor)
            if node is None or len(found) > _MOST_NODES:
                return None
            if node.name not in found:
                found[node.name] = node
                waiting += classes.data_inputs(node)
        places = {name: graph.position(node.outputs[0]) or 0 for name, node in found.items()}
        return tuple(sorted(found.values(), key=lambda node: places[node.name]))

    def same(self, pair: Pair, node: Node, segment: Segment) -> bool:
        """Tell whether a backend node is declared exactly as its one reference node, operands included."""
        if not segment.nodes:
            return self._be.classes.handed_on(node) is not None
        theirs = segment.nodes[0]
        if len(segment.nodes) != 1 or pair.reference not in theirs.outputs:
            return False
        ours_form, _ = real_form(node, self._backend.graph.opset)
        theirs_form, _ = real_form(theirs, self._reference.graph.opset)
        return (
            ours_form.op == theirs_form.op
            and _attrs_key(ours_form) == _attrs_key(theirs_form)
            and node.outputs.index(pair.backend) == theirs.outputs.index(pair.reference)
            and len(ours_form.inputs) == len(theirs_form.inputs)
            and all(map(self._same_operand, ours_form.inputs, theirs_form.inputs))
        )

    def _same_operand(self, ours: str, theirs: str) -> bool:
        """Tell whether two operands are partners, or constants with equal real values."""
        if not ours or not theirs:
            return ours == theirs
        if self._be.classes.folds(ours) and self._ref.classes.folds(theirs):
            held = self._backend.has(ours) and self._reference.has(theirs)
            return not held or np.array_equal(_real(self._backend, ours), _real(self._reference, theirs))
        partner = self._pairs.get(ours)
        return partner is not None and self._ref.classes.root(partner.reference) == self._ref.classes.root(theirs)

    def checkable(self, node: Node, segment: Segment) -> bool:
        """Tell whether a replay of the reference's nodes can be held against the backend's node.

        Not where a node takes codes for numbers, nor where rounded constants of the reference's own stand in between.
        """
        constants = (name for other in segment.nodes for name in other.inputs if name and self._ref.classes.folds(name))
        coded = any(
            self._reference.graph.tensors[form].quant is not None
            for name in constants
            for form in self._ref.classes.members(name)
        )
        return not coded and not takes_codes(node)

    def replay(self, pair: Pair, segment: Segment, *, sample: int, step: int) -> np.ndarray:
        """Replay a segment on the backend's recorded inputs with the reference's constants.

        Returns:
            Real values in the reference's order of dimensions.

        Raises:
            KernelError: A node cannot be replayed.
            RecordingError: A constant or an input was not recorded.
        """
        values: dict[str, np.ndarray] = {}
        for name, tensor in segment.feeds.items():
            stored = _real(self._backend, tensor, sample, step)
            shape = self._reference.load(name, sample, step).shape
            values[name] = in_reference_order(stored, self._pairs[tensor].backend_view, shape)
        by_root = {self._ref.classes.root(name): name for name in segment.feeds}
        for node in segment.nodes:
            form, opset = real_form(node, self._reference.graph.opset)
            if not has_kernel(form.op, form.domain):
                raise KernelError(f"no kernel is known for {node.op}")
            for name in form.inputs:
                if name and name not in values:
                    fed = by_root.get(self._ref.classes.root(name))
                    values[name] = values[fed] if fed else _real(self._reference, name)
            values.update(run_node(form, values, opset))
        fed = by_root.get(self._ref.classes.root(pair.reference))
        return values[fed] if fed else values[pair.reference]

    def rounding(self, node: Node, *, sample: int, step: int) -> np.ndarray | float | None:
        """Bound what rounding the node's constants to their codes can change, in the backend's order of dimensions.

        Half a step of each weight times the magnitude of what it meets, and half a step of the bias. None where
        constants are rounded and no such bound is known.

        Raises:
            KernelError: The node cannot be replayed.
            RecordingError: An input was not recorded.
        """
        form, opset = real_form(node, self._backend.graph.opset)
        constants = [name for name in form.inputs if name and self._be.classes.folds(name)]
        if form.op not in _PRODUCTS and not any(np.any(self._half_steps(name)) for name in constants):
            return 0.0
        if form.op not in _PRODUCTS | _ELEMENTWISE:
            return None
        if form.op in ("Add", "Sub"):  # what a constant is added to does not scale its rounding
            form = replace(form, op="Add")
        values: dict[str, np.ndarray] = {}
        rounded = False
        for slot, name in enumerate(form.inputs):
            if not name:
                continue
            if self._be.classes.folds(name):
                steps = self._half_steps(name)
                rounded = rounded or bool(np.any(steps))
                values[name] = steps
            elif slot > 1 or form.op == "Add":
                values[name] = np.zeros_like(_real(self._backend, name, sample, step))
            else:
                values[name] = np.abs(_real(self._backend, name, sample, step))
        if not rounded:
            return 0.0
        if form.op != node.op and node.attrs.get("channels_last"):
            values[form.inputs[0]] = np.moveaxis(values[form.inputs[0]], -1, 1)
            return np.moveaxis(run_node(form, values, opset)[form.outputs[0]], 1, -1)
        return run_node(form, values, opset)[form.outputs[0]]

    def _half_steps(self, name: str) -> np.ndarray:
        """Give half a step for each element of a constant: of its codes, or of a float format coarser than float32."""
        forms = [form for form in self._be.classes.members(name) if self._backend.has(form)]
        values = _real(self._backend, name)
        shape = values.shape
        for form in self._be.classes.members(name):
            quant = self._backend.graph.tensors[form].quant
            if quant is not None:
                return np.broadcast_to(_steps(quant, len(shape)), shape) / np.float32(2)
        unit = max((unit_roundoff(self._backend.load(form).dtype) for form in forms), default=0.0)
        if unit > 2.0**-24:
            tiny = np.float32(np.finfo(np.float16).smallest_subnormal)
            return np.asarray(np.abs(values) * np.float32(unit) + tiny)
        return np.zeros(shape, np.float32)

    def unheld(self, node: Node, segment: Segment) -> str | None:
        """Say which constant of a node its format cannot hold; None if there is none."""
        main = _main(node, segment)
        return None if main is None else unheld(self._reference, self._backend, main, node)

    def difference(self, node: Node, segment: Segment) -> str:
        """Say in a clause what the graphs declare differently."""
        form, _ = real_form(node, self._backend.graph.opset)
        main = _main(node, segment)
        if main is None:
            known = " + ".join(n.op for n in segment.nodes)
            return f"{node.op} stands where the reference has {known or 'no node'}"
        theirs, _ = real_form(main, self._reference.graph.opset)
        attrs = _differing_attrs(form, theirs)
        if attrs:
            name = attrs[0]
            return f"its {name} is {form.attrs.get(name)}, the reference's is {theirs.attrs.get(name)}"
        said = self.unheld(node, segment) or self._constants_said(form, theirs)
        extra = [n.op for n in segment.nodes if n is not main]
        return said or f"it does not do what {' + '.join([main.op, *extra])} does"

    def _constants_said(self, ours: Node, theirs: Node) -> str:
        for slot, title in enumerate(_TITLES.get(plain_op(theirs), ("constant", "constant"))):
            one, other = (n.inputs[slot] if len(n.inputs) > slot else "" for n in (ours, theirs))
            if not one and not other:
                continue
            if not one or not other:
                return f"it has {'no' if not one else 'a'} {title}, the reference has {'one' if other else 'none'}"
            constants = self._be.classes.folds(one) and self._ref.classes.folds(other)
            if not (constants and self._backend.has(one) and self._reference.has(other)):
                continue
            mine, real = _real(self._backend, one), _real(self._reference, other)
            if mine.shape != real.shape:
                continue
            beyond = np.abs(mine - real) > 1.001 * self._half_steps(one) + 1e-6 * np.abs(real)
            if beyond.any():
                return f"{int(beyond.sum())} of {beyond.size} elements of its {title} {one!r} are not the reference's"
        return ""


def _main(node: Node, segment: Segment) -> Node | None:
    """Give the reference node of the same operator among those that a backend node stands for."""
    return next((n for n in segment.nodes if same_family(plain_op(n), plain_op(node))), None)


def _differing_attrs(one: Node, other: Node) -> Sequence[str]:
    ours, theirs = (dict(_attrs_key(node)) for node in (one, other))
    common = [name for name in ours if name in theirs and ours[name] != theirs[name]]
    shaping = [name for name in common if name in _SHAPING]
    return shaping or common


def _attrs_key(node: Node) -> tuple[tuple[str, str], ...]:
    """Give the attributes that say what a node computes, in a form that compares."""
    left_out = ("channels_last", "activation", "activation_params")
    return tuple(sorted((name, repr(value)) for name, value in node.attrs.items() if name not in left_out))


def _real(recording: Recording, name: str, sample: int = 0, step: int = 0) -> np.ndarray:
    if not recording.has(name, sample, step):
        raise RecordingError(f"Tensor {name!r} was not recorded.")
    return dequantize(recording.load(name, sample, step), recording.graph.tensors[name].quant)


def _steps(quant: QuantParams, rank: int) -> np.ndarray:
    """Give the scale in a shape that broadcasts over its tensor."""
    scale = np.asarray(quant.scale, np.float32)
    if quant.axis is None or scale.size == 1 or scale.ndim > 1:
        return scale.reshape((1,) * rank) if scale.size == 1 else scale
    shape = [1] * rank
    shape[quant.axis % rank] = scale.size
    return scale.reshape(shape)
