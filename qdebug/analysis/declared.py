"""Checks what the two graphs say, before what they compute: other weights, another bias, stride or activation.

A replay with the backend's own constants looks clean even if these are wrong. So the reference's nodes that a backend
node stands for are replayed too, on the backend's recorded inputs and with the reference's constants. The two replays
may differ by what rounding each constant to its nearest code makes of them, and by nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qdebug.analysis.alignment import Pair
from qdebug.analysis.layouts import in_reference_order
from qdebug.analysis.ops import plain_op, same_family
from qdebug.analysis.unheld import unheld
from qdebug.analysis.value_classes import Run
from qdebug.errors import KernelError, RecordingError
from qdebug.model import Node, QuantParams, Recording
from qdebug.numerics.affine import dequantize
from qdebug.replay.real_form import real_form
from qdebug.replay.registry import has_kernel, run_node

__all__ = ["Declared", "Segment"]

_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
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

    def same(self, node: Node, segment: Segment) -> bool:
        """Tell whether a backend node is declared exactly as its one reference node, constants included."""
        if not segment.nodes:
            return True
        if len(segment.nodes) != 1:
            return False
        theirs = segment.nodes[0]
        ours_form, _ = real_form(node, self._backend.graph.opset)
        theirs_form, _ = real_form(theirs, self._reference.graph.opset)
        if ours_form.op != theirs_form.op or _differing_attrs(ours_form, theirs_form):
            return False
        ours = [name for name in ours_form.inputs if name and self._be.classes.folds(name)]
        others = [name for name in theirs_form.inputs if name and self._ref.classes.folds(name)]
        return len(ours) == len(others) and all(
            np.array_equal(_real(self._backend, one), _real(self._reference, other))
            for one, other in zip(ours, others, strict=True)
            if self._backend.has(one) and self._reference.has(other)
        )

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

    def rounding(self, node: Node, *, sample: int, step: int) -> np.ndarray | float:
        """Bound what rounding the node's constants to their codes can change, in the backend's order of dimensions.

        Half a step of each weight times the magnitude of what it meets, and half a step of the bias.

        Raises:
            KernelError: The node cannot be replayed.
            RecordingError: An input was not recorded.
        """
        form, opset = real_form(node, self._backend.graph.opset)
        if form.op not in _PRODUCTS:
            return 0.0
        values: dict[str, np.ndarray] = {}
        rounded = False
        for slot, name in enumerate(form.inputs):
            if not name:
                continue
            if self._be.classes.folds(name):
                steps = self._half_steps(name)
                rounded = rounded or bool(np.any(steps))
                values[name] = steps
            elif slot > 1:
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
        """Give half a step for each element of a constant; 0 if it is not quantized, nor made of codes."""
        shape = _real(self._backend, name).shape
        for form in self._be.classes.members(name):
            quant = self._backend.graph.tensors[form].quant
            if quant is not None:
                return np.broadcast_to(_steps(quant, len(shape)), shape) / np.float32(2)
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
            return f"{node.op} stands where the reference has {' + '.join(n.op for n in segment.nodes)}"
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
    common = [name for name in _SHAPING if name in one.attrs and name in other.attrs]
    return [name for name in common if one.attrs[name] != other.attrs[name]]


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
